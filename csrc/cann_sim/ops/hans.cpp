// aclnnHansEncode and aclnnHansDecode: floats split into their bytes of exponents and the rest. What CANN writes for the exponents
// is its own and documented nowhere, so they are stored here as they are; only aclnnHansDecode can read them.
#include <cstring>

#include "ops/result.h"

namespace cann_sim {
namespace {

constexpr int64_t kHead = 512;           // bytes before the exponents; the first eight say how many there are

int64_t bytes_of(const TensorMeta& t) { return t.numel() * element_size(t.dtype); }
void expect_parts(const Call& c, int x, int mantissa, int fixed, int pdf, bool together) {
  const int64_t n = c.tensor(x).numel(), room = bytes_of(c.tensor(fixed)) + (together ? 0 : bytes_of(c.tensor(fixed + 1)));
  EXPECT(n >= 32768 && n % 64 == 0, "%s: %ld items, expected a multiple of 64 from 32768 on", c.name(), n);
  EXPECT(bytes_of(c.tensor(mantissa)) == n * (element_size(c.tensor(x).dtype) - 1), "%s: mantissa %s for %s", c.name(), describe(c.tensor(mantissa)).c_str(),
         describe(c.tensor(x)).c_str());
  for (int i : {mantissa, fixed, fixed + 1}) expect_same_dtype(c, i, x);
  expect_numel(c, pdf, 256);
  EXPECT(bytes_of(c.tensor(fixed)) >= kHead && room >= n + n / 64 + kHead, "%s: %ld bytes of fixed and var for %ld items", c.name(), room, n);
}
// Where the exponents lie: in `fixed` after its head, the rest in `var`.
template <class F> void each_part(char* fixed, int64_t fixed_bytes, char* var, int64_t n, F&& visit) {
  const int64_t first = std::min(n, fixed_bytes - kHead);
  visit(fixed + kHead, 0, first);
  if (n > first) visit(var, first, n - first);
}

// (x, pdf, statistic, reshuff, mantissa, fixed, var)
void check_encode(const Call& c) { expect_parts(c, 0, 4, 5, 1, c.integer(3)); }
void encode(Run& r) {
  const Value x = r.tensor(0).dense();
  const int64_t n = x.numel(), size = mt::itemsize(x.dtype);
  std::vector<char> exponents(static_cast<size_t>(n));
  char* mantissa = r.tensor(4).ptr<char>();
  for (int64_t i = 0; i < n; ++i) {
    const char* item = x.ptr<char>() + i * size;
    exponents[size_t(i)] = item[size - 1];
    std::memcpy(mantissa + i * (size - 1), item, size_t(size - 1));
  }
  if (r.call.integer(2)) {
    const Value counts = full({256}, mt::kInt32, 0);
    for (char e : exponents) ++counts.ptr<int32_t>()[uint8_t(e)];
    copy(r.tensor(1), counts.reshape(r.tensor(1).shape()));
  }
  char* fixed = r.tensor(5).ptr<char>();
  std::memset(fixed, 0, kHead);
  std::memcpy(fixed, &n, sizeof n);
  each_part(fixed, bytes_of(r.call.tensor(5)), r.tensor(6).ptr<char>(), n,
            [&](char* part, int64_t first, int64_t count) { std::memcpy(part, exponents.data() + first, size_t(count)); });
}

// (mantissa, fixed, var, pdf, reshuff, x)
void check_decode(const Call& c) { expect_parts(c, 5, 0, 1, 3, c.integer(4)); }
void decode(Run& r) {
  const Value made = empty(r.tensor(5).shape(), r.tensor(5).dtype), mantissa = r.tensor(0).dense(), fixed = r.tensor(1).dense(), var = r.tensor(2).dense();
  const int64_t n = made.numel(), size = mt::itemsize(made.dtype);
  int64_t stored;
  std::memcpy(&stored, fixed.data, sizeof stored);
  if (stored != n) throw DeviceFault(ACL_ERROR_RT_AICORE_EXCEPTION, "aclnnHansDecode: fixed is not what aclnnHansEncode wrote for this number of items");
  each_part(fixed.ptr<char>(), fixed.numel() * size, var.ptr<char>(), n, [&](const char* part, int64_t first, int64_t count) {
    for (int64_t i = first; i < first + count; ++i) {
      std::memcpy(made.ptr<char>() + i * size, mantissa.ptr<char>() + i * (size - 1), size_t(size - 1));
      made.ptr<char>()[i * size + size - 1] = part[i - first];
    }
  });
  copy(r.tensor(5), made);
}

const Op ops[] = {
    {"aclnnHansEncode", check_encode, encode},
    {"aclnnHansDecode", check_decode, decode},
};

}  // namespace
}  // namespace cann_sim
