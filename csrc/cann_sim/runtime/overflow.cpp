// The overflow status of a device, read and cleared by tasks, and reductions in memory that no op is needed for.
#include "runtime/overflow.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/allocation.h"
#include "runtime/stream.h"
#include "scalar.h"

namespace cann_sim {
namespace {

constexpr size_t kStatusBytes = 64;     // what CANN asks clients to allocate

// By device: results that were not finite since the status was cleared.
std::atomic<uint64_t>& status_of(const Device& d) {
  static auto* all = new std::atomic<uint64_t>[64]();
  return all[d.id];
}

class ReadStatusTask final : public ControlTask {
 public:
  explicit ReadStatusTask(void* out) : out_(out) {}
  void run() override {
    Pins pins;
    auto* to = static_cast<uint64_t*>(pins.resolve(out_, kStatusBytes));
    std::memset(to, 0, kStatusBytes);
    to[0] = status_of(Stream::of_this_worker()->device).load();
  }
  const char* name() const override { return "aclrtGetOverflowStatus"; }
  void list_uses(std::vector<Access>& uses) const override { uses.push_back({out_, kStatusBytes, true, "outputAddr"}); }

 private:
  void* out_;
};

class ClearStatusTask final : public ControlTask {
 public:
  void run() override { status_of(Stream::of_this_worker()->device) = 0; }
  const char* name() const override { return "aclrtResetOverflowStatus"; }
};

int read_status(void* out, uint64_t size, aclrtStream stream, const char* function) {
  if (!out) return fail(ACL_ERROR_INVALID_PARAM, "%s: outputAddr is NULL", function);
  if (size < kStatusBytes || !is_device_memory(out, kStatusBytes))
    return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: expected %zu bytes of device memory, got %llu at %p", function, kStatusBytes,
                static_cast<unsigned long long>(size), out);
  return enqueue(stream, new ReadStatusTask(out));
}

// ---- reductions ---------------------------------------------------------------------------------------------
template <class T, class Load, class Store>
void reduce(void* dst, const void* src, uint64_t n, aclrtReduceKind kind, Load load, Store store) {
  auto to = static_cast<T*>(dst);
  auto from = static_cast<const T*>(src);
  for (uint64_t i = 0; i < n; ++i) {
    auto a = load(to[i]), b = load(from[i]);
    if (kind == ACL_RT_MEMCPY_SDMA_AUTOMATIC_SUM) a = static_cast<decltype(a)>(a + b);
    else if (kind == ACL_RT_MEMCPY_SDMA_AUTOMATIC_MAX) a = std::max(a, b);
    else a = std::min(a, b);
    to[i] = store(a);
  }
}
template <class T>
float wide(T half) { return mt::to_float(half); }
template <class T>
void reduce_plain(void* dst, const void* src, uint64_t n, aclrtReduceKind kind) {
  auto same = [](T x) { return x; };
  reduce<T>(dst, src, n, kind, same, same);
}

size_t item_size(aclDataType type) {
  switch (type) {
    case ACL_FLOAT: case ACL_INT32: return 4;
    case ACL_FLOAT16: case ACL_BF16: case ACL_INT16: return 2;
    case ACL_INT8: case ACL_UINT8: return 1;
    default: return 0;
  }
}

class ReduceTask final : public Task {
 public:
  ReduceTask(void* dst, const void* src, uint64_t count, aclrtReduceKind kind, aclDataType type)
      : dst_(dst), src_(src), count_(count), kind_(kind), type_(type) {}
  void run() override {
    Pins pins;
    const size_t bytes = count_ * item_size(type_);
    void* to = pins.resolve(dst_, bytes);
    const void* from = pins.resolve(src_, bytes);
    switch (type_) {
      case ACL_FLOAT: return reduce_plain<float>(to, from, count_, kind_);
      case ACL_INT32: return reduce_plain<int32_t>(to, from, count_, kind_);
      case ACL_INT16: return reduce_plain<int16_t>(to, from, count_, kind_);
      case ACL_INT8: return reduce_plain<int8_t>(to, from, count_, kind_);
      case ACL_UINT8: return reduce_plain<uint8_t>(to, from, count_, kind_);
      case ACL_FLOAT16: return reduce<mt::f16>(to, from, count_, kind_, wide<mt::f16>, mt::to_f16);
      default: return reduce<mt::bf16>(to, from, count_, kind_, wide<mt::bf16>, mt::to_bf16);
    }
  }
  const char* name() const override { return "aclrtReduceAsync"; }
  void list_uses(std::vector<Access>& uses) const override {
    const size_t bytes = count_ * item_size(type_);
    uses.push_back({src_, bytes, false, "src", true});
    uses.push_back({dst_, bytes, false, "dst"});
    uses.push_back({dst_, bytes, true, "dst"});
  }

 private:
  void* dst_;
  const void* src_;
  uint64_t count_;
  aclrtReduceKind kind_;
  aclDataType type_;
};

}  // namespace

bool notes_overflow() {
  const Stream* worker = Stream::of_this_worker();
  return worker && worker->device.saturation.load(std::memory_order_relaxed) == ACL_RT_OVERFLOW_MODE_SATURATION;
}

void note_overflow() { status_of(Stream::of_this_worker()->device) = 1; }
bool has_overflowed() { return status_of(Stream::of_this_worker()->device).load() != 0; }
void clear_overflow() { status_of(Stream::of_this_worker()->device) = 0; }

}  // namespace cann_sim

using namespace cann_sim;

aclError aclrtGetOverflowStatus(void* outputAddr, size_t outputSize, aclrtStream stream) {
  CANN_ENTRY("aclrtGetOverflowStatus");
  return read_status(outputAddr, outputSize, stream, "aclrtGetOverflowStatus");
}

aclError aclrtResetOverflowStatus(aclrtStream stream) {
  CANN_ENTRY("aclrtResetOverflowStatus");
  return enqueue(stream, new ClearStatusTask);
}

aclError aclrtGetFloatOverflowStatus(void* outputAddr, uint64_t outputSize, aclrtStream stream) {
  CANN_ENTRY("aclrtGetFloatOverflowStatus");
  return read_status(outputAddr, outputSize, stream, "aclrtGetFloatOverflowStatus");
}

aclError aclrtResetFloatOverflowStatus(aclrtStream stream) {
  CANN_ENTRY("aclrtResetFloatOverflowStatus");
  return enqueue(stream, new ClearStatusTask);
}

aclError aclrtNpuGetFloatOverFlowStatus(void* outputAddr, uint64_t outputSize, uint32_t, aclrtStream stream) {
  CANN_ENTRY("aclrtNpuGetFloatOverFlowStatus");
  return read_status(outputAddr, outputSize, stream, "aclrtNpuGetFloatOverFlowStatus");
}

aclError aclrtNpuClearFloatOverFlowStatus(uint32_t, aclrtStream stream) {
  CANN_ENTRY("aclrtNpuClearFloatOverFlowStatus");
  return enqueue(stream, new ClearStatusTask);
}

aclError aclrtReduceAsync(void* dst, const void* src, uint64_t count, aclrtReduceKind kind, aclDataType type,
                          aclrtStream stream, void*) {
  CANN_ENTRY("aclrtReduceAsync");
  if (!dst || !src) return fail(ACL_ERROR_INVALID_PARAM, "aclrtReduceAsync: %s is NULL", dst ? "src" : "dst");
  if (kind < ACL_RT_MEMCPY_SDMA_AUTOMATIC_SUM || kind > ACL_RT_MEMCPY_SDMA_AUTOMATIC_MIN)
    return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "aclrtReduceAsync: sum, max and min, got kind %d", kind);
  const size_t size = item_size(type);
  if (!size) return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "aclrtReduceAsync: data type %d is not reduced", type);
  if (count > SIZE_MAX / size) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtReduceAsync: the count is too large");
  for (const void* p : {static_cast<const void*>(dst), src})
    if (!is_device_memory(p, count * size))
      return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtReduceAsync: %s", describe_memory(p, count * size).c_str());
  return count ? enqueue(stream, new ReduceTask(dst, src, count, kind, type)) : check_stream(stream, "aclrtReduceAsync");
}
