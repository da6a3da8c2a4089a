// The matrix products of tensors: mm, bmm, addmm, baddbmm, mv, addmv, linear, matmul. The arithmetic is in gemm.cpp.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "dense.h"
#include "dispatch.h"
#include "gemm.h"
#include "library.h"

namespace mt {
namespace {

constexpr int kBatchDims = kMaxDims;
constexpr int64_t kSmallBias = 1 << 14;  // items up to which a bias is copied row by row, on one thread

// A stack of matrices: batch dims with their strides (0 where broadcast), then one matrix.
struct Stack {
  char* data;
  DType dtype;
  int64_t rows, cols, rs, cs;     // sizes and strides of a matrix, in items
  int64_t batch[kBatchDims];      // strides of the batch dims
  bool trans;                     // what orient() found: the matrix is stored transposed, with leading dimension ld
  int64_t ld;
};

struct Batch {
  int n = 0;
  int64_t sizes[kBatchDims];
};

std::string shape(const View& v) {
  std::string s = "[";
  for (int d = 0; d < v.ndim; ++d) s += (d ? ", " : "") + std::to_string(v.sizes[d]);
  return s + "]";
}
std::string by(const View& v) { return std::to_string(v.sizes[0]) + "x" + std::to_string(v.sizes[1]); }

void check_dtypes(const View& a, const View& b) {
  if (a.dtype != b.dtype)
    throw std::runtime_error(std::string("expected m1 and m2 to have the same dtype, but got: ") + dtype_name(a.dtype) +
                             " != " + dtype_name(b.dtype));
}
void check_dims(const View& v, int ndim, const char* name) {
  if (v.ndim != ndim)
    throw std::runtime_error(std::string(name) + " must be a " +
        (ndim == 1 ? "vector" : ndim == 2 ? "matrix" : "3D tensor"));
}

// The last two dims as a matrix. A vector is one column, or one row where as_row is set.
Stack stack(const View& v, const Batch& batch, bool as_row = false) {
  Stack s;
  s.data = v.ptr<char>();
  s.dtype = v.dtype;
  const int n = v.ndim;
  if (n == 1) {
    s.rows = as_row ? 1 : v.sizes[0];
    s.cols = as_row ? v.sizes[0] : 1;
    s.rs = s.cs = v.strides[0];
  } else {
    s.rows = v.sizes[n - 2], s.cols = v.sizes[n - 1];
    s.rs = v.strides[n - 2], s.cs = v.strides[n - 1];
  }
  for (int d = 0; d < batch.n; ++d) {
    const int from = n - 2 - batch.n + d;
    s.batch[d] = from >= 0 && v.sizes[from] != 1 ? v.strides[from] : 0;
  }
  return s;
}

// True when BLAS can read the matrices where they lie: one of the two strides is 1.
bool orient(Stack& s) {
  if ((s.cs == 1 || s.cols <= 1) && (s.rows <= 1 || s.rs >= std::max<int64_t>(s.cols, 1))) {
    s.trans = false;
    s.ld = s.rows <= 1 ? std::max<int64_t>(s.cols, 1) : s.rs;
    return true;
  }
  if ((s.rs == 1 || s.rows <= 1) && (s.cols <= 1 || s.cs >= std::max<int64_t>(s.rows, 1))) {
    s.trans = true;
    s.ld = s.cols <= 1 ? std::max<int64_t>(s.rows, 1) : s.cs;
    return true;
  }
  return false;
}

// Moves a stack to dense memory (broadcast batch dims stay broadcast) and gives the views of both, for copy().
struct Dense {
  std::unique_ptr<char[]> memory;
  int64_t sizes[kBatchDims], from_strides[kBatchDims], to_strides[kBatchDims];
  View from, to;

  void make(Stack& s, const Batch& batch) {
    int n = 0;
    for (int d = 0; d < batch.n; ++d)
      if (s.batch[d] != 0) sizes[n] = batch.sizes[d], from_strides[n++] = s.batch[d];
    sizes[n] = s.rows, from_strides[n++] = s.rs;
    sizes[n] = s.cols, from_strides[n++] = s.cs;
    int64_t items = 1;
    for (int d = n - 1; d >= 0; --d) to_strides[d] = items, items *= sizes[d];
    memory.reset(new char[std::max<int64_t>(1, items * itemsize(s.dtype))]);
    from = View{s.data, sizes, from_strides, n, s.dtype};
    to = View{memory.get(), sizes, to_strides, n, s.dtype};
    s.data = memory.get();
    for (int d = 0, k = 0; d < batch.n; ++d)
      if (s.batch[d] != 0) s.batch[d] = to_strides[k++];
    s.rs = std::max<int64_t>(s.cols, 1), s.cs = 1;  // also rows of no items have a leading dimension
    orient(s);
  }
};

// Merges batch dims that all three stacks step through evenly, so that most batches become one strided batch.
void collapse(Batch& batch, Stack& A, Stack& B, Stack& C) {
  int n = 0;
  for (int d = 0; d < batch.n; ++d) {
    if (batch.sizes[d] == 1) continue;
    auto even = [&](const Stack& s) { return s.batch[n - 1] == s.batch[d] * batch.sizes[d]; };
    const bool merge = n > 0 && even(A) && even(B) && even(C);
    if (merge) batch.sizes[n - 1] *= batch.sizes[d];
    else batch.sizes[n++] = batch.sizes[d];
    for (Stack* s : {&A, &B, &C}) s->batch[n - 1] = s->batch[d];
  }
  batch.n = n;
}

void multiply_oriented(Batch batch, Stack& A, Stack& B, Stack& C, c128 alpha, c128 beta) {
  const DType t = C.dtype;
  collapse(batch, A, B, C);
  int64_t m = A.rows, count = 1, sa = 0, sb = 0, sc = 0;
  if (batch.n) {
    const int last = --batch.n;
    count = batch.sizes[last], sa = A.batch[last], sb = B.batch[last], sc = C.batch[last];
    // Consecutive rows of the batch with the same right matrix are one taller matrix.
    if (sb == 0 && !A.trans && sa == m * A.ld && sc == m * C.ld) m *= count, count = 1;
  }
  int64_t index[kBatchDims], outer = 1;
  for (int d = 0; d < batch.n; ++d) outer *= batch.sizes[d], index[d] = 0;
  const int64_t size = itemsize(t);
  for (int64_t i = 0; i < outer; ++i) {
    int64_t oa = 0, ob = 0, oc = 0;
    for (int d = 0; d < batch.n; ++d) oa += index[d] * A.batch[d], ob += index[d] * B.batch[d],
        oc += index[d] * C.batch[d];
    const char *a = A.data + size * oa, *b = B.data + size * ob;
    char* c = C.data + size * oc;
    if (count == 1) gemm(t, A.trans, B.trans, m, B.cols, A.cols, alpha, a, A.ld, b, B.ld, beta, c, C.ld);
    else gemm_batched(t, A.trans, B.trans, count, m, B.cols, A.cols, alpha, a, A.ld, sa, b, B.ld, sb, beta, c, C.ld,
        sc);
    for (int d = batch.n - 1; d >= 0 && ++index[d] == batch.sizes[d]; --d) index[d] = 0;
  }
}

// C = alpha * A B + beta * C over a batch, whatever the strides.
void multiply(const Batch& batch, Stack& A, Stack& B, Stack& C, c128 alpha, c128 beta) {
  if (C.rows == 0 || C.cols == 0) return;
  if (C.dtype == kBool) unsupported("addmm_impl_cpu_", kBool);
  Dense a, b, c;
  if (!orient(A)) a.make(A, batch), copy(a.to, a.from);
  if (!orient(B)) b.make(B, batch), copy(b.to, b.from);
  const bool fits = orient(C);
  if (!fits) {
    c.make(C, batch);
    if (beta != c128(0)) copy(c.to, c.from);
  }
  if (C.trans) {  // a column-major C: C^T = B^T A^T
    for (Stack* s : {&A, &B, &C}) std::swap(s->rows, s->cols), s->trans = !s->trans;
    multiply_oriented(batch, B, A, C, alpha, beta);
  } else {
    multiply_oriented(batch, A, B, C, alpha, beta);
  }
  if (!fits) copy(c.from, c.to);
}

// out = self broadcast to out, unless it already is; beta == 0 leaves out alone, NaN and all.
void start_from(const View& out, const View& self, c128 beta) {
  if (beta == c128(0) || out.numel() == 0) return;
  if (out.ndim > 0 && self.ndim == 1 && self.sizes[0] == out.sizes[out.ndim - 1] && self.strides[0] == 1 &&
      self.dtype == out.dtype && out.contiguous() && self.data != out.data && out.numel() <= kSmallBias) {
    const int64_t row = self.sizes[0] * itemsize(self.dtype), all = out.numel() * itemsize(out.dtype);
    for (int64_t at = 0; at < all; at += row) std::memcpy(out.ptr<char>() + at, self.data, size_t(row));
    return;
  }
  int64_t strides[kMaxDims];
  bool same = self.data == out.data;
  for (int d = 0; d < out.ndim; ++d) {
    const int from = self.ndim - out.ndim + d;
    const bool broadcast = from < 0 || self.sizes[from] == 1;
    if (!broadcast && self.sizes[from] != out.sizes[d])
      throw std::runtime_error("The expanded size of the tensor (" + std::to_string(out.sizes[d]) +
          ") must match the existing size (" +
          std::to_string(self.sizes[from]) + ") at non-singleton dimension " + std::to_string(d) + ".");
    strides[d] = broadcast ? 0 : self.strides[from];
    same = same && (strides[d] == out.strides[d] || out.sizes[d] == 1);
  }
  if (!same) copy(out, View{self.data, out.sizes, strides, out.ndim, self.dtype});
}

c128 number(const Attr& a) { return a.given ? c128(a.f, a.im) : c128(1); }

void two_dims(const View& out, const View& a, const View& b, c128 alpha, c128 beta) {
  check_dims(a, 2, "mat1");
  check_dims(b, 2, "mat2");
  check_dtypes(a, b);
  if (a.sizes[1] != b.sizes[0])
    throw std::runtime_error("mat1 and mat2 shapes cannot be multiplied (" + by(a) + " and " + by(b) + ")");
  Batch none;
  Stack A = stack(a, none), B = stack(b, none), C = stack(out, none);
  multiply(none, A, B, C, alpha, beta);
}

void three_dims(const View& out, const View& a, const View& b, c128 alpha, c128 beta) {
  check_dims(a, 3, "batch1");
  check_dims(b, 3, "batch2");
  check_dtypes(a, b);
  if (a.sizes[0] != b.sizes[0] || a.sizes[2] != b.sizes[1])
    throw std::runtime_error("Expected size for first two dimensions of batch2 tensor to be: [" +
        std::to_string(a.sizes[0]) + ", " +
        std::to_string(a.sizes[2]) + "] but got: [" + std::to_string(b.sizes[0]) + ", " + std::to_string(b.sizes[1])
            + "].");
  Batch batch;
  batch.n = 1, batch.sizes[0] = out.sizes[0];
  if (batch.sizes[0] == 0) return;
  Stack A = stack(a, batch), B = stack(b, batch), C = stack(out, batch);
  multiply(batch, A, B, C, alpha, beta);
}

void vector(const View& out, const View& mat, const View& vec, c128 alpha, c128 beta) {
  check_dims(mat, 2, "mat");
  check_dims(vec, 1, "vec");
  check_dtypes(mat, vec);
  if (mat.sizes[1] != vec.sizes[0])
    throw std::runtime_error("size mismatch, got input (" + std::to_string(mat.sizes[0]) + "), mat (" + by(mat) +
        "), vec (" +
                             std::to_string(vec.sizes[0]) + ")");
  Batch none;
  Stack A = stack(mat, none), B = stack(vec, none), C = stack(out, none);
  multiply(none, A, B, C, alpha, beta);
}

// mm(Tensor self, Tensor mat2) -> Tensor
void mm(const Args& g) { two_dims(g.t[0], g.t[1], g.t[2], 1, 0); }

// bmm(Tensor self, Tensor mat2) -> Tensor
void bmm(const Args& g) { three_dims(g.t[0], g.t[1], g.t[2], 1, 0); }

// mv(Tensor self, Tensor vec) -> Tensor
void mv(const Args& g) { vector(g.t[0], g.t[1], g.t[2], 1, 0); }

// addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor
void addmm(const Args& g) {
  start_from(g.t[0], g.t[1], number(g.a[0]));
  two_dims(g.t[0], g.t[2], g.t[3], number(g.a[1]), number(g.a[0]));
}

// baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor
void baddbmm(const Args& g) {
  start_from(g.t[0], g.t[1], number(g.a[0]));
  three_dims(g.t[0], g.t[2], g.t[3], number(g.a[1]), number(g.a[0]));
}

// addmv(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor
void addmv(const Args& g) {
  start_from(g.t[0], g.t[1], number(g.a[0]));
  vector(g.t[0], g.t[2], g.t[3], number(g.a[1]), number(g.a[0]));
}

// matmul(Tensor self, Tensor other) -> Tensor
void matmul(const Args& g) {
  const View &out = g.t[0], &a = g.t[1], &b = g.t[2];
  if (a.ndim < 1 || b.ndim < 1)
    throw std::runtime_error("both arguments to matmul need to be at least 1D, but they are " + std::to_string(a.ndim) +
                             "D and " + std::to_string(b.ndim) + "D");
  check_dtypes(a, b);
  const bool row = a.ndim == 1, column = b.ndim == 1;
  if (a.sizes[a.ndim - 1] != b.sizes[column ? 0 : b.ndim - 2])
    throw std::runtime_error("mat1 and mat2 shapes cannot be multiplied (" + shape(a) + " and " + shape(b) + ")");
  Batch batch;
  batch.n = std::max({out.ndim - 2 + row + column, 0});
  for (int d = 0; d < batch.n; ++d) {
    if (out.sizes[d] == 0) return;
    batch.sizes[d] = out.sizes[d];
  }
  // The output with the dim that a vector operand dropped put back, so that it is a stack of matrices again.
  int64_t sizes[kMaxDims + 2], strides[kMaxDims + 2];
  int n = 0;
  for (; n < batch.n; ++n) sizes[n] = out.sizes[n], strides[n] = out.strides[n];
  for (int d = 0; d < 2; ++d) {
    const bool dropped = d == 0 ? row : column;
    const int from = batch.n + (d == 1 && !row);
    sizes[batch.n + d] = dropped ? 1 : out.sizes[from];
    strides[batch.n + d] = dropped ? 1 : out.strides[from];
  }
  Stack A = stack(a, batch, true), B = stack(b, batch),
      C = stack(View{out.data, sizes, strides, batch.n + 2, out.dtype}, batch);
  multiply(batch, A, B, C, 1, 0);
}

// linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor
void linear(const Args& g) {
  const View &out = g.t[0], &input = g.t[1], &weight = g.t[2], bias = g.nt > 3 ? g.t[3] : View{};
  check_dtypes(input, weight);
  if (input.ndim < 1 || weight.ndim < 1 || weight.ndim > 2)
      throw std::runtime_error("linear(): weight must be a matrix or a vector");
  const int64_t in = input.sizes[input.ndim - 1];
  if (weight.sizes[weight.ndim - 1] != in)
    throw std::runtime_error("mat1 and mat2 shapes cannot be multiplied (" +
        std::to_string(in ? input.numel() / in : 0) + "x" +
        std::to_string(in) + " and " + std::to_string(in) + "x" + std::to_string(weight.sizes[0]) + ")");
  if (bias.given()) start_from(out, bias, 1);
  Batch batch;
  batch.n = std::max(input.ndim - 2, 0);
  for (int d = 0; d < batch.n; ++d) {
    if (input.sizes[d] == 0) return;
    batch.sizes[d] = input.sizes[d];
  }
  int64_t sizes[kMaxDims + 1], strides[kMaxDims + 1];  // a vector of weights drops the last dim of the output
  View full = out;
  if (weight.ndim == 1) {
    std::copy_n(out.sizes, out.ndim, sizes), std::copy_n(out.strides, out.ndim, strides);
    sizes[out.ndim] = strides[out.ndim] = 1;
    full = View{out.data, sizes, strides, out.ndim + 1, out.dtype};
  }
  Batch none;
  Stack A = stack(input, batch, true), W = stack(weight, none, true), C = stack(full, batch, true);
  std::swap(W.rows, W.cols), std::swap(W.rs, W.cs);
  std::fill_n(W.batch, batch.n, 0);
  multiply(batch, A, W, C, 1, bias.given() ? 1 : 0);
}

// The 8-bit floats are multiplied as floats.
template <Kernel kernel> void or_float8(const Args& g) {
  if (!is_float8(g.t[0].dtype)) return kernel(g);
  std::vector<std::unique_ptr<mt::Dense>> wide;
  std::vector<View> views;
  for (int i = 0; i < g.nt; ++i) {
    if (g.t[i].given())
      wide.push_back(std::make_unique<mt::Dense>(g.t[i], kFloat, i == 0 ? mt::Dense::kOutput : mt::Dense::kLoad));
    views.push_back(g.t[i].given() ? wide.back()->view() : g.t[i]);
  }
  kernel({views.data(), g.nt, g.a, g.na, nullptr});
  wide[0]->store();
}

const Register registered[] = {{"mm", or_float8<mm>}, {"bmm", bmm}, {"mv", mv}, {"addmm", or_float8<addmm>}, {"baddbmm", baddbmm},
                               {"addmv", addmv}, {"matmul", or_float8<matmul>}, {"linear", or_float8<linear>}};
const Serves float8(kFloat8, {"mm", "addmm", "linear", "matmul"});

}  // namespace
}  // namespace mt
