"""torch.version: the PyTorch release whose API this is, and the toolkits it was built with (none of CUDA's).

Programs compare this number with PyTorch's releases. The package's own version stands in pyproject.toml alone, and is
asked for as importlib.metadata.version("mindtorch_v2").
"""
__version__ = "2.13.0"
git_version = "unknown"
debug = False
cuda = hip = xpu = None
