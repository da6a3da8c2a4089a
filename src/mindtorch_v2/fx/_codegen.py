"""CodeGen: a graph as the Python source of a forward function, and the globals that it needs."""
from __future__ import annotations

import enum
import inspect
import re
import types
import typing
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import mindtorch_v2 as torch
from mindtorch_v2.fx._compatibility import compatibility
from mindtorch_v2.fx._namespace import _ILLEGAL, _color_fns, _custom_builtins, _identity, _Namespace
from mindtorch_v2.fx._qualified import is_from_torch as _is_from_torch
from mindtorch_v2.fx.node import Node, _get_qualified_name, _type_repr, map_arg
from mindtorch_v2.fx.traceback import _parse_stack_trace

pytree = torch.utils._pytree
TransformCodeFunc = Callable[[list[str]], list[str]]

_BINARY = {"eq": "==", "ne": "!=", "lt": "<", "gt": ">", "le": "<=", "ge": ">="}
_REFLECTED = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "truediv": "/", "div": "/", "mod": "%", "pow": "**",
              "lshift": "<<", "rshift": ">>", "and_": "&", "or_": "|", "xor": "^"}
_INPLACE = {"iadd": "+", "iand": "&", "ifloordiv": "//", "ilshift": "<<", "imod": "%", "imul": "*", "imatmul": "@",
            "ior": "|", "ipow": "**", "irshift": ">>", "isub": "-", "itruediv": "/", "ixor": "^"}
reflectable_magic_methods = {name: f"{{}} {sign} {{}}" for name, sign in _REFLECTED.items()}
reflectable_magic_methods |= {"getitem": "{}[{}]", "matmul": "{} @ {}"}
magic_methods = {name: f"{{}} {sign} {{}}" for name, sign in _BINARY.items()}
magic_methods |= {"pos": "+{}", "neg": "-{}", "invert": "~{}", **reflectable_magic_methods}
inplace_methods = {name: f"{{}} {sign}= {{}}" for name, sign in _INPLACE.items()} | {"setitem": "{}[{}] = {}"}

dtype_abbrs = {getattr(torch, name): short for name, short in (
    ("bfloat16", "bf16"), ("float64", "f64"), ("float32", "f32"), ("float16", "f16"), ("float8_e4m3fn", "f8e4m3fn"),
    ("float8_e5m2", "f8e5m2"), ("float8_e4m3fnuz", "f8e4m3fnuz"), ("float8_e5m2fnuz", "f8e5m2fnuz"),
    ("complex32", "c32"), ("complex64", "c64"), ("complex128", "c128"), ("int8", "i8"), ("int16", "i16"), ("int32", "i32"),
    ("int64", "i64"), ("bool", "b8"), ("uint8", "u8"), ("uint16", "u16"), ("uint32", "u32"), ("uint64", "u64"))
    if hasattr(torch, name)}
_ORIGINS: dict[Any, Any] = {list: typing.List, dict: typing.Dict, set: typing.Set,   # noqa: UP006
                            frozenset: typing.FrozenSet, tuple: typing.Tuple}   # noqa: UP006
_COUNTER = re.compile(r"# COUNTER: (\d+)")


@compatibility(is_backward_compatible=True)
@dataclass
class PythonCode:
    """The source of a function and the globals to run it with."""

    src: str
    globals: dict[str, Any]
    _lineno_map: dict[int, int | None] | None
    _prologue_start: int = 0


PythonCode.__module__ = f"{torch.__name__}.fx.graph"


class _PyTreeInfo(NamedTuple):
    """The parameters that a function had before its inputs were flattened, and the structures of inputs and outputs."""
    orig_args: list[str]
    in_spec: Any
    out_spec: Any


def _format_target(base: str, target: str) -> str:
    """base.a.b, with getattr for parts that are no names."""
    for part in target.split("."):
        base = f"{base}.{part}" if part.isidentifier() else f'getattr({base}, "{part}")'
    return base


class _Globals:
    """The globals of generated code, and how types and arguments are written with them."""

    def __init__(self, namespace: _Namespace) -> None:
        self.namespace, self.found, self.wrapped = namespace, {}, {}   # type: ignore[var-annotated]

    def add(self, hint: str, obj: Any) -> str:
        """What generated code calls an object."""
        if _is_from_torch(obj) and obj is not torch.device:
            return _get_qualified_name(obj)
        wanted = _ILLEGAL.sub("_", hint)
        if wanted in self.found and self.found[wanted] is obj:
            return wanted
        name = self.namespace.create_name(wanted, obj)
        self.found[name] = obj
        return name

    def type_text(self, o: Any) -> str:
        """A type annotation."""
        if o == ():
            return "()"
        if isinstance(o, list):
            return f"[{','.join(map(self.type_text, o))}]"
        if isinstance(o, types.UnionType):
            return "|".join(map(self.type_text, o.__args__))
        origin = getattr(o, "__origin__", None)
        if origin is None:
            return self.add(_type_repr(o), o)
        if not isinstance(o, types.GenericAlias):
            origin = _ORIGINS.get(origin, origin)
        name = self.add(_type_repr(origin), origin)
        inside = getattr(o, "__args__", ())
        return f"{name}[{','.join(map(self.type_text, inside))}]" if inside else name

    def value(self, arg: Any) -> str:
        """An argument."""
        if isinstance(arg, Node):
            return repr(arg)
        if isinstance(arg, tuple):
            if hasattr(arg, "_fields"):
                inside = ", ".join(map(self.value, arg)) + ("," if len(arg) == 1 else "")
                return f"{self.add(_get_qualified_name(type(arg)), type(arg))}({inside})"
            return "(" + ", ".join(map(self.value, arg)) + (",)" if len(arg) == 1 else ")")
        if isinstance(arg, list):
            return f"[{', '.join(map(self.value, arg))}]"
        if isinstance(arg, dict):
            return "{" + ", ".join(f"{k!r}: {self.value(v)}" for k, v in arg.items()) + "}"
        if isinstance(arg, slice):
            return f"slice({self.value(arg.start)}, {self.value(arg.stop)}, {self.value(arg.step)})"
        if isinstance(arg, (torch._C.OpOverload, torch._C.OpOverloadPacket)):
            return self.add(_get_qualified_name(arg), arg)
        if isinstance(arg, enum.Enum):
            return f"{self.add(type(arg).__name__, type(arg))}.{arg.name}"
        if isinstance(arg, torch.Tensor):
            return f"{dtype_abbrs.get(arg.dtype, arg.dtype)}{list(arg.shape)}"
        return repr(arg)

    def arguments(self, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
        """What stands between the parentheses of a call."""
        return ", ".join([*map(self.value, args), *(f"{k} = {self.value(v)}" for k, v in kwargs.items())])


def _last_uses(nodes: Sequence[Node]) -> dict[Node, list[Node]]:
    """For each node, the nodes that are not needed after it."""
    seen: set[Node] = set()
    found: dict[Node, list[Node]] = defaultdict(list)
    for user in reversed(nodes):
        def note(n: Node, user: Node = user) -> Node:
            if n not in seen:
                seen.add(n)
                found[user].append(n)
            return n
        map_arg(user.args, note)
        map_arg(user.kwargs, note)
    return found


def _shape_text(value: Any, include_stride: bool, include_device: bool) -> str:
    """The annotation of a tensor that a pass has noted: f32[2, 3]."""
    def listed(dims: Any) -> str:
        return f"[{', '.join(str(d) for d in dims)}]"
    if isinstance(value, torch.Tensor):
        stride = listed(value.stride()) if include_stride else ""
        return f"{dtype_abbrs.get(value.dtype, value.dtype)}{listed(value.shape)}{stride}" \
               f"{value.device if include_device else ''}"
    return f"{dtype_abbrs.get(value.dtype, value.dtype)}{listed(value.shape)}"


class _Emitter:
    """Writes the statements of the nodes of a graph."""

    def __init__(self, codegen: CodeGen, nodes: Sequence[Node], root: str, known: _Globals, options: dict[str, Any]) -> None:
        self.codegen, self.root, self.known, self.options = codegen, root, known, options
        self.free_vars: list[str] = []
        self.body: list[str] = []
        self.returns = ""
        self.dead = _last_uses(nodes)
        self.last_trace: str | None = None
        colored = options["colored"]
        self.dim = _color_fns["dim"] if colored else _identity
        self.green = _color_fns["green"] if colored else _identity
        for number, node in enumerate(nodes):
            if options["verbose"]:
                self.note_origin(node)
            # The line numbers of the statements are known only after a transformation of the code.
            self.body.append(f"# COUNTER: {number}\n")
            getattr(self, node.op)(node)
            self.drop_dead(node)

    def note_origin(self, node: Node) -> None:
        """A comment with the place in the user's code, where it is another than that of the node before."""
        if node.op in ("placeholder", "output"):
            return
        parsed = _parse_stack_trace(node.stack_trace) if node.stack_trace else None
        said = f"File: {parsed.file}:{parsed.lineno} in {parsed.name}, code: {parsed.code}" if parsed else \
            "No stacktrace found for following nodes"
        if said != self.last_trace:
            self.last_trace = said
            self.body.append("\n" + self.dim("# " + said) + "\n")

    def drop_dead(self, node: Node) -> None:
        """Sets names to None after their last use, so that memory is freed where it would be in a plain function."""
        if node.op == "placeholder":
            return
        if node.op == "output":
            self.body.append("\n")
            return
        names = [repr(n) for n in self.dead.get(node, [])]
        if not node.users:
            names.append(repr(node))
        self.body.append(f";  {self.dim(' = '.join([*names, 'None']))}\n" if names else "\n")

    def annotation(self, node: Node) -> str:
        """The type of a node after its name."""
        text = f" : {self.known.type_text(node.type)}" if node.type is not None else ""
        if self.options["verbose"]:
            noted = next((node.meta[key] for key in ("val", "example_value", "tensor_meta") if node.meta.get(key) is not None),
                         None)
            if hasattr(noted, "shape") and hasattr(noted, "dtype"):
                text = f': "{_shape_text(noted, self.options["include_stride"], self.options["include_device"])}"'
        return text

    def assign(self, node: Node, value: str) -> None:
        self.body.append(f"{self.green(repr(node))}{self.annotation(node)} = {value}")

    def placeholder(self, node: Node) -> None:
        assert isinstance(node.target, str)
        default = f" = {self.known.value(node.args[0])}" if node.args else ""
        self.free_vars.append(f"{node.target}{self.annotation(node)}{default}")
        raw = node.target.replace("*", "")
        if raw != repr(node):
            self.body.append(f"{repr(node)} = {raw}\n")

    def call_method(self, node: Node) -> None:
        assert isinstance(node.target, str)
        self.assign(node, f"{_format_target(self.known.value(node.args[0]), node.target)}"
                          f"({self.known.arguments(node.args[1:], node.kwargs)})")

    def call_function(self, node: Node) -> None:
        target: Any = node.target
        if getattr(target, "__module__", None) == "_operator":
            if target.__name__ in magic_methods:
                assert isinstance(node.args, tuple)
                self.assign(node, magic_methods[target.__name__].format(*map(self.known.value, node.args)))
                return
            if target.__name__ in inplace_methods:
                self.body.append(f"{inplace_methods[target.__name__].format(*map(self.known.value, node.args))};  "
                                 f"{repr(node)}{self.annotation(node)} = {self.known.value(node.args[0])}")
                return
        name = self.known.add(_get_qualified_name(target), target)
        if name == "getattr" and len(node.args) == 2 and isinstance(node.args[1], str) and node.args[1].isidentifier():
            self.assign(node, _format_target(self.known.value(node.args[0]), node.args[1]))
            return
        self.assign(node, f"{name}({self.known.arguments(node.args, node.kwargs)})")
        if node.meta.get("is_wrapped", False):
            self.known.wrapped.setdefault(name)

    def call_module(self, node: Node) -> None:
        assert isinstance(node.target, str)
        self.assign(node, f"{_format_target(self.root, node.target)}({self.known.arguments(node.args, node.kwargs)})")

    def get_attr(self, node: Node) -> None:
        assert isinstance(node.target, str)
        self.assign(node, _format_target(self.root, node.target))

    def output(self, node: Node) -> None:
        if node.type is not None:
            self.returns = f" -> {self.known.type_text(node.type)}"
        self.body.append(self.codegen._call_method_with_signature_check(
            self.codegen.generate_output, node.args[0], repr_fn=self.known.value))


@compatibility(is_backward_compatible=False)
class CodeGen:
    """How a graph becomes source; a subclass may change the signature and what is returned."""

    def __init__(self) -> None:
        self._body_transformer: TransformCodeFunc | None = None
        self._func_name = "forward"

    def _call_method_with_signature_check(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls a method that a subclass may have written before a keyword came into being."""
        known = inspect.signature(method).parameters
        open_ended = any(p.kind is p.VAR_KEYWORD for p in known.values())
        return method(*args, **{k: v for k, v in kwargs.items() if open_ended or k in known})

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, *, expanded_def: bool = False) -> str:
        """The line that begins the function."""
        if not free_vars or free_vars[0] != "self":
            free_vars.insert(0, "self")
        inside = "".join(f"\n    {v}," for v in free_vars) + "\n" if expanded_def else ", ".join(free_vars)
        return f"def {self._func_name}({inside}){maybe_return_annotation}:"

    def generate_output(self, output_args: Any, *, descs: Sequence[str] | None = None,
                        repr_fn: Callable[[object], str] | None = None) -> str:
        """The return statement."""
        return f"return {(repr_fn or repr)(output_args)}"

    def process_inputs(self, *args: Any) -> Any:
        """The values of the placeholders for the arguments of a call."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """What a call returns, of the value of the output node."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        """Globals that the signature needs."""
        return []

    def _gen_python_code(self, nodes: Any, root_module: str, namespace: _Namespace, *, verbose: bool = False,
                         include_stride: bool = False, include_device: bool = False, colored: bool = False,
                         expanded_def: bool = False, record_func: bool = False,
                         additional_meta: list[str] | None = None) -> PythonCode:
        known = _Globals(namespace)
        for name, obj in self.additional_globals():
            known.found[name] = obj
        for name, builtin in _custom_builtins.items():
            known.found[name] = builtin.obj
        listed = list(nodes)
        emitted = _Emitter(self, listed, root_module, known,
                           {"verbose": verbose, "include_stride": include_stride, "include_device": include_device,
                            "colored": colored})
        body = emitted.body if listed else ["pass\n"]
        wraps = "\n".join(f'torch.fx._symbolic_trace.wrap("{name}")' for name in known.wrapped)
        if self._body_transformer:
            body = self._body_transformer(body)
        head = self._call_method_with_signature_check(self.gen_fn_def, emitted.free_vars, emitted.returns,
                                                      expanded_def=expanded_def)
        lines, numbers = _numbered("".join(body), head.strip().count("\n"))
        code = "\n".join("    " + line for line in lines)
        return PythonCode(f"\n{wraps}\n\n{head}\n{code}", known.found, numbers, wraps.count("\n") + 4)


def _numbered(text: str, before: int) -> tuple[list[str], dict[int, int | None]]:
    """The lines without the counters in them, and the node of each line; the first comes after `before` others."""
    lines: list[str] = []
    numbers: dict[int, int | None] = {}
    current: int | None = None
    for line in text.lstrip("\n").split("\n"):
        counter = _COUNTER.search(line)
        if counter is not None:
            current = int(counter[1])
            continue
        lines.append(line)
        numbers[before + len(lines)] = current
    while lines and not lines[0].strip():
        lines.pop(0)
    return lines, numbers


class _PyTreeCodeGen(CodeGen):
    """Code whose inputs are taken apart, and whose outputs are put together, by known structures."""

    def __init__(self, pytree_info: _PyTreeInfo) -> None:
        super().__init__()
        self.pytree_info = pytree_info

    def process_inputs(self, *inputs: Any) -> Any:
        return pytree.tree_leaves(inputs)

    def process_outputs(self, out: Any) -> Any:
        if self.pytree_info is None or self.pytree_info.out_spec is None:
            return out
        leaves = list(out) if isinstance(out, (list, tuple)) else [out]
        return pytree.tree_unflatten(leaves, self.pytree_info.out_spec)

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, *, expanded_def: bool = False) -> str:
        if self.pytree_info is None:
            return super().gen_fn_def(free_vars, maybe_return_annotation, expanded_def=expanded_def)
        parameters = list(self.pytree_info.orig_args)
        if parameters and parameters[0] == "self" and not self._has_keywords():
            free_vars.insert(0, "self")
        head = super().gen_fn_def(parameters[:], maybe_return_annotation, expanded_def=expanded_def)
        if free_vars:
            plain = [v.partition(":")[0].partition("=")[0].strip() for v in free_vars]
            head += f"\n    {', '.join([*plain, ''])}= {self._inputs(parameters)}"
        return head

    def _has_keywords(self) -> bool:
        """Whether the structure is that of (args, kwargs)."""
        spec = self.pytree_info.in_spec
        return spec.type is tuple and [child.type for child in spec.children_specs] == [tuple, dict]

    def _inputs(self, names: list[str]) -> str:
        """The expression that takes the arguments apart; for export, positional ones and keywords apart."""
        given = f"[{', '.join(names)}]"
        if self._has_keywords():
            count = self.pytree_info.in_spec.children_specs[0].num_children
            names = names[1:] if names[:1] == ["self"] else names
            named = ", ".join(f"{k!r}:{k}" for k in names[count:])
            given = f"([{', '.join(names[:count])}], {{{named}}})"
        return f"fx_pytree.tree_flatten_spec({given}, self._in_spec)"

    def generate_output(self, output_args: Any, *, descs: Sequence[str] | None = None,
                        repr_fn: Callable[[object], str] | None = None) -> str:
        value = (repr_fn or repr)(output_args)
        if self.pytree_info and self.pytree_info.out_spec:
            return f"return pytree.tree_unflatten({value}, self._out_spec)"
        return f"return {value}"


class _BoxedCodeGen(CodeGen):
    """Code whose function takes one list, which it empties."""

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, *, expanded_def: bool = False) -> str:
        names = [v.partition(":")[0].partition("=")[0].strip() for v in free_vars if v != "self"]
        head = f"def {self._func_name}(self, args_list){maybe_return_annotation}:"
        if names:
            head += f"\n    {', '.join([*names, ''])}= args_list"
        return head + "\n    args_list.clear()"

