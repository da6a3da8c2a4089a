"""torch.fx.experimental: recording below autograd, rewriting of sources, folding of constants, fusing for inference."""
from mindtorch_v2.fx.experimental import (
    _config,
    const_fold,
    normalize,
    optimization,
    proxy_tensor,
    rewriter,
    symbolic_shapes,
)
