"""The compiled parts of the core under one name, from the lowest up; which part has what is nothing that Python need know."""
import types

from mindtorch_v2._C import _autograd, _dispatch, _graph, _hccl, _methods, _npu, _row, _tensor

for _part in (_tensor, _row, _graph, _dispatch, _autograd, _methods, _npu, _hccl):
    _tensor._keep_general(vars(_part))
    globals().update({name: value for name, value in vars(_part).items()
                      if not name.startswith("__") and not isinstance(value, types.ModuleType)})
