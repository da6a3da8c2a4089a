// Losses that look at whole rows or sequences: connectionist temporal classification, and margins between classes.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "dense.h"
#include "dispatch.h"
#include "expect.h"
#include "parallel.h"
#include "vmath.h"

namespace mt {
namespace {

// ---- connectionist temporal classification ------------------------------------------------------------------------
// The states of a sample: its targets with a blank before, between and after them.

template <class T> struct Ways {
  static constexpr T kNone = -std::numeric_limits<T>::infinity();
  int64_t steps, states;
  const T* scores;                // log probabilities of the sample at step 0
  int64_t step_stride, class_stride;
  std::vector<int64_t> labels;
  std::vector<T> skip, score;     // 0 where a state follows from the one two before, else -inf; scores of one step
  std::vector<T> memory;          // two states of no way before the others
  T* way;

  Ways(const View& log_probs, int64_t sample, int64_t blank, int64_t steps, const int64_t* target, int64_t length)
      : steps(steps), states(2 * length + 1), scores(log_probs.ptr<T>() + sample * log_probs.strides[1]),
        step_stride(log_probs.strides[0]), class_stride(log_probs.strides[2]), labels(states, blank), skip(states, kNone),
        score(states), memory(states + 2, kNone), way(memory.data() + 2) {
    const int64_t classes = log_probs.sizes[2];
    for (int64_t s = 1; s < states; s += 2) {
      labels[s] = target[s / 2];
      if (labels[s] < 0 || labels[s] >= classes)
        throw std::out_of_range("ctc_loss: label " + std::to_string(labels[s]) + " is out of range");
      if (s > 2 && labels[s] != labels[s - 2]) skip[s] = 0;
    }
  }
  void look(int64_t t) {
    for (int64_t s = 0; s < states; ++s) score[s] = scores[t * step_stride + labels[s] * class_stride];
  }
  void begin() {
    for (int64_t s = 0; s < std::min<int64_t>(states, 2); ++s) way[s] = score[s];
  }
  // From every state: stay, one on, or two on where that may be. From `way` to `next`, which has room before it too.
  void step(T* next) const {
    const T *a = way, *b = way - 1, *c = way - 2, *d = skip.data(), *e = score.data();
    for (int64_t s = 0; s < states; ++s) {
      const T two = c[s] + d[s], one = a[s] > b[s] ? a[s] : b[s], most = one > two ? one : two, top = most == kNone ? T(0) : most;
      next[s] = v::log(v::exp(a[s] - top) + v::exp(b[s] - top) + v::exp(two - top)) + top + e[s];
    }
  }
  void turn() {  // the same sample read from its end
    std::reverse(labels.begin(), labels.end());
    for (int64_t s = 3; s < states; s += 2) skip[s] = labels[s] != labels[s - 2] ? T(0) : kNone;
    std::fill(memory.begin(), memory.end(), kNone);
  }
};

template <class T> T log_add(T a, T b) {
  const T top = std::max(a, b);
  return std::isinf(top) ? top : std::log(std::exp(a - top) + std::exp(b - top)) + top;
}

struct Lengths {
  std::vector<int64_t> steps, targets, start;  // start: of each sample in the targets
  Lengths(const Attr* a, const View& log_probs, const View& view, const View& alpha) {
    const int64_t batch = log_probs.sizes[1], room = view.ndim == 2 ? view.sizes[1] : view.numel();
    if (a[0].n != batch || a[1].n != batch || (view.ndim == 2 && view.sizes[0] < batch))
      throw std::runtime_error("ctc_loss: expected a length and targets of each sample");
    for (int64_t b = 0, at = 0; b < batch; ++b) {
      steps.push_back(list_item(a[0], b)), targets.push_back(list_item(a[1], b));
      start.push_back(view.ndim == 2 ? b * room : at);
      at = view.ndim == 2 ? 0 : at + targets.back();
      if (steps.back() < 0 || steps.back() > log_probs.sizes[0] || steps.back() > alpha.sizes[1] || targets.back() < 0 ||
          2 * targets.back() >= alpha.sizes[2] || (view.ndim == 2 ? targets.back() : at) > room)
        throw std::runtime_error("ctc_loss: a length is larger than the tensors");
    }
  }
};

// _ctc_ways(Tensor log_probs, Tensor targets, int[] input_lengths, int[] target_lengths, int blank)
//   -> (Tensor losses, Tensor log_alpha): (batch), (batch, time, states)
template <class T> void ctc_forward(const Args& c) {
  const View& log_probs = c.t[2];
  expect(log_probs.ndim == 3 && c.t[3].ndim >= 1 && c.t[3].ndim <= 2, "ctc_loss", "log_probs must be 3-D, targets 1-D or 2-D");
  const Dense targets(c.t[3], kInt64);
  Dense losses(c.t[0], c.t[0].dtype, Dense::kOutput), alpha(c.t[1], c.t[1].dtype, Dense::kOutput);
  const int64_t batch = log_probs.sizes[1], time = c.t[1].sizes[1], width = c.t[1].sizes[2];
  const Lengths n(c.a, log_probs, c.t[3], c.t[1]);
  T* const all = alpha.ptr<T>();
  std::fill_n(all, batch * time * width, Ways<T>::kNone);
  parallel_for(batch, std::max<int64_t>(1, kGrain / 64 / std::max<int64_t>(1, time * width)), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      Ways<T> w(log_probs, b, c.a[2].i, n.steps[b], targets.ptr<int64_t>() + n.start[b], n.targets[b]);
      std::vector<T> next(w.states);
      T* out = all + b * time * width;
      for (int64_t t = 0; t < w.steps; ++t, out += width) {
        w.look(t);
        if (t == 0) w.begin();
        else w.step(next.data()), std::copy(next.begin(), next.end(), w.way);
        std::copy_n(w.way, w.states, out);
      }
      const T last = w.way[w.states - 1];
      losses.ptr<T>()[b] = w.steps == 0 ? (n.targets[b] ? -Ways<T>::kNone : T(0)) : w.states > 1 ? -log_add(last, w.way[w.states - 2]) : -last;
    }
  });
  losses.store(), alpha.store();
}

// _ctc_slopes(Tensor grad, Tensor log_probs, Tensor targets, int[] input_lengths, int[] target_lengths, Tensor losses,
//   Tensor log_alpha, int blank, bool zero_infinity) -> Tensor: toward log_probs, taken to be normalised
template <class T> void ctc_backward(const Args& c) {
  const View& log_probs = c.t[2];
  expect(log_probs.ndim == 3 && c.t[3].ndim >= 1 && c.t[3].ndim <= 2, "ctc_loss", "log_probs must be 3-D, targets 1-D or 2-D");
  expect_items(c.t[1], log_probs.sizes[1], "ctc_loss", "grad");
  expect_items(c.t[4], log_probs.sizes[1], "ctc_loss", "losses");
  expect(c.t[5].ndim == 3 && c.t[5].sizes[0] == log_probs.sizes[1], "ctc_loss", "log_alpha must be of each sample");
  const DType dtype = log_probs.dtype;
  const Dense targets(c.t[3], kInt64), g(c.t[1], dtype), losses(c.t[4], dtype), alpha(c.t[5], dtype);
  Dense out(c.t[0], c.t[0].dtype, Dense::kOutput);
  const int64_t batch = log_probs.sizes[1], classes = log_probs.sizes[2], time = c.t[5].sizes[1], width = c.t[5].sizes[2];
  const Lengths n(c.a, log_probs, c.t[3], c.t[5]);
  std::fill_n(out.ptr<T>(), out.view().numel(), T(0));
  parallel_for(batch, std::max<int64_t>(1, kGrain / 64 / std::max<int64_t>(1, time * width)), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const T loss = losses.ptr<T>()[b], scale = g.ptr<T>()[b];
      if (c.a[3].i && loss == -Ways<T>::kNone) continue;
      Ways<T> w(log_probs, b, c.a[2].i, n.steps[b], targets.ptr<int64_t>() + n.start[b], n.targets[b]);
      w.turn();
      std::vector<T> next(w.states), seen(classes);
      for (int64_t t = w.steps - 1; t >= 0; --t) {
        w.look(t);
        if (t == w.steps - 1) w.begin();
        else w.step(next.data()), std::copy(next.begin(), next.end(), w.way);
        const T* before = alpha.ptr<T>() + (b * time + t) * width;
        for (int64_t s = 0; s < w.states; ++s) next[s] = v::exp(before[w.states - 1 - s] + w.way[s] - w.score[s] + loss);
        std::fill(seen.begin(), seen.end(), loss == -Ways<T>::kNone ? std::numeric_limits<T>::quiet_NaN() : T(0));
        for (int64_t s = 0; s < w.states; ++s) seen[w.labels[s]] += next[s];
        T* to = out.ptr<T>() + (t * batch + b) * classes;
        const T* from = w.scores + t * w.step_stride;
        for (int64_t k = 0; k < classes; ++k) to[k] = (v::exp(from[k * w.class_stride]) - seen[k]) * scale;
      }
    }
  });
  out.store();
}

// ---- margins ---------------------------------------------------------------------------------------------------------

// How far each item is over the margin, or its slope, for p = 1 or 2; NaN stays.
template <class T> inline T excess(T over, bool square) { return over <= 0 ? T(0) : square ? over * over : over; }
template <class T> inline T rise(T over, bool square) { return over <= 0 ? T(0) : square ? 2 * over : over != over ? over : T(1); }

// _multi_margin(Tensor rows, Tensor target, Tensor? weight, int p, float margin) -> Tensor: of each row the mean of
// max(0, margin - row[target] + row[other]) ** p. _multi_margin_slopes: its derivative by the items of the row.
template <class T, bool slopes> void multi_margin(const Args& c) {
  expect(c.t[1].ndim == 2, "multi_margin_loss", "rows must be 2-D");
  expect_items(c.t[2], c.t[1].sizes[0], "multi_margin_loss", "target");
  if (c.t[3].given()) expect_items(c.t[3], c.t[1].sizes[1], "multi_margin_loss", "weight");
  const int64_t rows = c.t[1].sizes[0], classes = c.t[1].sizes[1];
  const Dense in(c.t[1], c.t[1].dtype), target(c.t[2], kInt64);
  std::unique_ptr<Dense> weight;
  if (c.t[3].given()) weight.reset(new Dense(c.t[3], c.t[1].dtype));
  Dense out(c.t[0], c.t[0].dtype, Dense::kOutput);
  const bool square = c.a[0].i == 2;
  parallel_for(rows, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, classes)), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* x = in.ptr<T>() + r * classes;
      const int64_t at = target.ptr<int64_t>()[r];
      if (at < 0 || at >= classes) throw std::runtime_error("target out of range");
      const T gap = T(c.a[1].f) - x[at], share = (weight ? weight->ptr<T>()[at] : T(1)) / T(classes);
      T sum = 0;
      if constexpr (slopes) {
        T* to = out.ptr<T>() + r * classes;
        for (int64_t k = 0; k < classes; ++k) to[k] = rise(gap + x[k], square) * share;
        to[at] = 0;
        for (int64_t k = 0; k < classes; ++k) sum += to[k];
        to[at] = -sum;
      } else {
        for (int64_t k = 0; k < at; ++k) sum += excess(gap + x[k], square);
        for (int64_t k = at + 1; k < classes; ++k) sum += excess(gap + x[k], square);
        out.ptr<T>()[r] = sum * share;
      }
    }
  });
  out.store();
}

// The targets of a row up to the first -1, and its items with minus infinity in the place of targets.
template <class T> struct Labelled {
  std::vector<T> others;
  int64_t count = 0;
  Labelled(const T* x, const int64_t* target, int64_t classes) : others(x, x + classes) {
    while (count < classes && target[count] >= 0) others[target[count++]] = -std::numeric_limits<T>::infinity();
  }
};
inline void check_labels(const Dense& target, const View& rows) {
  expect(rows.ndim == 2, "multilabel_margin_loss", "rows must be 2-D");
  expect_items(target.view(), rows.numel(), "multilabel_margin_loss", "target");
  const int64_t classes = rows.sizes[1];
  const int64_t* p = target.ptr<int64_t>();
  for (int64_t i = 0, n = target.view().numel(); i < n; ++i)
    if (p[i] < -1 || p[i] >= classes) throw std::runtime_error("argument #2 'target' is out of range");
}

// _multilabel_margin(Tensor rows, Tensor target) -> (Tensor losses, Tensor is_target): of each row the sum over its targets
// and all other classes of max(0, 1 - row[target] + row[other]), by the number of classes
template <class T> void multilabel_margin(const Args& c) {
  const Dense in(c.t[2], c.t[2].dtype), target(c.t[3], kInt64);
  check_labels(target, c.t[2]);
  const int64_t rows = c.t[2].sizes[0], classes = c.t[2].sizes[1];
  Dense losses(c.t[0], c.t[0].dtype, Dense::kOutput), marks(c.t[1], c.t[1].dtype, Dense::kOutput);
  parallel_for(rows, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, classes)), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* x = in.ptr<T>() + r * classes;
      const int64_t* at = target.ptr<int64_t>() + r * classes;
      const Labelled<T> row(x, at, classes);
      T* mark = marks.ptr<T>() + r * classes;
      std::fill_n(mark, classes, T(0));
      double sum = 0;
      for (int64_t j = 0; j < row.count; ++j) {
        typedef T Lane __attribute__((vector_size(32)));
        constexpr int64_t width = 32 / sizeof(T);
        const T gap = 1 - x[at[j]];
        Lane part = {}, over;
        int64_t k = 0;
        for (; k + width <= classes; k += width) {
          std::memcpy(&over, row.others.data() + k, 32);
          over += gap;
          part += over <= 0 ? Lane{} : over;
        }
        for (int64_t l = 0; l < width; ++l) sum += double(part[l]);
        for (; k < classes; ++k) sum += double(excess(gap + row.others[k], false));
        mark[at[j]] = 1;
      }
      losses.ptr<T>()[r] = T(sum / double(classes));
    }
  });
  losses.store(), marks.store();
}

// _multilabel_margin_slopes(Tensor rows, Tensor target) -> Tensor
template <class T> void multilabel_margin_slopes(const Args& c) {
  const Dense in(c.t[1], c.t[1].dtype), target(c.t[2], kInt64);
  check_labels(target, c.t[1]);
  const int64_t rows = c.t[1].sizes[0], classes = c.t[1].sizes[1];
  Dense out(c.t[0], c.t[0].dtype, Dense::kOutput);
  parallel_for(rows, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, classes)), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* x = in.ptr<T>() + r * classes;
      const int64_t* at = target.ptr<int64_t>() + r * classes;
      const Labelled<T> row(x, at, classes);
      T* to = out.ptr<T>() + r * classes;
      std::fill_n(to, classes, T(0));
      for (int64_t j = 0; j < row.count; ++j) {
        const T gap = 1 - x[at[j]], *other = row.others.data();
        int32_t above = 0;
        for (int64_t k = 0; k < classes; ++k) above += gap + other[k] > 0;
        for (int64_t k = 0; k < classes; ++k) to[k] += gap + other[k] > 0 ? T(1) : T(0);
        to[at[j]] -= T(above);
      }
      for (int64_t k = 0; k < classes; ++k) to[k] /= T(classes);
    }
  });
  out.store();
}

#define MT_OF_FLOATS(NAME, KERNEL, INPUT) \
  void NAME##_kernel(const Args& c) { \
    const DType d = c.t[INPUT].dtype; \
    MT_SWITCH(d, #NAME, MT_FLOATS(T, { KERNEL(c); })) \
  } \
  const Register NAME##_row(#NAME, NAME##_kernel);
MT_OF_FLOATS(ctc_forward, ctc_forward<T>, 2)
MT_OF_FLOATS(ctc_backward, ctc_backward<T>, 2)
MT_OF_FLOATS(multi_margin, (multi_margin<T, false>), 1)
MT_OF_FLOATS(multi_margin_slopes, (multi_margin<T, true>), 1)
MT_OF_FLOATS(multilabel_margin, multilabel_margin<T>, 2)
MT_OF_FLOATS(multilabel_margin_slopes, multilabel_margin_slopes<T>, 1)

}  // namespace
}  // namespace mt
