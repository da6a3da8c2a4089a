// The state of one run of backward: what it reaches, what that has received, what is ready. Guarded by the GIL.
#pragma once
#include <Python.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

namespace mt {

// Owned references, null where there is none.
class Refs {
 public:
  PyObject** at = few_;
  int n = 0;

  Refs() = default;
  Refs(const Refs&) = delete;
  Refs& operator=(const Refs&) = delete;
  ~Refs() {
    for (int i = 0; i < n; ++i) Py_XDECREF(at[i]);
    if (at != few_) std::free(at);
  }
  void make(int count) {  // once, before any is set
    if (count > kFew) {
      auto* block = static_cast<PyObject**>(std::malloc(count * sizeof(PyObject*)));
      if (!block) throw std::bad_alloc();
      at = block;
    }
    std::fill(at, at + count, nullptr);
    n = count;
  }
  void set(int i, PyObject* o) {
    Py_XINCREF(o);
    put(i, o);
  }
  void put(int i, PyObject* owned) { Py_XSETREF(at[i], owned); }
  PyObject* take(int i) { return std::exchange(at[i], nullptr); }

 private:
  static constexpr int kFew = 6;
  PyObject* few_[kFew];
};

// A node or a leaf that a run reaches.
struct Visit {
  PyObject* target;            // owned
  PyObject* grad = nullptr;    // owned: what came so far; a list when a node has several outputs
  uint64_t sequence;           // of what is ready, the latest runs first, and leaves at once
  int32_t dependencies = 0;    // gradients still to come
  int32_t first_edge = 0, edges = 0;   // of a node: its inputs
  int32_t outputs = 1;         // of a node, when the run met it: it may get more meanwhile
  bool leaf, needed = true, queued = false;
};

class Graph {
 public:
  ~Graph() { clear(); }
  int size() const { return int(visits_.size()); }
  Visit& operator[](int i) { return visits_[i]; }

  // -1: not met.
  int find(PyObject* target) const {
    if (slots_.empty()) {
      for (int i = size() - 1; i >= 0; --i)
        if (visits_[i].target == target) return i;
      return -1;
    }
    for (size_t at = hash(target);; at = (at + 1) & (slots_.size() - 1)) {
      const int i = slots_[at];
      if (i < 0 || visits_[i].target == target) return i;
    }
  }
  int add(PyObject* target, bool leaf, uint64_t sequence, int outputs) {
    Visit v{};
    v.target = target;
    v.outputs = outputs;
    v.leaf = leaf;
    v.sequence = sequence;
    visits_.push_back(v);
    Py_INCREF(target);
    const int i = size() - 1;
    if (slots_.empty() ? size() > kFew : size_t(size()) * 2 > slots_.size()) index();
    else if (!slots_.empty()) place(i);
    return i;
  }
  // The edges of one node, in the order of its inputs; -1 leads nowhere.
  void begin_edges(int i, int count) {
    visits_[i].first_edge = int32_t(edges_.size());
    visits_[i].edges = count;
  }
  void add_edge(int to) {
    edges_.push_back(to);
    if (to >= 0) ++visits_[to].dependencies;
  }
  int edge(int from, int k) const { return edges_[visits_[from].first_edge + k]; }

  void arrived(int i) {
    Visit& v = visits_[i];
    if (--v.dependencies > 0 || v.queued) return;
    v.queued = true;
    ready_.emplace_back(v.sequence, i);
    std::push_heap(ready_.begin(), ready_.end(), earlier);
  }
  // -1: nothing is ready.
  int next() {
    if (ready_.empty()) return -1;
    std::pop_heap(ready_.begin(), ready_.end(), earlier);
    const int i = ready_.back().second;
    ready_.pop_back();
    return i;
  }
  PyObject* take_grad(int i) { return std::exchange(visits_[i].grad, nullptr); }

  void clear() {
    // What is freed here may run user code: first removed from the records, then freed.
    std::vector<Visit> gone;
    gone.swap(visits_);
    slots_.clear();
    edges_.clear();
    ready_.clear();
    for (Visit& v : gone) {
      Py_XDECREF(v.grad);
      Py_DECREF(v.target);
    }
    gone.clear();
    if (visits_.empty()) visits_.swap(gone);  // its memory serves the next run
  }

 private:
  static constexpr int kFew = 8;      // up to here a search is faster than an index
  std::vector<Visit> visits_;
  std::vector<int32_t> slots_;        // open addressing; empty: no index yet
  std::vector<int32_t> edges_;
  std::vector<std::pair<uint64_t, int32_t>> ready_;   // a heap
  // By sequence alone: leaves have one in common, and take turns as they do in torch, whose queue is such a heap too.
  static bool earlier(const std::pair<uint64_t, int32_t>& a, const std::pair<uint64_t, int32_t>& b) { return a.first < b.first; }

  size_t hash(PyObject* p) const {
    return size_t((reinterpret_cast<uintptr_t>(p) >> 4) * 0x9E3779B97F4A7C15ull >> 32) & (slots_.size() - 1);
  }
  void place(int i) {
    size_t at = hash(visits_[i].target);
    while (slots_[at] >= 0) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = i;
  }
  void index() {
    slots_.assign(std::max<size_t>(slots_.size() * 2, 4 * kFew), -1);
    for (int i = 0; i < size(); ++i) place(i);
  }
};

}  // namespace mt
