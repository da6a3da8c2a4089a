"""Older versions of CANN and other SoCs: rows fall back to bodies of other ops with the same values, or refuse by name."""
from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from card_page import write_section

import cann_tables
import mindtorch_v2
from mindtorch_v2._backends.npu import ops as npu_ops

pytestmark = pytest.mark.usefixtures("npu")
SOURCES = Path(mindtorch_v2.__file__).parent / "_backends" / "npu"


def said(code: str, **settings: str) -> str:
    done = subprocess.run([sys.executable, "-c", "import mindtorch_v2 as torch\n" + code], env=os.environ | settings,
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


SAME = """
import itertools
F = torch.nn.functional
def both(make):
    torch.manual_seed(1)
    found = []
    for device in ("cpu", "npu"):
        torch.manual_seed(1)
        made = make(lambda *size: torch.randn(*size).to(device).requires_grad_(), device)
        found.append([t.detach().cpu() for t in (made if isinstance(made, (tuple, list)) else (made,))])
    return all(torch.allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE) and a.dtype is b.dtype for a, b in zip(*found, strict=True))
def with_gradients(f):
    def run(*leaves):
        y = f(*leaves)
        return y, *torch.autograd.grad(y.sum() + (y * y).sum(), leaves)
    return run
def shifts(dtype, device):
    x = torch.tensor([-128, -7, -1, 0, 1, 5, 100, 127]).to(dtype).to(device)
    n = torch.tensor([0, 1, 3, 7]).to(dtype).to(device)
    bits = 8 * x.element_size()
    ends = [f(x, torch.tensor(k, dtype=dtype, device=device)) for k in (bits - 1, bits, -1) for f in (torch.bitwise_left_shift, torch.bitwise_right_shift)]
    return [x[:, None] << n, x[:, None] >> n, x << 2, x >> 2, *(e for e in ends if dtype.is_signed)]
cases = {
    "rms_norm": lambda r, d: with_gradients(lambda x, w: F.rms_norm(x, [8], w))(r(3, 8), r(8)),
    "rms_norm over two dims": lambda r, d: with_gradients(lambda x: F.rms_norm(x, [4, 8], None, 1e-3))(r(3, 4, 8)),
    "heaviside": lambda r, d: torch.heaviside(torch.tensor([-1.5, 0, 2.0, float("inf")], device=d), torch.tensor(0.5, device=d)),
    "nearest": lambda r, d: with_gradients(lambda x: F.interpolate(x, scale_factor=1.7))(r(2, 3, 5)),
    "nearest 2d": lambda r, d: with_gradients(lambda x: F.interpolate(x, size=(7, 3)))(r(1, 2, 4, 5)),
    "adaptive_max_pool3d_backward": lambda r, d: torch.ops.aten.adaptive_max_pool3d_backward(
        r(1, 2, 1, 1, 2).detach(), r(1, 2, 2, 2, 2).detach(), torch.tensor([3, 5, 0, 7], device=d).reshape(1, 2, 1, 1, 2)),
    "cumprod": lambda r, d: with_gradients(lambda x: x.cumprod(1))(r(3, 5)),
    "kl_div": lambda r, d: with_gradients(lambda x: F.kl_div(x, torch.full((3, 4), 0.25, device=d), reduction="batchmean"))(r(3, 4)),
    "cdist": lambda r, d: with_gradients(torch.cdist)(r(3, 4), r(5, 4)),
    "lstm": lambda r, d: with_gradients(lambda *a: torch.lstm_cell(a[0], (a[1], a[2]), a[3], a[4])[0])(r(2, 3), r(2, 4), r(2, 4), r(16, 3), r(16, 4)),
    "attention": lambda r, d: with_gradients(lambda *a: F.scaled_dot_product_attention(*a, is_causal=True))(r(1, 2, 5, 8), r(1, 2, 5, 8), r(1, 2, 5, 8)),
    "linear": lambda r, d: with_gradients(F.linear)(r(3, 4), r(5, 4), r(5)),
    "addmv": lambda r, d: torch.addmv(r(3), r(3, 4), r(4)),
    "conv2d": lambda r, d: with_gradients(F.conv2d)(r(1, 3, 6, 6), r(4, 3, 3, 3), r(4)),
    "foreach": lambda r, d: torch._foreach_add([r(3).detach(), r(2, 2).detach()], 2.0),
    "scatter_reduce": lambda r, d: [torch.ones(4, device=d).scatter_reduce(0, torch.tensor([0, 3, 0, 1, 3], device=d), r(5).detach(), how, include_self=own)
                                    for how in ("sum", "prod", "mean", "amax", "amin") for own in (True, False)],
    **{f"shifts of {dtype}": lambda r, d, dtype=dtype: shifts(dtype, d) for dtype in (torch.int8, torch.uint8, torch.int32, torch.int64)},
}
print([name for name, make in cases.items() if not both(make)])
"""


@pytest.mark.parametrize(("settings", "tolerance"), [
    ({"CANN_SIM_VERSION": "8.0"}, 1e-5), ({"CANN_SIM_VERSION": "8.1.RC1"}, 1e-5), ({"CANN_SIM_VERSION": "8.5.0"}, 1e-5),
    ({"CANN_SIM_SOC": "910A", "CANN_SIM_VERSION": "8.0"}, 2e-2), ({"CANN_SIM_SOC": "310P"}, 2e-2), ({"CANN_SIM_SOC": "950"}, 1e-5)])
def test_values_are_the_same(settings: dict[str, str], tolerance: float) -> None:
    assert said(SAME.replace("TOLERANCE", str(tolerance)), **settings).strip() == "[]"


def test_a_missing_call_is_named() -> None:
    code = """
try:
    torch.linalg.svdvals(torch.ones(2, 2, device="npu"))
except RuntimeError as error:
    print(error)
"""
    assert re.match(r"aclnnSvd\w* is not in CANN 8.3.RC1: looked in .* Install a CANN that has it", said(code, CANN_SIM_VERSION="8.3.RC1"))


@pytest.mark.parametrize(("missing", "call"), [
    ("aclnnInplaceZero", "torch.empty(4, device='npu').zero_()"), ("aclnnRoll", "torch.arange(4, device='npu').roll(1)")])
def test_a_fallback_made_of_the_same_op_in_another_dtype_ends(missing: str, call: str) -> None:
    code = f"""
from mindtorch_v2._backends.npu import acl_loader, errors
real = acl_loader._address
def address(name):
    if name.startswith("{missing}"):
        raise errors.MissingSymbolError(name + " is not in CANN")
    return real(name)
acl_loader._address = address
try:
    {call}
except errors.MissingSymbolError as error:
    print(error)
"""
    assert said(code) == f"{missing}GetWorkspaceSize is not in CANN\n"


def test_info_tells_what_is_missing(npu: ModuleType) -> None:
    command = [sys.executable, "-m", "mindtorch_v2", "info", "--json"]
    settings = {"CANN_SIM_VERSION": "8.2.RC1", "CANN_SIM_SOC": "910A"}
    found = json.loads(subprocess.run(command, env=os.environ | settings, capture_output=True, text=True).stdout)
    assert found["cann"]["version"] == "8.2.RC1" and found["soc"] == "Ascend910A"
    later = {op.name for op in cann_tables.ops() if op.since > (8, 2)}
    assert set(found["symbols"]["missing"]) == later
    assert found["rows"]["refuses"]["_linalg_svd"] == "aclnnSvd" and "_fused_rms_norm" in found["rows"]["falls back"]
    assert found["rows"]["serves"]["add"] == "aclnnAdd" and "_foreach_add_.List" in found["rows"]["falls back"]


def test_kernels_say_what_not_every_cann_has() -> None:
    """A name in a body is no row's call: `needs` says it, or the body looks before it calls."""
    named = {name for file in SOURCES.glob("ops_*.py") for node in ast.walk(ast.parse(file.read_text()))
             if isinstance(node, ast.Constant) and isinstance(node.value, str)
             for name in re.findall(r"^aclnn\w+$", node.value) if cann_tables.since(name) != cann_tables.OLDEST}
    needed = {body.needs for body in npu_ops.BODIES.values()}
    guarded = {"aclnnInplaceScatterReduce",           # scatter_reduce looks for it
               "aclnnInplaceRandomTensor"}            # in graphs, which came with it
    assert named - needed == guarded


def test_a_section_replaces_its_own(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    for title, text in (("One", "a\n\n### part\n\nb"), ("Two", "c"), ("One", "d")):
        write_section(page, title, text)
    assert page.read_text().partition("## ")[2] == "One\n\nd\n\n## Two\n\nc\n"
