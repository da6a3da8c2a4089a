// Recurrent cells and their steps through time, for the ops of libopapi (rnn.cpp) and of the older interface (older_rnn.cpp).
#pragma once
#include <algorithm>
#include <cmath>

#include "ops/pointwise.h"

namespace cann_sim {

inline float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

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

// ---- one layer in one direction ------------------------------------------------------------------------------
struct Net {
  bool bias, bidirectional, batch_first;
  int64_t layers, steps, batch, width;
  std::vector<char> live = {};  // whether sequence b has step t, at [t * batch + b]; empty: all have all steps
  int64_t directions() const { return bidirectional ? 2 : 1; }
  int64_t per_direction() const { return bias ? 4 : 2; }
  int64_t runs() const { return layers * directions(); }
  bool lives(int64_t t, int64_t b) const { return live.empty() || live[t * batch + b]; }
};
struct Weights {
  Value input, hidden, input_bias, hidden_bias;  // [gates, inputs], [gates, width]; no biases: absent
};
struct Gradients {
  Value x, input, hidden, input_bias, hidden_bias;
};
Value wide(const Value& v);                                // float32, dense
std::vector<Value> saved_for(int count, const Net& net);   // [steps, batch, width] each
Value column_sums(const Value& v);
// What the net says of the steps that a sequence does not have: 0.
Value without_dead_steps(const Net& net, const Value& hidden);

// x [steps, batch, inputs]; `state` comes as the first states and leaves as the last, `save` gets what Cell::forward says.
// A sequence keeps its state over the steps that it does not have.
template <class Cell>
void run_direction(const Net& net, const Value& x, const Weights& w, bool reverse, std::vector<Value>& state,
                   const std::vector<Value>& save);
// grad: the gradients of the last states; leaves as those of the first ones.
template <class Cell>
Gradients back_direction(const Net& net, const Value& x, const Weights& w, bool reverse,
                         const std::vector<Value>& first, const std::vector<Value>& save, const Value& dy,
                         std::vector<Value>& grad);

}  // namespace cann_sim
