"""Passes over graphs of aten ops."""
from mindtorch_v2.fx.passes.dialect import common
