// Flash attention for inference (prompt, incremental, fused): the plain forms; quantised and paged ones are refused.
#include <algorithm>
#include <cmath>

#include "ops/attention.h"

namespace cann_sim {
namespace {

struct Places {
  int query, key, value, shift, mask, q_lengths, k_lengths, heads, key_heads, scale, before, after, layout, mode, out,
      lse, sink;
  explicit Places(const Call& c)
      : query(argument(c, {"query"})), key(argument(c, {"key"})), value(argument(c, {"value"})),
        shift(argument(c, {"pseShift", "pseShiftOptional"})), mask(argument(c, {"attenMask", "attenMaskOptional"})),
        q_lengths(argument(c, {"actualSeqLengths", "actualSeqLengthsOptional"})),
        k_lengths(argument(c, {"actualSeqLengthsKv", "actualSeqLengthsKvOptional"})), heads(argument(c, {"numHeads"})),
        key_heads(argument(c, {"numKeyValueHeads"})), scale(argument(c, {"scaleValue"})),
        before(argument(c, {"preTokens"})), after(argument(c, {"nextTokens"})), layout(argument(c, {"inputLayout"})),
        mode(argument(c, {"sparseMode"})), out(argument(c, {"attentionOut"})), lse(argument(c, {"softmaxLse"})),
        sink(argument(c, {"learnableSinkOptional"})) {
    // An incremental step has one query a batch: its lengths are the keys'.
    if (argument(c, {"preTokens"}) < 0) std::swap(q_lengths, k_lengths);
  }
  bool plain(int i) const {
    return i == query || i == key || i == value || i == shift || i == mask || i == out || i == lse || i == sink;
  }
};

const TensorMeta& first_of(const Call& c, int i) {
  return is_tensor_list(c.row->args[i].kind) ? c.tensors(i)[0] : c.tensor(i);
}

struct Problem {
  Places at;
  std::string layout, out_layout;
  Heads q, k, v;
  Problem(const Call& c, const Value& query, const Value& key, const Value& value)
      : at(c), layout(known_layout(c, at)), out_layout(layout), q(query, input_layout(), c.integer(at.heads)),
        k(key, input_layout(), shared(c, at)), v(value, input_layout(), shared(c, at)) {
    if (layout == "BNSD_BSND") out_layout = "BSND";
    expect_heads(q, k, v);
  }
  std::string input_layout() const { return layout == "BNSD_BSND" ? "BNSD" : layout; }
  int64_t length(const Call& c, int i, int64_t b, int64_t whole) const {
    if (i < 0 || !c.given(i) || c.ints(i).size() == 0) return whole;
    return c.ints(i)[c.ints(i).size() == 1 ? 0 : b];
  }

 private:
  static std::string known_layout(const Call& c, const Places& at) {
    std::string layout = c.string(at.layout);
    EXPECT(layout == "BSH" || layout == "BSND" || layout == "BNSD" || layout == "BNSD_BSND",
           "inputLayout %s is not supported", layout.c_str());
    return layout;
  }
  static int64_t shared(const Call& c, const Places& at) {
    EXPECT(c.integer(at.heads) > 0, "numHeads must be positive, got %ld", long(c.integer(at.heads)));
    int64_t heads = c.integer(at.key_heads);
    return heads > 0 ? heads : c.integer(at.heads);
  }
};

void check(const Call& c) {
  Places at(c);
  for (int i = 0; i < c.row->nargs; ++i) {
    Kind kind = c.row->args[i].kind;
    if ((is_tensor(kind) || is_tensor_list(kind)) && c.given(i) && !at.plain(i) && first_of(c, i).numel())
      refuse(561003, "%s with %s is not computed: only plain attention is", c.name(), c.row->args[i].name);
  }
  for (int i : {at.key, at.value})
    EXPECT(!is_tensor_list(c.row->args[i].kind) || c.tensors(i).size() == 1,
           "one tensor of keys and values is expected, got %ld", long(c.tensors(i).size()));
  const int shift_kind = argument(c, {"pseType"});
  if (shift_kind >= 0 && c.integer(shift_kind) > 1) refuse(561003, "%s with pseType %ld is not computed", c.name(), long(c.integer(shift_kind)));
  Problem p(c, sizes_only(c.tensor(at.query)), sizes_only(first_of(c, at.key)), sizes_only(first_of(c, at.value)));
  EXPECT(c.tensor(at.query).dtype == first_of(c, at.key).dtype && c.tensor(at.out).dtype == c.tensor(at.query).dtype,
         "query, key and attentionOut must have one dtype");
  Mask mask;
  mask.mode = at.mode < 0 ? 0 : c.integer(at.mode);
  EXPECT(mask.mode <= 4, "sparseMode %ld is not supported", long(mask.mode));
  if (at.mask >= 0 && c.given(at.mask)) mask.bits = sizes_only(c.tensor(at.mask));
  for (int64_t b = 0; b < p.q.batch(); ++b) {
    int64_t queries = p.length(c, at.q_lengths, b, p.q.length()), keys = p.length(c, at.k_lengths, b, p.k.length());
    EXPECT(queries >= 0 && queries <= p.q.length() && keys >= 0 && keys <= p.k.length(),
           "the lengths of batch %ld do not fit", long(b));
    mask.expect_valid(queries, keys);
  }
  if (at.sink >= 0 && c.given(at.sink) && c.tensor(at.sink).numel()) expect_shape(c, at.sink, {p.q.heads()});
  // Without the flag softmaxLse is a placeholder: absent, or of any shape and data type.
  if (at.lse >= 0 && c.integer(argument(c, {"softmaxLseFlag"}))) {
    EXPECT(c.given(at.lse), "softmaxLse is null, and softmaxLseFlag is set");
    expect_shape(c, at.lse, {p.q.batch(), p.q.heads(), p.q.length(), 1});
    EXPECT(c.tensor(at.lse).dtype == ACL_FLOAT, "softmaxLse must be float32, got %s", describe(c.tensor(at.lse)).c_str());
  }
  EXPECT(c.tensor(at.out).numel() == c.tensor(at.query).numel() / std::max<int64_t>(p.q.depth(), 1) * p.v.depth(),
         "attentionOut %s does not fit", describe(c.tensor(at.out)).c_str());
}

void run(Run& r) {
  const Call& c = r.call;
  Places at(c);
  Problem p(c, r.tensor(at.query), r.value(first_of(c, at.key)), r.value(first_of(c, at.value)));
  Attention a;
  a.scale = c.number(at.scale);
  a.shift_before_scale = false;
  if (at.shift >= 0 && r.given(at.shift)) a.shift = r.tensor(at.shift).to(mt::kFloat);
  if (at.mask >= 0) a.mask.bits = r.tensor(at.mask);
  if (at.sink >= 0 && r.given(at.sink) && c.tensor(at.sink).numel()) a.sink = r.tensor(at.sink).to(mt::kFloat).dense();
  if (at.mode >= 0) a.mask.mode = c.integer(at.mode);
  if (at.before >= 0) a.mask.before = c.integer(at.before), a.mask.after = c.integer(at.after);
  Value whole = r.tensor(at.out),
        lse = at.lse >= 0 && c.integer(argument(c, {"softmaxLseFlag"})) ? r.tensor(at.lse) : Value();
  Heads out(whole, p.out_layout, p.q.heads());
  fill(whole, 0);  // queries beyond a batch's length
  int64_t shared = p.q.heads() / p.k.heads();
  for (int64_t b = 0; b < p.q.batch(); ++b)
    for (int64_t h = 0; h < p.q.heads(); ++h) {
      int64_t queries = p.length(c, at.q_lengths, b, p.q.length()), keys = p.length(c, at.k_lengths, b, p.k.length());
      Head head{p.q.matrix(b, h, 0, queries).to(mt::kFloat), p.k.matrix(b, h / shared, 0, keys).to(mt::kFloat),
                p.v.matrix(b, h / shared, 0, keys).to(mt::kFloat), b, h, 0};
      Value max = empty({queries}, mt::kFloat), sum = empty({queries}, mt::kFloat);
      attend(a, head, out.matrix(b, h, 0, queries), max, sum);
      if (!lse.given()) continue;
      for (int64_t i = 0; i < queries; ++i) max.ptr<float>()[i] += std::log(sum.ptr<float>()[i]);
      copy(lse.select(0, b).select(0, h).narrow(0, 0, queries), max.unsqueeze(1));
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
