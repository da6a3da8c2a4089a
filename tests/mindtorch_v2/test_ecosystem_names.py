"""What packages take from torch beside its API: devices as values, trees, levels of vmap, groups of products; as in torch."""
from __future__ import annotations

import pickle

import pytest
import torch
import torch.nn.attention.flex_attention
from twin import check_lines

import mindtorch_v2 as mt

TYPES = "cuda ipu xpu mkldnn opengl opencl ideep hip ve fpga maia xla lazy vulkan mps meta hpu mtia".split()


@pytest.mark.parametrize("name", TYPES)
def test_devices_that_are_not_here_are_values(name: str) -> None:
    for text in (name, f"{name}:0", f"{name}:3"):
        ours, theirs = mt.device(text), torch.device(text)
        assert (str(ours), ours.type, ours.index) == (str(theirs), theirs.type, theirs.index)
        assert repr(ours) == repr(theirs) and pickle.loads(pickle.dumps(ours)) == ours == mt.device(ours)
        assert hash(ours) == hash(mt.device(text)) and ours != mt.device("cpu")
    assert mt.device(name, 1) == mt.device(f"{name}:1") != mt.device(name)


@pytest.mark.parametrize("made", [
    "torch.empty(2, device='D')", "torch.ones(2).to('D')", "torch.ones(2).to('D:1')", "torch.tensor([1.0], device='D')",
    "torch.nn.Linear(2, 2).to('D')", "torch.ones(1).new_zeros(2, device='D')", "torch.empty(0, device='D')",
    "torch.zeros_like(torch.ones(2), device='D')", "torch.arange(3, device=torch.device('D', 1))"])
@pytest.mark.parametrize("device", ["cuda", "xpu"])
def test_tensors_there_are_refused_as_torch_refuses_them(made: str, device: str) -> None:
    check_lines(made.replace("D", device), message=True)


def test_other_devices_are_refused_by_name() -> None:
    for device in ("mps", "hip", "vulkan:1"):
        with pytest.raises(NotImplementedError, match=device.partition(":")[0]):
            mt.empty(2, device=device)
    with pytest.raises(RuntimeError, match="Expected one of cpu, .*cuda.* device type at start of device string: gpu"):
        mt.device("gpu")
    with pytest.raises(AssertionError, match="Torch not compiled with CUDA enabled"):
        mt._C._register_backend("cuda", mt._C.Backend())
    with pytest.raises(AssertionError, match="CUDA"), mt.device("cuda"):
        mt.empty(2)


TREES = """
from collections import OrderedDict, defaultdict, deque, namedtuple
P = namedtuple("P", "x y")
t = torch.utils._pytree
tree = {"a": [1, (2, 3)], "b": OrderedDict(c=deque([4], maxlen=2)), "d": defaultdict(list, e=P(5, 6))}
"""


@pytest.mark.parametrize("line", [
    "t.tree_flatten(tree)[0]", "repr(t.tree_flatten(tree)[1]).replace(' ', '')", "t.tree_map(lambda x: -x, tree)",
    "[(t.keystr(k), v) for k, v in t.tree_flatten_with_path(tree)[0]]", "[t.key_get(tree, k) for k, _ in t.tree_leaves_with_path(tree)]",
    "t.treespec_dumps(t.tree_structure([1, {'k': (2, OrderedDict(z=3))}]))", "t.treespec_dumps(t.tree_structure(P(1, 2)))",
    "t.treespec_loads(t.treespec_dumps(t.tree_structure(defaultdict(list, a=1)))) == t.tree_structure(defaultdict(list, a=7))",
    "t.treespec_loads(t.treespec_dumps(t.tree_structure(deque([1], maxlen=3)))).unflatten([5])",
    "t._dict_flatten({'a': 1})", "t._dict_flatten_with_keys({'a': 1})", "t._list_flatten_with_keys([7])", "t._dict_unflatten([1], ['a'])",
    "t._namedtuple_flatten_with_keys(P(1, 2))[0]", "[k.__name__ for k in list(t.SUPPORTED_NODES)[:3]]", "t.SUPPORTED_NODES[list].flatten_fn([1])",
    "t._get_node_type(P(1, 2)) is namedtuple, t._get_node_type([]) is list, t._is_leaf(3), t._is_leaf([])",
    "t.arg_tree_leaves(1, [2], a={'b': 3})", "list(t.tree_iter(tree))", "t.treespec_pprint(t.tree_structure(tree))",
    "t.treespec_tuple([t.treespec_leaf()]), t.treespec_dict({'a': t.treespec_leaf()})", "t.treespec_loads('[7, {}]')",
    "t.is_namedtuple(P), t.is_namedtuple(P(1, 2)), t.is_namedtuple((1,)), t.is_structseq(__import__('time').gmtime())",
    "t.tree_structure({'a': [1, 2]}).child(0).num_leaves, len(t.tree_structure(tree).children())"])
def test_trees(line: str) -> None:
    check_lines(TREES + line, message=True)


def test_classes_become_nodes_of_trees() -> None:
    define = """
import dataclasses
t = torch.utils._pytree
class Pair:
    def __init__(self, a, b): self.a, self.b = a, b
@dataclasses.dataclass
class Point:
    x: int
    y: int
    z: object = None
class Word:
    def __init__(self, w): self.w = w
    def __eq__(self, other): return self.w == other.w
    def __hash__(self): return hash(self.w)
"""
    register = define + "t.register_pytree_node(Pair, lambda p: ([p.a, p.b], None), lambda v, c: Pair(*v)"
    check_lines(register + ")\nt.tree_leaves([Pair(1, [2])])")
    check_lines(register + ")\nt.tree_map_with_path(lambda k, x: x, Pair(1, 2))")
    check_lines(register + ")\nt.treespec_dumps(t.tree_structure(Pair(1, 2)))")
    keys = ", flatten_with_keys_fn=lambda p: ([(t.GetAttrKey('a'), p.a), (t.GetAttrKey('b'), p.b)], None), serialized_type_name='Pair')"
    check_lines(register + keys + "\n[t.keystr(k) for k, _ in t.tree_flatten_with_path(Pair(1, {'q': 2}))[0]]")
    check_lines(register + keys + "\nt.treespec_dumps(t.tree_structure(Pair(1, 2)))")
    check_lines(register + keys + "\nt._deregister_pytree_node(Pair)\nlen(t.tree_leaves(Pair(1, 2)))")
    check_lines(define + "t.register_dataclass(Point)\nt.tree_map(lambda v: v * 2, Point(1, 2)).y, t.tree_leaves(Point(1, 2, 3))")
    check_lines(define + "t.register_constant(Word)\nt.tree_leaves([Word('a'), 1]), t.tree_structure(Word('a')) == t.tree_structure(Word('a'))")
    check_lines(define + "t.register_constant(Pair)\n1")


def test_vmap_runs_in_torchs_steps() -> None:
    """A package with tensor-like classes replaces a step: vmap must call the one in torch._functorch.vmap."""
    source = mt._functorch.vmap
    seen = []
    step = source._create_batched_inputs
    source._create_batched_inputs = lambda dims, args, level, spec: seen.append((dims, level)) or step(dims, args, level, spec)
    try:
        assert mt.func.vmap(lambda x: x * 2, in_dims=-1)(mt.ones(3, 2)).shape == (2, 3)
    finally:
        source._create_batched_inputs = step
    assert seen == [([1], 1)] and mt.vmap is mt.func.vmap is source.vmap


@pytest.mark.parametrize("line", [
    "torch.vmap(lambda x: f.maybe_get_bdim(x) + f.maybe_get_level(x) + x)(torch.ones(2))",
    "torch.vmap(lambda x: f.get_unwrapped(x).sum() * torch.ones(()), out_dims=None)(torch.ones(3))",
    "torch.vmap(lambda x: x + f.is_batchedtensor(x) + f.current_level())(torch.ones(2))",
    "f.is_batchedtensor(torch.ones(1)), f.maybe_get_bdim(torch.ones(1)), f.maybe_get_level(torch.ones(1)), f.maybe_current_level()",
    "f.get_unwrapped(torch.ones(1))", "torch._C._are_functorch_transforms_active()",
    "torch.vmap(lambda x: x + torch._C._are_functorch_transforms_active())(torch.ones(2))",
    "torch.vmap(lambda x: (x, 3), out_dims=(0, None))(torch.ones(2))", "torch.vmap(lambda x: 3)(torch.ones(2))",
    "torch.vmap(lambda x: x, out_dims=None)(torch.ones(2))",
    "torch.vmap(lambda x: x.sum(), in_dims=-1, chunk_size=2)(torch.arange(6.0).reshape(2, 3))"])
def test_levels_of_vmap_by_number(line: str) -> None:
    check_lines("f = torch._C._functorch\n" + line)


GROUPS = """
g = torch.nn.functional.grouped_mm
a2, a3 = torch.arange(128.0).reshape(8, 16) / 64, torch.arange(256.0).reshape(2, 8, 16) / 64
b2, b3 = torch.arange(128.0).reshape(16, 8) / 64, torch.arange(1024.0).reshape(2, 16, 32) / 64
offs = torch.tensor([2, 8], dtype=torch.int32)
"""


@pytest.mark.parametrize("line", [
    "g(a2, b3, offs=offs)", "g(a3, b3)", "g(b2, a2, offs=offs)", "g(a3, b2, offs=offs)", "torch._grouped_mm(a2, b3, offs)",
    "g(a2, b3)", "g(a3, b3, offs=offs)", "g(a2, b3, offs=offs.long())", "g(a2, b3[:, :8], offs=offs)", "g(a2[None, None], b3)",
    "g(a2, b3, offs=torch.tensor([1, 4, 8], dtype=torch.int32))", "g(a2, b3, offs=offs, bias=torch.ones(32))"])
def test_products_of_groups(line: str) -> None:
    check_lines(GROUPS + line, message=True)


def test_products_of_groups_have_gradients() -> None:
    def grads(api):
        a, b = (api.arange(n).reshape(shape).div(64.0).requires_grad_() for n, shape in ((128, (8, 16)), (1024, (2, 16, 32))))
        out = api._grouped_mm(a, b, api.tensor([2, 8], dtype=api.int32))
        return api.autograd.grad(out, (a, b), api.ones(8, 32))
    for ours, theirs in zip(grads(mt), grads(torch), strict=True):
        assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("line", [
    "torch.einsum('ij,jk->ik', (a, a))", "torch.einsum('ij,jk->ik', [a, a])", "torch.einsum('ij,jk->ik', a, a)",
    "torch.einsum(a, [0, 1], a, [1, 2], [0, 2])"])
def test_einsum_shows_its_operands_one_by_one(line: str) -> None:
    """To classes that take it over, as torch.fx does: packages read the operands from the nodes of a graph."""
    check_lines("seen = []\nclass Own(torch.Tensor):\n    @classmethod\n"
          "    def __torch_function__(cls, func, types, args=(), kwargs=None):\n"
          "        seen.append([type(x).__name__ for x in args])\n        return 0\n"
          f"a = torch.ones(2, 2).as_subclass(Own)\nseen.clear()\nmade = {line}\nseen[-1]")


def test_a_custom_op_says_how_vmap_runs_it() -> None:
    def values(api):
        def doubled(x: torch.Tensor, k: float) -> torch.Tensor:
            return x * k
        if api is mt:
            doubled.__annotations__ = {"x": mt.Tensor, "k": float, "return": mt.Tensor}
        op = api.library.custom_op("ecosystem_names::doubled", doubled, mutates_args=())
        seen = []

        @op.register_vmap
        def over(info, in_dims, x, k):
            seen.append((info.batch_size, info.randomness, in_dims, tuple(x.shape)))
            return op(x, k) + 1, in_dims[0]
        return api.vmap(lambda x: op(x, 2.0), in_dims=0)(api.ones(3, 2)).tolist(), seen
    assert values(mt) == values(torch)


def test_the_mode_of_fake_tensors_is_found() -> None:
    for api in (mt, torch):
        mode = api._subclasses.FakeTensorMode()
        assert api._guards.active_fake_mode() is None is api._guards.detect_fake_mode([api.ones(1)])
        with mode:
            x = api.ones(2)
            assert api._guards.active_fake_mode() is mode is api._guards.detect_fake_mode()
        assert api._guards.detect_fake_mode({"x": [x]}) is mode and api._guards.active_fake_mode() is None


def test_names_that_packages_read() -> None:
    assert not mt.profiler.itt.is_available() and mt.profiler.kineto_available()
    with pytest.raises(NotImplementedError, match="Intel"):
        mt.profiler.itt.mark("x")
    assert mt._C._get_torch_function_state() is mt._C._TorchFunctionState.ENABLED
    with mt._C.DisableTorchFunctionSubclass():
        assert mt._C._get_torch_function_state() is mt._C._TorchFunctionState.SUBCLASSES_DISABLED
    with mt.autograd.profiler.emit_nvtx(enabled=False):
        pass
    with pytest.raises(AssertionError, match="CUDA"), mt.autograd.profiler.emit_nvtx():
        pass
    assert mt._C._distributed_rpc._is_current_rpc_agent_set() is False
    wrapped = mt.distributed.rpc.api._require_initialized(lambda: 1)
    with pytest.raises(RuntimeError, match="RPC has not been initialized"):
        wrapped()
    base = mt.arange(12.0).reshape(3, 4)
    convert = mt._subclasses.meta_utils.MetaConverter()
    left, right = convert(base), convert(base.t()[1:])
    assert right.is_meta and right.shape == (3, 3) and right.stride() == (1, 4) and right.storage_offset() == 1
    assert convert(base) is left and right.untyped_storage()._cdata == left.untyped_storage()._cdata
    assert mt.nn.modules.module._global_parameter_registration_hooks is mt.nn.modules._hooks._global_parameter_registration_hooks
    check_lines("torch._assert_async(torch.tensor(0), 'no')", message=True)
    check_lines("torch._assert_async(torch.tensor([1, 1]))", message=True)
    assert mt.optim.optimizer._default_to_fused_or_foreach([mt.ones(1)], False, True) == (True, False)
    assert mt.optim.optimizer._default_to_fused_or_foreach([mt.ones(1)], False) == (False, False)


BLOCKS = """
flex_attention, BlockMask = torch.nn.attention.flex_attention.flex_attention, torch.nn.attention.flex_attention.BlockMask
count, which = torch.tensor([[[1, 2]]], dtype=torch.int32), torch.tensor([[[[1, 0], [0, 1]]]], dtype=torch.int32)
x = torch.arange(64.0).sin().reshape(1, 1, 8, 8)
causal = BlockMask.from_kv_blocks(count, which, BLOCK_SIZE=4, mask_mod=lambda b, h, q, k: q >= k)
full = BlockMask.from_kv_blocks(torch.zeros_like(count), which, count, which, BLOCK_SIZE=(4, 4), mask_mod=None)
"""


@pytest.mark.parametrize("line", [
    "causal.to_dense(), causal.shape, (flex_attention(x, x, x, block_mask=causal) * 1e4).round()",
    "full.to_dense(), full.shape, (flex_attention(x, x, x, block_mask=full) * 1e4).round()",
    "torch.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), torch.ones(2)))",
    "torch._tensor_str._add_suffixes('tensor([1.]', ['dtype=a', 'b'], 4, False)",
    "torch._tensor_str._add_suffixes('tensor([1.]' * 7, ['dtype=a', 'b'], 4, False)",
    "torch._tensor_str._add_suffixes('tensor([1.]', ['dtype=a', 'b'], 4, True)",
    "torch._tensor_str._str_intern(torch.arange(3))",
    "torch._check_tensor_all_with(ValueError, torch.tensor([True, False]))", "torch._check_tensor_all_with(ValueError, True)",
    "torch.xpu.get_rng_state_all(), torch.xpu.memory_allocated(), torch.xpu.max_memory_allocated(), dict(torch.xpu.memory_stats())",
    "torch.cuda.FloatTensor([1.0])", "isinstance(torch.ones(1), torch.cuda.FloatTensor)", "torch.cuda.random.get_rng_state_all()",
    "str(torch.nn.SyncBatchNorm).replace('mindtorch_v2', 'torch')", "torch._C._jit_can_fuse_on_cpu() in (True, False)",
    "[len(g) for g, _ in torch.optim.Optimizer._group_tensors_by_device_and_dtype([[x, x], [None, None]]).values()]"])
def test_names_beside_the_api(line: str) -> None:
    check_lines(BLOCKS + line)


def test_an_optimizer_without_init_may_ask_for_hooks() -> None:
    class Wrapped(mt.optim.Optimizer):
        def __init__(self, inner: mt.optim.Optimizer) -> None:
            self._patch_step_function()
            self.param_groups, self.step = inner.param_groups, inner.step

    x = mt.ones(2, requires_grad=True)
    x.sum().backward()
    Wrapped(mt.optim.SGD([x], lr=0.5)).step()
    assert x.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("line", [
    "torch.ones(2, 3) + torch.ones(3, 2)", "torch.ones(1, 4, 9, 9) * torch.ones(4, 6, 6)", "torch.ones(5, 2, 3).add_(torch.ones(4, 5, 3))",
    "torch.ones(5, 2, 3).copy_(torch.ones(4, 3, 5))", "torch.broadcast_tensors(torch.ones(2, 3), torch.ones(3, 2))",
    "torch.broadcast_shapes((2, 3), (3, 2))", "torch.normal(torch.ones(2, 3), torch.ones(3, 2))",
    "torch.ones(2, 3).masked_fill(torch.ones(3, 2, dtype=torch.bool), 0)",
    "torch.ones(2, 3).masked_fill_(torch.ones(3, 2, dtype=torch.bool), 0)",
    "torch.ones(2, 3).masked_fill_(torch.ones(4, 2, 3, dtype=torch.bool), 0)",
    "torch.ones(3, 4).__setitem__(slice(0, 2), torch.ones(3, 5))", "torch.nn.functional.mse_loss(torch.ones(2, 3), torch.ones(3, 2))"])
def test_the_last_dim_that_does_not_fit_is_named(line: str) -> None:
    check_lines(line, message=True)
