"""What torch.nn says of arguments that are wrong, word for word, and what its containers and lazy modules refuse."""
from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from twin import check_lines

import mindtorch_v2 as mt

SETUP = "F, nn, ones = torch.nn.functional, torch.nn, torch.ones\nlong = lambda *s: ones(*s, dtype=torch.long)\n"


@pytest.mark.parametrize("line", [
    "F.max_pool2d(ones(1, 3, 5, 4), (0, 2))", "F.max_pool2d(ones(1, 3, 5, 4), (0, 2), stride=1)", "F.max_pool1d(ones(1, 4), 2, padding=2)",
    "F.max_pool3d(ones(1, 3, 5, 4, 5), 2, dilation=0)", "F.max_pool2d(ones(1, 3, 5, 5), 3, padding=2, dilation=2)",
    "F.avg_pool1d(ones(2), 2)", "F.avg_pool1d(ones(1, 3, 5), 2, stride=0)", "F.avg_pool3d(ones(1, 3, 1, 4, 5), (2, 2, 1))",
    "F.adaptive_avg_pool2d(ones(1, 1, 4, 4), (-2, 2))", "F.adaptive_avg_pool3d(ones(1, 1, 4, 4), (-1, 2, 2))",
    "F.adaptive_avg_pool1d(ones(4), 2)", "F.adaptive_max_pool2d(ones(1, 0, 4, 4), 2)", "F.adaptive_max_pool3d(ones(4, 4), 1)",
    "F.max_unpool2d(ones(1, 1, 2, 2), ones(1, 1, 2, 2, dtype=torch.int), 2)", "F.max_unpool2d(ones(1, 1, 2, 2), 100 * long(1, 1, 2, 2), 2)",
    "F.max_unpool2d(ones(2, 2), long(2, 2), 2)", "F.pad(ones(3), (1, 1), mode='reflect')", "F.pad(ones(2, 3), (-4, 1))",
    "F.interpolate(ones(1, 1, 4), size=0)", "F.interpolate(ones(1, 1, 4, 4, 4), size=0, mode='trilinear')",
    "F.conv_transpose1d(ones(1, 2, 5), ones(2, 2, 3), output_padding=3)", "F.conv_transpose3d(ones(1, 2, 5, 5, 5), ones(2, 2, 3, 3, 3), output_padding=3)",
    "F.grid_sample(ones(1, 1, 2, 2), ones(1, 2, 2, 2, dtype=torch.double), align_corners=False)", "F.unfold(ones(1, 1, 4, 4), (2, -1))",
    "F.fold(ones(1, 4, 9), (4, 4), 2, padding=-1)", "F.bilinear(ones(2, 3, 3), ones(2, 4, 4), ones(2, 3, 4))", "F.celu(ones(2), alpha=0)",
    "F.cosine_similarity(long(2, 2), long(2, 2))", "F.scaled_dot_product_attention(ones(3), ones(2, 3), ones(2, 3))",
    "F.scaled_dot_product_attention(ones(2, 3), ones(2, 3, dtype=torch.double), ones(2, 3))",
    "F.scaled_dot_product_attention(ones(2, 3), ones(2, 3), ones(2, 3), attn_mask=long(2, 2))",
    "F.ctc_loss(ones(4, 2, 5), long(2, 3), [4, 5], [2, 3])", "F.ctc_loss(ones(4, 2, 5), long(2, 3), [4, 4, 4], [2, 3])",
    "F.ctc_loss(ones(4, 2, 5), long(2, 3), [4, 4], [2, 4])", "F.ctc_loss(ones(4, 2, 5), long(2, 3), [4, -1], [2, 3])",
    "F.ctc_loss(ones(4, 2, 5), long(6), [4, 4], [2, 3])", "F.ctc_loss(ones(4, 0, 5), long(0, 3), [], [])",
    "F.ctc_loss(ones(4, 2, 5), long(2, 3, 2), [4, 4], [2, 1])", "F.embedding_bag(torch.tensor([0, 1]), ones(3, 2), torch.tensor([0, 5]))",
    "F.embedding_bag(torch.tensor([0, 1]), ones(3, 2), torch.tensor([0]), mode='sum', per_sample_weights=ones(2, dtype=torch.double))",
    "F.conv2d(ones(1, 2, 4, 4), ones(3, 2, 3, 3), groups=2)", "F.conv2d(ones(1, 2, 4, 4), ones(1, 1, 3, 3), groups=2)",
    "F.conv2d(ones(1, 2, 4, 4), ones(3, 2, 3, 3), dilation=0)", "F.conv_transpose1d(ones(1, 2, 4), ones(2, 3, 3), dilation=0)",
    "F.conv_transpose2d(ones(1, 2, 4, 4), ones(2, 3, 3, 3), ones(2))", "F.conv1d(ones(1, 2, 4), ones(3, 2, 3).double())",
    "F.conv2d(ones(1, 2, 4, 4).bfloat16(), ones(3, 2, 3, 3))", "F.conv2d(ones(1, 2, 4, 4).cfloat(), ones(3, 2, 3, 3))",
    "F.linear(ones(2, 3), ones(3), ones(()))", "F.linear(ones(2, 2, 3), ones(3), ones(2))", "F.linear(ones(2, 3), ones(4, 3).double())",
    "nn.utils.rnn.pad_sequence([ones(2), 3])", "nn.utils.rnn.pad_sequence([ones(2, 2), ones(3, 4)])",
    "nn.utils.rnn.pack_padded_sequence(ones(2, 2), torch.tensor([[2, 1]]))",
    "torch.func.functional_call(nn.Linear(2, 2), {'weight': 3}, ones(1, 2))", "torch.func.functional_call(nn.Linear(2, 2), {'': ones(2)}, ones(1, 2))",
    "torch.func.functional_call(nn.Linear(2, 2), {'a.weight': ones(2)}, ones(1, 2))",
    "m = nn.Linear(2, 2)\nnn.utils.parametrize.register_parametrization(m, 'weight', nn.Identity())\n"
    "nn.utils.parametrize.register_parametrization(m, 'weight', nn.Linear(2, 3))",
    "torch.optim.SGD([{'params': [('a', nn.Parameter(ones(2)))]}, {'params': [nn.Parameter(ones(2))]}])",
    "p = nn.Parameter(ones(2, 2))\np.grad = ones(2, 2).to_sparse()\ntorch.optim.Muon([p]).step()",
    "torch.load(3)",
    "F.linear(ones(()), ones(1, 1))", "F.linear(ones(2, 3), ones(2, 3, 3))", "F.linear(ones(4, 3), ones(2, 3), ones(3))",
    "F.linear(ones(4, 3), ones(2, 3), ones(2, dtype=torch.double))", "F.fractional_max_pool2d(ones(2, 0, 6, 7), 2, 3)",
    "F.fractional_max_pool3d(ones(2, 3, 6, 7, 5), 2, 9)", "F.fractional_max_pool2d(ones(2, 3, 6, 7), 2, 3, _random_samples=ones(1, 3, 2))",
    "F.fractional_max_pool2d(ones(2, 3, 6, 7), 2, 3, _random_samples=ones(2, 2, 2))", "F.multilabel_margin_loss(ones(1, 2), 5 * long(1, 2))",
    "F.fractional_max_pool3d(ones(2, 3, 6, 7, 5), 2, 3, _random_samples=ones(2, 3, 2))", "F.one_hot(long(2), 0)",
    *(f"F.adaptive_{kind}_pool{n}d(ones(2, 3, 6, 7, 5)[(..., *[0] * {3 - n})].requires_grad_(), 0).sum().backward()"
      for kind in ("avg", "max") for n in (1, 2, 3)),
    "F.binary_cross_entropy(ones(1), ones(1), ones(2))", "nn.LinearCrossEntropyLoss(3, 2, weight=ones(3))",
    "nn.LinearCrossEntropyLoss(3, 2, label_smoothing=2.0)", "nn.MultiheadAttention(4, 2)(*[ones(3, 2, 4)] * 3, key_padding_mask=ones(2, 4).bool())",
    *(f"torch._native_multi_head_attention(*[ones({x})] * 3, 4, {heads}, ones({rows}, 4), ones({rows}), ones(4, 4), ones(4){mask})"
      for x, heads, rows, mask in (("3, 4", 2, 12, ""), ("2, 3, 5", 2, 12, ""), ("2, 3, 4", 3, 12, ""), ("2, 3, 4", 2, 6, ""),
                                   ("2, 3, 4", 2, 12, ", ones(2, 3)"))),
    "nn.Bilinear(0, 2, 3)", "nn.Module().get_extra_state()", "nn.ParameterDict().update([(1, 2, 3)])", "nn.ParameterDict().update(5)"])
def test_errors(line: str) -> None:
    check_lines(SETUP + line, message=True)


@pytest.mark.parametrize("line", ["nn.UninitializedParameter() + 1", "torch.add(nn.UninitializedParameter(), 1)", "nn.UninitializedBuffer().sum()",
                                  "torch.nn.utils.parameters_to_vector(nn.LazyLinear(3).parameters())"])
def test_what_has_no_shape_yet_takes_no_part_in_an_op(line: str) -> None:
    for library in (torch, mt):
        with pytest.raises(ValueError, match="Attempted to use an uninitialized parameter in .*LazyModules Call `forward` with a dummy batch"):
            exec(line, {"torch": library, "nn": library.nn})


@pytest.mark.parametrize("line", [
    "nn.LazyLinear(3)(torch.ones(2, 4))", "nn.Hardtanh(min_value=-1, max_value=2)", "nn.Linear(1, 1).to(torch.complex64)",
    "nn.NLLLoss2d()", "nn.functional.embedding_bag(torch.ones(3, 2), torch.tensor([0, 1]), torch.tensor([0]))",
    *(f"nn.TransformerEncoder(nn.TransformerEncoderLayer({arguments}), 1)" for arguments in (
        "4, 2, 8", "4, 2, 8, batch_first=True", "4, 2, 8, batch_first=True, norm_first=True", "4, 2, 8, batch_first=True, bias=False",
        "4, 2, 8, batch_first=True, activation=torch.tanh", "3, 1, 8, batch_first=True"))])
def test_warnings(line: str) -> None:
    def said(library: Any) -> list[tuple[str, str]]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            exec(line, {"torch": library, "nn": library.nn})
        return [(w.category.__name__, str(w.message)) for w in caught]
    assert said(mt) == said(torch)
