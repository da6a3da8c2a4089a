"""The kernel library of every instruction set that this processor has: each computes the same, within rounding."""
from __future__ import annotations

import json
import os
import platform
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mindtorch_v2 as mt

LEVELS = ["base", "avx2", "avx512"]
SETTING = {"base": "default"}
# Products, convolutions, norms, recurrent layers and functions of numbers, in sizes that are no multiples of a vector.
PROGRAM = """
import json, sys
import numpy as np
import mindtorch_v2 as mt

def numbers(*shape):
    return mt.tensor(np.random.default_rng(sum(shape)).standard_normal(shape).astype("f4"))

f = mt.nn.functional
results = {}
for m, n, k in ((3, 5, 7), (17, 33, 65), (64, 64, 256), (130, 100, 300), (1, 48, 96), (97, 200, 64), (16, 1024, 256)):
    a, b = numbers(m, k), numbers(k, n)
    results[f"matmul {m} {n} {k}"] = a @ b
    results[f"linear {m} {n} {k}"] = f.linear(a, b.t().contiguous())
    results[f"left turned {m} {n} {k}"] = a.t().contiguous().t() @ b
    results[f"added {m} {n} {k}"] = mt.addmm(numbers(m, n), a, b)
    for dtype in (mt.bfloat16, mt.float16):
        c, d = a.to(dtype), b.to(dtype)
        results[f"{dtype} {m} {n} {k}"] = (c @ d).float()
        results[f"{dtype} turned {m} {n} {k}"] = (c.t().contiguous().t() @ d.t().contiguous().t()).float()
for c, k, size, kernel, stride, pad, groups in (
        (16, 24, 13, 3, 1, 1, 1), (20, 70, 9, 3, 2, 1, 1), (8, 9, 17, 5, 1, 2, 1), (64, 40, 7, 1, 1, 0, 1), (3, 16, 31, 7, 2, 3, 1),
        (32, 32, 15, 1, 2, 0, 1), (160, 130, 4, 3, 1, 1, 1), (21, 21, 7, 3, 1, 1, 21), (32, 32, 14, 7, 1, 3, 32),
        (19, 57, 9, 5, 2, 2, 19)):
    x, w = numbers(3, c, size, size).requires_grad_(), numbers(k, c // groups, kernel, kernel).requires_grad_()
    for layout in (mt.contiguous_format, mt.channels_last):
        x.grad = w.grad = None
        y = f.conv2d(x.to(memory_format=layout), w, stride=stride, padding=pad, groups=groups)
        y.sin().sum().backward()
        for name, value in (("", y), (" of input", x.grad), (" of weight", w.grad)):
            results[f"conv {c} {k} {size} {kernel} {stride} {layout}{name}"] = value.detach()
for c, k, size, kernel, stride, pad, groups in ((40, 70, 9, 1, 1, 0, 1), (40, 24, 9, 1, 2, 0, 1), (3, 66, 31, 7, 2, 3, 1),
                                                (64, 130, 13, 3, 2, 1, 2), (33, 64, 12, 4, 4, 0, 1)):
    x, w = numbers(3, c, size, size).bfloat16(), numbers(k, c // groups, kernel, kernel).bfloat16()
    for bias in (None, numbers(k).bfloat16()):
        for layout in (mt.contiguous_format, mt.channels_last):
            y = f.conv2d(x.to(memory_format=layout), w, bias, stride, pad, 1, groups)
            results[f"conv bfloat16 {c} {k} {kernel} {stride} {groups} {bias is None} {layout}"] = y.float()
lstm = mt.nn.LSTM(7, 30)
for p in lstm.parameters():
    p.data = numbers(*p.shape) / 4
results["lstm"] = lstm(numbers(5, 9, 7))[0].detach()
x = numbers(37, 53)
for name in "exp log1p tanh sigmoid sin erf sqrt".split():
    results[name] = getattr(mt, name)(x.abs() if name in ("log1p", "sqrt") else x)
    results[f"{name} of doubles"] = getattr(mt, name)(x.double().abs())
for name in "lgamma digamma i0 special.i0e special.i1 special.i1e special.erfcx special.log_ndtr special.entr erfinv".split():
    function = getattr(mt.special, name[8:]) if "." in name else getattr(mt, name)
    results[name] = mt.stack([function(x * s).double() for s in (0.2, 2.0)])
    results[f"{name} of doubles"] = mt.stack([function(x.double() * s) for s in (0.2, 2.0)])
results["quantiles"] = mt.special.ndtri(x.sigmoid().double())
for name in "fmod remainder floor_divide".split():
    results[name] = getattr(mt, name)(x * 100, x.t().contiguous().view(37, 53))
    results[f"{name} of doubles"] = getattr(mt, name)(x.double() * 100, x.t().contiguous().view(37, 53).double())
results["powers of doubles"] = x.double().abs() ** x.flip(0).double()
results["means of repeats"] = mt.stack([x[:, :1].expand(37, 53).sum(1), x[:1].expand(37, 53).std(1)])
for kind in (f.mse_loss, f.l1_loss, f.smooth_l1_loss, f.huber_loss):
    results[kind.__name__] = kind(x, x.flip(0))
results["hypot of doubles"] = mt.hypot(x.double(), x.flip(0).double())
results["sinc"] = mt.sinc(x * 9)
results["cube norm"] = x.norm(3, dim=1)
for width in (5, 16, 77):
    for mode in ("sum", "mean", "max"):
        results[f"bags {width} {mode}"] = f.embedding_bag(mt.arange(60).reshape(12, 5) % 37, numbers(37, width), mode=mode)
results["power"] = mt.stack([x ** 2, x ** -1, x.abs() ** 1.5])
for mode in "bilinear nearest bicubic".split():
    results[f"sampled {mode}"] = f.grid_sample(numbers(2, 3, 8, 9), numbers(2, 9, 11, 2), mode, align_corners=False)
results["entropy of planes"] = f.cross_entropy(numbers(2, 5, 7, 3), mt.arange(42).reshape(2, 7, 3) % 5, reduction="none")
results["softmax"] = x.softmax(1)
for rows, items in ((40, 3), (70, 16), (33, 37), (100, 256)):
    z = numbers(rows, items).requires_grad_()
    (z.softmax(1) * z.log_softmax(1)).sin().sum().backward()
    results[f"short rows {rows} {items}"] = mt.stack([z.softmax(1), z.log_softmax(1), z.grad]).detach()
results["gelu"] = f.gelu(x)
for dtype in (mt.bfloat16, mt.float16):
    for approximate in ("none", "tanh"):
        results[f"gelu {approximate} {dtype}"] = f.gelu(x.to(dtype), approximate=approximate).float()
    results[f"functions {dtype}"] = mt.stack([f.hardswish(x.to(dtype)), f.leaky_relu(x.to(dtype)), x.to(dtype).abs().sqrt(), f.silu(x.to(dtype)),
                                              x.to(dtype).clamp(-1, 0.5), x.to(dtype) ** 2, x.to(dtype) ** 3, x.to(dtype).exp()]).float()
    results[f"numbers {dtype}"] = mt.stack([x.to(dtype) * 0.3, x.to(dtype) - x.to(dtype)[:, :1], x.to(dtype).relu()]).float()
results["planes"] = f.adaptive_avg_pool2d(numbers(3, 7, 5, 9), 1)
results["layer norm"] = f.layer_norm(x, (53,))
q = numbers(1, 2, 19, 16)
results["attention"] = f.scaled_dot_product_attention(q, q, q)
np.savez(sys.argv[1], **{name: value.numpy() for name, value in results.items()})
print(json.dumps([mt._C._kernel_level, mt.backends.cpu.get_cpu_capability()]))
"""


def run(level, file):
    environment = os.environ | {"ATEN_CPU_CAPABILITY": SETTING.get(level, level)}
    done = subprocess.run([sys.executable, "-c", PROGRAM, file], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def available():
    """What this processor runs: all levels up to the one that was chosen at import, where nothing asked for less."""
    environment = {name: value for name, value in os.environ.items() if name != "ATEN_CPU_CAPABILITY"}
    command = [sys.executable, "-c", "import mindtorch_v2 as mt; print(mt._C._kernel_level)"]
    best = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()
    return LEVELS[:LEVELS.index(best) + 1]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder, made = tmp_path_factory.mktemp("levels"), {}
    for level in available():
        file = str(folder / f"{level}.npz")
        assert run(level, file) == [level, "DEFAULT" if level == "base" else level.upper()]
        made[level] = np.load(file)
    return made


def test_every_level_agrees_with_the_plainest(results):
    for level in LEVELS[1:]:
        if level not in results:
            continue
        assert set(results[level].files) == set(results["base"].files)
        for name in results[level].files:
            got, wanted = results[level][name], results["base"][name]
            step = 2e-2 if "float16" in name else 3e-5  # bfloat16 too
            size = np.abs(wanted[np.isfinite(wanted)]).max(initial=1.0)
            np.testing.assert_allclose(got, wanted, rtol=step, atol=step * size, err_msg=f"{level}: {name}")


def test_a_setting_that_names_no_level_is_ignored_with_a_warning():
    done = subprocess.run([sys.executable, "-c", "import mindtorch_v2"], env=os.environ | {"ATEN_CPU_CAPABILITY": "avx1024"},
                          capture_output=True, text=True, check=True)
    assert "ignoring invalid value for ATEN_CPU_CAPABILITY: avx1024" in done.stderr


def test_capabilities_are_those_of_the_kernels():
    told, level = mt.cpu.get_capabilities(), mt._C._kernel_level
    assert told["avx2"] == (level != "base") == mt.cpu._is_avx2_supported()
    assert told["avx512_f"] == (level == "avx512") == mt.cpu._is_avx512_supported()
    assert told["amx_bf16"] == mt.cpu._is_amx_tile_supported() == mt.cpu._init_amx()
    assert not told["amx_bf16"] or told["avx512_bf16"]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="tiles are of x86")
def test_the_shape_of_the_tiles_is_a_constant_of_the_library():
    # Written before the instruction that loads it, most of it was lost: a compiler took 8 of the 64 bytes to be read.
    library = (Path(mt._C.__file__).parent / "libmt_kernels_avx512.so").read_bytes()
    eight_tiles = struct.pack("<8H", *[64] * 8) + bytes(16) + bytes([16] * 8) + bytes(8)  # bytes of a row; rows
    assert bytes([1]) + bytes(15) + eight_tiles in library
