"""Module, the base class of all layers: its attributes, its call and its own hooks."""

from __future__ import annotations

import inspect
import warnings
from collections import OrderedDict
from typing import Any, Callable

import mindtorch_v2 as torch
from mindtorch_v2.nn.modules import _hooks
from mindtorch_v2.nn.modules._convert import Convert
from mindtorch_v2.nn.modules._hooks import (  # noqa: F401  (torch has all tables of hooks here)
    BackwardHook,
    RemovableHandle,
    _global_backward_hooks,
    _global_backward_pre_hooks,
    _global_buffer_registration_hooks,
    _global_forward_hooks,
    _global_forward_hooks_always_called,
    _global_forward_hooks_with_kwargs,
    _global_forward_pre_hooks,
    _global_module_registration_hooks,
    _global_parameter_registration_hooks,
    _WrappedHook,
    add_hook,
    global_call_hooks_seen,
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from mindtorch_v2.nn.modules._members import Members, _registered
from mindtorch_v2.nn.modules._state import (  # noqa: F401  (torch has the private two here)
    _EXTRA_STATE_KEY_SUFFIX,
    StateDict,
    _IncompatibleKeys,
)
from mindtorch_v2.nn.parameter import Buffer, Parameter

__all__ = [
    "Module",
    "register_module_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
]

# The dictionaries of hooks that every module carries.
_HOOK_TABLES = (
    "_backward_pre_hooks",
    "_backward_hooks",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)
_MIXED_HOOKS = (
    "Cannot use both regular backward hooks and full backward hooks on a "
    "single Module. Please use only one of them."
)


def _addindent(text: str, spaces: int) -> str:
    """Indent every line but the first."""
    return text.replace("\n", "\n" + " " * spaces)


def _forward_unimplemented(self: Any, *input: Any) -> None:
    """Stand in for a forward that the subclass has not defined."""
    raise NotImplementedError(
        f'Module [{type(self).__name__}] is missing the required "forward" function'
    )


class Module(Members, Convert, StateDict):
    """Base class of all neural network modules."""

    dump_patches: bool = False
    _version: int = 1
    training: bool
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Any]
    _modules: dict[str, Any]
    _is_full_backward_hook: bool | None
    call_super_init: bool = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init:
            name = type(self).__name__
            if kwargs:
                bad = next(iter(kwargs))
                raise TypeError(f"{name}.__init__() got an unexpected keyword argument '{bad}'")
            if args:
                raise TypeError(
                    f"{name}.__init__() takes 1 positional argument but {len(args) + 1} were given"
                )
        d = self.__dict__
        d["training"] = True
        d["_parameters"] = {}
        d["_buffers"] = {}
        d["_non_persistent_buffers_set"] = set()
        d["_is_full_backward_hook"] = None
        d["_modules"] = {}
        for table in _HOOK_TABLES:
            d[table] = OrderedDict()
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    forward: Callable[..., Any] = _forward_unimplemented

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        d = self.__dict__
        if (
            d["_forward_hooks"]
            or d["_forward_pre_hooks"]
            or d["_backward_hooks"]
            or d["_backward_pre_hooks"]
            or global_call_hooks_seen
        ):
            return self._call_with_hooks(args, kwargs)
        return self.forward(*args, **kwargs)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """torch.compile of the module, in place: it runs as it is, and torch.compile says so once."""
        torch.compile(self.forward, *args, **kwargs)

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        return self.__call__(*args, **kwargs)

    def _call_with_hooks(self, args: tuple[Any, ...], kwargs: dict[Any, Any]) -> Any:
        # The frame holds what the always-called hooks need when something raises.
        frame: dict[str, Any] = {"args": args, "kwargs": kwargs, "result": None, "called": set()}
        try:
            return self._run_hooked(frame)
        except Exception:
            self._call_remaining(frame)
            raise

    def _run_hooked(self, frame: dict[Any, Any]) -> Any:
        pre_hooks = [*_global_backward_pre_hooks.values(), *self._backward_pre_hooks.values()]
        full, old = self._get_backward_hooks()
        self._run_forward_pre_hooks(frame)
        tap = BackwardHook(self, full, pre_hooks) if full or pre_hooks else None
        if tap:
            frame["args"] = tap.setup_input_hook(frame["args"])
        frame["result"] = self.forward(*frame["args"], **frame["kwargs"])
        self._run_forward_hooks(frame)
        result = frame["result"]
        if tap:
            if not isinstance(result, (torch.Tensor, tuple)):
                warnings.warn(
                    "For backward hooks to be called, module output should be a Tensor or a "
                    f"tuple of Tensors but received {type(result)}",
                    stacklevel=4,
                )
            result = tap.setup_output_hook(result)
        if old:
            var = result
            while not isinstance(var, torch.Tensor):
                if isinstance(var, dict):
                    var = next(v for v in var.values() if isinstance(v, torch.Tensor))
                else:
                    var = var[0]
            if var.grad_fn is not None:
                for hook in old:
                    var.grad_fn.register_hook(_WrappedHook(hook, self))
                _hooks.warn_of_old_hooks(frame["args"], result, var.grad_fn)
        return result

    def _run_forward_pre_hooks(self, frame: dict[Any, Any]) -> None:
        for key, hook in (*_global_forward_pre_hooks.items(), *self._forward_pre_hooks.items()):
            if key in self._forward_pre_hooks_with_kwargs:
                result = hook(self, frame["args"], frame["kwargs"])
                if result is None:
                    continue
                if not (isinstance(result, tuple) and len(result) == 2):
                    raise RuntimeError(
                        "forward pre-hook must return None or a tuple "
                        f"of (new_args, new_kwargs), but got {result}."
                    )
                frame["args"], frame["kwargs"] = result
            else:
                result = hook(self, frame["args"])
                if result is not None:
                    frame["args"] = result if isinstance(result, tuple) else (result,)

    def _run_forward_hooks(self, frame: dict[Any, Any]) -> None:
        for key, hook in (*_global_forward_hooks.items(), *self._forward_hooks.items()):
            frame["called"].add(key)
            self._run_forward_hook(key, hook, frame)

    def _run_forward_hook(self, key: int, hook: Callable[..., Any], frame: dict[Any, Any]) -> None:
        args = [self, frame["args"]]
        if key in self._forward_hooks_with_kwargs or key in _global_forward_hooks_with_kwargs:
            args.append(frame["kwargs"])
        result = hook(*args, frame["result"])
        if result is not None:
            frame["result"] = result

    def _call_remaining(self, frame: dict[Any, Any]) -> None:
        """After an error, run the always-called forward hooks that did not run yet."""
        tables = (
            ("global module", _global_forward_hooks, _global_forward_hooks_always_called),
            ("module", self._forward_hooks, self._forward_hooks_always_called),
        )
        for what, hooks, always in tables:
            for key, hook in hooks.items():
                if key not in always or key in frame["called"]:
                    continue
                try:
                    self._run_forward_hook(key, hook, frame)
                except Exception as error:  # the first error is the one to raise
                    warnings.warn(
                        f"{what} forward hook with ``always_call=True`` raised an exception "
                        f"that was silenced as another error was raised in forward: {error}",
                        stacklevel=3,
                    )

    def _get_backward_hooks(self) -> tuple[list[Any], list]:
        full, old = _hooks.global_backward_hooks(True), _hooks.global_backward_hooks(False)
        if self._is_full_backward_hook is not None:
            (full if self._is_full_backward_hook else old).extend(self._backward_hooks.values())
        return full, old

    def _get_backward_pre_hooks(self) -> list[Any]:
        return [*_global_backward_pre_hooks.values(), *self._backward_pre_hooks.values()]

    def register_full_backward_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, grad_output)` before the gradients of the module are computed."""
        return add_hook(self._backward_pre_hooks, hook, prepend=prepend)

    def register_full_backward_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, grad_input, grad_output)` when the input gradients are there."""
        if self._is_full_backward_hook is False:
            raise RuntimeError(_MIXED_HOOKS)
        self._is_full_backward_hook = True
        return add_hook(self._backward_hooks, hook, prepend=prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Attach the old kind of backward hook; prefer register_full_backward_hook."""
        if self._is_full_backward_hook is True:
            raise RuntimeError(_MIXED_HOOKS)
        self._is_full_backward_hook = False
        return add_hook(self._backward_hooks, hook)

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args[, kwargs])` before forward; it may replace the arguments."""
        extra = [self._forward_pre_hooks_with_kwargs]
        handle = add_hook(self._forward_pre_hooks, hook, extra=extra, prepend=prepend)
        if with_kwargs:
            self._forward_pre_hooks_with_kwargs[handle.id] = True
        return handle

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Call `hook(module, args[, kwargs], output)` after forward; it may replace the output."""
        extra = [self._forward_hooks_with_kwargs, self._forward_hooks_always_called]
        handle = add_hook(self._forward_hooks, hook, extra=extra, prepend=prepend)
        if with_kwargs:
            self._forward_hooks_with_kwargs[handle.id] = True
        if always_call:
            self._forward_hooks_always_called[handle.id] = True
        return handle

    def __setstate__(self, state: dict[Any, Any]) -> None:
        d = self.__dict__
        d.update(state)
        for table in _HOOK_TABLES:
            if table not in d:
                d[table] = OrderedDict()
        d.setdefault("_non_persistent_buffers_set", set())
        d.setdefault("_is_full_backward_hook", None)

    def __getattr__(self, name: str) -> Any:
        d = self.__dict__
        if "_modules" in d:
            table = d["_parameters"]
            if name in table:
                return table[name]
            table = d["_modules"]
            if name in table:
                return table[name]
            table = d["_buffers"]
            if name in table:
                return table[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def _forget(self, name: str, *tables: str) -> None:
        d = self.__dict__
        d.pop(name, None)
        for table in tables:
            d[table].pop(name, None)
        if "_buffers" in tables:
            d["_non_persistent_buffers_set"].discard(name)

    def __setattr__(self, name: str, value: Any) -> None:
        d = self.__dict__
        params, modules, buffers = d.get("_parameters"), d.get("_modules"), d.get("_buffers")
        if isinstance(value, Parameter):
            if params is None:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            self._forget(name, "_buffers", "_modules")
            self.register_parameter(name, value)
        elif params is not None and name in params:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{torch.typename(value)}' as parameter '{name}' "
                    "(torch.nn.Parameter or None expected)"
                )
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            if modules is None:
                raise AttributeError("cannot assign module before Module.__init__() call")
            self._forget(name, "_parameters", "_buffers")
            hooks = _hooks._global_module_registration_hooks
            modules[name] = _registered(hooks, self, name, value)
        elif modules is not None and name in modules:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{torch.typename(value)}' as child module '{name}' "
                    "(torch.nn.Module or None expected)"
                )
            hooks = _hooks._global_module_registration_hooks
            modules[name] = _registered(hooks, self, name, value)
        elif isinstance(value, Buffer) or (buffers is not None and name in buffers):
            self._assign_buffer(name, value)
        else:
            object.__setattr__(self, name, value)

    def _assign_buffer(self, name: str, value: Any) -> None:
        if value is not None and not isinstance(value, torch.Tensor):
            raise TypeError(
                f"cannot assign '{torch.typename(value)}' as buffer '{name}' "
                "(torch.nn.Buffer, torch.Tensor or None expected)"
            )
        if isinstance(value, Buffer):
            persistent = value.persistent
        else:
            persistent = name not in self._non_persistent_buffers_set
        # A subclass may override register_buffer with the signature of old versions.
        own = type(self).register_buffer is Members.register_buffer
        if own or "persistent" in inspect.signature(self.register_buffer).parameters:
            self.register_buffer(name, value, persistent)
            return
        if not persistent:
            raise RuntimeError(
                "Registering a non-persistent buffer on a Module subclass that implements "
                "register_buffer() without the persistent argument is not allowed."
            )
        self.register_buffer(name, value)

    def __delattr__(self, name: str) -> None:
        if name in self._parameters:
            del self._parameters[name]
        elif name in self._buffers:
            del self._buffers[name]
            self._non_persistent_buffers_set.discard(name)
        elif name in self._modules:
            del self._modules[name]
        else:
            super().__delattr__(name)

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """What repr shows between the parentheses before the children."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        extra_lines = extra.split("\n") if extra else []
        children = [f"({k}): {_addindent(repr(m), 2)}" for k, m in self._modules.items()]
        lines = extra_lines + children
        if not lines:
            return f"{self._get_name()}()"
        if len(lines) == 1 and not children:
            return f"{self._get_name()}({lines[0]})"
        return f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)"

    def __dir__(self) -> list[str]:
        keys = [*dir(type(self)), *self.__dict__, *self._parameters, *self._modules, *self._buffers]
        return sorted(key for key in keys if not key[0].isdigit())
