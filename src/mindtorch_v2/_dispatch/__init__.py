"""torch._dispatch: what programs ask of PyTorch's dispatcher."""
