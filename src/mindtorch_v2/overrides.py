"""torch.overrides: how classes and modes take over torch functions."""
from __future__ import annotations

import contextlib
import enum
import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from mindtorch_v2 import _C, _ops
from mindtorch_v2._C import TensorBase
from mindtorch_v2._offered_members import NOT_METHODS, may_be_taken_over
from mindtorch_v2._tensor import Tensor, _disabled_torch_function_impl


def _overrides(x: Any) -> bool:
    kind = type(x)
    if kind is Tensor or not hasattr(kind, "__torch_function__"):
        return False
    return kind.__torch_function__ is not _disabled_torch_function_impl


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether an argument's class, or a mode in force, overrides torch functions."""
    if _C._is_function_off():
        return False
    return bool(_modes()) or any(_overrides(x) for x in relevant_args)


def has_torch_function_unary(arg: Any) -> bool:
    """has_torch_function of one argument."""
    return has_torch_function((arg,))


def has_torch_function_variadic(*args: Any) -> bool:
    """has_torch_function of the arguments given."""
    return has_torch_function(args)


def handle_torch_function(public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any,
                          **kwargs: Any) -> Any:
    """Asks modes and overriding arguments for the result of a function."""
    overriding: list[Any] = []
    for x in relevant_args:
        if _overrides(x) and type(x) not in [type(o) for o in overriding]:
            place = next((i for i, o in enumerate(overriding) if issubclass(type(x), type(o))), len(overriding))
            overriding.insert(place, x)
    kinds = tuple(type(o) for o in overriding)
    if _modes():
        mode = _modes()[-1]
        with _outside(mode):
            result = mode.__torch_function__(public_api, kinds, args, kwargs)
        if result is not NotImplemented:
            return result
    for x in overriding:
        result = x.__torch_function__(public_api, kinds, args, kwargs)
        if result is not NotImplemented:
            return result
    name = f"{public_api.__module__}.{public_api.__name__}"
    raise TypeError(f"no implementation found for '{name}' on types that implement __torch_function__: {list(kinds)}")


def _assert(condition: Any, message: str) -> None:
    """torch._assert: assert as a function, which a class may take over."""
    if type(condition) is not Tensor and has_torch_function_unary(condition):
        return handle_torch_function(_assert, (condition,), condition, message)
    assert condition, message
    return None


def _modes() -> list[Any]:
    """The modes of the running thread, innermost last: the core's own list."""
    return _C._core._function_mode_stack()


def _get_current_function_mode_stack() -> list[Any]:
    """The modes of the running thread, innermost last."""
    return list(_modes())


def _get_current_function_mode() -> Any:
    """The innermost mode of the running thread, or None."""
    return _modes()[-1] if _modes() else None


def _push_mode(mode: Any) -> None:
    """The mode is the innermost one from now on."""
    _C._push_function_mode(mode)


def _pop_mode() -> Any:
    """The innermost mode, which ends."""
    mode = _get_current_function_mode()
    _C._pop_function_mode()
    return mode


@contextlib.contextmanager
def _pop_mode_temporarily() -> Iterator[Any]:
    """A with block without the innermost mode."""
    mode = _pop_mode()
    try:
        yield mode
    finally:
        _push_mode(mode)


class _outside:
    """A mode does not see what its own handler calls."""

    def __init__(self, mode: Any) -> None:
        self.mode = mode

    def __enter__(self) -> None:
        _C._pop_function_mode()

    def __exit__(self, *exc: Any) -> None:
        _C._push_function_mode(self.mode)


class TorchFunctionMode:
    """A with block in which __torch_function__ of the mode sees every torch function."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[Any, Any] | None = None) -> Any:
        raise NotImplementedError

    def __enter__(self) -> Any:
        _C._push_function_mode(self)
        return self

    def __exit__(self, *exc: Any) -> None:
        _C._pop_function_mode()

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that calls every function as it is."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[Any, Any] | None = None) -> Any:
        return func(*args, **(kwargs or {}))


class DisableTorchFunctionSubclass:
    """A with block in which no class overrides torch functions."""

    def __enter__(self) -> None:
        self.before = _C._set_function_off(True)

    def __exit__(self, *exc: Any) -> None:
        _C._set_function_off(self.before)


DisableTorchFunction = DisableTorchFunctionSubclass


def is_tensor_like(inp: Any) -> bool:
    """Whether the object is a tensor or overrides torch functions."""
    return isinstance(inp, TensorBase) or hasattr(type(inp), "__torch_function__")


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    """Whether the function is a method of Tensor or the getter of a property."""
    return func in _tensor_methods() or func.__name__ == "__get__"


def resolve_name(f: Any) -> str | None:
    """The dotted name of a function that a class may take over; None of any other."""
    if type(f).__name__ in ("OpOverload", "OpOverloadPacket"):
        return str(f)
    return _names().get(f)


def wrap_torch_function(dispatcher: Callable[..., Iterable[Any]]) -> Callable[..., Any]:
    """Makes a function overridable; dispatcher gives the arguments to look at."""
    def decorate(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = tuple(dispatcher(*args, **kwargs))
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return func(*args, **kwargs)
        return wrapped
    return decorate


def _overridable(func: Callable[..., Any]) -> Callable[..., Any]:
    """A function of torch that is Python here, with what torch does for classes that take it over."""
    normal_form = getattr(func, "normal_form", None)     # the one way that overriders see of several to call it

    @functools.wraps(func)
    def called(*args: Any, **kwargs: Any) -> Any:
        relevant: list[Any] = []
        for arg in (*args, *kwargs.values()):
            relevant.extend(arg if type(arg) in (list, tuple) else (arg,))
        if has_torch_function(relevant):
            if normal_form is not None:
                args = normal_form(*args)
            return handle_torch_function(called, relevant, *args, **kwargs)
        return func(*args, **kwargs)
    return called


def get_default_nowrap_functions() -> set[Any]:
    """Getters whose results stay plain tensors."""
    return {Tensor._base.__get__, Tensor.grad.__get__, Tensor._grad.__get__}


# ---- tables of what may be taken over, by name ----------------------------------------------------------------------
_PRIVATE_FUNCTIONS = """_assert_async _conj_copy _functional_assert_async _fused_rms_norm _fw_primal_copy _indices_copy
_make_dual_copy _native_batch_norm_legit _neg_view_copy _reshape_alias_copy _rowwise_prune _sparse_broadcast_to_copy
_sym_acos _sym_asin _sym_atan _sym_cos _sym_cosh _sym_sin _sym_sinh _sym_sqrt _sym_tan _sym_tanh _values_copy
_wrapped_linear_prepack _wrapped_quantized_linear_prepacked"""
_SYMBOLIC = "sym_float sym_int sym_ite sym_max sym_min sym_not sym_sum"
# Besides the factories, which take no tensor.
_IGNORED = frozenset("""as_tensor asarray can_cast cudnn_affine_grid_generator cudnn_batch_norm cudnn_convolution
cudnn_convolution_add_relu cudnn_convolution_relu cudnn_convolution_transpose cudnn_grid_sampler cudnn_is_acceptable
empty_quantized fill from_file from_numpy frombuffer get_default_dtype hspmm is_grad_enabled is_inference_mode_enabled
is_vulkan_available miopen_ctc_loss mkldnn_adaptive_avg_pool2d mkldnn_convolution mkldnn_linear_backward_weights
mkldnn_max_pool2d mkldnn_max_pool3d mkldnn_rnn_layer normal promote_types rand_like randint_like randn_like range
result_type sparse_bsc_tensor sparse_bsr_tensor sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor
sparse_csr_tensor sspaddmm sym_constrain_range sym_constrain_range_for_size tensor tril_indices triu_indices
vander""".split())
_NN_IGNORED = frozenset("""assert_int_or_pair grouped_mm hardsigmoid hardswish scaled_grouped_mm scaled_mm sigmoid tanh
upsample upsample_bilinear upsample_nearest boolean_dispatch has_torch_function handle_torch_function""".split())


@functools.cache
def _factories() -> frozenset[str]:
    """The ops that take no tensor."""
    return frozenset(name for name, f in _ops.functions.items() if isinstance(f, _C.Op) and not any(
        word in o.schema.partition("->")[0] for o in f.overloads for word in ("Tensor ", "Tensor?", "Tensor[")))


@functools.cache
def _tensor_methods() -> frozenset[Any]:
    """What Tensor has that can be called on an instance."""
    return frozenset(f for f in (getattr(Tensor, name, None) for name in dir(Tensor) if name != "__hash__") if callable(f)
                     and not isinstance(f, type))


def _members(space: Any, names: Iterable[str]) -> list[Any]:
    """The functions of these names that the namespace has."""
    return [f for f in (getattr(space, name, None) for name in names) if callable(f) and not isinstance(f, type)]


@functools.cache
def _overridable_members() -> dict[Any, dict[str, Any]]:
    """What a class may take over: by the namespace or the property, and by name."""
    torch = sys.modules[__name__.rpartition(".")[0]]
    inner = vars(torch._C._VariableFunctions)
    found: dict[Any, dict[str, Any]] = {}

    def note(space: Any, names: Iterable[str]) -> None:
        found[space] = {f.__name__: f for f in _members(space, names)}
    note(torch.functional, [n for n in torch.functional.__all__ if n != "broadcast_shapes"])
    taken = set(found[torch.functional])
    note(torch, [n for n in sorted(inner) if not n.startswith("_") and n not in _IGNORED | _factories() and n not in taken] +
         (_PRIVATE_FUNCTIONS + " " + _SYMBOLIC + " lobpcg svd_lowrank pca_lowrank").split())
    note(torch.nn.functional, [n for n, f in vars(torch.nn.functional).items() if not n.startswith("_") and n not in _NN_IGNORED])
    note(torch.nn.init, ("constant_", "kaiming_uniform_", "normal_", "uniform_"))
    for space in ("fft", "linalg", "special"):
        note(getattr(torch, space), [n for n in _ops.namespaces[space] if n not in ("fftfreq", "rfftfreq")])
    methods = {}
    for name in filter(may_be_taken_over, dir(Tensor)):
        member = getattr(Tensor, name)
        if hasattr(type(member), "__set__"):      # a property
            found[member] = {f"{name}.__get__": member.__get__}
        elif callable(member) and not isinstance(member, type):
            methods[name] = member
    found[Tensor] = methods
    return found


@functools.cache
def _names() -> dict[Any, str]:
    """The dotted name of every function that a class may take over."""
    names: dict[Any, str] = {}
    for space, members in _overridable_members().items():
        before = space.__name__ if isinstance(space, types.ModuleType) else f"{__name__.rpartition('.')[0]}.Tensor"
        for name, function in members.items():
            names.setdefault(function, f"{before}.{name.removeprefix(before.rpartition('.')[2] + '_')}")
            if name.endswith(".__get__"):
                names[space.__set__] = f"{before}.{name.removesuffix('.__get__')}.__set__"
    return names


def get_overridable_functions() -> dict[Any, list[Any]]:
    """What a class may take over, by where it is: of torch, its namespaces, Tensor, and the properties of Tensor."""
    return {space: list(members.values()) for space, members in _overridable_members().items()}


@functools.cache
def get_ignored_functions() -> set[Any]:
    """Functions of torch that no class takes over: settings, and those that make tensors of numbers and sizes."""
    torch = sys.modules[__name__.rpartition(".")[0]]
    settings = [n for n in dir(torch) if n.startswith(("set_", "get_", "is_autocast", "is_anomaly", "is_determ", "is_warn"))]
    more = ("typename is_tensor is_storage save load seed manual_seed initial_seed compile broadcast_shapes "
            "use_deterministic_algorithms")
    return {f for f in _members(torch, [*_IGNORED, *_factories(), *settings, *more.split()]) + _members(Tensor, NOT_METHODS) +
            _members(torch.nn.functional, _NN_IGNORED) if f.__hash__ is not None}


def _plain_signature(function: Callable[..., Any]) -> inspect.Signature:
    """The function's signature without annotations."""
    given = inspect.signature(function)
    return given.replace(parameters=[p.replace(annotation=p.empty) for p in given.parameters.values()],
                         return_annotation=given.empty)


@functools.cache
def get_testing_overrides() -> dict[Any, Callable[..., Any]]:
    """For each function that a class may take over, one with its signature that gives -1."""
    made: dict[Any, Callable[..., Any]] = {}
    for functions in get_overridable_functions().values():
        for function in functions:
            def stand_in(*args: Any, **kwargs: Any) -> int:
                return -1
            del stand_in.__annotations__
            with contextlib.suppress(ValueError, TypeError):             # a few of C have no signature
                stand_in.__signature__ = _plain_signature(function)      # type: ignore[attr-defined]
            made[function] = stand_in
    return made


class _TorchFunctionState(enum.Enum):
    """Whether classes and modes may override torch functions."""
    ENABLED, SUBCLASSES_DISABLED, ALL_DISABLED = range(3)


def _get_torch_function_state() -> _TorchFunctionState:
    """Whether classes may override functions; function modes always may."""
    return _TorchFunctionState.SUBCLASSES_DISABLED if _C._is_function_off() else _TorchFunctionState.ENABLED


def _set_torch_function_state(state: _TorchFunctionState) -> None:
    """Whether classes may override functions from now on."""
    _C._set_function_off(state is not _TorchFunctionState.ENABLED)


vars(_C).update(_TorchFunctionState=_TorchFunctionState, _get_torch_function_state=_get_torch_function_state,
                _set_torch_function_state=_set_torch_function_state,
                _len_torch_function_stack=lambda: len(_modes()),
                _get_function_stack_at=lambda place: _modes()[place],
                _push_on_torch_function_stack=_C._push_function_mode,
                _pop_torch_function_stack=_pop_mode,
                DisableTorchFunctionSubclass=DisableTorchFunctionSubclass,
                DisableTorchFunction=DisableTorchFunction,
                _has_torch_function=has_torch_function)


@contextlib.contextmanager
def enable_reentrant_dispatch() -> Iterator[None]:
    """A with block inside a __torch_dispatch__ in which ops are recorded for backward, as they are outside."""
    before = _C._is_grad_enabled()
    _C._set_grad_enabled(True)
    try:
        yield
    finally:
        _C._set_grad_enabled(before)


def _get_overloaded_args(relevant_args: Iterable[Any], get_type_fn: Callable[[Any], type] | None = None) -> list[Any]:
    """One argument of each type that overrides __torch_function__, in the order in which they are asked: subclasses first."""
    if _C._is_function_off():
        return []
    kind_of = type if get_type_fn is None else get_type_fn
    found: dict[type, Any] = {}
    for arg in relevant_args:
        kind = kind_of(arg)
        if kind in found or not hasattr(kind, "__torch_function__") \
                or kind.__torch_function__ is _disabled_torch_function_impl:
            continue
        kinds = list(found)
        at = next((i for i, other in enumerate(kinds) if issubclass(kind, other)), len(kinds))
        items = list(found.items())
        found = dict([*items[:at], (kind, arg), *items[at:]])
    return list(found.values())
