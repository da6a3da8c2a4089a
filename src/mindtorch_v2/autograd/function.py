"""Custom functions: a forward and a backward written by the user."""
from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

from mindtorch_v2 import _C, _facade
from mindtorch_v2._C import Node, TensorBase, _op_named

__all__ = ["FunctionCtx", "BackwardCFunction", "FunctionMeta", "Function", "once_differentiable", "InplaceFunction"]
_RELEASED = _C._core.RELEASED
_PACKAGE = __name__.partition(".")[0]       # whose own functions keep what they need in any transform


class FunctionCtx:
    """What forward leaves for backward."""
    to_save: tuple | None
    dirty_tensors: tuple | None
    non_differentiable: tuple | None

    def save_for_backward(self, *tensors: Any) -> None:
        """Keeps tensors (or None) for backward, watched for in-place changes."""
        self.to_save = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        for t in tensors:
            if t is not None and not isinstance(t, TensorBase):
                raise AssertionError("save_for_forward expects all arguments to be tensors; you should save non-tensors as "
                                     "attributes on ctx.")
        self._for_forward = tensors

    def mark_dirty(self, *args: Any) -> None:
        """Says which inputs forward changed in place."""
        _refuse_others("mark_dirty can only accept variables, but argument", args)
        self.dirty_tensors = args

    def mark_non_differentiable(self, *args: Any) -> None:
        """Says which outputs have no gradient."""
        _refuse_others("mark_non_differentiable only accepts variable arguments, but got argument", args)
        self.non_differentiable = args

    def set_materialize_grads(self, value: bool) -> None:
        """Whether gradients that did not arrive are zeros (the default) or None."""
        self.materialize_grads = value


def _refuse_others(what: str, args: tuple) -> None:
    for i, t in enumerate(args):
        if t is not None and not isinstance(t, TensorBase):
            raise RuntimeError(f"{what} {i} of type {type(t).__name__}")


def _version(t: Any) -> int:
    """How often a tensor was changed; what was made in inference mode does not count."""
    return 0 if t is None or t.is_inference() else t._version


class BackwardCFunction(Node, FunctionCtx):
    """The recorded call of a custom function; its context as well."""
    _function: Any = None
    _are_tensors: tuple = ()         # of each argument of forward: whether it is a tensor
    _runs_on_none = True             # backward is called although no gradient arrived: with zeros, or with None

    def __init__(self) -> None:
        self.to_save = self.dirty_tensors = self.non_differentiable = None
        self.materialize_grads = True
        self.needs_input_grad: tuple = ()
        self._saved: list | None = []        # None when backward has freed it
        self._for_forward: tuple = ()
        self.saved_for_forward: tuple | None = None
        self._outputs: list = []

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} object at {hex(id(self))}>"

    @property
    def next_functions(self) -> tuple:
        """Where gradients go: one entry for each tensor among the arguments."""
        return tuple(f for f, given in zip(super().next_functions, self._are_tensors) if given)

    def push_forward(self, function: Any, tangents: tuple) -> Any:
        """The tangents of what the call gave."""
        self.saved_for_forward = self._for_forward
        try:
            return function.jvp(self, *tangents)
        finally:
            self.saved_for_forward = None

    def _keep(self, outputs: tuple) -> None:
        """Turns what save_for_backward got into checked references; outputs are kept without history."""
        saved: list[Any] = []
        for i, t in enumerate(self.to_save or ()):
            if t is not None and not isinstance(t, TensorBase):
                raise TypeError(f"save_for_backward can only save variables, but argument {i} is of type {type(t).__name__}")
            number = next((i for i, o in enumerate(outputs) if o is t), None) if t is not None else None
            plain: Any = t if number is None else _fresh(t)      # an output with its history would be a cycle
            packed = None if t is None else _C._core._pack(plain)
            saved.append((plain, _version(plain), number) if packed is None else
                         (packed, None, number))
        self._saved = saved
        self.to_save = None

    def reattach(self, bare: tuple, given: tuple) -> list[tuple[int, Any]]:
        """Saves the arguments that were given in place of those that forward got; returns the outputs that were saved."""
        entries = self._saved or []
        for i, (value, version, number) in enumerate(entries):
            place = next((k for k, x in enumerate(bare) if x is value), None)
            if version is not None and place is not None:
                entries[i] = given[place], _version(given[place]), number
        return [(number, value) for value, version, number in entries if number is not None and version is not None]

    @property
    def saved_tensors(self) -> tuple:
        if self.saved_for_forward is not None:   # jvp runs
            return self.saved_for_forward
        return tuple(self._unpack(*entry) for entry in self._entries())

    @property
    def saved_variables(self) -> tuple:
        """The old name of saved_tensors."""
        warnings.warn("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=2)
        return self.saved_tensors

    @property
    def _raw_saved_tensors(self) -> tuple:
        """What save_for_backward got, before it is unpacked."""
        return tuple(SavedTensor._of(self, i) for i in range(len(self._entries())))

    def _entries(self) -> list:
        if self._saved is None:
            raise RuntimeError(_RELEASED)
        return self._saved

    def _unpack(self, value: Any, version: int | None, number: int | None) -> Any:
        """A saved tensor, checked; an output has its history again."""
        if version is None:
            value = _C._core._unpack(value)
        elif value is not None and _version(value) != version:
            raise _C._core._changed(value, version, None if number is None else self, number or 0)
        if number is None:
            return value
        value = _op_named("alias")(value)
        if number not in self._plain:
            _C._core._give_history(value, self, number)
        return value

    def _release(self) -> None:
        self._saved = None

    def apply(self, *grads: Any) -> Any:
        grads += (None,) * (len(self._shapes) - len(grads))      # outputs that have no gradient
        if self.materialize_grads:
            grads = tuple(self._zeros(i) if g is None else g for i, g in enumerate(grads))
        function = self._function
        custom = function.backward is not Function.backward
        if custom and function.vjp is not Function.vjp:
            raise RuntimeError("Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only "
                               "implement one of them.")
        if not custom and function.vjp is Function.vjp:
            raise NotImplementedError("You must implement either the backward or vjp method for your custom "
                                      "autograd.Function to use it with backward mode AD.")
        result = (function.backward if custom else function.vjp)(self, *grads)
        results = result if isinstance(result, tuple) else (result,)
        expected = len(self.needs_input_grad)
        if len(results) > expected and all(r is None for r in results[expected:]):
            results = results[:expected]
        for i, (found, given) in enumerate(zip(results, self._are_tensors)):
            if found is not None and not given:
                raise RuntimeError(f"function {type(self).__name__} returned a gradient different than None at position {i + 1}, "
                                   "but the corresponding forward input was not a Variable")
        if len(results) != expected:
            raise RuntimeError(f"function {type(self).__name__} returned an incorrect number of gradients (expected "
                               f"{expected}, got {len(results)})")
        return results

    def _zeros(self, i: int) -> Any:
        if self._shapes[i] is None:
            return None
        shape, dtype, device = self._shapes[i]
        return _op_named("zeros")(shape, dtype=dtype, device=device)


class SavedTensor(_C._core.SavedTensor):
    """One tensor that a custom function saved, before it is unpacked."""
    _node: BackwardCFunction
    _place: int

    @classmethod
    def _of(cls, node: BackwardCFunction, place: int) -> SavedTensor:
        made = cls.__new__(cls)
        made._node, made._place = node, place
        return made

    @property
    def data(self) -> Any:
        """What is kept: the tensor, or what the pack hook gave."""
        value, version, _ = self._node._entries()[self._place]
        return value if version is not None else value.value

    @property
    def unpack_hook(self) -> Any:
        """The hook that makes the tensor of what is kept; None where there are no hooks."""
        value, version, _ = self._node._entries()[self._place]
        return None if version is not None else value.unpack

    def register_hooks(self, *hooks: Callable[[Any], Any]) -> None:
        """Keeps what the first hook makes of the tensor in its place until the second gives it back."""
        pack_hook, unpack_hook = _C._core._check_saved_hooks(self, hooks)
        entries = self._node._saved
        value, _, number = entries[self._place] if entries else (None, 0, None)
        packed = _C._core._pack_with(value, entries is None, pack_hook, unpack_hook, number is None)
        self._node._entries()[self._place] = packed, None, number


class FunctionMeta(type):
    """Gives every Function its node class, named as torch names it."""
    _backward_cls: Any

    def __init__(cls, name: str, bases: tuple, body: dict) -> None:
        super().__init__(name, bases, body)
        cls._backward_cls = type(name + "Backward", (BackwardCFunction,), {
            "_function": cls, "_forward_cls": cls, "__module__": f"{__name__.partition('.')[0]}.autograd.function"})


class Function(FunctionCtx, metaclass=FunctionMeta):
    """Subclass with static forward(ctx, …) and backward(ctx, *grads); call with apply."""
    _backward_cls: Any
    generate_vmap_rule = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn(f"{type(self)} should not be instantiated. Methods on autograd functions are all static, so you should "
                      "invoke them on the class itself. Instantiating an autograd function will raise an error in a future "
                      "version of PyTorch.", DeprecationWarning, stacklevel=2)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("Legacy autograd function with non-static forward method is deprecated. Please use new-style "
                           "autograd function with static forward method. (Example: "
                           "https://pytorch.org/docs/stable/autograd.html#torch.autograd.Function)")

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        raise NotImplementedError("You must implement either the backward or vjp method for your custom "
                                  "autograd.Function to use it with backward mode AD.")

    @staticmethod
    def vjp(ctx: Any, *grad_outputs: Any) -> Any:
        return Function.backward(ctx, *grad_outputs)

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        raise NotImplementedError("You must implement the jvp function for custom autograd.Function to use it with forward mode "
                                  "AD.")

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *args: Any) -> Any:
        raise NotImplementedError("To use autograd.Function with vmap, you must either override the vmap staticmethod or set "
                                  "generate_vmap_rule=True.")

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Runs forward and records the call; a transform that an argument takes part in may answer instead."""
        own_context = cls.setup_context is Function.setup_context
        if own_context and _C._in_transform() and cls.__module__.partition(".")[0] != _PACKAGE:
            raise RuntimeError("In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, jacrev, ...), it "
                               "must override the setup_context staticmethod. For more details, please see "
                               "https://pytorch.org/docs/main/notes/extending.func.html")
        if not own_context and (kwargs or cls._takes_other_than(len(args))):
            bound = inspect.signature(cls.forward).bind(*args, **kwargs)     # setup_context gets the defaults too
            bound.apply_defaults()
            args, kwargs = bound.args, bound.kwargs
        elif kwargs:
            args, kwargs = _in_order(cls.forward, args, kwargs), {}
        layers = _C._transforms()
        if layers:
            answer = cls._call_layers(layers, args, kwargs)
            if answer is not NotImplemented:
                return answer
        return cls._call(args, kwargs)[1]

    @classmethod
    def _takes_other_than(cls, given: int) -> bool:
        """Whether forward has defaults, or a number of arguments that is not the given one."""
        code = getattr(cls.forward, "__code__", None)
        return bool(getattr(cls.forward, "__defaults__", None)) or code is not None and given < code.co_argcount

    @classmethod
    def _call_layers(cls, layers: list[Any], args: tuple, kwargs: dict[str, Any]) -> Any:
        """What the innermost transform answers that an argument takes part in; while it answers, only those outside it
        are open."""
        for i in reversed(range(len(layers))):
            if layers[i].takes_part(args):
                _C._pop_transform((layers, i))
                try:
                    return layers[i].apply_function(cls, args, kwargs)
                finally:
                    _C._pop_transform((layers, len(layers)))
        return NotImplemented

    @classmethod
    def _call(cls, args: tuple, kwargs: dict[str, Any], forward: Callable[..., Any] | None = None) -> tuple[Any, Any]:
        """The recorded call, and what it gives. `forward`: what a transform does in place of the user's, with its own
        history below."""
        node = cls._backward_cls()
        grad_mode = _C._is_grad_enabled()
        node._are_tensors = tuple(isinstance(a, TensorBase) for a in args)
        node.needs_input_grad = tuple(isinstance(a, TensorBase) and a.requires_grad for a in args)
        _C._set_grad_enabled(False)
        try:
            if cls.setup_context is Function.setup_context:
                result = cls.forward(node, *args, **kwargs)
            else:
                if forward is None:
                    result = cls.forward(*args, **kwargs)
                else:
                    _C._set_grad_enabled(grad_mode)
                    result = _without_history(forward(*args, **kwargs), args)
                    _C._set_grad_enabled(False)
                cls.setup_context(node, args, result)
        finally:
            _C._set_grad_enabled(grad_mode)
        outputs = result if isinstance(result, tuple) else (result,)
        wrapped = _finish(node, args, outputs, grad_mode and any(node.needs_input_grad))
        return node, wrapped if isinstance(result, tuple) else wrapped[0]


def _fresh(x: Any) -> Any:
    """x without history; of a transform's tensor only its own level's, which detach() would not tell apart."""
    return x._fresh()


def _without_history(result: Any, args: tuple) -> Any:
    """Results of a transform that are recorded once more, for the level of its own tensors; arguments stay themselves."""
    if isinstance(result, tuple):
        return tuple(_without_history(x, args) for x in result)
    made = isinstance(result, TensorBase) and result.requires_grad and not any(result is x for x in args)
    return _fresh(result) if made else result


def _finish(node: Any, args: tuple, outputs: tuple, recorded: bool) -> tuple:
    """Connects the outputs to the node: an input returned unchanged becomes a view, a dirty one is rebased."""
    dirty = {id(t) for t in node.dirty_tensors or ()}
    plain = {id(t) for t in node.non_differentiable or ()}
    inputs = {id(a) for a in args if isinstance(a, TensorBase)}
    if not dirty <= {id(t) for t in outputs}:
        raise RuntimeError("Some elements marked as dirty during the forward method were not returned as output. The inputs that "
                           "are modified inplace must all be outputs of the Function.")
    for t in node.dirty_tensors if recorded and node.dirty_tensors else ():
        _C._core._check_dirty(t)
    if recorded and len(outputs) > 1 and any(t._is_view() and t.requires_grad for t in node.dirty_tensors or ()):
        raise RuntimeError("If your Function modifies inplace an input that is a view of another Tensor, your Function cannot "
                           "return more than one Tensor. This is not supported by the current autograd engine. You should "
                           "either make sure the input is not a view (using .clone() for example) or make your Function only "
                           "return one Tensor (potentially splitting it into two Functions: one doing the inplace that returns "
                           "a single Tensor and a second one that does the other operations). You can ask on the forum "
                           "https://discuss.pytorch.org/ if you need help to do this change.")
    for t in node.dirty_tensors or ():
        if recorded and t.requires_grad and t.is_leaf:
            raise RuntimeError("a leaf Variable that requires grad has been used in an in-place operation.")
        if id(t) not in inputs:
            warnings.warn("ctx.mark_dirty() received a tensor that was not an input. Only input Tensors that have been mutated "
                          "should be passed to ctx.mark_dirty().", stacklevel=3)
        _C._core._bump(t)
    if recorded:
        node._set_inputs(args)
    finished = []
    node._plain = set()
    for i, out in enumerate(outputs):
        if not isinstance(out, TensorBase):
            finished.append(out)
            node._plain.add(i)
            continue
        differentiable = id(out) not in plain and (out.is_floating_point() or out.is_complex())
        if id(out) in dirty:
            if recorded and differentiable:
                _C._core._rebase(node, out, i)
        elif not recorded or not differentiable:
            out = _fresh(out) if id(out) in inputs else out
            _C._core._note_maker(out, len(outputs) > 1)
        else:
            if id(out) in inputs or out.requires_grad and out._is_view():
                out = _unrecorded_alias(out)
            elif out.requires_grad:
                out = _fresh(out)
            node._attach(out, i, len(outputs) > 1)
        if not differentiable:
            node._plain.add(i)
        finished.append(out)
    if recorded:
        node._shapes = [(tuple(o.shape), o.dtype, o.device) if isinstance(o, TensorBase) else None for o in finished]
        if not isinstance(node.to_save, (tuple, type(None))):
            raise RuntimeError("autograd internal error: to_save attribute is expected to be a tuple but is ")
        node.to_save = tuple(_same(t, outputs, finished) for t in node.to_save or ())
        node._keep(tuple(finished))
    return tuple(finished)


def _unrecorded_alias(t: Any) -> Any:
    """A view of an input that was returned as it is: its history is the function's. A class that computes by itself need not
    know views."""
    if hasattr(type(t), "__torch_dispatch__") or getattr(type(t), "_owner", None) is not None:
        return t.detach()
    before = _C._is_grad_enabled()
    _C._set_grad_enabled(False)
    try:
        return _op_named("alias")(t)
    finally:
        _C._set_grad_enabled(before)


def _same(t: Any, outputs: tuple, finished: list) -> Any:
    """The finished form of an output that was saved."""
    return next((f for o, f in zip(outputs, finished) if o is t), t)


def once_differentiable(fn: Any) -> Any:
    """Marks a backward that is not itself differentiable: what it gives has a history that refuses."""
    @functools.wraps(fn)
    def backward(ctx: Any, *grads: Any) -> Any:
        recorded = _C._is_grad_enabled()
        _C._set_grad_enabled(False)
        try:
            result = fn(ctx, *grads)
        finally:
            _C._set_grad_enabled(recorded)
        if not recorded or not any(isinstance(g, TensorBase) and g.requires_grad for g in grads):
            return result
        results = result if isinstance(result, tuple) else (result,)
        refuse = DelayedError("trying to differentiate twice a function that was marked with @once_differentiable", len(results))
        refused = refuse(*[r.detach().requires_grad_() if isinstance(r, TensorBase) else r for r in results])
        return refused if isinstance(result, tuple) else refused[0] if isinstance(refused, tuple) else refused
    return backward


class InplaceFunction(Function):
    """Kept for old code: a Function with an inplace flag."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace


def _in_order(forward: Any, args: tuple, kwargs: dict[str, Any]) -> tuple:
    """Arguments of forward(ctx, ...) with those that were given by name in their places; as in torch, up to the last of them
    all must be given, and there are none by name alone."""
    code = inspect.unwrap(forward).__code__
    names = code.co_varnames[1:code.co_argcount]
    for name in kwargs:
        if name not in names:
            raise TypeError(f"forward() got an unexpected keyword argument '{name}'")
        if name in names[:len(args)]:
            raise TypeError(f"forward() got multiple values for argument '{name}'")
    bound = list(args)
    for i, name in enumerate(names[len(args):1 + max(map(names.index, kwargs))], len(args)):
        if name not in kwargs:
            raise TypeError(f"forward() missing required argument: '{name}' (position {i})")
        bound.append(kwargs[name])
    return tuple(bound)


def _is_setup_context_defined(fn: Any) -> bool:
    """Whether a function's setup_context is its own."""
    return fn is not Function.setup_context


_SingleLevelFunction = Function       # below torch.func's levels: here a Function knows none of them


def _nested_map(condition: Callable[[Any], bool], fn: Callable[[Any], Any],
                condition_msg: str | None = None) -> Callable[[Any], Any]:
    """fn over everything in lists, tuples and dicts that meets the condition; None stays."""
    def mapped(obj: Any) -> Any:
        if condition(obj):
            return fn(obj)
        if obj is None:
            return None
        if isinstance(obj, (list, tuple)):
            parts = [mapped(x) for x in obj]
            return type(obj)(*parts) if hasattr(obj, "_fields") else type(obj)(parts)
        if isinstance(obj, dict):
            return {key: mapped(value) for key, value in obj.items()}
        raise ValueError(f"Auto nesting doesn't know how to process an input object of type {_typename(obj)}" +
                         (f". Accepted types: {condition_msg}, or lists/tuples of them" if condition_msg else ""))
    return mapped


def _typename(obj: Any) -> str:
    cls = type(obj)
    return cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


# ---- nodes that torch has in C++ and shows as torch._C._functions
class _Undefined(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return _op_named("view_as")(x, x)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return None


class _Delayed(Function):
    @staticmethod
    def forward(ctx: Any, message: str, *tensors: Any) -> Any:
        ctx.message = message
        found = tuple(_op_named("view_as")(x, x) if isinstance(x, TensorBase) else x for x in tensors)
        return found if len(found) > 1 else found[0]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise RuntimeError(ctx.message)


_Undefined._backward_cls.name = lambda node: "torch::autograd::UndefinedGrad"
_Delayed._backward_cls.name = lambda node: "torch::autograd::Error"


class UndefinedGrad:
    """Called with a tensor: the tensor, whose gradient does not go on."""

    def __call__(self, x: Any) -> Any:
        return _Undefined.apply(x)


class DelayedError:
    """Called with tensors: the tensors, whose backward raises the message."""

    def __init__(self, message: str, num_inputs: int) -> None:
        self.message = message

    def __call__(self, *tensors: Any) -> Any:
        return _Delayed.apply(self.message, *tensors)


vars(_C)["_functions"] = _facade.module(_C.__name__, "_functions", "Nodes of torch's own.", UndefinedGrad=UndefinedGrad,
                                        DelayedError=DelayedError, AccumulateGrad=_C._core.AccumulateGrad)
