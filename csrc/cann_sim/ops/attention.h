// Attention by heads over any of CANN's layouts, forward and backward. Its ops: attention.cpp, attention_infer.cpp.
#pragma once
#include <string>

#include "ops/result.h"

namespace cann_sim {

// A tensor of heads: `dims` says where batch, head, sequence and depth lie. Layouts without a batch dim (TND) cut the
// sequence dim into pieces instead.
class Heads {
 public:
  // For BSH and SBH the last dim holds all heads: `heads` of them.
  Heads(const Value& v, const std::string& layout, int64_t heads);
  int64_t batch() const { return batch_; }
  int64_t heads() const { return v_.sizes[head_]; }
  int64_t length() const { return v_.sizes[seq_]; }
  int64_t depth() const { return v_.sizes[depth_]; }
  // One head of one batch as [length, depth]; where the sequence is cut, rows [from, from + n).
  Value matrix(int64_t b, int64_t h, int64_t from, int64_t n) const;

 private:
  Value v_;
  int batch_dim_ = -1, head_, seq_, depth_;
  int64_t batch_;
};

// Which keys a query sees.
struct Mask {
  Value bits;                 // bool or uint8, nonzero: hidden; absent: none. The last two dims are queries and keys.
  int64_t mode = 0;           // sparseMode
  int64_t before = INT32_MAX, after = INT32_MAX;  // preTokens, nextTokens
  std::vector<int64_t> prefix;                    // of modes 5 and 6, one a batch
  bool hidden(int64_t b, int64_t h, int64_t i, int64_t j, int64_t queries, int64_t keys) const;
  void expect_valid(int64_t queries, int64_t keys) const;
};

struct Attention {
  double scale = 1, keep = 1;
  bool shift_before_scale = true;  // (q k + shift) * scale, or q k * scale + shift
  Value shift;                     // pse: [B or 1, N, queries or 1, keys], float
  Value slopes;                    // pse that is made here: [B, N] or [N], times the distance of query and key, float
  bool slope_of_root = false;      // or times the root of the distance
  int64_t query_start = 0, key_start = 0;  // the positions from which the distance counts
  Value sink;                      // a logit a head that takes part in the softmax and has no value, float
  Value drop;                      // a bit an item of [B, N, queries, keys], one is kept
  Mask mask;
};

// One head: everything float, [queries, depth] and so on. `at` counts the items of the drop mask before this head.
struct Head {
  Value q, k, v;
  int64_t b, h, at;
};
// Writes out [queries, depth of v], and max and sum of every row [queries].
void attend(const Attention& a, const Head& head, const Value& out, const Value& max, const Value& sum);
// Adds to dk and dv, writes dq; dshift, where given, is [queries, keys].
void attend_backward(const Attention& a, const Head& head, const Value& dy, const Value& max, const Value& sum,
                     const Value& dq, const Value& dk, const Value& dv, const Value& dshift);

// ---- what the ops share: their many versions differ in where the arguments lie, so these go by name ------------
int argument(const Call& c, std::initializer_list<const char*> names);  // the first that the row has; -1: none
Value sizes_only(const TensorMeta& t);                                  // a value that may be asked for its sizes
// The heads of keys or values that `heads` queries of this depth share.
int64_t shared_heads(const Value& q, const Value& k, const std::string& layout, int64_t heads);
void expect_heads(const Heads& q, const Heads& k, const Heads& v);

}  // namespace cann_sim
