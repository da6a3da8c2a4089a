// Distances between pairs of rows by their differences, and their gradients, without memory for the differences.
#include <algorithm>
#include <cmath>
#include <memory>

#include "dense.h"
#include "dispatch.h"
#include "library.h"
#include "parallel.h"

namespace mt {
namespace {

constexpr int L = 32;              // rows that are looked at together, one a lane
constexpr int64_t kRun = 64;       // terms in one running sum: longer sums are sums of these

// Rows in groups of L, item m of all rows of a group contiguous. The last group is padded with zeros.
template <class T> struct Panels {
  int64_t rows, width, groups;
  std::unique_ptr<T[]> memory;
  Panels(const T* x, int64_t rows, int64_t width)
      : rows(rows), width(width), groups((rows + L - 1) / L), memory(new T[std::max<int64_t>(groups * L * width, 1)]()) {
    for (int64_t j = 0; j < rows; ++j)
      for (int64_t m = 0; m < width; ++m) memory[(j / L * width + m) * L + j % L] = x[j * width + m];
  }
  const T* group(int64_t k) const { return memory.get() + k * L * width; }
};

template <class T> T sign(T d) { return d > 0 ? T(1) : d < 0 ? T(-1) : d; }

// What an item of a difference adds to a distance (term, join, finish), and how a distance changes with the item (slope;
// scale is what that has in common for a pair, with the distance's own gradient). NaN stays.
template <class T> struct Count {
  static constexpr bool kDistance = false;
  explicit Count(double) {}
  T term(T d) const { return d == 0 ? T(0) : d != d ? d : T(1); }
  T join(T x, T y) const { return x + y; }
  T finish(T s) const { return s; }
  T scale(T, T) const { return 0; }
  T slope(T, T, T) const { return 0; }
};
template <class T> struct Sum {
  static constexpr bool kDistance = false;
  explicit Sum(double) {}
  T term(T d) const { return std::abs(d); }
  T join(T x, T y) const { return x + y; }
  T finish(T s) const { return s; }
  T scale(T g, T) const { return g; }
  T slope(T d, T scale, T) const { return sign(d) * scale; }
};
template <class T> struct Euclid {
  static constexpr bool kDistance = false;
  explicit Euclid(double) {}
  T term(T d) const { return d * d; }
  T join(T x, T y) const { return x + y; }
  T finish(T s) const { return std::sqrt(s); }
  T scale(T g, T distance) const { return distance == 0 ? T(0) : g / distance; }
  T slope(T d, T scale, T) const { return d * scale; }
};
template <class T> struct Largest {
  static constexpr bool kDistance = true;
  explicit Largest(double) {}
  T term(T d) const { return std::abs(d); }
  T join(T x, T y) const { return x != x || x > y ? x : y; }
  T finish(T s) const { return s; }
  T scale(T g, T) const { return g; }
  T slope(T d, T scale, T distance) const {
    const T below = std::abs(d) - distance;
    T wins = below == 0 ? T(1) : T(0);
    wins = below != below ? below : wins;
    return sign(d) * wins * scale;
  }
};
// Powers go through the loop of pow, which the compiler makes vectors of, over the differences of a run of items.
template <class T> struct Power {
  double p;
  explicit Power(double p) : p(p) {}
  static void raise(T* x, int64_t n, double exponent) {
    static const Pointwise* const pow = find_pointwise("pow_scalar");
    Attr number;
    number.f = exponent, number.given = true;
    void* const at[] = {x, x};
    pow->loop[sizeof(T) == sizeof(float) ? kFloat : kDouble](at, n, &number);
  }
};

template <class T, class F> void by_norm(double p, F&& f) {
  if (p == 0) f(Count<T>(p));
  else if (p == 1) f(Sum<T>(p));
  else if (p == 2) f(Euclid<T>(p));
  else if (std::isinf(p)) f(Largest<T>(p));
  else f(Power<T>(p));
}

// The distances of a row to the rows of one group.
template <class T, class Norm> void measure(const Norm& norm, const T* a, const T* group, int64_t width, T* to) {
  T all[L] = {};
  for (int64_t m = 0; m < width;) {
    T part[L] = {};
    for (const int64_t end = std::min(width, m + kRun); m < end; ++m)
      for (int l = 0; l < L; ++l) part[l] = norm.join(part[l], norm.term(a[m] - group[m * L + l]));
    for (int l = 0; l < L; ++l) all[l] = norm.join(all[l], part[l]);
  }
  for (int l = 0; l < L; ++l) to[l] = norm.finish(all[l]);
}
template <class T> void measure(const Power<T>& norm, const T* a, const T* group, int64_t width, T* to) {
  std::fill_n(to, L, T(0));
  for (int64_t m = 0; m < width; m += kRun) {
    T size[kRun * L], part[L] = {};
    const int64_t n = std::min(width - m, kRun);
    for (int64_t i = 0; i < n; ++i)
      for (int l = 0; l < L; ++l) size[i * L + l] = std::abs(a[m + i] - group[(m + i) * L + l]);
    norm.raise(size, n * L, norm.p);
    for (int64_t i = 0; i < n; ++i)
      for (int l = 0; l < L; ++l) part[l] += size[i * L + l];
    for (int l = 0; l < L; ++l) to[l] += part[l];
  }
  norm.raise(to, L, 1 / norm.p);
}

// What the slopes of the items of a difference have in common, of n pairs.
template <class T, class Norm> void scales(const Norm& norm, const T* g, const T* distance, int64_t n, T* to) {
  for (int64_t j = 0; j < n; ++j) to[j] = norm.scale(g[j], distance[j]);
}
template <class T> void scales(const Power<T>& norm, const T* g, const T* distance, int64_t n, T* to) {
  std::copy_n(distance, n, to);
  norm.raise(to, n, norm.p - 1);
  for (int64_t j = 0; j < n; ++j) to[j] = distance[j] == 0 ? T(0) : g[j] / to[j];
}

// Adds to sums[m][lane] what the rows [from, to) of a group give to the gradient of item m of a row.
template <class T, class Norm>
void add_slopes(const Norm& norm, const T* a, const T* group, int64_t width, const T* scale, const T* distance,
                int64_t from, int64_t to, T* sums) {
  auto item = [&](int64_t m, int64_t l) {
    sums[m * L + l] += norm.slope(a[m] - group[m * L + l], scale[l], Norm::kDistance ? distance[l] : T(0));
  };
  for (int64_t m = 0; m < width; ++m)
    if (from == 0 && to == L)
      for (int l = 0; l < L; ++l) item(m, l);
    else
      for (int64_t l = from; l < to; ++l) item(m, l);
}
template <class T>
void add_slopes(const Power<T>& norm, const T* a, const T* group, int64_t width, const T* scale, const T*, int64_t from,
                int64_t to, T* sums) {
  for (int64_t m = 0; m < width; m += kRun) {
    T d[kRun * L], size[kRun * L];
    const int64_t n = std::min(width - m, kRun);
    for (int64_t i = 0; i < n; ++i)
      for (int l = 0; l < L; ++l) {
        d[i * L + l] = a[m + i] - group[(m + i) * L + l];
        size[i * L + l] = std::abs(d[i * L + l]);
      }
    norm.raise(size, n * L, norm.p - 1);
    for (int64_t i = 0; i < n * L; ++i) size[i] = d[i] == 0 ? T(0) : sign(d[i]) * size[i];
    for (int64_t i = 0; i < n; ++i)
      for (int64_t l = from; l < to; ++l) sums[(m + i) * L + l] += size[i * L + l] * scale[l];
  }
}

// The gradient of a row, whose gradients g and distances to the rows [from, to) are given: is added to sums.
template <class T, class Norm>
void add_rows(const Norm& norm, const T* a, const Panels<T>& b, const T* scale, const T* distance, int64_t from, int64_t to,
              T* sums) {
  for (int64_t k = from / L; k * L < to; ++k)
    add_slopes(norm, a, b.group(k), b.width, scale + k * L, distance + k * L, std::max<int64_t>(from - k * L, 0),
               std::min<int64_t>(to - k * L, L), sums);
}

template <class T> void gather(const T* sums, int64_t width, T* to) {
  for (int64_t m = 0; m < width; ++m) {
    T s = 0;
    for (int l = 0; l < L; ++l) s += sums[m * L + l];
    to[m] = s;
  }
}

int64_t rows_a_thread(int64_t work) { return std::max<int64_t>(1, kGrain / std::max<int64_t>(1, work)); }

// A tensor of the batch dims of another.
struct Spread {
  int64_t sizes[kMaxDims], strides[kMaxDims];
  View view;
  Spread(const View& x, const View& like) {
    for (int d = 0; d < like.ndim; ++d) {
      const int s = x.ndim - like.ndim + d;
      sizes[d] = d >= like.ndim - 2 ? x.sizes[s] : like.sizes[d];
      strides[d] = s >= 0 && x.sizes[s] == sizes[d] ? x.strides[s] : 0;
    }
    view = View{x.data, sizes, strides, like.ndim, x.dtype};
  }
};

// _cdist_apart(Tensor x1, Tensor x2, float p) -> Tensor
template <class T> void forward(const Args& c) {
  const View& out = c.t[0];
  if (out.numel() == 0) return;
  const Spread x1(c.t[1], out), x2(c.t[2], out);
  const Dense a(x1.view, out.dtype), b(x2.view, out.dtype), to(out, out.dtype, Dense::kOutput);
  const int64_t P = x1.sizes[out.ndim - 2], R = x2.sizes[out.ndim - 2], M = x1.sizes[out.ndim - 1];
  for (int64_t n = 0; n < out.numel() / (P * R); ++n) {
    const Panels<T> rows(b.ptr<T>() + n * R * M, R, M);
    const T* first = a.ptr<T>() + n * P * M;
    T* d = to.ptr<T>() + n * P * R;
    by_norm<T>(c.a[0].f, [&](auto norm) {
      parallel_for(P, rows_a_thread(R * M), [&](int64_t from, int64_t end) {
        T lanes[L];
        for (int64_t k = 0; k < rows.groups; ++k)
          for (int64_t i = from; i < end; ++i) {
            measure(norm, first + i * M, rows.group(k), M, lanes);
            std::copy_n(lanes, std::min<int64_t>(L, R - k * L), d + i * R + k * L);
          }
      });
    });
  }
  to.store();
}

// _cdist_slopes(Tensor grad, Tensor x1, Tensor x2, float p, Tensor cdist) -> Tensor: toward x1, of the batch dims of grad
template <class T> void backward(const Args& c) {
  const View &out = c.t[0], &grad = c.t[1];
  if (out.numel() == 0) return;
  const Spread x1(c.t[2], grad), x2(c.t[3], grad);
  const Dense a(x1.view, out.dtype), b(x2.view, out.dtype), g(grad, out.dtype), distance(c.t[4], out.dtype);
  const Dense to(out, out.dtype, Dense::kOutput);
  const int64_t P = x1.sizes[out.ndim - 2], R = x2.sizes[out.ndim - 2], M = x1.sizes[out.ndim - 1];
  for (int64_t n = 0; n < out.numel() / (P * M); ++n) {
    const Panels<T> rows(b.ptr<T>() + n * R * M, R, M);
    by_norm<T>(c.a[0].f, [&](auto norm) {
      parallel_for(P, rows_a_thread(R * M), [&](int64_t from, int64_t end) {
        std::unique_ptr<T[]> scale(new T[R + 1]), sums(new T[M * L]);
        for (int64_t i = n * P + from; i < n * P + end; ++i) {
          const T *gi = g.ptr<T>() + i * R, *di = distance.ptr<T>() + i * R;
          scales(norm, gi, di, R, scale.get());
          std::fill_n(sums.get(), M * L, T(0));
          add_rows(norm, a.ptr<T>() + i * M, rows, scale.get(), di, 0, R, sums.get());
          gather(sums.get(), M, to.ptr<T>() + i * M);
        }
      });
    });
  }
  to.store();
}

// Where the distance of row i to row i + 1 stands among those of n rows, each pair once.
int64_t place(int64_t i, int64_t n) { return i * (2 * n - i - 1) / 2; }

// _pdist_apart(Tensor self, float p) -> Tensor; dims in front of the rows are a batch
template <class T> void pairs(const Args& c) {
  const View &out = c.t[0], &self = c.t[1];
  if (out.numel() == 0) return;
  const Dense x(self, out.dtype), to(out, out.dtype, Dense::kOutput);
  const int64_t N = self.sizes[self.ndim - 2], M = self.sizes[self.ndim - 1], count = place(N - 1, N);
  for (int64_t n = 0; n < out.numel() / count; ++n) {
    const T* a = x.ptr<T>() + n * N * M;
    T* d = to.ptr<T>() + n * count;
    const Panels<T> rows(a, N, M);
    by_norm<T>(c.a[0].f, [&](auto norm) {
      parallel_for(N - 1, rows_a_thread(N * M / 2), [&](int64_t from, int64_t end) {
        T lanes[L];
        for (int64_t k = (from + 1) / L; k < rows.groups; ++k)
          for (int64_t i = from; i < std::min(end, std::min(N, (k + 1) * L) - 1); ++i) {
            measure(norm, a + i * M, rows.group(k), M, lanes);
            const int64_t first = std::max(i + 1, k * L), last = std::min(N, (k + 1) * L);
            std::copy(lanes + first - k * L, lanes + last - k * L, d + place(i, N) + first - i - 1);
          }
      });
    });
  }
  to.store();
}

// _pdist_slopes(Tensor grad, Tensor self, float p, Tensor pdist) -> Tensor
template <class T> void pairs_backward(const Args& c) {
  const View &out = c.t[0], &grad = c.t[1], &self = c.t[2];
  if (out.numel() == 0) return;
  const Dense x(self, out.dtype), g(grad, out.dtype), distance(c.t[3], out.dtype), to(out, out.dtype, Dense::kOutput);
  const int64_t N = self.sizes[self.ndim - 2], M = self.sizes[self.ndim - 1], count = place(N - 1, N);
  for (int64_t n = 0; n < out.numel() / (N * M); ++n) {
    const T *a = x.ptr<T>() + n * N * M, *gn = g.ptr<T>() + n * count, *dn = distance.ptr<T>() + n * count;
    const Panels<T> rows(a, N, M);
    by_norm<T>(c.a[0].f, [&](auto norm) {
      parallel_for(N, rows_a_thread(N * M), [&](int64_t from, int64_t end) {
        std::unique_ptr<T[]> scale(new T[N]), own(new T[N]()), beside(new T[N]()), sums(new T[M * L]);
        for (int64_t i = from; i < end; ++i) {
          for (int64_t j = 0; j < N; ++j) {
            if (j == i) continue;
            const int64_t at = j < i ? place(j, N) + i - j - 1 : place(i, N) + j - i - 1;
            beside[j] = dn[at], own[j] = gn[at];
          }
          scales(norm, own.get(), beside.get(), N, scale.get());
          std::fill_n(sums.get(), M * L, T(0));
          add_rows(norm, a + i * M, rows, scale.get(), beside.get(), 0, i, sums.get());
          add_rows(norm, a + i * M, rows, scale.get(), beside.get(), i + 1, N, sums.get());
          gather(sums.get(), M, to.ptr<T>() + (n * N + i) * M);
        }
      });
    });
  }
  to.store();
}

void cdist_apart(const Args& c) { MT_SWITCH(c.t[0].dtype, "cdist", MT_FLOATS(T, forward<T>(c);)) }
void cdist_slopes(const Args& c) { MT_SWITCH(c.t[0].dtype, "cdist_backward", MT_FLOATS(T, backward<T>(c);)) }
void pdist_apart(const Args& c) { MT_SWITCH(c.t[0].dtype, "pdist", MT_FLOATS(T, pairs<T>(c);)) }
void pdist_slopes(const Args& c) { MT_SWITCH(c.t[0].dtype, "pdist_backward", MT_FLOATS(T, pairs_backward<T>(c);)) }

const Register registered[] = {{"_cdist_apart", cdist_apart}, {"_cdist_slopes", cdist_slopes},
                               {"_pdist_apart", pdist_apart}, {"_pdist_slopes", pdist_slopes}};

}  // namespace
}  // namespace mt
