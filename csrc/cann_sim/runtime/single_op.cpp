// Ops by type and by handle (aclop): what a card runs from compiled models of single ops runs from libacl_op_compiler's table
// here, whether or not such a model was made. Loading models of ops and registering kernels refuse.
#include <dlfcn.h>

#include "runtime/desc.h"

struct aclopHandle {
  std::string type;
  std::vector<aclTensorDesc*> in, out;   // its own copies, as the attributes are
  aclopAttr* attr = nullptr;

  explicit aclopHandle(const char* op) : type(op) {}
  aclopHandle(const aclopHandle&) = delete;
  aclopHandle& operator=(const aclopHandle&) = delete;
  ~aclopHandle() {
    for (auto* descs : {&in, &out})
      for (aclTensorDesc* desc : *descs) cann_sim::tensor_descs().drop(desc);
    if (attr) cann_sim::op_attrs().drop(attr);
  }
};

namespace cann_sim {
namespace {

Handles<aclopHandle>& op_handles() {
  static auto* pool = [] {
    count_at_finalize("aclopHandle", [] { return op_handles().live(); });
    return new Handles<aclopHandle>(65536);
  }();
  return *pool;
}

using Execute = decltype(&aclopCompileAndExecute);
using ExecuteV2 = decltype(&aclopCompileAndExecuteV2);

// That library depends on this one, which asks for it when it is needed.
void* compiler(const char* name) {
  static void* const library = dlopen("libacl_op_compiler.so", RTLD_NOW);
  return library ? dlsym(library, name) : nullptr;
}

int run(const char* op, const std::vector<aclTensorDesc*>& in, const aclDataBuffer* const* inputs,
        const std::vector<aclTensorDesc*>& out, aclDataBuffer* const* outputs, const aclopAttr* attr, aclrtStream stream) {
  static const auto execute = reinterpret_cast<Execute>(compiler("aclopCompileAndExecute"));
  if (!execute) return fail(ACL_ERROR_INTERNAL_ERROR, "%s: libacl_op_compiler.so cannot be opened: %s", op, dlerror());
  return execute(op, static_cast<int>(in.size()), in.data(), inputs, static_cast<int>(out.size()), out.data(), outputs,
                 attr, ACL_ENGINE_SYS, ACL_COMPILE_SYS, nullptr, stream);
}

int copy_descs(const char* function, int count, const aclTensorDesc* const* from, std::vector<aclTensorDesc*>* to) {
  if (count < 0 || (count && !from)) return fail(ACL_ERROR_INVALID_PARAM, "%s: bad list of descriptions", function);
  for (int i = 0; i < count; ++i) {
    const aclTensorDesc* found = tensor_descs().get(from[i]);
    if (!found) return fail(ACL_ERROR_INVALID_PARAM, "%s: description %d is not live", function, i);
    to->push_back(tensor_descs().make(*found));
  }
  return 0;
}

int make_handle(const char* function, const char* op, int inputs, const aclTensorDesc* const* in, int outputs,
                const aclTensorDesc* const* out, const aclopAttr* attr, aclopHandle** handle) {
  if (!op || !handle) return fail(ACL_ERROR_INVALID_PARAM, "%s: %s is NULL", function, op ? "handle" : "opType");
  if (attr && !op_attrs().check(attr)) return fail(ACL_ERROR_INVALID_PARAM, "%s: attr is not a live aclopAttr", function);
  aclopHandle* made = op_handles().make(op);
  if (!made) return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "%s: too many handles", function);
  int code = copy_descs(function, inputs, in, &made->in);
  if (!code) code = copy_descs(function, outputs, out, &made->out);
  if (code) return op_handles().drop(made), code;
  if (attr) made->attr = op_attrs().make(*attr);
  *handle = made;
  return 0;
}

}  // namespace
}  // namespace cann_sim

using namespace cann_sim;

aclError aclopSetModelDir(const char* modelDir) {
  CANN_ENTRY("aclopSetModelDir");
  return modelDir ? 0 : fail(ACL_ERROR_INVALID_PARAM, "aclopSetModelDir: modelDir is NULL");
}

aclError aclopSetMaxOpQueueNum(uint64_t maxOpNum) {
  CANN_ENTRY("aclopSetMaxOpQueueNum");
  return maxOpNum ? 0 : fail(ACL_ERROR_INVALID_PARAM, "aclopSetMaxOpQueueNum: maxOpNum is 0");
}

aclError aclopExecute(const char* opType, int numInputs, const aclTensorDesc* const inputDesc[],
                      const aclDataBuffer* const inputs[], int numOutputs, const aclTensorDesc* const outputDesc[],
                      aclDataBuffer* const outputs[], const aclopAttr* attr, aclrtStream stream) {
  CANN_ENTRY("aclopExecute");
  aclopHandle* handle = nullptr;
  if (int code = make_handle("aclopExecute", opType, numInputs, inputDesc, numOutputs, outputDesc, attr, &handle)) return code;
  const int code = run(opType, handle->in, inputs, handle->out, outputs, attr, stream);
  op_handles().drop(handle);
  return code;
}

aclError aclopExecuteV2(const char* opType, int numInputs, aclTensorDesc* inputDesc[], aclDataBuffer* inputs[], int numOutputs,
                        aclTensorDesc* outputDesc[], aclDataBuffer* outputs[], aclopAttr* attr, aclrtStream stream) {
  CANN_ENTRY("aclopExecuteV2");
  static const auto execute = reinterpret_cast<ExecuteV2>(compiler("aclopCompileAndExecuteV2"));
  if (!execute) return fail(ACL_ERROR_INTERNAL_ERROR, "aclopExecuteV2: libacl_op_compiler.so cannot be opened: %s", dlerror());
  return execute(opType, numInputs, inputDesc, inputs, numOutputs, outputDesc, outputs, attr, ACL_ENGINE_SYS, ACL_COMPILE_SYS,
                 nullptr, stream);
}

aclError aclopCreateHandle(const char* opType, int numInputs, const aclTensorDesc* const inputDesc[], int numOutputs,
                           const aclTensorDesc* const outputDesc[], const aclopAttr* opAttr, aclopHandle** handle) {
  CANN_ENTRY("aclopCreateHandle");
  return make_handle("aclopCreateHandle", opType, numInputs, inputDesc, numOutputs, outputDesc, opAttr, handle);
}

aclError aclopCreateHandleForCast(aclTensorDesc* srcDesc, aclTensorDesc* dstDesc, uint8_t, aclopHandle** handle) {
  CANN_ENTRY("aclopCreateHandleForCast");
  return make_handle("aclopCreateHandleForCast", "Cast", 1, &srcDesc, 1, &dstDesc, nullptr, handle);
}

void aclopDestroyHandle(aclopHandle* handle) { op_handles().drop(handle); }

aclError aclopExecWithHandle(aclopHandle* handle, int numInputs, const aclDataBuffer* const inputs[], int numOutputs,
                             aclDataBuffer* const outputs[], aclrtStream stream) {
  CANN_ENTRY("aclopExecWithHandle");
  const aclopHandle* found = handle ? op_handles().get(handle) : nullptr;
  if (!found) return fail(ACL_ERROR_INVALID_PARAM, "aclopExecWithHandle: %p is not a live handle", static_cast<void*>(handle));
  if (numInputs < 0 || size_t(numInputs) != found->in.size())
    return fail(ACL_ERROR_OP_INPUT_NOT_MATCH, "%s: expected %zu inputs, got %d", found->type.c_str(), found->in.size(), numInputs);
  if (numOutputs < 0 || size_t(numOutputs) != found->out.size())
    return fail(ACL_ERROR_OP_OUTPUT_NOT_MATCH, "%s: expected %zu outputs, got %d", found->type.c_str(), found->out.size(), numOutputs);
  return run(found->type.c_str(), found->in, inputs, found->out, outputs, found->attr, stream);
}

aclError aclopCast(const aclTensorDesc* srcDesc, const aclDataBuffer* srcBuffer, const aclTensorDesc* dstDesc,
                   aclDataBuffer* dstBuffer, uint8_t, aclrtStream stream) {
  CANN_ENTRY("aclopCast");
  aclopHandle* handle = nullptr;
  if (int code = make_handle("aclopCast", "Cast", 1, &srcDesc, 1, &dstDesc, nullptr, &handle)) return code;
  const int code = run("Cast", handle->in, &srcBuffer, handle->out, &dstBuffer, nullptr, stream);
  op_handles().drop(handle);
  return code;
}
