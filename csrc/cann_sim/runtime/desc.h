// The objects of the older op interface: buffers, tensor descriptions, attributes.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "runtime/handles.h"
#include "runtime/runtime.h"

struct aclDataBuffer {
  aclDataBuffer(void* d, size_t s) : data(d), size(s) {}
  void* data;
  size_t size;
};
struct aclTensorDesc {
  aclDataType dtype = ACL_DT_UNDEFINED;
  aclFormat format = ACL_FORMAT_UNDEFINED, storage_format = ACL_FORMAT_UNDEFINED, origin_format = ACL_FORMAT_UNDEFINED;
  std::vector<int64_t> dims, storage_dims, origin_dims;
  std::vector<std::pair<int64_t, int64_t>> ranges, value_ranges;
  aclMemType placement = ACL_MEMTYPE_DEVICE;
  std::string name, dynamic_input;
  std::vector<char> constant;         // the value of an input that is known when the op is compiled
  bool is_constant = false;
};
struct aclopAttr {
  std::map<std::string, std::vector<int64_t>> ints;          // also bools and data types
  std::map<std::string, std::vector<float>> floats;
  std::map<std::string, std::vector<std::string>> strings;
  std::map<std::string, std::vector<std::vector<int64_t>>> lists;
};

namespace cann_sim {
CANN_SIM_API Handles<aclDataBuffer>& data_buffers();
CANN_SIM_API Handles<aclTensorDesc>& tensor_descs();
CANN_SIM_API Handles<aclopAttr>& op_attrs();
}  // namespace cann_sim
