// Shapes as Python reads them, kept for the next tensor of that shape: x.shape and what backward saves build no new tuple.
#pragma once
#include <Python.h>

#include <cstdint>
#include <cstring>

namespace mt {

// A tuple, or an instance of a subclass of it, of n ints.
inline PyObject* new_ints(PyTypeObject* t, int n, const int64_t* values) {
  PyObject* r = t == &PyTuple_Type ? PyTuple_New(n) : t->tp_alloc(t, n);
  for (int i = 0; r && i < n; ++i) {
    PyObject* item = PyLong_FromLongLong(values[i]);
    if (!item) Py_CLEAR(r);
    else PyTuple_SET_ITEM(r, i, item);
  }
  return r;
}

// The last shape seen of each hash. Immutable objects without attributes: sharing one is not observable. GIL held.
class ShapeCache {
 public:
  PyObject* get(PyTypeObject* type, int rank, const int64_t* sizes) {
    if (rank == 0 || rank > kMaxRank) return new_ints(type, rank, sizes);
    uint64_t h = 0;
    for (int i = 0; i < rank; ++i) h = (h + static_cast<uint64_t>(sizes[i])) * 0x9E3779B97F4A7C15u;
    Entry& e = entries_[h >> (64 - kBits)];
    if (e.shape && e.rank == rank && Py_TYPE(e.shape) == type) {
      int i = 0;
      while (i < rank && e.sizes[i] == sizes[i]) ++i;
      if (i == rank) return Py_NewRef(e.shape);
    }
    PyObject* made = new_ints(type, rank, sizes);
    if (!made) return nullptr;
    PyObject* before = e.shape;
    e.shape = Py_NewRef(made);
    e.rank = rank;
    std::memcpy(e.sizes, sizes, rank * sizeof *sizes);
    Py_XDECREF(before);
    return made;
  }

 private:
  static constexpr int kBits = 8, kMaxRank = 5;
  struct Entry {
    PyObject* shape;
    int64_t rank, sizes[kMaxRank];
  };
  Entry entries_[1 << kBits] = {};
};

}  // namespace mt
