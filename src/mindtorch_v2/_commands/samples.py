"""Arguments for an op, made from its schema: the first ones that the CPU accepts. No list of ops has to be kept up.

The same name, dtype and seed give the same arguments on every host, so a line of a report can be repeated.
"""
from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import mindtorch_v2 as torch

INDICES = ("index", "indices", "target", "offsets", "input_lengths", "target_lengths", "bucketize_indices", "sorter")
MASKS = ("mask", "condition")
# Shapes of all tensors of a call, in the order they are tried.
SHAPES = ((4, 6), (4, 4), (6,), (2, 3, 8, 8), (2, 4, 8), (1, 2, 4, 8, 8), ())
# What a parameter of a name is, where its kind does not say it.
NUMBERS = {"dim": (0, -1), "k": (2,), "n": (2,), "p": (0.5, 2), "eps": (1e-5,), "lambd": (0.3,), "ord": (2,), "num_classes": (8,),
           "padding_idx": (-1,), "num_weights": (8,), "groups": (1,), "bins": (4,), "divisor_override": (None,),
           "upscale_factor": (2,), "downscale_factor": (2,), "sections": (2,), "chunks": (2,), "repeats": (2,), "reduction": (1, 0)}
LISTS = {"kernel_size": 2, "stride": 2, "dilation": 1, "padding": 0, "output_padding": 0, "output_size": 4, "pad": 1,
         "size": 4, "dim": 0, "dims": 0, "shifts": 1, "repeats": 2, "normalized_shape": 6}
MODES = {"reduce": ("sum", "mean"), "reduction": ("mean",), "mode": ("mean",), "padding_mode": ("zeros",), "approximate": ("none",),
         "rounding_mode": ("floor",), "UPLO": ("L",), "indexing": ("ij",), "driver": ("gels",), "equation": ("ij,ij->ij",)}
MOST_TRIES = 400


class Maker:
    """Draws the tensors of one sample."""

    def __init__(self, seed: int, dtype: Any) -> None:
        self.dtype, self.generator = dtype, torch.Generator().manual_seed(seed)

    def tensor(self, *shape: int, dtype: Any = None) -> Any:
        dtype = dtype or self.dtype
        if dtype == torch.bool:
            return torch.randint(0, 2, shape, generator=self.generator, dtype=torch.uint8).bool()
        if not dtype.is_floating_point and not dtype.is_complex:
            return torch.randint(1, 5, shape, generator=self.generator, dtype=torch.int64).to(dtype)
        # Between 0.1 and 0.9: inside the domain of nearly every function, away from its poles.
        drawn = torch.rand(shape, generator=self.generator, dtype=torch.float64) * 0.8 + 0.1
        return torch.complex(drawn, drawn.flip(0) if shape else drawn).to(dtype) if dtype.is_complex else drawn.to(dtype)

    def indices(self, *shape: int) -> Any:
        return torch.randint(0, 4, shape, generator=self.generator)

    def positive(self, size: int) -> Any:
        """A symmetric positive definite matrix."""
        drawn = self.tensor(size, size, dtype=torch.float64)
        return (drawn @ drawn.mT + size * torch.eye(size, dtype=torch.float64)).to(self.dtype)


Given = Callable[[Maker], list[Any]]


def _image(*rest: Any) -> Given:
    return lambda m: [m.tensor(2, 4, 8, 8), *rest]


# Calls whose tensors have shapes of their own.
SPECIAL: dict[str, Given] = {
    "convolution": lambda m: [m.tensor(2, 4, 8, 8), m.tensor(6, 4, 3, 3), m.tensor(6), [1, 1], [1, 1], [1, 1], False, [0, 0], 1],
    "conv1d": lambda m: [m.tensor(2, 4, 8), m.tensor(6, 4, 3), m.tensor(6)],
    "conv2d": lambda m: [m.tensor(2, 4, 8, 8), m.tensor(6, 4, 3, 3), m.tensor(6), 1, 1],
    "conv3d": lambda m: [m.tensor(1, 2, 4, 6, 6), m.tensor(3, 2, 2, 3, 3), m.tensor(3)],
    "conv_transpose2d": lambda m: [m.tensor(2, 4, 6, 6), m.tensor(4, 3, 3, 3), m.tensor(3)],
    "linear": lambda m: [m.tensor(4, 6), m.tensor(5, 6), m.tensor(5)],
    "mm": lambda m: [m.tensor(4, 6), m.tensor(6, 5)],
    "matmul": lambda m: [m.tensor(2, 4, 6), m.tensor(2, 6, 5)],
    "bmm": lambda m: [m.tensor(2, 4, 6), m.tensor(2, 6, 5)],
    "mv": lambda m: [m.tensor(4, 6), m.tensor(6)],
    "addmm": lambda m: [m.tensor(4, 5), m.tensor(4, 6), m.tensor(6, 5)],
    "addmv": lambda m: [m.tensor(4), m.tensor(4, 6), m.tensor(6)],
    "addr": lambda m: [m.tensor(4, 6), m.tensor(4), m.tensor(6)],
    "outer": lambda m: [m.tensor(4), m.tensor(6)],
    "baddbmm": lambda m: [m.tensor(2, 4, 5), m.tensor(2, 4, 6), m.tensor(2, 6, 5)],
    "addbmm": lambda m: [m.tensor(4, 5), m.tensor(2, 4, 6), m.tensor(2, 6, 5)],
    "bilinear": lambda m: [m.tensor(4, 5), m.tensor(4, 6), m.tensor(3, 5, 6), m.tensor(3)],
    "embedding": lambda m: [m.tensor(8, 6), m.indices(3, 5)],
    "layer_norm": lambda m: [m.tensor(4, 6), [6], m.tensor(6), m.tensor(6)],
    "native_layer_norm": lambda m: [m.tensor(4, 6), [6], m.tensor(6), m.tensor(6), 1e-5],
    "rms_norm": lambda m: [m.tensor(4, 6), [6], m.tensor(6)],
    "group_norm": lambda m: [m.tensor(2, 4, 8, 8), 2, m.tensor(4), m.tensor(4)],
    "native_group_norm": lambda m: [m.tensor(2, 4, 8), m.tensor(4), m.tensor(4), 2, 4, 8, 2, 1e-5],
    "batch_norm": lambda m: [m.tensor(4, 3, 8), m.tensor(3), m.tensor(3), m.tensor(3), m.tensor(3), False, 0.1, 1e-5, True],
    "native_batch_norm": lambda m: [m.tensor(4, 3, 8), m.tensor(3), m.tensor(3), m.tensor(3), m.tensor(3), False, 0.1, 1e-5],
    "scaled_dot_product_attention": lambda m: [m.tensor(2, 4, 8, 16), m.tensor(2, 4, 8, 16), m.tensor(2, 4, 8, 16)],
    "nll_loss": lambda m: [m.tensor(4, 6), m.indices(4)],
    "nll_loss_forward": lambda m: [m.tensor(4, 6), m.indices(4), None, 1, -100],
    "cross_entropy": lambda m: [m.tensor(4, 6), m.indices(4)],
    "cross_entropy_loss": lambda m: [m.tensor(4, 6), m.indices(4)],
    "gather": lambda m: [m.tensor(4, 6), 1, m.indices(4, 3)],
    "scatter": lambda m: [m.tensor(4, 6), 0, m.indices(1, 6), m.tensor(1, 6)],
    "scatter_add": lambda m: [m.tensor(4, 6), 1, m.indices(4, 3), m.tensor(4, 3)],
    "scatter_reduce": lambda m: [m.tensor(4, 6), 1, m.indices(4, 3), m.tensor(4, 3), "sum"],
    "index_select": lambda m: [m.tensor(4, 6), 1, m.indices(3)],
    "index_add": lambda m: [m.tensor(4, 6), 1, torch.tensor([0, 2, 3]), m.tensor(4, 3)],
    "index_copy": lambda m: [m.tensor(4, 6), 1, torch.tensor([0, 2, 3]), m.tensor(4, 3)],
    "index_fill": lambda m: [m.tensor(4, 6), 1, torch.tensor([0, 2, 3]), 1],
    "index": lambda m: [m.tensor(4, 6), [m.indices(3), m.indices(3)]],
    "index_put": lambda m: [m.tensor(4, 6), [torch.tensor([0, 1, 3]), torch.tensor([0, 2, 3])], m.tensor(3)],
    "take": lambda m: [m.tensor(4, 6), m.indices(5)],
    "take_along_dim": lambda m: [m.tensor(4, 6), m.indices(4, 6), 1],
    "masked_fill": lambda m: [m.tensor(4, 6), m.tensor(4, 6, dtype=torch.bool), 1],
    "masked_scatter": lambda m: [m.tensor(4, 6), m.tensor(4, 6, dtype=torch.bool), m.tensor(4, 6)],
    "searchsorted": lambda m: [m.tensor(6).sort().values, m.tensor(4)],
    "grid_sampler_2d": lambda m: [m.tensor(2, 3, 6, 6), m.tensor(2, 4, 4, 2), 0, 0, False],
    "linalg_inv_ex": lambda m: [m.positive(4)], "inverse": lambda m: [m.positive(4)],
    "linalg_cholesky_ex": lambda m: [m.positive(4)], "cholesky": lambda m: [m.positive(4)],
    "linalg_solve": lambda m: [m.positive(4), m.tensor(4, 2)],
    "prelu": lambda m: [m.tensor(4, 6) - 0.5, m.tensor(6)],
    "cholesky_inverse": lambda m: [torch.linalg.cholesky(m.positive(4).double()).to(m.dtype)],
    "histogram.bins_tensor": lambda m: [m.tensor(8), m.tensor(5).sort().values],
    "cdist": lambda m: [m.tensor(4, 6), m.tensor(5, 6)],
    "cross": lambda m: [m.tensor(4, 3), m.tensor(4, 3), 1],
    "linalg_cross": lambda m: [m.tensor(4, 3), m.tensor(4, 3)],
    "one_hot": lambda m: [m.indices(5), 8],
    "avg_pool2d": _image([2, 2]), "max_pool2d": _image([2, 2]), "adaptive_avg_pool2d": _image([4, 4]),
    "upsample_nearest2d": _image([16, 16]), "upsample_bilinear2d": _image([16, 16], False), "pixel_shuffle": _image(2),
}


def sample(schema: Any, dtype: Any, seed: int = 0) -> list[Any] | None:
    """Arguments of a call of torch.ops.aten.<name>.<overload>, or None where none was found that the CPU accepts."""
    maker = Maker(zlib.crc32(f"{schema.name}.{schema.overload}.{dtype}.{seed}".encode()), dtype)
    given = SPECIAL.get(schema.name + (f".{schema.overload}" if schema.overload else ""))
    tried = (give for give in [lambda: given(maker)]) if given else itertools.islice(guesses(schema, maker), MOST_TRIES)
    for give in tried:
        try:
            arguments = give()
            call(schema, arguments)
        except Exception:      # noqa: S112, PERF203  any refusal means: not this one
            continue
        return arguments
    return None


def call(schema: Any, arguments: list[Any]) -> Any:
    """The op on arguments; those after the positional ones keep their defaults."""
    op = getattr(torch.ops.aten, schema.name)
    return getattr(op, schema.overload or "default")(*arguments)


def guesses(schema: Any, maker: Maker) -> Iterator[Callable[[], list[Any]]]:
    """Makers of argument lists from the kinds and names of the parameters, likely ones first."""
    params = [p for p in schema.params if not p.keyword_only]
    for shape in SHAPES:
        for chosen in itertools.product(*(_choices(p, shape, maker) for p in params)):
            yield lambda chosen=chosen: [make() for make in chosen]      # type: ignore[misc]


def _choices(param: Any, shape: tuple[int, ...], maker: Maker) -> list[Callable[[], Any]]:
    """What a parameter may be, each as a function that makes it anew: an op may write into it."""
    if param.kind == "Tensor":
        if param.name in INDICES:
            return [lambda: maker.indices(*shape)]
        if param.name in MASKS:
            return [lambda: maker.tensor(*shape, dtype=torch.bool)]
        made = [lambda: maker.tensor(*shape)]
        return [lambda: None, *made] if param.optional else made
    if param.kind == "Tensor[]":
        return [lambda: [maker.tensor(*shape), maker.tensor(*shape)]]
    if not param.required:
        return [lambda: param.default]
    values: tuple[Any, ...] = {
        "int[]": ([LISTS.get(param.name, 1)] * (param.list_size or max(len(shape), 1)), [LISTS.get(param.name, 1)]),
        "int": NUMBERS.get(param.name, (1, 0)), "float": NUMBERS.get(param.name, (0.5,)),
        "Scalar": NUMBERS.get(param.name, (2, 0.5)), "bool": (False,), "str": MODES.get(param.name, ()),
        "ScalarType": (torch.float32,), "bool[]": ([True] * (param.list_size or 3),),
    }.get(param.kind, ())
    return [lambda value=value: value for value in values]      # type: ignore[misc]
