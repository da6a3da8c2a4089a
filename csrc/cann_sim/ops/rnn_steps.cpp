// The steps of recurrent cells through time, forward and backward, and what is shared around them.
#include "ops/rnn.h"

namespace cann_sim {

Value wide(const Value& v) { return v.to(mt::kFloat).dense(); }
std::vector<Value> saved_for(int count, const Net& net) {
  std::vector<Value> made;
  for (int k = 0; k < count; ++k) made.push_back(empty({net.steps, net.batch, net.width}, mt::kFloat));
  return made;
}
Value column_sums(const Value& v) {
  const Value out = empty({v.sizes[1]}, mt::kFloat);
  const int64_t dims[] = {0};
  call_kernel("sum", {out, v}, {list(dims, 1), integer(0), none()});
  return out;
}
Value without_dead_steps(const Net& net, const Value& hidden) {
  if (net.live.empty()) return hidden;
  const Value made = full(hidden.shape(), mt::kFloat, 0);
  for (int64_t r = 0; r < net.steps * net.batch; ++r)
    if (net.live[r]) std::copy_n(hidden.ptr<float>() + r * net.width, net.width, made.ptr<float>() + r * net.width);
  return made;
}

namespace {

Value product(const Value& a, const Value& b) {
  const Value out = empty({a.sizes[0], b.sizes[1]}, mt::kFloat);
  call_kernel("mm", {out, a, b});
  return out;
}
Value affine(const Value& x, const Value& weight, const Value& bias) {  // x W^T + b
  const Value y = product(x, weight.transpose(0, 1));
  if (bias.given()) call_pointwise("add", mt::kFloat, {y, y, bias}, {integer(1)});
  return y;
}
// The step before this one in the direction of the run, or -1.
int64_t before(int64_t t, bool reverse, const Net& net) { return reverse ? (t + 1 < net.steps ? t + 1 : -1) : t - 1; }

}  // namespace

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
      if (net.lives(t, b)) {
        Cell::forward(from_input.ptr<float>() + (t * net.batch + b) * gates, from_hidden.ptr<float>() + b * gates,
                      net.width, states, saves);
        continue;
      }
      for (int s = 0; s < Cell::kSaved; ++s) std::fill_n(saves[s], net.width, 0.f);
      for (int s = 0; s < Cell::kStates; ++s) std::copy_n(states[s], net.width, saves[Cell::kHidden + s]);
    }
  }
}

template <class Cell>
Gradients back_direction(const Net& net, const Value& x, const Weights& w, bool reverse,
                         const std::vector<Value>& first, const std::vector<Value>& save, const Value& dy,
                         std::vector<Value>& grad) {
  const int64_t gates = Cell::kGates * net.width, rows = net.steps * net.batch;
  const Value dx = full({rows, gates}, mt::kFloat, 0), dh = full({rows, gates}, mt::kFloat, 0);
  const Value hidden = empty({net.steps, net.batch, net.width}, mt::kFloat);  // the hidden state before each step
  const Value of_output = without_dead_steps(net, wide(dy));
  for (int64_t step = net.steps - 1; step >= 0; --step) {
    const int64_t t = reverse ? net.steps - 1 - step : step, last = before(t, reverse, net);
    call_pointwise("add", mt::kFloat, {grad[0], grad[0], of_output.select(0, t)}, {integer(1)});
    std::vector<Value> states;  // before the step: h, and for LSTM c, which is saved next to it
    for (int s = 0; s < Cell::kStates; ++s)
      states.push_back(last < 0 ? first[s] : save[Cell::kHidden + s].select(0, last));
    copy(hidden.select(0, t), states[0]);
    for (int64_t b = 0; b < net.batch; ++b) {
      if (!net.lives(t, b)) continue;  // the gradients of its states pass through
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

#define STEPS_OF(Cell)                                                                                               \
  template void run_direction<Cell>(const Net&, const Value&, const Weights&, bool, std::vector<Value>&,             \
                                    const std::vector<Value>&);                                                      \
  template Gradients back_direction<Cell>(const Net&, const Value&, const Weights&, bool, const std::vector<Value>&, \
                                          const std::vector<Value>&, const Value&, std::vector<Value>&);
STEPS_OF(Lstm)
STEPS_OF(Gru)
#undef STEPS_OF

}  // namespace cann_sim
