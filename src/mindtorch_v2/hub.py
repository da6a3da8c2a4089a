"""torch.hub: files with weights, fetched once and kept in a folder, and models of folders with a hubconf.py."""
from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from typing import Any
from urllib.parse import urlparse

import mindtorch_v2 as torch

try:
    from tqdm import tqdm  # programs read it here; downloads of this module show their own line
except ImportError:
    tqdm = None

__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir"]

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")   # weights-1a2b3c4d.pth names the beginning of its SHA-256
_chosen: Any = [None]


def get_dir() -> str:
    """Where files are kept: what set_dir says, else $TORCH_HOME/hub, else the user's cache folder."""
    return _chosen[0] or os.path.join(_get_torch_home(), "hub")


def _get_torch_home() -> str:
    """$TORCH_HOME, else the user's cache folder."""
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.environ.get("TORCH_HOME", f"{cache}/torch"))


def set_dir(d: str | os.PathLike[str]) -> None:
    """Keeps files in another folder from now on."""
    _chosen[0] = os.path.expanduser(d)


def download_url_to_file(url: str, dst: str, hash_prefix: str | None = None, progress: bool = True) -> None:
    """Fetches a file; it is renamed into place only when complete and when its SHA-256 has the expected prefix."""
    request = urllib.request.Request(url, headers={"User-Agent": "torch.hub"})
    dst, digest = os.path.expanduser(dst), hashlib.sha256()
    with urllib.request.urlopen(request) as source, \
            tempfile.NamedTemporaryFile(dir=os.path.dirname(dst) or ".", suffix=".partial", delete=False) as file:
        try:
            size = source.headers.get("Content-Length") or ""
            with torch._progress.Progress(os.path.basename(dst), int(size) if size.isdigit() else None, "bytes") as shown:
                while block := source.read(1 << 20):
                    file.write(block)
                    digest.update(block)
                    if progress:
                        shown.advance(len(block))
            file.close()
            if hash_prefix and not digest.hexdigest().startswith(hash_prefix):
                raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{digest.hexdigest()}")')
            shutil.move(file.name, dst)
        finally:
            if os.path.exists(file.name):
                os.remove(file.name)


def load_state_dict_from_url(url: str, model_dir: str | None = None, map_location: Any = None, progress: bool = True,
                             check_hash: bool = False, file_name: str | None = None,
                             weights_only: bool = False) -> dict[str, Any]:
    """The state dict that a URL leads to; a file that was fetched before is not fetched again."""
    folder = os.path.join(get_dir(), "checkpoints") if model_dir is None else model_dir
    os.makedirs(folder, exist_ok=True)
    name = file_name or os.path.basename(urlparse(url).path)
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        sys.stderr.write(f'Downloading: "{url}" to {path}\n')
        found = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, path, found.group(1) if found else None, progress)
    return torch.load(_unpacked(path, folder), map_location=map_location, weights_only=weights_only)


def _unpacked(path: str, folder: str) -> str:
    """The one file inside a plain zip of the days before PyTorch 1.6; a file of torch.save is a zip too, of many."""
    if not zipfile.is_zipfile(path):
        return path
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            return path if len(members) != 1 else archive.extract(members[0], folder)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, UnicodeDecodeError) as error:
        raise RuntimeError(f"[hub] {path} is damaged: {error}") from error


def _entrypoints(repo_or_dir: str, source: str, what: str) -> Any:
    """The module hubconf of a folder on this machine, imported anew. Other places are refused."""
    if source not in ("github", "local"):
        raise ValueError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    if source == "github":
        raise NotImplementedError(f"[hub.{what}] repositories are not fetched; clone {repo_or_dir} and name its folder with "
                                  "source='local'")
    folder = os.path.abspath(repo_or_dir)
    sys.path.insert(0, folder)
    try:
        spec = importlib.util.spec_from_file_location("hubconf", os.path.join(folder, "hubconf.py"))
        module = importlib.util.module_from_spec(spec)   # type: ignore[arg-type]
        spec.loader.exec_module(module)                  # type: ignore[union-attr]
    finally:
        sys.path.remove(folder)
    absent = [name for name in getattr(module, "dependencies", ()) if importlib.util.find_spec(name) is None]
    if absent:
        raise RuntimeError(f"Missing dependencies: {', '.join(absent)}")
    return module


def _entrypoint(module: Any, model: Any) -> Callable[..., Any]:
    if not isinstance(model, str):
        raise ValueError("Invalid input: model should be a string of function name")
    function = getattr(module, model, None)
    if not callable(function):
        raise RuntimeError(f"Cannot find callable {model} in hubconf")
    return function


def list(github: str, force_reload: bool = False, skip_validation: bool = False, trust_repo: Any = "check",
         verbose: bool = True) -> Any:
    """Names of the models of a folder with a hubconf.py; repositories are not fetched."""
    module = _entrypoints(github, "local" if os.path.isdir(github) else "github", "list")
    return [name for name in dir(module) if callable(getattr(module, name)) and not name.startswith("_")]


def help(github: str, model: str, force_reload: bool = False, skip_validation: bool = False, trust_repo: Any = "check") -> Any:
    """What a folder's hubconf.py says of a model; repositories are not fetched."""
    module = _entrypoints(github, "local" if os.path.isdir(github) else "github", "help")
    return _entrypoint(module, model).__doc__


def load(repo_or_dir: str, model: str, *args: Any, source: str = "github", trust_repo: Any = "check",
         force_reload: bool = False, verbose: bool = True, skip_validation: bool = False, **kwargs: Any) -> Any:
    """A model of a folder with a hubconf.py (source="local"); repositories are not fetched."""
    return _entrypoint(_entrypoints(repo_or_dir, source.lower(), "load"), model)(*args, **kwargs)
