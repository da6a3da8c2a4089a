"""Backends: where kernels run, one folder per device type."""
