// What clients prepare for offline models: data sets of buffers with descriptions. Models themselves are not there.
#include "runtime/desc.h"

struct aclmdlDataset {
  std::vector<aclDataBuffer*> buffers;   // the client's
  std::vector<aclTensorDesc*> descs;     // copies, one a buffer; nullptr: none was set

  aclmdlDataset() = default;
  aclmdlDataset(const aclmdlDataset&) = delete;
  aclmdlDataset& operator=(const aclmdlDataset&) = delete;
  ~aclmdlDataset() {
    for (aclTensorDesc* desc : descs)
      if (desc) cann_sim::tensor_descs().drop(desc);
  }
};
struct aclmdlDesc {};

namespace cann_sim {
namespace {

Handles<aclmdlDataset>& datasets() {
  static auto* pool = [] {
    count_at_finalize("aclmdlDataset", [] { return datasets().live(); });
    return new Handles<aclmdlDataset>(65536);
  }();
  return *pool;
}
Handles<aclmdlDesc>& model_descs() {
  static auto* pool = [] {
    count_at_finalize("aclmdlDesc", [] { return model_descs().live(); });
    return new Handles<aclmdlDesc>(65536);
  }();
  return *pool;
}

aclmdlDataset* find_dataset(const aclmdlDataset* dataset, const char* function) {
  aclmdlDataset* found = dataset ? datasets().get(dataset) : nullptr;
  if (!found) fail(ACL_ERROR_INVALID_PARAM, "%s: %p is not a live aclmdlDataset", function, static_cast<const void*>(dataset));
  return found;
}

}  // namespace
}  // namespace cann_sim

using namespace cann_sim;

aclmdlDataset* aclmdlCreateDataset() {
  CANN_ENTRY_POINTER("aclmdlCreateDataset");
  return datasets().make();
}

aclError aclmdlDestroyDataset(const aclmdlDataset* dataset) {
  CANN_ENTRY("aclmdlDestroyDataset");
  if (!find_dataset(dataset, "aclmdlDestroyDataset")) return ACL_ERROR_INVALID_PARAM;
  datasets().drop(dataset);              // the buffers stay the client's
  return 0;
}

aclError aclmdlAddDatasetBuffer(aclmdlDataset* dataset, aclDataBuffer* dataBuffer) {
  CANN_ENTRY("aclmdlAddDatasetBuffer");
  aclmdlDataset* found = find_dataset(dataset, "aclmdlAddDatasetBuffer");
  if (!found) return ACL_ERROR_INVALID_PARAM;
  if (!data_buffers().check(dataBuffer)) return fail(ACL_ERROR_INVALID_PARAM, "aclmdlAddDatasetBuffer: dataBuffer is not live");
  found->buffers.push_back(dataBuffer);
  found->descs.push_back(nullptr);
  return 0;
}

size_t aclmdlGetDatasetNumBuffers(const aclmdlDataset* dataset) {
  const aclmdlDataset* found = find_dataset(dataset, "aclmdlGetDatasetNumBuffers");
  return found ? found->buffers.size() : 0;
}

aclDataBuffer* aclmdlGetDatasetBuffer(const aclmdlDataset* dataset, size_t index) {
  CANN_ENTRY_POINTER("aclmdlGetDatasetBuffer");
  const aclmdlDataset* found = find_dataset(dataset, "aclmdlGetDatasetBuffer");
  if (found && index < found->buffers.size()) return found->buffers[index];
  if (found) fail(ACL_ERROR_INVALID_PARAM, "aclmdlGetDatasetBuffer: there is no buffer %zu", index);
  return nullptr;
}

aclError aclmdlSetDatasetTensorDesc(aclmdlDataset* dataset, aclTensorDesc* tensorDesc, size_t index) {
  CANN_ENTRY("aclmdlSetDatasetTensorDesc");
  aclmdlDataset* found = find_dataset(dataset, "aclmdlSetDatasetTensorDesc");
  if (!found) return ACL_ERROR_INVALID_PARAM;
  if (index >= found->buffers.size()) return fail(ACL_ERROR_INVALID_PARAM, "aclmdlSetDatasetTensorDesc: there is no buffer %zu", index);
  const aclTensorDesc* given = tensorDesc ? tensor_descs().get(tensorDesc) : nullptr;
  if (tensorDesc && !given) return fail(ACL_ERROR_INVALID_PARAM, "aclmdlSetDatasetTensorDesc: tensorDesc is not live");
  if (found->descs[index]) tensor_descs().drop(found->descs[index]);
  found->descs[index] = given ? tensor_descs().make(*given) : nullptr;
  return 0;
}

aclTensorDesc* aclmdlGetDatasetTensorDesc(const aclmdlDataset* dataset, size_t index) {
  CANN_ENTRY_POINTER("aclmdlGetDatasetTensorDesc");
  const aclmdlDataset* found = find_dataset(dataset, "aclmdlGetDatasetTensorDesc");
  return found && index < found->descs.size() ? found->descs[index] : nullptr;
}

// A description that no model fills: aclmdlGetDesc refuses.
aclmdlDesc* aclmdlCreateDesc() {
  CANN_ENTRY_POINTER("aclmdlCreateDesc");
  return model_descs().make();
}

aclError aclmdlDestroyDesc(aclmdlDesc* modelDesc) {
  CANN_ENTRY("aclmdlDestroyDesc");
  if (modelDesc && model_descs().drop(modelDesc)) return 0;
  return fail(ACL_ERROR_INVALID_PARAM, "aclmdlDestroyDesc: %p is not a live aclmdlDesc", static_cast<void*>(modelDesc));
}
