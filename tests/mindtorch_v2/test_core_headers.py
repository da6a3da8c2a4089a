"""The C++ of the core without Python (geometry.h, inference_cache.h), compiled and checked on its own."""
from __future__ import annotations

import itertools
import os
import subprocess
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "src" / "mindtorch_v2" / "_C"


def run(tmp_path: Path, source: str, *arguments: str, given: str = "") -> str:
    """Compiles a program that includes headers of the core, and nothing of Python, and runs it."""
    (tmp_path / "program.cpp").write_text(source)
    compiler = os.environ.get("CXX", "c++")
    subprocess.run([compiler, "-std=c++17", "-O1", "-Wall", "-Werror", f"-I{CORE}", "-o", tmp_path / "program",
                    tmp_path / "program.cpp"], check=True)  # fmt: skip
    return subprocess.run([tmp_path / "program", *arguments], input=given, check=True, capture_output=True, text=True).stdout


GEOMETRY = r"""
#include <cassert>
#include <cstdio>
#include "geometry.h"
using namespace mt::geometry;
// Each line: rank, sizes, strides, n, new sizes. Prints whether it is contiguous, dense, and can be viewed, with strides.
int main() {
  int rank, n;
  while (std::scanf("%d", &rank) == 1) {
    int64_t sizes[8], strides[8], want[8], got[8];
    for (int d = 0; d < rank; ++d) std::scanf("%ld", sizes + d);
    for (int d = 0; d < rank; ++d) std::scanf("%ld", strides + d);
    std::scanf("%d", &n);
    for (int d = 0; d < n; ++d) std::scanf("%ld", want + d);
    const Measure m = measure(rank, sizes, strides);
    const bool seen = view_strides(rank, m.count, sizes, strides, n, want, got);
    std::printf("%ld %d %d %d", m.count, m.contiguous, m.contiguous || is_dense(rank, sizes, strides), seen);
    for (int d = 0; seen && d < n; ++d) std::printf(" %ld", got[d]);
    std::printf("\n");
  }
  const int64_t huge[] = {int64_t{1} << 40, int64_t{1} << 40}, empty[] = {int64_t{1} << 40, int64_t{1} << 40, 0}, none[3] = {1, 1, 1};
  assert(measure(2, huge, none).too_large && measure(2, huge, none).count == 0);
  assert(!measure(3, empty, none).too_large && measure(3, empty, none).contiguous);
  int64_t shape[kMaxDims] = {4, 1}, row[] = {3}, more[] = {2, 1, 3}, bad[] = {5, 3};
  assert(broadcast(2, shape, 1, row) == 2 && shape[0] == 4 && shape[1] == 3);
  assert(broadcast(2, shape, 3, more) == 3 && shape[0] == 2 && shape[1] == 4 && shape[2] == 3);
  assert(broadcast(3, shape, 2, bad) == -1 - 1);
}
"""


def test_geometry_agrees_with_torch(tmp_path: Path) -> None:
    """All permutations, steps and expansions of a small tensor, in every shape of as many items."""
    whole = torch.zeros(4, 6, 4)
    shapes = [s for n in (1, 2, 3) for s in itertools.product((1, 2, 3, 4, 6, 8, 12, 24, 48), repeat=n)]
    cases, lines = [], []
    for order in itertools.permutations(range(3)):
        for base in (whole, whole[::2], whole[:, 1:4], whole[:, :1].expand(4, 3, 4), whole[:1, :, 2:]):
            view = base.permute(order)
            for shape in shapes:
                count = 1
                for n in shape:
                    count *= n
                if count == view.numel():
                    cases.append((view, shape))
                    lines.append(" ".join(map(str, (3, *view.shape, *view.stride(), len(shape), *shape))))
    assert len(cases) > 500
    found = run(tmp_path, GEOMETRY, given="\n".join(lines)).splitlines()
    for (view, shape), line in zip(cases, found, strict=True):
        count, contiguous, _, seen, *strides = map(int, line.split())
        assert (count, bool(contiguous)) == (view.numel(), view.is_contiguous())
        try:
            expected = view.view(shape).stride()
        except RuntimeError:
            expected = None
        assert (tuple(strides) if seen else None) == expected, (view.shape, view.stride(), shape)


CACHE = r"""
#include <cassert>
#include "inference_cache.h"
int main() {
  mt::InferenceCache cache;
  const int64_t sizes[] = {2, 3};
  const auto ask = [&](uint64_t row, int dtype, double value, const char* text) {
    cache.begin(row, 0);
    cache.tensor(dtype, 0, 2, sizes);
    cache.real(value);
    cache.text(text);
    return cache.find();
  };
  assert(!ask(1, 8, 0.5, "mean"));
  cache.keep({1, 8, 2});
  assert(*ask(1, 8, 0.5, "mean") == (std::vector<int64_t>{1, 8, 2}));
  assert(!ask(2, 8, 0.5, "mean") && !ask(1, 9, 0.5, "mean") && !ask(1, 8, 0.25, "mean") && !ask(1, 8, 0.5, "sum"));
  ask(1, 8, 0.5, "mean");
  cache.keep({7});                     // what was said first stays
  assert(ask(1, 8, 0.5, "mean")->size() == 3);
  cache.begin(1, 0);
  cache.integer(1, false);
  cache.keep({4});
  cache.begin(1, 0);
  cache.integer(1, true);              // True is not 1
  assert(!cache.find());
  cache.begin(1, 0);
  cache.list(1);
  cache.none();
  cache.keep({5});
  cache.begin(1, 0);
  cache.none();
  assert(!cache.find());
}
"""


def test_the_inference_cache_tells_calls_apart(tmp_path: Path) -> None:
    assert run(tmp_path, CACHE) == ""
