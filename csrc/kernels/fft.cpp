// Fourier transforms along dims: Stockham passes of mixed radix, Bluestein's method for large prime factors. Lines are
// transformed several at a time, their items interleaved, so that every pass runs along contiguous memory.
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "expect.h"
#include "indexing.h"

namespace mt {
namespace {

constexpr int64_t kLanes = 8;         // lines side by side
constexpr int64_t kLaneItems = 65536; // items of one block beyond which fewer lines go together
constexpr int kMaxRadix = 31;         // larger prime factors go through Bluestein's method

// Real and imaginary parts apart: the shape compilers vectorise.
template <class R> struct Split {
  R *re, *im;
};

inline c128 unit_root(int64_t k, int64_t n) {  // exp(-2 pi i k / n)
  k %= n;
  if (4 * k % n == 0) {  // exact at the quarters: zeros stay zeros
    constexpr double turns[] = {1, 0, -1, 0, 1};
    return {turns[4 * k / n], -turns[(4 * k / n + 3) % 4]};
  }
  double angle = -6.283185307179586476925 * double(k) / double(n);
  return {std::cos(angle), std::sin(angle)};
}

template <class R> struct Table {
  std::vector<R> re, im;
  void resize(int64_t n) {
    re.resize(n);
    im.resize(n);
  }
  void set(int64_t k, c128 v) {
    re[k] = R(v.real());
    im[k] = R(v.imag());
  }
};

// ---- passes ----------------------------------------------------------------------------------------------
// A pass of radix r turns x[i][p][q] into y[p][j][q], p < m, q < s: a transform over i, times the twiddle w(p, j).

// a: real parts, b: imaginary parts; forward. V is R, or a vector of it.
template <class R, int r, class V> inline void butterfly(V* a, V* b) {
  if constexpr (r == 2) {
    V re = a[1], im = b[1];
    a[1] = a[0] - re, b[1] = b[0] - im;
    a[0] += re, b[0] += im;
  } else if constexpr (r == 3) {
    const R s = R(0.86602540378443864676);
    V tr = a[1] + a[2], ti = b[1] + b[2], ur = s * (b[1] - b[2]), ui = s * (a[2] - a[1]);
    V mr = a[0] - R(0.5) * tr, mi = b[0] - R(0.5) * ti;
    a[0] += tr, b[0] += ti;
    a[1] = mr + ur, b[1] = mi + ui;
    a[2] = mr - ur, b[2] = mi - ui;
  } else if constexpr (r == 4) {
    V ar = a[0] + a[2], ai = b[0] + b[2], br = a[0] - a[2], bi = b[0] - b[2];
    V cr = a[1] + a[3], ci = b[1] + b[3], dr = b[1] - b[3], di = a[3] - a[1];  // d: times -i
    a[0] = ar + cr, b[0] = ai + ci, a[2] = ar - cr, b[2] = ai - ci;
    a[1] = br + dr, b[1] = bi + di, a[3] = br - dr, b[3] = bi - di;
  } else {
    const R c1 = R(0.30901699437494742410), c2 = R(-0.80901699437494742410);
    const R s1 = R(0.95105651629515357212), s2 = R(0.58778525229247312917);
    V tr = a[1] + a[4], ti = b[1] + b[4], ur = a[2] + a[3], ui = b[2] + b[3];
    V vr = b[1] - b[4], vi = a[4] - a[1], wr = b[2] - b[3], wi = a[3] - a[2];  // differences times -i
    V pr = a[0] + c1 * tr + c2 * ur, pi = b[0] + c1 * ti + c2 * ui, qr = a[0] + c2 * tr + c1 * ur;
    V qi = b[0] + c2 * ti + c1 * ui;
    V er = s1 * vr + s2 * wr, ei = s1 * vi + s2 * wi, fr = s2 * vr - s1 * wr, fi = s2 * vi - s1 * wi;
    a[0] += tr + ur, b[0] += ti + ui;
    a[1] = pr + er, b[1] = pi + ei, a[4] = pr - er, b[4] = pi - ei;
    a[2] = qr + fr, b[2] = qi + fi, a[3] = qr - fr, b[3] = qi - fi;
  }
}

// Vectors of 16 and 32 bytes of R, at any address of an R.
template <class R, int bytes> struct VectorOf {
  typedef R type __attribute__((vector_size(bytes), aligned(alignof(R)), may_alias));
};
template <class R, int bytes> using vector_t = typename VectorOf<R, bytes>::type;

// Along q, a vector at a time; s is a multiple of its length.
template <class R, class V, int r>
void pass_along(Split<R> x, Split<R> y, int64_t m, int64_t s, const R* wr, const R* wi) {
  const auto at = [](R* p, int64_t k) -> V& { return *reinterpret_cast<V*>(p + k); };
  for (int64_t p = 0; p < m; ++p) {
    R c[r], d[r];
    for (int j = 1; j < r; ++j) c[j] = wr[(j - 1) * m + p], d[j] = wi[(j - 1) * m + p];
    for (int64_t q = 0; q < s; q += sizeof(V) / sizeof(R)) {
      V a[r], b[r];
      for (int i = 0; i < r; ++i) a[i] = at(x.re, q + s * (p + m * i)), b[i] = at(x.im, q + s * (p + m * i));
      butterfly<R, r>(a, b);
      const int64_t to = q + s * (r * p);
      at(y.re, to) = a[0], at(y.im, to) = b[0];
      for (int j = 1; j < r; ++j) {
        at(y.re, to + j * s) = a[j] * c[j] - b[j] * d[j];
        at(y.im, to + j * s) = a[j] * d[j] + b[j] * c[j];
      }
    }
  }
}

// s == 1: along p, with a twiddle for each item.
template <class R, int r>
void pass_single(const R* __restrict xr, const R* __restrict xi, R* __restrict yr, R* __restrict yi, int64_t m,
                 const R* __restrict wr, const R* __restrict wi) {
  for (int64_t p = 0; p < m; ++p) {
    R a[r], b[r];
    for (int i = 0; i < r; ++i) a[i] = xr[p + m * i], b[i] = xi[p + m * i];
    butterfly<R, r>(a, b);
    yr[p * r] = a[0], yi[p * r] = b[0];
    for (int j = 1; j < r; ++j) {
      const R c = wr[(j - 1) * m + p], d = wi[(j - 1) * m + p];
      yr[p * r + j] = a[j] * c - b[j] * d;
      yi[p * r + j] = a[j] * d + b[j] * c;
    }
  }
}

template <class R, int r> void pass(Split<R> x, Split<R> y, int64_t m, int64_t s, const R* wr, const R* wi) {
  if (s == 1) pass_single<R, r>(x.re, x.im, y.re, y.im, m, wr, wi);
  else if (s % (32 / sizeof(R)) == 0) pass_along<R, vector_t<R, 32>, r>(x, y, m, s, wr, wi);
  else if (s % (16 / sizeof(R)) == 0) pass_along<R, vector_t<R, 16>, r>(x, y, m, s, wr, wi);
  else pass_along<R, R, r>(x, y, m, s, wr, wi);
}

template <class R, class V>
void pass_any(Split<R> x, Split<R> y, int r, int64_t m, int64_t s, const R* wr, const R* wi, const Table<R>& roots) {
  const auto at = [](R* p, int64_t k) -> V& { return *reinterpret_cast<V*>(p + k); };
  for (int64_t p = 0; p < m; ++p)
    for (int64_t q = 0; q < s; q += sizeof(V) / sizeof(R)) {
      V a[kMaxRadix], b[kMaxRadix];
      for (int i = 0; i < r; ++i) a[i] = at(x.re, q + s * (p + m * i)), b[i] = at(x.im, q + s * (p + m * i));
      for (int j = 0; j < r; ++j) {
        V re = a[0], im = b[0];
        for (int i = 1, k = j; i < r; ++i, k = k + j < r ? k + j : k + j - r) {
          re += a[i] * roots.re[k] - b[i] * roots.im[k];
          im += a[i] * roots.im[k] + b[i] * roots.re[k];
        }
        const R c = j ? wr[(j - 1) * m + p] : R(1), d = j ? wi[(j - 1) * m + p] : R(0);
        at(y.re, q + s * (r * p + j)) = re * c - im * d;
        at(y.im, q + s * (r * p + j)) = re * d + im * c;
      }
    }
}

// ---- plans -----------------------------------------------------------------------------------------------

template <class R> struct Plan {
  struct Pass {
    int radix;
    int64_t m;
    Table<R> twiddle, roots;  // roots: of an odd radix without a butterfly of its own
  };
  int64_t n;
  std::vector<Pass> passes;
  Table<R> fold;                     // exp(-pi i k / n), k <= n: joins the halves of a real line of 2n items
  std::shared_ptr<const Plan> inner;  // Bluestein: the convolution's transform, of a power of two
  Table<R> chirp, filter;

  explicit Plan(int64_t size) : n(size) {
    fold.resize(n + 1);
    for (int64_t k = 0; k <= n; ++k) fold.set(k, unit_root(k, 2 * n));
    int64_t rest = n;
    for (int r : {4, 2, 3, 5}) while (rest % r == 0) add(r, rest);
    for (int r = 7; r <= kMaxRadix; r += 2) while (rest % r == 0) add(r, rest);
    if (rest > 1) bluestein();
  }
  // Items of scratch for each of the two buffers of a block of lines.
  int64_t room() const { return inner ? inner->n : n; }

  // Transforms `lanes` interleaved lines in x; the result is in x, y is scratch. Forward.
  void run(Split<R>& x, Split<R>& y, int64_t lanes) const {
    if (inner) return run_bluestein(x, y, lanes);
    int64_t s = lanes;
    for (const Pass& p : passes) {
      const R *wr = p.twiddle.re.data(), *wi = p.twiddle.im.data();
      switch (p.radix) {
        case 2: pass<R, 2>(x, y, p.m, s, wr, wi); break;
        case 3: pass<R, 3>(x, y, p.m, s, wr, wi); break;
        case 4: pass<R, 4>(x, y, p.m, s, wr, wi); break;
        case 5: pass<R, 5>(x, y, p.m, s, wr, wi); break;
        default:
          if (s % (32 / sizeof(R)) == 0) pass_any<R, vector_t<R, 32>>(x, y, p.radix, p.m, s, wr, wi, p.roots);
          else pass_any<R, R>(x, y, p.radix, p.m, s, wr, wi, p.roots);
      }
      std::swap(x, y);
      s *= p.radix;
    }
  }

 private:
  void add(int r, int64_t& rest) {
    const int64_t length = rest;
    rest /= r;
    Pass p{r, rest, {}, {}};
    p.twiddle.resize((r - 1) * rest);
    for (int j = 1; j < r; ++j)
      for (int64_t k = 0; k < rest; ++k) p.twiddle.set((j - 1) * rest + k, unit_root(j * k, length));
    if (r > 5) {
      p.roots.resize(r);
      for (int j = 0; j < r; ++j) p.roots.set(j, unit_root(j, r));
    }
    passes.push_back(std::move(p));
  }
  // x[k] c[k] convolved with conj(c), where c[k] = exp(-pi i k^2 / n); the circular convolution has room for 2n - 1.
  void bluestein() {
    passes.clear();
    int64_t m = 1;
    while (m < 2 * n - 1) m *= 2;
    inner = std::make_shared<const Plan>(m);
    chirp.resize(n);
    filter.resize(m);
    for (int64_t k = 0; k < n; ++k) {
      c128 c = unit_root(int64_t((unsigned __int128)(k) * k % (2 * n)), 2 * n);
      chirp.set(k, c);
      filter.set(k, std::conj(c) / double(m));
      if (k) filter.set(m - k, std::conj(c) / double(m));
    }
    std::vector<R> scratch(2 * m);
    Split<R> x{filter.re.data(), filter.im.data()}, y{scratch.data(), scratch.data() + m};
    inner->run(x, y, 1);
    if (x.re != filter.re.data()) {
      std::copy_n(x.re, m, filter.re.data());
      std::copy_n(x.im, m, filter.im.data());
    }
  }
  // z[k] *= w[k], for interleaved lines
  static void multiply(Split<R> z, const Table<R>& w, int64_t n, int64_t lanes) {
    for (int64_t k = 0; k < n; ++k) {
      const R c = w.re[k], d = w.im[k];
      for (int64_t l = k * lanes; l < (k + 1) * lanes; ++l) {
        const R a = z.re[l], b = z.im[l];
        z.re[l] = a * c - b * d;
        z.im[l] = a * d + b * c;
      }
    }
  }
  void run_bluestein(Split<R>& x, Split<R>& y, int64_t lanes) const {
    const int64_t m = inner->n;
    multiply(x, chirp, n, lanes);
    std::fill(x.re + n * lanes, x.re + m * lanes, R(0));
    std::fill(x.im + n * lanes, x.im + m * lanes, R(0));
    inner->run(x, y, lanes);
    multiply(x, filter, m, lanes);
    std::swap(x.re, x.im), std::swap(y.re, y.im);  // an inverse transform is a forward one with the parts swapped
    inner->run(x, y, lanes);
    std::swap(x.re, x.im), std::swap(y.re, y.im);
    multiply(x, chirp, n, lanes);
  }
};

// Plans are kept: their sines cost more than a transform.
template <class R> std::shared_ptr<const Plan<R>> plan_of(int64_t n) {
  static std::mutex mutex;
  static std::map<int64_t, std::shared_ptr<const Plan<R>>> kept;
  std::lock_guard<std::mutex> lock(mutex);
  auto& plan = kept[n];
  if (!plan) {
    if (kept.size() > 64) {
      auto made = std::make_shared<const Plan<R>>(n);
      kept.clear();
      return kept[n] = made;
    }
    plan = std::make_shared<const Plan<R>>(n);
  }
  return plan;
}

// ---- lines -----------------------------------------------------------------------------------------------

// One dim of a transform: lines of `from` to lines of `to`, of the same number along the other dims.
template <class R> struct Lines {
  Lines(const View& to_view, const View& from_view, int along)
      : to(to_view), from(from_view), to_step(stride_at(to_view, along)), from_step(stride_at(from_view, along)) {
    for (int d = 0; d < to.ndim; ++d) {
      if (d == along) continue;
      walk.sizes[walk.ndim] = to.sizes[d];
      walk.strides[walk.ndim][0] = to.strides[d];
      walk.strides[walk.ndim++][1] = from.strides[d];
    }
    count = walk.numel();
    if (count > 0) walk.collapse();
  }
  // block(first item of each line to write, of each line to read, lanes, x, y) for all lines, some lanes at a time
  template <class F> void run(int64_t n, int64_t room, F&& block) const {
    if (count == 0) return;
    const int64_t most = std::max<int64_t>(1, std::min(kLanes, kLaneItems / std::max<int64_t>(room, 1)));
    const int64_t blocks = (count + most - 1) / most, grain = std::max<int64_t>(1, 4096 / (n * most));
    parallel_for(blocks, grain, [&](int64_t begin, int64_t end) {
      Scratch<R> scratch(4 * room * most);
      int64_t outs[kLanes], ins[kLanes], have = 0;
      auto flush = [&] {
        Split<R> x{scratch.get(), scratch.get() + room * most};
        Split<R> y{scratch.get() + 2 * room * most, scratch.get() + 3 * room * most};
        if (have == 0) return;
        // Vectors are filled up with line 0 again.
        for (; have > 1 && have < most; ++have) outs[have] = outs[0], ins[have] = ins[0];
        block(static_cast<const int64_t*>(outs), static_cast<const int64_t*>(ins), have, x, y);
        have = 0;
      };
      walk.run(begin * most, std::min(count, end * most), [&](const int64_t* at, int64_t lines) {
        for (int64_t i = 0; i < lines; ++i) {
          outs[have] = at[0] + i * walk.inner()[0];
          ins[have] = at[1] + i * walk.inner()[1];
          if (++have == most) flush();
        }
      });
      flush();
    });
  }
  View to, from;
  int64_t to_step, from_step, count;
  Walk<2> walk;
};

// f(k, where it lies, l) for items k of lanes l, lanes innermost: the interleaved side is then contiguous.
template <class F> inline void each_item(int64_t n, int64_t lanes, F f) {
  if (lanes == kLanes) {
    for (int64_t k = 0; k < n; ++k)
      for (int64_t l = 0; l < kLanes; ++l) f(k, k * kLanes + l, l);
  } else {
    for (int64_t k = 0; k < n; ++k)
      for (int64_t l = 0; l < lanes; ++l) f(k, k * lanes + l, l);
  }
}

template <class R>
void load(Split<R> x, const std::complex<R>* p, const int64_t* at, int64_t step, int64_t lanes, int64_t n) {
  each_item(n, lanes, [=](int64_t k, int64_t i, int64_t l) {
    const std::complex<R> v = p[at[l] + k * step];
    x.re[i] = v.real();
    x.im[i] = v.imag();
  });
}
template <class R>
void store(Split<R> x, std::complex<R>* p, const int64_t* at, int64_t step, int64_t lanes, int64_t n, R scale) {
  each_item(n, lanes, [=](int64_t k, int64_t i, int64_t l) {
    p[at[l] + k * step] = {x.re[i] * scale, x.im[i] * scale};
  });
}

template <class R> void c2c(const View& to, const View& from, int dim, bool forward, R scale) {
  const int64_t n = size_at(from, dim);
  auto plan = plan_of<R>(n);
  Lines<R> lines(to, from, dim);
  lines.run(n, plan->room(), [&](const int64_t* outs, const int64_t* ins, int64_t lanes, Split<R> x, Split<R> y) {
    load(x, from.ptr<std::complex<R>>(), ins, lines.from_step, lanes, n);
    if (!forward) std::swap(x.re, x.im), std::swap(y.re, y.im);
    plan->run(x, y, lanes);
    if (!forward) std::swap(x.re, x.im);
    store(x, to.ptr<std::complex<R>>(), outs, lines.to_step, lanes, n, scale);
  });
}

// A real line of 2h items is transformed as h complex ones; this joins the two interleaved halves.
template <class R> void join(Split<R> z, Split<R> x, const Table<R>& w, int64_t h, int64_t lanes) {
  for (int64_t k = 0; k <= h; ++k) {
    const int64_t a = (k == h ? 0 : k) * lanes, b = (k == 0 ? 0 : h - k) * lanes;
    const R c = w.re[k], s = w.im[k], *ar = z.re + a, *ai = z.im + a, *br = z.re + b, *bi = z.im + b;
    R *__restrict to_re = x.re + k * lanes, *__restrict to_im = x.im + k * lanes;
    for (int64_t l = 0; l < lanes; ++l) {
      const R dr = ai[l] + bi[l], di = br[l] - ar[l];
      to_re[l] = R(0.5) * (ar[l] + br[l] + dr * c - di * s);
      to_im[l] = R(0.5) * (ai[l] - bi[l] + dr * s + di * c);
    }
  }
}

// to: n / 2 + 1 items along dim, or all n (the rest by symmetry)
template <class R> void r2c(const View& to, const View& from, int dim, R scale) {
  const int64_t n = size_at(from, dim), half = n / 2 + 1, full = size_at(to, dim);
  const bool even = n % 2 == 0;
  auto plan = plan_of<R>(even ? n / 2 : n);
  Lines<R> lines(to, from, dim);
  const int64_t room = std::max(plan->room(), half);
  lines.run(n, room, [&](const int64_t* outs, const int64_t* ins, int64_t lanes, Split<R> x, Split<R> y) {
    const R* p = from.ptr<R>();
    each_item(plan->n, lanes, [&, x](int64_t k, int64_t i, int64_t l) {
      const R* v = p + ins[l] + (even ? 2 * k : k) * lines.from_step;
      x.re[i] = v[0];
      x.im[i] = even ? v[lines.from_step] : R(0);
    });
    plan->run(x, y, lanes);
    if (even) join(x, y, plan->fold, n / 2, lanes), std::swap(x, y);
    auto* q = to.ptr<std::complex<R>>();
    store(x, q, outs, lines.to_step, lanes, std::min(half, full), scale);
    for (int64_t l = 0; l < lanes; ++l)
      for (int64_t k = half; k < full; ++k)
        q[outs[l] + k * lines.to_step] = std::conj(q[outs[l] + (n - k) * lines.to_step]);
  });
}

// The complex line of half the length (n even), or the whole line by symmetry (n odd), whose inverse is the real line.
template <class R> void part(Split<R> x, Split<R> z, const Table<R>& w, int64_t n, int64_t lanes) {
  const bool even = n % 2 == 0;
  const int64_t h = n / 2;
  for (int64_t l = 0; l < lanes; ++l) x.im[l] = 0;  // the first and the middle item are real
  for (int64_t l = 0; even && l < lanes; ++l) x.im[h * lanes + l] = 0;
  if (!even) {
    std::copy_n(x.re, (h + 1) * lanes, z.re);
    std::copy_n(x.im, (h + 1) * lanes, z.im);
  }
  for (int64_t k = even ? 0 : h + 1; k < (even ? h : n); ++k) {
    const int64_t a = k * lanes, b = (even ? h - k : n - k) * lanes;
    const R c = w.re[k], s = w.im[k], *ar = x.re + a, *ai = x.im + a, *br = x.re + b, *bi = x.im + b;
    R *__restrict to_re = z.re + a, *__restrict to_im = z.im + a;
    for (int64_t l = 0; l < lanes; ++l) {
      const R dr = ar[l] - br[l], di = ai[l] + bi[l];
      to_re[l] = even ? ar[l] + br[l] - (di * c - dr * s) : br[l];  // the difference times i conj(w)
      to_im[l] = even ? ai[l] - bi[l] + (dr * c + di * s) : -bi[l];
    }
  }
}

template <class R> void c2r(const View& to, const View& from, int dim, R scale) {
  const int64_t n = size_at(to, dim), have = std::min(size_at(from, dim), n / 2 + 1);
  const bool even = n % 2 == 0;
  auto plan = plan_of<R>(even ? n / 2 : n);
  Lines<R> lines(to, from, dim);
  const int64_t room = std::max(plan->room(), n / 2 + 1);
  lines.run(n, room, [&](const int64_t* outs, const int64_t* ins, int64_t lanes, Split<R> x, Split<R> y) {
    load(x, from.ptr<std::complex<R>>(), ins, lines.from_step, lanes, have);
    std::fill(x.re + have * lanes, x.re + (n / 2 + 1) * lanes, R(0));
    std::fill(x.im + have * lanes, x.im + (n / 2 + 1) * lanes, R(0));
    part(x, y, plan->fold, n, lanes);
    Split<R> z{y.im, y.re}, scratch{x.im, x.re};
    plan->run(z, scratch, lanes);
    R* q = to.ptr<R>();
    each_item(plan->n, lanes, [&, z](int64_t k, int64_t i, int64_t l) {
      R* v = q + outs[l] + (even ? 2 * k : k) * lines.to_step;
      v[0] = z.im[i] * scale;
      if (even) v[lines.to_step] = z.re[i] * scale;
    });
  });
}

// ---- ops -------------------------------------------------------------------------------------------------

// 0: none, 1: by sqrt(n), 2: by n, where n is the number of items transformed
double scale_of(int64_t normalization, const View& signal, const Attr& dims) {
  double n = 1;
  for (int i = 0; i < dims.n; ++i) n *= double(size_at(signal, wrap_dim(dims.list[i], signal.ndim)));
  return normalization == 0 ? 1 : normalization == 1 ? 1 / std::sqrt(n) : 1 / n;
}

// Transforms the first `count` dims of the list, last one first; the first pass reads `from`, the others go in place.
template <class R> void c2c_dims(const View& to, const View& from, const Attr& dims, int count, bool forward, R scale) {
  for (int i = count - 1; i >= 0; --i)
    c2c<R>(to, i == count - 1 ? from : to, wrap_dim(dims.list[i], to.ndim), forward, i == 0 ? scale : R(1));
}

// _fft_c2c(Tensor self, SymInt[] dim, int normalization, bool forward) -> Tensor
void fft_c2c(const Args& args) {
  const View &out = args.t[0], &self = args.t[1];
  const Attr& dims = args.a[0];
  const double scale = scale_of(args.a[1].i, self, dims);
  if (out.numel() == 0) return;
  if (dims.n == 0) return copy(out, self);
  const bool forward = args.a[2].i != 0;
  if (self.dtype == kComplexFloat) c2c_dims<float>(out, self, dims, dims.n, forward, float(scale));
  else if (self.dtype == kComplexDouble) c2c_dims<double>(out, self, dims, dims.n, forward, scale);
  else unsupported("_fft_c2c", self.dtype);
}

// _fft_r2c(Tensor self, int[] dim, int normalization, bool onesided) -> Tensor
void fft_r2c(const Args& args) {
  const View &out = args.t[0], &self = args.t[1];
  const Attr& dims = args.a[0];
  const double scale = scale_of(args.a[1].i, self, dims);
  if (out.numel() == 0) return;
  const int last = wrap_dim(dims.list[dims.n - 1], self.ndim);
  if (self.dtype == kFloat) {
    r2c<float>(out, self, last, float(scale));
    c2c_dims<float>(out, out, dims, dims.n - 1, true, 1);
  } else if (self.dtype == kDouble) {
    r2c<double>(out, self, last, scale);
    c2c_dims<double>(out, out, dims, dims.n - 1, true, 1);
  } else {
    unsupported("_fft_r2c", self.dtype);
  }
}

template <class R> void c2r_dims(const View& out, const View& self, const Attr& dims, R scale) {
  const int last = wrap_dim(dims.list[dims.n - 1], self.ndim);
  if (dims.n == 1) return c2r<R>(out, self, last, scale);
  Scratch<std::complex<R>> items(self.numel());
  int64_t strides[kMaxDims], step = 1;
  for (int d = self.ndim - 1; d >= 0; step *= self.sizes[d--]) strides[d] = step;
  View middle = self;
  middle.data = items.get();
  middle.strides = strides;
  c2c_dims<R>(middle, self, dims, dims.n - 1, false, 1);
  c2r<R>(out, middle, last, scale);
}

// _fft_c2r(Tensor self, int[] dim, int normalization, SymInt last_dim_size) -> Tensor
void fft_c2r(const Args& args) {
  const View &out = args.t[0], &self = args.t[1];
  const double scale = scale_of(args.a[1].i, out, args.a[0]);
  if (out.numel() == 0) return;
  expect(self.numel() > 0, "_fft_c2r", "expected a tensor with items");
  if (self.dtype == kComplexFloat) c2r_dims<float>(out, self, args.a[0], float(scale));
  else if (self.dtype == kComplexDouble) c2r_dims<double>(out, self, args.a[0], scale);
  else unsupported("_fft_c2r", self.dtype);
}

Register r0("_fft_c2c", fft_c2c);
Register r1("_fft_r2c", fft_r2c);
Register r2("_fft_c2r", fft_c2r);

}  // namespace
}  // namespace mt
