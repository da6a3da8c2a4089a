// Whether an OpenBLAS multiplies correctly on this processor: asked once, when it was opened.
//
// OpenBLAS chooses its kernels by the processor, and some that it chose gave wrong products or NaN: those for SVE and SME of
// 0.3.34 on an emulated aarch64, from 64 x 64 on.
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string>
#include <vector>

#include "blas.h"

namespace mt {
namespace {

struct Shape {
  int m, n, k;
};
// A little beyond a block, and whole ones: kernels differ in what they do at the edges. Few, for the check is to take no time.
constexpr Shape kShapes[] = {{33, 17, 20}, {64, 64, 64}};
constexpr int kComplexShapes = 1;

// Small whole numbers: all products and sums are exact, in whatever order they are made.
class Numbers {
 public:
  template <class T> std::vector<T> make(size_t n) {
    std::vector<T> made(n);
    for (T& x : made) x = T(next());
    return made;
  }

 private:
  int next() { return static_cast<int>((state_ = state_ * 1664525u + 1013904223u) >> 29) - 4; }
  uint32_t state_ = 1;
};

// y = op(A) x by plain loops, A stored by columns with `rows` of them as Fortran has it.
template <class T>
std::vector<T> times(const std::vector<T>& a, int rows, bool transposed, const std::vector<T>& x) {
  const size_t stored = static_cast<size_t>(rows), columns = a.size() / stored;
  std::vector<T> y(transposed ? columns : stored, T(0));
  for (size_t j = 0; j < columns; ++j)
    for (size_t i = 0; i < stored; ++i)
      if (transposed) y[j] += a[j * stored + i] * x[i];
      else y[i] += a[j * stored + i] * x[j];
  return y;
}

// C = op(A) op(B), and C v against op(A) (op(B) v) for a vector v: an item that is wrong shows, for an n-th of the work.
template <class T>
bool is_right(const Blas& blas, const Shape& s, bool ta, bool tb) {
  Numbers numbers;
  const auto a = numbers.make<T>(size_t(s.m) * s.k), b = numbers.make<T>(size_t(s.k) * s.n), v = numbers.make<T>(s.n);
  std::vector<T> c(size_t(s.m) * s.n, T(0));
  const int lda = ta ? s.k : s.m, ldb = tb ? s.n : s.k;
  const T one(1), zero(0);
  using Gemm = void (*)(const char*, const char*, const int*, const int*, const int*, const T*, const T*, const int*, const T*,
                        const int*, const T*, T*, const int*, size_t, size_t);
  reinterpret_cast<Gemm>(blas.routine[blas_index<T>()][Blas::gemm])(ta ? "T" : "N", tb ? "T" : "N", &s.m, &s.n, &s.k, &one,
                                                                    a.data(), &lda, b.data(), &ldb, &zero, c.data(), &s.m, 1, 1);
  const std::vector<T> expected = times(a, lda, ta, times(b, ldb, tb, v));
  std::vector<T> made = times(c, s.m, false, v);
  if (made != expected) return false;  // NaN differs from everything
  using Gemv = void (*)(const char*, const int*, const int*, const T*, const T*, const int*, const T*, const int*, const T*, T*,
                        const int*, size_t);
  const int step = 1;
  std::vector<T> y(tb ? s.k : s.n, T(0));  // with the other transpose than above: rows of B times u
  const auto u = numbers.make<T>(tb ? s.n : s.k);
  const int rows = ldb, columns = tb ? s.k : s.n;
  reinterpret_cast<Gemv>(blas.routine[blas_index<T>()][Blas::gemv])("T", &rows, &columns, &one, b.data(), &ldb, u.data(), &step,
                                                                    &zero, y.data(), &step, 1);
  return y == times(b, ldb, true, u);
}

template <class T>
std::string wrong_product(const Blas& blas) {
  const int shapes = blas_index<T>() > 1 ? kComplexShapes : static_cast<int>(std::size(kShapes));
  for (int i = 0; i < shapes; ++i)
    for (int turned = 0; turned < 4; ++turned)
      if (const Shape& s = kShapes[i]; !is_right<T>(blas, s, turned & 1, turned & 2)) {
        char text[100];
        snprintf(text, sizeof text, "%cgemm or %cgemv of %d x %d x %d, %c%c", "sdcz"[blas_index<T>()], "sdcz"[blas_index<T>()],
                 s.m, s.n, s.k, turned & 1 ? 'T' : 'N', turned & 2 ? 'T' : 'N');
        return text;
      }
  return "";
}

}  // namespace

std::string find_wrong_product(const Blas& blas) {
  for (auto look : {wrong_product<float>, wrong_product<double>, wrong_product<c64>})
    if (std::string found = look(blas); !found.empty()) return found;
  return "";
}

}  // namespace mt
