"""torch.version: the PyTorch release whose API this is, and the toolkits it was built with (none of CUDA's)."""
__version__ = "2.13.0"
git_version = "unknown"
debug = False
cuda = hip = xpu = None
