// Counts, searches, bags of rows and the search for a quantising scale of the older interface.
#include <algorithm>
#include <cmath>

#include "ops/older.h"

namespace cann_sim {
namespace {

void bincount(Older& o) {  // (places, how many, weights or nothing): the output has as many items as there are places
  const Value at = o.in(0).to(mt::kInt64).dense(), out = o.out(0), made = full(out.shape(), mt::kDouble, 0);
  const Value weights = o.given(2) && o.in(2).numel() ? o.in(2).to(mt::kDouble).dense() : full({at.numel()}, mt::kDouble, 1);
  if (weights.numel() != at.numel()) o.refuse("there must be as many weights as places");
  for (int64_t i = 0; i < at.numel(); ++i) {
    const int64_t k = at.ptr<int64_t>()[i];
    if (k < 0) o.refuse("a place is negative");
    if (k < made.numel()) made.ptr<double>()[k] += weights.ptr<double>()[i];  // the rest is not counted
  }
  copy(out, made);
}

void search_sorted(Older& o) {  // (rows in order, values)
  const Value rows = o.in(0), values = o.in(1), out = o.out(0), made = empty(values.shape(), mt::kInt64);
  const DType t = promote(rows.dtype, values.dtype);
  bool fits = rows.ndim == 1 || (rows.ndim > 1 && rows.ndim == values.ndim);
  for (int64_t d = 0; fits && d + 1 < rows.ndim; ++d) fits = rows.size(d) == values.size(d);
  if (!fits) o.refuse("all dims but the last must match");
  call_kernel("searchsorted", {made, rows.to(t), values.to(t), Value()}, {integer(o.integer("right", 0))});
  copy(out, made.reshape(out.shape()));
}

// (table, places, where bags begin, weights or nothing): the bags, the bag of each place, sizes of bags, places of the largest
void embedding_bag(Older& o) {
  const std::string mode = o.text("mode", "mean");
  const Value table = o.in(0), places = o.in(1).to(mt::kInt64).dense(), begins = o.in(2).to(mt::kInt64).dense();
  const bool last_given = o.integer("include_last_offset", 0);
  const int64_t ignored = o.integer("padding_idx", -1), n = places.numel(), bags = std::max<int64_t>(begins.numel() - last_given, 0);
  const Value out = o.out(0), made = empty({bags, table.size(-1)}, table.dtype);
  if (table.ndim != 2 || out.shape() != made.shape()) o.refuse("expected a table of two dims and an output row a bag");
  call_kernel("embedding_bag", {made, table, places, begins, o.given(3) && o.in(3).numel() ? o.in(3).to(table.dtype) : Value()},
              {integer(mode == "sum" ? 0 : mode == "mean" ? 1 : 2), integer(ignored), integer(last_given)});
  copy(out, made);
  const int64_t width = table.size(1);
  const Value bag_of = full({n}, mt::kInt64, 0), sizes = full({bags}, mt::kInt64, 0), best = full({bags, width}, mt::kInt64, -1);
  const Value numbers = table.to(mt::kDouble).dense();
  for (int64_t b = 0; b < bags; ++b) {
    const int64_t end = b + 1 < begins.numel() ? begins.ptr<int64_t>()[b + 1] : n;
    for (int64_t i = begins.ptr<int64_t>()[b]; i < end; ++i) {
      const int64_t row = places.ptr<int64_t>()[i];
      bag_of.ptr<int64_t>()[i] = b;
      if (row == ignored) continue;
      ++sizes.ptr<int64_t>()[b];
      for (int64_t k = 0; k < width; ++k) {
        int64_t& at = best.ptr<int64_t>()[b * width + k];
        if (at < 0 || numbers.ptr<double>()[row * width + k] > numbers.ptr<double>()[at * width + k]) at = row;
      }
    }
  }
  const Value results[] = {bag_of, sizes, mode == "max" ? best : sizes};
  for (size_t k = 0; k < 3; ++k)  // clients give outputs of other sizes where the mode leaves them unused
    if (o.out(k + 1).numel() == results[k].numel()) copy(o.out(k + 1), results[k].reshape(o.out(k + 1).shape()));
}

// (x, its least, its largest, running counts of a histogram): the scale and offset to 8 bits with the least squared error, of
// those that stretch the range between two percentiles by the steps of a range.
void best_scale(Older& o) {
  const Value x = o.in(0).to(mt::kDouble).dense(), counts = o.in(3).to(mt::kDouble).dense();
  const double least = o.number(1), most = o.number(2), step = o.real("search_step", 0.01);
  const std::vector<double> range = o.reals("search_range");
  const bool shifted = o.integer("with_offset", 1);
  if (range.size() != 2 || !(step > 0) || !counts.numel()) o.refuse("expected a search_range of two numbers, a positive step and counts");
  auto at = [&](double share) {  // the number below which this share of x lies
    const double* first = counts.ptr<double>();
    const auto bins = std::count_if(first, first + counts.numel(), [&](double count) { return count / double(x.numel()) < share; });
    return double(bins) / double(counts.numel()) * (most - least) + least;
  };
  double high = at(o.real("max_percentile", 1)), low = at(1 - o.real("min_percentile", 1));
  if (shifted) high = std::max(high, 0.0), low = std::min(low, 0.0);
  else high = std::max(std::fabs(high), std::fabs(low));
  double best = INFINITY, best_scale = 1, best_offset = 0;
  for (int64_t k = 0; range[0] + double(k) * step < range[1] - 1e-6 * step; ++k) {
    const double top = high * (range[0] + double(k) * step);
    double scale = shifted ? (top - low) / 255 : top / 127;
    if (scale < 1.192092896e-07) scale = 1;
    const double offset = shifted ? -(std::nearbyint(low / scale) + 128) : 0;
    double error = 0;
    for (int64_t i = 0; i < x.numel(); ++i) {
      const double code = std::min(std::max(std::nearbyint(x.ptr<double>()[i] / scale) + offset, -128.0), 127.0);
      const double off = (code - offset) * scale - x.ptr<double>()[i];
      error += off * off;
    }
    if (error < best) best = error, best_scale = scale, best_offset = offset;
  }
  fill(o.out(0), best_scale);
  fill(o.out(1), best_offset);
}

const OlderOps ops({
    {"Bincount", 3, 3, 1, bincount}, {"SearchSorted", 2, 2, 1, search_sorted}, {"EmbeddingBag", 3, 4, 4, embedding_bag},
    {"IFMR", 4, 4, 2, best_scale},
});

}  // namespace
}  // namespace cann_sim
