// Recurrent networks of several layers and directions, LSTM and GRU, and their gradients; and one LSTM cell. Sequences
// of one length only: packed ones are refused.
#include <cmath>

#include "ops/pointwise.h"

namespace cann_sim {
namespace {

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

// A cell computes one row of `width` hidden items. Everything is float32 here; x and h are the gates' sums of the input
// and of the hidden state, `save` what the gradient reads later, in the order of the op's arguments.
struct Lstm {
  static constexpr int kGates = 4, kSaved = 7, kStates = 2, kHidden = 4;  // saved: i, g, f, o, h, c, tanh(c)
  static void forward(const float* x, const float* h, int64_t width, float* const* state, float* const* save) {
    for (int64_t k = 0; k < width; ++k) {
      const float i = sigmoid(x[k] + h[k]), f = sigmoid(x[width + k] + h[width + k]);
      const float g = std::tanh(x[2 * width + k] + h[2 * width + k]), o = sigmoid(x[3 * width + k] + h[3 * width + k]);
      const float c = f * state[1][k] + i * g, t = std::tanh(c);
      state[0][k] = o * t;
      state[1][k] = c;
      const float kept[] = {i, g, f, o, o * t, c, t};
      for (int s = 0; s < kSaved; ++s) save[s][k] = kept[s];
    }
  }
  // `grad` comes as the gradients of the states after the step and leaves as those before it, but for what the hidden
  // state gets through the gates; dx and dh are the gradients of the gates' two sums.
  static void backward(const float* const* save, const float* const* before, int64_t width, float* const* grad,
                       float* dx, float* dh) {
    for (int64_t k = 0; k < width; ++k) {
      const float i = save[0][k], g = save[1][k], f = save[2][k], o = save[3][k], t = save[6][k];
      const float dc = grad[1][k] + grad[0][k] * o * (1 - t * t);
      dx[k] = dc * g * i * (1 - i);
      dx[width + k] = dc * before[1][k] * f * (1 - f);
      dx[2 * width + k] = dc * i * (1 - g * g);
      dx[3 * width + k] = grad[0][k] * t * o * (1 - o);
      for (int q = 0; q < 4; ++q) dh[q * width + k] = dx[q * width + k];
      grad[0][k] = 0;
      grad[1][k] = dc * f;
    }
  }
};
struct Gru {
  static constexpr int kGates = 3, kSaved = 5, kStates = 1, kHidden = 4;  // saved: r, z, n, the hidden part of n, h
  static void forward(const float* x, const float* h, int64_t width, float* const* state, float* const* save) {
    for (int64_t k = 0; k < width; ++k) {
      const float r = sigmoid(x[k] + h[k]), z = sigmoid(x[width + k] + h[width + k]), part = h[2 * width + k];
      const float n = std::tanh(x[2 * width + k] + r * part);
      state[0][k] = (1 - z) * n + z * state[0][k];
      const float kept[] = {r, z, n, part, state[0][k]};
      for (int s = 0; s < kSaved; ++s) save[s][k] = kept[s];
    }
  }
  static void backward(const float* const* save, const float* const* before, int64_t width, float* const* grad,
                       float* dx, float* dh) {
    for (int64_t k = 0; k < width; ++k) {
      const float r = save[0][k], z = save[1][k], n = save[2][k], part = save[3][k], g = grad[0][k];
      const float dn = g * (1 - z) * (1 - n * n);
      dx[2 * width + k] = dn;
      dh[2 * width + k] = dn * r;
      dx[k] = dh[k] = dn * part * r * (1 - r);
      dx[width + k] = dh[width + k] = g * (before[0][k] - n) * z * (1 - z);
      grad[0][k] = g * z;
    }
  }
};

// ---- shapes --------------------------------------------------------------------------------------------------
struct Net {
  bool bias, bidirectional, batch_first;
  int64_t layers, steps, batch, width;
  int64_t directions() const { return bidirectional ? 2 : 1; }
  int64_t per_direction() const { return bias ? 4 : 2; }
  int64_t runs() const { return layers * directions(); }
};
Net net_of(const Call& c, const TensorMeta& input, const TensorMeta& recurrent, bool bias, int64_t layers,
           bool bidirectional, bool batch_first) {
  EXPECT(input.ndim == 3, "%s: expected an input of 3 dims, got %s", c.name(), describe(input).c_str());
  EXPECT(recurrent.ndim == 2, "%s: expected weights of 2 dims, got %s", c.name(), describe(recurrent).c_str());
  return {bias, bidirectional, batch_first, layers, input.sizes[batch_first], input.sizes[!batch_first],
          recurrent.sizes[1]};
}
// Where the arguments lie; -1: the op has none.
struct Places {
  int input, params, hx, batch_sizes, bias, layers, bidirectional, batch_first, saved;
};
Net net_at(const Call& c, const Places& at) {
  EXPECT(!c.given(at.batch_sizes), "%s: packed sequences (batchSizes) are not computed", c.name());
  EXPECT(c.integer(at.layers) > 0 && c.args[at.params].count >= 2, "%s: expected layers and their weights", c.name());
  return net_of(c, c.tensor(at.input), c.tensors(at.params)[1], c.integer(at.bias), c.integer(at.layers),
                c.integer(at.bidirectional), c.integer(at.batch_first));
}
void expect_sizes(const Call& c, const TensorMeta& t, const Sizes& sizes, const char* what) {
  EXPECT(sizes_of(t) == sizes, "%s: %s is %s", c.name(), what, describe(t).c_str());
  EXPECT(computes(t.dtype) && is_float(dtype_of(t.dtype)), "%s: %s is %s", c.name(), what, describe(t).c_str());
}
template <class Cell> void check_net(const Call& c, const Places& at, const Net& net) {
  EXPECT(c.args[at.params].count == net.runs() * net.per_direction(), "%s: expected %ld weights and biases, got %d",
         c.name(), net.runs() * net.per_direction(), c.args[at.params].count);
  const int64_t rows = Cell::kGates * net.width;
  for (int64_t run = 0; run < net.runs(); ++run) {
    const int64_t first = run * net.per_direction(), layer = run / net.directions();
    const int64_t inputs = layer ? net.width * net.directions() : c.tensor(at.input).sizes[2];
    expect_sizes(c, c.tensors(at.params)[first], {rows, inputs}, "a weight of the input");
    expect_sizes(c, c.tensors(at.params)[first + 1], {rows, net.width}, "a weight of the hidden state");
    for (int k = 2; k < net.per_direction(); ++k) expect_sizes(c, c.tensors(at.params)[first + k], {rows}, "a bias");
  }
  for (const TensorMeta& t : c.tensors(at.hx))
    if (t.given()) expect_sizes(c, t, {net.runs(), net.batch, net.width}, "an initial state");
  for (int k = 0; k < Cell::kSaved; ++k) {
    EXPECT(c.args[at.saved + k].count == 0 || c.args[at.saved + k].count == net.runs(), "%s: expected %ld items in %s",
           c.name(), net.runs(), c.row->args[at.saved + k].name);
    for (const TensorMeta& t : c.tensors(at.saved + k))
      expect_sizes(c, t, {net.steps, net.batch, net.width}, c.row->args[at.saved + k].name);
  }
}
Sizes output_sizes(const Net& net, int64_t width) {
  return net.batch_first ? Sizes{net.batch, net.steps, width} : Sizes{net.steps, net.batch, width};
}

// ---- values --------------------------------------------------------------------------------------------------
Value wide(const Value& v) { return v.to(mt::kFloat).dense(); }
Value time_major(const Net& net, const Value& v) { return net.batch_first ? v.transpose(0, 1) : v; }
Value product(const Value& a, const Value& b) {
  const Value out = empty({a.sizes[0], b.sizes[1]}, mt::kFloat);
  call_kernel("mm", {out, a, b});
  return out;
}
struct Weights {
  Value input, hidden, input_bias, hidden_bias;
};
Weights weights_at(const Net& net, const std::vector<Value>& params, int64_t run) {
  const Value* first = &params[run * net.per_direction()];
  Weights w{wide(first[0]), wide(first[1]), {}, {}};
  if (net.bias) w.input_bias = wide(first[2]), w.hidden_bias = wide(first[3]);
  return w;
}
Value affine(const Value& x, const Value& weight, const Value& bias) {  // x W^T + b
  const Value y = product(x, weight.transpose(0, 1));
  if (bias.given()) call_pointwise("add", mt::kFloat, {y, y, bias}, {integer(1)});
  return y;
}
std::vector<Value> saved_for(int count, const Net& net) {
  std::vector<Value> made;
  for (int k = 0; k < count; ++k) made.push_back(empty({net.steps, net.batch, net.width}, mt::kFloat));
  return made;
}
Value initial(const std::vector<Value>& hx, size_t state, int64_t run, const Net& net) {
  const bool given = state < hx.size() && hx[state].given();
  const Value v = given ? hx[state].select(0, run).to(mt::kFloat) : full({net.batch, net.width}, mt::kFloat, 0);
  const Value own = empty(v.shape(), mt::kFloat);  // the steps write into it
  copy(own, v);
  return own;
}
// The step before this one in the direction of the run, or -1.
int64_t before(int64_t t, bool reverse, const Net& net) { return reverse ? (t + 1 < net.steps ? t + 1 : -1) : t - 1; }

// ---- forward -------------------------------------------------------------------------------------------------
template <class Cell>
void run_direction(const Net& net, const Value& x, const Weights& w, bool reverse, std::vector<Value>& state,
                   const std::vector<Value>& save) {
  const int64_t gates = Cell::kGates * net.width;
  const Value from_input = affine(x.reshape({net.steps * net.batch, x.sizes[2]}), w.input, w.input_bias);
  for (int64_t step = 0; step < net.steps; ++step) {
    const int64_t t = reverse ? net.steps - 1 - step : step;
    const Value from_hidden = affine(state[0], w.hidden, w.hidden_bias);
    for (int64_t b = 0; b < net.batch; ++b) {
      float *states[Cell::kStates], *saves[Cell::kSaved];
      for (int s = 0; s < Cell::kStates; ++s) states[s] = state[s].template ptr<float>() + b * net.width;
      for (int s = 0; s < Cell::kSaved; ++s) saves[s] = save[s].ptr<float>() + (t * net.batch + b) * net.width;
      Cell::forward(from_input.ptr<float>() + (t * net.batch + b) * gates, from_hidden.ptr<float>() + b * gates,
                    net.width, states, saves);
    }
  }
}
// output: where the result goes; the last states follow it. hx holds the first ones.
template <class Cell> void run_forward(Run& run, const Places& at, const std::vector<Value>& hx, int output) {
  const Call& c = run.call;
  const Net net = net_at(c, at);
  const std::vector<Value> params = run.tensors(at.params);
  Value x = wide(time_major(net, run.tensor(at.input)));
  for (int64_t layer = 0; layer < net.layers; ++layer) {
    const Value y = empty({net.steps, net.batch, net.directions() * net.width}, mt::kFloat);
    for (int64_t d = 0; d < net.directions(); ++d) {
      const int64_t k = layer * net.directions() + d;
      std::vector<Value> state, save = saved_for(Cell::kSaved, net);
      for (int s = 0; s < Cell::kStates; ++s) state.push_back(initial(hx, s, k, net));
      run_direction<Cell>(net, x, weights_at(net, params, k), d == 1, state, save);
      copy(y.narrow(2, d * net.width, net.width), save[Cell::kHidden]);
      for (int s = 0; s < Cell::kStates; ++s) copy(run.tensor(output + 1 + s).select(0, k), state[s]);
      for (int s = 0; s < Cell::kSaved; ++s)
        if (c.args[at.saved + s].count) copy(run.value(c.tensors(at.saved + s)[k]), save[s]);
    }
    x = y;
  }
  copy(time_major(net, run.tensor(output)), x);
}

// ---- backward ------------------------------------------------------------------------------------------------
struct Gradients {
  Value x, input, hidden, input_bias, hidden_bias;
};
Value column_sums(const Value& v) {
  const Value out = empty({v.sizes[1]}, mt::kFloat);
  const int64_t dims[] = {0};
  call_kernel("sum", {out, v}, {list(dims, 1), integer(0), none()});
  return out;
}
// grad: the gradients of the last states; leaves as those of the first ones.
template <class Cell>
Gradients back_direction(const Net& net, const Value& x, const Weights& w, bool reverse,
                         const std::vector<Value>& first, const std::vector<Value>& save, const Value& dy,
                         std::vector<Value>& grad) {
  const int64_t gates = Cell::kGates * net.width, rows = net.steps * net.batch;
  const Value dx = empty({rows, gates}, mt::kFloat), dh = empty({rows, gates}, mt::kFloat);
  const Value hidden = empty({net.steps, net.batch, net.width}, mt::kFloat);  // the hidden state before each step
  for (int64_t step = net.steps - 1; step >= 0; --step) {
    const int64_t t = reverse ? net.steps - 1 - step : step, last = before(t, reverse, net);
    call_pointwise("add", mt::kFloat, {grad[0], grad[0], dy.select(0, t)}, {integer(1)});
    std::vector<Value> states;  // before the step: h, and for LSTM c, which is saved next to it
    for (int s = 0; s < Cell::kStates; ++s)
      states.push_back(last < 0 ? first[s] : save[Cell::kHidden + s].select(0, last));
    copy(hidden.select(0, t), states[0]);
    for (int64_t b = 0; b < net.batch; ++b) {
      const float *saves[Cell::kSaved], *earlier[Cell::kStates];
      float* grads[Cell::kStates];
      for (int s = 0; s < Cell::kSaved; ++s) saves[s] = save[s].ptr<float>() + (t * net.batch + b) * net.width;
      for (int s = 0; s < Cell::kStates; ++s) {
        earlier[s] = states[s].ptr<float>() + b * net.width;
        grads[s] = grad[s].template ptr<float>() + b * net.width;
      }
      Cell::backward(saves, earlier, net.width, grads, dx.ptr<float>() + (t * net.batch + b) * gates,
                     dh.ptr<float>() + (t * net.batch + b) * gates);
    }
    const Value through = product(dh.narrow(0, t * net.batch, net.batch), w.hidden);
    call_pointwise("add", mt::kFloat, {grad[0], grad[0], through}, {integer(1)});
  }
  Gradients g;
  g.x = product(dx, w.input).reshape(x.shape());
  g.input = product(dx.transpose(0, 1), x.reshape({rows, x.sizes[2]}));
  g.hidden = product(dh.transpose(0, 1), hidden.reshape({rows, net.width}));
  if (net.bias) g.input_bias = column_sums(dx), g.hidden_bias = column_sums(dh);
  return g;
}
// grads: the argument of dy, followed by those of the states; results: dx, the first states, the weights.
template <class Cell> void run_backward(Run& run, const Places& at, int grads, int results) {
  const Call& c = run.call;
  const Net net = net_at(c, at);
  const std::vector<Value> params = run.tensors(at.params), hx = run.tensors(at.hx);
  std::vector<std::vector<Value>> saved;
  for (int s = 0; s < Cell::kSaved; ++s) saved.push_back(run.tensors(at.saved + s));
  auto layer_input = [&](int64_t layer) {
    if (layer == 0) return wide(time_major(net, run.tensor(at.input)));
    const Value y = empty({net.steps, net.batch, net.directions() * net.width}, mt::kFloat);
    for (int64_t d = 0; d < net.directions(); ++d)
      copy(y.narrow(2, d * net.width, net.width), saved[Cell::kHidden][(layer - 1) * net.directions() + d]);
    return y;
  };
  Value dy = run.given(grads) ? wide(time_major(net, run.tensor(grads)))
                              : full({net.steps, net.batch, net.directions() * net.width}, mt::kFloat, 0);
  for (int64_t layer = net.layers - 1; layer >= 0; --layer) {
    const Value x = layer_input(layer), dx = full(x.shape(), mt::kFloat, 0);
    for (int64_t d = 0; d < net.directions(); ++d) {
      const int64_t k = layer * net.directions() + d;
      std::vector<Value> first, save, grad;
      for (int s = 0; s < Cell::kStates; ++s) {
        first.push_back(initial(hx, s, k, net));
        const Value last = run.tensor(grads + 1 + s);
        grad.push_back(initial({last}, 0, k, net));
      }
      for (int s = 0; s < Cell::kSaved; ++s) save.push_back(wide(saved[s][k]));
      const Gradients g = back_direction<Cell>(net, x, weights_at(net, params, k), d == 1, first, save,
                                               dy.narrow(2, d * net.width, net.width), grad);
      call_pointwise("add", mt::kFloat, {dx, dx, g.x}, {integer(1)});
      for (int s = 0; s < Cell::kStates; ++s) copy(run.tensor(results + 1 + s).select(0, k), grad[s]);
      const Value* made[] = {&g.input, &g.hidden, &g.input_bias, &g.hidden_bias};
      const Span<TensorMeta> outs = c.tensors(results + 1 + Cell::kStates);
      for (int p = 0; p < net.per_direction(); ++p) copy(run.value(outs[k * net.per_direction() + p]), *made[p]);
    }
    dy = dx;
  }
  copy(time_major(net, run.tensor(results)), dy);
}
template <class Cell> void check_gradients(const Call& c, const Places& at, const Net& net, int grads, int results) {
  constexpr int states = Cell::kStates;
  const Sizes state = {net.runs(), net.batch, net.width};
  for (int k = 0; k < Cell::kSaved; ++k)
    EXPECT(c.args[at.saved + k].count == net.runs(), "%s: %s of the forward op is absent", c.name(),
           c.row->args[at.saved + k].name);
  expect_shape(c, grads, output_sizes(net, net.directions() * net.width));
  for (int s = 1; s <= states; ++s) expect_shape(c, grads + s, state), expect_shape(c, results + s, state);
  expect_same_shape(c, results, at.input);
  const Span<TensorMeta> params = c.tensors(at.params), made = c.tensors(results + 1 + states);
  EXPECT(params.size() == made.size(), "%s: %ld gradients for %ld weights", c.name(), made.size(), params.size());
  for (int64_t i = 0; i < params.size(); ++i)
    expect_sizes(c, made[i], sizes_of(params[i]), "a weight's gradient");
}

// ---- the ops -------------------------------------------------------------------------------------------------
constexpr Places kLstm = {0, 1, 2, 3, 4, 5, 8, 9, 13}, kLstmBackward = {0, 2, 1, 13, 14, 15, 18, 19, 6};
constexpr Places kGru = {0, 1, 2, 3, 4, 5, 8, 9, 12}, kGruBackward = {0, 1, 2, 10, 11, 12, 13, 14, 5};

template <class Cell> void check_forward(const Call& c, const Places& at) {
  const Net net = net_at(c, at);
  check_net<Cell>(c, at, net);
  expect_shape(c, 10, output_sizes(net, net.directions() * net.width));
  for (int s = 0; s < Cell::kStates; ++s) expect_shape(c, 11 + s, {net.runs(), net.batch, net.width});
}
template <class Cell> void check_backward(const Call& c, const Places& at, int grads, int results) {
  const Net net = net_at(c, at);
  check_net<Cell>(c, at, net);
  check_gradients<Cell>(c, at, net, grads, results);
}
void check_lstm(const Call& c) { check_forward<Lstm>(c, kLstm); }
void run_lstm(Run& run) { run_forward<Lstm>(run, kLstm, run.tensors(2), 10); }
void check_gru(const Call& c) { check_forward<Gru>(c, kGru); }
void run_gru(Run& run) { run_forward<Gru>(run, kGru, {run.tensor(2)}, 10); }
void check_lstm_backward(const Call& c) { check_backward<Lstm>(c, kLstmBackward, 3, 21); }
void run_lstm_backward(Run& run) { run_backward<Lstm>(run, kLstmBackward, 3, 21); }
void check_gru_backward(const Call& c) { check_backward<Gru>(c, kGruBackward, 3, 15); }
void run_gru_backward(Run& run) { run_backward<Gru>(run, kGruBackward, 3, 15); }

// ---- one LSTM step over gates that are already summed: storage keeps them activated, [B, 4H] as i, f, g, o -------
constexpr int kStored[] = {0, 2, 1, 3};  // the place of each gate of the storage among what the cell saves

void check_cell(const Call& c) {  // (inputGates, hiddenGates, cx, inputBias?, hiddenBias?, hy, cy, storage)
  const TensorMeta& cx = c.tensor(2);
  EXPECT(cx.ndim == 2, "%s: expected cx of 2 dims, got %s", c.name(), describe(cx).c_str());
  for (int i : {0, 1, 7}) expect_sizes(c, c.tensor(i), {cx.sizes[0], 4 * cx.sizes[1]}, c.row->args[i].name);
  for (int i : {3, 4})
    if (c.given(i)) EXPECT(c.tensor(i).numel() == 4 * cx.sizes[1], "%s: %s is %s", c.name(), c.row->args[i].name,
                           describe(c.tensor(i)).c_str());
  for (int i : {5, 6}) expect_same_shape(c, i, 2);
}
void run_cell(Run& run) {
  auto gates = [&](int i) {
    const Value v = wide(run.tensor(i));
    return run.given(i + 3) ? pointwise("add", mt::kFloat, {v, run.tensor(i + 3).reshape({-1})}, {integer(1)}) : v;
  };
  const Value x = gates(0), h = gates(1), cx = wide(run.tensor(2));
  const Net net = {false, false, false, 1, 1, cx.sizes[0], cx.sizes[1]};
  const std::vector<Value> save = saved_for(Lstm::kSaved, net);
  const Value hy = empty(cx.shape(), mt::kFloat), cy = empty(cx.shape(), mt::kFloat);
  copy(cy, cx);
  for (int64_t b = 0; b < net.batch; ++b) {
    float *state[] = {hy.ptr<float>() + b * net.width, cy.ptr<float>() + b * net.width}, *saves[Lstm::kSaved];
    for (int s = 0; s < Lstm::kSaved; ++s) saves[s] = save[s].ptr<float>() + b * net.width;
    Lstm::forward(x.ptr<float>() + 4 * b * net.width, h.ptr<float>() + 4 * b * net.width, net.width, state, saves);
  }
  copy(run.tensor(5), hy);
  copy(run.tensor(6), cy);
  const Value storage = run.tensor(7);
  for (int q = 0; q < 4; ++q) copy(storage.narrow(1, q * net.width, net.width), save[kStored[q]].select(0, 0));
}
void check_cell_backward(const Call& c) {  // (gradHy?, gradC?, cx, cy, storage, hasBias, gradGates, gradCx, gradBias)
  const TensorMeta& cx = c.tensor(2);
  EXPECT(cx.ndim == 2, "%s: expected cx of 2 dims, got %s", c.name(), describe(cx).c_str());
  for (int i : {0, 1, 3, 7}) expect_same_shape(c, i, 2);
  for (int i : {4, 6}) expect_sizes(c, c.tensor(i), {cx.sizes[0], 4 * cx.sizes[1]}, c.row->args[i].name);
  if (c.integer(5)) expect_sizes(c, c.tensor(8), {4 * cx.sizes[1]}, "gradBias");
}
void run_cell_backward(Run& run) {
  const Value cx = wide(run.tensor(2)), storage = run.tensor(4), tanh = pointwise("tanh", mt::kFloat, {run.tensor(3)});
  const int64_t batch = cx.sizes[0], width = cx.sizes[1];
  std::vector<Value> save(Lstm::kSaved), grad;
  for (int q = 0; q < 4; ++q) save[kStored[q]] = wide(storage.narrow(1, q * width, width));
  save[4] = save[5] = save[6] = tanh;  // of these the gradient reads the last
  for (int s = 0; s < 2; ++s) {
    grad.push_back(full(cx.shape(), mt::kFloat, 0));
    if (run.given(s)) copy(grad[s], run.tensor(s));
  }
  const Value dx = empty({batch, 4 * width}, mt::kFloat), dh = empty({batch, 4 * width}, mt::kFloat);
  for (int64_t b = 0; b < batch; ++b) {
    const float *saves[Lstm::kSaved], *states[] = {nullptr, cx.ptr<float>() + b * width};
    float* grads[] = {grad[0].ptr<float>() + b * width, grad[1].ptr<float>() + b * width};
    for (int s = 0; s < Lstm::kSaved; ++s) saves[s] = save[s].ptr<float>() + b * width;
    Lstm::backward(saves, states, width, grads, dx.ptr<float>() + 4 * b * width, dh.ptr<float>() + 4 * b * width);
  }
  copy(run.tensor(6), dx);
  copy(run.tensor(7), grad[1]);
  if (run.call.integer(5)) copy(run.tensor(8), column_sums(dx));
}

const Op ops[] = {
    {"aclnnThnnFusedLstmCell", check_cell, run_cell},
    {"aclnnThnnFusedLstmCellBackward", check_cell_backward, run_cell_backward},
    {"aclnnLSTM", check_lstm, run_lstm},
    {"aclnnLstmBackward", check_lstm_backward, run_lstm_backward},
    {"aclnnGRU", check_gru, run_gru},
    {"aclnnGRUBackward", check_gru_backward, run_gru_backward},
};

}  // namespace
}  // namespace cann_sim
