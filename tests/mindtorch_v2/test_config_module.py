"""torch.utils._config_module: modules of settings behave as PyTorch's; those of torch.save are such a module."""
from __future__ import annotations

import importlib
import io
import itertools
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch.utils.serialization
from twin import error, twin

import mindtorch_v2 as mt

SOURCE = """
flag = True
many = [1]
# @compile_ignored
quiet = 1
ratio = 1.5
_inner = 3
of_this_machine = "x"
chosen: bool = Config(env_name_default="TEST_CONFIG_ON", default=False)
forced: bool = Config(env_name_force=["TEST_CONFIG_NONE", "TEST_CONFIG_ON"], default=False)
old: int = Config(default=1, deprecated=True, deprecation_message="has no effect")

class part:
    depth = 2

_save_config_ignore = ["of_this_machine"]
_cache_config_ignore_prefix = ["of_this"]
"""
_numbers = itertools.count()


def settings(t: Any, source: str = SOURCE) -> Any:
    """A module of settings of one library, in a file: comments in it count."""
    name = f"settings_{next(_numbers)}"
    place = f"{t.__name__}.utils._config_module"
    Path(sys.path[0], f"{name}.py").write_text(f"import sys\nfrom {place} import Config, install_config_module\n{source}\n"
                                               "install_config_module(sys.modules[__name__])\n")
    return importlib.import_module(name)


@pytest.fixture(autouse=True)
def _files_and_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("TEST_CONFIG_ON", "1")


@twin
def test_values_and_their_types(t):
    config = settings(t)
    config.part.depth = 5
    config.many.append(2)
    return (config.flag, config.many, config.chosen, config.forced, config.part.depth, config._is_default("many"),
            config._is_default("flag"), config.get_type("ratio") is float, config.get_type("flag") is bool, error(lambda: config.nothing),
            error(lambda: setattr(config, "nothing", 1)))


@twin
def test_saving_and_comparing(t):
    config = settings(t)
    saved, before = config.save_config(), config.get_hash()
    config.flag = False
    changed = config.get_hash() != before
    text = config.codegen_config().replace(config.__name__, "config")
    before = config.get_hash()
    config.quiet = 2
    unchanged = config.get_hash() == before
    config.load_config(saved)
    return (changed, unchanged, text, config.flag, sorted(config.get_config_copy()), sorted(config.save_config_portable()),
            sorted(config.save_config_portable(ignore_private_configs=False)))


@twin
def test_patches(t):
    config = settings(t)

    @config.patch(flag=False)
    def inside() -> Any:
        return config.flag

    with config.patch({"part.depth": 9, "ratio": 2.0}):
        seen = config.part.depth, config.ratio
    revert = config._make_closure_patcher(ratio=7.0)()
    patched = config.ratio
    revert()
    return inside(), config.flag, seen, config.part.depth, patched, config.ratio, error(lambda: config.patch(5, 1))


@twin
def test_another_name_for_a_setting(t):
    first = settings(t)
    second = settings(t, f"other = Config(alias='{first.__name__}.flag')\n")
    second.other = False
    return first.flag, second.other, sorted(second.get_config_copy()), error(lambda: t.utils._config_module.Config(default=1, alias="a.b"))


def test_a_deprecated_setting_warns_once() -> None:
    config = settings(mt)
    with pytest.warns(FutureWarning, match="old is deprecated and has no effect. It will be removed in a future version of PyTorch."):
        assert config.old == 1
    assert config.old == 1


@twin
def test_settings_of_saving(t):
    config = t.utils.serialization.config
    with config.patch("save.storage_alignment", 256):
        inside = config.save.storage_alignment
    return inside, config.save.storage_alignment, config.load.mmap, error(lambda: config.load.nothing)


def test_saved_bytes_lie_where_the_settings_say() -> None:
    file = io.BytesIO()
    with mt.utils.serialization.config.patch({"save.storage_alignment": 4096, "save.compute_crc32": False}):
        mt.save([mt.ones(3), mt.zeros(5)], file)
    file.seek(0)
    reader = mt._C.PyTorchFileReader(file)
    assert [reader.get_record_offset(f"data/{i}") % 4096 for i in range(2)] == [0, 0]
    assert zipfile.ZipFile(file).testzip() is not None, "no checksums were written"
    file.seek(0)
    assert mt.load(file)[0].tolist() == [1, 1, 1]
    assert torch.load(io.BytesIO(file.getvalue()))[1].tolist() == [0] * 5
