// Flash attention for inference (prompt, incremental, fused): keys in one tensor, one a batch, or in blocks; packed queries,
// rotated parts, a shared prefix, int8 caches and results.
#include <algorithm>
#include <cmath>

#include "ops/attention.h"
#include "ops/quant_matmul.h"

namespace cann_sim {
namespace {

// One argument by the names that it has in the versions of the op; -1: this one does not have it.
int named(const Call& c, const std::string& name) {
  const int i = argument(c, {(name + "Optional").c_str()});
  return i >= 0 ? i : argument(c, {name.c_str()});
}
bool has(const Call& c, int i) { return i >= 0 && c.given(i) && (!is_tensor(c.row->args[i].kind) || c.tensor(i).numel()); }

struct Places {
  int query, key, value, shift, mask, q_lengths, k_lengths, heads, key_heads, scale, before, after, layout, mode, out, lse, sink, blocks, q_rope, k_rope,
      k_prefix, v_prefix, prefix_length, k_padding, out_scale, out_offset, deq1, quant1, deq2;
  explicit Places(const Call& c)
      : query(named(c, "query")), key(named(c, "key")), value(named(c, "value")), shift(named(c, "pseShift")), mask(named(c, "attenMask")),
        q_lengths(named(c, "actualSeqLengths")), k_lengths(named(c, "actualSeqLengthsKv")), heads(named(c, "numHeads")), key_heads(named(c, "numKeyValueHeads")),
        scale(named(c, "scaleValue")), before(named(c, "preTokens")), after(named(c, "nextTokens")), layout(named(c, "inputLayout")), mode(named(c, "sparseMode")),
        out(named(c, "attentionOut")), lse(named(c, "softmaxLse")), sink(named(c, "learnableSink")), blocks(named(c, "blockTable")), q_rope(named(c, "queryRope")),
        k_rope(named(c, "keyRope")), k_prefix(named(c, "keySharedPrefix")), v_prefix(named(c, "valueSharedPrefix")), prefix_length(named(c, "actualSharedPrefixLen")),
        k_padding(named(c, "kvPaddingSize")), out_scale(named(c, "quantScale2")), out_offset(named(c, "quantOffset2")), deq1(named(c, "deqScale1")),
        quant1(named(c, "quantScale1")), deq2(named(c, "deqScale2")) {
    if (blocks < 0) blocks = named(c, "blocktable");
    if (deq1 < 0) deq1 = named(c, "dequantScale1");
    if (deq2 < 0) deq2 = named(c, "dequantScale2");
    // An incremental step has one query a batch: its lengths are the keys'.
    if (before < 0) std::swap(q_lengths, k_lengths);
  }
  bool computed(int i) const {
    for (int known : {query, key, value, shift, mask, out, lse, sink, blocks, q_rope, k_rope, k_prefix, v_prefix, k_padding, out_scale, out_offset, deq1, quant1, deq2})
      if (i == known) return true;
    return false;
  }
};

Span<TensorMeta> tensors_of(const Call& c, int i) {
  if (is_tensor_list(c.row->args[i].kind)) return c.tensors(i);
  return Span<TensorMeta>{&c.tensor(i), 1};
}

// ---- caches of int8: (item + offset) * scale ---------------------------------------------------------------------------------------
enum Antiquant : int64_t { kByChannel = 0, kByToken = 1, kByHead = 2, kByTokenAndHead = 3, kByTokenInBlocks = 4, kByTokenAndHeadInBlocks = 5 };
struct Restore {
  int scale = -1, offset = -1, part = -1;  // part: which half of numbers that keys and values share
  int64_t mode = kByChannel;
  Restore(const Call& c, bool keys) {
    const std::string side = keys ? "key" : "value";
    scale = named(c, side + "AntiquantScale");
    offset = named(c, side + "AntiquantOffset");
    if (const int i = named(c, side + "AntiquantMode"); i >= 0) mode = c.integer(i);
    if (has(c, scale)) return;
    scale = named(c, "antiquantScale");
    offset = named(c, "antiquantOffset");
    part = keys ? 0 : 1;
    const int i = named(c, "antiquantMode");
    mode = i >= 0 ? c.integer(i) : kByChannel;
  }
  // To rows [n, depth] of head h, the tokens from `from` on of batch b of `batches`.
  void apply(Run& r, const Value& rows, int64_t b, int64_t batches, int64_t h, int64_t heads, int64_t from) const {
    if (!has(r.call, scale)) return;
    const Value by = half(r, scale), more = has(r.call, offset) ? half(r, offset) : Value(), table = in_blocks() ? whole_table(r) : Value();
    const int64_t n = rows.size(0), depth = rows.size(1);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t d = 0; d < depth; ++d) {
        const int64_t at = in_blocks() ? place_in_block(r, table, by.numel(), b, h, heads, from + i) : place(by.numel(), b, batches, h, heads, from + i, d, depth);
        float& x = rows.ptr<float>()[i * depth + d];
        x = (x + (more.given() ? more.ptr<float>()[more.numel() == 1 ? 0 : at] : 0)) * by.ptr<float>()[at];
      }
  }

 private:
  Value half(Run& r, int i) const {
    const Value all = r.tensor(i).to(mt::kFloat).dense().reshape({-1});
    return part < 0 ? all : all.narrow(0, part * (all.numel() / 2), all.numel() / 2);
  }
  bool in_blocks() const { return mode == kByTokenInBlocks || mode == kByTokenAndHeadInBlocks; }
  static Value whole_table(Run& r) { return r.tensor(Places(r.call).blocks).to(mt::kInt64).dense(); }
  // Scales [blocks, size] or [blocks, heads, size], found by the table of the keys' blocks.
  int64_t place_in_block(Run& r, const Value& table, int64_t count, int64_t b, int64_t h, int64_t heads, int64_t token) const {
    const int64_t blocks = r.call.tensor(scale).sizes[0], rows = mode == kByTokenInBlocks ? 1 : heads, size = count / std::max<int64_t>(blocks * rows, 1);
    const int64_t block = size ? table.ptr<int64_t>()[b * table.size(1) + std::min(token / size, table.size(1) - 1)] : -1;
    if (block < 0 || block >= blocks || token / size >= table.size(1)) throw DeviceFault(ACL_ERROR_RT_AICORE_EXCEPTION, "the scales of the cache have too few blocks");
    return (block * rows + (rows > 1 ? h : 0)) * size + token % size;
  }
  int64_t place(int64_t count, int64_t b, int64_t batches, int64_t h, int64_t heads, int64_t token, int64_t d, int64_t depth) const {
    int64_t at = 0;
    if (count == 1) return 0;
    if (mode == kByChannel) at = h * depth + d;
    if (mode == kByHead) at = h;
    if (mode == kByToken) at = b * (count / batches) + token;
    if (mode == kByTokenAndHead) at = (b * heads + h) * (count / (batches * heads)) + token;
    if (at >= count) throw DeviceFault(ACL_ERROR_RT_AICORE_EXCEPTION, "the scales of the cache have too few items");
    return at;
  }
};

// ---- the problem by its sizes ---------------------------------------------------------------------------------------------------------
struct Problem {
  Places at;
  std::string layout, out_layout;
  int64_t heads, key_heads;
  Heads q;
  bool packed, in_blocks, listed;
  int64_t batches;

  explicit Problem(const Call& c, const Value& query)
      : at(c), layout(c.string(at.layout)), heads(head_count(c, at.heads)), key_heads(c.integer(at.key_heads) > 0 ? c.integer(at.key_heads) : heads),
        q(query, split(c), heads), packed(layout.find('T') != std::string::npos), in_blocks(has(c, at.blocks)), listed(tensors_of(c, at.key).size() > 1) {
    batches = packed ? c.given(at.q_lengths) ? c.ints(at.q_lengths).size() : 0 : q.batch();
    EXPECT(!packed || batches > 0, "layout %s needs the ends of the sequences", layout.c_str());
    EXPECT(q.heads() == heads && heads % key_heads == 0, "%ld query heads cannot share %ld key heads", long(q.heads()), long(key_heads));
  }
  int64_t first_query(const Call& c, int64_t b) const { return packed && b ? c.ints(at.q_lengths)[b - 1] : 0; }
  int64_t queries(const Call& c, int64_t b) const {
    if (packed) return c.ints(at.q_lengths)[b] - first_query(c, b);
    return length(c, at.q_lengths, b, q.length());
  }
  // Ends of packed keys; lengths everywhere else. Blocks know no length of their own.
  int64_t first_key(const Call& c, int64_t b) const { return packed && !in_blocks && b ? c.ints(at.k_lengths)[b - 1] : 0; }
  int64_t keys(const Call& c, int64_t b) const {
    if (packed && !in_blocks) return c.ints(at.k_lengths)[b] - first_key(c, b);
    return length(c, at.k_lengths, b, in_blocks ? -1 : listed ? room(c, b, false) : room(c, 0, false));
  }
  // How many keys there is room for: in the tensor of a batch, in the one tensor, in the blocks that a batch has.
  int64_t room(const Call& c, int64_t b, bool values) const {
    const TensorMeta& t = tensors_of(c, values ? at.value : at.key)[listed ? b : 0];
    if (in_blocks) {
      const TensorMeta& table = c.tensor(at.blocks);
      return table.sizes[table.ndim - 1] * block_size(t);
    }
    return Heads(sizes_only(t), layout_of_keys(), key_heads).length();
  }
  static int64_t block_size(const TensorMeta& cache) { return cache.ndim == 3 ? cache.sizes[1] : cache.ndim == 4 ? cache.sizes[2] : cache.sizes[3]; }
  std::string layout_of_keys() const { return layout; }
  int64_t prefix(const Call& c) const {
    if (!has(c, at.k_prefix)) return 0;
    if (at.prefix_length >= 0 && c.given(at.prefix_length) && c.ints(at.prefix_length).size()) return c.ints(at.prefix_length)[0];
    return Heads(sizes_only(c.tensor(at.k_prefix)), layout, key_heads).length();
  }

 private:
  static int64_t length(const Call& c, int i, int64_t b, int64_t whole) {
    if (i < 0 || !c.given(i) || c.ints(i).size() == 0) {
      EXPECT(whole >= 0, "keys in blocks need actualSeqLengthsKv");
      return whole;
    }
    return c.ints(i)[c.ints(i).size() == 1 ? 0 : b];
  }
  static int64_t head_count(const Call& c, int i) {
    EXPECT(c.integer(i) > 0, "numHeads must be positive, got %ld", long(c.integer(i)));
    return c.integer(i);
  }
  // "BNSD_BSND" has the layout of the inputs and that of the result.
  std::string split(const Call& c) {
    const size_t cut = layout.find('_');
    out_layout = cut == std::string::npos ? layout : layout.substr(cut + 1);
    layout = layout.substr(0, cut);
    auto among = [](const std::string& one, std::initializer_list<const char*> all) { return std::find(all.begin(), all.end(), one) != all.end(); };
    EXPECT(among(layout, {"BSH", "BSND", "BNSD", "NSD", "TND", "NTD"}) && among(out_layout, {"BSH", "BSND", "BNSD", "NSD", "TND", "NTD", "NBSD"}), "inputLayout %s is not supported",
           c.string(at.layout));
    return layout;
  }
};

void check_quantised(const Call& c, const Places& at) {
  for (int i = 0; i < c.row->nargs; ++i) {
    const std::string name = c.row->args[i].name;
    if (!has(c, i) || (!is_tensor(c.row->args[i].kind) && !is_tensor_list(c.row->args[i].kind)) || at.computed(i)) continue;
    const bool restores = name.find("ntiquantScale") != std::string::npos || name.find("ntiquantOffset") != std::string::npos;
    if (!restores || name.find("Rope") != std::string::npos) refuse(561003, "%s with %s is not computed", c.name(), name.c_str());
  }
  const aclDataType keys = tensors_of(c, at.key)[0].dtype, query = c.tensor(at.query).dtype;
  for (bool side : {true, false}) {
    const Restore restore(c, side);
    if (!has(c, restore.scale)) continue;
    EXPECT(keys == ACL_INT8 && query != ACL_INT8, "antiquant scales need keys of int8 and other queries");
    if (restore.mode < kByChannel || restore.mode > kByTokenAndHeadInBlocks) refuse(561003, "%s with antiquantMode %ld is not computed", c.name(), long(restore.mode));
    EXPECT(restore.mode <= kByTokenAndHead || (has(c, at.blocks) && c.tensor(restore.scale).ndim >= 2), "antiquantMode %ld goes with blockTable and scales of blocks",
           long(restore.mode));
  }
  EXPECT(keys == query || (keys == ACL_INT8 && has(c, Restore(c, true).scale)), "query is %s, keys are %s", describe(c.tensor(at.query)).c_str(),
         describe(tensors_of(c, at.key)[0]).c_str());
  EXPECT(query != ACL_INT8 || (has(c, at.deq1) && has(c, at.quant1) && has(c, at.deq2)), "queries of int8 need deqScale1, quantScale1 and deqScale2");
  const aclDataType out = c.tensor(at.out).dtype;
  EXPECT((out == ACL_INT8) == has(c, at.out_scale), "quantScale2 goes with a result of int8");
  EXPECT(out == query || out == ACL_INT8 || query == ACL_INT8, "query and attentionOut must have one dtype");
}

void check(const Call& c) {
  Places at(c);
  const int shift_kind = argument(c, {"pseType"});
  if (shift_kind >= 0 && c.integer(shift_kind) > 1) refuse(561003, "%s with pseType %ld is not computed", c.name(), long(c.integer(shift_kind)));
  Problem p(c, sizes_only(c.tensor(at.query)));
  check_quantised(c, at);
  const Span<TensorMeta> all_keys = tensors_of(c, at.key), all_values = tensors_of(c, at.value);
  EXPECT(all_keys.size() == all_values.size() && (all_keys.size() == 1 || all_keys.size() == p.batches), "%ld tensors of keys, %ld of values, %ld batches",
         long(all_keys.size()), long(all_values.size()), long(p.batches));
  if (p.in_blocks) {
    const TensorMeta& table = c.tensor(at.blocks);
    EXPECT(table.ndim == 2 && table.sizes[0] == p.batches, "blockTable %s does not have a row for each of %ld batches", describe(table).c_str(), long(p.batches));
    EXPECT(all_keys[0].ndim >= 3 && all_keys[0].ndim <= 5, "a cache of %s is not supported", describe(all_keys[0]).c_str());
  } else {
    Heads k(sizes_only(all_keys[0]), p.layout_of_keys(), p.key_heads), v(sizes_only(all_values[0]), p.layout_of_keys(), p.key_heads);
    EXPECT(k.heads() == p.key_heads && v.heads() == p.key_heads && k.length() == v.length(), "keys and values differ in heads or length");
    EXPECT(k.depth() == p.q.depth(), "queries have depth %ld, keys %ld", long(p.q.depth()), long(k.depth()));
    EXPECT(p.listed || k.batch() == p.q.batch(), "query and key differ in batch");
    EXPECT(!p.packed || c.given(at.k_lengths), "layout %s needs the ends of the keys", p.layout.c_str());
  }
  EXPECT(has(c, at.q_rope) == has(c, at.k_rope), "queryRope and keyRope come together");
  Mask mask;
  mask.mode = at.mode < 0 ? 0 : c.integer(at.mode);
  EXPECT(mask.mode <= 4, "sparseMode %ld is not supported", long(mask.mode));
  if (at.mask >= 0 && c.given(at.mask)) mask.bits = sizes_only(c.tensor(at.mask));
  const int64_t before = p.prefix(c);
  for (int64_t b = 0; b < p.batches; ++b) {
    const int64_t queries = p.queries(c, b), keys = p.keys(c, b);
    EXPECT(queries >= 0 && p.first_query(c, b) + queries <= p.q.length() && keys >= 0 && p.first_key(c, b) + keys <= p.room(c, b, false),
           "the lengths of batch %ld do not fit", long(b));
    mask.expect_valid(queries, keys + before);
  }
  if (has(c, at.sink)) expect_shape(c, at.sink, {p.heads});
  // Without the flag softmaxLse is a placeholder: absent, or of any shape and data type.
  if (at.lse >= 0 && c.integer(argument(c, {"softmaxLseFlag"}))) {
    EXPECT(c.given(at.lse), "softmaxLse is null, and softmaxLseFlag is set");
    expect_shape(c, at.lse, p.packed ? Sizes{p.q.length(), p.heads, 1} : Sizes{p.q.batch(), p.heads, p.q.length(), 1});
    EXPECT(c.tensor(at.lse).dtype == ACL_FLOAT, "softmaxLse must be float32, got %s", describe(c.tensor(at.lse)).c_str());
  }
  const Heads out(sizes_only(c.tensor(at.out)), p.out_layout, p.heads);
  EXPECT(out.heads() == p.heads && out.length() == p.q.length(), "attentionOut %s does not fit", describe(c.tensor(at.out)).c_str());
}

// ---- keys or values, wherever they lie -------------------------------------------------------------------------------------------------
class Cache {
 public:
  Cache(Run& r, const Problem& p, int argument) : p_(p) {
    for (const TensorMeta& t : tensors_of(r.call, argument)) all_.push_back(r.value(t));
    if (p.in_blocks) table_ = r.tensor(p.at.blocks).to(mt::kInt64).dense();
  }
  // Rows [from, from + n) of head h of batch b, float32.
  Value rows(int64_t b, int64_t h, int64_t from, int64_t n) const {
    if (!p_.in_blocks) return Heads(all_[p_.listed ? size_t(b) : 0], p_.layout_of_keys(), p_.key_heads).matrix(p_.listed ? 0 : b, h, from, n).to(mt::kFloat).dense();
    const Value& cache = all_[0];
    const int64_t size = cache.size(cache.ndim == 3 ? 1 : cache.ndim == 4 ? 2 : 3), width = table_.size(1);
    const Value first = of_head(cache.select(0, 0), h), made = empty({n, first.size(1)}, mt::kFloat);
    for (int64_t done = 0; done < n;) {
      const int64_t token = from + done, block = table_.ptr<int64_t>()[b * width + token / size], count = std::min(size - token % size, n - done);
      if (block < 0 || block >= cache.size(0)) throw DeviceFault(ACL_ERROR_RT_AICORE_EXCEPTION, "blockTable names block " + std::to_string(block) + " of " + std::to_string(cache.size(0)));
      copy(made.narrow(0, done, count), of_head(cache.select(0, block), h).narrow(0, token % size, count));
      done += count;
    }
    return made;
  }

 private:
  // One head of a block, [tokens, depth]: of [tokens, heads * depth], [heads, tokens, depth] or [heads, depth / 16, tokens, 16].
  Value of_head(const Value& block, int64_t h) const {
    if (block.ndim == 2) return block.narrow(1, h * (block.size(1) / p_.key_heads), block.size(1) / p_.key_heads);
    const Value own = block.select(0, h);
    return own.ndim == 2 ? own : own.transpose(0, 1).dense().reshape({own.size(1), own.size(0) * own.size(2)});
  }
  const Problem& p_;
  std::vector<Value> all_;
  Value table_;
};

// A result of int8: item * scale + offset, with numbers for all or for each channel.
void store(Run& r, const Places& at, const Value& into, const Value& made, int64_t h) {
  if (into.dtype != mt::kInt8) return copy(into, made);
  const Value by = scale_of(r, at.out_scale).to(mt::kFloat).dense(), more = has(r.call, at.out_offset) ? r.tensor(at.out_offset).to(mt::kFloat).dense() : Value();
  const int64_t depth = made.size(1);
  auto item = [&](const Value& v, int64_t d) { return v.ptr<float>()[v.numel() == 1 ? 0 : h * depth + d]; };
  for (int64_t i = 0; i < made.numel(); ++i) {
    float& x = made.ptr<float>()[i];
    x = std::min(std::max(std::nearbyint(x * item(by, i % depth) + (more.given() ? item(more, i % depth) : 0)), -128.0f), 127.0f);
  }
  copy(into, made);
}

void run(Run& r) {
  const Call& c = r.call;
  Places at(c);
  Problem p(c, r.tensor(at.query));
  Attention a;
  a.scale = c.number(at.scale);
  a.shift_before_scale = false;
  if (has(c, at.shift)) a.shift = r.tensor(at.shift).to(mt::kFloat);
  if (at.mask >= 0) a.mask.bits = r.tensor(at.mask);
  if (has(c, at.sink)) a.sink = r.tensor(at.sink).to(mt::kFloat).dense();
  if (at.mode >= 0) a.mask.mode = c.integer(at.mode);
  if (at.before >= 0) a.mask.before = c.integer(at.before), a.mask.after = c.integer(at.after);
  const bool integers = c.tensor(at.query).dtype == ACL_INT8;
  auto number_of = [&](int i) { return *scale_of(r, i).to(mt::kFloat).dense().ptr<float>(); };
  if (integers) a.scale *= number_of(at.deq1);
  const float after = integers ? number_of(at.quant1) * number_of(at.deq2) : 1;
  Value whole = r.tensor(at.out), lse = at.lse >= 0 && c.integer(argument(c, {"softmaxLseFlag"})) ? r.tensor(at.lse) : Value();
  Heads out(whole, p.out_layout, p.heads);
  fill(whole, 0);  // queries beyond a batch's length
  const Cache keys(r, p, at.key), values(r, p, at.value);
  const Restore restore_keys(c, true), restore_values(c, false);
  const bool parts = has(c, at.q_rope);
  const Cache key_parts = parts ? Cache(r, p, at.k_rope) : keys;
  const Heads query_parts = parts ? Heads(r.tensor(at.q_rope), p.layout, p.heads) : p.q;
  const int64_t before = p.prefix(c), padding = has(c, at.k_padding) ? *r.tensor(at.k_padding).to(mt::kInt64).dense().ptr<int64_t>() : 0;
  auto behind_prefix = [&](const Value& rows, int i, int64_t h) {
    return before ? cat({Heads(r.tensor(i), p.layout, p.key_heads).matrix(0, h, 0, before).to(mt::kFloat).dense(), rows}, 0) : rows;
  };
  for (int64_t b = 0; b < p.batches; ++b)
    for (int64_t h = 0; h < p.heads; ++h) {
      const int64_t queries = p.queries(c, b), n = p.keys(c, b), kh = h / (p.heads / p.key_heads), q0 = p.first_query(c, b);
      const int64_t k0 = has(c, at.k_padding) ? p.room(c, b, false) - padding - n : p.first_key(c, b);
      if (k0 < 0) throw DeviceFault(ACL_ERROR_RT_AICORE_EXCEPTION, "kvPaddingSize leaves no room for the keys");
      Value q = p.q.matrix(b, h, q0, queries).to(mt::kFloat).dense(), k = keys.rows(b, kh, k0, n), v = values.rows(b, kh, k0, n);
      restore_keys.apply(r, k, b, p.batches, kh, p.key_heads, k0);
      restore_values.apply(r, v, b, p.batches, kh, p.key_heads, k0);
      if (parts) q = cat({q, query_parts.matrix(b, h, q0, queries).to(mt::kFloat).dense()}, 1), k = cat({k, key_parts.rows(b, kh, k0, n)}, 1);
      Head head{q, behind_prefix(k, at.k_prefix, kh), behind_prefix(v, at.v_prefix, kh), b, h, 0};
      Value max = empty({queries}, mt::kFloat), sum = empty({queries}, mt::kFloat), made = empty({queries, v.size(1)}, mt::kFloat);
      attend(a, head, made, max, sum);
      if (integers)
        for (int64_t i = 0; i < made.numel(); ++i) made.ptr<float>()[i] *= after;
      store(r, at, out.matrix(b, h, q0, queries), made, h);
      if (!lse.given()) continue;
      for (int64_t i = 0; i < queries; ++i) max.ptr<float>()[i] += std::log(sum.ptr<float>()[i]);
      copy(p.packed ? lse.select(1, h).narrow(0, q0, queries) : lse.select(0, b).select(0, h).narrow(0, 0, queries), max.unsqueeze(1));
    }
}

const Op ops[] = {
    {"aclnnPromptFlashAttention", check, run},        {"aclnnPromptFlashAttentionV2", check, run},
    {"aclnnPromptFlashAttentionV3", check, run},      {"aclnnIncreFlashAttention", check, run},
    {"aclnnIncreFlashAttentionV2", check, run},       {"aclnnIncreFlashAttentionV3", check, run},
    {"aclnnIncreFlashAttentionV4", check, run},       {"aclnnFusedInferAttentionScore", check, run},
    {"aclnnFusedInferAttentionScoreV2", check, run},  {"aclnnFusedInferAttentionScoreV3", check, run},
    {"aclnnFusedInferAttentionScoreV4", check, run},  {"aclnnFusedInferAttentionScoreV5", check, run},
};

}  // namespace
}  // namespace cann_sim
