// libmt_core: the one definition of what state.h declares.
#include "state.h"

namespace mt {

const Library* kernels = nullptr;
Storage* spare_storages[kSpareStorages];
int spare_storage_count = 0;
PyObject* spare_tensors[kSpareTensors];
int spare_tensor_count = 0;
PyTypeObject* tensor_type = nullptr;
PyTypeObject* parameter_type = nullptr;
__thread Modes thread_modes{};

}  // namespace mt
