// scaled_dot_product_attention and its backward, in blocks of queries and keys that stay in the cache.
#include <utility>

#include "attention_impl.h"
#include "dispatch.h"
#include "expect.h"
#include "parallel.h"
#include "workspace.h"

namespace mt {
namespace {

constexpr int64_t kKeys = 512;     // keys per block
constexpr int64_t kQueries = 256;  // queries per block, at most

// What one call is about.
struct Problem {
  Heads heads;
  View query, key, value;
  Mask mask;
  bool causal;
  double scale;
  int64_t L, S, E, Ev;  // queries, keys, their width, the width of a value
  DType compute;

  Problem(const View& q, const View& k, const View& v, const View& m, const Attr& is_causal, const Attr& given_scale)
      : heads(q, k), query(q), key(k), value(v), mask(m), causal(is_causal.i != 0), L(q.sizes[q.ndim - 2]),
        S(k.sizes[k.ndim - 2]), E(q.sizes[q.ndim - 1]), Ev(v.ndim ? v.sizes[v.ndim - 1] : 0),
            compute(q.dtype == kDouble ? kDouble : kFloat) {
    if (!is_floating(q.dtype)) unsupported("scaled_dot_product_attention", q.dtype);
    if (q.dtype != k.dtype || q.dtype != v.dtype)
      throw std::runtime_error(
          std::string("Expected query, key, and value to have the same dtype, but got query.dtype: ") +
          dtype_name(q.dtype) + " key.dtype: " + dtype_name(k.dtype) + " and value.dtype: " + dtype_name(v.dtype) +
              " instead.");
    constexpr const char* op = "scaled_dot_product_attention";
    expect(k.ndim == q.ndim && v.ndim == q.ndim, op, "query, key and value differ in their number of dimensions");
    expect(k.sizes[k.ndim - 1] == E && v.sizes[v.ndim - 2] == S, op, "the sizes of query, key and value do not match");
    for (int d = 0; d < q.ndim - 2; ++d)
      expect(v.sizes[d] == k.sizes[d] && (k.sizes[d] == q.sizes[d] || (d == q.ndim - 3 && k.sizes[d] > 0)), op,
             "query, key and value differ in their batch dimensions");
    for (int d = 0; m.given() && d < m.ndim; ++d) {
      const int at = q.ndim - m.ndim + d;
      expect(at >= 0 && (m.sizes[d] == 1 || m.sizes[d] == (d == m.ndim - 1 ? S : d == m.ndim - 2 ? L : q.sizes[at])), op,
             "the mask does not broadcast to the scores");
    }
    scale = given_scale.given ? given_scale.f : 1 / std::sqrt(double(E));
  }

  // Keys that any query before `end` may see.
  int64_t keys_for(int64_t end) const { return causal ? std::min(S, end) : S; }
  // Keys of the block [k0, k0 + nk) that query i may see.
  int64_t visible(int64_t i, int64_t k0, int64_t nk) const { return causal ? std::clamp<int64_t>(i + 1 - k0, 0, nk)
      : nk; }

  // Queries per block: large ones pack the keys less often, small ones feed every thread.
  int64_t query_block() const {
    int64_t block = std::min(kQueries, L);
    while (block > 64 && heads.count * ((L + block - 1) / block) < 4 * get_num_threads()) block = (block / 2 + 15)
        / 16 * 16;
    return std::max<int64_t>(block, 1);
  }
  int64_t grain() const { return std::max<int64_t>(1,
      50000 / std::max<int64_t>(1, S * (E + Ev) * std::min(L, kQueries))); }
};

template <class C> void product(DType t, bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha, const C* a,
    int64_t lda,
                                const C* b, int64_t ldb, double beta, C* c, int64_t ldc) {
  gemm(t, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

// ---- forward -------------------------------------------------------------------------------------------------

// Scores to weights, one row of one block: the running maximum and sum, and the factor for what was summed before.
template <class C> C soften(C* s, int64_t n, C* maximum, C* sum) {
  const C m = largest(s, n, *maximum), none = -std::numeric_limits<C>::infinity();
  const C shift = m == none ? C(0) : m;  // all masked so far: every weight is 0, not NaN
  const C before = *maximum == none ? C(0) : exp_nonpositive(*maximum - shift);
  *sum = *sum * before + exp_and_sum(s, n, shift);
  *maximum = m;
  return before;
}

template <class C> struct Forward {
  const Problem& p;
  const View &out, &logsumexp;
  const int64_t block, keys;
  const Workspace memory;
  C *scores, *sums, *maximum, *total, *q_copy, *k_copy, *v_copy;

  Forward(const Problem& problem, const View& o, const View& lse, int64_t queries)
      : p(problem), out(o), logsumexp(lse), block(queries), keys(std::min(kKeys, p.S)),
        memory((block * (keys + p.Ev + 2 + p.E) + keys * (p.E + p.Ev)) * int64_t(sizeof(C))) {
    scores = memory.get<C>(), sums = scores + block * keys, maximum = sums + block * p.Ev, total = maximum + block;
    q_copy = total + block, k_copy = q_copy + block * p.E, v_copy = k_copy + keys * p.E;
  }

  void run(int64_t head, int64_t q0) {
    const int64_t nq = std::min(block, p.L - q0), last = p.keys_for(q0 + nq);
    const Rows K(p.key, p.heads, head, true), V(p.value, p.heads, head, true);
    int64_t ldq, ldk, ldv;
    const C* q = Rows(p.query, p.heads, head, false).read(p.compute, q0, nq, q_copy, &ldq);
    std::fill_n(maximum, nq, -std::numeric_limits<C>::infinity());
    std::fill_n(total, nq, C(0));
    if (last == 0) std::fill_n(sums, nq * p.Ev, C(0));
    for (int64_t k0 = 0; k0 < last; k0 += kKeys) {
      const int64_t nk = std::min(kKeys, last - k0);
      const C* k = K.read(p.compute, k0, nk, k_copy, &ldk);
      product(p.compute, false, true, nq, nk, p.E, p.scale, q, ldq, k, ldk, 0, scores, nk);
      for (int64_t i = 0; i < nq; ++i) {
        C* s = scores + i * nk;
        const int64_t n = p.visible(q0 + i, k0, nk);
        p.mask.apply(p.heads, head, q0 + i, k0, n, s);
        const C before = soften(s, n, maximum + i, total + i);
        std::fill(s + n, s + nk, C(0));
        if (k0 && before != C(1)) for (int64_t j = 0; j < p.Ev; ++j) sums[i * p.Ev + j] *= before;
      }
      const C* v = V.read(p.compute, k0, nk, v_copy, &ldv);
      product(p.compute, false, false, nq, p.Ev, nk, 1, scores, nk, v, ldv, k0 ? 1 : 0, sums, p.Ev);
    }
    finish(head, q0, nq);
  }

  void finish(int64_t head, int64_t q0, int64_t nq) {
    for (int64_t i = 0; i < nq; ++i) {
      const C inverse = total[i] == 0 ? C(0) : 1 / total[i];
      for (int64_t j = 0; j < p.Ev; ++j) sums[i * p.Ev + j] *= inverse;
    }
    Rows(out, p.heads, head, false).write(p.compute, q0, nq, sums);
    if (!logsumexp.given() || logsumexp.numel() == 0) return;
    C* lse = logsumexp.ptr<C>() + p.heads.offset(logsumexp, 1, head, false);
    for (int64_t i = 0; i < nq; ++i)
      lse[(q0 + i) * logsumexp.strides[logsumexp.ndim - 1]] = total[i] == 0 ? C(0) : maximum[i] + std::log(total[i]);
  }
};

template <class C> void forward(const Problem& p, const View& out, const View& lse) {
  const int64_t block = p.query_block(), per_head = (p.L + block - 1) / block;
  parallel_for(p.heads.count * per_head, p.grain(), [&](int64_t from, int64_t to) {
    Forward<C> f(p, out, lse, block);
    for (int64_t i = from; i < to; ++i) f.run(i / per_head, i % per_head * block);
  });
}

// scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0.0,
//   bool is_causal=False, *, float? scale=None, bool enable_gqa=False) -> (Tensor out, Tensor logsumexp)
// logsumexp (..., L) is float64 for float64, else float32; 0 where a row is masked throughout. It may be left out.
void scaled_dot_product_attention(const Args& g) {
  const Problem p(g.t[2], g.t[3], g.t[4], g.nt > 5 ? g.t[5] : View{}, g.a[1], g.a[2]);
  p.compute == kDouble ? forward<double>(p, g.t[0], g.t[1]) : forward<float>(p, g.t[0], g.t[1]);
}

// ---- backward ------------------------------------------------------------------------------------------------

template <class C> struct Backward {
  const Problem& p;
  const View &grad_out, &out, &logsumexp, &grad_q, &grad_k, &grad_v;
  const int64_t block, most;  // queries and keys at a time
  const Workspace memory;
  C *weights, *slopes, *dq, *dk, *dv, *delta, *q_copy, *k_copy, *v_copy, *g_copy, *o_copy;

  Backward(const Problem& problem, const View* t, const View& o, const View& lse)
      : p(problem), grad_out(t[3]), out(o), logsumexp(lse), grad_q(t[0]), grad_k(t[1]), grad_v(t[2]),
        block(std::min<int64_t>(128, p.L)), most(std::min(kKeys, p.S)),
        memory((block * (2 * most + 2 * p.E + 2 * p.Ev + 1) + (p.S + most) * (p.E + p.Ev)) * int64_t(sizeof(C))) {
    C* at = memory.get<C>();
    auto take = [&](int64_t n) { return std::exchange(at, at + n); };
    weights = take(block * most), slopes = take(block * most), dq = take(block * p.E), delta = take(block);
    dk = take(p.S * p.E), dv = take(p.S * p.Ev), q_copy = take(block * p.E), k_copy = take(most * p.E);
    v_copy = take(most * p.Ev), g_copy = take(block * p.Ev), o_copy = take(block * p.Ev);
  }

  // All the query heads that one key head serves.
  void run(int64_t first) {
    std::fill_n(dk, p.S * p.E, C(0));
    std::fill_n(dv, p.S * p.Ev, C(0));
    for (int64_t head = first; head < first + p.heads.group; ++head)
      for (int64_t q0 = 0; q0 < p.L; q0 += block) queries(head, q0, std::min(block, p.L - q0));
    Rows(grad_k, p.heads, first, true).write(p.compute, 0, p.S, dk);
    Rows(grad_v, p.heads, first, true).write(p.compute, 0, p.S, dv);
  }

  void queries(int64_t head, int64_t q0, int64_t nq) {
    int64_t ldq, ldg, ldo;
    const C* q = Rows(p.query, p.heads, head, false).read(p.compute, q0, nq, q_copy, &ldq);
    const C* g = Rows(grad_out, p.heads, head, false).read(p.compute, q0, nq, g_copy, &ldg);
    const C* o = Rows(out, p.heads, head, false).read(p.compute, q0, nq, o_copy, &ldo);
    for (int64_t i = 0; i < nq; ++i) {
      C sum = 0;
      for (int64_t j = 0; j < p.Ev; ++j) sum += g[i * ldg + j] * o[i * ldo + j];
      delta[i] = sum;
    }
    std::fill_n(dq, nq * p.E, C(0));
    const int64_t last = p.keys_for(q0 + nq);
    for (int64_t k0 = 0; k0 < last; k0 += kKeys) keys(head, q0, nq, k0, std::min(kKeys, last - k0), q, ldq, g, ldg);
    Rows(grad_q, p.heads, head, false).write(p.compute, q0, nq, dq);
  }

  void keys(int64_t head, int64_t q0, int64_t nq, int64_t k0, int64_t nk, const C* q, int64_t ldq, const C* g,
      int64_t ldg) {
    int64_t ldk, ldv;
    const C* k = Rows(p.key, p.heads, head, true).read(p.compute, k0, nk, k_copy, &ldk);
    const C* v = Rows(p.value, p.heads, head, true).read(p.compute, k0, nk, v_copy, &ldv);
    const C* lse = logsumexp.ptr<C>() + p.heads.offset(logsumexp, 1, head, false);
    const int64_t ls = logsumexp.strides[logsumexp.ndim - 1];
    product(p.compute, false, true, nq, nk, p.E, p.scale, q, ldq, k, ldk, 0, weights, nk);
    product(p.compute, false, true, nq, nk, p.Ev, 1, g, ldg, v, ldv, 0, slopes, nk);
    for (int64_t i = 0; i < nq; ++i) {
      C *w = weights + i * nk, *s = slopes + i * nk;
      const int64_t n = p.visible(q0 + i, k0, nk);
      p.mask.apply(p.heads, head, q0 + i, k0, n, w);
      const C shift = lse[(q0 + i) * ls], d = delta[i], scale = C(p.scale);
      for (int64_t j = 0; j < n; ++j) {
        w[j] = exp_nonpositive(std::min(w[j] - shift, C(0)));  // rounding may leave it just above 0
        s[j] = w[j] * (s[j] - d) * scale;
      }
      std::fill(w + n, w + nk, C(0));
      std::fill(s + n, s + nk, C(0));
    }
    product(p.compute, true, false, nk, p.Ev, nq, 1, weights, nk, g, ldg, 1, dv + k0 * p.Ev, p.Ev);
    product(p.compute, true, false, nk, p.E, nq, 1, slopes, nk, q, ldq, 1, dk + k0 * p.E, p.E);
    product(p.compute, false, false, nq, p.E, nk, 1, slopes, nk, k, ldk, 1, dq, p.E);
  }
};

template <class C> void backward(const Problem& p, const View* t, const View& out, const View& lse) {
  if (p.heads.count == 0) {  // there may be keys all the same: no query reads them
    const C zero = 0;
    for (int k = 0; k < 3; ++k) copy(t[k], View{const_cast<C*>(&zero), nullptr, nullptr, 0, p.compute});
    return;
  }
  parallel_for(p.heads.count / p.heads.group, std::max<int64_t>(1, p.grain() / std::max<int64_t>(1, p.L / kQueries)),
               [&](int64_t from, int64_t to) {
    Backward<C> b(p, t, out, lse);
    for (int64_t i = from; i < to; ++i) b.run(i * p.heads.group);
  });
}

// scaled_dot_product_attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor? attn_mask,
//   Tensor out, Tensor logsumexp, bool is_causal, *, float? scale=None, bool enable_gqa=False)
//   -> (Tensor grad_query, Tensor grad_key, Tensor grad_value)
void scaled_dot_product_attention_backward(const Args& g) {
  const Problem p(g.t[4], g.t[5], g.t[6], g.t[7], g.a[0], g.a[1]);
  constexpr const char* op = "scaled_dot_product_attention_backward";
  expect_like(g.t[3], g.t[8], op, "grad_out");
  expect(g.t[8].ndim == p.query.ndim && g.t[8].sizes[p.query.ndim - 1] == p.Ev, op, "out has the wrong size");
  expect(g.t[9].ndim == p.query.ndim - 1 && g.t[9].dtype == p.compute, op, "logsumexp has the wrong size or dtype");
  for (int d = 0; d < p.query.ndim - 1; ++d)
    expect(g.t[8].sizes[d] == p.query.sizes[d] && g.t[9].sizes[d] == p.query.sizes[d], op,
           "out and logsumexp do not fit the query");
  p.compute == kDouble ? backward<double>(p, g.t, g.t[8], g.t[9]) : backward<float>(p, g.t, g.t[8], g.t[9]);
}

const Register registered[] = {{"scaled_dot_product_attention", scaled_dot_product_attention},
                               {"scaled_dot_product_attention_backward", scaled_dot_product_attention_backward}};

}  // namespace
}  // namespace mt
