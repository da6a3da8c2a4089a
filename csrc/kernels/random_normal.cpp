// normal_ and log_normal_: PyTorch's numbers bit for bit, the vectorised filling of large tensors included.
#include <cmath>
#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "library.h"
#include "random_order.h"

namespace mt::rng {
namespace {

constexpr int kBlock = 16;  // eight pairs of Box and Muller at a time

#ifdef __AVX2__
// The logarithm and the sine of Cephes' single precision, as PyTorch's fill uses them: the order of the operations
// and where they are fused are part of the result.
inline __m256 set(float v) { return _mm256_set1_ps(v); }

inline __m256 log8(__m256 x) {  // for 0 < x <= 1, normal
  const __m256 one = set(1);
  __m256i bits = _mm256_castps_si256(x);
  __m256 e = _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_srli_epi32(bits, 23), _mm256_set1_epi32(126)));
  x = _mm256_or_ps(_mm256_and_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(0x007fffff))), set(0.5f));
  __m256 small = _mm256_cmp_ps(x, set(0.707106781186547524f), _CMP_LT_OQ);
  e = _mm256_sub_ps(e, _mm256_and_ps(one, small));
  x = _mm256_add_ps(_mm256_sub_ps(x, one), _mm256_and_ps(x, small));
  __m256 z = _mm256_mul_ps(x, x), y = set(7.0376836292e-2f);
  constexpr float p[] = {-1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f,
                         -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f};
  for (float c : p) y = _mm256_fmadd_ps(y, x, set(c));
  y = _mm256_mul_ps(y, x);
  y = _mm256_fmadd_ps(y, z, _mm256_mul_ps(e, set(-2.12194440e-4f)));
  y = _mm256_fnmadd_ps(z, set(0.5f), y);
  return _mm256_fmadd_ps(e, set(0.693359375f), _mm256_add_ps(x, y));
}

inline void sincos8(__m256 x, __m256& sine, __m256& cosine) {  // for x >= 0
  __m256i octant = _mm256_cvttps_epi32(_mm256_mul_ps(x, set(1.27323954473516f)));
  octant = _mm256_and_si256(_mm256_add_epi32(octant, _mm256_set1_epi32(1)), _mm256_set1_epi32(~1));
  const __m256i two = _mm256_set1_epi32(2), four = _mm256_set1_epi32(4);
  __m256 n = _mm256_cvtepi32_ps(octant);
  __m256 sine_sign = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_and_si256(octant, four), 29));
  __m256 cosine_sign =
      _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_andnot_si256(_mm256_sub_epi32(octant, two), four), 29));
  __m256 straight =
      _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(octant, two), _mm256_setzero_si256()));
  for (float c : {-0.78515625f, -2.4187564849853515625e-4f, -3.77489497744594108e-8f})
    x = _mm256_fmadd_ps(n, set(c), x);
  __m256 z = _mm256_mul_ps(x, x);
  __m256 c = _mm256_fmadd_ps(set(2.443315711809948e-5f), z, set(-1.388731625493765e-3f));
  c = _mm256_mul_ps(_mm256_fmadd_ps(c, z, set(4.166664568298827e-2f)), z);
  c = _mm256_add_ps(_mm256_fmsub_ps(c, z, _mm256_mul_ps(z, set(0.5f))), set(1));
  __m256 s = _mm256_fmadd_ps(set(-1.9515295891e-4f), z, set(8.3321608736e-3f));
  s = _mm256_mul_ps(_mm256_fmadd_ps(s, z, set(-1.6666654611e-1f)), z);
  s = _mm256_fmadd_ps(s, x, x);
  sine = _mm256_xor_ps(_mm256_blendv_ps(c, s, straight), sine_sign);
  cosine = _mm256_xor_ps(_mm256_blendv_ps(s, c, straight), cosine_sign);
}

inline void box_muller(float* block, float mean, float std) {
  __m256 u = _mm256_sub_ps(set(1), _mm256_loadu_ps(block)), sine, cosine;
  sincos8(_mm256_mul_ps(set(6.283185307179586f), _mm256_loadu_ps(block + 8)), sine, cosine);
  __m256 radius = _mm256_sqrt_ps(_mm256_mul_ps(set(-2), log8(u)));
  _mm256_storeu_ps(block, _mm256_fmadd_ps(_mm256_mul_ps(radius, cosine), set(std), set(mean)));
  _mm256_storeu_ps(block + 8, _mm256_fmadd_ps(_mm256_mul_ps(radius, sine), set(std), set(mean)));
}
#endif

template <class T> inline void box_muller(T* block, T mean, T std) {
  for (int j = 0; j < kBlock / 2; ++j) {
    T radius = std::sqrt(-2 * std::log(1 - block[j])), theta = T(2.0 * 3.14159265358979323846 * block[j + 8]);
    block[j] = std::fma(radius * std::cos(theta), std, mean);
    block[j + 8] = std::fma(radius * std::sin(theta), std, mean);
  }
}

inline void units(Generator& g, float* out, int64_t n) {
  from_words<1>(g, out, n, kCheap, [](const uint32_t* w) { return unit_float(w); });
}
inline void units(Generator& g, double* out, int64_t n) {
  from_words<2>(g, out, n, kCheap, [](const uint32_t* w) { return unit_double(w); });
}

// Uniform numbers over all of out, then pairs of them to normal ones; a rest shorter than a block is covered by
// drawing the last sixteen anew.
template <class T> void fill(T* out, int64_t n, T mean, T std, Generator& g) {
  constexpr int64_t kBlocks = sizeof(T) == 4 ? 2048 : 512;  // worth a thread
  int64_t whole = n - n % kBlock;
  for (int64_t begin = 0; begin < whole; begin += kPiece) {
    int64_t m = std::min(kPiece, whole - begin);
    bool last = begin + m == whole;
    units(g, out + begin, last ? n - begin : m);
    parallel_for(m / kBlock, kBlocks, [&](int64_t i, int64_t end) {
      for (; i < end; ++i) box_muller(out + begin + i * kBlock, mean, std);
    });
  }
  if (whole == n) return;
  units(g, out + n - kBlock, kBlock);
  box_muller(out + n - kBlock, mean, std);
}

// float16 and bfloat16 are drawn as floats, block by block.
template <class T> void fill_half(T* out, int64_t n, float mean, float std, Generator& g) {
  float buffer[64 * kBlock];
  auto piece = [&](int64_t begin, int64_t m) {
    units(g, buffer, m);
    for (int64_t i = 0; i < m; i += kBlock) box_muller(buffer + i, mean, std);
    for (int64_t i = 0; i < m; ++i) out[begin + i] = cast<T>(buffer[i]);
  };
  int64_t whole = n - n % kBlock;
  for (int64_t begin = 0; begin < whole; begin += 64 * kBlock)
    piece(begin, std::min<int64_t>(64 * kBlock, whole - begin));
  if (whole < n) piece(n - kBlock, kBlock);
}

// One at a time, in double.
void one_by_one(const View& self, double mean, double std, Generator& g) {
  fill_doubles(self, "normal_kernel_cpu", [&](double* out, int64_t n) {
    standard_normals(g, out, n);
    for (int64_t i = 0; i < n; ++i) out[i] = madd(out[i], std, mean);
  });
}

// normal_(Tensor(a!) self, float mean=0, float std=1, *, Generator? generator=None) -> Tensor(a!)
void normal_(const Args& args) {
  RealView real(args.t[0]);
  const View& self = real.view;
  Generator& g = *args.generator;
  double mean = args.a[0].f, std = args.a[1].f;
  if (!(std >= 0)) fail("normal expects std >= 0.0, but found std " + shown(std));
  if (!is_floating(self.dtype)) unsupported("normal_kernel_cpu", self.dtype);
  if (is_complex(args.t[0].dtype)) std /= std::sqrt(2.0);
  int64_t n = self.numel();
  if (n < kBlock || !self.contiguous()) return one_by_one(self, mean, std, g);
  switch (self.dtype) {
    case kHalf: return fill_half(self.ptr<f16>(), n, float(mean), float(std), g);
    case kBFloat16: return fill_half(self.ptr<bf16>(), n, float(mean), float(std), g);
    case kFloat: return fill(self.ptr<float>(), n, float(mean), float(std), g);
    default: return fill(self.ptr<double>(), n, mean, std, g);
  }
}

// log_normal_(Tensor(a!) self, float mean=1, float std=2, *, Generator? generator=None) -> Tensor(a!)
void log_normal_(const Args& args) {
  double mean = args.a[0].f, std = args.a[1].f;
  if (!(std > 0)) fail("log_normal_ expects std > 0.0, but found std=" + shown(std));
  if (!is_floating(args.t[0].dtype)) unsupported("log_normal_cpu", args.t[0].dtype);
  fill_doubles(args.t[0], "log_normal_cpu", [&](double* out, int64_t n) {
    standard_normals(*args.generator, out, n);
    parallel_for(n, kLibm, [&](int64_t i, int64_t end) {
      for (; i < end; ++i) out[i] = std::exp(madd(out[i], std, mean));
    });
  });
}

Register r1("normal_", normal_), r2("log_normal_", log_normal_);
Serves complex32(kComplex32, {"normal_"});

}  // namespace

void standard_normals(Generator& g, double* out, int64_t n) {
  if (n > 0 && g.has_normal_double) {
    g.has_normal_double = false;
    *out++ = g.normal_double;
    --n;
  }
  struct Pair {
    double first, second;
  };
  auto pair = [](const uint32_t* w) {
    double theta = 2.0 * 3.14159265358979323846 * unit_double(w);
    double radius = std::sqrt(-2.0 * std::log1p(-unit_double(w + 2)));
    return Pair{radius * std::cos(theta), radius * std::sin(theta)};
  };
  static_assert(sizeof(Pair) == 2 * sizeof(double), "two neighbours in out");
  from_words<4>(g, reinterpret_cast<Pair*>(out), n / 2, kLibm / 2, pair);
  if (n % 2 == 0) return;
  Pair last;
  from_words<4>(g, &last, 1, kLibm, pair);
  out[n - 1] = last.first;
  g.normal_double = last.second;
  g.has_normal_double = true;
}

}  // namespace mt::rng
