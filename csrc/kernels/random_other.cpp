// The random kernels that go through the mathematical library: exponential_, geometric_, cauchy_, poisson,
// multinomial; PyTorch's numbers bit for bit.
#include <cmath>
#include <limits>
#include <vector>

#include "library.h"
#include "random_order.h"

namespace mt::rng {
namespace {

constexpr double kPi = 3.14159265358979323846;

// Each item by f of one uniform number.
template <class F> void fill_from_unit(const Args& args, const char* op, F f) {
  fill_doubles(args.t[0], op, [&](double* out, int64_t n) {
    from_words<2>(*args.generator, out, n, kLibm, [=](const uint32_t* w) { return f(unit_double(w)); });
  });
}
void need_floating(const View& self, const char* title) {
  if (!is_floating(self.dtype))
    fail(std::string(title) + " distribution is a continuous probability distribution. "
         "dtype must be a floating point but you specified " + dtype_name(self.dtype));
}

// exponential_(Tensor(a!) self, float lambd=1, *, Generator? generator=None) -> Tensor(a!)
void exponential_(const Args& args) {
  double lambd = args.a[0].f;
  need_floating(args.t[0], "Exponential");
  if (!(lambd > 0)) fail("exponential_ expects lambda > 0.0, but found lambda=" + shown(lambd));
  double scale = -1.0 / lambd;
  fill_from_unit(args, "exponential_cpu", [=](double u) { return scale * std::log1p(-u); });
}

// geometric_(Tensor(a!) self, float p, *, Generator? generator=None) -> Tensor(a!)
void geometric_(const Args& args) {
  double p = args.a[0].f;
  if (!(p > 0 && p < 1)) fail("geometric_ expects p to be in (0, 1), but got p=" + shown(p));
  if (args.t[0].dtype == kBool) unsupported("geometric_cpu", kBool);
  double scale = std::log1p(-p);
  fill_from_unit(args, "geometric_cpu", [=](double u) { return std::ceil(std::log(u) / scale); });
}

// cauchy_(Tensor(a!) self, float median=0, float sigma=1, *, Generator? generator=None) -> Tensor(a!)
void cauchy_(const Args& args) {
  double median = args.a[0].f, sigma = args.a[1].f;
  if (!(sigma > 0)) fail("cauchy_ expects sigma > 0.0, but found sigma=" + shown(sigma));
  need_floating(args.t[0], "Cauchy");
  fill_from_unit(args, "cauchy_cpu", [=](double u) { return madd(sigma, std::tan(kPi * (u - 0.5)), median); });
}

// ---- poisson ---------------------------------------------------------------------------------------------
// For rates from 10 on: Hoermann's transformed rejection (PTRS, 1993).
int64_t poisson_large(double rate, Generator& g) {
  double root = std::sqrt(rate), log_rate = std::log(rate), b = 0.931 + 2.53 * root, a = -0.059 + 0.02483 * b;
  double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), vr = 0.9277 - 3.6224 / (b - 2);
  for (;;) {
    double u = draw(g) - 0.5, v = draw(g), us = 0.5 - std::fabs(u);
    double floor = std::floor((2 * a / us + b) * u + rate + 0.43);
    int64_t k = std::fabs(floor) < 0x1p63 ? int64_t(floor) : std::numeric_limits<int64_t>::min();
    if (us >= 0.07 && v <= vr) return k;
    if (k < 0 || (us < 0.013 && v > us)) continue;
    if (std::log(v) + std::log(inverse_alpha) - std::log(a / (us * us) + b) <=
        -rate + double(k) * log_rate - std::lgamma(double(k) + 1))
      return k;
  }
}
int64_t poisson_of(double rate, Generator& g) {
  if (!(rate >= 0)) fail("invalid Poisson rate, expected rate to be non-negative");
  if (rate >= 10) return poisson_large(rate, g);
  if (rate == 0) return 0;
  double limit = std::exp(-rate), product = 1;
  for (int64_t k = 0;; ++k) {
    product *= draw(g);
    if (!(product > limit)) return k;
  }
}

// poisson(Tensor self, Generator? generator=None) -> Tensor
void poisson(const Args& args) {
  const View &out = args.t[0], &self = args.t[1];
  Order order(out, &self);
  int64_t to = order.inner(0), from = order.inner(1);
  if (order.numel == 0) return;
  MT_DISPATCH_FLOATING(self.dtype, "poisson_cpu", T, {
    order.walk(0, order.numel, [&](int64_t o, int64_t s, int64_t, int64_t run) {
      for (int64_t j = 0; j < run; ++j)
        out.ptr<T>()[o + j * to] = cast<T>(poisson_of(cast<double>(self.ptr<T>()[s + j * from]), *args.generator));
    });
  })
}

// ---- multinomial -----------------------------------------------------------------------------------------
struct Table {  // a matrix of chances with any strides, and the matrix of what was drawn
  int64_t rows, columns, row_step, column_step, samples, out_row_step, out_step;
  int64_t* out;
};

// Sums the chances of one row in order; throws where one of them is none.
template <class T, class C> void accumulate(const T* row, int64_t step, std::vector<C>& sums) {
  C sum = 0;
  for (C& out : sums) {
    C v = cast<C>(*row);
    row += step;
    if (!(v >= 0)) fail("invalid multinomial distribution (encountering probability entry < 0)");
    if (!std::isfinite(v)) fail("invalid multinomial distribution (encountering probability entry = infinity or NaN)");
    out = sum += v;
  }
  if (!(sum > 0)) fail("invalid multinomial distribution (sum of probabilities <= 0)");
  for (C& out : sums) out /= sum;
  sums.back() = 1;
}

// Draws by bisection of the cumulative sums.
template <class T> void with_replacement(const T* p, const Table& t, Generator& g) {
  std::vector<uint32_t> words(static_cast<size_t>(t.rows * t.samples * 2));
  g.fill(words.data(), int64_t(words.size()));
  parallel_for(t.rows, 8 * kGrain / (t.columns + t.samples) + 1, [&](int64_t i, int64_t end) {
    std::vector<compute_t<T>> sums(static_cast<size_t>(t.columns));
    for (; i < end; ++i) {
      accumulate(p + i * t.row_step, t.column_step, sums);
      const uint32_t* w = words.data() + i * t.samples * 2;
      for (int64_t k = 0; k < t.samples; ++k) {
        double u = unit_double(w + 2 * k);
        auto found = std::lower_bound(sums.begin(), sums.end(), u, [](double sum, double u) { return sum < u; });
        t.out[i * t.out_row_step + k * t.out_step] = found - sums.begin();
      }
    }
  });
}

template <class T> void check_chances(const T* p, const Table& t) {
  using C = compute_t<T>;
  parallel_for(t.rows, 8 * kGrain / t.columns + 1, [&](int64_t i, int64_t end) {
    for (; i < end; ++i) {
      const T* row = p + i * t.row_step;
      int bad = 0, some = 0;
      for (int64_t j = 0; j < t.columns; ++j) {
        C v = cast<C>(row[j * t.column_step]);
        bad |= !(v >= 0 && v <= std::numeric_limits<C>::max());
        some |= v > 0;
      }
      if (bad) fail("probability tensor contains either `inf`, `nan` or element < 0");
      if (!some) fail("invalid multinomial distribution (sum of probabilities <= 0)");
    }
  });
}

// The first k of the runners. The choice among equals is that of PyTorch's topk, which runs the same algorithms.
template <class C> void select(std::vector<std::pair<C, int64_t>>& runners, int64_t k) {
  using Runner = std::pair<C, int64_t>;
  auto ahead = [](const Runner& x, const Runner& y) {
    return (std::isnan(x.first) && !std::isnan(y.first)) || x.first > y.first;
  };
  auto begin = runners.begin(), end = runners.end();
  if (k == 1) {
    std::iter_swap(begin, std::min_element(begin, end, ahead));
  } else if (k * 64 <= int64_t(runners.size())) {
    std::partial_sort(begin, begin + k, end, ahead);
  } else {
    std::nth_element(begin, begin + k - 1, end, ahead);
    std::sort(begin, begin + k - 1, ahead);
  }
}

// The largest of chance / exponential number: sampling without replacement. The exponential numbers are drawn in
// the order of the memory of p, and are numbers of its type.
template <class T> void without_replacement(const T* p, const Table& t, Generator& g) {
  using C = compute_t<T>;
  check_chances(p, t);
  std::vector<T> race(static_cast<size_t>(t.rows * t.columns));
  from_words<2>(g, race.data(), t.rows * t.columns, kLibm,
                [](const uint32_t* w) { return cast<T>(-1.0 * std::log1p(-unit_double(w))); });
  bool by_column = t.row_step && t.column_step && t.row_step < t.column_step;
  int64_t row_step = by_column ? 1 : t.columns, column_step = by_column ? t.rows : 1;
  parallel_for(t.rows, 8 * kGrain / t.columns + 1, [&](int64_t i, int64_t end) {
    std::vector<std::pair<C, int64_t>> runners(static_cast<size_t>(t.columns));
    for (; i < end; ++i) {
      const T *row = p + i * t.row_step, *draws = race.data() + i * row_step;
      for (int64_t j = 0; j < t.columns; ++j)
        runners[size_t(j)] = {cast<C>(cast<T>(cast<C>(row[j * t.column_step]) / cast<C>(draws[j * column_step]))), j};
      select(runners, t.samples);
      for (int64_t k = 0; k < t.samples; ++k)
        t.out[i * t.out_row_step + k * t.out_step] = runners[size_t(k)].second;
    }
  });
}

// multinomial(Tensor self, SymInt num_samples, bool replacement=False, *, Generator? generator=None) -> Tensor
void multinomial(const Args& args) {
  const View &out = args.t[0], &self = args.t[1];
  int64_t samples = args.a[0].i;
  bool replacement = args.a[1].i != 0;
  int last = self.ndim - 1;
  if (last < 0 || last > 1) fail("prob_dist must be 1 or 2 dim");
  if (!is_floating(self.dtype))
    fail(std::string("multinomial only supports floating-point dtypes for input, got: ") + dtype_name(self.dtype));
  if (samples <= 0) fail("cannot sample n_sample <= 0 samples");
  int64_t columns = self.sizes[last];
  if (!replacement && samples > columns)
    fail("cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  bool matrix = last == 1;
  Table t{matrix ? self.sizes[0] : 1, columns, matrix ? self.strides[0] : 0, self.strides[last], samples,
          matrix ? out.strides[0] : 0, out.strides[last], out.ptr<int64_t>()};
  if (t.rows == 0) return;
  if (columns == 0) fail("invalid multinomial distribution (sum of probabilities <= 0)");
  MT_DISPATCH_FLOATING(self.dtype, "multinomial", T, {
    if (replacement && samples > 1) with_replacement(self.ptr<T>(), t, *args.generator);
    else without_replacement(self.ptr<T>(), t, *args.generator);
  })
}

Register r1("exponential_", exponential_), r2("geometric_", geometric_), r3("cauchy_", cauchy_),
    r4("poisson", poisson), r5("multinomial", multinomial);

}  // namespace
}  // namespace mt::rng
