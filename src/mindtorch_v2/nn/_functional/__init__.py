"""The Python functions of torch.nn.functional by family; functional.py gathers them."""
