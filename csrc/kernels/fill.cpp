// Tensors made from numbers: arange, linspace, logspace, eye, and the complex ones made from two real ones.
// A constant is filled in copy.cpp.
#include "expect.h"
#include "indexing.h"

namespace mt {
namespace {

// out[k] = f(double(k)) for from <= k < to. The loop counts in int32, which vectors convert to double; not so int64.
template <class T, class F> void generate(T* out, int64_t from, int64_t to, const F& f) {
  parallel_for(to - from, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t k = from + begin; k < from + end; k += kGrain) {
      const int32_t m = int32_t(std::min(kGrain, from + end - k));
      const double first = double(k);
      for (int32_t j = 0; j < m; ++j) out[k + j] = cast<T>(f(first + double(j)));
    }
  });
}

template <class T> void arange_of(T* out, int64_t n, const Attr& start, const Attr& step) {
  if constexpr (std::is_integral_v<T>) {
    const uint64_t first = uint64_t(start.i), by = uint64_t(step.i);  // unsigned: a range may wrap around
    parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) out[k] = T(first + by * uint64_t(k));
    });
  } else {
    const double first = start.f, by = step.f;
    generate(out, 0, n, [=](double k) { return first + by * k; });
  }
}

// arange.start_step(Scalar start, Scalar end, Scalar step=1) -> Tensor
void arange(const Args& args) {
  Packed out(args.t[0], args.t[0].dtype, Packed::kWrite);
  const int64_t n = out.view.numel();
  if (out.view.dtype == kBool || is_complex(out.view.dtype)) unsupported("arange_cpu", out.view.dtype);
  MT_DISPATCH_REAL(out.view.dtype, "arange_cpu", T, { arange_of(out.ptr<T>(), n, args.a[0], args.a[2]); })
  out.finish();
}

template <class T> using range_t = std::conditional_t<std::is_integral_v<T>, double, compute_t<T>>;

template <class T> T range_end(const Attr& a) {
  if constexpr (is_complex_v<T>) return T(a.f, a.im);
  else return T(a.f);
}

// The first half counts from the start and the second from the end, so that the range is symmetric and ends exactly at its end.
template <class T, class F> void linspace_of(T* out, int64_t n, const Attr& start, const Attr& end, F f) {
  using C = range_t<T>;
  const C first = range_end<C>(start), last = range_end<C>(end);
  const C step = n > 1 ? (last - first) / C(n - 1) : C(0);
  using K = decltype(std::abs(C(0)));  // the index, as a real number of C's precision
  const int64_t half = n == 1 ? 1 : n / 2;
  const double top = double(n - 1);
  generate(out, 0, half, [=](double k) { return f(first + step * K(k)); });
  generate(out, half, n, [=](double k) { return f(last - step * K(top - k)); });
}

// linspace(Scalar start, Scalar end, int steps) -> Tensor
void linspace(const Args& args) {
  Packed out(args.t[0], args.t[0].dtype, Packed::kWrite);
  const int64_t n = out.view.numel();
  if (out.view.dtype == kBool) unsupported("linspace_cpu", kBool);
  MT_DISPATCH_ALL(out.view.dtype, "linspace_cpu", T, {
    linspace_of(out.ptr<T>(), n, args.a[0], args.a[1], [](auto v) { return v; });
  })
  out.finish();
}

template <class T> void logspace_of(T* out, int64_t n, const Args& args) {
  const double base = args.na > 3 && args.a[3].given ? args.a[3].f : 10.0;
  using C = range_t<T>;
  Attr ends[2] = {args.a[0], args.a[1]};
  if constexpr (std::is_integral_v<T>)  // the exponents become what the dtype can hold first, as in torch
    for (Attr& end : ends) end.f = double(cast<C>(cast<T>(C(end.f))));
  if constexpr (is_complex_v<C>) linspace_of(out, n, ends[0], ends[1], [=](C v) { return std::pow(C(base), v); });
  else linspace_of(out, n, ends[0], ends[1], [=](C v) { return C(std::pow(base, double(v))); });
}

// logspace(Scalar start, Scalar end, int steps, float base=10.0) -> Tensor
void logspace(const Args& args) {
  Packed out(args.t[0], args.t[0].dtype, Packed::kWrite);
  if (out.view.dtype == kBool) unsupported("logspace_cpu", kBool);
  MT_DISPATCH_ALL(out.view.dtype, "logspace_cpu", T, { logspace_of(out.ptr<T>(), out.view.numel(), args); })
  out.finish();
}

// eye.m(SymInt n, SymInt m) -> Tensor
void eye(const Args& args) {
  expect(args.t[0].ndim == 2, "eye", "expected a tensor with 2 dimensions");
  Packed out(args.t[0], args.t[0].dtype, Packed::kWrite);
  const int64_t rows = out.view.sizes[0], cols = out.view.sizes[1];
  if (rows * cols) std::memset(out.view.data, 0, rows * cols * itemsize(out.view.dtype));
  const float number = 1;
  alignas(16) char one[16];
  convert(out.view.dtype, one, kFloat, &number, 1);
  const int width = itemsize(out.view.dtype);
  for (int64_t k = 0; k < std::min(rows, cols); ++k) std::memcpy(out.ptr<char>() + (k * cols + k) * width, one, width);
  out.finish();
}

template <class R, class F> void pairs(const View* t, F f) {
  Walk<3> walk;
  walk.ndim = t[0].ndim;
  for (int d = 0; d < t[0].ndim; ++d) {
    walk.sizes[d] = t[0].sizes[d];
    for (int o = 0; o < 3; ++o) {
      int e = d - t[0].ndim + t[o].ndim;
      walk.strides[d][o] = e < 0 || (o > 0 && t[o].sizes[e] == 1) ? 0 : t[o].strides[e];
    }
  }
  const int64_t n = walk.numel();
  if (n == 0) return;
  walk.collapse();
  const int64_t* step = walk.inner();
  parallel_for(n, kGrain / 4, [&](int64_t begin, int64_t end) {
    walk.run(begin, end, [&](const int64_t* at, int64_t m) {
      using C = compute_t<R>;
      R* out = t[0].ptr<R>() + 2 * at[0];  // the two parts of a number lie side by side
      const R *a = t[1].ptr<R>() + at[1], *b = t[2].ptr<R>() + at[2];
      for (int64_t k = 0; k < m; ++k) {
        const std::complex<C> made = f(cast<C>(a[k * step[1]]), cast<C>(b[k * step[2]]));
        out[2 * k * step[0]] = cast<R>(made.real());
        out[2 * k * step[0] + 1] = cast<R>(made.imag());
      }
    });
  });
}

template <class F> void two_parts(const Args& args, const char* op, F f) {
  const View* t = args.t;
  if (t[1].dtype != t[2].dtype || itemsize(t[0].dtype) != 2 * itemsize(t[1].dtype))
    throw std::runtime_error(std::string("Expected both inputs to be Float or Double tensors of one dtype in ") + op);
  MT_SWITCH(t[1].dtype, op, MT_CASE(kHalf, f16, R, { pairs<R>(t, f); }) MT_FLOATS(R, { pairs<R>(t, f); }))
}

// complex(Tensor real, Tensor imag) -> Tensor
void complex(const Args& args) {
  two_parts(args, "complex", [](auto a, auto b) { return std::complex<decltype(a)>(a, b); });
}

// polar(Tensor abs, Tensor angle) -> Tensor
void polar(const Args& args) {
  two_parts(args, "polar", [](auto a, auto b) {
    return std::complex<decltype(a)>(a * std::cos(b), a * std::sin(b));  // std::polar requires a >= 0
  });
}

Register r0("arange", arange);
Register r1("linspace", linspace);
Register r2("logspace", logspace);
Register r3("eye", eye);
Register r4("complex", complex);
Register r5("polar", polar);
Serves ones(kFloat8, {"eye"}), complex32(kComplex32, {"complex"});

}  // namespace
}  // namespace mt
