"""The libraries export what the tables say, no more and no less, and take each argument where they say."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import elf
import pytest
import tables

import cann_sim
import cann_tables

NULL_ARGUMENT, INVALID_ARGUMENT, NO_KERNEL = 161001, 161002, 561003
OWN = {  # no names of CANN: used by `cann-sim info`, cann_sim.faults and cann_sim.checks
    "libopapi.so": {"cannSimOpCount", "cannSimOpName", "cannSimOpAbsent", "cannSimOpComputed"},
    "libascendcl.so": {"cannSimSetFaults", "cannSimCountCalls", "cannSimCalls", "cannSimAlive", "cannSimRecordCalls",
                       "cannSimRecordedCalls", "cannSimReports", "cannSimClearReports"},
}
OTHER_NAMES = {  # libraries of older and newer CANN that are only another name of one that holds the code
    "libascendcl.so": ["libacl_rt.so", "libruntime.so", "libprofapi.so"],
    "libgraph.so": ["libge_runner.so", "libge_compiler.so", "libfmk_onnx_parser.so"],
    "libhccl.so": ["libhcomm.so"],
    "libopapi.so": [
        "libopapi_math.so", "libopapi_nn.so", "libopapi_cv.so", "libopapi_transformer.so", "libaclnn_math.so",
        "libaclnn_ops_infer.so", "libaclnn_ops_train.so", "libaclnn_rand.so", "libaclnn_fft.so", "libaclnn_sparse.so",
    ],
}  # fmt: skip
PLAIN = {
    "int64": ctypes.c_int64, "int32": ctypes.c_int32, "int8": ctypes.c_int8, "uint64": ctypes.c_uint64,
    "bool": ctypes.c_bool, "dtype": ctypes.c_int32, "double": ctypes.c_double, "float": ctypes.c_float,
    "string": ctypes.c_char_p,
}  # fmt: skip


@cache
def library(name: str) -> elf.Library:
    return elf.read(Path(cann_sim.home()) / "lib64" / name)


def c_exports(name: str) -> set[str]:
    return {symbol for symbol in library(name).exported if not symbol.startswith("_")}


def expected(name: str) -> set[str]:
    names = {f.name for f in tables.functions() if f.library == name}
    if name == "libopapi.so":
        names |= {name for op in cann_tables.ops() for name in (op.name, *op.first_phases)}
    return names | OWN.get(name, set())


def test_unwinders_find_frames_in_every_library() -> None:
    folder = Path(cann_sim.home()) / "lib64"
    assert [p.name for p in sorted(folder.glob("*.so")) if elf.EH_FRAME not in library(p.name).segments] == []


@pytest.mark.parametrize("name", sorted({f.library for f in tables.functions()}))
def test_exports_are_those_of_the_tables(name: str) -> None:
    found = c_exports(name)
    assert sorted(expected(name) - found) == [], "missing"
    assert sorted(found - expected(name)) == [], "in no table"


@pytest.mark.parametrize(("target", "name"), [(t, name) for t, names in OTHER_NAMES.items() for name in names])
def test_other_names_reach_the_same_code(target: str, name: str) -> None:
    assert c_exports(name) == set()
    assert target in library(name).needed
    lib64 = Path(cann_sim.home()) / "lib64"
    symbol = min(expected(target) or library(target).exported)
    through, direct = (getattr(ctypes.CDLL(str(lib64 / which)), symbol) for which in (name, target))
    assert ctypes.cast(through, ctypes.c_void_p).value == ctypes.cast(direct, ctypes.c_void_p).value


def test_sonames_are_file_names() -> None:
    """Clients with DT_NEEDED on these names must find what is already loaded."""
    names = {f.library for f in tables.functions()}.union(OTHER_NAMES, *OTHER_NAMES.values())
    assert {name: library(name).soname for name in names} == {name: name for name in names}


def test_opapi_reaches_the_meta_objects() -> None:
    """torch_npu looks aclCreateTensor up in libopapi."""
    assert "libnnopbase.so" in library("libopapi.so").needed
    opapi = ctypes.CDLL(f"{cann_sim.home()}/lib64/libopapi.so")
    for name in ("Tensor", "Scalar", "IntArray", "FloatArray", "BoolArray", "TensorList", "ScalarList"):
        assert getattr(opapi, f"aclCreate{name}") and getattr(opapi, f"aclDestroy{name}")


class Objects:
    """A live object of every kind that an aclnn call takes."""

    def __init__(self) -> None:
        lib64 = f"{cann_sim.home()}/lib64"
        self.acl, self.opapi = ctypes.CDLL(f"{lib64}/libascendcl.so"), ctypes.CDLL(f"{lib64}/libopapi.so")
        self.acl.aclGetRecentErrMsg.restype = ctypes.c_char_p
        self.opapi.cannSimOpName.restype = ctypes.c_char_p
        self.acl.aclInit(None)  # another test may have done it
        assert self.acl.aclrtSetDevice(0) == 0
        self.memory = ctypes.c_void_p()
        assert self.acl.aclrtMalloc(ctypes.byref(self.memory), ctypes.c_size_t(64), 0) == 0
        one = (ctypes.c_int64 * 1)(1)
        create = lambda name, *args: self._create(f"aclCreate{name}", *args)
        self.arrays = {
            "ints": create("IntArray", one, ctypes.c_uint64(1)),
            "floats": create("FloatArray", (ctypes.c_float * 1)(1), ctypes.c_uint64(1)),
            "bools": create("BoolArray", (ctypes.c_bool * 1)(True), ctypes.c_uint64(1)),
            "scalar": create("Scalar", one, 9),
            "scalars": create("ScalarList", (ctypes.c_void_p * 1)(create("Scalar", one, 9)), ctypes.c_uint64(1)),
        }
        self.tensors: dict[tuple[int, int], int] = {}

    def _create(self, name: str, *args: Any) -> int:
        function = getattr(self.opapi, name)
        function.restype = ctypes.c_void_p
        made = function(*args)
        assert made, name
        return made

    def tensor(self, dtype: int, rank: int) -> int:
        if (dtype, rank) not in self.tensors:
            dims = (ctypes.c_int64 * max(rank, 1))(*[1] * rank)
            n = ctypes.c_uint64(rank)
            self.tensors[dtype, rank] = self._create(
                "aclCreateTensor", dims, n, dtype, None, ctypes.c_int64(0), 2, dims, n, self.memory
            )
        return self.tensors[dtype, rank]

    def of(self, argument: cann_tables.Argument) -> Any:
        """A value that the generic checks take for this argument."""
        if argument.kind in PLAIN:
            return PLAIN[argument.kind](b"x" if argument.kind == "string" else 1)
        if argument.kind in self.arrays:
            return ctypes.c_void_p(self.arrays[argument.kind])
        dtype = argument.dtypes[0] if argument.dtypes else "f32"
        tensor = self.tensor(cann_tables.DTYPES[dtype], argument.ranks[0])
        if argument.kind in ("tensor", "out", "inout"):
            return ctypes.c_void_p(tensor)
        return ctypes.c_void_p(self._create("aclCreateTensorList", (ctypes.c_void_p * 1)(tensor), ctypes.c_uint64(1)))

    def first_phase(self, op: str, values: list[Any]) -> tuple[int, str]:
        size, executor = ctypes.c_uint64(), ctypes.c_void_p()
        code = getattr(self.opapi, f"{op}GetWorkspaceSize")(*values, ctypes.byref(size), ctypes.byref(executor))
        if code == 0:
            assert self.opapi.aclDestroyAclOpExecutor(executor) == 0
        return code, (self.acl.aclGetRecentErrMsg() or b"").decode()

    def computed(self) -> set[str]:
        count = self.opapi.cannSimOpCount()
        assert count == len(cann_tables.ops())
        return {self.opapi.cannSimOpName(i).decode() for i in range(count) if self.opapi.cannSimOpComputed(i)}


@pytest.fixture(scope="module")
def objects() -> Objects:
    return Objects()


def test_every_argument_is_taken_where_the_table_says(objects: Objects) -> None:
    """A bad handle in one place, good ones before it: the refusal must name the argument of that place."""
    wild, wrong, computed = ctypes.c_void_p(0x1234560), [], objects.computed()
    assert len(computed) > 280  # the first set
    for op in cann_tables.ops():
        if op.name not in computed:
            continue
        values = [objects.of(argument) for argument in op.arguments]
        for i, argument in enumerate(op.arguments):
            if argument.kind not in PLAIN:
                code, message = objects.first_phase(op.name, [*values[:i], wild, *values[i + 1 :]])
                if code != INVALID_ARGUMENT or f"argument {argument.name} " not in message:
                    wrong.append(f"{op.name} {argument.name}: {code} {message}")
    assert wrong == []


def test_a_missing_argument_is_named(objects: Objects) -> None:
    wrong, computed = [], objects.computed()
    for op in cann_tables.ops():
        if op.name not in computed:
            continue
        values = [objects.of(argument) for argument in op.arguments]
        for i, argument in enumerate(op.arguments):
            required = not argument.optional and argument.kind not in ("tensors", "outs", "inouts", *PLAIN)
            if required:
                code, message = objects.first_phase(op.name, [*values[:i], None, *values[i + 1 :]])
                if code != NULL_ARGUMENT or f"argument {argument.name} " not in message:
                    wrong.append(f"{op.name} {argument.name}: {code} {message}")
    assert wrong == []


def test_refused_ops_say_so_by_name(objects: Objects) -> None:
    """Clients would silently take older code paths where a symbol is missing."""
    wrong, computed = [], objects.computed()
    for op in cann_tables.ops():
        if op.name in computed:
            continue
        values = [] if op.arguments is None else [objects.of(argument) for argument in op.arguments]
        code, message = objects.first_phase(op.name, values)
        if code != NO_KERNEL or op.name not in message:
            wrong.append(f"{op.name}: {code} {message}")
    assert wrong == []
