// Draws by rejection: _standard_gamma and binomial, PyTorch's numbers bit for bit.
#include <cmath>
#include <limits>

#include "library.h"
#include "random_order.h"

namespace mt::rng {
namespace {

// Gamma(shape, 1) by Marsaglia and Tsang (2000); a shape below 1 is raised by 1 and the draw scaled down. What depends on the
// shape alone is computed in its type, as PyTorch does.
template <class C> double gamma(C shape, Generator& g) {
  if (!(shape > 0)) return 0;      // of what is negative or NaN no draw would be accepted
  double scale = 1;
  if (shape < 1) {
    scale = std::pow(1 - draw(g), 1.0f / shape);
    shape += 1;
  }
  const double d = shape - 1.0f / 3.0f, c = 1 / std::sqrt(9 * d);
  for (;;) {
    double x, y;
    do {
      standard_normals(g, &x, 1);
      y = 1 + c * x;
    } while (y <= 0);
    double v = y * y * y, u = 1 - draw(g), xx = x * x;
    if (u < 1 - 0.0331f * xx * xx || std::log(u) < 0.5f * xx + d * (1 - v + std::log(v))) return scale * d * v;
  }
}

// Where item i of a tensor of `shape`, counted in row order, lies in v, which is broadcast to it.
int64_t place(const View& v, const View& shape, int64_t i) {
  int64_t at = 0;
  for (int d = shape.ndim - 1, k = v.ndim - 1; k >= 0; --d, --k) {
    if (v.sizes[k] != 1) at += i % shape.sizes[d] * v.strides[k];
    i /= shape.sizes[d];
  }
  return at;
}

// _standard_gamma(Tensor self, Generator? generator=None) -> Tensor
void standard_gamma(const Args& args) {
  const View &out = args.t[0], &self = args.t[1];
  MT_DISPATCH_FLOATING(self.dtype, "gamma", T, {
    constexpr double least = double(std::numeric_limits<compute_t<T>>::min());
    for (int64_t i = 0, n = out.numel(); i < n; ++i) {
      double drawn = gamma(cast<compute_t<T>>(self.ptr<T>()[place(self, out, i)]), *args.generator);
      out.ptr<T>()[i] = cast<T>(drawn < least ? least : drawn);
    }
  })
}

// ---- binomial ----------------------------------------------------------------------------------------------
// What Stirling's approximation of log k! lacks.
double stirling_rest(double k) {
  static const double known[] = {0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509,
                                 0.0166446911898211, 0.0138761288230707, 0.0118967099458917, 0.0104112652619720,
                                 0.00925546218271273, 0.00833056343336287};
  if (k <= 9) return known[static_cast<size_t>(k)];
  double square = (k + 1) * (k + 1);
  return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1);
}

// For means from 10 on: Hoermann's transformed rejection with squeeze (BTRS, 1993).
double binomial_large(double count, double p, Generator& g) {
  const double deviation = std::sqrt(count * p * (1 - p)), b = 1.15 + 2.53 * deviation;
  const double a = -0.0873 + 0.0248 * b + 0.01 * p, c = count * p + 0.5, vr = 0.92 - 4.2 / b, odds = p / (1 - p);
  const double alpha = (2.83 + 5.1 / b) * deviation, mode = std::floor((count + 1) * p);
  for (;;) {
    double u = draw(g) - 0.5, v = draw(g), us = 0.5 - std::fabs(u);
    double k = std::floor((2 * a / us + b) * u + c);
    if (us >= 0.07 && v <= vr) return k;
    if (!(k >= 0 && k <= count)) continue;
    double bound = (mode + 0.5) * std::log((mode + 1) / (odds * (count - mode + 1))) +
                   (count + 1) * std::log((count - mode + 1) / (count - k + 1)) +
                   (k + 0.5) * std::log(odds * (count - k + 1) / (k + 1)) + stirling_rest(mode) +
                   stirling_rest(count - mode) - stirling_rest(k) - stirling_rest(count - k);
    if (std::log(v * alpha / (a / (us * us) + b)) <= bound) return k;
  }
}

// For small means: trials between two successes are geometric.
double binomial_small(double count, double p, Generator& g) {
  const double scale = std::log1p(-p);
  double trials = 0;
  for (double k = 0;; ++k) {
    trials += std::ceil(std::log(draw(g)) / scale);
    if (trials > count) return k;
  }
}

double binomial_of(double count, double p, Generator& g) {
  if (std::isnan(p) || std::isnan(count)) return std::numeric_limits<double>::quiet_NaN();
  if (count <= 0 || p <= 0) return 0;
  if (p >= 1) return count;
  double rarer = p <= 0.5 ? p : 1 - p;
  double drawn = count * rarer >= 10 ? binomial_large(count, rarer, g) : binomial_small(count, rarer, g);
  return p <= 0.5 ? drawn : count - drawn;
}

// binomial(Tensor count, Tensor prob, Generator? generator=None) -> Tensor
void binomial(const Args& args) {
  const View &out = args.t[0], &count = args.t[1], &prob = args.t[2];
  MT_DISPATCH_FLOATING(count.dtype, "binomial_cpu", T, {
    for (int64_t i = 0, n = out.numel(); i < n; ++i)
      out.ptr<T>()[i] = cast<T>(binomial_of(cast<double>(count.ptr<T>()[place(count, out, i)]),
                                            cast<double>(prob.ptr<T>()[place(prob, out, i)]), *args.generator));
  })
}

Register r1("_standard_gamma", standard_gamma), r2("binomial", binomial);

}  // namespace
}  // namespace mt::rng
