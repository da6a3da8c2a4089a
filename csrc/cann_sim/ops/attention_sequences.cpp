// Sequences of queries and keys in any layout: the checks of their arguments, and where their rows lie. Registers no op.
#include "ops/attention_sequences.h"

namespace cann_sim {
namespace {

std::string layout_of(const Call& c, int i) { return i >= 0 && c.given(i) && *c.string(i) ? c.string(i) : "BSND"; }

}  // namespace

Value whole_numbers(Run& r, int i) {
  if (is_tensor(r.call.row->args[i].kind)) return index_value(r, i).dense();
  const Span<int64_t> items = r.call.ints(i);
  const Value made = empty({items.size()}, mt::kInt64);
  std::copy(items.begin(), items.end(), made.ptr<int64_t>());
  return made;
}

Layouts::Layouts(const Call& c)
    : query(argument(c, {"queryIndex", "query"})), key(argument(c, {"keyIndex", "key"})),
      q_lengths(argument(c, {"actualSeqLengthsQueryOptional", "actualSeqLengthsQuery"})),
      k_lengths(argument(c, {"actualSeqLengthsKeyOptional", "actualSeqLengthsKey", "actualSeqLengthsKv"})),
      table(argument(c, {"blockTableOptional", "blockTable"})), q_layout(argument(c, {"layoutQueryOptional", "layoutQuery", "layoutOptional"})),
      k_layout(argument(c, {"layoutKeyOptional", "layoutKv", "layoutOptional"})), mode(argument(c, {"sparseMode"})) {}

void expect_layouts(const Call& c, const Layouts& at) {
  const std::string q = layout_of(c, at.q_layout), k = layout_of(c, at.k_layout);
  const TensorMeta &query = c.tensor(at.query), &key = c.tensor(at.key);
  EXPECT(q == "BSND" || q == "TND", "%s: layout %s of queries", c.name(), q.c_str());
  EXPECT(k == "BSND" || k == "TND" || k == "PA_BSND", "%s: layout %s of keys", c.name(), k.c_str());
  EXPECT(query.ndim == (q == "TND" ? 3 : 4) && key.ndim == (k == "TND" ? 3 : 4) && query.numel() && key.numel(), "%s: query %s, key %s", c.name(),
         describe(query).c_str(), describe(key).c_str());
  EXPECT(key.sizes[key.ndim - 2] == 1, "%s: key %s has not one head", c.name(), describe(key).c_str());
  EXPECT(q != "TND" || has(c, at.q_lengths), "%s: layout TND needs the lengths of queries", c.name());
  EXPECT(k == "BSND" || has(c, at.k_lengths), "%s: layout %s needs the lengths of keys", c.name(), k.c_str());
  EXPECT((k == "PA_BSND") == has(c, at.table), "%s: a blockTable goes with layout PA_BSND", c.name());
  EXPECT(c.integer(at.mode) == 0 || c.integer(at.mode) == 3, "%s: sparseMode %ld is not 0 or 3", c.name(), c.integer(at.mode));
  auto count = [&c](int i) { return is_tensor(c.row->args[i].kind) ? c.tensor(i).numel() : c.ints(i).size(); };
  const int64_t batch = q == "TND" ? count(at.q_lengths) : query.sizes[0];
  for (int i : {at.q_lengths, at.k_lengths})
    EXPECT(!has(c, i) || count(i) == batch, "%s: %ld items of %s for %ld sequences", c.name(), count(i), c.row->args[i].name, batch);
  EXPECT(k != "BSND" || key.sizes[0] == batch, "%s: key %s for %ld sequences", c.name(), describe(key).c_str(), batch);
}

void expect_depth(const Call& c, const Layouts& at) {
  const TensorMeta &query = c.tensor(at.query), &key = c.tensor(at.key);
  EXPECT(key.sizes[key.ndim - 1] == query.sizes[query.ndim - 1], "%s: key %s is not as deep as query %s", c.name(), describe(key).c_str(), describe(query).c_str());
}

Sequences::Sequences(Run& r, const Layouts& at) : causal_(r.call.integer(at.mode) == 3), key_(layout_of(r.call, at.k_layout)) {
  const TensorMeta &q = r.call.tensor(at.query), &k = r.call.tensor(at.key);
  const bool packed = layout_of(r.call, at.q_layout) == "TND";
  page_ = key_ == "TND" ? 0 : k.sizes[1];
  rows_ = k.numel() / k.sizes[k.ndim - 1];
  if (has(r.call, at.table)) table_ = index_value(r, at.table).dense();
  const Value ql = has(r.call, at.q_lengths) ? whole_numbers(r, at.q_lengths) : Value();
  const Value kl = has(r.call, at.k_lengths) ? whole_numbers(r, at.k_lengths) : Value();
  const int64_t batch = packed ? ql.numel() : q.sizes[0];
  for (int64_t b = 0; b < batch; ++b) {
    auto from = [b](const Value& ends) { return b ? ends.ptr<int64_t>()[b - 1] : 0; };
    One one;
    one.first = packed ? from(ql) : b * q.sizes[1];
    one.queries = packed ? ql.ptr<int64_t>()[b] - from(ql) : ql.given() ? ql.ptr<int64_t>()[b] : q.sizes[1];
    one.key = key_ == "TND" ? from(kl) : b * page_;
    one.keys = key_ == "TND" ? kl.ptr<int64_t>()[b] - from(kl) : kl.given() ? kl.ptr<int64_t>()[b] : page_;
    const int64_t rows = packed ? q.sizes[0] : one.first + q.sizes[1], keys = table_.given() ? table_.size(1) * page_ : key_ == "TND" ? rows_ : page_;
    if (one.queries < 0 || one.first < 0 || one.first + one.queries > rows || one.keys < 0 || one.keys > keys)
      throw DeviceFault(ACL_ERROR_RT_AICORE_EXCEPTION, std::string(r.call.name()) + ": the lengths of sequence " + std::to_string(b) + " do not fit");
    all_.push_back(one);
  }
}

int64_t Sequences::key_row(const Call& c, int64_t b, int64_t at) const {
  int64_t row = all_[size_t(b)].key + at;
  if (table_.given()) row = at / page_ < table_.size(1) ? table_.ptr<int64_t>()[b * table_.size(1) + at / page_] * page_ + at % page_ : -1;
  if (row < 0 || row >= rows_)
    throw DeviceFault(ACL_ERROR_RT_AICORE_EXCEPTION, std::string(c.name()) + ": key " + std::to_string(at) + " of a sequence is not in the cache");
  return row;
}

std::vector<int64_t> Sequences::key_rows(const Call& c, int64_t b, int64_t seen) const {
  std::vector<int64_t> rows;
  for (int64_t j = 0; j < seen; ++j) rows.push_back(key_row(c, b, j));
  return rows;
}

std::vector<int64_t> Sequences::chosen_rows(const Call& c, int64_t b, int64_t seen, const int64_t* chosen, int64_t count, int64_t block) const {
  std::vector<int64_t> rows;
  for (int64_t n = 0; n < count && chosen[n] >= 0; ++n)
    for (int64_t j = chosen[n] * block, end = std::min(j + block, seen); j < end; ++j) rows.push_back(key_row(c, b, j));
  return rows;
}

}  // namespace cann_sim
