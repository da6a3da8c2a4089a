// Ops by their older name: what the client passes becomes operands, which libopapi computes with (ops/older.h).
#include <cstring>
#include <string>
#include <vector>

#include "ops/older.h"
#include "runtime/desc.h"

namespace cann_sim {
namespace {

struct Operand {
  const aclTensorDesc* desc;
  const aclDataBuffer* buffer;
};

class MoveTask final : public Task {
 public:
  MoveTask(void* to, const void* from, size_t bytes) : to_(to), from_(from), bytes_(bytes) {}
  void run() override {
    Pins pins;
    memmove(pins.resolve(to_, bytes_), pins.resolve(from_, bytes_), bytes_);
  }
  const char* name() const override { return "Identity"; }
  void list_uses(std::vector<Access>& uses) const override {
    uses.push_back({from_, bytes_, false, "x", true});
    uses.push_back({to_, bytes_, true, "y"});
  }

 private:
  void* to_;
  const void* from_;
  size_t bytes_;
};

int move(const char* op, const std::vector<Operand>& in, const std::vector<Operand>& out, aclrtStream stream) {
  if (in.size() != 1 || out.size() != 1)
    return fail(ACL_ERROR_OP_INPUT_NOT_MATCH, "%s: expected one input and one output", op);
  if (in[0].desc->dtype != out[0].desc->dtype)
    return fail(ACL_ERROR_OP_OUTPUT_NOT_MATCH, "%s: the data types of input and output differ", op);
  size_t bytes = aclGetTensorDescSize(in[0].desc);
  if (bytes != aclGetTensorDescSize(out[0].desc) || bytes > in[0].buffer->size || bytes > out[0].buffer->size)
    return fail(ACL_ERROR_OP_OUTPUT_NOT_MATCH, "%s: the sizes of input and output do not fit", op);
  if (!bytes) return check_stream(stream);
  for (const void* p : {in[0].buffer->data, out[0].buffer->data})
    if (!is_device_memory(p, bytes)) return fail(ACL_ERROR_INVALID_PARAM, "%s: %p is not live device memory", op, p);
  return enqueue(stream, new MoveTask(out[0].buffer->data, in[0].buffer->data, bytes));
}

template <class Desc, class Buffer>
int collect(const char* op, int count, Desc descs, Buffer buffers, std::vector<Operand>* out) {
  if (count < 0 || (count && (!descs || !buffers))) return fail(ACL_ERROR_INVALID_PARAM, "%s: bad list of operands",
                                                                op);
  for (int i = 0; i < count; ++i) {
    if (!tensor_descs().check(descs[i]) || !data_buffers().check(buffers[i]))
      return fail(ACL_ERROR_INVALID_PARAM, "%s: operand %d is not a live description with a live buffer", op, i);
    out->push_back({descs[i], buffers[i]});
  }
  return 0;
}

// Values in host memory are read now: the client may change them when this call returns.
OlderOperand operand(const Operand& o) {
  OlderOperand made;
  made.dtype = o.desc->dtype;
  made.dims = o.desc->dims;
  made.data = o.buffer->data;
  made.bytes = o.buffer->size;
  if (o.desc->is_constant) {
    made.host = o.desc->constant;
  } else if (o.desc->placement != ACL_MEMTYPE_DEVICE && made.data) {
    const char* from = static_cast<const char*>(made.data);
    made.host.assign(from, from + made.bytes);
  }
  return made;
}

int execute(const char* op, const std::vector<Operand>& in, const std::vector<Operand>& out, const aclopAttr* attr,
            aclrtStream stream, std::map<size_t, Sizes>* found = nullptr) {
  if (attr && !op_attrs().check(attr)) return fail(ACL_ERROR_INVALID_PARAM, "%s: attr is not a live aclopAttr", op);
  if (int code = check_stream(stream)) return code;
  std::string name = op;
  if (name == "Identity" || name == "TensorMove" || name == "Flatten") return move(op, in, out, stream);
  std::vector<OlderOperand> inputs, outputs;
  for (const Operand& o : in) inputs.push_back(operand(o));
  for (const Operand& o : out) outputs.push_back(operand(o));
  return run_older(op, std::move(inputs), std::move(outputs), attr, stream, found);
}

}  // namespace
}  // namespace cann_sim

using namespace cann_sim;

aclError aclopCompileAndExecute(const char* opType, int numInputs, const aclTensorDesc* const inputDesc[],
                                const aclDataBuffer* const inputs[], int numOutputs,
                                const aclTensorDesc* const outputDesc[], aclDataBuffer* const outputs[],
                                const aclopAttr* attr, aclopEngineType, aclopCompileType, const char*,
                                aclrtStream stream) {
  CANN_ENTRY("aclopCompileAndExecute");
  if (!opType) return fail(ACL_ERROR_INVALID_PARAM, "aclopCompileAndExecute: opType is NULL");
  std::vector<Operand> in, out;
  if (int code = collect(opType, numInputs, inputDesc, inputs, &in)) return code;
  if (int code = collect(opType, numOutputs, outputDesc, outputs, &out)) return code;
  return execute(opType, in, out, attr, stream);
}

aclError aclopCompileAndExecuteV2(const char* opType, int numInputs, aclTensorDesc* inputDesc[],
                                  aclDataBuffer* inputs[], int numOutputs, aclTensorDesc* outputDesc[],
                                  aclDataBuffer* outputs[], aclopAttr* attr, aclopEngineType, aclopCompileType,
                                  const char*, aclrtStream stream) {
  CANN_ENTRY("aclopCompileAndExecuteV2");
  if (!opType) return fail(ACL_ERROR_INVALID_PARAM, "aclopCompileAndExecuteV2: opType is NULL");
  std::vector<Operand> in, out;
  if (int code = collect(opType, numInputs, inputDesc, inputs, &in)) return code;
  if (int code = collect(opType, numOutputs, outputDesc, outputs, &out)) return code;
  // The client reads the shapes that only the values tell from its descriptions, when this returns.
  std::map<size_t, Sizes> found;
  if (int code = execute(opType, in, out, attr, stream, &found)) return code;
  for (const auto& [i, sizes] : found) outputDesc[i]->dims = sizes;
  return 0;
}
