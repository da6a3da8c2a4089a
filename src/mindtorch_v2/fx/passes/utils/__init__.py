"""Matchers and other services of passes."""
from mindtorch_v2.fx.passes.utils import common, fuser_utils, matcher_utils, source_matcher_utils
from mindtorch_v2.fx.passes.utils.common import HolderModule, compare_graphs, lift_subgraph_as_module
