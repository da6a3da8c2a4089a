// Recurrent networks by the older interface: one layer in one direction of LSTM (DynamicRNN, DynamicRNNV2) or GRU, and gradients.
#include "ops/older.h"
#include "ops/rnn.h"

namespace cann_sim {
namespace {

// What these ops say and the cells do not compute.
void expect_plain(Older& o, const char* cell) {
  if (o.text("cell_type", cell) != cell) o.refuse("cell_type is not " + std::string(cell));
  const std::string direction = o.text("direction", "UNIDIRECTIONAL");
  if (direction != "UNIDIRECTIONAL" && direction != "REDIRECTIONAL") o.refuse("direction " + direction + " is not supported");
  if (o.integer("use_peephole", 0) || o.integer("num_proj", 0) || !o.integer("time_major", 1) || o.real("forget_bias", 0) != 0)
    o.refuse("use_peephole, num_proj, forget_bias and a batch as the first dim are not supported");
  if (o.text("activation", "tanh") != "tanh") o.refuse("only tanh is supported as an activation");
}
// The checks before a call is queued; what the attributes say is known then.
void check_lstm(Older& o) {
  expect_plain(o, "LSTM");
  const std::string order = o.text("gate_order", "ijfo");
  if (order != "ifjo" && order != "ifco" && order != "ijfo") o.refuse("gate_order " + order + " is not supported");
}
void check_gru(Older& o) {
  expect_plain(o, "GRU");
  if (o.text("gate_order", "zrh") != "rzh" || !o.integer("reset_after", 1))
    o.refuse("only gates in the order rzh with the reset after the product are computed");
}
bool reversed(Older& o) { return o.text("direction", "UNIDIRECTIONAL") == "REDIRECTIONAL"; }

// Steps that a sequence has: seq_length is a mask [T, B, H], or a number a sequence; a value without dims says nothing.
void set_lengths(Older& o, size_t i, Net& net) {
  if (!o.given(i) || o.in(i).ndim == 0) return;
  const Value given = wide(o.in(i));
  const bool mask = given.ndim == 3;
  if (mask ? given.shape() != Sizes{net.steps, net.batch, net.width} : given.shape() != Sizes{net.batch})
    o.refuse("seq_length must be a mask of the output's shape or have a length a sequence");
  for (int64_t t = 0; t < net.steps; ++t)
    for (int64_t b = 0; b < net.batch; ++b)
      net.live.push_back(mask ? given.ptr<float>()[(t * net.batch + b) * net.width] != 0 : double(t) < given.ptr<float>()[b]);
}

// ---- LSTM -----------------------------------------------------------------------------------------------------------------
// Weights stand as [inputs, 4 H] with the gates as gate_order has them (ifjo, the same as ifco, or ijfo); cells take [4 H, inputs]
// as ifjo. The same exchange of columns leads back.
Value other_gates(Older& o, const Value& w) {
  const std::string order = o.text("gate_order", "ijfo");
  if (order != "ijfo") return w;
  const int64_t width = w.size(-1) / 4;
  auto gate = [&](int64_t k) { return w.narrow(-1, k * width, width); };
  return cat({gate(0), gate(2), gate(1), gate(3)}, -1);
}
Value cell_weight(Older& o, const Value& w) { return wide(other_gates(o, wide(w)).transpose(0, 1)); }

Value first_state(Older& o, size_t i, const Net& net) {
  const Value made = full({net.batch, net.width}, mt::kFloat, 0);
  if (o.given(i)) copy(made, o.in(i).reshape({net.batch, net.width}));
  return made;
}

// How the op's operands are placed: V2 has the two weights apart.
struct Lstms {
  bool apart;
  Net net;
  Weights weights;
  Lstms(Older& o, bool apart_, const Sizes& hidden, size_t bias) : apart(apart_) {
    net = Net{o.given(bias), false, false, 1, hidden[0], hidden[1], hidden[2]};
    const Value w = cell_weight(o, o.in(1));
    const int64_t inputs = w.sizes[1] - (apart ? 0 : net.width);
    if (w.sizes[0] != 4 * net.width || inputs < 1) o.refuse("the weights do not fit the output");
    weights.input = wide(w.narrow(1, 0, inputs));
    weights.hidden = apart ? cell_weight(o, o.in(2)) : wide(w.narrow(1, inputs, net.width));
    if (weights.hidden.shape() != Sizes{4 * net.width, net.width}) o.refuse("the weights do not fit the output");
  }
  Value x(Older& o) const { return wide(o.in(0)).reshape({net.steps, net.batch, weights.input.sizes[1]}); }
};
// (x, w, [w_hidden,] b?, seq_length?, init_h?, init_c?): y, h, c, i, j, f, o, tanh(c)
template <bool apart> void lstm(Older& o) {
  Lstms of(o, apart, o.out(0).shape(), 2 + apart);
  if (of.net.bias) {
    of.weights.input_bias = wide(other_gates(o, o.in(2 + apart).reshape({-1})));
    of.weights.hidden_bias = full(of.weights.input_bias.shape(), mt::kFloat, 0);
  }
  set_lengths(o, 3 + apart, of.net);
  std::vector<Value> state{first_state(o, 4 + apart, of.net), first_state(o, 5 + apart, of.net)}, save = saved_for(Lstm::kSaved, of.net);
  run_direction<Lstm>(of.net, of.x(o), of.weights, reversed(o), state, save);
  // saved: i, g, f, o, h, c, tanh(c)
  const Value results[] = {without_dead_steps(of.net, save[4]), save[4], save[5], save[0], save[1], save[2], save[3], save[6]};
  for (size_t k = 0; k < 8; ++k) copy(o.out(k), results[k].reshape(o.out(k).shape()));
}
// (x, w, b or w_hidden, y, init_h, init_c, h, c, dy, dh, dc, i, j, f, o, tanh(c), seq_length, ...): dw, [dw_hidden,] db, dx, dh, dc
template <bool apart> void lstm_grad(Older& o) {
  Lstms of(o, apart, o.in(3).shape(), 2);
  of.net.bias = true;
  set_lengths(o, 16, of.net);
  const size_t places[] = {11, 12, 13, 14, 6, 7, 15};
  const Sizes shape{of.net.steps, of.net.batch, of.net.width};
  std::vector<Value> save, first{first_state(o, 4, of.net), first_state(o, 5, of.net)}, grad{first_state(o, 9, of.net), first_state(o, 10, of.net)};
  for (size_t place : places) save.push_back(wide(o.in(place)).reshape(shape));
  const Gradients g = back_direction<Lstm>(of.net, of.x(o), of.weights, reversed(o), first, save, o.in(8).reshape(shape), grad);
  auto weight = [&](const Value& v) { return other_gates(o, wide(v.transpose(0, 1))); };
  std::vector<Value> results;
  if (apart) {
    results = {weight(g.input), weight(g.hidden)};
  } else {
    results = {cat({weight(g.input), weight(g.hidden)}, 0)};
  }
  for (const Value& v : {other_gates(o, g.input_bias), g.x, grad[0], grad[1]}) results.push_back(v);
  for (size_t k = 0; k < results.size(); ++k) copy(o.out(k), results[k].reshape(o.out(k).shape()));
}

// ---- GRU ------------------------------------------------------------------------------------------------------------------
Weights gru_weights(Older& o, Net& net) {
  Weights w{wide(o.in(1).transpose(0, 1)), wide(o.in(2).transpose(0, 1)), {}, {}};
  if (w.hidden.shape() != Sizes{3 * net.width, net.width} || w.input.sizes[0] != 3 * net.width) o.refuse("the weights do not fit the output");
  return w;
}
// (x, w_input, w_hidden, b_input?, b_hidden?, seq_length?, init_h?): y, h, update, reset, new, hidden_new
void gru(Older& o) {
  const Sizes shape = o.out(0).shape();
  Net net{o.given(3), false, false, 1, shape[0], shape[1], shape[2]};
  Weights w = gru_weights(o, net);
  if (o.given(3)) w.input_bias = wide(o.in(3).reshape({-1}));
  if (o.given(4)) w.hidden_bias = wide(o.in(4).reshape({-1}));
  set_lengths(o, 5, net);
  std::vector<Value> state{first_state(o, 6, net)}, save = saved_for(Gru::kSaved, net);  // saved: r, z, n, hidden part, h
  run_direction<Gru>(net, wide(o.in(0)), w, reversed(o), state, save);
  const Value results[] = {without_dead_steps(net, save[4]), save[4], save[1], save[0], save[2], save[3]};
  for (size_t k = 0; k < 6; ++k) copy(o.out(k), results[k].reshape(o.out(k).shape()));
}
// (x, w_input, w_hidden, y, init_h, h, dy, dh, update, reset, new, hidden_new, seq_length, ...): dw_input, dw_hidden, db_input,
// db_hidden, dx, dh
void gru_grad(Older& o) {
  const Sizes shape = o.in(3).shape();
  Net net{true, false, false, 1, shape[0], shape[1], shape[2]};
  const Weights w = gru_weights(o, net);
  set_lengths(o, 12, net);
  const size_t places[] = {9, 8, 10, 11, 5};
  std::vector<Value> save, first{first_state(o, 4, net)}, grad{first_state(o, 7, net)};
  for (size_t place : places) save.push_back(wide(o.in(place)).reshape(shape));
  const Gradients g = back_direction<Gru>(net, wide(o.in(0)), w, reversed(o), first, save, o.in(6).reshape(shape), grad);
  const Value results[] = {g.input.transpose(0, 1), g.hidden.transpose(0, 1), g.input_bias, g.hidden_bias, g.x, grad[0]};
  for (size_t k = 0; k < 6; ++k) copy(o.out(k), results[k].reshape(o.out(k).shape()));
}

const OlderOps ops({
    {"DynamicRNN", 3, 12, 8, lstm<false>, check_lstm}, {"DynamicRNNV2", 4, 12, 8, lstm<true>, check_lstm},
    {"DynamicRNNGrad", 17, 22, 5, lstm_grad<false>, check_lstm}, {"DynamicRNNV2Grad", 17, 22, 6, lstm_grad<true>, check_lstm},
    {"DynamicGRUV2", 3, 7, 6, gru, check_gru}, {"DynamicGRUV2Grad", 12, 14, 6, gru_grad, check_gru},
});

}  // namespace
}  // namespace cann_sim
