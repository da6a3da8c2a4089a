"""What call_recorder.py runs beside op_db: PyTorch's module_db and optim_db, transformer layers, the networks of examples/."""
from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FLOATS = ("float32", "float16", "bfloat16")
STEPS = 2                                        # of an optimizer: the first makes its state, the second is recorded
Found = list[dict[str, Any]]


class Program(NamedTuple):
    """A name, a dtype and what records it."""
    name: str
    dtype: str
    run: Callable[[Any], Found]


def modules(torch: Any) -> Iterator[Program]:
    """Forward and backward of every module, with the arguments that ModuleInfo has for it."""
    from torch.testing._internal.common_modules import module_db
    for info in module_db:
        for word in FLOATS:
            if getattr(torch, word) in info.dtypes:
                yield Program(f"module {info.name}", word, lambda recorder, info=info, word=word: _module(recorder, info, word))


def _module(recorder: Any, info: Any, word: str) -> Found:
    torch, dtype = recorder.torch, getattr(recorder.torch, word)
    found = []
    inputs = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=True)
    for given in islice((x for x in inputs if x.forward_input is not None), recorder.samples):
        torch.manual_seed(0)
        made = given.constructor_input
        module = info.module_cls(*made.args, **made.kwargs).to("npu", dtype)
        args, kwargs = given.forward_input.args, given.forward_input.kwargs
        found.append(recorder.sample(module, [args[0] if args else None, list(args[1:]), dict(kwargs)]) if args else
                     recorder.sample(lambda _, module=module, kwargs=kwargs: module(**recorder.to_npu(kwargs)), [None, [], {}]))
    return found


def optimizers(torch: Any) -> Iterator[Program]:
    """One step of every optimizer, with every choice that OptimizerInfo has for it."""
    from torch.testing._internal.common_optimizers import optim_db
    for info in optim_db:
        for word in FLOATS:
            yield Program(f"optimizer {info.optim_cls.__name__}", word,
                          lambda recorder, info=info, word=word: [_steps(recorder, info, word, options.kwargs)
                                                                  for options in info.optim_inputs_func(device="npu")])


def _steps(recorder: Any, info: Any, word: str, options: dict[str, Any]) -> dict[str, Any]:
    torch = recorder.torch
    torch.manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(*shape).to("npu", getattr(torch, word))) for shape in ((4, 3), (5,))]
    optimizer = info.optim_cls(params, **options)

    def closure() -> Any:
        for p in params:
            p.grad = p.detach().clone()
            if info.only_supports_sparse_grads:
                p.grad = p.grad.to_sparse()
        return sum((p.detach() * p.detach()).sum() for p in params)

    for step in range(STEPS):
        closure()
        torch.npu.synchronize()
        made = recorder.recorded(lambda: optimizer.step(closure) if info.step_requires_closure else optimizer.step())[1]
    return {"step": made}


def _example(torch: Any, name: str) -> Any:
    """A program of examples/ with this torch as what it imports."""
    sys.modules.setdefault("mindtorch_v2", torch)
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def _networks(torch: Any) -> dict[str, Callable[[], tuple[Any, list[Any]]]]:
    """(module, its arguments) by name."""
    nn = torch.nn

    def x(*shape: int) -> Any:
        return torch.randn(*shape)

    layer: dict[str, Any] = {"d_model": 16, "nhead": 4, "dim_feedforward": 32, "dropout": 0.0, "batch_first": True}
    return {
        "TransformerEncoderLayer": lambda: (nn.TransformerEncoderLayer(**layer), [x(2, 5, 16)]),
        "TransformerEncoderLayer norm_first gelu": lambda: (nn.TransformerEncoderLayer(**layer, norm_first=True, activation="gelu"),
                                                            [x(2, 5, 16)]),
        "TransformerDecoderLayer": lambda: (nn.TransformerDecoderLayer(**layer), [x(2, 5, 16), x(2, 7, 16)]),
        "MultiheadAttention": lambda: (nn.MultiheadAttention(16, 4, batch_first=True), [x(2, 5, 16)] * 3),
        "LSTM": lambda: (nn.LSTM(8, 16, batch_first=True), [x(2, 5, 8)]),
        "examples/transformer.py": lambda: (_example(torch, "transformer").Model(20, 16, 4, 2, 12), [torch.randint(0, 20, (2, 12))]),
        "examples/classifier.py": lambda: (_example(torch, "classifier").network(), [x(4, 1, 24, 24)]),
    }


def networks(torch: Any) -> Iterator[Program]:
    """Forward and backward of layers of transformers, and of the networks that the examples train."""
    for name, make in _networks(torch).items():
        for word in FLOATS:
            yield Program(f"model {name}", word, lambda recorder, make=make, word=word: [_network(recorder, make, word)])


def _network(recorder: Any, make: Callable[[], tuple[Any, list[Any]]], word: str) -> dict[str, Any]:
    torch = recorder.torch
    torch.manual_seed(0)
    module, args = make()
    dtype = getattr(torch, word)
    args = [a.to(dtype) if a.is_floating_point() else a for a in args]
    found: dict[str, Any] = recorder.sample(module.to("npu", dtype), [args[0], args[1:], {}])
    optimizer = torch.optim.AdamW(module.parameters())
    torch.npu.synchronize()
    for _ in range(STEPS):
        found["step"] = recorder.recorded(optimizer.step)[1]
    return found


def programs(torch: Any) -> Iterator[Program]:
    yield from modules(torch)
    yield from optimizers(torch)
    yield from networks(torch)
