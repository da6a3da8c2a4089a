// libnnopbase: the objects that aclnn arguments are made of. Executors are in executor.cpp.
#include "aclnn/objects.h"

#include <cstring>

using namespace cann_sim;

namespace {

constexpr size_t kTensors = 1 << 20, kObjects = 1 << 18;  // handles that may live at once; only used ones take memory
constexpr int64_t kMostItems = int64_t{1} << 56;          // of a tensor: so that bytes can be counted too
constexpr uint64_t kMostValues = uint64_t{1} << 30;       // of an array or a list

float half_to_float(uint16_t h) {
  const uint32_t sign = (h & 0x8000u) << 16, exponent = (h >> 10) & 31, fraction = h & 0x3ff;
  float magnitude;
  if (exponent == 0) {
    magnitude = static_cast<float>(fraction) * 0x1p-24f;
  } else {
    const uint32_t bits = exponent == 31 ? 0x7f800000u | (fraction << 13) : ((exponent + 112) << 23) | (fraction << 13);
    std::memcpy(&magnitude, &bits, 4);
  }
  uint32_t bits;
  std::memcpy(&bits, &magnitude, 4);
  bits |= sign;
  std::memcpy(&magnitude, &bits, 4);
  return magnitude;
}

template <class T>
T read(const void* from) {
  T x;
  std::memcpy(&x, from, sizeof x);
  return x;
}

template <class T>
void set_integer(aclScalar& s, const void* from) {
  s.i = static_cast<int64_t>(read<T>(from));
  s.re = static_cast<double>(read<T>(from));
}

void set_real(aclScalar& s, double x) {
  s.re = x;
  s.i = x >= -0x1p63 && x < 0x1p63 ? static_cast<int64_t>(x) : 0;  // NaN compares false
}

bool set_scalar(aclScalar& s, const void* from) {
  switch (s.dtype) {
    case ACL_BOOL: s.i = read<uint8_t>(from) != 0; s.re = static_cast<double>(s.i); return true;
    case ACL_INT8: set_integer<int8_t>(s, from); return true;
    case ACL_UINT8: set_integer<uint8_t>(s, from); return true;
    case ACL_INT16: set_integer<int16_t>(s, from); return true;
    case ACL_UINT16: set_integer<uint16_t>(s, from); return true;
    case ACL_INT32: set_integer<int32_t>(s, from); return true;
    case ACL_UINT32: set_integer<uint32_t>(s, from); return true;
    case ACL_INT64: set_integer<int64_t>(s, from); return true;
    case ACL_UINT64: set_integer<uint64_t>(s, from); return true;
    case ACL_FLOAT: set_real(s, read<float>(from)); return true;
    case ACL_DOUBLE: set_real(s, read<double>(from)); return true;
    case ACL_FLOAT16: set_real(s, half_to_float(read<uint16_t>(from))); return true;
    case ACL_BF16: {
      const uint32_t bits = static_cast<uint32_t>(read<uint16_t>(from)) << 16;
      set_real(s, read<float>(&bits));
      return true;
    }
    case ACL_COMPLEX64:
      set_real(s, read<float>(from));
      s.im = read<float>(static_cast<const char*>(from) + 4);
      return true;
    case ACL_COMPLEX128:
      set_real(s, read<double>(from));
      s.im = read<double>(static_cast<const char*>(from) + 8);
      return true;
    default: return false;
  }
}

// Fills a tensor; false, with the message noted, when the description makes no sense.
bool describe(aclTensor& t, const int64_t* dims, uint64_t ndim, aclDataType dtype, const int64_t* strides, int64_t offset,
              aclFormat format, const int64_t* storage, uint64_t storage_ndim, void* data) {
  if ((ndim && !dims) || (storage_ndim && !storage)) {
    fail(ACLNN_ERR_PARAM_NULLPTR, "aclCreateTensor: the dims pointer is null and the number of dims is not 0");
    return false;
  }
  if (ndim > kMaxRank || storage_ndim > kMaxRank) {
    fail(ACLNN_ERR_PARAM_INVALID, "aclCreateTensor: %lu view dims and %lu storage dims; at most %d are allowed", ndim,
         storage_ndim, kMaxRank);
    return false;
  }
  const bool in_bits = dtype == ACL_INT4 || dtype == ACL_FLOAT4_E2M1 || dtype == ACL_FLOAT4_E1M2 || dtype == ACL_UINT1;
  if (!element_size(dtype) && !in_bits && dtype != ACL_STRING) {
    fail(ACLNN_ERR_PARAM_INVALID, "aclCreateTensor: unknown data type %d", dtype);
    return false;
  }
  TensorMeta& m = t.meta;
  m.ndim = static_cast<int32_t>(ndim);
  m.dtype = dtype;
  m.format = format;
  m.offset = offset;
  m.addr = data;
  int64_t step = 1;
  auto count = [](int64_t& product, int64_t size) {  // false: no tensor is that large
    return !__builtin_mul_overflow(product, size, &product) && product >= 0 && product <= kMostItems;
  };
  for (int d = static_cast<int>(ndim) - 1; d >= 0; --d) {
    if (dims[d] < 0) {
      fail(ACLNN_ERR_PARAM_INVALID, "aclCreateTensor: dim %d is %ld", d, dims[d]);
      return false;
    }
    m.sizes[d] = dims[d];
    m.strides[d] = strides ? strides[d] : step;
    if (count(step, dims[d])) continue;
    fail(ACLNN_ERR_PARAM_INVALID, "aclCreateTensor: the view has too many elements");
    return false;
  }
  t.storage_ndim = static_cast<int32_t>(storage_ndim);
  m.storage_numel = 1;
  for (uint64_t d = 0; d < storage_ndim; ++d) {
    t.storage_dims[d] = storage[d];
    if (storage[d] >= 0 && count(m.storage_numel, storage[d])) continue;
    fail(ACLNN_ERR_PARAM_INVALID, "aclCreateTensor: storage dim %lu is %ld", d, storage[d]);
    return false;
  }
  return true;
}

template <class T, class Item>
T* make_array(Handles<T>& pool, const Item* items, uint64_t n, const char* function) {
  if (n && !items) {
    fail(ACLNN_ERR_PARAM_NULLPTR, "%s: the values pointer is null and the size is %lu", function, n);
    return nullptr;
  }
  if (n > kMostValues) {
    fail(ACLNN_ERR_PARAM_INVALID, "%s: %lu values", function, n);
    return nullptr;
  }
  T* made = pool.make();
  if (!made) {
    fail(ACLNN_ERR_INNER, "%s: too many objects are alive", function);
    return nullptr;
  }
  made->items.assign(items, items + n);
  return made;
}

template <class T>
int destroy(Handles<T>& pool, const T* handle, const char* function) {
  if (handle && !pool.drop(handle)) return fail(ACLNN_ERR_PARAM_INVALID, "%s: unknown or destroyed object %p", function, handle);
  return 0;
}

template <class T>
int size_of(Handles<T>& pool, const T* handle, uint64_t* size, const char* function) {
  if (!handle || !size) return fail(ACLNN_ERR_PARAM_NULLPTR, "%s: null argument", function);
  const T* found = pool.get(handle);
  if (!found) return fail(ACLNN_ERR_PARAM_INVALID, "%s: unknown or destroyed object %p", function, handle);
  *size = found->items.size();
  return 0;
}

// The tensor behind a handle, or nullptr with *code set.
const aclTensor* expect_tensor(const aclTensor* handle, const void* out, const char* function, int* code) {
  if (!handle || !out) {
    *code = fail(ACLNN_ERR_PARAM_NULLPTR, "%s: null argument", function);
    return nullptr;
  }
  const aclTensor* t = tensors().get(handle);
  *code = t ? 0 : fail(ACLNN_ERR_PARAM_INVALID, "%s: unknown or destroyed tensor %p", function, handle);
  return t;
}

// Clients release what they get with delete[] or free.
int give(const int64_t* from, int32_t n, int64_t** items, uint64_t* count, const char* function) {
  if (!count) return fail(ACLNN_ERR_PARAM_NULLPTR, "%s: null argument", function);
  *count = static_cast<uint64_t>(n);
  *items = new int64_t[n > 0 ? n : 1];
  std::memcpy(*items, from, sizeof(int64_t) * static_cast<size_t>(n));
  return 0;
}

}  // namespace

namespace cann_sim {

// The pools are never destroyed: clients and workers may use them while the process ends. aclFinalize counts what is left.
#define POOL(name, type, capacity)                              \
  Handles<type>& name() {                                       \
    static auto* pool = [] {                                    \
      count_at_finalize(#type, [] { return name().live(); });   \
      return new Handles<type>(capacity);                       \
    }();                                                        \
    return *pool;                                               \
  }
POOL(tensors, aclTensor, kTensors)
POOL(scalars, aclScalar, kObjects)
POOL(int_arrays, aclIntArray, kObjects)
POOL(float_arrays, aclFloatArray, kObjects)
POOL(bool_arrays, aclBoolArray, kObjects)
POOL(tensor_lists, aclTensorList, kObjects)
POOL(scalar_lists, aclScalarList, kObjects)
#undef POOL

int64_t element_size(aclDataType dtype) {
  switch (dtype) {
    case ACL_INT8: case ACL_UINT8: case ACL_BOOL: case ACL_HIFLOAT8: case ACL_FLOAT8_E5M2: case ACL_FLOAT8_E4M3FN:
    case ACL_FLOAT8_E8M0: return 1;
    case ACL_FLOAT16: case ACL_INT16: case ACL_UINT16: case ACL_BF16: return 2;
    case ACL_FLOAT: case ACL_INT32: case ACL_UINT32: case ACL_COMPLEX32: return 4;
    case ACL_INT64: case ACL_UINT64: case ACL_DOUBLE: case ACL_COMPLEX64: return 8;
    case ACL_COMPLEX128: return 16;
    default: return 0;
  }
}

}  // namespace cann_sim

// ---- making and destroying -------------------------------------------------------------------------------------
aclTensor* aclCreateTensor(const int64_t* viewDims, uint64_t viewDimsNum, aclDataType dataType, const int64_t* stride,
                           int64_t offset, aclFormat format, const int64_t* storageDims, uint64_t storageDimsNum,
                           void* tensorData) {
  CANN_ENTRY_POINTER("aclCreateTensor");
  aclTensor* t = tensors().make();
  if (!t) {
    fail(ACLNN_ERR_INNER, "aclCreateTensor: %zu tensors are alive", kTensors);
    return nullptr;
  }
  if (describe(*t, viewDims, viewDimsNum, dataType, stride, offset, format, storageDims, storageDimsNum, tensorData)) return t;
  tensors().drop(t);
  return nullptr;
}

aclnnStatus aclInitTensor(aclTensor* tensor, const int64_t* viewDims, uint64_t viewDimsNum, aclDataType dataType,
                          const int64_t* stride, int64_t offset, aclFormat format, const int64_t* storageDims,
                          uint64_t storageDimsNum, void* tensorDataAddr) {
  CANN_ENTRY("aclInitTensor");
  if (!tensor) return fail(ACLNN_ERR_PARAM_NULLPTR, "aclInitTensor: null tensor");
  aclTensor* t = tensors().get(tensor);
  if (!t) return fail(ACLNN_ERR_PARAM_INVALID, "aclInitTensor: unknown or destroyed tensor %p", static_cast<void*>(tensor));
  aclTensor made;
  if (!describe(made, viewDims, viewDimsNum, dataType, stride, offset, format, storageDims, storageDimsNum, tensorDataAddr))
    return ACLNN_ERR_PARAM_INVALID;
  *t = made;
  return 0;
}

aclScalar* aclCreateScalar(void* value, aclDataType dataType) {
  CANN_ENTRY_POINTER("aclCreateScalar");
  if (!value) {
    fail(ACLNN_ERR_PARAM_NULLPTR, "aclCreateScalar: null value");
    return nullptr;
  }
  aclScalar made{dataType};
  if (!set_scalar(made, value)) {
    fail(ACLNN_ERR_PARAM_INVALID, "aclCreateScalar: data type %d is not one of a scalar", dataType);
    return nullptr;
  }
  return scalars().make(made);
}

aclIntArray* aclCreateIntArray(const int64_t* value, uint64_t size) {
  CANN_ENTRY_POINTER("aclCreateIntArray");
  return make_array(int_arrays(), value, size, "aclCreateIntArray");
}
aclFloatArray* aclCreateFloatArray(const float* value, uint64_t size) {
  CANN_ENTRY_POINTER("aclCreateFloatArray");
  return make_array(float_arrays(), value, size, "aclCreateFloatArray");
}
aclBoolArray* aclCreateBoolArray(const bool* value, uint64_t size) {
  CANN_ENTRY_POINTER("aclCreateBoolArray");
  return make_array(bool_arrays(), value, size, "aclCreateBoolArray");
}
aclTensorList* aclCreateTensorList(const aclTensor* const* value, uint64_t size) {
  CANN_ENTRY_POINTER("aclCreateTensorList");
  return make_array(tensor_lists(), const_cast<aclTensor* const*>(value), size, "aclCreateTensorList");
}
aclScalarList* aclCreateScalarList(const aclScalar* const* value, uint64_t size) {
  CANN_ENTRY_POINTER("aclCreateScalarList");
  return make_array(scalar_lists(), const_cast<aclScalar* const*>(value), size, "aclCreateScalarList");
}

aclnnStatus aclDestroyTensor(const aclTensor* tensor) {
  CANN_ENTRY("aclDestroyTensor");
  return destroy(tensors(), tensor, "aclDestroyTensor");
}
aclnnStatus aclDestroyScalar(const aclScalar* scalar) {
  CANN_ENTRY("aclDestroyScalar");
  return destroy(scalars(), scalar, "aclDestroyScalar");
}
aclnnStatus aclDestroyIntArray(const aclIntArray* array) {
  CANN_ENTRY("aclDestroyIntArray");
  return destroy(int_arrays(), array, "aclDestroyIntArray");
}
aclnnStatus aclDestroyFloatArray(const aclFloatArray* array) {
  CANN_ENTRY("aclDestroyFloatArray");
  return destroy(float_arrays(), array, "aclDestroyFloatArray");
}
aclnnStatus aclDestroyBoolArray(const aclBoolArray* array) {
  CANN_ENTRY("aclDestroyBoolArray");
  return destroy(bool_arrays(), array, "aclDestroyBoolArray");
}

// A list owns its elements.
aclnnStatus aclDestroyTensorList(const aclTensorList* array) {
  CANN_ENTRY("aclDestroyTensorList");
  const aclTensorList* list = tensor_lists().get(array);
  int first = 0;
  if (list)
    for (const aclTensor* t : list->items)
      if (int code = destroy(tensors(), t, "aclDestroyTensorList")) first = first ? first : code;
  const int own = destroy(tensor_lists(), array, "aclDestroyTensorList");
  return own ? own : first;
}
aclnnStatus aclDestroyScalarList(const aclScalarList* array) {
  CANN_ENTRY("aclDestroyScalarList");
  const aclScalarList* list = scalar_lists().get(array);
  int first = 0;
  if (list)
    for (const aclScalar* s : list->items)
      if (int code = destroy(scalars(), s, "aclDestroyScalarList")) first = first ? first : code;
  const int own = destroy(scalar_lists(), array, "aclDestroyScalarList");
  return own ? own : first;
}

// ---- asking ----------------------------------------------------------------------------------------------------
aclnnStatus aclGetIntArraySize(const aclIntArray* array, uint64_t* size) {
  CANN_ENTRY("aclGetIntArraySize");
  return size_of(int_arrays(), array, size, "aclGetIntArraySize");
}
aclnnStatus aclGetFloatArraySize(const aclFloatArray* array, uint64_t* size) {
  CANN_ENTRY("aclGetFloatArraySize");
  return size_of(float_arrays(), array, size, "aclGetFloatArraySize");
}
aclnnStatus aclGetBoolArraySize(const aclBoolArray* array, uint64_t* size) {
  CANN_ENTRY("aclGetBoolArraySize");
  return size_of(bool_arrays(), array, size, "aclGetBoolArraySize");
}
aclnnStatus aclGetTensorListSize(const aclTensorList* tensorList, uint64_t* size) {
  CANN_ENTRY("aclGetTensorListSize");
  return size_of(tensor_lists(), tensorList, size, "aclGetTensorListSize");
}
aclnnStatus aclGetScalarListSize(const aclScalarList* scalarList, uint64_t* size) {
  CANN_ENTRY("aclGetScalarListSize");
  return size_of(scalar_lists(), scalarList, size, "aclGetScalarListSize");
}
aclnnStatus aclGetDataType(const aclTensor* tensor, aclDataType* dataType) {
  CANN_ENTRY("aclGetDataType");
  int code;
  if (const aclTensor* t = expect_tensor(tensor, dataType, "aclGetDataType", &code)) *dataType = t->meta.dtype;
  return code;
}
aclnnStatus aclGetFormat(const aclTensor* tensor, aclFormat* format) {
  CANN_ENTRY("aclGetFormat");
  int code;
  if (const aclTensor* t = expect_tensor(tensor, format, "aclGetFormat", &code)) *format = t->meta.format;
  return code;
}
aclnnStatus aclGetViewOffset(const aclTensor* tensor, int64_t* offset) {
  CANN_ENTRY("aclGetViewOffset");
  int code;
  if (const aclTensor* t = expect_tensor(tensor, offset, "aclGetViewOffset", &code)) *offset = t->meta.offset;
  return code;
}
aclnnStatus aclGetRawTensorAddr(const aclTensor* tensor, void** addr) {
  CANN_ENTRY("aclGetRawTensorAddr");
  int code;
  if (const aclTensor* t = expect_tensor(tensor, addr, "aclGetRawTensorAddr", &code)) *addr = t->meta.addr;
  return code;
}
aclnnStatus aclSetRawTensorAddr(aclTensor* tensor, void* addr) {
  CANN_ENTRY("aclSetRawTensorAddr");
  int code;
  if (expect_tensor(tensor, tensor, "aclSetRawTensorAddr", &code)) tensor->meta.addr = addr;
  return code;
}
aclnnStatus aclGetViewShape(const aclTensor* tensor, int64_t** viewDims, uint64_t* viewDimsNum) {
  CANN_ENTRY("aclGetViewShape");
  int code;
  const aclTensor* t = expect_tensor(tensor, viewDims, "aclGetViewShape", &code);
  return t ? give(t->meta.sizes, t->meta.ndim, viewDims, viewDimsNum, "aclGetViewShape") : code;
}
aclnnStatus aclGetViewStrides(const aclTensor* tensor, int64_t** stridesValue, uint64_t* stridesNum) {
  CANN_ENTRY("aclGetViewStrides");
  int code;
  const aclTensor* t = expect_tensor(tensor, stridesValue, "aclGetViewStrides", &code);
  return t ? give(t->meta.strides, t->meta.ndim, stridesValue, stridesNum, "aclGetViewStrides") : code;
}
aclnnStatus aclGetStorageShape(const aclTensor* tensor, int64_t** storageDims, uint64_t* storageDimsNum) {
  CANN_ENTRY("aclGetStorageShape");
  int code;
  const aclTensor* t = expect_tensor(tensor, storageDims, "aclGetStorageShape", &code);
  return t ? give(t->storage_dims, t->storage_ndim, storageDims, storageDimsNum, "aclGetStorageShape") : code;
}
