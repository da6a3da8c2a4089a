"""What ecosystem.py does with each package: module -> (name on PyPI, a program whose `out` is compared; "": import only)."""
from __future__ import annotations

import sys

USES: dict[str, tuple[str, str]] = {
    "einops": ("einops", """
from einops import rearrange, reduce
x = torch.arange(24.0).reshape(2, 3, 4)
out = [rearrange(x, 'a b c -> (a b) c'), reduce(x, 'a b c -> a c', 'mean')]
"""),
    "safetensors": ("safetensors", """
from safetensors.torch import load, save
found = load(save({'a': torch.randn(3), 'b': torch.arange(4).to(torch.bfloat16)}))
out = [found['a'], found['b']]
"""),
    "tokenizers": ("tokenizers", ""),
    "huggingface_hub": ("huggingface_hub", ""),
    "transformers": ("transformers", """
from transformers import BertConfig, BertForSequenceClassification
config = BertConfig(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
model = BertForSequenceClassification(config).train()
model.apply(lambda m: m.p and setattr(m, 'p', 0.0) if isinstance(m, torch.nn.Dropout) else None)
for p in model.parameters():
    torch.nn.init.normal_(p, std=0.1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
out = []
for step in range(3):
    loss = model(torch.arange(20).reshape(2, 10), labels=torch.tensor([0, 1])).loss
    loss.backward(); optimizer.step(); optimizer.zero_grad(); out.append(loss)
"""),
    "accelerate": ("accelerate", """
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(4, 2)
for p in model.parameters(): torch.nn.init.constant_(p, 0.5)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
loss = model(torch.ones(3, 4)).pow(2).mean(); accelerator.backward(loss); optimizer.step()
out = list(model.parameters())
"""),
    "peft": ("peft", """
from peft import LoraConfig, get_peft_model
model = get_peft_model(torch.nn.Sequential(torch.nn.Linear(4, 4)), LoraConfig(target_modules=['0'], r=2))
for p in model.parameters(): torch.nn.init.constant_(p, 0.1)
out = model(torch.ones(2, 4))
"""),
    "timm": ("timm", """
import timm
model = timm.create_model('resnet10t', pretrained=False, num_classes=5).eval()
for p in model.parameters(): torch.nn.init.constant_(p, 0.01)
out = model(torch.ones(1, 3, 32, 32))
"""),
    "torchmetrics": ("torchmetrics", """
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score
p, t = torch.tensor([0, 1, 2, 2, 1]), torch.tensor([0, 1, 1, 2, 0])
out = [MulticlassAccuracy(3)(p, t), MulticlassF1Score(3)(p, t)]
"""),
    "lightning": ("lightning", ""),
    "sentence_transformers": ("sentence-transformers", ""),
    "torch_geometric": ("torch_geometric", """
from torch_geometric.nn import GCNConv
layer = GCNConv(3, 2)
for p in layer.parameters(): torch.nn.init.constant_(p, 0.5)
out = layer(torch.ones(4, 3), torch.tensor([[0, 1, 2], [1, 2, 3]]))
"""),
    "gpytorch": ("gpytorch", """
import gpytorch
kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
out = kernel(torch.linspace(0, 1, 5)).to_dense()
"""),
    "pyro": ("pyro-ppl", """
import pyro, pyro.distributions as dist
pyro.set_rng_seed(1)
trace = pyro.poutine.trace(lambda: pyro.sample('x', dist.Normal(0., 1.).expand([3]).to_event(1))).get_trace()
out = [trace.log_prob_sum(), trace.nodes['x']['value']]
"""),
    "kornia": ("kornia", """
import kornia
out = kornia.filters.gaussian_blur2d(torch.arange(25.0).reshape(1, 1, 5, 5), (3, 3), (1.0, 1.0))
"""),
    "captum": ("captum", """
from captum.attr import IntegratedGradients
model = torch.nn.Linear(3, 1)
for p in model.parameters(): torch.nn.init.constant_(p, 0.5)
out = IntegratedGradients(model).attribute(torch.ones(2, 3), n_steps=8)
"""),
    "torchdiffeq": ("torchdiffeq", """
from torchdiffeq import odeint
out = odeint(lambda t, y: -y, torch.tensor([1.0, 2.0]), torch.linspace(0, 1, 5))
"""),
    "e3nn": ("e3nn", """
from e3nn import o3
out = [o3.spherical_harmonics([0, 1, 2], torch.tensor([[1.0, 2.0, 3.0]]), True), o3.wigner_3j(1, 1, 2)]
"""),
    "x_transformers": ("x-transformers", """
from x_transformers import Decoder, TransformerWrapper
model = TransformerWrapper(num_tokens=20, max_seq_len=16, attn_layers=Decoder(dim=16, depth=1, heads=2)).eval()
for p in model.parameters(): torch.nn.init.constant_(p, 0.02)
out = model(torch.arange(8)[None])
"""),
    "lion_pytorch": ("lion-pytorch", """
from lion_pytorch import Lion
w = torch.nn.Parameter(torch.ones(3)); o = Lion([w], lr=0.1)
for _ in range(3): o.zero_grad(); (w * torch.arange(3.0)).sum().backward(); o.step()
out = w
"""),
    "rotary_embedding_torch": ("rotary-embedding-torch", """
from rotary_embedding_torch import RotaryEmbedding
out = RotaryEmbedding(dim=8).rotate_queries_or_keys(torch.ones(1, 2, 4, 8))
"""),
    "torch_ema": ("torch-ema", """
from torch_ema import ExponentialMovingAverage
w = torch.nn.Parameter(torch.ones(3)); e = ExponentialMovingAverage([w], decay=0.9)
w.data.add_(1); e.update(); e.copy_to(); out = w
"""),
    "torchsde": ("torchsde", ""),
    "pytorch_optimizer": ("pytorch-optimizer", """
from pytorch_optimizer import Lamb
w = torch.nn.Parameter(torch.ones(3)); o = Lamb([w], lr=0.1)
for _ in range(3): o.zero_grad(); (w * w).sum().backward(); o.step()
out = w
"""),
    "vector_quantize_pytorch": ("vector-quantize-pytorch", """
from vector_quantize_pytorch import FSQ
out = list(FSQ([8, 5, 5])(torch.linspace(-1, 1, 12).reshape(1, 4, 3)))
"""),
    "linear_operator": ("linear_operator", """
from linear_operator.operators import DiagLinearOperator
out = (DiagLinearOperator(torch.arange(1.0, 4.0)) @ torch.ones(3, 1))
"""),
    "diffusers": ("diffusers", """
from diffusers import DDPMScheduler
s = DDPMScheduler(num_train_timesteps=10)
out = s.add_noise(torch.ones(1, 2), torch.full((1, 2), 0.5), torch.tensor([5]))
"""),
    "torchvision": ("torchvision", """
from torchvision.models import resnet18
model = resnet18().eval()
for p in model.parameters(): torch.nn.init.constant_(p, 0.01)
out = model(torch.ones(1, 3, 32, 32))
"""),
    "monai": ("monai", ""),
    "botorch": ("botorch", ""),
    "opt_einsum_fx": ("opt_einsum_fx", ""),
    "jaxtyping": ("jaxtyping", ""),
}
# What they need beside PyTorch, which pip must not install.
NEEDS = """numpy scipy packaging typing_extensions pyyaml regex tqdm filelock requests psutil trampoline frozendict scikit-learn sympy
networkx matplotlib rich httpx httpx2 shellingham typer fsspec multipledispatch pyre-extensions wadler-lindig aiohttp jinja2 xxhash
pyparsing kornia_rs pillow importlib_metadata boltons opt_einsum loguru scipy-openblas32""".split()
BESIDE = "pyro-api lightning-utilities pytorch-lightning local-attention einx torch_einops_utils".split()

if __name__ == "__main__":       # for the Makefile: what to install with dependencies, and what without
    print(*(NEEDS if sys.argv[1:] == ["needs"] else [*BESIDE, *(package for package, _ in USES.values())]), sep="\n")
