// Random numbers made by a task: Philox4x32-10 keyed by the seed, from the 128-bit counter that stands in device memory.
//
// The generator, the types and the distributions are CANN's; how its words become numbers is not documented, so the
// numbers are not those of a card. The counter is read, not moved: clients count for themselves.
#include <array>
#include <cmath>
#include <cstring>

#include "runtime/allocation.h"
#include "runtime/stream.h"
#include "scalar.h"

namespace cann_sim {
namespace {

constexpr size_t kCounterBytes = 16;
using Words = std::array<uint32_t, 4>;

Words philox(Words counter, uint64_t seed) {
  auto low = static_cast<uint32_t>(seed), high = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round, low += 0x9E3779B9u, high += 0xBB67AE85u) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0], b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ low, static_cast<uint32_t>(b), static_cast<uint32_t>(a >> 32) ^ counter[3] ^ high,
               static_cast<uint32_t>(a)};
  }
  return counter;
}

// Words one after another.
class Source {
 public:
  Source(const void* counter, uint64_t seed) : seed_(seed) { std::memcpy(counter_.data(), counter, kCounterBytes); }
  uint32_t word() {
    if (next_ == 4) {
      words_ = philox(counter_, seed_);
      for (uint32_t& part : counter_)
        if (++part) break;
      next_ = 0;
    }
    return words_[next_++];
  }
  uint64_t long_word() {
    const uint64_t low = word();
    return low | uint64_t{word()} << 32;
  }
  double unit() { return (word() >> 8) * 0x1p-24; }  // in [0, 1)
  double normal() {
    if (kept_) {
      kept_ = false;
      return other_;
    }
    const double radius = std::sqrt(-2 * std::log(1 - unit())), angle = 2 * M_PI * unit();
    kept_ = true;
    other_ = radius * std::sin(angle);
    return radius * std::cos(angle);
  }
  double truncated() {  // within two deviations
    for (;;)
      if (const double x = normal(); std::fabs(x) <= 2) return x;
  }

 private:
  Words counter_{}, words_{};
  uint64_t seed_;
  size_t next_ = 4;
  double other_ = 0;
  bool kept_ = false;
};

size_t item_size(aclDataType type) {
  switch (type) {
    case ACL_FLOAT: case ACL_INT32: case ACL_UINT32: return 4;
    case ACL_FLOAT16: case ACL_BF16: return 2;
    case ACL_INT64: case ACL_UINT64: return 8;
    default: return 0;
  }
}
bool is_float(aclDataType type) { return type == ACL_FLOAT || type == ACL_FLOAT16 || type == ACL_BF16; }

const void* address(const aclrtRandomParaInfo& p) {
  const void* at;
  std::memcpy(&at, p.valueOrAddr, sizeof at);
  return at;
}
// The bytes of a parameter, which stand in the task or in device memory.
uint64_t bits_of(const aclrtRandomParaInfo& p, size_t bytes) {
  uint64_t value = 0;
  if (p.isAddr) {
    Pins pins;
    std::memcpy(&value, pins.resolve(const_cast<void*>(address(p)), bytes), bytes);
  } else {
    std::memcpy(&value, p.valueOrAddr, bytes);
  }
  return value;
}
uint64_t whole(const aclrtRandomParaInfo& p) { return bits_of(p, p.isAddr || p.size > 4 ? 8 : 4); }

double load(uint64_t bits, aclDataType type) {
  if (type == ACL_FLOAT16) return mt::to_float(mt::f16{static_cast<uint16_t>(bits)});
  if (type == ACL_BF16) return mt::to_float(mt::bf16{static_cast<uint16_t>(bits)});
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}
void store(void* out, uint64_t i, double value, aclDataType type) {
  const auto f = static_cast<float>(value);
  if (type == ACL_FLOAT) static_cast<float*>(out)[i] = f;
  else static_cast<uint16_t*>(out)[i] = type == ACL_FLOAT16 ? mt::to_f16(f).bits : mt::to_bf16(f).bits;
}

size_t result_bytes(const aclrtRandomNumTaskInfo& t, uint64_t count) {
  return t.randomNumFuncParaInfo.funcType == ACL_RT_RANDOM_NUM_FUNC_TYPE_DROPOUT_BITMASK ? count / 8 + (count % 8 != 0) : count * item_size(t.dataType);
}

class RandomTask final : public Task {
 public:
  explicit RandomTask(const aclrtRandomNumTaskInfo& t) : t_(t) {}
  void run() override {
    const uint64_t count = whole(t_.randomNum);
    Pins pins;
    Source from(pins.resolve(t_.randomCounterAddr, kCounterBytes), whole(t_.randomSeed));
    void* out = count ? pins.resolve(t_.randomResultAddr, result_bytes(t_, count)) : nullptr;
    const auto& param = t_.randomNumFuncParaInfo.paramInfo;
    switch (t_.randomNumFuncParaInfo.funcType) {
      case ACL_RT_RANDOM_NUM_FUNC_TYPE_DROPOUT_BITMASK: return mask(from, static_cast<uint8_t*>(out), count, number(param.dropoutBitmaskInfo.dropoutRation));
      case ACL_RT_RANDOM_NUM_FUNC_TYPE_UNIFORM_DIS:
        return is_float(t_.dataType) ? uniform(from, out, count, number(param.uniformDisInfo.min), number(param.uniformDisInfo.max)) : integers(from, out, count);
      default: return normal(from, out, count, number(param.normalDisInfo.mean), number(param.normalDisInfo.stddev));
    }
  }
  const char* name() const override { return "aclrtRandomNumAsync"; }
  void list_uses(std::vector<Access>& uses) const override {
    uses.push_back({t_.randomCounterAddr, kCounterBytes, false, "randomCounterAddr", true});
    if (t_.randomNum.isAddr) uses.push_back({address(t_.randomNum), 8, false, "randomNum", true});
    else uses.push_back({t_.randomResultAddr, result_bytes(t_, whole(t_.randomNum)), true, "randomResultAddr"});
    if (t_.randomSeed.isAddr) uses.push_back({address(t_.randomSeed), 8, false, "randomSeed", true});
  }

 private:
  double number(const aclrtRandomParaInfo& p) const { return load(bits_of(p, item_size(t_.dataType)), t_.dataType); }
  // A bit is 1 where the item is kept.
  static void mask(Source& from, uint8_t* out, uint64_t count, double ratio) {
    for (uint64_t i = 0; i < count; ++i) {
      if (i % 8 == 0) out[i / 8] = 0;
      if (from.unit() >= ratio) out[i / 8] = static_cast<uint8_t>(out[i / 8] | 1u << i % 8);
    }
  }
  void uniform(Source& from, void* out, uint64_t count, double least, double most) const {
    for (uint64_t i = 0; i < count; ++i) store(out, i, least + (most - least) * from.unit(), t_.dataType);
  }
  void normal(Source& from, void* out, uint64_t count, double mean, double deviation) const {
    const bool cut = t_.randomNumFuncParaInfo.funcType == ACL_RT_RANDOM_NUM_FUNC_TYPE_TRUNCATED_NORMAL_DIS;
    for (uint64_t i = 0; i < count; ++i) store(out, i, mean + deviation * (cut ? from.truncated() : from.normal()), t_.dataType);
  }
  // From min, below max; in the arithmetic of the bits, which is that of signed numbers too.
  void integers(Source& from, void* out, uint64_t count) const {
    const size_t bytes = item_size(t_.dataType);
    const auto& limits = t_.randomNumFuncParaInfo.paramInfo.uniformDisInfo;
    const uint64_t least = bits_of(limits.min, bytes);
    uint64_t range = bits_of(limits.max, bytes) - least;
    if (bytes == 4) range &= 0xFFFFFFFFu;
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t value = least + (range ? from.long_word() % range : 0);
      std::memcpy(static_cast<char*>(out) + i * bytes, &value, bytes);
    }
  }

  aclrtRandomNumTaskInfo t_;
};

int expect_memory(const void* p, size_t bytes, const char* name) {
  if (is_device_memory(p, bytes)) return ACL_SUCCESS;
  return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtRandomNumAsync: %s: %s", name, describe_memory(p, bytes).c_str());
}

}  // namespace
}  // namespace cann_sim

using namespace cann_sim;

aclError aclrtRandomNumAsync(const aclrtRandomNumTaskInfo* taskInfo, const aclrtStream stream, void* reserve) {
  CANN_ENTRY("aclrtRandomNumAsync");
  if (!taskInfo) return fail(ACL_ERROR_INVALID_PARAM, "aclrtRandomNumAsync: taskInfo is NULL");
  if (reserve) return fail(ACL_ERROR_INVALID_PARAM, "aclrtRandomNumAsync: reserve must be NULL");
  const aclrtRandomNumTaskInfo& t = *taskInfo;
  const auto kind = t.randomNumFuncParaInfo.funcType;
  if (!t.randomResultAddr || !t.randomCounterAddr)
    return fail(ACL_ERROR_INVALID_PARAM, "aclrtRandomNumAsync: %s is NULL", t.randomResultAddr ? "randomCounterAddr" : "randomResultAddr");
  if (kind < ACL_RT_RANDOM_NUM_FUNC_TYPE_DROPOUT_BITMASK || kind > ACL_RT_RANDOM_NUM_FUNC_TYPE_TRUNCATED_NORMAL_DIS)
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtRandomNumAsync: function type %d", kind);
  if (!item_size(t.dataType) || (kind != ACL_RT_RANDOM_NUM_FUNC_TYPE_UNIFORM_DIS && !is_float(t.dataType)))
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtRandomNumAsync: data type %d with function type %d", t.dataType, kind);
  if (int rc = expect_memory(t.randomCounterAddr, kCounterBytes, "randomCounterAddr")) return rc;
  for (const aclrtRandomParaInfo* p : {&t.randomSeed, &t.randomNum})
    if (p->isAddr)
      if (int rc = expect_memory(address(*p), 8, p == &t.randomSeed ? "randomSeed" : "randomNum")) return rc;
  if (!t.randomNum.isAddr) {
    const uint64_t count = whole(t.randomNum);
    if (count > SIZE_MAX / 8) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtRandomNumAsync: the count is too large");
    if (int rc = expect_memory(t.randomResultAddr, result_bytes(t, count), "randomResultAddr")) return rc;
  }
  return enqueue(stream, new RandomTask(t));
}
