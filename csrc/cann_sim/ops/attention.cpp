// Flash attention for training: the score and its gradient, padded (BSH, SBH, BSND, BNSD) and packed (TND).
#include <algorithm>
#include <cstring>

#include "ops/attention.h"
#include "ops/random.h"

namespace cann_sim {
namespace {

// Where one version of the op keeps its arguments.
struct Places {
  int query, key, value, shift, drop, mask, prefix, scale, keep, before, after, heads, layout, mode, shift_type, q_start,
      k_start, q_ends, k_ends, query_rope, key_rope, sink, seed;
  explicit Places(const Call& c)
      : query(argument(c, {"query"})), key(argument(c, {"key", "keyIn"})), value(argument(c, {"value"})),
        shift(argument(c, {"realShiftOptional", "pseShiftOptional"})), drop(argument(c, {"dropMaskOptional"})),
        mask(argument(c, {"attenMaskOptional"})), prefix(argument(c, {"prefixOptional"})),
        scale(argument(c, {"scaleValue"})), keep(argument(c, {"keepProb"})), before(argument(c, {"preTokens"})),
        after(argument(c, {"nextTokens"})), heads(argument(c, {"headNum"})), layout(argument(c, {"inputLayout"})),
        mode(argument(c, {"sparseMode"})), shift_type(argument(c, {"pseType"})),
        q_start(argument(c, {"qStartIdxOptional"})), k_start(argument(c, {"kvStartIdxOptional"})),
        q_ends(argument(c, {"actualSeqQLenOptional"})), k_ends(argument(c, {"actualSeqKvLenOptional"})),
        query_rope(argument(c, {"queryRope", "queryRopeOptional"})), key_rope(argument(c, {"keyRope", "keyInRope", "keyRopeOptional"})),
        sink(argument(c, {"sinkOptional", "sinkInOptional"})), seed(argument(c, {"seed"})) {}
  // pseType 2 and 3: the shift is made of a slope a head and the distance, or the root of the distance.
  bool has_slopes(const Call& c) const { return shift_type >= 0 && c.integer(shift_type) >= 2; }
};

// The rows of queries and keys that belong together: a batch, or a piece of a packed sequence.
struct Piece { int64_t b, q, queries, k, keys; };

struct Problem {
  Places at;
  std::string layout;
  Heads q, k, v;
  std::vector<Piece> pieces;

  Problem(const Call& c, const Value& query, const Value& key, const Value& value)
      : at(c), layout(known_layout(c, at)), q(query, layout, head_count(c, at)),
        k(key, layout, shared_heads(query, key, layout, head_count(c, at))), v(value, layout, k.heads()) {
    expect_heads(q, k, v);
    EXPECT(q.heads() == head_count(c, at), "headNum is %ld, query has %ld heads", long(head_count(c, at)),
           long(q.heads()));
    if (layout != "TND") {
      for (int64_t b = 0; b < q.batch(); ++b) pieces.push_back({b, 0, q.length(), 0, k.length()});
      return;
    }
    Span<int64_t> qs = ends(c, at.q_ends, q.length()), ks = ends(c, at.k_ends, k.length());
    EXPECT(qs.size() == ks.size(), "%ld query sequences, %ld key sequences", long(qs.size()), long(ks.size()));
    for (int64_t b = 0; b < qs.size(); ++b) {
      int64_t q0 = b ? qs[b - 1] : 0, k0 = b ? ks[b - 1] : 0;
      pieces.push_back({b, q0, qs[b] - q0, k0, ks[b] - k0});
    }
  }

  int64_t shared() const { return q.heads() / k.heads(); }
  int64_t items() const {
    int64_t n = 0;
    for (const Piece& piece : pieces) n += q.heads() * piece.queries * piece.keys;
    return n;
  }
  // Where head h of a piece keeps its max and sum: [B, N, S, 8], packed [T, N, 8]; all 8 are the same.
  Value rows(const Value& stats, const Piece& p, int64_t h) const {
    return layout == "TND" ? stats.select(1, h).narrow(0, p.q, p.queries) : stats.select(0, p.b).select(0, h);
  }
  Sizes stats_sizes() const {
    return layout == "TND" ? Sizes{q.length(), q.heads(), 8} : Sizes{q.batch(), q.heads(), q.length(), 8};
  }
  Head head(const Piece& p, int64_t h, int64_t item) const {
    return {q.matrix(p.b, h, p.q, p.queries).to(mt::kFloat), k.matrix(p.b, h / shared(), p.k, p.keys).to(mt::kFloat),
            v.matrix(p.b, h / shared(), p.k, p.keys).to(mt::kFloat), p.b, h, item};
  }

 private:
  static std::string known_layout(const Call& c, const Places& at) {
    std::string layout = c.string(at.layout);
    const bool packed = at.seed >= 0 ? layout == "TND" : at.q_ends >= 0;  // ops with a seed take both kinds of layouts
    EXPECT(packed ? layout == "TND" : layout == "BSH" || layout == "SBH" || layout == "BSND" || layout == "BNSD",
           "inputLayout %s is not supported", layout.c_str());
    return layout;
  }
  static int64_t head_count(const Call& c, const Places& at) {
    EXPECT(c.integer(at.heads) > 0, "headNum must be positive, got %ld", long(c.integer(at.heads)));
    return c.integer(at.heads);
  }
  // Where every sequence of a packed tensor ends.
  static Span<int64_t> ends(const Call& c, int i, int64_t length) {
    EXPECT(c.given(i), "layout TND needs the ends of the sequences");
    Span<int64_t> ends = c.ints(i);
    int64_t last = 0;
    for (int64_t e : ends) {
      EXPECT(e >= last, "the ends of the sequences must not fall");
      last = e;
    }
    EXPECT(last <= length, "the last sequence ends at %ld, beyond %ld", long(last), long(length));
    return ends;
  }
};

// Parts of the depth that stand in a tensor of their own come after the others.
Value joined(Run& r, int i, int rope) {
  return rope >= 0 && r.given(rope) && r.call.tensor(rope).numel() ? cat({r.tensor(i), r.tensor(rope)}, -1) : r.tensor(i);
}
Value joined_sizes(const Call& c, int i, int rope) {
  Value v = sizes_only(c.tensor(i));
  if (rope < 0 || !c.given(rope) || !c.tensor(rope).numel()) return v;
  const TensorMeta& more = c.tensor(rope);
  const char* layout = c.string(argument(c, {"inputLayout"}));
  EXPECT(more.ndim == v.ndim && layout[std::strlen(layout) - 1] == 'D' && std::equal(more.sizes, more.sizes + more.ndim - 1, v.sizes),
         "%s %s does not go with %s", c.row->args[rope].name, describe(more).c_str(), c.row->args[i].name);
  v.sizes[v.ndim - 1] += more.sizes[more.ndim - 1];
  return v;
}

Attention settings(const Call& c, const Places& at) {
  Attention a;
  a.scale = c.number(at.scale);
  a.keep = c.number(at.keep);
  a.shift_before_scale = at.shift_type < 0 || c.integer(at.shift_type) == 1;
  a.slope_of_root = at.has_slopes(c) && c.integer(at.shift_type) == 3;
  if (at.q_start >= 0 && c.given(at.q_start) && c.ints(at.q_start).size()) a.query_start = c.ints(at.q_start)[0];
  if (at.k_start >= 0 && c.given(at.k_start) && c.ints(at.k_start).size()) a.key_start = c.ints(at.k_start)[0];
  a.mask.mode = c.integer(at.mode);
  a.mask.before = c.integer(at.before), a.mask.after = c.integer(at.after);
  if (c.given(at.prefix)) a.mask.prefix.assign(c.ints(at.prefix).begin(), c.ints(at.prefix).end());
  return a;
}
// `items`: scores of all heads, for masks of dropout that are made here.
Attention settings(Run& r, const Places& at, int64_t items) {
  Attention a = settings(r.call, at);
  a.mask.bits = r.tensor(at.mask);
  a.shift = r.tensor(at.shift);
  if (a.shift.given()) a.shift = a.shift.numel() ? a.shift.to(mt::kFloat) : Value();
  if (at.has_slopes(r.call)) a.slopes = a.shift.dense(), a.shift = Value();
  if (a.mask.bits.given() && a.mask.bits.numel() == 0) a.mask.bits = Value();
  if (a.keep < 1) a.drop = r.given(at.drop) ? r.tensor(at.drop).dense() : make_mask((items + 7) / 8, items, 1 - a.keep, plain_seed(r, at.seed));
  if (at.sink >= 0 && r.given(at.sink) && r.call.tensor(at.sink).numel()) a.sink = r.tensor(at.sink).to(mt::kFloat).dense();
  return a;
}

// Refuses what does not fit; returns the problem by its sizes alone.
Problem expect_problem(const Call& c) {
  Places at(c);
  Problem p(c, joined_sizes(c, at.query, at.query_rope), joined_sizes(c, at.key, at.key_rope), sizes_only(c.tensor(at.value)));
  if (at.sink >= 0 && c.given(at.sink) && c.tensor(at.sink).numel()) expect_numel(c, at.sink, p.q.heads());
  Attention a = settings(c, at);
  for (int i : {at.key, at.value}) expect_same_dtype(c, i, at.query);
  EXPECT(a.keep > 0 && a.keep <= 1, "keepProb %g is not in (0, 1]", a.keep);
  EXPECT(at.shift_type < 0 || (c.integer(at.shift_type) >= 0 && c.integer(at.shift_type) <= 3), "pseType %ld is not in [0, 3]",
         long(c.integer(at.shift_type)));
  if (c.given(at.mask) && c.tensor(at.mask).numel()) a.mask.bits = sizes_only(c.tensor(at.mask));
  for (const char* scale : {"dScaleQOptional", "dScaleKOptional", "dScaleVOptional", "dScaleDyOptional", "dScaleOOptional"})
    if (const int i = argument(c, {scale}); i >= 0 && c.given(i) && c.tensor(i).numel()) refuse(561003, "%s with %s is not computed", c.name(), scale);
  for (const Piece& piece : p.pieces) a.mask.expect_valid(piece.queries, piece.keys);
  const int64_t items = p.items();
  EXPECT((a.mask.mode != 5 && a.mask.mode != 6) || a.mask.prefix.size() == p.pieces.size(),
         "sparseMode %ld needs a prefix for every batch", long(a.mask.mode));
  if (a.keep < 1 && (at.seed < 0 || c.given(at.drop))) {
    EXPECT(c.given(at.drop), "keepProb %g needs dropMask", a.keep);
    EXPECT(c.tensor(at.drop).numel() * 8 >= items, "dropMask %s has fewer than %ld bits",
           describe(c.tensor(at.drop)).c_str(), long(items));
  }
  if (at.has_slopes(c)) {
    const TensorMeta& s = c.tensor(at.shift);
    EXPECT(c.given(at.shift) && s.dtype == ACL_FLOAT && (s.ndim == 1 || (s.ndim == 2 && s.sizes[0] == int64_t(p.pieces.size()))) &&
               s.sizes[s.ndim - 1] == p.q.heads(),
           "pseType %ld needs float32 slopes [N] or [B, N]", long(c.integer(at.shift_type)));
  } else if (c.given(at.shift) && c.tensor(at.shift).numel()) {
    const TensorMeta& s = c.tensor(at.shift);
    const Piece& one = p.pieces.front();
    EXPECT(s.ndim == 4 && (s.sizes[0] == 1 || s.sizes[0] == int64_t(p.pieces.size())) && s.sizes[1] == p.q.heads() &&
           (s.sizes[2] == 1 || s.sizes[2] == one.queries) && s.sizes[3] == one.keys,
           "the shift %s does not fit [B, N, S, S]", describe(s).c_str());
  }
  return p;
}

// ---- the score -------------------------------------------------------------------------------------------------
int output(const Call& c, const char* name) { return argument(c, {name}); }

void check_score(const Call& c) {
  Problem p = expect_problem(c);
  expect_shape(c, output(c, "softmaxMaxOut"), p.stats_sizes());
  expect_shape(c, output(c, "softmaxSumOut"), p.stats_sizes());
  Sizes out = sizes_of(c.tensor(p.at.query));
  out.back() = p.layout.back() == 'H' ? p.q.heads() * p.v.depth() : p.v.depth();
  expect_shape(c, output(c, "attentionOutOut"), out);
}
void score(Run& r) {
  const Call& c = r.call;
  Places at(c);
  Problem p(c, joined(r, at.query, at.query_rope), joined(r, at.key, at.key_rope), r.tensor(at.value));
  Attention a = settings(r, at, p.items());
  Value all_max = r.tensor(output(c, "softmaxMaxOut")), all_sum = r.tensor(output(c, "softmaxSumOut"));
  Heads out(r.tensor(output(c, "attentionOutOut")), p.layout, p.q.heads());
  int64_t item = 0;
  for (const Piece& piece : p.pieces)
    for (int64_t h = 0; h < p.q.heads(); ++h, item += piece.queries * piece.keys) {
      Value max = empty({piece.queries}, mt::kFloat), sum = empty({piece.queries}, mt::kFloat);
      attend(a, p.head(piece, h, item), out.matrix(piece.b, h, piece.q, piece.queries), max, sum);
      copy(p.rows(all_max, piece, h), max.unsqueeze(1));
      copy(p.rows(all_sum, piece, h), sum.unsqueeze(1));
    }
}

// ---- its gradient ----------------------------------------------------------------------------------------------
void check_grad(const Call& c) {
  Problem p = expect_problem(c);
  Sizes dy = sizes_of(c.tensor(p.at.query));
  dy.back() = p.layout.back() == 'H' ? p.q.heads() * p.v.depth() : p.v.depth();
  expect_shape(c, output(c, "dy"), dy);
  for (const char* stats : {"softmaxMaxOptional", "softmaxSumOptional"}) {
    EXPECT(c.given(output(c, stats)), "%s is needed", stats);
    expect_shape(c, output(c, stats), p.stats_sizes());
  }
  expect_same_shape(c, output(c, "dqOut"), p.at.query);
  expect_same_shape(c, output(c, "dkOut"), p.at.key);
  expect_same_shape(c, output(c, "dvOut"), p.at.value);
  const int dsink = output(c, "dsinkOut"), out = output(c, "attentionInOptional");
  if (dsink >= 0 && c.given(dsink) && c.tensor(dsink).numel()) {
    EXPECT(c.given(p.at.sink) && c.given(out), "dsinkOut needs sinkIn and attentionIn");
    expect_numel(c, dsink, p.q.heads());
    expect_shape(c, out, dy);
  }
  if (p.at.query_rope >= 0 && c.given(p.at.query_rope)) {
    expect_same_shape(c, output(c, "dqRopeOut"), p.at.query_rope);
    expect_same_shape(c, output(c, "dkRopeOut"), p.at.key_rope);
  }
}

// Adds the gradient of one head's scores to that of the shift, which may be shared by batches and queries.
void add_shift(const Value& total, const Head& head, const Value& part) {
  Value into = total.select(0, total.size(0) == 1 ? 0 : head.b).select(0, head.h);
  Value sum = part;
  if (into.size(0) == 1 && part.size(0) != 1) {
    sum = empty({1, part.size(1)}, mt::kFloat);
    Sizes rows{0};
    call_kernel("sum", {sum.select(0, 0), part}, {list(rows), integer(0), none()});
  }
  call_pointwise("add", mt::kFloat, {into, into, sum}, {number(1)});
}

// A gradient that goes to one output, or, in parts of its depth, to two.
struct Split {
  Value whole, first, second;
  Split(Run& r, const char* name, const char* rope, int64_t depth) : first(r.tensor(output(r.call, name))) {
    const int i = output(r.call, rope);
    whole = first;
    if (i < 0 || !r.given(i) || !r.call.tensor(i).numel()) return;  // an op without parts, or a call without them
    second = r.tensor(i);
    Sizes sizes = first.shape();
    sizes.back() = depth;
    whole = empty(sizes, first.dtype);
  }
  void write() const {
    if (!second.given()) return;
    copy(first, whole.narrow(-1, 0, first.size(-1)));
    copy(second, whole.narrow(-1, first.size(-1), second.size(-1)));
  }
};

// What one head of a piece adds to the gradient of its sink, whose value is zero: -p * (dy . out) over its rows.
double sink_grad(float sink, const Value& max, const Value& sum, const Value& dy, const Value& out) {
  const Value by = dy.to(mt::kFloat).dense(), made = out.to(mt::kFloat).dense();
  const int64_t depth = by.size(1);
  double total = 0;
  for (int64_t i = 0; i < by.size(0); ++i) {
    double dot = 0;
    for (int64_t d = 0; d < depth; ++d) dot += double(by.ptr<float>()[i * depth + d]) * made.ptr<float>()[i * depth + d];
    total -= std::exp(double(sink) - max.ptr<float>()[i]) / sum.ptr<float>()[i] * dot;
  }
  return total;
}

void grad(Run& r) {
  const Call& c = r.call;
  Places at(c);
  Problem p(c, joined(r, at.query, at.query_rope), joined(r, at.key, at.key_rope), r.tensor(at.value));
  Attention a = settings(r, at, p.items());
  const Split dq_all(r, "dqOut", "dqRopeOut", p.q.depth()), dk_all(r, "dkOut", "dkRopeOut", p.k.depth());
  Heads dy(r.tensor(output(c, "dy")), p.layout, p.q.heads()), dq(dq_all.whole, p.layout, p.q.heads()), dk(dk_all.whole, p.layout, p.k.heads()), dv(r.tensor(output(c, "dvOut")), p.layout, p.k.heads());
  Value all_max = r.tensor(output(c, "softmaxMaxOptional")), all_sum = r.tensor(output(c, "softmaxSumOptional")),
        shift_out = r.tensor(output(c, "dpseOut"));
  bool shifts = a.shift.given() && shift_out.given() && shift_out.numel() == a.shift.numel();
  Value dshift = shifts ? full(a.shift.shape(), mt::kFloat, 0) : Value();
  const int sink_at = output(c, "dsinkOut");
  const bool sinks = sink_at >= 0 && r.given(sink_at) && c.tensor(sink_at).numel();
  const Value dsink = sinks ? full({p.q.heads()}, mt::kFloat, 0) : Value();
  int64_t item = 0;
  for (const Piece& piece : p.pieces)
    for (int64_t kh = 0; kh < p.k.heads(); ++kh) {
      Value gk = full({piece.keys, p.k.depth()}, mt::kFloat, 0), gv = full({piece.keys, p.v.depth()}, mt::kFloat, 0);
      for (int64_t h = kh * p.shared(); h < (kh + 1) * p.shared(); ++h, item += piece.queries * piece.keys) {
        Head head = p.head(piece, h, item);
        Value scores = shifts ? empty({piece.queries, piece.keys}, mt::kFloat) : Value();
        attend_backward(a, head, dy.matrix(piece.b, h, piece.q, piece.queries).to(mt::kFloat),
                        p.rows(all_max, piece, h).select(1, 0).dense(), p.rows(all_sum, piece, h).select(1, 0).dense(),
                        dq.matrix(piece.b, h, piece.q, piece.queries), gk, gv, scores);
        if (shifts) add_shift(dshift, head, scores);
        if (sinks)
          dsink.ptr<float>()[h] += float(sink_grad(a.sink.ptr<float>()[h], p.rows(all_max, piece, h).select(1, 0).dense(), p.rows(all_sum, piece, h).select(1, 0).dense(),
                                                   dy.matrix(piece.b, h, piece.q, piece.queries),
                                                   Heads(r.tensor(output(c, "attentionInOptional")), p.layout, p.q.heads()).matrix(piece.b, h, piece.q, piece.queries)));
      }
      copy(dk.matrix(piece.b, kh, piece.k, piece.keys), gk);
      copy(dv.matrix(piece.b, kh, piece.k, piece.keys), gv);
    }
  if (shifts) copy(shift_out, dshift.reshape(shift_out.shape()));
  if (sinks) copy(r.tensor(sink_at), dsink.reshape(r.tensor(sink_at).shape()));
  dq_all.write();
  dk_all.write();
}

const Op ops[] = {
    {"aclnnFlashAttentionScore", check_score, score},
    {"aclnnFlashAttentionScoreV2", check_score, score},
    {"aclnnFlashAttentionVarLenScore", check_score, score},
    {"aclnnFlashAttentionVarLenScoreV2", check_score, score},
    {"aclnnFlashAttentionVarLenScoreV3", check_score, score},
    {"aclnnFlashAttentionVarLenScoreV4", check_score, score},
    {"aclnnFlashAttentionVarLenScoreV5", check_score, score},
    {"aclnnFlashAttentionScoreV3", check_score, score},
    {"aclnnFlashAttentionScoreV4", check_score, score},
    {"aclnnFlashAttentionScoreGrad", check_grad, grad},
    {"aclnnFlashAttentionScoreGradV2", check_grad, grad},
    {"aclnnFlashAttentionScoreGradV3", check_grad, grad},
    {"aclnnFlashAttentionScoreGradV4", check_grad, grad},
    {"aclnnFlashAttentionUnpaddingScoreGrad", check_grad, grad},
    {"aclnnFlashAttentionUnpaddingScoreGradV2", check_grad, grad},
    {"aclnnFlashAttentionUnpaddingScoreGradV3", check_grad, grad},
    {"aclnnFlashAttentionUnpaddingScoreGradV4", check_grad, grad},
    {"aclnnFlashAttentionUnpaddingScoreGradV5", check_grad, grad},
};

}  // namespace
}  // namespace cann_sim
