"""torch.nested._internal: the parts of jagged tensors under the names that PyTorch's own programs import."""
