// Fused optimizer steps, in place: sgd_step and adam_step, with the arithmetic of torch's single-tensor versions.
#include <memory>

#include "convert.h"
#include "dispatch.h"
#include "library.h"
#include "parallel.h"

namespace mt {
namespace {

constexpr int64_t kBlock = 1024;

// Runs step(ptr, n) over blocks in which all operands are adjacent and of the dtype C; what is not goes through
// buffers. Operand 1, the gradient, is only read.
template <class C, class F> void in_blocks(const View* t, int nt, DType compute, F&& step) {
  const Strided s(t, nt);
  bool direct = s.ndim == 1;
  for (int i = 0; i < nt; ++i) direct &= t[i].dtype == compute && s.inner_stride()[i] == s.width[i];
  parallel_for(s.numel, kGrain / 2, [&](int64_t begin, int64_t end) {
    alignas(64) C buffers[kMaxOperands][kBlock];
    alignas(64) char raw[kBlock * 8];
    C* ptr[kMaxOperands];
    if (direct) {
      for (int i = 0; i < nt; ++i) ptr[i] = reinterpret_cast<C*>(s.base[i]) + begin;
      return step(ptr, end - begin);
    }
    Cursor at(s, begin);
    for (int64_t p = begin; p < end;) {
      int64_t m = std::min(kBlock, end - p);
      for (int i = 0; i < nt; ++i) {
        gather_rows(raw, at, i, m);
        convert(compute, ptr[i] = buffers[i], t[i].dtype, raw, m);
      }
      step(ptr, m);
      for (int i = 0; i < nt; ++i) {
        if (i == 1) continue;
        convert(t[i].dtype, raw, compute, ptr[i], m);
        scatter_rows(at, i, raw, m);
      }
      if ((p += m) < end) at.advance(m);
    }
  });
}

template <class F> void by_dtype(const View* t, int nt, const char* name, F&& f) {
  if (t[0].numel() == 0) return;
  if (t[0].dtype == kDouble) in_blocks<double>(t, nt, kDouble, f);
  else if (is_floating(t[0].dtype)) in_blocks<float>(t, nt, kFloat, f);
  else unsupported(name, t[0].dtype);
}

// sgd_step(param, grad, momentum_buffer?; lr, momentum, dampening, weight_decay, nesterov, maximize, first_step)
void sgd_step(const Args& args) {
  const Attr* a = args.a;
  const bool with_buffer = args.nt > 2 && args.t[2].given() && a[1].f != 0, nesterov = a[4].i, first = a[6].i;
  by_dtype(args.t, with_buffer ? 3 : 2, "sgd_step", [=](auto* const* p, int64_t n) {
    using C = std::remove_pointer_t<std::remove_reference_t<decltype(*p)>>;
    const C lr = C(a[0].f), momentum = C(a[1].f), rest = C(1 - a[2].f), decay = C(a[3].f), sign = a[5].i ? -1 : 1;
    C *w = p[0], *g = p[1], *b = with_buffer ? p[2] : nullptr;
    if (!with_buffer) {
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) w[i] -= lr * (sign * g[i] + decay * w[i]);
    } else {
      const C keep = first ? C(0) : momentum, take = first ? C(1) : rest;  // the first step copies the gradient
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) {
        C d = sign * g[i] + decay * w[i], v = first ? d : keep * b[i] + take * d;
        b[i] = v;
        w[i] -= lr * (nesterov ? d + momentum * v : v);
      }
    }
  });
}

// adam_step(param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq?;
//           step, lr, beta1, beta2, eps, weight_decay, decoupled, amsgrad, maximize)
void adam_step(const Args& args) {
  const Attr* a = args.a;
  const double step = a[0].f, rate = a[1].f, b1 = a[2].f, b2 = a[3].f;
  const double step_size = rate / (1 - std::pow(b1, step)), root = std::sqrt(1 - std::pow(b2, step));
  const bool decoupled = a[6].i, amsgrad = a[7].i && args.nt > 4 && args.t[4].given();
  by_dtype(args.t, amsgrad ? 5 : 4, "adam_step", [=](auto* const* p, int64_t n) {
    using C = std::remove_pointer_t<std::remove_reference_t<decltype(*p)>>;
    const C sign = a[8].i ? -1 : 1, decay = decoupled ? C(0) : C(a[5].f);
    const C shrink = decoupled ? C(1 - rate * a[5].f) : C(1);
    const C w1 = C(1 - b1), w2 = C(1 - b2), beta2 = C(b2), eps = C(a[4].f), size = C(step_size), r = C(root);
    C *w = p[0], *g = p[1], *m = p[2], *v = p[3], *most = amsgrad ? p[4] : nullptr;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      C x = w[i] * shrink, d = sign * g[i] + decay * x;
      m[i] += (d - m[i]) * w1;
      C u = v[i] * beta2 + d * d * w2;
      v[i] = u;
      if (amsgrad) most[i] = u = u > most[i] || u != u ? u : most[i];
      w[i] = x - size * (m[i] / (std::sqrt(u) / r + eps));
    }
  });
}

Register sgd_row("sgd_step", sgd_step), adam_row("adam_step", adam_step);

}  // namespace
}  // namespace mt
