"""What ecosystem.py does with each package: module -> (name on PyPI, a program whose `out` is compared; "": import only).

A program finds `torch`, `device` ("cpu" or "npu"), `folder` (a new one, a Path) and `settle(module)`, which gives parameters
and buffers numbers that no generator draws and moves the module to the device.
"""
from __future__ import annotations

import sys

from ecosystem_models import MODEL_USES

USES: dict[str, tuple[str, str]] = MODEL_USES | {
    "einops": ("einops", """
from einops import rearrange, reduce, repeat
from einops.layers.torch import Rearrange
x = torch.arange(24.0, device=device).reshape(2, 3, 4)
out = [rearrange(x, 'a b c -> (a b) c'), reduce(x, 'a b c -> a c', 'mean'), repeat(x, 'a b c -> a (b 2) c'),
       Rearrange('a b c -> c b a')(x)]
"""),
    "safetensors": ("safetensors", """
from safetensors.torch import load, load_file, save, save_file, load_model, save_model
given = {'a': torch.randn(3).to(device), 'b': torch.arange(4, device=device).to(torch.bfloat16)}
found = load(save(given))
save_file(given, folder / 'x.safetensors')
again = load_file(folder / 'x.safetensors', device=device)
layer = settle(torch.nn.Linear(3, 2)); save_model(layer, str(folder / 'm.safetensors'))
other = torch.nn.Linear(3, 2).to(device); load_model(other, str(folder / 'm.safetensors'))
assert again['a'].device.type == device
out = [found['a'], found['b'], again['a'], again['b'], other.weight]
"""),
    "tokenizers": ("tokenizers", ""),
    "huggingface_hub": ("huggingface_hub", """
from huggingface_hub import PyTorchModelHubMixin, split_torch_state_dict_into_shards
class Net(torch.nn.Module, PyTorchModelHubMixin):
    def __init__(self, size: int):
        super().__init__(); self.layer = torch.nn.Linear(size, 2)
net = settle(Net(3)); net.save_pretrained(folder)
plan = split_torch_state_dict_into_shards(net.state_dict(), max_shard_size=16)
out = [Net.from_pretrained(folder).layer.weight, len(plan.filename_to_tensors)]
"""),
    "datasets": ("datasets", """
from datasets import Dataset
data = Dataset.from_dict({'x': [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], 'y': [0, 1, 0]}).with_format('torch', device=device)
loader = torch.utils.data.DataLoader(data.with_format('torch'), batch_size=2)
assert data[0]['x'].device.type == device
out = [data[:]['x'], data[1]['y'], *(batch['x'] for batch in loader)]
"""),
    "torchmetrics": ("torchmetrics", """
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import BinaryAUROC, MulticlassAccuracy, MulticlassConfusionMatrix, MulticlassF1Score
from torchmetrics.regression import PearsonCorrCoef, R2Score
p, t = torch.tensor([0, 1, 2, 2, 1]).to(device), torch.tensor([0, 1, 1, 2, 0]).to(device)
both = MetricCollection([MulticlassAccuracy(3), MulticlassF1Score(3)]).to(device)
both.update(p, t); both.update(t, t)
x, y = torch.linspace(0, 1, 6).to(device), torch.tensor([0.1, 0.3, 0.2, 0.7, 0.8, 0.9]).to(device)
out = [*both.compute().values(), MulticlassConfusionMatrix(3).to(device)(p, t), PearsonCorrCoef().to(device)(x, y),
       R2Score().to(device)(x, y), BinaryAUROC().to(device)(y, (x > 0.5).long()), MeanMetric().to(device)(x)]
"""),
    "torch_geometric": ("torch_geometric", """
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, GCNConv, SAGEConv, global_mean_pool
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = GCNConv(3, 8), GATConv(8, 4, heads=2), SAGEConv(8, 2)
    def forward(self, x, edges, batch):
        return global_mean_pool(self.c(self.b(self.a(x, edges).relu(), edges).relu(), edges), batch)
edges = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
graphs = [Data(x=torch.linspace(0, i, 12).reshape(4, 3), edge_index=edges, y=torch.tensor([i % 2])) for i in range(1, 5)]
net = settle(Net()); optimizer = torch.optim.Adam(net.parameters(), lr=0.01); out = []
for batch in DataLoader(graphs, batch_size=2):
    batch = batch.to(device)
    loss = torch.nn.functional.cross_entropy(net(batch.x, batch.edge_index, batch.batch), batch.y)
    optimizer.zero_grad(); loss.backward(); optimizer.step(); out.append(loss)
out.append(net(graphs[0].x.to(device), edges.to(device), torch.zeros(4, dtype=torch.long, device=device)))
"""),
    "gpytorch": ("gpytorch", """
import gpytorch
class GP(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean, self.kernel = gpytorch.means.ConstantMean(), gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))
x = torch.linspace(0, 1, 8).to(device); y = torch.sin(6 * x)
likelihood = gpytorch.likelihoods.GaussianLikelihood().to(device); model = GP(x, y, likelihood).to(device)
objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1); out = []
model.train(); likelihood.train()
for _ in range(3):
    optimizer.zero_grad(); loss = -objective(model(x), y); loss.backward(); optimizer.step(); out.append(loss)
model.eval(); likelihood.eval()
with torch.no_grad():
    out.append(likelihood(model(torch.tensor([0.25, 0.5]).to(device))).mean)
"""),
    "pyro": ("pyro-ppl", """
import pyro, pyro.distributions as dist
from pyro.infer import SVI, Trace_ELBO
pyro.set_rng_seed(1)
trace = pyro.poutine.trace(lambda: pyro.sample('x', dist.Normal(0., 1.).expand([3]).to_event(1))).get_trace()
data = torch.tensor([1.0, 2.0, 3.0]).to(device)
def model():
    m = pyro.param('m', torch.zeros((), device=device)); s = pyro.param('s', torch.ones((), device=device),
                                                                          constraint=dist.constraints.positive)
    with pyro.plate('data', 3): pyro.sample('y', dist.Normal(m, s), obs=data)
svi = SVI(model, lambda: None, pyro.optim.Adam({'lr': 0.1}), Trace_ELBO())
out = [trace.log_prob_sum(), trace.nodes['x']['value'], *(svi.step() for _ in range(4)), pyro.param('m'), pyro.param('s')]
"""),
    "botorch": ("botorch", """
from botorch.acquisition import LogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.mlls import ExactMarginalLogLikelihood
x = torch.linspace(0, 1, 6, dtype=torch.float64).unsqueeze(-1).to(device); y = torch.sin(5 * x)
gp = SingleTaskGP(x, y); fit_gpytorch_mll(ExactMarginalLogLikelihood(gp.likelihood, gp))
at = torch.tensor([[[0.3]], [[0.7]]], dtype=torch.float64).to(device)
out = [LogExpectedImprovement(gp, best_f=y.max())(at), gp.posterior(at).mean]
""" ),
    "linear_operator": ("linear_operator", """
from linear_operator.operators import DiagLinearOperator, DenseLinearOperator
a = DiagLinearOperator(torch.arange(1.0, 4.0).to(device))
b = DenseLinearOperator(torch.eye(3, device=device) * 2 + 0.1)
out = [a @ torch.ones(3, 1, device=device), (a + b).to_dense(), b.cholesky().to_dense(), b.logdet(),
       b.solve(torch.ones(3, 1, device=device))]
"""),
    "captum": ("captum", """
from captum.attr import DeepLift, FeatureAblation, IntegratedGradients, Saliency
model = settle(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)))
x = torch.tensor([[1.0, 2.0, 3.0], [0.5, 0.1, -1.0]]).to(device)
out = [IntegratedGradients(model).attribute(x, target=1, n_steps=8), Saliency(model).attribute(x, target=0),
       DeepLift(model).attribute(x, target=1), FeatureAblation(model).attribute(x, target=0)]
"""),
    "torchdiffeq": ("torchdiffeq", """
from torchdiffeq import odeint, odeint_adjoint
layer = settle(torch.nn.Linear(2, 2))
class Field(torch.nn.Module):
    def __init__(self): super().__init__(); self.layer = layer
    def forward(self, t, y): return -self.layer(y)
times = torch.linspace(0, 1, 5).to(device)
end = odeint_adjoint(Field(), torch.tensor([1.0, 2.0]).to(device), times, method='rk4'); end.sum().backward()
out = [odeint(lambda t, y: -y, torch.tensor([1.0, 2.0]).to(device), times), end, layer.weight.grad]
"""),
    "torchsde": ("torchsde", """
import torchsde
class SDE(torch.nn.Module):
    noise_type, sde_type = 'diagonal', 'ito'
    def f(self, t, y): return -y
    def g(self, t, y): return 0 * y
out = torchsde.sdeint(SDE().to(device), torch.ones(2, 3, device=device), torch.linspace(0, 1, 4).to(device), method='euler', dt=0.1)
"""),
    "e3nn": ("e3nn", """
from e3nn import nn, o3
x = torch.tensor([[1.0, 2.0, 3.0], [0.5, -1.0, 0.1]]).to(device)
product = settle(o3.FullyConnectedTensorProduct('1x0e+1x1o', '1x1o', '2x1o'))
y = torch.cat([torch.ones(2, 1, device=device), x], 1)
linear = settle(o3.Linear('2x1o', '1x1o'))
out = [o3.spherical_harmonics([0, 1, 2], x, True), o3.wigner_3j(1, 1, 2, device=device), linear(product(y, x))]
"""),
    "lion_pytorch": ("lion-pytorch", """
from lion_pytorch import Lion
w = torch.nn.Parameter(torch.ones(3, device=device)); o = Lion([w], lr=0.1)
for _ in range(3): o.zero_grad(); (w * torch.arange(3.0, device=device)).sum().backward(); o.step()
out = w
"""),
    "rotary_embedding_torch": ("rotary-embedding-torch", """
from rotary_embedding_torch import RotaryEmbedding
out = RotaryEmbedding(dim=8).to(device).rotate_queries_or_keys(torch.ones(1, 2, 4, 8, device=device))
"""),
    "torch_ema": ("torch-ema", """
from torch_ema import ExponentialMovingAverage
w = torch.nn.Parameter(torch.ones(3, device=device)); e = ExponentialMovingAverage([w], decay=0.9)
w.data.add_(1); e.update(); e.copy_to(); out = w
"""),
    "pytorch_optimizer": ("pytorch-optimizer", """
from pytorch_optimizer import Lamb, AdaBelief, SAM
w = torch.nn.Parameter(torch.ones(3, device=device)); o = Lamb([w], lr=0.1)
for _ in range(3): o.zero_grad(); (w * w).sum().backward(); o.step()
v = torch.nn.Parameter(torch.ones(3, device=device)); s = SAM([v], AdaBelief, lr=0.1)
(v * v).sum().backward(); s.first_step(zero_grad=True); (v * v).sum().backward(); s.second_step(zero_grad=True)
out = [w, v]
"""),
    "opacus": ("opacus", """
from opacus import GradSampleModule
from opacus.accountants import RDPAccountant
from opacus.optimizers import DPOptimizer
model = GradSampleModule(settle(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))))
optimizer = DPOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), noise_multiplier=0.0, max_grad_norm=0.5,
                        expected_batch_size=4)
x = torch.linspace(-1, 1, 12).reshape(4, 3).to(device); out = []
for _ in range(2):
    loss = torch.nn.functional.cross_entropy(model(x), torch.tensor([0, 1, 0, 1]).to(device))
    loss.backward(); out += [loss, next(model.parameters()).grad_sample]; optimizer.step(); optimizer.zero_grad()
accountant = RDPAccountant(); accountant.step(noise_multiplier=1.0, sample_rate=0.01)
out += [next(model.parameters()), accountant.get_epsilon(1e-5)]
"""),
    "tensordict": ("tensordict<0.15", """
from tensordict import TensorDict, tensorclass
from tensordict.nn import TensorDictModule, TensorDictSequential
data = TensorDict({'a': torch.arange(6.0).reshape(3, 2), 'b': {'c': torch.ones(3, 1)}}, batch_size=[3]).to(device)
first = TensorDictModule(settle(torch.nn.Linear(2, 2)), in_keys=['a'], out_keys=['h'])
second = TensorDictModule(settle(torch.nn.Linear(2, 1)), in_keys=['h'], out_keys=['y'])
TensorDictSequential(first, second)(data)
data.cpu().memmap(str(folder / 'td')); again = TensorDict.load_memmap(str(folder / 'td'))
out = [data['y'], torch.stack([data, data])['a'], data[1:]['b', 'c'], again['y'], (data['a', ] + 1)]
"""),
    "torchrl": ("torchrl", """
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.data.replay_buffers.samplers import SamplerWithoutReplacement
from torchrl.modules import MLP, QValueActor
from torchrl.objectives.value.functional import generalized_advantage_estimate
actor = QValueActor(settle(MLP(3, 2, num_cells=[4])), in_keys=['observation'], action_space='one-hot')
data = TensorDict({'observation': torch.linspace(-1, 1, 12).reshape(4, 3)}, [4]).to(device)
buffer = ReplayBuffer(storage=LazyTensorStorage(4), sampler=SamplerWithoutReplacement(shuffle=False), batch_size=2)
buffer.extend(data.cpu())
reward, value = torch.ones(1, 5, 1).to(device), torch.linspace(0, 1, 5).reshape(1, 5, 1).to(device)
done = torch.zeros(1, 5, 1, dtype=torch.bool, device=device)
advantage = generalized_advantage_estimate(0.9, 0.95, value, value + 0.1, reward, done)
out = [actor(data)['action'].float(), data['chosen_action_value'], buffer.sample()['observation'], *advantage]
"""),
    "skorch": ("skorch", """
import numpy as np
from skorch import NeuralNetClassifier
x = np.linspace(-1, 1, 40, dtype=np.float32).reshape(10, 4); y = (x.sum(1) > 0).astype(np.int64)
module = settle(torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.Softmax(-1)))
net = NeuralNetClassifier(module, max_epochs=3, lr=0.1, device=device, train_split=None, iterator_train__shuffle=False,
                          verbose=0)
net.fit(x, y); net.save_params(f_params=str(folder / 'net.pt'))
out = [torch.as_tensor(net.predict_proba(x)), [row['train_loss'] for row in net.history]]
"""),
    "opt_einsum_fx": ("opt_einsum_fx", """
import opt_einsum_fx
def f(a, b, c): return torch.einsum('ij,jk,kl->il', a, b, c)
graph = torch.fx.symbolic_trace(f)
a, b, c = (torch.linspace(0, i, 12).to(device) for i in (1, 2, 3)); a, b, c = a.reshape(3, 4), b.reshape(4, 3), c.reshape(3, 4)
out = opt_einsum_fx.optimize_einsums_full(graph, (a, b, c))(a, b, c)
"""),
    "jaxtyping": ("jaxtyping", """
from jaxtyping import Float, Int
assert isinstance(torch.zeros(2, 3, device=device), Float[torch.Tensor, '2 3'])
assert not isinstance(torch.zeros(2, 3, device=device), Int[torch.Tensor, '2 3'])
out = 1
"""),
}
# What they need beside PyTorch, which pip must not install.
NEEDS = """numpy scipy packaging typing_extensions pyyaml regex tqdm filelock requests psutil trampoline frozendict scikit-learn sympy
networkx matplotlib rich httpx httpx2 shellingham typer fsspec multipledispatch pyre-extensions wadler-lindig aiohttp jinja2 xxhash
pyparsing kornia_rs pillow importlib_metadata boltons opt_einsum loguru scipy-openblas32 pyarrow dill multiprocess pandas tabulate
orjson pyvers cloudpickle click""".split()
BESIDE = "hoptorch pyro-api lightning-utilities pytorch-lightning local-attention einx torch_einops_utils".split()

if __name__ == "__main__":       # for the Makefile: what to install with dependencies, and what without
    print(*(NEEDS if sys.argv[1:] == ["needs"] else [*BESIDE, *(package for package, _ in USES.values())]), sep="\n")
