// The frame of the loops: from a scalar functor to the Loop table of a Pointwise kernel. No functor lives here.
#pragma once
#include "convert.h"
#include "library.h"
#include "scalar.h"

namespace mt {

template <class... T> struct Set {
  template <class U> static constexpr bool has = (std::is_same_v<T, U> || ...);
};
using Floats = Set<float, double>;
using Ints = Set<uint8_t, int8_t, int16_t, int32_t, int64_t>;
using IntsBool = Set<bool, uint8_t, int8_t, int16_t, int32_t, int64_t>;
using Real = Set<uint8_t, int8_t, int16_t, int32_t, int64_t, float, double>;
using RealBool = Set<bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double>;
using FloatsComplex = Set<float, double, c64, c128>;
using Numbers = Set<uint8_t, int8_t, int16_t, int32_t, int64_t, float, double, c64, c128>;
using All = Set<bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double, c64, c128>;
using Complex = Set<c64, c128>;
// With the wide unsigned integers, of which torch has few ops.
using Unsigned = Set<uint16_t, uint32_t, uint64_t>;
template <class A, class B> struct Both {
  template <class U> static constexpr bool has = A::template has<U> || B::template has<U>;
};
using AllUnsigned = Both<All, Unsigned>;
using RealBoolUnsigned = Both<RealBool, Unsigned>;
using RealUnsigned = Both<Real, Unsigned>;
using IntsBoolUnsigned = Both<IntsBool, Unsigned>;

template <class T> struct real_type { using type = T; };
template <class T> struct real_type<std::complex<T>> { using type = T; };
template <class T> using real_t = typename real_type<T>::type;

// An attribute as a number of the compute dtype.
template <class T> inline T number(const Attr& a) {
  if constexpr (is_complex_v<T>) return T(real_t<T>(a.f), real_t<T>(a.im));
  else if constexpr (std::is_same_v<T, bool>) return a.i != 0 || a.f != 0;
  else if constexpr (std::is_integral_v<T>) return T(a.i);
  else return T(a.f);
}

// The loops. Op<T> is made from the attributes once per call of the loop. An output may be exactly one of the inputs
// (in place), hence ivdep and not restrict.
template <template <class> class Op, class T, class Out> void unary_loop(void* const* p, int64_t n, const Attr* a) {
  const Op<T> op(a);
  Out* out = static_cast<Out*>(p[0]);
  const memory_t<T>* x = static_cast<const memory_t<T>*>(p[1]);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = op(x[i]);
}
template <template <class> class Op, class T, class Out> void binary_loop(void* const* p, int64_t n, const Attr* a) {
  const Op<T> op(a);
  Out* out = static_cast<Out*>(p[0]);
  const memory_t<T>* x = static_cast<const memory_t<T>*>(p[1]);
  const memory_t<T>* y = static_cast<const memory_t<T>*>(p[2]);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = op(x[i], y[i]);
}
template <template <class> class Op, class T, class Out> void ternary_loop(void* const* p, int64_t n, const Attr* a) {
  const Op<T> op(a);
  Out* out = static_cast<Out*>(p[0]);
  const memory_t<T>* x = static_cast<const memory_t<T>*>(p[1]);
  const memory_t<T>* y = static_cast<const memory_t<T>*>(p[2]);
  const memory_t<T>* z = static_cast<const memory_t<T>*>(p[3]);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = op(x[i], y[i], z[i]);
}

// The loop of an op whose vectors do not serve all items: a block with an item that is_far is done by far, one by one.
template <template <class> class Op, class T> void divided_loop(void* const* p, int64_t n, const Attr* a) {
  constexpr int64_t block = 512;
  for (int64_t i = 0; i < n; i += block) {
    void* at[2] = {static_cast<T*>(p[0]) + i, static_cast<T*>(p[1]) + i};
    T* out = static_cast<T*>(at[0]);
    const T* x = static_cast<const T*>(at[1]);
    const int64_t m = std::min(block, n - i);
    int far = 0;
    for (int64_t j = 0; j < m; ++j) far |= Op<T>::is_far(x[j]);
    if (!far) unary_loop<Op, T, T>(at, m, a);
    else for (int64_t j = 0; j < m; ++j) out[j] = T(Op<T>::far(x[j]));
  }
}

// The loop of an op that is best computed on whole vectors of floats (see vmath.h).
#if defined(__AVX512F__)
typedef float Lanes __attribute__((vector_size(64)));
#elif defined(__AVX__)
typedef float Lanes __attribute__((vector_size(32)));
#else
typedef float Lanes __attribute__((vector_size(16)));
#endif
template <template <class> class Op> void lanes_loop(void* const* p, int64_t n, const Attr* a) {
  constexpr int64_t lanes = sizeof(Lanes) / sizeof(float);
  const Op<Lanes> op(a);
  float* out = static_cast<float*>(p[0]);
  const float* x = static_cast<const float*>(p[1]);
  auto step = [&](int64_t i, int64_t m) {
    Lanes u = {};
    std::memcpy(&u, x + i, m * sizeof(float));
    u = op(u);
    std::memcpy(out + i, &u, m * sizeof(float));
  };
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    Lanes u, w;
    std::memcpy(&u, x + i, sizeof(u));
    std::memcpy(&w, x + i + lanes, sizeof(w));
    u = op(u);
    w = op(w);
    std::memcpy(out + i, &u, sizeof(u));
    std::memcpy(out + i + lanes, &w, sizeof(w));
  }
  for (; i + lanes <= n; i += lanes) step(i, lanes);
  if (i < n) step(i, n - i);
}

// The loop on a 16-bit float itself, beside the float loop `plain`, for operands that are all of that dtype; but operand
// `number`, if it is not 0, is one float for the whole run.
struct RegisterSmall {
  RegisterSmall(Loop plain, Loop small, DType dtype, int number = 0);
};
// The loop for an operand that is one item for the whole run, beside `plain`: of input k the pointer is that item's.
struct RegisterRepeated {
  RegisterRepeated(Loop plain, Loop repeated, int operand);
};
template <template <class> class Op, class T, int operand> void repeated_loop(void* const* p, int64_t n, const Attr* a) {
  const Op<T> op(a);
  T* out = static_cast<T*>(p[0]);
  const T *x = static_cast<const T*>(p[1]), *y = static_cast<const T*>(p[2]), one = operand == 1 ? *x : *y;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = operand == 1 ? op(one, y[i]) : op(x[i], one);
}

// bfloat16: the halves of each word become floats of their own, so that nothing is moved between lanes or through a buffer.
typedef uint32_t Words __attribute__((vector_size(sizeof(Lanes))));
// The upper halves hold the result. A NaN stays one: those of the processor, and of operands that were bfloat16, end in
// zeros, so that no carry reaches their exponent.
inline Words bfloat_round(Lanes x) {
  Words u = __builtin_bit_cast(Words, x);
  return u + 0x7fff + ((u >> 16) & 1);
}
template <class Op, int nin = 2, int number = 0> void bfloat_loop(void* const* p, int64_t n, const Attr* a) {
  constexpr int64_t items = sizeof(Words) / 2;
  constexpr uint32_t upper = 0xffff0000u;
  const Op op(a);
  uint16_t* const* at = reinterpret_cast<uint16_t* const*>(p);
  float item = number ? *static_cast<const float*>(p[number]) : 0.f;
  if (item != item) item = __builtin_nanf("");  // for bfloat_round
  const Lanes one = Lanes{} + item;
  auto step = [&](int64_t i, int64_t m) {
    auto in = [&](int k) {
      Words u = {};
      std::memcpy(&u, at[k] + i, m * 2);
      return u;
    };
    auto lanes = [](Words u) { return __builtin_bit_cast(Lanes, u); };
    Words u = in(number == 1 ? 2 : 1);
    Lanes low, high;
    if constexpr (nin == 1) {
      low = op(lanes(u << 16)), high = op(lanes(u & upper));
    } else if constexpr (number == 1) {
      low = op(one, lanes(u << 16)), high = op(one, lanes(u & upper));
    } else if constexpr (number == 2) {
      low = op(lanes(u << 16), one), high = op(lanes(u & upper), one);
    } else {
      Words w = in(2);
      low = op(lanes(u << 16), lanes(w << 16)), high = op(lanes(u & upper), lanes(w & upper));
    }
    u = (bfloat_round(low) >> 16) | (bfloat_round(high) & upper);
    std::memcpy(at[0] + i, &u, m * 2);
  };
  int64_t i = 0;
  for (; i + items <= n; i += items) step(i, items);
  if (i < n) step(i, n - i);
}

#if defined(__AVX2__) && defined(__F16C__)
// float16, by the conversions of the processor.
template <class Op, int nin = 2, int number = 0> void half_loop(void* const* p, int64_t n, const Attr* a) {
  constexpr int64_t items = sizeof(Lanes) / sizeof(float);
  const Op op(a);
  uint16_t* const* at = reinterpret_cast<uint16_t* const*>(p);
  const Lanes one = Lanes{} + (number ? *static_cast<const float*>(p[number]) : 0.f);
  auto step = [&](int64_t i, int64_t m) {
    auto in = [&](int k) {
      if (k == number) return one;
#if defined(__AVX512F__)
      __m256i u = {};
      std::memcpy(&u, at[k] + i, m * 2);
      return Lanes(_mm512_cvtph_ps(u));
#else
      __m128i u = {};
      std::memcpy(&u, at[k] + i, m * 2);
      return Lanes(_mm256_cvtph_ps(u));
#endif
    };
    Lanes made;
    if constexpr (nin == 1) made = op(in(1));
    else made = op(in(1), in(2));
#if defined(__AVX512F__)
    const __m256i out = _mm512_cvtps_ph(__m512(made), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
    const __m128i out = _mm256_cvtps_ph(__m256(made), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#endif
    std::memcpy(at[0] + i, &out, m * 2);
  };
  int64_t i = 0;
  for (; i + items <= n; i += items) step(i, items);
  if (i < n) step(i, n - i);
}
#endif
// Both of them, of an op on vectors, and those that take a number.
template <class Op, int nin = 2> struct RegisterSmallLoops {
  explicit RegisterSmallLoops(Loop plain) {
    enter<0>(plain);
    if constexpr (nin == 2) enter<1>(plain), enter<2>(plain);
  }
  template <int number> static void enter(Loop plain) {
    RegisterSmall(plain, bfloat_loop<Op, nin, number>, kBFloat16, number);
#if defined(__AVX2__) && defined(__F16C__)
    RegisterSmall(plain, half_loop<Op, nin, number>, kHalf, number);
#endif
  }
};

// For a float output too large for the cache: the same as `plain`, whole lines stored around the cache, which spares
// reading them first. Registered beside the plain loop; worth it where the loop does little but wait for memory.
struct RegisterStreaming {
  RegisterStreaming(Loop plain, Loop streaming);
};
template <class Op, Loop plain, int nin = 2> void streaming_loop(void* const* p, int64_t n, const Attr* a) {
  // Op computes on whole vectors: of plain code the compiler makes scalars that the wide stores then wait for.
  constexpr int lanes = sizeof(Lanes) / sizeof(float), parts = 16 / lanes;
  const Op op(a);
  float* const* at = reinterpret_cast<float* const*>(p);
  auto rest = [&](int64_t begin, int64_t end) {
    void* part[nin + 1];
    for (int k = 0; k <= nin; ++k) part[k] = at[k] + begin;
    plain(part, end - begin, a);
  };
  int64_t i = std::min<int64_t>(n, (-reinterpret_cast<intptr_t>(at[0]) & 63) / 4);
  rest(0, i);
  for (; i + 16 <= n; i += 16) {
    Lanes ready[parts];
    for (int j = 0; j < parts; ++j) {
      auto in = [&](int k) {
        Lanes u;
        std::memcpy(&u, at[k] + i + j * lanes, sizeof(u));
        return u;
      };
      if constexpr (nin == 1) ready[j] = op(in(1));
      else if constexpr (nin == 2) ready[j] = op(in(1), in(2));
      else ready[j] = op(in(1), in(2), in(3));
    }
    stream_line(at[0] + i, ready);
  }
  rest(i, n);
}

template <template <class> class Op, class T, class Out, int nin> constexpr Loop pick() {
  if constexpr (nin == 1) return unary_loop<Op, T, Out>;
  else if constexpr (nin == 2) return binary_loop<Op, T, Out>;
  else return ternary_loop<Op, T, Out>;
}

// out: -1 the compute dtype, -2 its real counterpart, kBool.
template <template <class> class Op, class S, int nin, int out, class T> constexpr void enter(Pointwise& k, DType d) {
  using Out = std::conditional_t<out == kBool, bool, std::conditional_t<out == -2, real_t<T>, T>>;
  if constexpr (S::template has<T>) k.loop[d] = pick<Op, T, Out, nin>();
}
template <template <class> class Op, class S, int nin, int out = -1> Pointwise make(const char* name) {
  Pointwise k = {name, 1, nin, out, -1, {}};
  enter<Op, S, nin, out, bool>(k, kBool);
  enter<Op, S, nin, out, uint8_t>(k, kUInt8);
  enter<Op, S, nin, out, int8_t>(k, kInt8);
  enter<Op, S, nin, out, int16_t>(k, kInt16);
  enter<Op, S, nin, out, int32_t>(k, kInt32);
  enter<Op, S, nin, out, int64_t>(k, kInt64);
  enter<Op, S, nin, out, uint16_t>(k, kUInt16);
  enter<Op, S, nin, out, uint32_t>(k, kUInt32);
  enter<Op, S, nin, out, uint64_t>(k, kUInt64);
  enter<Op, S, nin, out, float>(k, kFloat);
  enter<Op, S, nin, out, double>(k, kDouble);
  enter<Op, S, nin, out, c64>(k, kComplexFloat);
  enter<Op, S, nin, out, c128>(k, kComplexDouble);
  return k;
}

// A kernel of one input from a template of loops, for the numbers that it has loops for.
#define MT_LOOPS_OF_INTEGERS(K, LOOP) \
  K.loop[kUInt8] = LOOP<uint8_t>, K.loop[kInt8] = LOOP<int8_t>, K.loop[kInt16] = LOOP<int16_t>, \
  K.loop[kInt32] = LOOP<int32_t>, K.loop[kInt64] = LOOP<int64_t>
#define MT_LOOPS_OF_FLOATS(K, LOOP) K.loop[kFloat] = LOOP<float>, K.loop[kDouble] = LOOP<double>

template <template <class> class Op, class S> Pointwise by_lanes(const char* name) {
  Pointwise k = make<Op, S, 1>(name);
  k.loop[kFloat] = lanes_loop<Op>;
  return k;
}

// Integers wrap around: arithmetic in an unsigned type wide enough that no promotion to int can overflow.
template <class T> struct arith { using type = T; };
template <> struct arith<uint8_t> { using type = uint32_t; };
template <> struct arith<int8_t> { using type = uint32_t; };
template <> struct arith<int16_t> { using type = uint32_t; };
template <> struct arith<int32_t> { using type = uint32_t; };
template <> struct arith<int64_t> { using type = uint64_t; };
template <> struct arith<uint16_t> { using type = uint32_t; };
template <class T> using arith_t = typename arith<T>::type;

}  // namespace mt

// One row an op: MT_UNARY(name, dtypes, out, expression of x), and the like for two and three inputs.
#define MT_OP(NAME, SET, NIN, OUT, PARAMS, ...) \
  template <class T> struct NAME##_op { \
    explicit NAME##_op(const Attr*) {} \
    auto operator() PARAMS const { return __VA_ARGS__; } \
  }; \
  RegisterPointwise NAME##_row(make<NAME##_op, SET, NIN, OUT>(#NAME));
#define MT_UNARY(NAME, SET, OUT, ...) MT_OP(NAME, SET, 1, OUT, (T x), __VA_ARGS__)
#define MT_BINARY(NAME, SET, OUT, ...) MT_OP(NAME, SET, 2, OUT, (T x, T y), __VA_ARGS__)
#define MT_TERNARY(NAME, SET, OUT, ...) MT_OP(NAME, SET, 3, OUT, (T x, T y, T z), __VA_ARGS__)
// An op of one operand whose loops of float and of the 16-bit floats run on vectors.
#define MT_LANES(NAME, SET, ...) \
  template <class T> struct NAME##_op { \
    explicit NAME##_op(const Attr*) {} \
    T operator()(T x) const { return __VA_ARGS__; } \
  }; \
  RegisterPointwise NAME##_row(by_lanes<NAME##_op, SET>(#NAME)); \
  RegisterSmallLoops<NAME##_op<Lanes>, 1> NAME##_small(lanes_loop<NAME##_op>);
// The loops of the 16-bit floats beside the float loop PLAIN of NIN operands; A and B are made of the attributes `at`.
#define MT_SMALL(NAME, PLAIN, NIN, A, B, PARAMS, ...) \
  struct NAME##_lanes { \
    float a, b; \
    explicit NAME##_lanes([[maybe_unused]] const Attr* at) : a(A), b(B) {} \
    Lanes operator() PARAMS const { return __VA_ARGS__; } \
  }; \
  RegisterSmallLoops<NAME##_lanes, NIN> NAME##_small(PLAIN);
#define MT_SMALL_UNARY(NAME, ...) \
  MT_SMALL(NAME, (unary_loop<NAME##_op, float, float>), 1, 0, 0, (Lanes x), __VA_ARGS__)
// Rare dtypes that the row NAME serves beside those it has loops for.
#define MT_SERVES(RARE, NAME) const Serves NAME##_serves(RARE, {#NAME});
// For an op with attributes: struct NAME##_op is written out before.
#define MT_ROW(NAME, SET, NIN, OUT) RegisterPointwise NAME##_row(make<NAME##_op, SET, NIN, OUT>(#NAME));
