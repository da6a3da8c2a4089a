// Sequences of queries and keys in any layout: BSND, TND (lengths are ends), and pages of keys. For attention to a few keys.
#pragma once
#include <algorithm>
#include <string>

#include "ops/attention.h"  // argument()
#include "ops/result.h"

namespace cann_sim {

inline bool has(const Call& c, int i) {
  return i >= 0 && c.given(i) && (is_tensor(c.row->args[i].kind) ? c.tensor(i).numel() : c.ints(i).size());
}
inline Value floats(Run& r, int i) { return r.tensor(i).to(mt::kFloat).dense(); }
inline float dot(const float* a, const float* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += double(a[i]) * b[i];
  return float(sum);
}
// An array of integers, or a tensor of them.
Value whole_numbers(Run& r, int i);

// Where the op has them. Ops with two kinds of queries are laid out by those of the index; lengths are tensors or arrays.
struct Layouts {
  int query, key, q_lengths, k_lengths, table, q_layout, k_layout, mode;
  explicit Layouts(const Call& c);
};
void expect_layouts(const Call& c, const Layouts& at);
void expect_depth(const Call& c, const Layouts& at);  // keys are as deep as queries

class Sequences {
 public:
  Sequences(Run& r, const Layouts& at);
  // Calls visit(row of the query, sequence, how many of its keys the query sees).
  template <class F> void each(F&& visit) const {
    for (int64_t b = 0; b < int64_t(all_.size()); ++b)
      for (int64_t i = 0; i < all_[size_t(b)].queries; ++i) {
        const One& one = all_[size_t(b)];
        visit(one.first + i, b, causal_ ? std::max<int64_t>(0, std::min(one.keys, i + 1 + one.keys - one.queries)) : one.keys);
      }
  }
  int64_t key_row(const Call& c, int64_t b, int64_t at) const;  // where a key of a sequence lies; faults beyond the cache
  std::vector<int64_t> key_rows(const Call& c, int64_t b, int64_t seen) const;  // of all keys that a query sees
  // Those of the chosen blocks of keys; the first negative one ends the list.
  std::vector<int64_t> chosen_rows(const Call& c, int64_t b, int64_t seen, const int64_t* chosen, int64_t count, int64_t block) const;

 private:
  struct One {
    int64_t first, queries, key, keys;
  };
  bool causal_;
  std::string key_;
  int64_t page_, rows_;
  Value table_;
  std::vector<One> all_;
};

}  // namespace cann_sim
