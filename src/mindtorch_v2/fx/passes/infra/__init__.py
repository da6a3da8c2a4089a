"""Passes: their results, their order, and partitions."""
from mindtorch_v2.fx.passes.infra import partitioner, pass_base, pass_manager
