"""Small programs of autograd as people write them, errors and their texts included, against PyTorch."""
from __future__ import annotations

import pytest
import twin

FUNCTION = """class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        {forward}
    @staticmethod
    def backward(ctx, g):
        {backward}
x=torch.ones(2,requires_grad=True)
"""


def function(forward: str = "return x*2", backward: str = "return g", last: str = "F.apply(x*1).sum().backward()") -> str:
    return FUNCTION.format(forward=forward, backward=backward) + last


PROGRAMS = [
    function(backward="return 1"), function(backward="return torch.ones(3)"), function("ctx.save_for_backward(1); return x*2"),
    function("ctx.mark_dirty(x); return x*2"), function("ctx.mark_dirty(x); return x.add_(1)", last="F.apply(x*1)"),
    function(backward="return g, g"),
    FUNCTION.format(forward="return x*2", backward="return g") + "F.vjp=staticmethod(lambda ctx,g: g)\nF.apply(x).sum().backward()",
    "x=torch.ones(2,requires_grad=True)\nx.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(3))\nx.sum().backward()",
    "with torch.inference_mode(): x=torch.ones(2)\nx._version",
    "with torch.autograd.graph.allow_mutation_on_saved_tensors():\n"
    "    with torch.autograd.graph.allow_mutation_on_saved_tensors(): pass\n1",
    "x=torch.ones(2,requires_grad=True)\nwith torch.autograd.graph.allow_mutation_on_saved_tensors():\n    y=(x*x).sum()\ny.backward()",
    "x=torch.ones(2,requires_grad=True)\nwith torch.autograd.graph.allow_mutation_on_saved_tensors():\n"
    "    a=x.clone(); y=a*a; z=a.exp(); a.add_(5); z.mul_(2); (y.sum()+z.sum()).backward()\nx.grad",
    "x=torch.ones(2,requires_grad=True)\nwith torch.autograd.graph.allow_mutation_on_saved_tensors():\n"
    "    a=x.clone(); y=a**2; torch.add(torch.ones(2),1,out=a.detach()); y.sum().backward()\nx.grad",
    "x=torch.ones(2)\nwith torch.autograd._unsafe_preserve_version_counter(x): x.add_(1)\nx._version",
    "with torch.autograd.grad_mode.set_multithreading_enabled(False): r=torch.is_grad_enabled()\nr",
    function("ctx.mark_dirty(x); x.mul_(2); return x, x*2", "return g, g", "F.apply((x*1)[:1])"), "x=torch.ones(2)\nx.sum().backward(3)",
    "x=torch.ones(2,requires_grad=True)\ntorch.autograd.grad(x.sum(), {'a': x})",
    "x=torch.ones(2,requires_grad=True)\ntorch.autograd.grad(x.sum(), [x, 3])",
    "x=torch.ones(2,requires_grad=True)\n(x*2).grad_fn(None)",
    "x=torch.ones(2,requires_grad=True)\nx.grad_dtype=torch.double; (x*2).sum().backward()\nx.grad, x.grad_dtype",
    "x=torch.ones(2,requires_grad=True)\nx.grad_dtype=None; x.grad=torch.ones(2).half()\nx.grad, x.grad_dtype",
    "x=torch.ones(2,requires_grad=True)\nx.grad_dtype=torch.bfloat16; torch.autograd.grad((x*2).sum(), x)",
    "x=torch.ones(2,requires_grad=True)\nx.grad_dtype=3", "x=torch.ones(2,requires_grad=True)\n(x*1).grad_dtype=None",
    "x=torch.ones(2,requires_grad=True)\nx.grad=torch.ones(2)\nx.grad_dtype=torch.half",
    "x=torch.ones(2,requires_grad=True)\nx.grad=torch.ones(2).double()", "x=torch.ones(2,requires_grad=True)\nx.grad=torch.ones(2,device='meta')",
    "x=torch.ones(2,requires_grad=True)\nx.register_hook(lambda g: g.to_sparse())\nx.sum().backward()",
    "with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):\n"
    "    with torch.autograd.graph.disable_saved_tensors_hooks('no hooks'): pass\n1",
    "y=torch.ones(2,3,requires_grad=True).mean(1)\ny.grad_fn._saved_dim",
    "torch.autograd.functional.jacobian(lambda x: torch.ones(()).requires_grad_(), torch.ones(2), strict=True)",
    "torch.autograd.functional.hvp(lambda x: torch.ones(3), torch.ones(2), torch.ones(2), strict=True)",
    "torch.autograd.gradcheck(lambda x: (x * 2, x.detach() * 2), torch.ones(2, dtype=torch.float64, requires_grad=True))",
    "torch.autograd.gradcheck(lambda x: x.detach() * 2, torch.ones(2, dtype=torch.float64, requires_grad=True))",
    *(f"seen=[]\nx=[torch.ones(2,requires_grad=True) for _ in range(5)]\n"
      f"for i, p in enumerate(x): p.register_post_accumulate_grad_hook(lambda _, i=i: seen.append(i))\n{y}.sum().backward()\nseen"
      for y in ("(x[0]*x[1])", "(x[0]+x[2]*x[1]-x[4]/x[3])", "torch.cat([x[1], x[1]*x[0], x[3]+x[2]])")),
    FUNCTION.format(forward="y=x.exp(); ctx.save_for_backward(y); return y", backward="return g*ctx.saved_tensors[0]")
    + "y=F.apply(x); y.add_(1); y.sum().backward()",
    FUNCTION.format(forward="ctx.x=x.detach().requires_grad_(); return x*1",
                    backward="if ctx.x[0] < -299: return g\n        with torch.enable_grad(): F.apply(ctx.x-1).sum().backward()\n"
                    "        return g") + "F.apply(x).sum().backward()\nx.grad",
    "x=torch.ones(2,requires_grad=True)\ny=x.exp(); y.sum().backward(); s=y.grad_fn._raw_saved_result\n"
    "s.register_hooks(lambda t: t, lambda t: t)",
    "x=torch.zeros(5,requires_grad=True)\nw=x[:2]\nwith torch.no_grad(): w.mul_(2)\ntype(w.grad_fn).__name__",
    "x=torch.zeros(5,requires_grad=True)\nw=x.unbind(0)[0]\nwith torch.no_grad(): x.mul_(2)\nw.grad_fn",
    "x=torch.ones(2,requires_grad=True)\ny=x*2; y.register_hook(lambda g: g.to(torch.complex64)); y.sum().backward()",
    "x=torch.ones(2,requires_grad=True)\ny=x*2; y.register_hook(lambda g: g.to('meta')); y.sum().backward()",
    "x=torch.ones(2,requires_grad=True)\nx.data=torch.sparse_coo_tensor([[0]], torch.ones(1), (2,))",
    "x=torch.ones(2,requires_grad=True)\nx.grad=torch.ones(2,dtype=torch.long)",
    "torch.autograd.Variable._execution_engine.is_checkpoint_valid()",
    *(FUNCTION.format(forward=forward, backward="return g") + f"F.jvp=staticmethod(lambda ctx,t: {jvp})\n"
      "fwAD=torch.autograd.forward_ad\nwith fwAD.dual_level():\n"
      "    r=fwAD.unpack_dual(F.apply(fwAD.make_dual(torch.ones(2), torch.ones(2)))).tangent\nr"
      for forward, jvp in (("return x", "t"), ("return x", "t*2"), ("return x", "t.view_as(t)"), ("return x.view(1,2)", "t.view(1,2)"),
                           ("return x.view(1,2)", "t.clone().view(1,2)"), ("return x*1", "3"))),
    "w=torch.ones(3,2,requires_grad=True)\ntorch.nn.functional.embedding_bag(torch.tensor([],dtype=torch.long), w, torch.tensor([0, 0]), "
    "mode='max').sum().backward()\nw.grad",
    "@torch.no_grad()\nclass A:\n    def __init__(self): self.on=torch.is_grad_enabled()\nA().on",
]


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_programs(program: str) -> None:
    twin.check_lines(program, message=True)


@pytest.mark.parametrize("change", [
    "transpose_(0, 1)", "t_()", "squeeze_(0)", "unsqueeze_(0)", "as_strided_((2,), (1,))",
    "index_put_((torch.tensor([0]),), torch.ones(1, 3, dtype=torch.complex128))"])
def test_tangents_follow_what_changes_in_place(change: str) -> None:
    shape = (1, 3) if change.startswith("squeeze") else (2, 3)
    twin.check_lines(f"""fw = torch.autograd.forward_ad
x = torch.ones({shape}, dtype=torch.complex128)
with fw.dual_level():
    dual = fw.make_dual(x, torch.arange(x.numel()).reshape(x.shape) * (1 + 1j))
    dual.{change}
    p, t = fw.unpack_dual(dual)
[p, t, t.shape]""")


JVP = """class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_forward(x)
        return x*2, y*3
    {jvp}
with torch.autograd.forward_ad.dual_level():
    d=torch.autograd.forward_ad.make_dual(torch.ones(2),torch.full((2,),5.))
    r=[torch.autograd.forward_ad.unpack_dual(o) for o in F.apply(d, torch.ones(2))]
[(a.primal, a.tangent) for a in r]"""


@pytest.mark.parametrize("jvp", [
    "pass", "jvp=staticmethod(lambda ctx,a,b: (a*7+ctx.saved_tensors[0], b+1))"])
def test_forward_mode_asks_a_function_for_its_jvp(jvp: str) -> None:
    twin.check_lines(JVP.format(jvp=jvp))


def test_tangents_have_the_shape_of_what_they_are_of() -> None:
    twin.check_lines("with torch.autograd.forward_ad.dual_level(): torch.autograd.forward_ad.make_dual(torch.ones(2),torch.ones(3))\n1",
               message=True)


VMAP = """class F(torch.autograd.Function):
    {body}
    @staticmethod
    def forward(x, y): return x*y
    @staticmethod
    def setup_context(ctx, inputs, output): ctx.save_for_backward(*inputs)
    @staticmethod
    def backward(ctx, g): return g*ctx.saved_tensors[1], g*ctx.saved_tensors[0]
torch.vmap(F.apply, in_dims=(0, None))(torch.ones(3, 2), torch.full((2,), 4.))"""


@pytest.mark.parametrize("body", [
    "pass", "generate_vmap_rule = True",
    "vmap=staticmethod(lambda info,dims,x,y: (x*y*100+info.batch_size, dims[0]))",
    "generate_vmap_rule = True; vmap=staticmethod(lambda info,dims,x,y: (x*y, 0))"])
def test_vmap_asks_a_function_for_its_rule(body: str) -> None:
    twin.check_lines(VMAP.format(body=body))


FUNCTIONAL = """jacobian(lambda x: torch.ones(2), torch.ones(2), strict=True)|jacobian(lambda x: 1, torch.ones(2))|jacobian(lambda x: x, 1)
jacobian(lambda x: (x, 1), torch.ones(2))|jacobian(lambda x: x**2, torch.ones(2), strategy="x")|jacobian(lambda x: x, torch.ones(2), strict=True, vectorize=True)
jacobian(lambda x: x, torch.ones(2), strategy="forward-mode", vectorize=True, create_graph=True)
jacobian(lambda x: x**2, torch.ones(2), create_graph=True)|jacobian(lambda x: 2*x, torch.ones(2), create_graph=True, strict=True)
jacobian(lambda x, y: (x*y, x.sum()), (torch.ones(2), torch.ones(2)), vectorize=True)|jacobian(lambda x: x.sum(), torch.ones(0))
jacobian(lambda x, y: x*y**2, (torch.ones(2), torch.ones(2)), strategy="forward-mode", vectorize=True)[1].tolist()
hessian(lambda x: x**2, torch.ones(2))|hessian(lambda x: (x, x), torch.ones(2))|hessian(lambda x: (x**3).sum(), torch.ones(2))
hessian(lambda x, y: (x*y).sum(), (torch.ones(2), torch.ones(2)))|hessian(lambda x: x.sum(), torch.ones(2), strict=True)
hessian(lambda x: (x**3).sum(), torch.ones(2), outer_jacobian_strategy="forward-mode", vectorize=True).tolist()
hessian(lambda x: (x**3).sum(), torch.ones(2), create_graph=True).requires_grad|hessian(lambda x: x.sum(), 1)
vjp(lambda x: x*2, torch.ones(2))|vjp(lambda x: x*2, torch.ones(2), torch.ones(3))|vjp(lambda x: x*2, torch.ones(2), (torch.ones(2),)*2)
vjp(lambda x: torch.ones(2), torch.ones(2), torch.ones(2), strict=True)|vjp(lambda x, y: x*2, (torch.ones(2),)*2, torch.ones(2), strict=True)
vjp(lambda x, y: x*2, (torch.ones(2),)*2, torch.ones(2))|vjp(lambda x: 2*x, torch.ones(2), torch.ones(2), create_graph=True, strict=True)
vjp(lambda x: 1, torch.ones(2))|vjp(lambda x: x, [torch.ones(2)])|vjp(lambda x, y: (x, y), (torch.ones(2),)*2, torch.ones(2))
jvp(lambda x: x*2, torch.ones(2))|jvp(lambda x: x**2, torch.ones(2), torch.ones(2))|jvp(lambda x: x.sum(), torch.ones(2), torch.ones(3))
jvp(lambda x: torch.ones(2), torch.ones(2), torch.ones(2))|jvp(lambda x, y: (x*y, y), (torch.ones(2),)*2, (torch.ones(2),)*2)
jvp(lambda x: x.detach()*1, torch.ones(2), torch.ones(2), strict=True)|jvp(lambda x: x**2, torch.ones(1))
vhp(lambda x: x, torch.ones(2))|vhp(lambda x: (x**3).sum(), torch.ones(2), torch.ones(2))|vhp(lambda x: x.sum(), torch.ones(2), torch.ones(2), strict=True)
vhp(lambda x: (x, x), torch.ones(1))|vhp(lambda x: 1, torch.ones(1))|vhp(lambda x: x.sum(), torch.ones(2), torch.ones(2))
hvp(lambda x: (x**3).sum(), torch.ones(2), torch.ones(2))|hvp(lambda x: x.sum(), torch.ones(2), torch.ones(2))|hvp(lambda x: x, torch.ones(2))
hvp(lambda x, y: (x*y).sum(), (torch.ones(2),)*2, (torch.ones(2),)*2)|hvp(lambda x: (x**2).sum(), torch.ones(2), torch.ones(2), strict=True)"""


@pytest.mark.parametrize("call", FUNCTIONAL.replace("\n", "|").split("|"))
def test_functional(call: str) -> None:
    twin.check_lines(f"torch.autograd.functional.{call}", message=True)
