"""How a Module keeps and walks its parameters, buffers and submodules."""

from __future__ import annotations

from typing import Any, Callable, Iterator

import mindtorch_v2 as torch
from mindtorch_v2.nn.modules import _hooks
from mindtorch_v2.nn.parameter import Parameter


def _registered(hooks: dict[Any, Any], module: Any, name: str, value: Any) -> Any:
    """Show a newcomer to the global registration hooks, each of which may replace it."""
    for hook in hooks.values():
        replaced = hook(module, name, value)
        if replaced is not None:
            value = replaced
    return value


class Members:
    """Registration and traversal; the dictionaries themselves are made by Module.__init__."""

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Any]
    _modules: dict[str, Any]
    _non_persistent_buffers_set: set[str]
    _get_name: Callable[[], str]

    def _check_name(self, kind: str, name: Any, table: dict[Any, Any]) -> None:
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {torch.typename(name)}")
        if kind == "module":
            if hasattr(self, name) and name not in table:
                raise KeyError(f"attribute '{name}' already exists")
            if "." in name:
                raise KeyError(f'module name can\'t contain ".", got: {name}')
        elif "." in name:
            raise KeyError(f'{kind} name can\'t contain "."')
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""')
        if name not in table and hasattr(self, name):
            raise KeyError(f"attribute '{name}' already exists")

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        """Add a buffer: state that is saved and moved with the module but not trained."""
        if "_buffers" not in self.__dict__:
            raise AttributeError("cannot assign buffer before Module.__init__() call")
        self._check_name("buffer", name, self._buffers)
        if tensor is not None and not isinstance(tensor, torch.Tensor):
            raise TypeError(
                f"cannot assign '{torch.typename(tensor)}' object to buffer '{name}' "
                "(torch Tensor or None required)"
            )
        tensor = _registered(_hooks._global_buffer_registration_hooks, self, name, tensor)
        self._buffers[name] = tensor
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter under a name that is also its attribute."""
        if "_parameters" not in self.__dict__:
            raise AttributeError("cannot assign parameter before Module.__init__() call")
        self._check_name("parameter", name, self._parameters)
        if param is not None:
            if not isinstance(param, Parameter):
                raise TypeError(
                    f"cannot assign '{torch.typename(param)}' object to parameter '{name}' "
                    "(torch.nn.Parameter or None required)"
                )
            if param.grad_fn is not None:
                raise ValueError(
                    f"Cannot assign non-leaf Tensor to parameter '{name}'. Model "
                    f"parameters must be created explicitly. To express '{name}' "
                    "as a function of another Tensor, compute the value in "
                    "the forward() method."
                )
            hooks = _hooks._global_parameter_registration_hooks
            param = _registered(hooks, self, name, param)
        self._parameters[name] = param

    def add_module(self, name: str, module: Any) -> None:
        """Add a child module under a name that is also its attribute."""
        if module is not None and not isinstance(module, Members):
            raise TypeError(f"{torch.typename(module)} is not a Module subclass")
        self._check_name("module", name, self._modules)
        hooks = _hooks._global_module_registration_hooks
        self._modules[name] = _registered(hooks, self, name, module)

    def register_module(self, name: str, module: Any) -> None:
        """Alias of add_module."""
        self.add_module(name, module)

    def _lookup(self, target: str) -> tuple[Any, str]:
        """The module that owns the last name of a dotted path, and that name."""
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        if not hasattr(owner, name):
            raise AttributeError(f"{owner._get_name()} has no attribute `{name}`")
        return owner, name

    def get_submodule(self, target: str) -> Any:
        """The submodule at a dotted path; the empty path is the module itself."""
        module = self
        for name in target.split(".") if target else ():
            if not hasattr(module, name):
                raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
            module = getattr(module, name)
            if not isinstance(module, Members):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return module

    def set_submodule(self, target: str, module: Any, strict: bool = False) -> None:
        """Replace (or, unless strict, add) the submodule at a dotted path."""
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Members):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if hasattr(parent, name):
            if not isinstance(getattr(parent, name), Members):
                raise AttributeError(f"`{name}` is not an nn.Module")
        elif strict:
            raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a dotted path."""
        owner, name = self._lookup(target)
        param = getattr(owner, name)
        if not isinstance(param, Parameter):
            raise AttributeError(f"`{name}` is not an nn.Parameter")
        return param

    def get_buffer(self, target: str) -> Any:
        """The buffer at a dotted path."""
        owner, name = self._lookup(target)
        buffer = getattr(owner, name)
        if name not in owner._buffers:
            raise AttributeError(f"`{name}` is not a buffer")
        return buffer

    def _named_members(
        self,
        get_members_fn: Callable[..., Any],
        prefix: str = "",
        recurse: bool = True,
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, Any]]:
        seen: set[Any] = set()
        owners: Any = [(prefix, self)]
        if recurse:
            owners = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
        for path, module in owners:
            for name, value in get_members_fn(module):
                # By identity: tensors compare elementwise.
                if value is None or id(value) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(value))
                yield (f"{path}.{name}" if path else name), value

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """All parameters, each once."""
        for _, param in self.named_parameters(recurse=recurse):
            yield param

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """All parameters with their dotted names."""
        members = lambda module: module._parameters.items()  # noqa: E731
        yield from self._named_members(members, prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Any]:
        """All buffers, each once."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """All buffers with their dotted names."""
        members = lambda module: module._buffers.items()  # noqa: E731
        yield from self._named_members(members, prefix, recurse, remove_duplicate)

    def children(self) -> Iterator[Any]:
        """The immediate submodules."""
        for _, module in self.named_children():
            yield module

    def named_children(self) -> Iterator[tuple[str, Any]]:
        """The immediate submodules with their names."""
        seen: set[Any] = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def modules(self, remove_duplicate: bool = True) -> Iterator[Any]:
        """The module itself and everything below it."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_modules(
        self, memo: set[Any] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """The module itself and everything below it, with dotted names."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                path = f"{prefix}.{name}" if prefix else name
                yield from module.named_modules(memo, path, remove_duplicate)

    def apply(self, fn: Callable[..., Any]) -> Any:
        """Call `fn` on every submodule and then on the module itself."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def train(self, mode: bool = True) -> Any:
        """Switch the module and everything below it to training (or evaluation) mode."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Any:
        """Switch to evaluation mode."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Say for every parameter whether it is trained."""
        for param in self.parameters():
            param.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop (or zero) the gradients of all parameters."""
        for param in self.parameters():
            grad = param.grad
            if grad is None:
                continue
            if set_to_none:
                param.grad = None
                continue
            if grad.grad_fn is not None:
                grad.detach_()
            else:
                grad.requires_grad_(False)
            grad.zero_()
