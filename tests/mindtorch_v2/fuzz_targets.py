"""What fuzz.py calls: every op, function, method, class and private entry of the core, by name."""
from __future__ import annotations

import array
import ctypes
import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from fuzz_values import DTYPES, SHAPES, Odd, Random, Theme, fitting, nested, number, tensor, thing

import mindtorch_v2 as mt
from mindtorch_v2._C import _core
from mindtorch_v2._ops.table import functions, methods, namespaces, ops
from mindtorch_v2._schema import parse

try:
    import numpy
except ImportError:
    numpy = None

Attempt = Callable[[Random], None]
# Sizes this large are refused or slow, not unsafe: ops that would fill memory are kept to small numbers.
HUNGRY = {"zeros", "ones", "empty", "full", "eye", "arange", "linspace", "logspace", "range", "repeat", "tile", "one_hot",
          "rand", "randn", "randint", "randperm", "new_zeros", "new_ones", "new_empty", "new_full", "expand", "new", "resize",
          "tril_indices", "triu_indices", "repeat_interleave", "combinations", "kaiser_window", "vander", "unfold",
          "bincount", "histc", "histogram", "histogramdd", "unflatten", "broadcast_to", "empty_strided", "new_empty_strided",
          "as_strided", "pad", "constant_pad_nd", "matrix_power", "polygamma", "cartesian_prod", "multinomial", "mvlgamma",
          "multigammaln", "svd_lowrank", "pca_lowrank"}
# Not for random calls: they change the machine, wait, start processes, or write files.
LEFT_ALONE = {"set_num_threads", "set_num_interop_threads", "save", "load", "compile", "share_memory_", "pin_memory", "from_file",
              "_print", "import_module", "__class__", "__new__", "__init__", "__init_subclass__", "__subclasshook__",
              "__getattribute__", "__del__", "__reduce_cython__", "__setstate_cython__", "get_ipython", "breakpoint",
              "tofile", "_write_file", "_new_shared", "_new_using_fd_cpu", "_new_using_filename_cpu",
              "_rename_type", "_rename_package",     # they rename for the whole process; types of Python too
              # they take the address of a function or of memory as a number, and cannot know whether it is one
              "_npu_bind", "_npu_set_current_stream", "_npu_set_default_stream", "NpuHeap", "NpuPlan"}
# What they change outlives the call: the child that ran one runs no other target.
LASTING = ("set_", "_set", "_push", "_pop", "_define", "_forbid", "_load", "_npu", "enable", "disable", "register", "library.",
           "inference_mode", "_autocast", "autocast", "manual_seed", "use_deterministic", "impl", "define", "_enter", "__enter__")


def is_lasting(name: str) -> bool:
    return name.startswith(LASTING) or name.rpartition(".")[2].startswith(LASTING)


# ---- calls -----------------------------------------------------------------------------------------------------------
def is_hungry(name: str) -> bool:
    name = name.rpartition(".")[2].strip("_")
    return name in HUNGRY or any(word in name for word in ("pool", "upsample", "window", "pad", "interpolate",
                                                       "shuffle", "fft", "split", "chunk"))


schema_of = functools.cache(parse)


@functools.cache
def parameters_of(function: Any) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []


def arguments(name: str, function: Any, rng: Random, theme: Theme) -> tuple[list, dict]:
    """Arguments after the schema of one overload, mostly of the right kinds, some left out or wrong."""
    theme.tame = theme.tame or is_hungry(name)
    if not isinstance(function, _core.Op) or not function.overloads or rng.random() < 0.15:
        return plain_arguments(function, rng, theme)
    schema = schema_of(rng.choice(function.overloads).schema)
    values = {p.name: fitting(p.kind, rng, theme, p.name) if rng.random() < 0.95 else thing(rng, theme)
              for p in schema.params if p.required or rng.random() < 0.5}
    for p in schema.params:
        if p.optional and p.name in values and rng.random() < 0.2:
            values[p.name] = None
    positional = []
    if rng.random() < 0.3:
        for p in schema.params:
            if p.keyword_only or p.name not in values:
                break
            positional.append(values.pop(p.name))
    if rng.random() < 0.15 and not name.endswith("_"):
        values["out"] = tensor(rng, theme) if rng.random() < 0.7 or len(schema.returns) < 2 else \
            tuple(tensor(rng, theme) for _ in schema.returns)
    return positional, values


def plain_arguments(function: Any, rng: Random, theme: Theme) -> tuple[list, dict]:
    """Arguments after the Python signature, or none: any objects."""
    parameters = parameters_of(function) if rng.random() < 0.7 else []
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if not named:
        args = [thing(rng, theme) for _ in range(rng.randrange(5))]
        if rng.random() < 0.8:
            args[:1] = [tensor(rng, theme)]
        return args, {}
    values = {}
    for p in named:
        if p.default is p.empty:
            text = str(p.annotation)
            kind = "Tensor" if "Tensor" in text or p.name in ("self", "input", "target", "weight", "bias", "x") else \
                "int" if "int" in text else "float" if "float" in text else ""
            values[p.name] = fitting(kind, rng, theme, p.name) if kind and rng.random() < 0.9 else thing(rng, theme)
        elif rng.random() < 0.3:
            word = type(p.default).__name__
            values[p.name] = fitting(word, rng, theme, p.name) if word in ("int", "float", "bool", "str") \
                and rng.random() < 0.8 else thing(rng, theme)
    return [], values


def read(result: Any, depth: int = 0) -> None:
    """Looks at every item of a result, and runs its gradient."""
    if isinstance(result, mt.Tensor):
        if result.numel() < 10000 and not result.is_meta:
            result.tolist()
            if result.requires_grad and (result.is_floating_point() or result.is_complex()):
                total = result.sum()
                (total.real if total.is_complex() else total).backward()
        return
    if isinstance(result, (tuple, list)) and depth < 3:
        for item in result:
            read(item, depth + 1)


def called(name: str, function: Any) -> Attempt:
    def attempt(rng: Random) -> None:
        args, keywords = arguments(name, function, rng, Theme(rng))
        read(function(*args, **keywords))
        for value in (*args, *keywords.values()):        # what was changed in place can still be read
            if isinstance(value, mt.Tensor) and not value.requires_grad:
                read(value)
    return attempt


def method(name: str) -> Attempt:
    def attempt(rng: Random) -> None:
        theme = Theme(rng)
        theme.tame = theme.tame or is_hungry(name)
        x = tensor(rng, theme)
        args = [fitting(rng.choice(("Tensor", "int", "int[]", "Scalar", "str", "ScalarType", "bool")), rng, theme)
                if rng.random() < 0.7 else thing(rng, theme) for _ in range(rng.randrange(4))]
        found = getattr(x, name)
        read(found(*args) if callable(found) else found)
        read(x)
    return attempt


# ---- everything that is no op ------------------------------------------------------------------------------------------
def odd_index(rng: Random, theme: Theme) -> Any:
    def one() -> Any:
        kind = rng.randrange(12)
        if kind < 3:
            return rng.choice((0, 1, -1, 2, -4, 2**63 - 1, -2**63, 2**70, True, False))
        if kind < 5:
            pick = (None, 0, 1, -1, 2, 3, -7, 2**63, -2**63)
            return slice(rng.choice(pick), rng.choice(pick), rng.choice(pick))
        if kind == 5:
            return rng.choice((None, ...))
        if kind < 9:
            return tensor(rng, theme, rng.random() < 0.7)
        if kind == 9:
            return [rng.randrange(-3, 3) for _ in range(rng.randrange(4))]
        if kind == 10:
            return slice(thing(rng, theme), thing(rng, theme), None)
        return thing(rng, theme)
    return one() if rng.random() < 0.4 else tuple(one() for _ in range(rng.choice((0, 1, 2, 3, 4, 70))))


def indexing(rng: Random) -> None:
    theme = Theme(rng)
    read(tensor(rng, theme)[odd_index(rng, theme)])


def assigning(rng: Random) -> None:
    theme = Theme(rng)
    x = tensor(rng, theme)
    x = x.detach() if rng.random() < 0.5 else x * 1
    x[odd_index(rng, theme)] = thing(rng, theme) if rng.random() < 0.5 else number(rng, False)
    read(x)


def constructing(rng: Random) -> None:
    theme = Theme(rng)
    make = rng.choice((mt.tensor, mt.as_tensor, mt.asarray, mt.Tensor, mt.FloatTensor, mt.Size, tensor(rng, theme).new_tensor))
    options = {"dtype": rng.choice(DTYPES)} if rng.random() < 0.4 else {}
    read(make(nested(rng, theme, 0) if rng.random() < 0.7 else thing(rng, theme), **options))


def buffers(rng: Random) -> list[Any]:
    given: list[Any] = [b"", b"abcdefgh" * 3, bytearray(17), memoryview(bytes(24))[::2], array.array("d", [1, 2]),
                        array.array("u", "ab"), Odd(), (ctypes.c_int * 3)(), memoryview(bytearray(16)).cast("i")]
    if numpy is not None:
        base = numpy.arange(24).reshape(2, 3, 4)
        given += [base[::-1], base[:, ::2], base.T, base.astype(">i4"), base.astype("f2"), numpy.array(3.5), numpy.array([]),
                  numpy.array(["a"]), numpy.array([None, 1]), numpy.zeros(3, "M8[s]"), numpy.zeros(3, "i4,f8"),
                  numpy.float32(2), numpy.broadcast_to(numpy.ones(1), (2, 5)), numpy.frombuffer(b"12345678", "i4"),
                  numpy.lib.stride_tricks.as_strided(numpy.zeros(9, "u1")[1:].view("i4"), (2,), (3,)), numpy.zeros((0, 2)),
                  numpy.zeros(4, "c16")[1:], numpy.zeros(3, "u2"), numpy.zeros(2, "g"), numpy.ma.masked_array([1, 2])]
    return given


def exchanging(rng: Random) -> None:
    theme = Theme(rng)
    given = rng.choice(buffers(rng)) if rng.random() < 0.8 else thing(rng, theme)
    way = rng.randrange(6)
    if way == 0:
        read(mt.frombuffer(given, dtype=rng.choice(DTYPES), count=rng.choice((-1, 0, 1, 2, 100, 2**62, -3)),
                           offset=rng.choice((0, 1, 4, 8, -1, 100, 2**62))))
    elif way == 1:
        read(mt.from_numpy(given))
    elif way == 2:
        capsule = tensor(rng, theme).detach().__dlpack__() if rng.random() < 0.7 else given
        read(mt.from_dlpack(capsule))
        read(mt.from_dlpack(capsule))                      # a capsule can be taken once
    elif way == 3:
        read(rng.choice((mt.tensor, mt.as_tensor, mt.asarray))(given))
    elif way == 4:
        x = tensor(rng, theme).detach().numpy()
        x.sum()
        read(mt.from_numpy(x[::-1] if x.ndim else x))
    else:
        tensor(rng, theme)[...] = given


def storages(rng: Random) -> None:
    theme = Theme(rng)
    x = tensor(rng, theme).detach()
    storage = x.untyped_storage() if rng.random() < 0.7 else x.storage()
    names = [n for n in dir(storage) if (not n.startswith("_") or n in ("__getitem__", "__setitem__", "__len__", "__iter__",
             "__eq__", "__deepcopy__", "__reduce__")) and n not in LEFT_ALONE]
    for _ in range(3):
        found = getattr(storage, rng.choice(names))
        if callable(found):
            try:
                found(*[rng.choice((0, 1, 3, -1, 64, 2**40, 2**63, storage, x, thing(rng, theme)))
                        for _ in range(rng.randrange(3))])
            except Exception:
                pass
    read(x)                                               # a storage made smaller is refused, not read past its end
    read(x + 1)


def setting(rng: Random) -> None:
    theme = Theme(rng)
    x, y = tensor(rng, theme), tensor(rng, theme)
    way = rng.randrange(8)
    if way == 0:
        setattr(x, rng.choice(("data", "grad", "requires_grad", "_base", "names", "real", "imag", "shape", "dtype")),
                y if rng.random() < 0.6 else thing(rng, theme))
    elif way == 1:
        x.detach().set_(rng.choice((y.untyped_storage(), y, y.storage())), rng.choice((0, 1, -1, 2**62)),
                        fitting("int[]", rng, theme), fitting("int[]", rng, theme))
    elif way == 2:
        x = x.detach()
        x.resize_(fitting("int[]", rng, theme))
        x.zero_()
    elif way == 3:
        x = x.as_strided(fitting("int[]", rng, theme), fitting("int[]", rng, theme), rng.choice((None, 0, 1, -1, 5, 2**62)))
    elif way == 4:
        x = x.view(rng.choice(DTYPES))
    elif way == 5:
        x.__setstate__(thing(rng, theme))
    elif way == 6:
        x = mt.Tensor.__new__(mt.Tensor)
        x.set_(y)
    else:
        function, args = x.__reduce_ex__(2)[:2]
        args = list(args)
        args[rng.randrange(len(args))] = thing(rng, theme)
        x = function(*args)
    read(x)
    read(x * 1)


def differentiating(rng: Random) -> None:
    theme = Theme(rng)

    def one() -> Any:
        return rng.choice((None, tensor(rng, theme), tensor(rng, theme), number(rng, True), thing(rng, theme)))

    class Strange(mt.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            ctx.save_for_backward(*[a for a in args if isinstance(a, mt.Tensor)][:rng.randrange(3)])
            if rng.random() < 0.2:
                ctx.mark_dirty(*args[:1])
            if rng.random() < 0.2:
                ctx.mark_non_differentiable(one())
            choice = rng.randrange(5)
            return args[0] if choice == 0 else args[0] * 1 if choice < 3 else (args[0] * 1, one()) if choice == 3 else one()

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            if rng.random() < 0.3:
                read(ctx.saved_tensors)
            choice = rng.randrange(4)
            return grads[0] if choice == 0 else one() if choice == 1 else tuple(one() for _ in range(rng.randrange(4)))

    x = mt.rand(rng.choice(SHAPES)).requires_grad_()
    way = rng.randrange(4)
    if way < 2:
        y = Strange.apply(x, *[one() for _ in range(rng.randrange(2))])
        y = y[0] if isinstance(y, tuple) else y
    else:
        y = (x * 2).exp()
        if way == 2:
            rng.choice((x, y)).register_hook(lambda g: one())
            y.grad_fn.register_hook(lambda *gs: one())
            y.grad_fn.register_prehook(lambda *gs: one())
    mt.autograd.grad(rng.choice((y, [y, y], y.sum())), rng.choice((x, [x, x], y, one())),
                     rng.choice((None, one(), [one()], mt.ones_like(y))), allow_unused=True, create_graph=rng.random() < 0.3)


def generators(rng: Random) -> None:
    theme = Theme(rng)
    g = mt.Generator()
    rng.choice((g.set_state, g.manual_seed, g.get_state, mt.set_rng_state))(thing(rng, theme))
    g.set_state(mt.randint(0, 256, (rng.choice((0, 5, 5056, 6000)),), dtype=mt.uint8))
    mt.rand(3, generator=g)


# ---- the public classes --------------------------------------------------------------------------------------------------
def constructed(name: str, cls: Any) -> Attempt:
    """A module, optimizer, distribution or scheduler: made with arguments of about the right kinds, then used."""
    def attempt(rng: Random) -> None:
        theme = Theme(rng)
        theme.tame = True
        args, keywords = plain_arguments(cls.__init__ if rng.random() < 0.5 else cls, rng, theme)
        keywords.pop("self", None)
        if name.startswith("optim."):
            weights = [tensor(rng, theme) for _ in range(rng.randrange(3))]
            args, keywords["params"] = [], weights if rng.random() < 0.8 else thing(rng, theme)
        made = cls(*args, **keywords)
        if name.startswith("optim."):
            for weight in weights:
                if weight.is_leaf and rng.random() < 0.8:
                    weight.grad = rng.choice((None, weight.detach() * 1, tensor(rng, theme)))
            made.step()
            made.load_state_dict(made.state_dict())
            made.step()
        elif callable(made):
            given = [tensor(rng, theme, "mbedding" in name) for _ in range(rng.choice((1, 1, 1, 2, 2, 3)))]
            read(made(*given))
        poke(rng, theme, made)
    return attempt


def poke(rng: Random, theme: Theme, found: Any) -> None:
    """Reads, calls or sets a few attributes of any object."""
    names = [n for n in dir(found) if n not in LEFT_ALONE and not is_lasting(n)]
    for _ in range(2):
        name = rng.choice(names)
        try:
            value = getattr(found, name)
            if callable(value) and not inspect.isclass(value):
                args, keywords = plain_arguments(value, rng, theme) if rng.random() < 0.5 else \
                    ([thing(rng, theme) for _ in range(rng.randrange(3))], {})
                value = value(*args, **keywords)
            read(value)
            if rng.random() < 0.1:
                setattr(found, name, thing(rng, theme))
        except (SystemError, KeyboardInterrupt):
            raise
        except Exception:
            pass


def objects(rng: Random) -> None:
    """Objects of the core other than tensors."""
    theme = Theme(rng)
    x = mt.rand(rng.choice(SHAPES)).requires_grad_()
    y = (x * 2).exp()
    way = rng.randrange(12)
    if way == 11:
        poke(rng, theme, type(rng.choice((x, y.grad_fn, mt.float32, mt.add, mt.Generator()))))
        return
    poke(rng, theme, (y.grad_fn, y.grad_fn.next_functions[0][0], mt.float32, mt.device("cpu"), mt.Size((2, 3)), mt.add,
                      mt.add.overloads[0], mt.Generator(), x.untyped_storage(), x.storage(), mt.nn.Parameter(x.detach()))[way])
    read(y)


# ---- all of them -------------------------------------------------------------------------------------------------------
SPACES = ("nn", "nn.functional", "nn.init", "nn.utils", "nn.utils.rnn", "nn.utils.parametrize", "nn.utils.prune", "nn.attention",
          "optim", "optim.lr_scheduler", "optim.swa_utils", "autograd", "autograd.graph", "autograd.functional", "func",
          "distributions", "distributions.transforms", "distributions.constraints", "amp", "library", "overrides", "random",
          "testing", "signal.windows", "utils.data", "utils.dlpack", "utils.hooks", "utils.checkpoint", "storage", "linalg",
          "fft", "special", "return_types", "accelerator", "jit", "types", "cpu", "_construct", "_printing", "_tensor", "_shape",
          "_storage", "_pickling")


def space(path: str) -> ModuleType:
    found: Any = mt
    for part in path.split("."):
        found = getattr(found, part)
    return found


def public(prefix: str, module: Any) -> dict[str, Any]:
    return {f"{prefix}{name}": getattr(module, name) for name in dir(module)
            if not name.startswith("__") and callable(getattr(module, name))
            and (getattr(getattr(module, name), "__module__", "") or "").startswith("mindtorch_v2")}


def targets() -> dict[str, Attempt]:
    """Every place to throw at, by name."""
    found: dict[str, Attempt] = {f.__name__: f for f in (
        indexing, assigning, constructing, exchanging, storages, setting, differentiating, generators, objects)}
    called_by: dict[str, Any] = methods | functions
    for prefix, items in namespaces.items():
        called_by |= {f"{prefix}.{name}": function for name, function in items.items()}
    known = {id(function) for function in called_by.values()}
    everything = {f"ops.{name}": function for name, function in vars(ops).items()} | {f"torch.{name}": getattr(mt, name)
                  for name in dir(mt) if not name.startswith("__") and callable(getattr(mt, name))}
    for path in SPACES:
        everything |= public(f"{path}.", space(path))
    everything |= public("core.", _core)
    for name, value in everything.items():
        if id(value) not in known and name.rpartition(".")[2] not in LEFT_ALONE:
            known.add(id(value))
            called_by[name] = value
    found |= {name: constructed(name, f) if inspect.isclass(f) and not name.startswith(("torch.", "core.")) else called(name, f)
              for name, f in called_by.items() if name.rpartition(".")[2] not in LEFT_ALONE}
    found |= {f"Tensor.{name}": method(name) for name in dir(mt.Tensor) if name not in methods and name not in LEFT_ALONE}
    for function in called_by.values():                    # read once here, not once in every child
        parameters_of(function)
        for overload in function.overloads if isinstance(function, _core.Op) else ():
            schema_of(overload.schema)
    return dict(sorted(found.items()))
