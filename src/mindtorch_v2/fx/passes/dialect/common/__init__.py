"""Passes over graphs of aten ops, for every backend."""
from mindtorch_v2.fx.passes.dialect.common import cse_pass
