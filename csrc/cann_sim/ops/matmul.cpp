// Matrix and vector products: mm, bmm, matmul, their add forms, dot, ger, addr. Einsum and cross are in linalg.cpp.
#include <algorithm>

#include "ops/op.h"

namespace cann_sim {
namespace {

// ---- dtypes ----------------------------------------------------------------------------------------------------
constexpr int kUseFp16 = 2;  // a cubeMathType

void check_cube(const Call& c, int math_type, int a, int b) {
  expect_math_type(c, math_type, a);
  int64_t type = c.integer(math_type);
  bool bf16[2] = {c.tensor(a).dtype == ACL_BF16, c.tensor(b).dtype == ACL_BF16};
  EXPECT(bf16[0] == bf16[1] || c.tensor(bf16[0] ? b : a).dtype != ACL_FLOAT16, "bfloat16 does not mix with float16");
  EXPECT(type != kUseFp16 || !(bf16[0] && bf16[1]), "cubeMathType 2 (float16) cannot be used with bfloat16");
}

// The dtype of a product. A wider output keeps what the 16-bit floats' float32 accumulator holds.
DType product_dtype(const Value& a, const Value& b, const Value& out, int64_t math_type = 0) {
  DType t = promote(promote(a.dtype, b.dtype), out.dtype);
  const bool floats = a.dtype != mt::kBFloat16 && b.dtype != mt::kBFloat16;  // its exponents do not fit a half
  return math_type == kUseFp16 && t == mt::kFloat && floats ? mt::kHalf : t;
}

// out = kernel(in...), all in one dtype; an output of another dtype is cast at the end.
void product(const char* kernel, DType t, const Value& out, const std::vector<Value>& in,
             const std::vector<mt::Attr>& attrs = {}) {
  std::vector<Value> tensors{out.dtype == t ? out : empty(out.shape(), t)};
  for (const Value& v : in) tensors.push_back(v.to(t));
  call_kernel(kernel, tensors, attrs);
  if (out.dtype != t) copy(out, tensors[0]);
}

void expect_broadcasts(const Call& c, int i, const Sizes& to) {
  EXPECT(broadcast_sizes(sizes_of(c.tensor(i)), to) == to, "%s does not broadcast to the product's shape",
         describe(c.tensor(i)).c_str());
}

// ---- matmul, mm, bmm, mv: (self, mat2, out, cubeMathType) ------------------------------------------------------
// torch.matmul's result: vectors lose their dim, batches broadcast.
Sizes matmul_sizes(const Call& c, int i, int j) {
  Sizes a = sizes_of(c.tensor(i)), b = sizes_of(c.tensor(j));
  EXPECT(!a.empty() && !b.empty(), "a product needs at least 1 dim, got %s and %s", describe(c.tensor(i)).c_str(),
         describe(c.tensor(j)).c_str());
  int64_t rows = a.size() > 1 ? a[a.size() - 2] : -1, cols = b.size() > 1 ? b.back() : -1;
  EXPECT(a.back() == (cols < 0 ? b[0] : b[b.size() - 2]), "%s and %s cannot be multiplied",
         describe(c.tensor(i)).c_str(), describe(c.tensor(j)).c_str());
  a.resize(a.size() - std::min<size_t>(a.size(), 2));
  b.resize(b.size() - std::min<size_t>(b.size(), 2));
  Sizes out = broadcast_sizes(a, b);
  if (rows >= 0) out.push_back(rows);
  if (cols >= 0) out.push_back(cols);
  return out;
}

void check_matmul(const Call& c) {
  check_cube(c, 3, 0, 1);
  expect_shape(c, 2, matmul_sizes(c, 0, 1));
}
void matmul(Run& r) {
  Value a = r.tensor(0), b = r.tensor(1), out = r.tensor(2);
  product("matmul", product_dtype(a, b, out, r.call.integer(3)), out, {a, b});
}

// ---- addmm, baddbmm, addbmm: beta * self + alpha * product -----------------------------------------------------
// Where an op keeps its arguments; an in-place op has out == self.
struct Add { int out, math_type; };
constexpr Add kOutOfPlace{5, 6}, kInPlace{0, 5};  // (self, mat1, mat2, beta, alpha, out?, cubeMathType)

Sizes summed_sizes(const Call& c) {  // of addbmm: the batches are added up
  Sizes out = matmul_sizes(c, 1, 2);
  out.erase(out.begin());
  return out;
}
template <const Add& at, int dims, bool summed = false>
void check_add(const Call& c) {
  check_cube(c, at.math_type, 1, 2);
  for (int i : {1, 2})
    EXPECT(c.tensor(i).ndim == dims, "expected %s of %d dims, got %s", c.row->args[i].name, dims, describe(c.tensor(i)).c_str());
  if (c.tensor(1).ndim == 3)
    EXPECT(c.tensor(1).sizes[0] == c.tensor(2).sizes[0], "batches %ld and %ld differ", long(c.tensor(1).sizes[0]),
           long(c.tensor(2).sizes[0]));
  Sizes out = summed ? summed_sizes(c) : matmul_sizes(c, 1, 2);
  expect_broadcasts(c, 0, out);
  expect_shape(c, at.out, out);
}

void add_product(Run& r, const char* kernel, const Add& at, Value a, Value b) {
  Value out = r.tensor(at.out), self = r.tensor(0);
  DType t = product_dtype(a, b, out, r.call.integer(at.math_type));
  product(kernel, t, out, {self, a, b}, {scalar(r.call.scalar(3)), scalar(r.call.scalar(4))});
}
template <const Add& at> void addmm(Run& r) { add_product(r, "addmm", at, r.tensor(1), r.tensor(2)); }
template <const Add& at> void baddbmm(Run& r) { add_product(r, "baddbmm", at, r.tensor(1), r.tensor(2)); }
// The sum over batches is one product of long rows: (n, b * m) by (b * m, p).
template <const Add& at> void addbmm(Run& r) {
  Value a = r.tensor(1), b = r.tensor(2);
  add_product(r, "addmm", at, a.permute({1, 0, 2}).reshape({a.size(1), a.size(0) * a.size(2)}),
              b.reshape({b.size(0) * b.size(1), b.size(2)}));
}

// ---- addmv: alpha comes before beta: (self, mat, vec, alpha, beta, out, cubeMathType) --------------------------
void check_addmv(const Call& c) {
  check_cube(c, 6, 1, 2);
  Sizes out = matmul_sizes(c, 1, 2);
  expect_broadcasts(c, 0, out);
  expect_shape(c, 5, out);
}
void addmv(Run& r) {
  Value mat = r.tensor(1), vec = r.tensor(2), out = r.tensor(5);
  product("addmv", product_dtype(mat, vec, out), out, {r.tensor(0), mat, vec},
          {scalar(r.call.scalar(4)), scalar(r.call.scalar(3))});
}

// ---- gemm: (A, B, C, alpha, beta, transA, transB, out, cubeMathType) -------------------------------------------
Sizes turned(Sizes s, int64_t transposed) {
  if (transposed) std::swap(s[0], s[1]);
  return s;
}
void check_gemm(const Call& c) {
  check_cube(c, 8, 0, 1);
  Sizes a = turned(sizes_of(c.tensor(0)), c.integer(5)), b = turned(sizes_of(c.tensor(1)), c.integer(6));
  EXPECT(a[1] == b[0], "A has %ld columns, B %ld rows", long(a[1]), long(b[0]));
  expect_broadcasts(c, 2, {a[0], b[1]});
  expect_shape(c, 7, {a[0], b[1]});
}
void gemm(Run& r) {
  Value a = r.tensor(0), b = r.tensor(1), out = r.tensor(7);
  if (r.call.integer(5)) a = a.transpose(0, 1);
  if (r.call.integer(6)) b = b.transpose(0, 1);
  product("addmm", product_dtype(a, b, out, r.call.integer(8)), out, {r.tensor(2), a, b},
          {number(r.call.number(4)), number(r.call.number(3))});
}

// ---- vectors ---------------------------------------------------------------------------------------------------
void check_dot(const Call& c) {  // (self, tensor, out)
  expect_same_shape(c, 1, 0);
  EXPECT(c.tensor(2).numel() == 1, "out must have one item, got %s", describe(c.tensor(2)).c_str());
}
void dot(Run& r) {
  Value a = r.tensor(0), b = r.tensor(1);
  DType t = promote(a.dtype, b.dtype);
  Value sum = empty({}, t);
  call_kernel("dot", {sum, a.to(t), b.to(t)});
  copy(r.tensor(2), sum);
}

void check_ger(const Call& c) {  // (self, vec2, out)
  expect_shape(c, 2, {c.tensor(0).sizes[0], c.tensor(1).sizes[0]});
  EXPECT(can_cast(promote(dtype_of(c.tensor(0).dtype), dtype_of(c.tensor(1).dtype)), dtype_of(c.tensor(2).dtype)),
         "the product cannot be cast to %s", describe(c.tensor(2)).c_str());
}
void ger(Run& r) {
  Value a = r.tensor(0), b = r.tensor(1);
  call_pointwise("mul", promote(a.dtype, b.dtype), {r.tensor(2), a.unsqueeze(1), b.unsqueeze(0)});
}

// (self, vec1, vec2, beta?, alpha?, out): in place out is self
template <int out> void check_addr(const Call& c) {
  EXPECT(c.tensor(1).ndim == 1 && c.tensor(2).ndim == 1, "vec1 and vec2 must have 1 dim, got %s and %s",
         describe(c.tensor(1)).c_str(), describe(c.tensor(2)).c_str());
  Sizes sizes{c.tensor(1).sizes[0], c.tensor(2).sizes[0]};
  expect_broadcasts(c, 0, sizes);
  expect_shape(c, out, sizes);
}
template <int out> void addr(Run& r) {
  Value self = r.tensor(0), a = r.tensor(1), b = r.tensor(2);
  DType t = promote(promote(a.dtype, b.dtype), self.dtype);
  auto factor = [&](int i) { return r.given(i) ? scalar(r.call.scalar(i)) : number(1); };
  product("addr", t, r.tensor(out), {self, a, b}, {factor(3), factor(4)});
}

const Op ops[] = {
    {"aclnnMatmul", check_matmul, matmul},
    {"aclnnMm", check_matmul, matmul},
    {"aclnnMatmulWeightNz", check_matmul, matmul},
    {"aclnnBatchMatMulWeightNz", check_matmul, matmul},
    {"aclnnAddmmWeightNz", check_add<kOutOfPlace, 2>, addmm<kOutOfPlace>},
    {"aclnnBatchMatMul", check_matmul, matmul},
    {"aclnnMv", check_matmul, matmul},
    {"aclnnAddmm", check_add<kOutOfPlace, 2>, addmm<kOutOfPlace>},
    {"aclnnInplaceAddmm", check_add<kInPlace, 2>, addmm<kInPlace>},
    {"aclnnBaddbmm", check_add<kOutOfPlace, 3>, baddbmm<kOutOfPlace>},
    {"aclnnInplaceBaddbmm", check_add<kInPlace, 3>, baddbmm<kInPlace>},
    {"aclnnAddbmm", check_add<kOutOfPlace, 3, true>, addbmm<kOutOfPlace>},
    {"aclnnInplaceAddbmm", check_add<kInPlace, 3, true>, addbmm<kInPlace>},
    {"aclnnAddmv", check_addmv, addmv},
    {"aclnnGemm", check_gemm, gemm},
    {"aclnnDot", check_dot, dot},
    {"aclnnGer", check_ger, ger},
    {"aclnnAddr", check_addr<5>, addr<5>},
    {"aclnnInplaceAddr", check_addr<0>, addr<0>},
};

}  // namespace
}  // namespace cann_sim
