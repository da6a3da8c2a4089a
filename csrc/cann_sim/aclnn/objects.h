// The objects an aclnn call is made of, as clients build them in libnnopbase: tensors, scalars, arrays, lists, executors.
#pragma once
#include <vector>

#include "aclnn/rows.h"
#include "runtime/handles.h"
#include "runtime/runtime.h"

constexpr int kMaxRank = 8;

// What a tensor says of itself; strides and offset count elements, addr is the storage's base.
struct TensorMeta {
  int64_t sizes[kMaxRank], strides[kMaxRank];
  int64_t offset = 0;
  int32_t ndim = -1;          // -1: not given
  aclDataType dtype = 0;
  aclFormat format = 2;
  void* addr = nullptr;
  int64_t storage_numel = 0;  // product of the storage's dims

  bool given() const { return ndim >= 0; }
  int64_t numel() const {
    int64_t n = 1;
    for (int d = 0; d < ndim; ++d) n *= sizes[d];
    return n;
  }
};
struct aclTensor {
  TensorMeta meta;
  int64_t storage_dims[kMaxRank];
  int32_t storage_ndim = 0;
};
struct aclScalar {
  aclDataType dtype;
  double re = 0, im = 0;
  int64_t i = 0;              // exact for integers; truncated otherwise
};
struct aclIntArray { std::vector<int64_t> items; };
struct aclFloatArray { std::vector<float> items; };
struct aclBoolArray { std::vector<uint8_t> items; };
struct aclTensorList { std::vector<aclTensor*> items; };
struct aclScalarList { std::vector<aclScalar*> items; };

namespace cann_sim {
CANN_SIM_API Handles<aclTensor>& tensors();
CANN_SIM_API Handles<aclScalar>& scalars();
CANN_SIM_API Handles<aclIntArray>& int_arrays();
CANN_SIM_API Handles<aclFloatArray>& float_arrays();
CANN_SIM_API Handles<aclBoolArray>& bool_arrays();
CANN_SIM_API Handles<aclTensorList>& tensor_lists();
CANN_SIM_API Handles<aclScalarList>& scalar_lists();
CANN_SIM_API Handles<aclOpExecutor>& executors();
CANN_SIM_API int64_t element_size(aclDataType dtype);  // bytes; 0: not a type of whole bytes that is known
}  // namespace cann_sim
