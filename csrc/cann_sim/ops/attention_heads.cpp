// One head of attention, forward and backward, and the layouts that heads come in. No op is registered here.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "ops/attention.h"

namespace cann_sim {

// ---- layouts ---------------------------------------------------------------------------------------------------
Heads::Heads(const Value& v, const std::string& layout, int64_t heads) : v_(v) {
  std::string dims = layout;
  if (dims.back() == 'H') {  // all heads side by side: split the dim
    EXPECT(heads > 0 && v_.size(-1) % heads == 0, "a last dim of %ld does not hold %ld heads", long(v_.size(-1)),
           long(heads));
    int64_t depth = v_.size(-1) / heads, step = v_.strides[v_.ndim - 1];
    v_.sizes[v_.ndim - 1] = heads, v_.strides[v_.ndim - 1] = depth * step;
    v_.sizes[v_.ndim] = depth, v_.strides[v_.ndim] = step;
    ++v_.ndim;
    dims.back() = 'N';
    dims += 'D';
  }
  EXPECT(int(dims.size()) == v_.ndim, "layout %s does not fit %d dims", layout.c_str(), v.ndim);
  for (int d = 0; d < v_.ndim; ++d) {
    if (dims[size_t(d)] == 'B') batch_dim_ = d;
    if (dims[size_t(d)] == 'N') head_ = d;
    if (dims[size_t(d)] == 'S' || dims[size_t(d)] == 'T') seq_ = d;
    if (dims[size_t(d)] == 'D') depth_ = d;
  }
  batch_ = batch_dim_ < 0 ? 1 : v_.sizes[batch_dim_];
}

Value Heads::matrix(int64_t b, int64_t h, int64_t from, int64_t n) const {
  int64_t item = mt::itemsize(v_.dtype), at = h * v_.strides[head_] + from * v_.strides[seq_];
  if (batch_dim_ >= 0) at += b * v_.strides[batch_dim_];
  Value m = v_;
  m.ndim = 2;
  m.sizes[0] = n, m.strides[0] = v_.strides[seq_];
  m.sizes[1] = v_.sizes[depth_], m.strides[1] = v_.strides[depth_];
  if (m.data) m.data = v_.ptr<char>() + at * item;
  return m;
}

// ---- arguments -------------------------------------------------------------------------------------------------
int argument(const Call& c, std::initializer_list<const char*> names) {
  for (const char* name : names)
    for (int i = 0; i < c.row->nargs; ++i)
      if (std::strcmp(c.row->args[i].name, name) == 0) return i;
  return -1;
}

Value sizes_only(const TensorMeta& t) {
  Value v;
  v.ndim = t.ndim;
  for (int d = 0; d < t.ndim; ++d) v.sizes[d] = t.sizes[d], v.strides[d] = t.strides[d];
  return v;
}

int64_t shared_heads(const Value& q, const Value& k, const std::string& layout, int64_t heads) {
  if (layout.back() != 'H') return heads;  // they have a dim of their own
  int64_t depth = q.size(-1) / heads;
  EXPECT(depth > 0 && k.size(-1) % depth == 0, "keys of %ld do not hold heads of depth %ld", long(k.size(-1)),
         long(depth));
  return k.size(-1) / depth;
}

void expect_heads(const Heads& q, const Heads& k, const Heads& v) {
  EXPECT(q.depth() == k.depth(), "queries have depth %ld, keys %ld", long(q.depth()), long(k.depth()));
  EXPECT(k.heads() > 0 && q.heads() % k.heads() == 0, "%ld query heads cannot share %ld key heads", long(q.heads()),
         long(k.heads()));
  EXPECT(k.heads() == v.heads() && k.length() == v.length(), "keys and values differ in heads or length");
  EXPECT(q.batch() == k.batch() && k.batch() == v.batch(), "query, key and value differ in batch");
}

// ---- masks -----------------------------------------------------------------------------------------------------
// sparseMode: 0 the mask within a band, 1 the mask alone, 2 causal from the top left, 3 causal from the bottom right,
// 4 a band from the bottom right, 5 and 6 causal with a visible prefix. 2 to 4 and 6 come with a mask of a fixed size
// whose content the card does not need to read either.
bool Mask::hidden(int64_t b, int64_t h, int64_t i, int64_t j, int64_t queries, int64_t keys) const {
  int64_t ahead = j - i, corner = keys - queries;
  if (mode == 2) return ahead > 0;
  if (mode == 3) return ahead > corner;
  if (mode == 4) return ahead > corner + after || ahead < corner - before;
  if (mode == 6) return ahead > corner && j >= prefix[size_t(b)];
  if (!bits.given()) return false;
  if (mode == 0 && (ahead > after || -ahead > before)) return true;
  const int64_t at[4] = {b, h, i, j};
  int64_t offset = 0;
  for (int d = 0; d < bits.ndim; ++d)
    if (bits.sizes[d] != 1) offset += at[4 - bits.ndim + d] * bits.strides[d];
  return bits.ptr<uint8_t>()[offset] != 0;
}

void Mask::expect_valid(int64_t queries, int64_t keys) const {
  EXPECT(mode >= 0 && mode <= 6, "sparseMode %ld is not supported", long(mode));
  EXPECT(mode < 2 || mode == 5 || bits.given(), "sparseMode %ld needs attenMask", long(mode));
  if (mode >= 2 && mode != 5) return;
  if (!bits.given()) return;
  EXPECT(bits.ndim >= 2 && bits.size(-1) >= keys && (bits.size(-2) >= queries || bits.size(-2) == 1),
         "attenMask is smaller than %ld queries by %ld keys", long(queries), long(keys));
}

// ---- one head --------------------------------------------------------------------------------------------------
namespace {

constexpr float kHidden = -FLT_MAX;

Value matmul(const Value& a, const Value& b) {
  Value made = empty({a.size(0), b.size(1)}, mt::kFloat);
  call_kernel("mm", {made, a, b});
  return made;
}

// Scores of all pairs; what is hidden is kHidden.
Value scores(const Attention& a, const Head& head) {
  Value s = matmul(head.q, head.k.transpose(0, 1));
  int64_t queries = s.size(0), keys = s.size(1);
  float scale = float(a.scale), slope = 0;
  if (a.slopes.given()) slope = a.slopes.ptr<float>()[a.slopes.ndim == 2 ? head.b * a.slopes.sizes[1] + head.h : head.h];
  for (int64_t i = 0; i < queries; ++i)
    for (int64_t j = 0; j < keys; ++j) {
      float& x = s.ptr<float>()[i * keys + j];
      if (a.slopes.given()) {
        const float distance = std::fabs(float(j + a.key_start - i - a.query_start));
        x = x * scale - slope * (a.slope_of_root ? std::sqrt(distance) : distance);
      } else if (a.shift.given()) {
        const int64_t at[4] = {head.b, head.h, i, j};
        int64_t offset = 0;
        for (int d = 0; d < 4; ++d)
          if (a.shift.sizes[d] != 1) offset += at[d] * a.shift.strides[d];
        float shift = a.shift.ptr<float>()[offset];
        x = a.shift_before_scale ? (x + shift) * scale : x * scale + shift;
      } else {
        x *= scale;
      }
      if (a.mask.hidden(head.b, head.h, i, j, queries, keys)) x = kHidden;
    }
  return s;
}

bool kept(const Attention& a, int64_t item) { return a.drop.ptr<uint8_t>()[item / 8] >> item % 8 & 1; }

// Multiplies what dropout keeps by 1 / keep, and the rest by 0.
void drop_out(const Attention& a, const Head& head, const Value& p) {
  if (!a.drop.given() || a.keep >= 1) return;
  float up = float(1 / a.keep), *x = p.ptr<float>();
  for (int64_t i = 0, n = p.numel(); i < n; ++i) x[i] = kept(a, head.at + i) ? x[i] * up : 0;
}

}  // namespace

void attend(const Attention& a, const Head& head, const Value& out, const Value& max, const Value& sum) {
  Value p = scores(a, head);
  int64_t queries = p.size(0), keys = p.size(1);
  for (int64_t i = 0; i < queries; ++i) {
    float *row = p.ptr<float>() + i * keys, top = kHidden, total = 0;
    for (int64_t j = 0; j < keys; ++j) top = std::max(top, row[j]);
    const float sink = a.sink.given() ? a.sink.ptr<float>()[head.h] : kHidden;
    top = std::max(top, sink);
    // A query that sees nothing gets zeros, and a sum that keeps them zeros in the gradient.
    for (int64_t j = 0; j < keys; ++j) total += row[j] = row[j] == kHidden ? 0 : std::exp(row[j] - top);
    if (a.sink.given()) total += std::exp(sink - top);
    if (total == 0) total = FLT_MAX;
    for (int64_t j = 0; j < keys; ++j) row[j] /= total;
    max.ptr<float>()[i] = top;
    sum.ptr<float>()[i] = total;
  }
  drop_out(a, head, p);
  copy(out, matmul(p, head.v));
}

void attend_backward(const Attention& a, const Head& head, const Value& dy, const Value& max, const Value& sum,
                     const Value& dq, const Value& dk, const Value& dv, const Value& dshift) {
  Value p = scores(a, head), ds = matmul(dy, head.v.transpose(0, 1));
  int64_t queries = p.size(0), keys = p.size(1);
  for (int64_t i = 0; i < queries; ++i) {
    float* row = p.ptr<float>() + i * keys;
    float top = max.ptr<float>()[i], total = sum.ptr<float>()[i];
    for (int64_t j = 0; j < keys; ++j) row[j] = row[j] == kHidden ? 0 : std::exp(row[j] - top) / total;
  }
  drop_out(a, head, ds);
  for (int64_t i = 0; i < queries; ++i) {  // the slope of softmax
    float *x = ds.ptr<float>() + i * keys, *row = p.ptr<float>() + i * keys, along = 0;
    for (int64_t j = 0; j < keys; ++j) along += x[j] * row[j];
    for (int64_t j = 0; j < keys; ++j) x[j] = row[j] * (x[j] - along);
  }
  drop_out(a, head, p);
  auto add = [](const Value& into, const Value& part) {
    call_pointwise("add", mt::kFloat, {into, into, part}, {number(1)});
  };
  add(dv, matmul(p.transpose(0, 1), dy));
  if (dshift.given() && !a.shift_before_scale) copy(dshift, ds);
  for (int64_t i = 0, n = ds.numel(); i < n; ++i) ds.ptr<float>()[i] *= float(a.scale);
  if (dshift.given() && a.shift_before_scale) copy(dshift, ds);
  copy(dq, matmul(ds, head.k));
  add(dk, matmul(ds.transpose(0, 1), head.q));
}

}  // namespace cann_sim
