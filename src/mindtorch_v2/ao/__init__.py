"""torch.ao: quantisation and sparsity tools of PyTorch; here by name only."""
from mindtorch_v2.ao import nn, quantization
