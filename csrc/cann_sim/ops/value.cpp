// Values: views, temporaries and the door to the kernel library. Shapes are checked by the ops, in the first phase.
#include "ops/value.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "ops/op.h"

namespace cann_sim {
namespace {

// Shapes that do not go together, of which a card's first phase would have said so.
[[noreturn]] void broken(const std::string& what) { throw LateRefusal(ACLNN_ERR_PARAM_INVALID, what); }

void set_strides(Value& v) {
  int64_t step = 1;
  for (int d = v.ndim - 1; d >= 0; --d) {
    v.strides[d] = step;
    step *= v.sizes[d];
  }
}

std::string folder_of_this_library() {
  Dl_info info;
  if (!dladdr(reinterpret_cast<void*>(&folder_of_this_library), &info)) broken("cannot find where libopapi lies");
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/') + 1);
}

const mt::Library& open_kernels() {
  const std::string folder = folder_of_this_library();
  void* opened = nullptr;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    opened = dlopen((folder + "libmt_kernels_avx2.so").c_str(), RTLD_NOW | RTLD_LOCAL);
#endif
  if (!opened) opened = dlopen((folder + "libmt_kernels_base.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!opened) broken(std::string("cannot open the kernel library: ") + dlerror());
  auto get = reinterpret_cast<const mt::Library* (*)()>(dlsym(opened, "mt_kernel_library"));
  if (!get) broken("the kernel library has no table");
  const mt::Library* library = get();
  // OpenBLAS is a wheel of its own, beside this package; CANN_SIM_BLAS names another file.
  const char* named = std::getenv("CANN_SIM_BLAS");
  library->set_blas_path(
      named ? named : (folder + "../../../scipy_openblas32/lib/libscipy_openblas.so").c_str());
  return *library;
}

}  // namespace

const mt::Library& kernels() {
  static const mt::Library& library = open_kernels();
  return library;
}

// ---- views -----------------------------------------------------------------------------------------------------
int64_t Value::numel() const { return ndim < 0 ? 0 : view().numel(); }
bool Value::contiguous() const { return view().contiguous(); }

// A dim from 0 on. Numbers of a client's get here, and what is beyond the dims would be read as sizes.
static int64_t place(int64_t dim, int64_t ndim) {
  if (dim < -ndim || dim >= ndim) broken("dim " + std::to_string(dim) + " of " + std::to_string(ndim) + " dims");
  return dim < 0 ? dim + ndim : dim;
}

int64_t Value::size(int64_t dim) const { return sizes[place(dim, ndim)]; }
void Value::refuse_absent() { broken("an argument that is absent or empty is read"); }

Value Value::permute(const Sizes& order) const {
  Value v = *this;
  if (order.size() != size_t(ndim)) broken("an order of " + std::to_string(order.size()) + " dims for " + std::to_string(ndim));
  for (int d = 0; d < ndim; ++d) {
    const int64_t from = place(order[d], ndim);
    v.sizes[d] = sizes[from];
    v.strides[d] = strides[from];
  }
  return v;
}

Value Value::transpose(int64_t a, int64_t b) const {
  Value v = *this;
  a = place(a, ndim);
  b = place(b, ndim);
  std::swap(v.sizes[a], v.sizes[b]);
  std::swap(v.strides[a], v.strides[b]);
  return v;
}

Value Value::narrow(int64_t dim, int64_t start, int64_t length, int64_t step) const {
  Value v = *this;
  dim = place(dim, ndim);
  if (start < 0 || length < 0 || (length && start + (length - 1) * step >= sizes[dim])) broken("a part beyond the items of a dim");
  v.data = static_cast<char*>(data) + start * strides[dim] * mt::itemsize(dtype);
  v.sizes[dim] = length;
  v.strides[dim] *= step;
  return v;
}

Value Value::select(int64_t dim, int64_t index) const { return narrow(dim, index, 1).squeeze(dim); }

Value Value::unsqueeze(int64_t dim) const {
  Value v = *this;
  dim = place(dim, ndim + 1);
  if (ndim == kMax) broken("too many dims");
  for (int d = ndim; d > dim; --d) {
    v.sizes[d] = sizes[d - 1];
    v.strides[d] = strides[d - 1];
  }
  v.sizes[dim] = v.strides[dim] = 1;
  ++v.ndim;
  return v;
}

Value Value::squeeze(int64_t dim) const {
  Value v = *this;
  dim = place(dim, ndim);
  for (int d = static_cast<int>(dim); d + 1 < ndim; ++d) {
    v.sizes[d] = sizes[d + 1];
    v.strides[d] = strides[d + 1];
  }
  --v.ndim;
  return v;
}

Value Value::expand(const Sizes& to) const {
  Value v = *this;
  v.ndim = static_cast<int32_t>(to.size());
  const int added = v.ndim - ndim;
  if (added < 0 || v.ndim > kMax) broken("cannot broadcast to fewer dims");
  for (int d = 0; d < v.ndim; ++d) {
    const int64_t own = d < added ? 1 : sizes[d - added];
    if (own != to[d] && own != 1) broken("cannot broadcast " + std::to_string(own) + " to " + std::to_string(to[d]));
    v.sizes[d] = to[d];
    v.strides[d] = own == to[d] && d >= added ? strides[d - added] : 0;
  }
  return v;
}

Value Value::as(DType bits) const {
  if (mt::itemsize(bits) != mt::itemsize(dtype)) broken("a view under a dtype of another size");
  Value v = *this;
  v.dtype = bits;
  return v;
}

Value Value::reshape(const Sizes& to) const {
  Value v = dense();
  int64_t known = 1, unknown = -1;
  v.ndim = static_cast<int32_t>(to.size());
  if (v.ndim > kMax) broken("too many dims");
  for (int d = 0; d < v.ndim; ++d) {
    v.sizes[d] = to[d];
    if (to[d] < 0) unknown = d;
    else known *= to[d];
  }
  if (unknown >= 0) v.sizes[unknown] = known ? numel() / known : 0;
  if (v.numel() != numel()) broken("reshape to another number of elements");
  set_strides(v);
  return v;
}

Value Value::to(DType other) const {
  if (!given() || other == dtype) return *this;
  Value v = empty(shape(), other);
  copy(v, *this);
  return v;
}

Value Value::dense() const {
  if (!given() || contiguous()) return *this;
  Value v = empty(shape(), dtype);
  copy(v, *this);
  return v;
}

// ---- making ----------------------------------------------------------------------------------------------------
Value empty(const Sizes& sizes, DType dtype) {
  Value v;
  v.ndim = static_cast<int32_t>(sizes.size());
  if (v.ndim > Value::kMax) broken("too many dims");
  v.dtype = dtype;
  for (int d = 0; d < v.ndim; ++d) v.sizes[d] = sizes[d];
  set_strides(v);
  const size_t bytes = static_cast<size_t>(v.numel()) * mt::itemsize(dtype);
  v.data = kernels().allocate(bytes ? bytes : 1);
  v.owner = std::shared_ptr<void>(v.data, [bytes](void* p) { kernels().release(p, bytes ? bytes : 1); });
  return v;
}

Value full(const Sizes& sizes, DType dtype, double value) {
  Value v = empty(sizes, dtype);
  fill(v, value);
  return v;
}

void copy(const Value& into, const Value& from) {
  call_kernel("copy", {into, from.ndim == into.ndim ? from : from.expand(into.shape())});
}
void fill(const Value& into, double value) { call_kernel("fill", {into}, {number(value)}); }

Value cat(const std::vector<Value>& parts, int64_t dim) {
  Sizes sizes = parts[0].shape();
  if (dim < 0) dim += parts[0].ndim;
  sizes[size_t(dim)] = 0;
  for (const Value& part : parts) sizes[size_t(dim)] += part.size(dim);
  const Value made = empty(sizes, parts[0].dtype);
  int64_t at = 0;
  for (const Value& part : parts) {
    if (part.numel()) copy(made.narrow(dim, at, part.size(dim)), part);
    at += part.size(dim);
  }
  return made;
}

// ---- calling kernels -------------------------------------------------------------------------------------------
mt::Attr number(double x) {
  mt::Attr a;
  a.f = x;
  a.i = x >= -0x1p63 && x < 0x1p63 ? static_cast<int64_t>(x) : 0;
  a.given = true;
  return a;
}
mt::Attr integer(int64_t x) {
  mt::Attr a;
  a.f = static_cast<double>(x);
  a.i = x;
  a.given = true;
  return a;
}
mt::Attr scalar(const aclScalar& s) {
  mt::Attr a;
  a.f = s.re;
  a.im = s.im;
  a.i = s.i;
  a.given = true;
  return a;
}
mt::Attr list(const int64_t* items, int64_t n) {
  mt::Attr a;
  a.list = items;
  a.n = static_cast<int32_t>(n);
  a.given = true;
  return a;
}
mt::Attr list(const Sizes& items) { return list(items.data(), static_cast<int64_t>(items.size())); }
mt::Attr string(const char* s) {
  mt::Attr a;
  a.s = s;
  a.given = true;
  return a;
}
mt::Attr none() { return {}; }

bool has_kernel(const char* name) { return kernels().find(name) != nullptr; }

void call_kernel(const char* name, const std::vector<Value>& tensors, const std::vector<mt::Attr>& attrs,
                 mt::Generator* generator) {
  const mt::Kernel kernel = kernels().find(name);
  if (!kernel) broken(std::string("no kernel ") + name);
  std::vector<mt::View> views;
  views.reserve(tensors.size());
  for (const Value& v : tensors) views.push_back(v.view());
  mt::Args args;
  args.t = views.data();
  args.nt = static_cast<int32_t>(views.size());
  args.a = attrs.data();
  args.na = static_cast<int32_t>(attrs.size());
  args.generator = generator;
  kernel(args);
}

void call_kernel(const char* name, std::initializer_list<Value> tensors, std::initializer_list<mt::Attr> attrs,
                 mt::Generator* generator) {
  call_kernel(name, std::vector<Value>(tensors), std::vector<mt::Attr>(attrs), generator);
}

// ---- whole numbers over zero: a card goes on, where PyTorch's CPU raises ------------------------------------------------
static bool divides(const char* name) {
  for (const char* one : {"div_floor", "div_trunc", "remainder", "fmod"})
    if (!std::strcmp(name, one)) return true;
  return false;
}
static int64_t greatest(DType t) {
  const int bits = int(8 * mt::itemsize(t)) - (t == mt::kUInt8 ? 0 : 1);
  return bits == 63 ? INT64_MAX : (int64_t{1} << bits) - 1;
}
// Quotients by zero are those of floats, limited to the dtype: the greatest, the least, and 0 of 0; remainders are 0.
static void divide_whole(const char* name, DType compute, const Value& out, const Value& a, const Value& b) {
  const Value by = b.to(mt::kInt64).dense(), safe = empty(b.shape(), mt::kInt64), made = empty(out.shape(), compute);
  for (int64_t i = 0; i < by.numel(); ++i) safe.ptr<int64_t>()[i] = by.ptr<int64_t>()[i] ? by.ptr<int64_t>()[i] : 1;
  call_pointwise(name, compute, {made, a, safe});
  const Value whole = made.to(mt::kInt64).dense(), zeros = by.expand(out.shape()).dense(), from = a.to(mt::kInt64).expand(out.shape()).dense();
  const bool quotient = !std::strncmp(name, "div", 3);
  const int64_t most = greatest(compute), least = compute == mt::kUInt8 ? 0 : -most - 1;
  for (int64_t i = 0; i < whole.numel(); ++i) {
    const int64_t x = from.ptr<int64_t>()[i];
    if (!zeros.ptr<int64_t>()[i]) whole.ptr<int64_t>()[i] = !quotient || x == 0 ? 0 : x > 0 ? most : least;
  }
  copy(out, whole);
}
bool divided_over_zero(const char* name, DType compute, const Value& out, const Value& a, const Value& b) {
  if (!mt::is_integral(compute) || compute == mt::kBool || !divides(name)) return false;
  const Value items = b.to(mt::kInt64).dense();
  const int64_t *first = items.ptr<int64_t>(), *last = first + items.numel();
  if (std::find(first, last, 0) == last) return false;
  divide_whole(name, compute, out, a, b);
  return true;
}

void call_pointwise(const char* name, DType compute, std::initializer_list<Value> tensors,
                    std::initializer_list<mt::Attr> attrs) {
  const mt::Pointwise* kernel = kernels().find_pointwise(name);
  if (!kernel) broken(std::string("no pointwise kernel ") + name);
  if (tensors.size() == 3 && divided_over_zero(name, compute, tensors.begin()[0], tensors.begin()[1], tensors.begin()[2])) return;
  std::vector<mt::View> views;
  views.reserve(tensors.size());
  for (const Value& v : tensors) views.push_back(v.view());
  kernels().pointwise(kernel, compute, views.data(), attrs.size() ? attrs.begin() : nullptr);
}

// ---- dtypes ----------------------------------------------------------------------------------------------------
namespace {
struct Pair { aclDataType acl; DType ours; };
constexpr Pair kPairs[] = {
    {ACL_BOOL, mt::kBool}, {ACL_UINT8, mt::kUInt8}, {ACL_INT8, mt::kInt8}, {ACL_INT16, mt::kInt16},
    {ACL_INT32, mt::kInt32}, {ACL_INT64, mt::kInt64}, {ACL_FLOAT16, mt::kHalf}, {ACL_BF16, mt::kBFloat16},
    {ACL_FLOAT, mt::kFloat}, {ACL_DOUBLE, mt::kDouble}, {ACL_COMPLEX64, mt::kComplexFloat},
    {ACL_COMPLEX128, mt::kComplexDouble}};
constexpr Pair kConverted[] = {
    {ACL_UINT16, mt::kUInt16}, {ACL_UINT32, mt::kUInt32}, {ACL_UINT64, mt::kUInt64}, {ACL_COMPLEX32, mt::kComplexHalf},
    {ACL_FLOAT8_E5M2, mt::kFloat8_e5m2}, {ACL_FLOAT8_E4M3FN, mt::kFloat8_e4m3fn}, {ACL_FLOAT8_E8M0, mt::kFloat8_e8m0fnu}};
int category(DType t) { return t == mt::kBool ? 0 : mt::is_integral(t) ? 1 : mt::is_floating(t) ? 2 : 3; }
}  // namespace

bool computes(aclDataType t) {
  for (const Pair& p : kPairs)
    if (p.acl == t) return true;
  return false;
}

bool converts(aclDataType t) {
  for (const Pair& p : kConverted)
    if (p.acl == t) return true;
  return computes(t);
}

DType converted_dtype(aclDataType t) {
  for (const Pair& p : kConverted)
    if (p.acl == t) return p.ours;
  return dtype_of(t);
}

DType dtype_of(aclDataType t) {
  for (const Pair& p : kPairs)
    if (p.acl == t) return p.ours;
  refuse(ACLNN_ERR_PARAM_INVALID, "data type %d is moved, but not computed with", t);
}

DType bits_of(aclDataType t) {
  if (computes(t)) return dtype_of(t);
  switch (element_size(t)) {
    case 1: return mt::kUInt8;
    case 2: return mt::kInt16;
    case 4: return mt::kInt32;
    case 8: return mt::kInt64;
    case 16: return mt::kComplexDouble;
    default: refuse(ACLNN_ERR_PARAM_INVALID, "data type %d has no whole bytes", t);
  }
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  const int ca = category(a), cb = category(b);
  if (ca != cb) {
    const DType high = ca > cb ? a : b, low = ca > cb ? b : a;
    if (high == mt::kComplexFloat && low == mt::kDouble) return mt::kComplexDouble;
    return high;
  }
  if (ca == 1) {  // uint8 with a signed type needs one more bit
    if (a == mt::kUInt8 || b == mt::kUInt8) {
      const DType other = a == mt::kUInt8 ? b : a;
      return other == mt::kInt8 ? mt::kInt16 : other;
    }
    return a > b ? a : b;
  }
  if (ca == 2 && a != mt::kDouble && b != mt::kDouble) return mt::kFloat;  // half with bfloat16, or either with float
  return a > b ? a : b;
}

DType promote(DType tensor, const aclScalar& s) {
  const bool is_unsigned = s.dtype == ACL_UINT16 || s.dtype == ACL_UINT32 || s.dtype == ACL_UINT64;
  const DType of_scalar = is_unsigned ? mt::kInt64 : dtype_of(s.dtype);
  const int ct = category(tensor), cs = category(of_scalar);
  if (cs <= ct) return tensor;
  if (cs == 1) return mt::kInt64;
  if (cs == 2) return mt::kFloat;
  return tensor == mt::kDouble ? mt::kComplexDouble : mt::kComplexFloat;
}

DType opmath(DType t) { return t == mt::kHalf || t == mt::kBFloat16 ? mt::kFloat : t; }
DType real_of(DType t) { return mt::real_dtype(t); }

}  // namespace cann_sim
