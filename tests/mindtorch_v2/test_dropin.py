"""mindtorch_v2 under the name torch: one module under both names, its metadata, children, the command, the refusal."""
from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import mindtorch_v2 as mt
from mindtorch_dropin import VARIABLE

ENVIRON = {name: value for name, value in os.environ.items() if name != VARIABLE}


def run(*arguments: str, code: int = 0, **environ: str) -> str:
    """What a fresh Python prints; a test module is loaded over PyTorch, so nothing of this can run in here."""
    done = subprocess.run([sys.executable, *arguments], env=ENVIRON | environ, capture_output=True, text=True, timeout=600)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


SAME = """
import importlib.metadata, importlib.util, pickle, sys
import torch, mindtorch_v2, torch.nn as nn, torch.utils.data, mindtorch_v2.nn.functional
import torch_npu, torch_npu.npu.amp
assert torch is mindtorch_v2 and torch.nn is mindtorch_v2.nn is nn and torch.torch is torch
assert sys.modules["torch.nn.functional"] is sys.modules["mindtorch_v2.nn.functional"] is torch.nn.functional
assert torch_npu.npu is torch.npu and torch_npu.npu.amp is torch.npu.amp
assert torch.__name__ == "torch" == torch.__spec__.name and torch.nn.__name__ == torch.nn.__spec__.name == "torch.nn"
assert torch.nn.__package__ == "torch.nn" and torch.nn.functional.__package__ == "torch.nn"
assert importlib.util.find_spec("mindtorch_v2.none") is None is importlib.util.find_spec("torch.none")
assert importlib.util.find_spec("torch") is torch.__spec__ and importlib.util.find_spec("torch_npu") is not None
assert importlib.metadata.version("torch") == torch.__version__ == importlib.metadata.version("torch-npu")
assert any(found.name == "torch" for found in importlib.metadata.distributions())
known = (torch.Tensor, torch.dtype, torch.device, torch.Size, torch.layout, torch.finfo, torch.OutOfMemoryError)
assert {cls.__module__ for cls in known} == {"torch"}, [cls.__module__ for cls in known]
assert repr(torch.device) == "<class 'torch.device'>" and repr(torch.Tensor) == "<class 'torch.Tensor'>"
assert nn.Linear.__module__ == "torch.nn.modules.linear" and torch.add.__module__ == "torch"
assert torch.linalg.LinAlgError.__module__ == "torch._C" and torch.linalg.LinAlgError.__name__ == "_LinAlgError"
for value in (torch.ones(2), nn.Linear(2, 3), torch.float32, torch.device("cpu"), torch.Size([2]), torch.Tensor,
              nn.functional.relu, torch.add, nn.Parameter(torch.ones(1)), torch.float32.__class__,
              torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1), torch.tensor([1j])):
    for protocol in (2, 5):
        text = pickle.dumps(value, protocol)
        assert b"mindtorch" not in text and b"torch" in text, (value, text)
        assert type(pickle.loads(text)) is type(value)
print("same")
"""


@pytest.mark.parametrize("first", ["", "import mindtorch_v2; mindtorch_v2.nn.Linear(1, 1); mindtorch_v2.install()\n",
                                   "import mindtorch_v2; assert mindtorch_v2.install() is mindtorch_v2\n"])
def test_one_module_under_both_names(first: str) -> None:
    """Found at the start of Python, or renamed by a late install()."""
    assert run("-c", first + SAME, **({} if first else {VARIABLE: "1"})) == "same\n"


def test_nothing_is_imported_before_its_use() -> None:
    code = "import sys; print(sorted(name for name in sys.modules if 'torch' in name))"
    assert run("-c", code) == "[]\n"
    assert run("-c", code, **{VARIABLE: "1"}) == "['mindtorch_dropin', 'mindtorch_dropin.finder']\n"
    code = "import torch, sys; print([name for name in ('torch.nn', 'torch.npu', 'importlib.metadata') if name in sys.modules])"
    assert run("-c", code, **{VARIABLE: "1"}) == "[]\n"


def test_what_packages_import_does_not_bring_what_they_do_not_use() -> None:
    """transformers asks torch.npu for devices, torchvision imports torch.onnx and torch.fx."""
    code = """
import sys, torch, torch.fx, torch.onnx
torch.npu.is_available()
for name in ("_ops.npu", "npu.report", "export", "onnx._export", "fx.experimental", "fx.passes.dialect"):
    assert "torch." + name not in sys.modules, name
torch.fx.passes.shape_prop, torch.fx.experimental.proxy_tensor, torch.onnx.export, torch.onnx.ONNXProgram, torch.npu.report
"""
    assert run("-c", code, **{VARIABLE: "1"}) == ""


def test_pytorch_is_refused_in_the_same_process_and_left_alone_otherwise() -> None:
    code = """
import importlib.metadata, torch, mindtorch_v2
try:
    mindtorch_v2.install()
except RuntimeError as error:
    print(error)
assert torch.ones(1).sum().item() == 1 and torch is not mindtorch_v2 and mindtorch_v2.__name__ == "mindtorch_v2"
assert "mindtorch" not in torch.__file__ and importlib.metadata.version("torch") == torch.__version__
"""
    said = run("-c", code)
    assert "torch is already imported from" in said and "before anything imports torch" in said


CHILDREN = """
import os, sys, torch
import multiprocessing

class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        assert torch.__file__ == sys.modules["mindtorch_v2"].__file__
        return torch.tensor(index * index), os.getpid()

def child(queue, value):
    import torch
    queue.put((torch.__name__, "mindtorch_v2" in torch.__file__, type(value) is torch.Tensor, (value + 1).tolist()))

if __name__ == "__main__":
    for method in ("spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        process = context.Process(target=child, args=(queue, torch.ones(2)))
        process.start()
        print(method, queue.get(timeout=600))
        process.join()
        assert process.exitcode == 0
    for method in ("fork", "spawn"):
        loader = torch.utils.data.DataLoader(Squares(), batch_size=2, num_workers=1, multiprocessing_context=method)
        batches = list(loader)
        assert os.getpid() not in [pid for _, pids in batches for pid in pids.tolist()]
        print(method, [values.tolist() for values, _ in batches])
    sys.exit(7)
"""


def test_children_find_it_too(tmp_path: Path) -> None:
    """Started by the command, which leaves argv, __main__ and the exit code as they are."""
    script = tmp_path / "children.py"
    script.write_text(CHILDREN)
    said = run("-m", "mindtorch_v2", str(script), code=7)
    for method in ("spawn", "forkserver"):
        assert f"{method} ('torch', True, True, [2.0, 2.0])" in said
    for method in ("fork", "spawn"):
        assert f"{method} [[0, 1], [4, 9]]" in said


def test_the_command_runs_files_modules_and_code(tmp_path: Path) -> None:
    package = tmp_path / "shown"
    package.mkdir()
    text = "import sys, torch, shown.part\nprint(sys.argv[1:], __name__, __spec__ and __spec__.name, torch.__name__)\n"
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text("def fails():\n    raise ValueError('here')\n")
    (package / "__main__.py").write_text(text)
    (tmp_path / "script.py").write_text("import warnings\n" + text + "shown.part.fails()\n")
    path = {"PYTHONPATH": str(tmp_path)}
    assert run("-m", "mindtorch_v2", "-m", "shown", "a", "--b", **path) == "['a', '--b'] __main__ shown.__main__ torch\n"
    assert run("-m", "mindtorch_v2", "-c", "import torch, sys; print(sys.argv, torch.__name__)", "x") == "['-c', 'x'] torch\n"
    said = run("-W", "error", "-m", "mindtorch_v2", str(tmp_path / "script.py"), "-m", "c", code=1, **path)
    assert said.startswith("['-m', 'c'] __main__ None torch\nTraceback") and said.endswith("ValueError: here\n")
    assert "runpy" not in said and "mindtorch" not in said      # nothing of the command stands in the way
    assert "usage:" in run("-m", "mindtorch_v2", code=2)
    flags = "import sys; print(sys.warnoptions, sys.flags.dev_mode, sys.flags.optimize)"
    assert run("-W", "error", "-X", "dev", "-O", "-m", "mindtorch_v2", "-c", flags) == run("-W", "error", "-X", "dev", "-O", "-c", flags)


def test_the_choice_for_an_environment(tmp_path: Path) -> None:
    """In a venv without PyTorch, pip sees torch, and `import torch` needs no variable; removed, nothing is left."""
    venv.create(tmp_path / "env", symlinks=True)
    python = str(tmp_path / "env/bin/python")
    site = next((tmp_path / "env/lib").glob("python3*/site-packages"))
    ours = Path(sys.modules["mindtorch_dropin"].__file__).parents[1]
    for name in ("mindtorch_v2", "mindtorch_dropin", "cann_tables", "mindtorch_v2.pth"):
        (site / name).symlink_to(ours / name)
    before = sorted(site.iterdir())

    def there(*arguments: str, code: int = 0) -> str:
        done = subprocess.run([python, *arguments], env=ENVIRON, capture_output=True, text=True, timeout=600)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    asked = "import importlib.metadata as m, torch; print(torch.__name__, m.version('torch'), len(m.files('torch')))"
    assert "No module named 'torch'" in there("-c", asked, code=1)
    assert "torch is not mindtorch_v2" in there("-m", "mindtorch_v2", "as-torch")
    assert "mindtorch_as_torch.pth" in there("-m", "mindtorch_v2", "as-torch", "--install")
    there("-m", "mindtorch_v2", "as-torch", "--install")
    assert "torch is mindtorch_v2" in there("-m", "mindtorch_v2", "as-torch")
    listed = subprocess.run([sys.executable, "-m", "pip", "--python", python, "list"], capture_output=True, text=True,
                            env=ENVIRON, timeout=600).stdout
    assert "torch " in listed and "2.13.0" in listed
    assert there("-c", asked.replace("len(m.files('torch'))", "'ok'")) == "torch 2.13.0 ok\n"
    there("-m", "mindtorch_v2", "as-torch", "--remove")
    assert sorted(site.iterdir()) == before
    (site / "torch-2.1.dist-info").mkdir()
    (site / "torch-2.1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.1\n")
    assert "torch 2.1 is installed" in there("-m", "mindtorch_v2", "as-torch", "--install", code=1)


def test_versions_compare_as_torchs() -> None:
    """Against PyTorch's own class, for texts, tuples, packaging's versions, and what is none."""
    from packaging.version import Version
    from torch.torch_version import TorchVersion as Judge

    from mindtorch_v2.torch_version import TorchVersion
    texts = ["2.13.0", "2.13", "2.13.0+cpu", "2.13.0.dev20260101", "2.13.0a0+git12", "2.13.0rc1", "2.13.0.post1", "2.2",
             "2.100", "1!0.1", "2.13.1", "v2.13", "2.13.0b2", "2.13.0rc1.dev3", "2.13.0+cu118", "2.13.0+8", "parrot", ""]
    others = [*texts, (2, 13), (2, 13, 0), (2, 1), [3], ("2", "14"), None, 3, Version("2.12"), Version("2.13")]

    def outcome(kind: type, text: str, name: str, other: object) -> object:
        try:
            return getattr(kind(text), name)(other)
        except TypeError as error:
            return type(error)

    for name in ("__lt__", "__le__", "__eq__", "__ne__", "__ge__", "__gt__"):
        for text in texts:
            for other in others:
                assert outcome(TorchVersion, text, name, other) == outcome(Judge, text, name, other), (text, name, other)


@pytest.mark.parametrize("cls", [tuple, int, type, dict])
def test_types_of_python_keep_their_names(cls: type) -> None:
    with pytest.raises(TypeError, match="expected a type of this package's compiled core"):
        mt._C._rename_type(cls, "torch.other")
    assert cls.__module__ == "builtins"


SIGNATURES = """
import importlib, inspect, sys
torch = importlib.import_module(sys.argv[1])
def told(f):
    try:
        return str(inspect.signature(f))
    except ValueError:
        return "no signature"
F = torch.nn.functional
print(*(told(f) for f in (torch.add, torch.Tensor.add, F.linear, F.gelu, F.pairwise_distance, F.max_pool2d, F.max_pool2d)), sep="|")
for name in ("conv2d", "max_pool1d", "adaptive_max_pool2d", "fractional_max_pool3d", "pairwise_distance", "relu"):
    try:
        print(name, torch.fx.symbolic_trace(getattr(F, name)).code.count("relu"))
    except Exception as error:
        print(name, type(error).__name__, "iterated" in str(error))
"""


def test_functions_are_traced_and_say_their_signatures_as_in_torch() -> None:
    """The ops are builtins, of which no signature is known, and a pool is one of two functions."""
    mine = run("-c", SIGNATURES, "torch", **{VARIABLE: "1"})
    assert mine == run("-c", SIGNATURES, "torch") and "no signature|no signature" in mine


def test_pickles_name_functions_of_namespaces_that_are_no_files() -> None:
    run("-m", "mindtorch_v2", "-c", "import io, pickle, torch\n"
        "gelu = torch.nn.functional.gelu\n"
        "assert pickle.loads(b'ctorch._C._nn\\ngelu\\n.') is gelu and pickle.loads(pickle.dumps(gelu)) is gelu\n"
        "made = io.BytesIO()\ntorch.save(torch.nn.TransformerEncoderLayer(4, 2, activation='gelu'), made)\n"
        "made.seek(0)\nassert torch.load(made, weights_only=False).activation is gelu")
