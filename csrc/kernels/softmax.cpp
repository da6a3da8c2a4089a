// _softmax, _log_softmax and their backwards. The fused cross entropy is in cross_entropy.cpp.
#include <limits>
#include <numeric>
#include <vector>

#include "expect.h"
#include "lane_planes.h"
#include "norm.h"
#include "reduce_exp.h"
#include "reduce_moments.h"
#include "short_row.h"

namespace mt {
namespace {

constexpr int64_t kWide = 512;  // columns of a panel at a time, at most
constexpr int64_t kShort = 8;   // items of a row that a vector holds

// ---- one row ----------------------------------------------------------------------------------------------------
template <class T> T maximum(const T* x, int64_t n) {
  T m;
  fold_lanes<1, MaxLanes>(x, n, -std::numeric_limits<T>::infinity(), &m);
  return m;
}
// A row that fits a vector: exp of all lanes at once, where the loop below would take them one by one.
template <class T> void softmax_short(const T* x, T* y, int64_t n) {
  T e[kShort], max = x[0], sum = 0;
  for (int64_t i = 1; i < n; ++i) max = x[i] > max || x[i] != x[i] ? x[i] : max;
  for (int64_t i = 0; i < kShort; ++i) e[i] = i < n ? x[i] - max : T(0);
  for (int64_t i = 0; i < kShort; ++i) e[i] = exp_nonpositive(e[i]);
  for (int64_t i = 0; i < n; ++i) sum += e[i];
  const T scale = 1 / sum;
  for (int64_t i = 0; i < n; ++i) y[i] = e[i] * scale;
}
// The sum of the powers, which softmax leaves in y.
template <class T, bool kLog> T sum_powers(const T* x, T* y, int64_t n, T max) {
  if constexpr (kLog) {
    alignas(64) T e[1024];
    T sum = 0;
    for (int64_t i = 0; i < n; i += 1024) {
      int64_t m = std::min<int64_t>(1024, n - i);
      for (int64_t j = 0; j < m; ++j) e[j] = exp_nonpositive(x[i + j] - max);
      sum += total(e, m);
    }
    return sum;
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = exp_nonpositive(x[i] - max);
    return total(y, n);
  }
}
template <class T, bool kLog> void divide_powers(const T* x, T* y, int64_t n, T max, T sum) {
  const T by = kLog ? std::log(sum) : 1 / sum;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = kLog ? x[i] - max - by : y[i] * by;
}
// A row of few vectors, see short_row.h.
template <class T, bool kLog> void softmax_vectors(const T* x, T* y, int64_t n) {
  using B = Block<T>;
  alignas(64) T e[kVectors];
  const int64_t whole = (n - 1) / B::kItems * B::kItems, tail = n - B::kItems;
  const auto last = B::load(x + tail);
  const T max = B::maximum(x, whole, last);
  const auto last_power = B::powers(x + tail, max);
  auto sum = B::end_of(last_power, whole - tail);
  for (int64_t i = 0; i < whole; i += B::kItems) {
    const auto power = B::powers(x + i, max);
    B::store(e + i, power);
    sum += power;
  }
  const T total = B::fold(sum, [](auto a, auto b) { return a + b; }), by = kLog ? std::log(total) : 1 / total;
  const auto result = [&](auto item, auto power) { return kLog ? item - max - by : power * by; };
  for (int64_t i = 0; i < whole; i += B::kItems) B::store(y + i, result(B::load(x + i), B::load(e + i)));
  B::store(y + tail, result(last, last_power));
}
template <class T, bool kLog> void softmax_row(const T* x, T* y, int64_t n) {
  if constexpr (!kLog)
    if (n <= kShort) return softmax_short(x, y, n);
  if (n >= Block<T>::kItems && n <= kVectors) return softmax_vectors<T, kLog>(x, y, n);
  const T max = maximum(x, n), sum = sum_powers<T, kLog>(x, y, n, max);
  divide_powers<T, kLog>(x, y, n, max, sum);
}
template <class T, bool kLog> void backward_row(const T* g, const T* y, T* gx, int64_t n) {
  const T sum = kLog ? total(g, n) : T(dot(g, y, n));
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) gx[i] = kLog ? g[i] - exp_nonpositive(y[i]) * sum : (g[i] - sum) * y[i];
}

// ---- a panel: softmax down every column -------------------------------------------------------------------------
template <class T, bool kLog>
void softmax_panel(const T* x, int64_t xs, T* y, int64_t ys, int64_t rows, int64_t n) {
  alignas(64) T max[kWide], sum[kWide];
  std::fill_n(max, n, -std::numeric_limits<T>::infinity());
  std::fill_n(sum, n, T(0));
  fold_columns<MaxLanes>(max, x, rows, xs, n);
  for (int64_t i = 0; i < rows; ++i) {
    const T* a = x + i * xs;
    T* b = y + i * ys;
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j) {
      T e = exp_nonpositive(a[j] - max[j]);
      if constexpr (!kLog) b[j] = e;
      sum[j] += e;
    }
  }
  for (int64_t j = 0; j < n; ++j) sum[j] = kLog ? std::log(sum[j]) : 1 / sum[j];
  for (int64_t i = 0; i < rows; ++i) {
    const T* a = x + i * xs;
    T* b = y + i * ys;
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j) b[j] = kLog ? a[j] - max[j] - sum[j] : b[j] * sum[j];
  }
}
template <class T, bool kLog>
void backward_panel(const T* g, int64_t gs, const T* y, int64_t ys, T* gx, int64_t xs, int64_t rows, int64_t n) {
  alignas(64) T sum[kWide];
  std::fill_n(sum, n, T(0));
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < n; ++j) sum[j] += kLog ? g[i * gs + j] : g[i * gs + j] * y[i * ys + j];
  for (int64_t i = 0; i < rows; ++i) {
    const T *a = g + i * gs, *b = y + i * ys;
    T* to = gx + i * xs;
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j) to[j] = kLog ? a[j] - exp_nonpositive(b[j]) * sum[j] : (a[j] - sum[j]) * b[j];
  }
}

// ---- many short rows: turned, they are the columns of a panel ---------------------------------------------------------
constexpr int64_t kItems = 24;  // of a short row, at most

// Rows of a few items each that lie side by side, `kColumns` of them as a panel.
template <class T> class TurnedRows {
 public:
  static constexpr int64_t kColumns = 32;
  T* panel() { return items_; }

  void load(const T* x, int64_t rows, int64_t n) {
    const T* lines[kColumns];
    for (int64_t i = 0; i < kColumns; ++i) lines[i] = x + std::min(i, rows - 1) * n;
    for (int64_t i = 0; i < kColumns; i += kLane) PlaneLanes<T>::load(lines + i, 0, n, items_ + i, kColumns);
  }
  void store(T* y, int64_t rows, int64_t n) const {
    T* lines[kColumns];
    for (int64_t i = 0; i < rows; ++i) lines[i] = y + i * n;
    for (int64_t i = 0; i < rows; i += kLane)
      PlaneLanes<T>::store(items_ + i, 0, n, lines + i, int(std::min<int64_t>(kLane, rows - i)), kColumns);
  }

 private:
  static constexpr int64_t kLane = PlaneLanes<T>::kCount;
  alignas(64) T items_[kItems * kColumns];
};

// Whether the rows are short and lie side by side in all tensors; f(first row, rows) then ran for all of them.
template <class T, class F>
bool short_rows(const Rows& rows, int64_t most, std::initializer_list<const View*> views, int64_t dim, F&& f) {
  if (rows.length > most || rows.count < TurnedRows<T>::kColumns) return false;
  for (const View* v : views)
    if (v->dtype != kDTypeOf<T> || !v->contiguous() || wrap_dim(dim, v->ndim) != v->ndim - 1) return false;
  parallel_for(rows.count, kGrain / 4 / rows.length + 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += TurnedRows<T>::kColumns) f(i, std::min(TurnedRows<T>::kColumns, end - i));
  });
  return true;
}

// Fewer long rows than threads, dense in both tensors: each is cut, and its threads meet for the maximum and for the sum.
template <class T, bool kLog> void long_rows(const Rows& rows, const T* in, T* out, int64_t parts) {
  const int64_t each = (rows.length + parts - 1) / parts;
  std::vector<T> max(rows.count * parts), sum(rows.count * parts);
  const auto run = [&](auto&& f) {  // f(part of all, its row, x, y, items)
    parallel_for(rows.count * parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) rows.each(i / parts, i / parts + 1, [&](const int64_t* off) {
        const int64_t first = std::min(i % parts * each, rows.length), n = std::min(each, rows.length - first);
        f(i, i / parts, in + off[1] + first, out + off[0] + first, n);
      });
    });
  };
  run([&](int64_t i, int64_t, const T* x, T*, int64_t n) { max[i] = maximum(x, n); });
  for (int64_t r = 0; r < rows.count; ++r) max[r] = maximum(max.data() + r * parts, parts);
  run([&](int64_t i, int64_t r, const T* x, T* y, int64_t n) { sum[i] = sum_powers<T, kLog>(x, y, n, max[r]); });
  for (int64_t r = 0; r < rows.count; ++r) sum[r] = std::accumulate(&sum[r * parts], &sum[r * parts] + parts, T(0));
  run([&](int64_t, int64_t r, const T* x, T* y, int64_t n) { divide_powers<T, kLog>(x, y, n, max[r], sum[r]); });
}

// ---- all rows ---------------------------------------------------------------------------------------------------
// A panel is cut so that its columns stay in the second cache between the passes.
template <class T, class F> bool panels(Rows& rows, F body) {
  int64_t cols = rows.step[0] == 1 ? 0 : rows.take_columns();
  if (cols == 0) return false;
  int64_t wide = std::clamp<int64_t>((1 << 18) / int64_t(sizeof(T)) / rows.length, 64, kWide);
  int64_t blocks = (cols + wide - 1) / wide, grain = std::max<int64_t>(1, kGrain / 4 / (wide * rows.length));
  parallel_for(rows.count * blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) rows.each(t / blocks, t / blocks + 1, [&](const int64_t* off) {
      int64_t j = t % blocks * wide, at[3] = {off[0] + j, off[1] + j, off[2] + j};
      body(static_cast<const int64_t*>(at), std::min(wide, cols - j));
    });
  });
  return true;
}

template <class T, bool kLog> void forward(const View& out, const View& in, int64_t dim) {
  constexpr DType d = sizeof(T) == 4 ? kFloat : kDouble;
  Rows rows({&out, &in}, dim);
  if (rows.count == 0 || rows.length == 0) return;
  const int64_t items = rows.length;
  if (short_rows<T>(rows, Block<T>::kItems - 1, {&out, &in}, dim, [&](int64_t first, int64_t count) {
        TurnedRows<T> x;
        x.load(in.ptr<T>() + first * items, count, items);
        softmax_panel<T, kLog>(x.panel(), x.kColumns, x.panel(), x.kColumns, items, x.kColumns);
        x.store(out.ptr<T>() + first * items, count, items);
      }))
    return;
  auto panel = [&](const int64_t* off, int64_t n) {
    softmax_panel<T, kLog>(in.ptr<T>() + off[1], rows.step[1], out.ptr<T>() + off[0], rows.step[0], rows.length, n);
  };
  if (out.dtype == d && in.dtype == d && panels<T>(rows, panel)) return;
  if (const int64_t parts = std::min(get_num_threads() / rows.count, items / kGrain); parts > 1 && !in_parallel() &&
      out.dtype == d && in.dtype == d && rows.step[0] == 1 && rows.step[1] == 1)
    return long_rows<T, kLog>(rows, in.ptr<T>(), out.ptr<T>(), parts);
  parallel_for(rows.count, std::max<int64_t>(1, kGrain / 4 / rows.length), [&](int64_t begin, int64_t end) {
    RowBuffer x(in, d, rows.step[1], rows.length), y(out, d, rows.step[0], rows.length);
    rows.each(begin, end, [&](const int64_t* off) {
      softmax_row<T, kLog>(static_cast<const T*>(x.read(off[1])), static_cast<T*>(y.write_to(off[0])), rows.length);
      y.written(off[0]);
    });
  });
}

template <class T, bool kLog> void backward(const View& out, const View& grad, const View& y, int64_t dim) {
  constexpr DType d = sizeof(T) == 4 ? kFloat : kDouble;
  Rows rows({&out, &grad, &y}, dim);
  if (rows.count == 0 || rows.length == 0) return;
  const int64_t items = rows.length;
  if (short_rows<T>(rows, kLog ? 8 : kItems, {&out, &grad, &y}, dim, [&](int64_t first, int64_t count) {
        TurnedRows<T> g, o;
        g.load(grad.ptr<T>() + first * items, count, items);
        o.load(y.ptr<T>() + first * items, count, items);
        backward_panel<T, kLog>(g.panel(), g.kColumns, o.panel(), g.kColumns, g.panel(), g.kColumns, items, g.kColumns);
        g.store(out.ptr<T>() + first * items, count, items);
      }))
    return;
  auto panel = [&](const int64_t* off, int64_t n) {
    backward_panel<T, kLog>(grad.ptr<T>() + off[1], rows.step[1], y.ptr<T>() + off[2], rows.step[2],
                            out.ptr<T>() + off[0], rows.step[0], rows.length, n);
  };
  if (out.dtype == d && grad.dtype == d && y.dtype == d && panels<T>(rows, panel)) return;
  parallel_for(rows.count, std::max<int64_t>(1, kGrain / 2 / rows.length), [&](int64_t begin, int64_t end) {
    RowBuffer g(grad, d, rows.step[1], rows.length), o(y, d, rows.step[2], rows.length);
    RowBuffer gx(out, d, rows.step[0], rows.length);
    rows.each(begin, end, [&](const int64_t* off) {
      backward_row<T, kLog>(static_cast<const T*>(g.read(off[1])), static_cast<const T*>(o.read(off[2])),
                            static_cast<T*>(gx.write_to(off[0])), rows.length);
      gx.written(off[0]);
    });
  });
}

template <bool kLog> void forward_any(const Args& c) {
  const int64_t rank = c.t[1].ndim;
  const bool last = rank == 0 || (c.a[0].i + rank) % rank == rank - 1;
  const char* name = kLog ? (last ? "log_softmax_lastdim_kernel_impl" : "log_softmax_kernel_impl")
                          : (last ? "softmax_lastdim_kernel_impl" : "softmax_kernel_impl");
  DType d = widened(c.t[1].dtype);
  MT_SWITCH(d, name, MT_FLOATS(T, { forward<T, kLog>(c.t[0], c.t[1], c.a[0].i); }))
}
template <bool kLog> void backward_any(const char* name, const Args& c) {
  expect_like(c.t[1], c.t[0], name, "grad_output");
  expect_like(c.t[2], c.t[0], name, "output");
  DType d = widened(c.t[1].dtype);
  MT_SWITCH(d, name, MT_FLOATS(T, { backward<T, kLog>(c.t[0], c.t[1], c.t[2], c.a[0].i); }))
}
// _softmax(Tensor self, int dim, bool half_to_float) -> Tensor
void softmax(const Args& c) { forward_any<false>(c); }
// _log_softmax(Tensor self, int dim, bool half_to_float) -> Tensor
void log_softmax(const Args& c) { forward_any<true>(c); }
// _softmax_backward_data(Tensor grad_output, Tensor output, int dim, ScalarType input_dtype) -> Tensor
void softmax_backward(const Args& c) { backward_any<false>("softmax_backward", c); }
// _log_softmax_backward_data(Tensor grad_output, Tensor output, int dim, ScalarType input_dtype) -> Tensor
void log_softmax_backward(const Args& c) { backward_any<true>("log_softmax_backward", c); }

Register r_softmax("_softmax", softmax), r_log_softmax("_log_softmax", log_softmax),
    r_softmax_b("_softmax_backward_data", softmax_backward),
    r_log_softmax_b("_log_softmax_backward_data", log_softmax_backward);

}  // namespace
}  // namespace mt
