// One direction of a recurrent layer over all its time steps, forward and backward, in float32. Other dtypes, packed
// sequences and projections are loops over steps in Python.
#include <algorithm>
#include <memory>
#include <vector>

#include "dense.h"
#include "dispatch.h"
#include "gemm.h"
#include "lane_planes.h"
#include "loops.h"
#include "panel.h"
#include "parallel.h"
#include "vmath.h"

namespace mt {
namespace {

enum Mode { kTanh, kRelu, kLstm, kGru };  // the argument `mode`

// Gates: LSTM has input, forget, cell and output, GRU reset, update and new. Kept for the backward: the activated gates,
// and of GRU what the hidden state adds to the new gate; of the plain layers nothing, their outputs tell all.
struct Layer {
  Mode mode;
  bool reverse;
  int64_t steps, batch, hidden;

  Layer(const View& gates, const View& hx, const Attr& m, const Attr& r)
      : mode(Mode(m.i)), reverse(r.i != 0), steps(gates.sizes[0]), batch(gates.sizes[1]), hidden(hx.sizes[1]) {}
  int64_t gates() const { return mode == kLstm ? 4 : mode == kGru ? 3 : 1; }
  int64_t width() const { return gates() * hidden; }
  bool kept() const { return mode == kLstm || mode == kGru; }
  int64_t state() const { return batch * hidden; }
  int64_t time(int64_t step) const { return reverse ? steps - 1 - step : step; }
};

// Rows of the batch do not meet. Where a step is short and every thread can have all weights in its cache, each takes some
// rows through all steps; else all threads share each step of all rows (Slices).
struct Shares {
  int64_t batch, rows, count = 1, threads;  // rows of a share, and the threads that each has for itself
  explicit Shares(const Layer& l) : batch(l.batch), rows(l.batch), threads(get_num_threads()) {
    constexpr int64_t kCached = 1 << 18, kShort = 1 << 19;  // weights; multiplications of a thread in a step
    const int64_t weights = l.hidden * l.width();
    if (threads == 1 || batch == 1 || weights > kCached || batch * weights / threads > kShort) return;
    rows = (batch + threads - 1) / threads;
    count = (batch + rows - 1) / rows;
    threads = 1;
  }
  template <class F> void run(F&& f) const {  // f(first row, rows)
    parallel_for(count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) f(i * rows, std::min(rows, batch - i * rows));
    });
  }
};

// The hidden units are cut into slices, one per thread: each computes its units of a step, and the threads meet once per
// step.
struct Slices {
  int64_t count, size, hidden;
  Slices(const Layer& l, int64_t threads) : hidden(l.hidden) {
    constexpr int64_t kWork = 1 << 16, kLeast = 8;  // multiplications of a slice that are worth a thread, units of one
    const int64_t most = std::min<int64_t>({threads, l.state() * l.width() / kWork, l.hidden / kLeast});
    count = std::max<int64_t>(most, 1);
    size = (l.hidden + count - 1) / count;
    if (count > 1) size = (size + kLeast - 1) / kLeast * kLeast;
    count = (l.hidden + size - 1) / size;
  }
  int64_t first(int64_t s) const { return s * size; }
  int64_t units(int64_t s) const { return std::min(size, hidden - first(s)); }
  template <class F> void run(F&& f) const {  // f(slice) on all threads
    parallel_for(count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t s = begin; s < end; ++s) f(s);
    });
  }
};

// The weights as right factors that stay the same over all steps: of each slice a matrix of depth x columns(slice) in strips
// of kWide columns, as panel_multiply reads them. The left factor comes in panels.
struct Weights {
  int64_t depth;
  std::vector<int64_t> columns, begin;  // of each slice
  std::unique_ptr<float[]> strips;

  Weights(const Slices& slices, int64_t d, int64_t per_unit) : depth(d) {
    int64_t total = 0;
    for (int64_t s = 0; s < slices.count; ++s) {
      columns.push_back(per_unit * slices.units(s));
      begin.push_back(total * depth);
      total += (columns.back() + kWide - 1) / kWide * kWide;
    }
    strips.reset(new float[total * depth]());
  }
  // Column j of the slice is f(j)[0], f(j)[step], ...
  template <class F> void fill(int64_t slice, int64_t step, F&& f) {
    const int64_t wide = (columns[slice] + kWide - 1) / kWide;
    parallel_for(wide, kGrain / 4 / (depth * kWide) + 1, [&](int64_t low, int64_t high) {
      for (int64_t first = low * kWide; first < std::min(high * kWide, columns[slice]); first += kWide) {
        const int64_t width = std::min<int64_t>(kWide, columns[slice] - first);
        const float* from[kWide];
        for (int64_t j = 0; j < width; ++j) from[j] = f(first + j);
        float* to = strips.get() + begin[slice] + first * depth;
        int64_t j = 0;
        for (; step == 1 && j + kLanes <= width; j += kLanes) PlaneLanes<float>::load(from + j, 0, depth, to + j, kWide);
        for (int64_t d = 0; j < width && d < depth; ++d)
          for (int64_t rest = j; rest < width; ++rest) to[d * kWide + rest] = from[rest][d * step];
      }
    });
  }
  int64_t room(int64_t slice) const { return whole(columns[slice]); }  // of a row of the product
  void multiply(int64_t slice, const float* panels, int64_t rows, bool add, float* c) const {
    const int64_t ld = room(slice);
    for (int64_t j = 0; j < ld; j += kWide)
      panel_multiply(panels, rows, depth, strips.get() + begin[slice] + j * depth, kWide, std::min<int64_t>(kWide, ld - j),
                     add, c + j, ld);
  }
};

// Columns [first, first + n) of `rows` rows of `width` items, into the panels of these rows (panel.h).
void to_panels(const float* from, int64_t rows, int64_t width, int64_t first, int64_t n, float* panels) {
  for (int64_t b = 0; b < rows; b += kPanel) {
    const int64_t height = std::min<int64_t>(kPanel, rows - b);
    pack_panels(from + b * width + first, width, 1, height, n, panels + b * width + first * height);
  }
}

template <class T> struct Sigmoid {
  explicit Sigmoid(const Attr*) {}
  T operator()(T x) const { return v::sigmoid(x); }
};
void sigmoid_row(float* x, int64_t n) {
  void* const in_place[] = {x, x};
  lanes_loop<Sigmoid>(in_place, n, nullptr);
}
void tanh_row(float* x, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) x[i] = v::tanh(x[i]);
}

// One direction: the arguments of the op, all contiguous.
struct Forward {
  Layer layer;
  const float *gates, *hx, *cx, *weight, *bias;  // cx of LSTM only; bias may be nullptr
  float *output, *cells, *kept;  // kept: nullptr where no backward will ask for it

  void run() {
    const Shares shares(layer);
    const Slices slices(layer, shares.threads);
    const int64_t hidden = layer.hidden;
    Weights weights(slices, hidden, layer.gates());
    slices.run([&](int64_t s) {
      const int64_t first = slices.first(s), n = slices.units(s);
      weights.fill(s, 1, [&](int64_t j) { return weight + (j / n * hidden + first + j % n) * hidden; });
    });
    shares.run([&](int64_t row, int64_t rows) { run_steps(slices, weights, row, rows); });
  }

  // All steps of the rows [row, row + rows).
  void run_steps(const Slices& slices, const Weights& weights, int64_t row, int64_t rows) {
    const int64_t hidden = layer.hidden;
    std::vector<float> panels[2] = {std::vector<float>(rows * hidden), std::vector<float>(rows * hidden)};
    pack_panels(hx + row * hidden, hidden, 1, rows, hidden, panels[0].data());
    std::vector<std::unique_ptr<float[]>> products(slices.count);
    const int64_t gate_room = layer.kept() && !kept ? 4 * hidden : 0;
    for (int64_t s = 0; s < slices.count; ++s) products[s].reset(new float[rows * weights.room(s) + gate_room]);
    for (int64_t step = 0; step < layer.steps; ++step) {
      const int64_t t = layer.time(step), before = layer.time(step - 1);
      const float* h = step ? output + before * layer.state() : hx;
      const float* c = step && cx ? cells + before * layer.state() : cx;
      slices.run([&](int64_t s) {
        const int64_t first = slices.first(s), n = slices.units(s), room = weights.room(s);
        float *z = products[s].get(), *next = panels[(step + 1) % 2].data();
        weights.multiply(s, panels[step % 2].data(), rows, false, z);
        for (int64_t b = 0; b < rows; ++b) point(t, row + b, first, n, z + b * room, h, c, z + rows * room);
        to_panels(output + t * layer.state() + row * hidden, rows, hidden, first, n, next);
      });
    }
  }

  // Units [first, first + n) of row b; z holds what the hidden state adds to their gates, side by side. spare: room for the
  // gates of a row that are not kept.
  void point(int64_t t, int64_t b, int64_t first, int64_t n, float* z, const float* h, const float* c, float* spare) {
    const int64_t hidden = layer.hidden, at = b * hidden + first, row = t * layer.batch + b;
    const float* x = gates + row * layer.width() + first;
    float* out = output + t * layer.state() + at;
    float* gate = !layer.kept() ? out : kept ? kept + row * 4 * hidden + first : spare;
    for (int64_t g = 0; g < layer.gates(); ++g) {
      float *to = gate + g * hidden, *add = z + g * n;
      if (bias)
        for (int64_t i = 0; i < n; ++i) add[i] += bias[g * hidden + first + i];
      if (layer.mode == kGru && g == 2)  // the new gate is reset first
        std::copy_n(add, n, to + hidden);
      else
        for (int64_t i = 0; i < n; ++i) to[i] = add[i] + x[g * hidden + i];
    }
    if (layer.mode == kTanh)
      tanh_row(out, n);
    else if (layer.mode == kRelu)
      for (int64_t i = 0; i < n; ++i) out[i] = out[i] < 0.f ? 0.f : out[i];  // NaN stays
    else if (layer.mode == kLstm)
      lstm(n, gate, c + at, cells + t * layer.state() + at, out);
    else
      gru(n, gate, x + 2 * hidden, h + at, out);
  }

  void lstm(int64_t n, float* gate, const float* c, float* cell, float* out) const {
    float *f = gate + layer.hidden, *g = f + layer.hidden, *o = g + layer.hidden;
    sigmoid_row(gate, n);
    sigmoid_row(f, n);
    tanh_row(g, n);
    sigmoid_row(o, n);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) out[i] = cell[i] = f[i] * c[i] + gate[i] * g[i];
    tanh_row(out, n);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) out[i] *= o[i];
  }

  void gru(int64_t n, float* reset, const float* x, const float* h, float* out) const {
    float *update = reset + layer.hidden, *fresh = update + layer.hidden, *added = fresh + layer.hidden;
    sigmoid_row(reset, n);
    sigmoid_row(update, n);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) fresh[i] = x[i] + reset[i] * added[i];
    tanh_row(fresh, n);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) out[i] = fresh[i] + update[i] * (h[i] - fresh[i]);
  }
};

struct Backward {
  Layer layer;
  const float *grad, *grad_cells, *hx, *cx, *weight, *output, *cells, *kept;
  float *of_gates, *of_hx, *of_cx, *of_weight, *of_bias;  // of_cx of LSTM only; of_bias may be nullptr
  std::vector<float> reset;  // of GRU the gradient of what the hidden state adds, which is not that of the gates

  void run() {
    const Shares shares(layer);
    const Slices slices(layer, shares.threads);
    const int64_t width = layer.width(), hidden = layer.hidden;
    Weights weights(slices, width, 1);
    slices.run([&](int64_t s) {
      weights.fill(s, hidden, [&](int64_t j) { return weight + slices.first(s) + j; });
    });
    if (layer.mode == kGru) reset.resize(layer.steps * layer.batch * width);
    const float* products = layer.mode == kGru ? reset.data() : of_gates;  // as the hidden state adds them
    if (of_cx) std::fill_n(of_cx, layer.state(), 0.f);
    shares.run([&](int64_t row, int64_t rows) { run_steps(slices, weights, products, row, rows); });
    sum_weights(products);
  }

  // All steps of the rows [row, row + rows).
  void run_steps(const Slices& slices, const Weights& weights, const float* products, int64_t row, int64_t rows) {
    const int64_t width = layer.width(), hidden = layer.hidden;
    std::vector<float> panels[2] = {std::vector<float>(rows * width), std::vector<float>(rows * width)};
    std::vector<std::unique_ptr<float[]>> carried(slices.count);  // of a slice: the gradient of its hidden units
    for (int64_t s = 0; s < slices.count; ++s) carried[s].reset(new float[rows * weights.room(s)]());
    for (int64_t step = layer.steps; step-- >= 0;) {  // once more at the end, for the initial state
      slices.run([&](int64_t s) {
        const int64_t first = slices.first(s), n = slices.units(s), room = weights.room(s);
        float *down = carried[s].get(), *next = panels[(step + 2) % 2].data();
        if (step + 1 < layer.steps)
          weights.multiply(s, panels[(step + 1) % 2].data(), rows, layer.mode == kGru, down);
        for (int64_t b = 0; b < rows; ++b) {
          if (step < 0) {
            std::copy_n(down + b * room, n, of_hx + (row + b) * hidden + first);
            continue;
          }
          point(step, row + b, first, n, down + b * room);
        }
        if (step >= 0)
          for (int64_t i = first; i < width; i += hidden)
            to_panels(products + (layer.time(step) * layer.batch + row) * width, rows, width, i, n, next);
      });
    }
  }

  void point(int64_t step, int64_t b, int64_t first, int64_t n, float* carried) {
    const int64_t t = layer.time(step), before = layer.time(step - 1), hidden = layer.hidden;
    const int64_t at = b * hidden + first, here = t * layer.state() + at;
    const float *g = grad + here, *h = step ? output + before * layer.state() + at : hx + at;
    float *down = of_gates + (t * layer.batch + b) * layer.width() + first;
    const float* keep = layer.kept() ? kept + (t * layer.batch + b) * 4 * hidden + first : nullptr;
    if (layer.mode == kTanh || layer.mode == kRelu) {
      const float* y = output + here;
      for (int64_t i = 0; i < n; ++i)
        down[i] = (g[i] + carried[i]) * (layer.mode == kTanh ? 1 - y[i] * y[i] : float(y[i] > 0));
    } else if (layer.mode == kLstm) {
      const float* c = step ? cells + before * layer.state() + at : cx + at;
      lstm(n, keep, g, carried, grad_cells + here, cells + here, c, of_cx + at, down);
    } else {
      gru(n, keep, g, carried, h, down, reset.data() + (t * layer.batch + b) * layer.width() + first);
    }
  }

  void lstm(int64_t n, const float* in, const float* g, const float* carried, const float* g_cell, const float* cell, const float* before, float* of_cell,
            float* down) const {
    const int64_t hidden = layer.hidden;
    const float *forget = in + hidden, *fresh = forget + hidden, *out = fresh + hidden;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      const float y = v::tanh(cell[i]), total = g[i] + carried[i];
      const float c = g_cell[i] + of_cell[i] + total * out[i] * (1 - y * y);
      down[i] = c * fresh[i] * in[i] * (1 - in[i]);
      down[hidden + i] = c * before[i] * forget[i] * (1 - forget[i]);
      down[2 * hidden + i] = c * in[i] * (1 - fresh[i] * fresh[i]);
      down[3 * hidden + i] = total * y * out[i] * (1 - out[i]);
      of_cell[i] = c * forget[i];
    }
  }

  void gru(int64_t n, const float* r, const float* g, float* carried, const float* h, float* down, float* product) const {
    const int64_t hidden = layer.hidden;
    const float *update = r + hidden, *fresh = update + hidden, *added = fresh + hidden;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      const float total = g[i] + carried[i], of_new = total * (1 - update[i]) * (1 - fresh[i] * fresh[i]);
      down[i] = product[i] = of_new * added[i] * r[i] * (1 - r[i]);
      down[hidden + i] = product[hidden + i] = total * (h[i] - fresh[i]) * update[i] * (1 - update[i]);
      down[2 * hidden + i] = of_new;
      product[2 * hidden + i] = of_new * r[i];
      carried[i] = total * update[i];
    }
  }

  // Sums over all steps: the first step met the initial state, each later one the output of the step before it.
  void sum_weights(const float* products) {
    const int64_t width = layer.width(), hidden = layer.hidden, row = layer.batch * width, rows = layer.steps * layer.batch;
    gemm(kFloat, true, false, width, hidden, layer.batch, 1.0, products + layer.time(0) * row, width, hx, hidden, 0.0,
         of_weight, hidden);
    if (layer.steps > 1)
      gemm(kFloat, true, false, width, hidden, rows - layer.batch, 1.0, products + (layer.reverse ? 0 : row), width,
           output + (layer.reverse ? layer.state() : 0), hidden, 1.0, of_weight, hidden);
    if (!of_bias) return;
    parallel_for(width, kGrain / rows + 1, [&](int64_t begin, int64_t end) {
      std::fill(of_bias + begin, of_bias + end, 0.f);
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = begin; j < end; ++j) of_bias[j] += products[i * width + j];
    });
  }
};

// An argument as contiguous memory; nullptr where it was not given.
struct Optional {
  explicit Optional(const View& v) {
    if (v.given()) dense_.reset(new Dense(v, kFloat));
  }
  float* ptr() const { return dense_ ? dense_->ptr<float>() : nullptr; }

 private:
  std::unique_ptr<Dense> dense_;
};

// _recurrent_layer(Tensor gates, Tensor hx, Tensor? cx, Tensor weight_hh, Tensor? bias_hh, int mode, bool reverse,
//   bool keep=True) -> (Tensor output, Tensor cells, Tensor kept)
void recurrent_layer(const Args& c) {
  const View* in = c.t + 3;
  if (in[0].dtype != kFloat) unsupported("_recurrent_layer", in[0].dtype);
  const Optional gates(in[0]), hx(in[1]), cx(in[2]), weight(in[3]), bias(in[4]);
  Forward{Layer(in[0], in[1], c.a[0], c.a[1]), gates.ptr(), hx.ptr(), cx.ptr(), weight.ptr(), bias.ptr(),
          c.t[0].ptr<float>(), c.t[1].ptr<float>(), c.a[2].i ? c.t[2].ptr<float>() : nullptr}.run();
}

// _recurrent_layer_backward(Tensor grad, Tensor grad_cells, Tensor gates, Tensor hx, Tensor? cx, Tensor weight_hh,
//   Tensor? bias_hh, Tensor output, Tensor cells, Tensor kept, int mode, bool reverse)
//   -> (Tensor of_gates, Tensor of_hx, Tensor of_cx, Tensor of_weight_hh, Tensor of_bias_hh)
void recurrent_layer_backward(const Args& c) {
  const View *to = c.t, *in = c.t + 5;
  if (in[0].dtype != kFloat) unsupported("_recurrent_layer_backward", in[0].dtype);
  const Optional grad(in[0]), grad_cells(in[1]), hx(in[3]), cx(in[4]), weight(in[5]), output(in[7]), cells(in[8]), kept(in[9]);
  auto wanted = [&](int i) { return to[i].given() ? to[i].ptr<float>() : nullptr; };
  Backward{Layer(in[2], in[3], c.a[0], c.a[1]), grad.ptr(), grad_cells.ptr(), hx.ptr(), cx.ptr(), weight.ptr(), output.ptr(),
           cells.ptr(), kept.ptr(), wanted(0), wanted(1), wanted(2), wanted(3), wanted(4), {}}.run();
}

Register r_layer("_recurrent_layer", recurrent_layer), r_layer_b("_recurrent_layer_backward", recurrent_layer_backward);

}  // namespace
}  // namespace mt
