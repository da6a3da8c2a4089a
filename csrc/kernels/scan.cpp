// Scans along one dim: cumsum, cumprod, cummax, cummin, logcumsumexp.
#include "complex_math.h"
#include "reduce.h"

namespace mt {
namespace {

constexpr int64_t kWide = 2048;  // columns scanned side by side

struct Plus { template <class A> static A of(A a, A b) { return a + b; } static constexpr int kStart = 0; };
struct Times {
  template <class A> static A of(A a, A b) {
    if constexpr (is_complex_v<A>) return complex_times(a, b);
    else return a * b;
  }
  static constexpr int kStart = 1;
};

// A: the type carried along. Four items are scanned apart from the carry, so that only one operation in four waits for
// the one before.
template <class T, class A, class Op> void scan_row(const T* x, T* y, int64_t n) {
  A carry(Op::kStart);
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    A a = A(x[i]), b = Op::of(a, A(x[i + 1])), c = Op::of(b, A(x[i + 2])), d = Op::of(c, A(x[i + 3]));
    y[i] = T(Op::of(carry, a));
    y[i + 1] = T(Op::of(carry, b));
    y[i + 2] = T(Op::of(carry, c));
    y[i + 3] = T(carry = Op::of(carry, d));
  }
  for (; i < n; ++i) y[i] = T(carry = Op::of(carry, A(x[i])));
}

template <class T, class A, class Op>
void scan_columns(const T* x, int64_t xstep, T* y, int64_t ystep, int64_t rows, int64_t n) {
  alignas(64) A carry[kWide];
  std::fill_n(carry, n, A(Op::kStart));
  for (int64_t i = 0; i < rows; ++i, x += xstep, y += ystep)
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j) y[j] = T(carry[j] = Op::of(carry[j], A(x[j])));
}

template <class T, class A, class Op> void scan(const View& out, const View& in, int64_t dim) {
  DType compute = widened(out.dtype);
  if (is_integral(compute)) compute = kInt64;
  Rows rows({&out, &in}, dim);
  if (rows.count == 0 || rows.length == 0) return;
  bool direct = out.dtype == compute && in.dtype == compute;
  int64_t cols = direct && rows.step[0] != 1 ? rows.take_columns() : 0;
  if (cols > 0) {
    int64_t wide = std::min<int64_t>(kWide, std::max<int64_t>(64, (cols + get_num_threads() - 1) / get_num_threads()));
    int64_t blocks = (cols + wide - 1) / wide;
    int64_t grain = std::max<int64_t>(1, kGrain / (wide * rows.length));
    return parallel_for(rows.count * blocks, grain, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) rows.each(t / blocks, t / blocks + 1, [&](const int64_t* off) {
        int64_t j = t % blocks * wide;
        scan_columns<T, A, Op>(in.ptr<T>() + off[1] + j, rows.step[1], out.ptr<T>() + off[0] + j, rows.step[0],
                               rows.length, std::min(wide, cols - j));
      });
    });
  }
  const bool dense = direct && wrap_dim(dim, in.ndim) == in.ndim - 1 && in.contiguous() && out.contiguous();
  parallel_for(rows.count, std::max<int64_t>(1, kGrain / rows.length), [&](int64_t begin, int64_t end) {
    if (dense) {
      for (int64_t i = begin * rows.length; i < end * rows.length; i += rows.length)
        scan_row<T, A, Op>(in.ptr<T>() + i, out.ptr<T>() + i, rows.length);
      return;
    }
    RowBuffer x(in, compute, rows.step[1], rows.length), y(out, compute, rows.step[0], rows.length);
    rows.each(begin, end, [&](const int64_t* off) {
      scan_row<T, A, Op>(static_cast<const T*>(x.read(off[1])), static_cast<T*>(y.write_to(off[0])), rows.length);
      y.written(off[0]);
    });
  });
}

// The input is cast to the output's dtype, which may lose what the type carried along would keep. Floats are carried in
// double, integers wrap.
template <class Op> void cumulate(const char* name, const View& out, const View& in, int64_t dim) {
  const bool wraps = is_integral(out.dtype) && is_integral(in.dtype);
  if (in.dtype != out.dtype && itemsize(out.dtype) < 4 + 4 * is_integral(out.dtype) && !wraps)
    return cumulate<Op>(name, out, Dense(in, out.dtype).view(), dim);
  switch (out.dtype) {
    case kHalf: case kBFloat16: return scan<float, float, Op>(out, in, dim);
    case kFloat: return scan<float, double, Op>(out, in, dim);
    case kDouble: return scan<double, double, Op>(out, in, dim);
    case kComplexFloat: return scan<c64, c128, Op>(out, in, dim);
    case kComplexDouble: return scan<c128, c128, Op>(out, in, dim);
    case kBool: unsupported(name, kBool);
    default: return scan<uint64_t, uint64_t, Op>(out, in, dim);
  }
}
// cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor
void cumsum(const Args& c) { cumulate<Plus>("cumsum", c.t[0], c.t[1], c.a[0].i); }
// cumprod(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor
void cumprod(const Args& c) { cumulate<Times>("cumprod", c.t[0], c.t[1], c.a[0].i); }

// ---- running extremes: the last of equals wins, and NaN stays ---------------------------------------------------
template <class T, bool kMax> void extreme_row(const T* x, T* y, int64_t* index, int64_t n) {
  T best = x[0];
  int64_t at = 0;
  for (int64_t i = 0; i < n; ++i) {
    bool wins = (kMax ? x[i] >= best : x[i] <= best) || x[i] != x[i];
    best = wins ? x[i] : best;
    at = wins ? i : at;
    y[i] = best;
    index[i] = at;
  }
}
// Down columns side by side; best and at belong to the rows so far.
template <class T, bool kMax>
void extreme_columns(const T* x, int64_t xstep, T* y, int64_t ystep, int64_t* index, int64_t istep, int64_t rows, int64_t n) {
  alignas(64) T best[kWide];
  alignas(64) int64_t at[kWide];
  std::copy_n(x, n, best);
  std::fill_n(at, n, 0);
  for (int64_t i = 0; i < rows; ++i, x += xstep, y += ystep, index += istep)
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j) {
      const T item = x[j];
      const bool wins = (kMax ? item >= best[j] : item <= best[j]) | (item != item);
      y[j] = best[j] = wins ? item : best[j];
      index[j] = at[j] = wins ? i : at[j];
    }
}
template <class T, bool kMax> void extremes(const Args& c, DType compute) {
  const View &values = c.t[0], &indices = c.t[1], &in = c.t[2];
  Rows rows({&values, &indices, &in}, c.a[0].i);
  if (rows.count == 0 || rows.length == 0) return;
  const bool direct = values.dtype == compute && in.dtype == compute && indices.dtype == kInt64 && rows.step[0] != 1;
  if (const int64_t cols = direct ? rows.take_columns() : 0; cols > 0) {
    const int64_t wide = std::clamp<int64_t>((cols + get_num_threads() - 1) / get_num_threads(), 64, kWide);
    const int64_t blocks = (cols + wide - 1) / wide;
    return parallel_for(rows.count * blocks, std::max<int64_t>(1, kGrain / (wide * rows.length)), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) rows.each(t / blocks, t / blocks + 1, [&](const int64_t* off) {
        const int64_t j = t % blocks * wide;
        extreme_columns<T, kMax>(in.ptr<T>() + off[2] + j, rows.step[2], values.ptr<T>() + off[0] + j, rows.step[0],
                                 indices.ptr<int64_t>() + off[1] + j, rows.step[1], rows.length, std::min(wide, cols - j));
      });
    });
  }
  parallel_for(rows.count, std::max<int64_t>(1, kGrain / rows.length), [&](int64_t begin, int64_t end) {
    RowBuffer x(in, compute, rows.step[2], rows.length), y(values, compute, rows.step[0], rows.length);
    RowBuffer index(indices, kInt64, rows.step[1], rows.length);
    rows.each(begin, end, [&](const int64_t* off) {
      extreme_row<T, kMax>(static_cast<const T*>(x.read(off[2])), static_cast<T*>(y.write_to(off[0])),
                           static_cast<int64_t*>(index.write_to(off[1])), rows.length);
      y.written(off[0]);
      index.written(off[1]);
    });
  });
}
template <bool kMax> void running(const char* name, const Args& c) {
  DType d = widened(c.t[2].dtype);
  if (d == kBool) return extremes<uint8_t, kMax>(c, kUInt8);  // every true item is then 1
  MT_SWITCH(d, name, MT_INTS(T, { extremes<T, kMax>(c, d); }) MT_FLOATS(T, { extremes<T, kMax>(c, d); }))
}
// cummax(Tensor self, int dim) -> (Tensor values, Tensor indices)
void cummax(const Args& c) { running<true>("cummax", c); }
// cummin(Tensor self, int dim) -> (Tensor values, Tensor indices)
void cummin(const Args& c) { running<false>("cummin", c); }

// ---- logcumsumexp -----------------------------------------------------------------------------------------------
inline double log_add(double a, double b) {
  if (a != a || b != b) return a + b;
  double high = std::max(a, b), low = std::min(a, b);
  return high - high == 0 ? high + std::log1p(std::exp(low - high)) : high;  // infinities: inf - inf is NaN
}
inline c128 log_add(c128 a, c128 b) {
  c128 high = a.real() < b.real() ? b : a, low = a.real() < b.real() ? a : b;
  return std::isinf(high.real()) ? high : high + std::log(1. + std::exp(low - high));
}
template <class T, class A> void log_scan(const View& out, const View& in, DType compute, int64_t dim) {
  Rows rows({&out, &in}, dim);
  if (rows.count == 0 || rows.length == 0) return;
  parallel_for(rows.count, std::max<int64_t>(1, kGrain / 16 / rows.length), [&](int64_t begin, int64_t end) {
    RowBuffer x(in, compute, rows.step[1], rows.length), y(out, compute, rows.step[0], rows.length);
    rows.each(begin, end, [&](const int64_t* off) {
      const T* from = static_cast<const T*>(x.read(off[1]));
      T* to = static_cast<T*>(y.write_to(off[0]));
      A carry = A(from[0]);
      to[0] = from[0];
      for (int64_t i = 1; i < rows.length; ++i) to[i] = T(carry = log_add(carry, A(from[i])));
      y.written(off[0]);
    });
  });
}
// logcumsumexp(Tensor self, int dim) -> Tensor
void logcumsumexp(const Args& c) {
  const View &out = c.t[0], &in = c.t[1];
  DType d = widened(out.dtype);
  switch (d) {
    case kFloat: return log_scan<float, double>(out, in, d, c.a[0].i);
    case kDouble: return log_scan<double, double>(out, in, d, c.a[0].i);
    case kComplexFloat: return log_scan<c64, c128>(out, in, d, c.a[0].i);
    case kComplexDouble: return log_scan<c128, c128>(out, in, d, c.a[0].i);
    default: unsupported("logcumsumexp", in.dtype);
  }
}

Register r_cumsum("cumsum", cumsum), r_cumprod("cumprod", cumprod), r_cummax("cummax", cummax),
    r_cummin("cummin", cummin), r_logcumsumexp("logcumsumexp", logcumsumexp);
Serves scans(kWideUnsigned, {"cumsum", "cumprod"});

}  // namespace
}  // namespace mt
