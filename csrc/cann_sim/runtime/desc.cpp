// Data buffers, tensor descriptions and op attributes: made, filled, read, destroyed. Their ops: libacl_op_compiler.
#include "runtime/desc.h"

#include <cstring>

#include "runtime/memory.h"

namespace cann_sim {

#define POOL(name, type)                                        \
  Handles<type>& name() {                                       \
    static auto* pool = [] {                                    \
      count_at_finalize(#type, [] { return name().live(); });   \
      return new Handles<type>(1 << 20);                        \
    }();                                                        \
    return *pool;                                               \
  }
POOL(data_buffers, aclDataBuffer)
POOL(tensor_descs, aclTensorDesc)
POOL(op_attrs, aclopAttr)
#undef POOL

namespace {

// A live object of the pool, or nullptr with the failure noted.
template <class T>
T* find(Handles<T>& pool, const T* handle, const char* function, const char* what) {
  T* found = handle ? pool.get(handle) : nullptr;
  if (!found) fail(ACL_ERROR_INVALID_PARAM, "%s: %p is not a live %s", function, static_cast<const void*>(handle),
                   what);
  return found;
}
aclTensorDesc* find_desc(const aclTensorDesc* desc, const char* function) {
  return find(tensor_descs(), desc, function, "aclTensorDesc");
}
aclDataBuffer* find_buffer(const aclDataBuffer* buffer, const char* function) {
  return find(data_buffers(), buffer, function, "aclDataBuffer");
}

int set_dims(std::vector<int64_t>* out, int count, const int64_t* dims, const char* function) {
  if (count < 0 || (count && !dims))
    return fail(ACL_ERROR_INVALID_PARAM, "%s: %s", function, count < 0 ? "numDims is negative" : "dims is NULL");
  out->assign(dims, dims + count);
  return 0;
}

size_t element_count(const aclTensorDesc& d) {
  size_t n = 1;
  for (int64_t size : d.dims) {
    if (size < 0) return 0;           // not known
    n *= static_cast<size_t>(size);
  }
  return n;
}

}  // namespace
}  // namespace cann_sim

using namespace cann_sim;

// ---- buffers ------------------------------------------------------------------------------------------------

aclDataBuffer* aclCreateDataBuffer(void* data, size_t size) {
  CANN_ENTRY_POINTER("aclCreateDataBuffer");
  return data_buffers().make(data, size);
}

aclError aclDestroyDataBuffer(const aclDataBuffer* dataBuffer) {
  CANN_ENTRY("aclDestroyDataBuffer");
  if (!find_buffer(dataBuffer, "aclDestroyDataBuffer")) return ACL_ERROR_INVALID_PARAM;
  data_buffers().drop(dataBuffer);
  return 0;
}

aclError aclUpdateDataBuffer(aclDataBuffer* dataBuffer, void* data, size_t size) {
  CANN_ENTRY("aclUpdateDataBuffer");
  aclDataBuffer* b = find_buffer(dataBuffer, "aclUpdateDataBuffer");
  if (!b) return ACL_ERROR_INVALID_PARAM;
  b->data = data;
  b->size = size;
  return 0;
}

void* aclGetDataBufferAddr(const aclDataBuffer* dataBuffer) {
  aclDataBuffer* b = find_buffer(dataBuffer, "aclGetDataBufferAddr");
  return b ? b->data : nullptr;
}
size_t aclGetDataBufferSizeV2(const aclDataBuffer* dataBuffer) {
  aclDataBuffer* b = find_buffer(dataBuffer, "aclGetDataBufferSizeV2");
  return b ? b->size : 0;
}
uint32_t aclGetDataBufferSize(const aclDataBuffer* dataBuffer) {
  return static_cast<uint32_t>(aclGetDataBufferSizeV2(dataBuffer));
}

// ---- tensor descriptions --------------------------------------------------------------------------------------

aclTensorDesc* aclCreateTensorDesc(aclDataType dataType, int numDims, const int64_t* dims, aclFormat format) {
  CANN_ENTRY_POINTER("aclCreateTensorDesc");
  std::vector<int64_t> sizes;
  if (set_dims(&sizes, numDims, dims, "aclCreateTensorDesc")) return nullptr;
  aclTensorDesc* d = tensor_descs().make();
  if (!d) return nullptr;
  d->dtype = dataType;
  d->format = format;
  d->dims = std::move(sizes);
  return d;
}

void aclDestroyTensorDesc(const aclTensorDesc* desc) {
  if (desc && find_desc(desc, "aclDestroyTensorDesc")) tensor_descs().drop(desc);
}

aclDataType aclGetTensorDescType(const aclTensorDesc* desc) {
  aclTensorDesc* d = find_desc(desc, "aclGetTensorDescType");
  return d ? d->dtype : static_cast<aclDataType>(ACL_DT_UNDEFINED);
}
aclFormat aclGetTensorDescFormat(const aclTensorDesc* desc) {
  aclTensorDesc* d = find_desc(desc, "aclGetTensorDescFormat");
  return d ? d->format : static_cast<aclFormat>(ACL_FORMAT_UNDEFINED);
}
size_t aclGetTensorDescNumDims(const aclTensorDesc* desc) {
  aclTensorDesc* d = find_desc(desc, "aclGetTensorDescNumDims");
  return d ? d->dims.size() : 0;
}
size_t aclGetTensorDescElementCount(const aclTensorDesc* desc) {
  aclTensorDesc* d = find_desc(desc, "aclGetTensorDescElementCount");
  return d ? element_count(*d) : 0;
}
size_t aclGetTensorDescSize(const aclTensorDesc* desc) {
  aclTensorDesc* d = find_desc(desc, "aclGetTensorDescSize");
  return d ? element_count(*d) * aclDataTypeSize(d->dtype) : 0;
}
const char* aclGetTensorDescName(aclTensorDesc* desc) {
  aclTensorDesc* d = find_desc(desc, "aclGetTensorDescName");
  return d ? d->name.c_str() : "";
}

aclError aclGetTensorDescDimV2(const aclTensorDesc* desc, size_t index, int64_t* dimSize) {
  CANN_ENTRY("aclGetTensorDescDimV2");
  aclTensorDesc* d = find_desc(desc, "aclGetTensorDescDimV2");
  if (!d) return ACL_ERROR_INVALID_PARAM;
  if (!dimSize || index >= d->dims.size())
    return fail(ACL_ERROR_INVALID_PARAM, "aclGetTensorDescDimV2: %s",
                dimSize ? "no such dimension" : "dimSize is NULL");
  *dimSize = d->dims[index];
  return 0;
}
int64_t aclGetTensorDescDim(const aclTensorDesc* desc, size_t index) {
  int64_t size;
  return aclGetTensorDescDimV2(desc, index, &size) ? -1 : size;
}

void aclSetTensorDescName(aclTensorDesc* desc, const char* name) {
  if (aclTensorDesc* d = find_desc(desc, "aclSetTensorDescName")) d->name = name ? name : "";
}

aclError aclSetTensorFormat(aclTensorDesc* desc, aclFormat format) {
  CANN_ENTRY("aclSetTensorFormat");
  aclTensorDesc* d = find_desc(desc, "aclSetTensorFormat");
  if (!d) return ACL_ERROR_INVALID_PARAM;
  d->storage_format = format;
  return 0;
}
aclError aclSetTensorStorageFormat(aclTensorDesc* desc, aclFormat format) {
  CANN_ENTRY("aclSetTensorStorageFormat");
  return aclSetTensorFormat(desc, format);
}

aclError aclSetTensorShape(aclTensorDesc* desc, int numDims, const int64_t* dims) {
  CANN_ENTRY("aclSetTensorShape");
  aclTensorDesc* d = find_desc(desc, "aclSetTensorShape");
  return d ? set_dims(&d->storage_dims, numDims, dims, "aclSetTensorShape") : ACL_ERROR_INVALID_PARAM;
}
aclError aclSetTensorStorageShape(aclTensorDesc* desc, int numDims, const int64_t* dims) {
  CANN_ENTRY("aclSetTensorStorageShape");
  return aclSetTensorShape(desc, numDims, dims);
}

aclError aclSetTensorOriginFormat(aclTensorDesc* desc, aclFormat format) {
  CANN_ENTRY("aclSetTensorOriginFormat");
  aclTensorDesc* d = find_desc(desc, "aclSetTensorOriginFormat");
  if (!d) return ACL_ERROR_INVALID_PARAM;
  d->origin_format = format;
  return 0;
}
aclError aclSetTensorOriginShape(aclTensorDesc* desc, int numDims, const int64_t* dims) {
  CANN_ENTRY("aclSetTensorOriginShape");
  aclTensorDesc* d = find_desc(desc, "aclSetTensorOriginShape");
  return d ? set_dims(&d->origin_dims, numDims, dims, "aclSetTensorOriginShape") : ACL_ERROR_INVALID_PARAM;
}

aclError aclSetTensorShapeRange(aclTensorDesc* desc, size_t dimsCount, int64_t dimsRange[][2]) {
  CANN_ENTRY("aclSetTensorShapeRange");
  aclTensorDesc* d = find_desc(desc, "aclSetTensorShapeRange");
  if (!d) return ACL_ERROR_INVALID_PARAM;
  if (dimsCount && !dimsRange) return fail(ACL_ERROR_INVALID_PARAM, "aclSetTensorShapeRange: dimsRange is NULL");
  d->ranges.clear();
  for (size_t i = 0; i < dimsCount; ++i) d->ranges.emplace_back(dimsRange[i][0], dimsRange[i][1]);
  return 0;
}

aclError aclSetTensorPlaceMent(aclTensorDesc* desc, aclMemType memType) {
  CANN_ENTRY("aclSetTensorPlaceMent");
  aclTensorDesc* d = find_desc(desc, "aclSetTensorPlaceMent");
  if (!d) return ACL_ERROR_INVALID_PARAM;
  if (memType < ACL_MEMTYPE_DEVICE || memType > ACL_MEMTYPE_HOST_COMPILE_INDEPENDENT)
    return fail(ACL_ERROR_INVALID_PARAM, "aclSetTensorPlaceMent: %d is not a place", memType);
  d->placement = memType;
  return 0;
}

aclError aclSetTensorConst(aclTensorDesc* desc, void* dataBuffer, size_t length) {
  CANN_ENTRY("aclSetTensorConst");
  aclTensorDesc* d = find_desc(desc, "aclSetTensorConst");
  if (!d) return ACL_ERROR_INVALID_PARAM;
  if (!dataBuffer || !length || is_device_address(dataBuffer))
    return fail(ACL_ERROR_INVALID_PARAM, "aclSetTensorConst: expected host memory with a length above 0");
  auto bytes = static_cast<const char*>(dataBuffer);
  d->constant.assign(bytes, bytes + length);
  d->is_constant = true;
  return 0;
}

aclError aclSetTensorDynamicInput(aclTensorDesc* desc, const char* dynamicInputName) {
  CANN_ENTRY("aclSetTensorDynamicInput");
  aclTensorDesc* d = find_desc(desc, "aclSetTensorDynamicInput");
  if (!d) return ACL_ERROR_INVALID_PARAM;
  if (!dynamicInputName) return fail(ACL_ERROR_INVALID_PARAM, "aclSetTensorDynamicInput: dynamicInputName is NULL");
  d->dynamic_input = dynamicInputName;
  return 0;
}

// ---- attributes -------------------------------------------------------------------------------------------------

namespace {

aclopAttr* find_attr(aclopAttr* attr, const char* name, const char* function) {
  aclopAttr* found = find(op_attrs(), attr, function, "aclopAttr");
  if (found && !name) return fail(ACL_ERROR_INVALID_PARAM, "%s: attrName is NULL", function), nullptr;
  return found;
}

template <class T, class From>
int set_list(std::map<std::string, std::vector<T>> aclopAttr::*where, aclopAttr* attr, const char* name, int count,
             const From* values, const char* function) {
  aclopAttr* a = find_attr(attr, name, function);
  if (!a) return ACL_ERROR_INVALID_PARAM;
  if (count < 0 || (count && !values)) return fail(ACL_ERROR_INVALID_PARAM, "%s: bad list of %d values", function,
                                                   count);
  (a->*where)[name].assign(values, values + count);
  return 0;
}

}  // namespace

aclopAttr* aclopCreateAttr() {
  CANN_ENTRY_POINTER("aclopCreateAttr");
  return op_attrs().make();
}

void aclopDestroyAttr(const aclopAttr* attr) {
  if (attr && find(op_attrs(), attr, "aclopDestroyAttr", "aclopAttr")) op_attrs().drop(attr);
}

aclError aclopSetAttrBool(aclopAttr* attr, const char* attrName, uint8_t attrValue) {
  CANN_ENTRY("aclopSetAttrBool");
  return set_list(&aclopAttr::ints, attr, attrName, 1, &attrValue, "aclopSetAttrBool");
}
aclError aclopSetAttrInt(aclopAttr* attr, const char* attrName, int64_t attrValue) {
  CANN_ENTRY("aclopSetAttrInt");
  return set_list(&aclopAttr::ints, attr, attrName, 1, &attrValue, "aclopSetAttrInt");
}
aclError aclopSetAttrDataType(aclopAttr* attr, const char* attrName, aclDataType attrValue) {
  CANN_ENTRY("aclopSetAttrDataType");
  return set_list(&aclopAttr::ints, attr, attrName, 1, &attrValue, "aclopSetAttrDataType");
}
aclError aclopSetAttrFloat(aclopAttr* attr, const char* attrName, float attrValue) {
  CANN_ENTRY("aclopSetAttrFloat");
  return set_list(&aclopAttr::floats, attr, attrName, 1, &attrValue, "aclopSetAttrFloat");
}
aclError aclopSetAttrString(aclopAttr* attr, const char* attrName, const char* attrValue) {
  CANN_ENTRY("aclopSetAttrString");
  if (!attrValue) return fail(ACL_ERROR_INVALID_PARAM, "aclopSetAttrString: attrValue is NULL");
  return set_list(&aclopAttr::strings, attr, attrName, 1, &attrValue, "aclopSetAttrString");
}
aclError aclopSetAttrListBool(aclopAttr* attr, const char* attrName, int numValues, const uint8_t* values) {
  CANN_ENTRY("aclopSetAttrListBool");
  return set_list(&aclopAttr::ints, attr, attrName, numValues, values, "aclopSetAttrListBool");
}
aclError aclopSetAttrListInt(aclopAttr* attr, const char* attrName, int numValues, const int64_t* values) {
  CANN_ENTRY("aclopSetAttrListInt");
  return set_list(&aclopAttr::ints, attr, attrName, numValues, values, "aclopSetAttrListInt");
}
aclError aclopSetAttrListDataType(aclopAttr* attr, const char* attrName, int numValues, const aclDataType values[]) {
  CANN_ENTRY("aclopSetAttrListDataType");
  return set_list(&aclopAttr::ints, attr, attrName, numValues, values, "aclopSetAttrListDataType");
}
aclError aclopSetAttrListFloat(aclopAttr* attr, const char* attrName, int numValues, const float* values) {
  CANN_ENTRY("aclopSetAttrListFloat");
  return set_list(&aclopAttr::floats, attr, attrName, numValues, values, "aclopSetAttrListFloat");
}
aclError aclopSetAttrListString(aclopAttr* attr, const char* attrName, int numValues, const char** values) {
  CANN_ENTRY("aclopSetAttrListString");
  return set_list(&aclopAttr::strings, attr, attrName, numValues, values, "aclopSetAttrListString");
}
aclError aclopSetAttrListListInt(aclopAttr* attr, const char* attrName, int numLists, const int* numValues,
                                 const int64_t* const values[]) {
  CANN_ENTRY("aclopSetAttrListListInt");
  aclopAttr* a = find_attr(attr, attrName, "aclopSetAttrListListInt");
  if (!a) return ACL_ERROR_INVALID_PARAM;
  if (numLists < 0 || (numLists && (!numValues || !values)))
    return fail(ACL_ERROR_INVALID_PARAM, "aclopSetAttrListListInt: bad list of %d lists", numLists);
  auto& lists = a->lists[attrName];
  lists.clear();
  for (int i = 0; i < numLists; ++i) lists.emplace_back(values[i], values[i] + numValues[i]);
  return 0;
}
