"""torch.return_types: the named tuples that ops return."""
from mindtorch_v2._ops.returns import return_types as _made

globals().update(_made)
all_return_types = list(_made.values())
