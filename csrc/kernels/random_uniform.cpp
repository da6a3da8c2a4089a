// The uniform random kernels: uniform_, random_, bernoulli, randperm; PyTorch's numbers bit for bit.
#include <limits>
#include <numeric>

#include "library.h"
#include "random_order.h"

namespace mt::rng {
namespace {

// What torch's limits say about a dtype, and the two names its messages use.
struct Limits {
  const char *name, *title;
  double low, high;
  int digits;
};
const Limits& limits_of(DType d) {
  constexpr double kMax = std::numeric_limits<double>::max();
  static const Limits table[] = {
      {"bool", "Bool", 0, 1, 1},
      {"unsigned char", "Byte", 0, 255, 8},
      {"signed char", "Char", -128, 127, 7},
      {"short int", "Short", -32768, 32767, 15},
      {"int", "Int", -0x1p31, 0x1p31 - 1, 31},
      {"long", "Long", -0x1p63, 0x1p63, 63},
      {"c10::Half", "Half", -65504, 65504, 11},
      {"c10::BFloat16", "BFloat16", -0x1.fep127, 0x1.fep127, 8},
      {"float", "Float", -0x1.fffffep127, 0x1.fffffep127, 24},
      {"double", "Double", -kMax, kMax, 53},
      {"unsigned short", "UInt16", 0, 65535, 16},
      {"unsigned int", "UInt32", 0, 0x1p32 - 1, 32},
      {"unsigned long", "UInt64", 0, 0x1p64, 64}};
  if (d >= kUInt16 && d <= kUInt64) return table[10 + d - kUInt16];
  return table[d <= kInt64 ? int(d) : d <= kBFloat16 ? 6 + d - kHalf : 8 + d - kFloat];
}

// ---- uniform_ --------------------------------------------------------------------------------------------
void check_uniform(DType dtype, double from, double to) {
  const Limits& l = limits_of(dtype);
  if (!(from >= l.low && from <= l.high)) fail(std::string("from is out of bounds for ") + l.name);
  if (!(to >= l.low && to <= l.high)) fail(std::string("to is out of bounds for ") + l.name);
  if (from > to)
    fail("uniform_ expects to return a [from, to) range, but found from=" + shown(from) + " > to=" + shown(to));
  if (to - from > l.high)
    fail(std::string("uniform_ expects to-from <= std::numeric_limits<") + l.title + ">::max(), but found to=" +
         shown(to) + " and from=" + shown(from) + " which result in to-from to exceed the limit");
}

// The product may round up to `to`, which does not belong to the range: `from` then takes its place.
template <int Words, class T, class C> void uniform(const View& self, C from, C to, Generator& g) {
  C width = to - from;
  T low = cast<T>(from);
  auto high = cast<compute_t<T>>(cast<T>(to));
  fill_in_order<T>(self, [&](T* out, int64_t n) {
    from_words<Words>(g, out, n, kCheap, [=](const uint32_t* w) {
      T v = cast<T>(madd(unit<C>(w), width, from));
      return cast<compute_t<T>>(v) == high ? low : v;
    });
  });
}

// uniform_(Tensor(a!) self, float from=0, float to=1, *, Generator? generator=None) -> Tensor(a!)
void uniform_(const Args& args) {
  RealView real(args.t[0]);
  const View& self = real.view;
  Generator& g = *args.generator;
  double from = args.a[0].f, to = args.a[1].f;
  if (!is_floating(self.dtype)) unsupported("check_uniform_bounds", self.dtype);
  check_uniform(self.dtype, from, to);
  switch (self.dtype) {
    case kHalf: return uniform<1, f16>(self, float(from), float(to), g);
    case kBFloat16: return uniform<1, bf16>(self, float(from), float(to), g);
    case kFloat: return uniform<1, float>(self, float(from), float(to), g);
    default: return uniform<2, double>(self, from, to, g);
  }
}

// ---- random_ ---------------------------------------------------------------------------------------------
// w % divisor by two multiplications; exact for all 32-bit numbers (Lemire, Kaser, Kurz 2019).
struct Modulo32 {
  uint64_t divisor, inverse;
  explicit Modulo32(uint32_t d) : divisor(d), inverse(~uint64_t(0) / d + 1) {}
  uint32_t operator()(uint32_t w) const {
    return divisor == 1 ? 0 : uint32_t(((unsigned __int128)(inverse * w) * divisor) >> 64);
  }
};

inline uint64_t word64(const uint32_t* w) { return (uint64_t(w[0]) << 32) | w[1]; }

// Integers base + word % range; range 0 stands for 2^64. From 2^28 on two words are drawn.
template <class T> void integers(const View& self, uint64_t range, int64_t base, bool wide, Generator& g) {
  auto at = [base](uint64_t offset) { return cast<T>(int64_t(offset + uint64_t(base))); };
  fill_in_order<T>(self, [&](T* out, int64_t n) {
    if (!wide) {
      Modulo32 modulo{uint32_t(range)};
      from_words<1>(g, out, n, kCheap, [=](const uint32_t* w) { return at(modulo(*w)); });
    } else if ((range & (range - 1)) == 0) {
      from_words<2>(g, out, n, kCheap, [=](const uint32_t* w) { return at(word64(w) & (range - 1)); });
    } else {
      from_words<2>(g, out, n, kLibm, [=](const uint32_t* w) { return at(word64(w) % range); });
    }
  });
}
void integers(const View& self, uint64_t range, int64_t base, bool wide, Generator& g) {
  MT_DISPATCH_REAL_UNSIGNED(self.dtype, "random_kernel_cpu", T, { integers<T>(self, range, base, wide, g); })
}

// random_(Tensor(a!) self, *, Generator? generator=None) -> Tensor(a!)
void random_(const Args& args) {
  const View& self = args.t[0];
  if (is_complex(self.dtype)) unsupported("random_kernel_cpu", self.dtype);
  int digits = limits_of(self.dtype).digits;
  uint64_t range = uint64_t(1) << digits;
  integers(self, is_floating(self.dtype) ? range + 1 : range, 0, digits > 32, *args.generator);
}

// v as the dtype stores it; saturating, as a value near 2^63 may round up.
int64_t as_stored(DType d, int64_t v) {
  double r = d == kHalf ? to_float(to_f16(float(v))) : d == kBFloat16 ? to_float(to_bf16(float(v)))
             : d == kFloat ? double(float(v)) : double(v);
  return r >= 0x1p63 ? std::numeric_limits<int64_t>::max() : int64_t(r);
}
int64_t spacing(int64_t v, int digits) {
  int n = 63 - __builtin_clzll(uint64_t(v < 0 ? -v : v) | 1);
  return int64_t(1) << std::max(n - digits + 1, 0);
}

void check_bounds(DType dtype, double v, const char* what) {
  const Limits& l = limits_of(dtype);
  if (!(v >= l.low && v <= l.high)) fail(std::string(what) + " is out of bounds for " + l.name);
}

// random_.from(Tensor(a!) self, int from, int? to, *, Generator? generator=None) -> Tensor(a!)
void random_from(const Args& args) {
  const View& self = args.t[0];
  DType d = self.dtype;
  if (is_complex(d)) unsupported("random_kernel_cpu", d);
  int digits = limits_of(d).digits;
  int64_t from = args.a[0].given ? args.a[0].i : 0, to = args.a[1].i, lowest = std::numeric_limits<int64_t>::min();
  uint64_t range;
  if (args.a[1].given) {
    if (from >= to)
      fail("random_ expects 'from' to be less than 'to', but got from=" + std::to_string(from) + " >= to=" +
           std::to_string(to));
    if (is_floating(d)) {  // bounds that the dtype cannot hold move inwards
      int64_t stored = as_stored(d, from + 1);
      if (stored < from) from = stored + spacing(from + 1, digits);
      stored = as_stored(d, to - 1);
      if (stored >= to) to = stored - spacing(to - 1, digits);
      if (from >= to)
        fail("random_ expects 'from' casted to dtype to be less than 'to' casted to dtype, but got from=" +
             std::to_string(from) + " >= to=" + std::to_string(to));
    }
    check_bounds(d, double(from), "from");
    check_bounds(d, double(to - 1), "to - 1");
    range = uint64_t(to) - uint64_t(from);
  } else if (from != lowest) {
    int64_t last = is_floating(d) ? int64_t(1) << digits : d == kBool ? 1 : int64_t((uint64_t(1) << digits) - 1);
    if (is_floating(d)) {
      const int64_t next = from + (from < std::numeric_limits<int64_t>::max());
      int64_t stored = as_stored(d, next);
      if (stored < from) from = stored + spacing(next, digits);
      if (from >= last)
        fail("random_ expects 'from' casted to dtype to be less than or equal to 'to_inc' casted to dtype, "
             "but got from=" + std::to_string(from) + " > to_inc=" + std::to_string(last));
    }
    check_bounds(d, double(from), "from");
    range = uint64_t(last) - uint64_t(from) + 1;
  } else {
    return integers(self, 0, 0, true, *args.generator);
  }
  integers(self, range, from, range >= uint64_t(1) << 28, *args.generator);
}

// ---- bernoulli -------------------------------------------------------------------------------------------
// bernoulli_scalar(Tensor(a!) self, float p, *, Generator? generator=None): torch's bernoulli_.float
void bernoulli_scalar(const Args& args) {
  const View& self = args.t[0];
  double p = args.a[0].f;
  if (!(p >= 0 && p <= 1)) fail("bernoulli_ expects p to be in [0, 1], but got p=" + shown(p));
  MT_DISPATCH_REAL(self.dtype, "bernoulli_scalar_cpu_", T, {
    const T one = cast<T>(1.0f), zero = cast<T>(0.0f);
    fill_in_order<T>(self, [&](T* out, int64_t n) {
      from_words<2>(*args.generator, out, n, kCheap,
                    [=](const uint32_t* w) { return unit_double(w) < p ? one : zero; });
    });
  })
}

// Fills `chances` with the items begin + [0, n) of p in the order of the output.
void gather(const Order& order, const View& p, int64_t begin, int64_t n, double* chances) {
  int64_t step = order.inner(1);
  MT_DISPATCH_FLOATING(p.dtype, "bernoulli_tensor_cpu_p_", T, {
    order.walk(begin, n, [&](int64_t, int64_t at, int64_t i, int64_t run) {
      for (int64_t j = 0; j < run; ++j) chances[i + j] = cast<double>(p.ptr<T>()[at + j * step]);
    });
  })
  int bad = 0;
  for (int64_t i = 0; i < n; ++i) bad |= !(chances[i] >= 0 && chances[i] <= 1);
  if (bad) fail("Expected p_in >= 0 && p_in <= 1 to be true, but got false.");
}

// bernoulli_tensor(out <- Tensor p, *, Generator? generator=None): torch's bernoulli and bernoulli_.Tensor
void bernoulli_tensor(const Args& args) {
  const View &out = args.t[0], &p = args.t[1];
  if (!is_floating(p.dtype)) unsupported("bernoulli_tensor_cpu_p_", p.dtype);
  Generator& g = *args.generator;
  Order order(out, &p);
  Buffer<double, 128> chances(order.numel, 4096), draws(order.numel, 4096);
  for (int64_t begin = 0; begin < order.numel; begin += chances.size) {
    int64_t n = std::min(chances.size, order.numel - begin), step = order.inner(0);
    gather(order, p, begin, n, chances.data());
    // 53 bits are drawn where p is double, 24 elsewhere.
    if (p.dtype == kDouble) from_words<2>(g, draws.data(), n, kCheap, [](const uint32_t* w) { return unit_double(w); });
    else from_words<1>(g, draws.data(), n, kCheap, [](const uint32_t* w) { return unit_float(w); });
    const double *chance = chances.data(), *draw = draws.data();
    MT_DISPATCH_REAL(out.dtype, "bernoulli_tensor_cpu_self_", T, {
      const T one = cast<T>(1.0f), zero = cast<T>(0.0f);
      order.walk(begin, n, [&](int64_t at, int64_t, int64_t i, int64_t run) {
        T* to = out.ptr<T>() + at;
        for (int64_t j = 0; j < run; ++j) to[j * step] = draw[i + j] < chance[i + j] ? one : zero;
      });
    })
  }
}

// ---- randperm --------------------------------------------------------------------------------------------
// From here on 32 bits would favour some permutations. PyTorch also shuffles the other way round, inside out.
constexpr int64_t kWidePermutation = std::numeric_limits<uint32_t>::max() / 20;

template <class T> void shuffle_wide(T* out, int64_t step, int64_t n, Generator& g) {
  for (int64_t i = 0; i < n; ++i) {
    int64_t j = int64_t(g.random64() % uint64_t(i + 1));
    out[i * step] = cast<T>(i);
    std::swap(out[i * step], out[j * step]);
  }
}
template <class T> void shuffle(T* out, int64_t step, int64_t n, Generator& g) {
  if (n >= kWidePermutation) return shuffle_wide(out, step, n, g);
  for (int64_t i = 0; i < n; ++i) out[i * step] = cast<T>(i);
  Buffer<uint32_t, 256> words(n, 4096);
  for (int64_t begin = 0; begin < n - 1; begin += words.size) {
    int64_t m = std::min(words.size, n - 1 - begin);
    g.fill(words.data(), m);
    for (int64_t j = 0; j < m; ++j) {
      int64_t i = begin + j;
      std::swap(out[i * step], out[(i + words.data()[j] % uint32_t(n - i)) * step]);
    }
  }
}

// randperm(out; int n, *, Generator? generator=None)
void randperm(const Args& args) {
  const View& out = args.t[0];
  int64_t n = args.a[0].i;
  if (n < 0) fail("n must be non-negative, got" + std::to_string(n));
  if (is_complex(out.dtype)) unsupported("randperm", out.dtype);
  const Limits& l = limits_of(out.dtype);
  // bfloat16 is not checked, as in torch.
  if (is_floating(out.dtype) && out.dtype != kBFloat16 && n > (int64_t(1) << l.digits) + 1) {
    std::string most = out.dtype == kHalf ? "2049" : "2^" + std::to_string(l.digits) + "+1";
    fail("n cannot be greater than " + most + " for " + l.title + " type.");
  }
  if (is_integral(out.dtype) && l.digits < 63 && n > int64_t(1) << l.digits)
    fail(std::string("value cannot be converted to type ") + dtype_name(out.dtype) + "_t without overflow");
  if (out.dtype == kBool) unsupported("randperm", out.dtype);
  int64_t step = out.ndim ? out.strides[0] : 1;
  MT_DISPATCH_REAL(out.dtype, "randperm", T, { shuffle(out.ptr<T>(), step, n, *args.generator); })
}

Register r1("uniform_", uniform_), r2("random_", random_), r3("random_from", random_from),
    r4("bernoulli_scalar", bernoulli_scalar), r5("bernoulli_tensor", bernoulli_tensor), r6("randperm", randperm);
Serves complex32(kComplex32, {"uniform_"}), integers_rare(kWideUnsigned, {"random_from"});

}  // namespace
}  // namespace mt::rng
