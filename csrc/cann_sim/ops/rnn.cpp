// Recurrent networks of several layers and directions, LSTM and GRU, and their gradients; and one LSTM cell.
#include <algorithm>

#include "ops/attention.h"  // argument()
#include "ops/rnn.h"

namespace cann_sim {
namespace {

// ---- shapes --------------------------------------------------------------------------------------------------
constexpr int kTrain = 7;  // of both forward ops
// Where the arguments lie.
struct Places {
  int input, params, hx, batch_sizes, bias, layers, bidirectional, batch_first, saved;
  bool packs;  // takes batchSizes
};
// Sequences of several lengths (batchSizes) lie in an input of 2 dims, [steps * batch, inputs], which is [steps, batch, inputs]
// in memory; longer sequences first. CANN documents this for LSTM, and refuses batchSizes for GRU.
Net net_at(const Call& c, const Places& at) {
  EXPECT(c.integer(at.layers) > 0 && c.args[at.params].count >= 2, "%s: expected layers and their weights", c.name());
  const TensorMeta &input = c.tensor(at.input), &recurrent = c.tensors(at.params)[1];
  EXPECT(recurrent.ndim == 2, "%s: expected weights of 2 dims, got %s", c.name(), describe(recurrent).c_str());
  Net net{c.integer(at.bias) != 0, c.integer(at.bidirectional) != 0, c.integer(at.batch_first) != 0, c.integer(at.layers), 0, 0,
          recurrent.sizes[1]};
  if (c.given(at.batch_sizes)) {
    const TensorMeta& sizes = c.tensor(at.batch_sizes);
    EXPECT(at.packs, "%s: sequences of several lengths (batchSizes) are not supported by CANN", c.name());
    EXPECT(input.ndim == 2 && sizes.ndim == 1 && sizes.sizes[0] > 0 && input.sizes[0] % sizes.sizes[0] == 0 && !net.batch_first,
           "%s: expected an input [steps * batch, inputs] with batchSizes [steps], got %s with %s", c.name(),
           describe(input).c_str(), describe(sizes).c_str());
    net.steps = sizes.sizes[0];
    net.batch = input.sizes[0] / net.steps;
  } else {
    EXPECT(input.ndim == 3, "%s: expected an input of 3 dims, got %s", c.name(), describe(input).c_str());
    net.steps = input.sizes[net.batch_first];
    net.batch = input.sizes[!net.batch_first];
  }
  return net;
}
// The steps that sequences have, of which argument i counts those of each step.
void live_steps(Run& run, int i, Net& net) {
  const Value sizes = run.tensor(i).to(mt::kInt64).dense();
  const int64_t* n = sizes.ptr<int64_t>();
  for (int64_t t = 0; t < net.steps; ++t) {
    if (n[t] < 1 || n[t] > (t ? n[t - 1] : net.batch))
      throw DeviceFault(ACL_ERROR_RT_AICPU_EXCEPTION, std::string(run.call.name()) + ": batchSizes must not grow, from at most the batch to 1");
    for (int64_t b = 0; b < net.batch; ++b) net.live.push_back(b < n[t]);
  }
}
Net net_at(Run& run, const Places& at) {
  Net net = net_at(run.call, at);
  if (run.given(at.batch_sizes)) live_steps(run, at.batch_sizes, net);
  return net;
}
void expect_sizes(const Call& c, const TensorMeta& t, const Sizes& sizes, const char* what) {
  EXPECT(sizes_of(t) == sizes, "%s: %s is %s", c.name(), what, describe(t).c_str());
  EXPECT(computes(t.dtype) && is_float(dtype_of(t.dtype)), "%s: %s is %s", c.name(), what, describe(t).c_str());
}
template <class Cell> void check_net(const Call& c, const Places& at, const Net& net, bool saves) {
  EXPECT(c.args[at.params].count == net.runs() * net.per_direction(), "%s: expected %ld weights and biases, got %d",
         c.name(), net.runs() * net.per_direction(), c.args[at.params].count);
  const int64_t rows = Cell::kGates * net.width;
  for (int64_t run = 0; run < net.runs(); ++run) {
    const int64_t first = run * net.per_direction(), layer = run / net.directions();
    const int64_t inputs = layer ? net.width * net.directions() : c.tensor(at.input).sizes[c.tensor(at.input).ndim - 1];
    expect_sizes(c, c.tensors(at.params)[first], {rows, inputs}, "a weight of the input");
    expect_sizes(c, c.tensors(at.params)[first + 1], {rows, net.width}, "a weight of the hidden state");
    for (int k = 2; k < net.per_direction(); ++k) expect_sizes(c, c.tensors(at.params)[first + k], {rows}, "a bias");
  }
  for (const TensorMeta& t : c.tensors(at.hx))
    if (t.given()) expect_sizes(c, t, {net.runs(), net.batch, net.width}, "an initial state");
  for (int k = 0; k < Cell::kSaved; ++k) {
    EXPECT(c.args[at.saved + k].count == 0 || c.args[at.saved + k].count == net.runs(), "%s: expected %ld items in %s",
           c.name(), net.runs(), c.row->args[at.saved + k].name);
    if (!saves) continue;  // torch_npu then passes tensors that hold nothing
    for (const TensorMeta& t : c.tensors(at.saved + k))
      expect_sizes(c, t, {net.steps, net.batch, net.width}, c.row->args[at.saved + k].name);
  }
}
// The output, or its gradient. Of sequences of several lengths it may have 2 dims, as the input, or 3.
void expect_output(const Call& c, const Places& at, int i, const Net& net) {
  const int64_t width = net.directions() * net.width;
  if (c.given(at.batch_sizes) && c.tensor(i).ndim == 2) return expect_shape(c, i, {net.steps * net.batch, width});
  expect_shape(c, i, net.batch_first ? Sizes{net.batch, net.steps, width} : Sizes{net.steps, net.batch, width});
}

// ---- values --------------------------------------------------------------------------------------------------
// [steps, batch, items], whichever way the client holds them.
Value time_major(const Net& net, const Value& v) {
  if (v.ndim == 2) return v.reshape({net.steps, net.batch, v.sizes[1]});
  return net.batch_first ? v.transpose(0, 1) : v;
}
void store(const Net& net, const Value& into, const Value& v) {
  copy(into, (net.batch_first ? v.transpose(0, 1) : v).reshape(into.shape()));
}
Weights weights_at(const Net& net, const std::vector<Value>& params, int64_t run) {
  const Value* first = &params[run * net.per_direction()];
  Weights w{wide(first[0]), wide(first[1]), {}, {}};
  if (net.bias) w.input_bias = wide(first[2]), w.hidden_bias = wide(first[3]);
  return w;
}
Value initial(const std::vector<Value>& hx, size_t state, int64_t run, const Net& net) {
  const bool given = state < hx.size() && hx[state].given();
  const Value v = given ? hx[state].select(0, run).to(mt::kFloat) : full({net.batch, net.width}, mt::kFloat, 0);
  const Value own = empty(v.shape(), mt::kFloat);  // the steps write into it
  copy(own, v);
  return own;
}
// ---- forward -------------------------------------------------------------------------------------------------
// output: where the result goes; the last states follow it. hx holds the first ones.
template <class Cell> void run_forward(Run& run, const Places& at, const std::vector<Value>& hx, int output) {
  const Call& c = run.call;
  const Net net = net_at(run, at);
  const bool saves = c.integer(kTrain);
  const std::vector<Value> params = run.tensors(at.params);
  Value x = wide(time_major(net, run.tensor(at.input)));
  for (int64_t layer = 0; layer < net.layers; ++layer) {
    const Value y = empty({net.steps, net.batch, net.directions() * net.width}, mt::kFloat);
    for (int64_t d = 0; d < net.directions(); ++d) {
      const int64_t k = layer * net.directions() + d;
      std::vector<Value> state, save = saved_for(Cell::kSaved, net);
      for (int s = 0; s < Cell::kStates; ++s) state.push_back(initial(hx, s, k, net));
      run_direction<Cell>(net, x, weights_at(net, params, k), d == 1, state, save);
      copy(y.narrow(2, d * net.width, net.width), without_dead_steps(net, save[Cell::kHidden]));
      for (int s = 0; s < Cell::kStates; ++s) copy(run.tensor(output + 1 + s).select(0, k), state[s]);
      for (int s = 0; s < Cell::kSaved; ++s)
        if (saves && c.args[at.saved + s].count) copy(run.value(c.tensors(at.saved + s)[k]), save[s]);
    }
    x = y;
  }
  store(net, run.tensor(output), x);
}

// ---- backward ------------------------------------------------------------------------------------------------
// grads: the argument of dy, followed by those of the states; results: dx, the first states, the weights.
template <class Cell> void run_backward(Run& run, const Places& at, int grads, int results) {
  const Call& c = run.call;
  const Net net = net_at(run, at);
  const std::vector<Value> params = run.tensors(at.params), hx = run.tensors(at.hx);
  std::vector<std::vector<Value>> saved;
  for (int s = 0; s < Cell::kSaved; ++s) saved.push_back(run.tensors(at.saved + s));
  auto layer_input = [&](int64_t layer) {
    if (layer == 0) return wide(time_major(net, run.tensor(at.input)));
    const Value y = empty({net.steps, net.batch, net.directions() * net.width}, mt::kFloat);
    for (int64_t d = 0; d < net.directions(); ++d)
      copy(y.narrow(2, d * net.width, net.width), without_dead_steps(net, wide(saved[Cell::kHidden][(layer - 1) * net.directions() + d])));
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
  store(net, run.tensor(results), dy);
}
template <class Cell> void check_gradients(const Call& c, const Places& at, const Net& net, int grads, int results) {
  constexpr int states = Cell::kStates;
  const Sizes state = {net.runs(), net.batch, net.width};
  for (int k = 0; k < Cell::kSaved; ++k)
    EXPECT(c.args[at.saved + k].count == net.runs(), "%s: %s of the forward op is absent", c.name(),
           c.row->args[at.saved + k].name);
  expect_output(c, at, grads, net);
  for (int s = 1; s <= states; ++s) expect_shape(c, grads + s, state), expect_shape(c, results + s, state);
  expect_same_shape(c, results, at.input);
  const Span<TensorMeta> params = c.tensors(at.params), made = c.tensors(results + 1 + states);
  EXPECT(params.size() == made.size(), "%s: %ld gradients for %ld weights", c.name(), made.size(), params.size());
  for (int64_t i = 0; i < params.size(); ++i)
    expect_sizes(c, made[i], sizes_of(params[i]), "a weight's gradient");
}

// ---- the ops -------------------------------------------------------------------------------------------------
constexpr Places kLstm = {0, 1, 2, 3, 4, 5, 8, 9, 13, true}, kLstmBackward = {0, 2, 1, 13, 14, 15, 18, 19, 6, true};
constexpr Places kGru = {0, 1, 2, 3, 4, 5, 8, 9, 12, false}, kGruBackward = {0, 1, 2, 10, 11, 12, 13, 14, 5, false};

template <class Cell> void check_forward(const Call& c, const Places& at) {
  const Net net = net_at(c, at);
  check_net<Cell>(c, at, net, c.integer(kTrain));
  expect_output(c, at, 10, net);
  for (int s = 0; s < Cell::kStates; ++s) expect_shape(c, 11 + s, {net.runs(), net.batch, net.width});
}
template <class Cell> void check_backward(const Call& c, const Places& at, int grads, int results) {
  const Net net = net_at(c, at);
  check_net<Cell>(c, at, net, true);
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

// ---- one layer in one or two directions: (x [steps, batch, inputs], initH, initC, weights and biases of a direction and of the other,
// [batchSize?,] numLayers, isbias, batchFirst, bidirection, [packed,] y, lastH, lastC) ----------------------------------------------
struct Layer {
  int numbers, y;  // where numLayers and the results lie
  Net net;
  explicit Layer(const Call& c)
      : numbers(argument(c, {"numLayers"})), y(argument(c, {"yOut"})),
        net{c.integer(numbers + 1) != 0, c.integer(numbers + 3) != 0, false, 1, c.tensor(0).sizes[0], c.tensor(0).sizes[1], c.tensor(4).sizes[1]} {}
};
void check_layer(const Call& c) {
  const Layer at(c);
  const Net& net = at.net;
  EXPECT(c.integer(at.numbers) == 1 && !c.integer(at.numbers + 2), "%s: CANN computes one layer, whose batch is not first", c.name());
  if (at.y > at.numbers + 4) {
    EXPECT(!c.integer(at.numbers + 4) || c.given(11), "%s: packed needs batchSizeOptional", c.name());
    if (c.integer(at.numbers + 4)) expect_numel(c, 11, net.steps);
  }
  for (int d = 0; d < net.directions(); ++d) {
    const int first = d ? 7 : 3;
    EXPECT(c.given(first) && c.given(first + 1), "%s: %s is not given", c.name(), c.row->args[first].name);
    expect_shape(c, first, {4 * net.width, c.tensor(0).sizes[2]});
    expect_shape(c, first + 1, {4 * net.width, net.width});
    for (int i : {d ? 9 : 5, d ? 10 : 6})
      if (net.bias) {
        EXPECT(c.given(i), "%s: isbias needs %s", c.name(), c.row->args[i].name);
        expect_shape(c, i, {4 * net.width});
      }
  }
  expect_shape(c, at.y, {net.steps, net.batch, net.directions() * net.width});
  for (int i : {1, 2, at.y + 1, at.y + 2}) expect_shape(c, i, {net.directions(), net.batch, net.width});
}
void run_layer(Run& run) {
  Layer at(run.call);
  if (at.y > at.numbers + 4 && run.call.integer(at.numbers + 4)) live_steps(run, 11, at.net);
  const Net& net = at.net;
  const Value x = wide(run.tensor(0)), y = empty({net.steps, net.batch, net.directions() * net.width}, mt::kFloat);
  for (int d = 0; d < net.directions(); ++d) {
    const int first = d ? 7 : 3, biases = d ? 9 : 5;
    Weights w{wide(run.tensor(first)), wide(run.tensor(first + 1)), {}, {}};
    if (net.bias) w.input_bias = wide(run.tensor(biases)), w.hidden_bias = wide(run.tensor(biases + 1));
    const std::vector<Value> given{run.tensor(1), run.tensor(2)}, save = saved_for(Lstm::kSaved, net);
    std::vector<Value> state{initial(given, 0, d, net), initial(given, 1, d, net)};
    run_direction<Lstm>(net, x, w, d == 1, state, save);
    copy(y.narrow(2, d * net.width, net.width), without_dead_steps(net, save[Lstm::kHidden]));
    for (int s = 0; s < 2; ++s) copy(run.tensor(at.y + 1 + s).select(0, d), state[s]);
  }
  copy(run.tensor(at.y), y);
}

const Op ops[] = {
    {"aclnnBidirectionLSTM", check_layer, run_layer},
    {"aclnnBidirectionLSTMV2", check_layer, run_layer},
    {"aclnnThnnFusedLstmCell", check_cell, run_cell},
    {"aclnnThnnFusedLstmCellBackward", check_cell_backward, run_cell_backward},
    {"aclnnLSTM", check_lstm, run_lstm},
    {"aclnnLstmBackward", check_lstm_backward, run_lstm_backward},
    {"aclnnGRU", check_gru, run_gru},
    {"aclnnGRUBackward", check_gru_backward, run_gru_backward},
};

}  // namespace
}  // namespace cann_sim
