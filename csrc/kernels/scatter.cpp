// Writing and reducing into indexed places along one dim: the scatter and index_add families. The walk is in index.cpp.
#include <limits>

#include "indexing.h"

namespace mt {
namespace {

#if defined(__F16C__)
inline float wide(f16 v) { return _cvtsh_ss(v.bits); }
inline void narrow(float v, f16& to) { to.bits = _cvtss_sh(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
#else
inline float wide(f16 v) { return to_float(v); }
inline void narrow(float v, f16& to) { to = to_f16(v); }
#endif
inline float wide(bf16 v) { return to_float(v); }
inline void narrow(float v, bf16& to) {  // to_bf16 without a branch
  uint32_t u;
  std::memcpy(&u, &v, 4);
  to.bits = uint16_t(v != v ? 0x7fc0 : (u + 0x7fff + ((u >> 16) & 1)) >> 16);
}
template <class T, Reduce R> inline T combine(T a, T b) {
  if constexpr (is_half_v<T>) {
    T made;
    narrow(combine<float, R>(wide(a), wide(b)), made);
    return made;
  } else if constexpr (std::is_same_v<T, b8>) return R == kSum || R == kMax ? (a || b) : (a && b);
  else if constexpr (R == kSum) return T(a + b);
  else if constexpr (R == kProd) return T(a * b);
  else if constexpr (R == kMax) return a != a || a > b ? a : b;  // NaN wins on either side
  else return a != a || a < b ? a : b;
}

template <class T, Reduce R>
void combine_loop(char* plain, int64_t ps, char* indexed, int64_t is, const int64_t* offset, int64_t n) {
  const T* p = reinterpret_cast<const T*>(plain);
  T* q = reinterpret_cast<T*>(indexed);
  if (offset && ps == 1 && is == 0) {
#pragma GCC unroll 4
    for (int64_t k = 0; k < n; ++k) q[offset[k]] = combine<T, R>(q[offset[k]], p[k]);
  } else if (offset) {
    for (int64_t k = 0; k < n; ++k) {
      T& to = q[k * is + offset[k]];
      to = combine<T, R>(to, p[k * ps]);
    }
  } else if (ps == 1 && is == 1) {
    T* __restrict to = q;
    const T* __restrict from = p;
    for (int64_t k = 0; k < n; ++k) to[k] = combine<T, R>(to[k], from[k]);
  } else {
    for (int64_t k = 0; k < n; ++k) q[k * is] = combine<T, R>(q[k * is], p[k * ps]);
  }
}

// complex32 is added as the pairs of float16 that it is.
void add_halves(char* plain, int64_t ps, char* indexed, int64_t is, const int64_t* offset, int64_t n) {
  const c32* p = reinterpret_cast<const c32*>(plain);
  c32* q = reinterpret_cast<c32*>(indexed);
  for (int64_t k = 0; k < n; ++k) {
    c32& to = q[k * is + (offset ? offset[k] : 0)];
    to.re = combine<f16, kSum>(to.re, p[k * ps].re);
    to.im = combine<f16, kSum>(to.im, p[k * ps].im);
  }
}

template <class T> Items combine_loop_of(Reduce reduce) {
  if (reduce == kSum) return combine_loop<T, kSum>;
  if (reduce == kProd) return combine_loop<T, kProd>;
  if constexpr (is_complex_v<T>) return nullptr;
  else return reduce == kMax ? combine_loop<T, kMax> : combine_loop<T, kMin>;
}

}  // namespace

Items indexing::combine_items(DType dtype, Reduce reduce, const char* op) {
  if (is_complex(dtype) && (reduce == kMax || reduce == kMin)) unsupported(op, dtype);
  if (dtype == kComplexHalf && reduce == kSum) return add_halves;
  MT_DISPATCH_ALL(dtype, op, T, { return combine_loop_of<T>(reduce); })
  return nullptr;
}

namespace {

[[noreturn]] void bad_copy(int64_t index, int dim, int64_t size) {
  throw std::out_of_range("index_copy_(): index " + std::to_string(index) + " is out of bounds for dimension " +
                          std::to_string(dim) + " with size " + std::to_string(size));
}

// What the ops of this file have in common: t = [out, index, source] with a[0] = dim. scatter's index has the shape
// of the walk (source may be larger); index_add's index is 1-D and source has the shape of the walk.
struct Target {
  Target(const Args& args, bool is_scatter, OutOfBounds bad)
      : out(args.t[0]), dim(wrap_dim(args.a[0].i, args.t[0].ndim)), scatter(is_scatter), bad_(bad),
        wide_(args.t[1], kInt64, Packed::kReadStrided), index(wide_.view) {}

  void write(Items items, const View& source, bool wrap = false) const {
    IndexWalk w;
    w.bad = bad_;
    w.wrap = wrap;
    along_dim(w, scatter ? index : source, source, out, index, dim);
    w.write(items, source, out);
  }
  // Writes or reduces one value at every indexed place of `shape`.
  void write_value(Items items, const void* value, const View& shape, const View& to, bool wrap = false) const {
    View source = shape;
    int64_t zeros[kMaxDims] = {};
    source.data = const_cast<void*>(value);
    source.strides = zeros;
    source.dtype = to.dtype;
    IndexWalk w;
    w.bad = bad_;
    w.wrap = wrap;
    along_dim(w, source, source, to, index, dim);
    w.write(items, source, to);
  }

  View out;
  int dim;
  bool scatter;

 private:
  OutOfBounds bad_;
  Packed wide_;

 public:
  View index;
};

// scatter_.src(Tensor(a!) self, int dim, Tensor index, Tensor src); t = [out, index, src]
void scatter(const Args& args) {
  Target(args, true, bad_gather).write(put_items(args.t[0].dtype), args.t[2]);
}

// scatter_.value(Tensor(a!) self, int dim, Tensor index, Scalar value); t = [out, index]
void scatter_value(const Args& args) {
  Target to(args, true, bad_gather);
  alignas(16) char value[16];
  store_scalar(args.a[1], to.out.dtype, value);
  to.write_value(put_items(to.out.dtype), value, to.index, to.out);
}

// scatter_add_(Tensor(a!) self, int dim, Tensor index, Tensor src); t = [out, index, src]
void scatter_add(const Args& args) {
  Target(args, true, bad_gather).write(combine_items(args.t[0].dtype, kSum, "scatter_add"), args.t[2]);
}

// The value that a reduction starts from.
template <class T> T identity(Reduce reduce) {
  using C = compute_t<T>;
  using L = std::numeric_limits<C>;
  if (reduce == kSum) return cast<T>(C(0));
  if (reduce == kProd) return cast<T>(C(1));
  if constexpr (is_complex_v<T>) return T(0);
  else if (reduce == kMin) return cast<T>(L::has_infinity ? L::infinity() : L::max());
  else return cast<T>(L::has_infinity ? C(-L::infinity()) : L::lowest());
}

// Divides by the number of items that were summed; integers round down.
template <class T> void divide(T* sum, const int64_t* count, int64_t n) {
  using C = compute_t<T>;
  for (int64_t k = 0; k < n; ++k) {
    int64_t c = std::max<int64_t>(count[k], 1);
    if constexpr (std::is_same_v<T, b8>) continue;
    else if constexpr (std::is_integral_v<T>) {
      int64_t q = int64_t(sum[k]) / c;
      sum[k] = T(q - (int64_t(sum[k]) % c < 0));
    } else if constexpr (is_complex_v<T>) sum[k] /= typename T::value_type(c);
    else sum[k] = cast<T>(C(cast<C>(sum[k]) / C(c)));
  }
}

void finish_mean(const Target& to, const View& shape, bool include_self) {
  Packed sum(to.out, to.out.dtype, Packed::kUpdate);
  int64_t n = to.out.numel(), one = 1, strides[kMaxDims], step = 1;
  Scratch<int64_t> counts(n);
  std::fill_n(counts.get(), n, int64_t(include_self));
  View count = to.out;
  for (int d = count.ndim - 1; d >= 0; step *= count.sizes[d--]) strides[d] = step;
  count.data = counts.get();
  count.strides = strides;
  count.dtype = kInt64;
  to.write_value(combine_items(kInt64, kSum, "mean"), &one, shape, count);
  MT_DISPATCH_ALL(sum.view.dtype, "scatter_reduce", T, { divide(sum.ptr<T>(), counts.get(), n); })
  sum.finish();
}

void reduce_into(const Target& to, const View& source, const Attr& name, bool include_self, const char* op) {
  std::string r = name.s ? name.s : "";
  bool mean = r == "mean";
  Reduce reduce;
  if (r == "sum" || r == "add" || mean) reduce = kSum;
  else if (r == "prod" || r == "multiply") reduce = kProd;
  else if (r == "amax") reduce = kMax;
  else if (r == "amin") reduce = kMin;
  else throw std::runtime_error("reduce argument must be either sum, prod, mean, amax or amin, got " + r);
  const View& shape = to.scatter ? to.index : source;
  if (!include_self) {
    alignas(16) char start[16];
    MT_DISPATCH_ALL(to.out.dtype, op, T, {
      T v = identity<T>(reduce);
      std::memcpy(start, &v, sizeof v);
    })
    to.write_value(put_items(to.out.dtype), start, shape, to.out);
  }
  to.write(combine_items(to.out.dtype, reduce, op), source);
  if (mean) finish_mean(to, shape, include_self);
}

// scatter_reduce_.two(Tensor(a!) self, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True)
// t = [out, index, src], a = [dim, reduce, include_self]
void scatter_reduce(const Args& args) {
  Target to(args, true, bad_gather);
  reduce_into(to, args.t[2], args.a[1], args.na < 3 || args.a[2].i, "scatter_reduce");
}

// index_reduce_(Tensor(a!) self, int dim, Tensor index, Tensor source, str reduce, *, bool include_self=True)
// t = [out, index, source], a = [dim, reduce, include_self]
void index_reduce(const Args& args) {
  Target to(args, false, bad_select);
  reduce_into(to, args.t[2], args.a[1], args.na < 3 || args.a[2].i, "index_reduce");
}

// index_add_(Tensor(a!) self, int dim, Tensor index, Tensor source, *, Scalar alpha=1)
// t = [out, index, source], a = [dim, alpha]
void index_add(const Args& args) {
  const View& source = args.t[2];
  Target to(args, false, source.ndim > 1 ? bad_gather : bad_select);
  Items add = combine_items(to.out.dtype, kSum, "index_add");
  const Attr* alpha = args.na > 1 && args.a[1].given ? &args.a[1] : nullptr;
  if (!alpha || (alpha->f == 1 && alpha->im == 0)) return to.write(add, source);
  int64_t n = source.numel();
  Scratch<char> scaled(n * itemsize(source.dtype) + 1);
  DType wide = source.dtype == kComplexHalf ? kComplexFloat : source.dtype;
  Packed from(source, wide, Packed::kRead);
  alignas(16) char factor[16];
  store_scalar(*alpha, wide, factor);
  if (wide != source.dtype) {
    const c64 f = *reinterpret_cast<const c64*>(factor);
    c32* q = reinterpret_cast<c32*>(scaled.get());
    for (int64_t k = 0; k < n; ++k) {
      c64 v = from.ptr<c64>()[k] * f;
      q[k] = {cast<f16>(v.real()), cast<f16>(v.imag())};
    }
  } else MT_DISPATCH_ALL(source.dtype, "index_add", T, {
    const T* p = from.ptr<T>();
    T* q = reinterpret_cast<T*>(scaled.get());
    T f;
    std::memcpy(&f, factor, sizeof f);
    for (int64_t k = 0; k < n; ++k) q[k] = combine<T, kProd>(p[k], f);
  })
  View times = from.view;
  times.dtype = source.dtype;
  int64_t strides[kMaxDims], step = 1;
  for (int d = times.ndim - 1; d >= 0; step *= times.sizes[d--]) strides[d] = step;
  times.data = scaled.get();
  times.strides = strides;
  to.write(add, times);
}

// index_copy_(Tensor(a!) self, int dim, Tensor index, Tensor source); t = [out, index, source]
void index_copy(const Args& args) {
  Target(args, false, bad_copy).write(put_items(args.t[0].dtype), args.t[2]);
}

// index_fill_.int_Scalar(Tensor(a!) self, int dim, Tensor index, Scalar value); t = [out, index], a = [dim, value]
void index_fill(const Args& args) {
  Target to(args, false, bad_index);
  alignas(16) char value[16];
  store_scalar(args.a[1], to.out.dtype, value);
  View shape = to.out;  // with as many items along dim as there are indices
  int64_t sizes[kMaxDims];
  std::copy_n(to.out.sizes, to.out.ndim, sizes);
  shape.ndim = std::max(shape.ndim, 1);  // of no dims: any number of indices, each of which must be 0
  sizes[to.dim] = to.index.numel();
  shape.sizes = sizes;
  to.write_value(put_items(to.out.dtype), value, shape, to.out, true);
}

Register r0("scatter", scatter);
Register r1("scatter_value", scatter_value);
Register r2("scatter_add", scatter_add);
Register r3("scatter_reduce", scatter_reduce);
Register r4("index_reduce", index_reduce);
Register r5("index_add", index_add);
Register r6("index_copy", index_copy);
Register r7("index_fill", index_fill);
Serves complex32_sums(kComplex32, {"index_add"});
Serves rare_items(kWideUnsigned | kFloat8 | kComplex32, {"scatter", "scatter_value", "index_copy", "index_fill"});

}  // namespace
}  // namespace mt
