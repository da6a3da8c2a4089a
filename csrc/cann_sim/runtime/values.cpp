// Words of device memory that streams write and wait for, cache hints, and the attributes of a stream.
#include <cstring>

#include "runtime/allocation.h"
#include "runtime/stream.h"

namespace cann_sim {
namespace {

class WriteTask final : public ControlTask {
 public:
  WriteTask(void* at, uint64_t value) : at_(at), value_(value) {}
  void run() override {
    Pins pins;
    if (settings().mode == Mode::null) return;
    void* word = pins.resolve(at_, 8);
    if (following_order()) note_word_written(at_);
    __atomic_store_n(static_cast<uint64_t*>(word), value_, __ATOMIC_SEQ_CST);
    bell().ring();
  }
  const char* name() const override { return "aclrtValueWrite"; }

 private:
  void* at_;
  uint64_t value_;
};

class WaitForValueTask final : public ControlTask {
 public:
  WaitForValueTask(void* at, uint64_t value, uint32_t how) : at_(at), value_(value), how_(how) {}
  void run() override {
    if (settings().mode == Mode::null) return;
    // Copies and ops may write the word as well, and ring no bell: look again every now and then.
    while (!holds() && !Stream::waits_in_vain())
      bell().wait([this] { return holds() || Stream::waits_in_vain(); }, Clock::now() + std::chrono::milliseconds(1));
    if (following_order()) note_word_awaited(at_);
  }
  const char* name() const override { return "aclrtValueWait"; }

 private:
  bool holds() const {
    Pins pins;
    uint64_t now = __atomic_load_n(static_cast<uint64_t*>(pins.resolve(at_, 8)), __ATOMIC_SEQ_CST);
    switch (how_) {
      case ACL_STREAM_WAIT_VALUE_GEQ: return now >= value_;
      case ACL_STREAM_WAIT_VALUE_EQ: return now == value_;
      case ACL_STREAM_WAIT_VALUE_AND: return (now & value_) != 0;
    }
    return ~(now | value_) != 0;      // ACL_STREAM_WAIT_VALUE_NOR
  }
  void* at_;
  uint64_t value_;
  uint32_t how_;
};

class NothingTask final : public Task {  // keeps its place in the queue and in the trace
 public:
  void run() override {}
  const char* name() const override { return "aclrtCmoAsync"; }
};

int check_word(const void* at, aclrtStream stream, const char* function) {
  if (!at) return fail(ACL_ERROR_INVALID_PARAM, "%s: devAddr is NULL", function);
  if (reinterpret_cast<uintptr_t>(at) % 8) return fail(ACL_ERROR_RT_ADDR_UNALIGNED, "%s: %p is not aligned to 8 bytes",
                                                       function, at);
  if (!is_device_memory(at, 8)) return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: %s", function, describe_memory(at,
                                                                                                            8).c_str());
  return check_stream(stream, function);
}

}  // namespace
}  // namespace cann_sim

using namespace cann_sim;

aclError aclrtValueWrite(void* devAddr, uint64_t value, uint32_t flag, aclrtStream stream) {
  CANN_ENTRY("aclrtValueWrite");
  if (flag) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtValueWrite: flag must be 0, got %u", flag);
  if (int code = check_word(devAddr, stream, "aclrtValueWrite")) return code;
  return enqueue(stream, new WriteTask(devAddr, value));
}

aclError aclrtValueWait(void* devAddr, uint64_t value, uint32_t flag, aclrtStream stream) {
  CANN_ENTRY("aclrtValueWait");
  if (flag > ACL_STREAM_WAIT_VALUE_NOR) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtValueWait: unknown flag %u",
                                                    flag);
  if (int code = check_word(devAddr, stream, "aclrtValueWait")) return code;
  return enqueue(stream, new WaitForValueTask(devAddr, value, flag));
}

aclError aclrtCmoAsync(void* src, size_t size, aclrtCmoType cmoType, aclrtStream stream) {
  CANN_ENTRY("aclrtCmoAsync");
  if (!src || !size) return fail(ACL_ERROR_INVALID_PARAM, "aclrtCmoAsync: %s", src ? "size is 0" : "src is NULL");
  if (cmoType < ACL_RT_CMO_TYPE_PREFETCH || cmoType > ACL_RT_CMO_TYPE_FLUSH)
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtCmoAsync: %d is not a kind of cache operation", cmoType);
  if (!is_device_memory(src, size))
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtCmoAsync: %s", describe_memory(src, size).c_str());
  if (int code = check_stream(stream, "aclrtCmoAsync")) return code;
  return enqueue(stream, new NothingTask);
}

// ---- attributes of streams ------------------------------------------------------------------------------------

aclError aclrtSetStreamAttribute(aclrtStream stream, aclrtStreamAttr stmAttrType, aclrtStreamAttrValue* value) {
  CANN_ENTRY("aclrtSetStreamAttribute");
  if (!value) return fail(ACL_ERROR_INVALID_PARAM, "aclrtSetStreamAttribute: value is NULL");
  switch (stmAttrType) {
    case ACL_STREAM_ATTR_FAILURE_MODE: return aclrtSetStreamFailureMode(stream, value->failureMode);
    case ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK: return aclrtSetStreamOverflowSwitch(stream, value->overflowSwitch);
    case ACL_STREAM_ATTR_USER_CUSTOM_TAG:
    case ACL_STREAM_ATTR_CACHE_OP_INFO: break;
    default: return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtSetStreamAttribute: attribute %d cannot be set",
                         stmAttrType);
  }
  int code = 0;
  StreamHandle* found = find_stream(stream, "aclrtSetStreamAttribute", &code);
  if (!found) return code;
  Stream& s = *found->stream;
  if (stmAttrType == ACL_STREAM_ATTR_USER_CUSTOM_TAG) s.custom_tag = value->userCustomTag;
  else s.caches_op_info = value->cacheOpInfoSwitch;
  return 0;
}

aclError aclrtGetStreamAttribute(aclrtStream stream, aclrtStreamAttr stmAttrType, aclrtStreamAttrValue* value) {
  CANN_ENTRY("aclrtGetStreamAttribute");
  if (!value) return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetStreamAttribute: value is NULL");
  int code = 0;
  StreamHandle* found = find_stream(stream, "aclrtGetStreamAttribute", &code);
  if (!found) return code;
  const Stream& s = *found->stream;
  *value = {};
  switch (stmAttrType) {
    case ACL_STREAM_ATTR_FAILURE_MODE: value->failureMode = s.stop_on_failure.load(); return 0;
    case ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK: value->overflowSwitch = s.overflow_switch.load(); return 0;
    case ACL_STREAM_ATTR_USER_CUSTOM_TAG: value->userCustomTag = s.custom_tag.load(); return 0;
    case ACL_STREAM_ATTR_CACHE_OP_INFO: value->cacheOpInfoSwitch = s.caches_op_info.load(); return 0;
    case ACL_STREAM_ATTR_PRIORITY: value->streamPriority = s.priority; return 0;
  }
  return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtGetStreamAttribute: attribute %d is not known", stmAttrType);
}

// ---- streams made from a configuration ------------------------------------------------------------------------

aclrtStreamConfigHandle* aclrtCreateStreamConfigHandle() {
  CANN_ENTRY_POINTER("aclrtCreateStreamConfigHandle");
  return new aclrtStreamConfigHandle{};
}

aclError aclrtDestroyStreamConfigHandle(aclrtStreamConfigHandle* handle) {
  CANN_ENTRY("aclrtDestroyStreamConfigHandle");
  if (!handle) return fail(ACL_ERROR_INVALID_PARAM, "aclrtDestroyStreamConfigHandle: handle is NULL");
  delete handle;
  return 0;
}

aclError aclrtSetStreamConfigOpt(aclrtStreamConfigHandle* handle, aclrtStreamConfigAttr attr, const void* attrValue,
                                 size_t valueSize) {
  CANN_ENTRY("aclrtSetStreamConfigOpt");
  if (!handle || !attrValue)
    return fail(ACL_ERROR_INVALID_PARAM, "aclrtSetStreamConfigOpt: %s is NULL", handle ? "attrValue" : "handle");
  struct { void* at; size_t size; } const fields[] = {  // by aclrtStreamConfigAttr
      {&handle->workptr, sizeof handle->workptr}, {&handle->workSize, sizeof handle->workSize},
      {&handle->flag, sizeof handle->flag}, {&handle->priority, sizeof handle->priority}};
  if (attr < ACL_RT_STREAM_WORK_ADDR_PTR || attr > ACL_RT_STREAM_PRIORITY)
    return fail(ACL_ERROR_INVALID_PARAM, "aclrtSetStreamConfigOpt: attribute %d is not known", attr);
  if (valueSize != fields[attr].size)
    return fail(ACL_ERROR_INVALID_PARAM, "aclrtSetStreamConfigOpt: expected %zu bytes, got %zu", fields[attr].size,
                valueSize);
  memcpy(fields[attr].at, attrValue, valueSize);
  return 0;
}

aclError aclrtCreateStreamV2(aclrtStream* stream, const aclrtStreamConfigHandle* handle) {
  CANN_ENTRY("aclrtCreateStreamV2");
  if (!handle) return fail(ACL_ERROR_INVALID_PARAM, "aclrtCreateStreamV2: handle is NULL");
  return aclrtCreateStreamWithConfig(stream, handle->priority, static_cast<uint32_t>(handle->flag));
}
