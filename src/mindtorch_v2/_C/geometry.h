// Geometry: what follows from sizes and strides, and which strides suit given sizes. Counts items; no tensor, no Python.
#pragma once
#include <cstdint>
#include <cstring>

namespace mt::geometry {

constexpr int kMaxDims = 128;

// Copies n sizes or strides, which may overlap. A call of memmove costs more than the few words that most tensors have.
inline void copy_dims(int64_t* to, const int64_t* from, int n) {
  const auto a = n > 0 ? from[0] : 0, b = n > 1 ? from[1] : 0, c = n > 2 ? from[2] : 0, d = n > 3 ? from[3] : 0;
  switch (n) {
    case 4: to[3] = d; [[fallthrough]];
    case 3: to[2] = c; [[fallthrough]];
    case 2: to[1] = b; [[fallthrough]];
    case 1: to[0] = a; [[fallthrough]];
    case 0: break;
    default: std::memmove(to, from, n * sizeof *to);
  }
}

struct Measure {
  int64_t count;     // items; 0 where the number is too large
  bool contiguous;   // row by row, without gaps
  bool too_large;    // more items than an int64 counts
};

inline Measure measure(int rank, const int64_t* sizes, const int64_t* strides) {
  int64_t want = 1;
  bool contiguous = true, large = false;
  for (int d = rank - 1; d >= 0; --d) {
    if (sizes[d] == 1) continue;
    if (strides[d] != want) contiguous = false;
    if ((want | sizes[d]) >> 31 && sizes[d] > 0 && want > INT64_MAX / sizes[d]) {
      large = true;
      want = 1;
    }
    want *= sizes[d];
  }
  large = large && want;
  return {large ? 0 : want, contiguous || want == 0, large};
}

// The strides of a contiguous tensor; where a dim has no items those of one with one.
inline void contiguous_strides(int rank, const int64_t* sizes, int64_t* strides) {
  int64_t want = 1;
  for (int d = rank - 1; d >= 0; --d) {
    strides[d] = want;
    want *= sizes[d] > 1 ? sizes[d] : 1;
  }
}

// Whether a contiguous tensor has the strides of a fresh one; where a size is 0 or 1, others are possible.
inline bool has_plain_strides(int rank, const int64_t* sizes, const int64_t* strides) {
  int64_t want = 1;
  for (int d = rank - 1; d >= 0; --d) {
    if (strides[d] != want) return false;
    want *= sizes[d] > 1 ? sizes[d] : 1;
  }
  return true;
}

// Dims of size other than 1 by falling stride; returns how many.
inline int stride_order(int rank, const int64_t* sizes, const int64_t* strides, int* order) {
  int n = 0;
  for (int d = 0; d < rank; ++d) {
    if (sizes[d] == 1) continue;
    int i = n++;
    for (; i > 0 && strides[order[i - 1]] < strides[d]; --i) order[i] = order[i - 1];
    order[i] = d;
  }
  return n;
}

// Non-overlapping and dense: some order of the dims makes it contiguous. All sizes are positive.
inline bool is_dense(int rank, const int64_t* sizes, const int64_t* strides) {
  int order[kMaxDims];
  int64_t want = 1;
  for (int i = stride_order(rank, sizes, strides, order) - 1; i >= 0; --i) {
    if (strides[order[i]] != want) return false;
    want *= sizes[order[i]];
  }
  return true;
}

// Whether two items surely share memory: a dim was expanded.
inline bool has_overlap(int rank, const int64_t* sizes, const int64_t* strides) {
  for (int d = 0; d < rank; ++d)
    if (sizes[d] > 1 && strides[d] == 0) return true;
  return false;
}

// The dim that comes i-th from the innermost in channels_last: C, the spatial ones from the last, N.
inline int channels_last_dim(int rank, int i) { return i == 0 ? 1 : i == rank - 1 ? 0 : rank - i; }

// N, C, then `spatial` dims, with C innermost in memory.
inline bool is_channels_last(int rank, const int64_t* sizes, const int64_t* strides, int spatial) {
  if (rank != spatial + 2) return false;
  int64_t want = 1;
  for (int i = 0; i < rank; ++i) {
    const int d = channels_last_dim(rank, i);
    if (sizes[d] == 1) continue;
    if (strides[d] != want) return false;
    want *= sizes[d];
  }
  return true;
}

// Whether torch takes strides for channels last: C has the smallest, then the last dim, and so on. What could be either,
// such as one item a channel, is contiguous. The tensor need not be dense.
inline bool suggests_channels_last(int rank, const int64_t* sizes, const int64_t* strides) {
  if ((rank != 4 && rank != 5) || strides[1] == 0) return false;
  int64_t least = 0;
  for (int i = 0; i < rank; ++i) {
    const int d = channels_last_dim(rank, i);
    if (sizes[d] == 0 || strides[d] < least || (d == 0 && least == strides[1])) return false;
    least = strides[d] * (sizes[d] > 1 ? sizes[d] : 1);
  }
  return true;
}

inline void channels_last_strides(int rank, const int64_t* sizes, int64_t* strides) {
  int64_t want = 1;
  for (int i = 0; i < rank; ++i) {
    const int d = channels_last_dim(rank, i);
    strides[d] = want;
    want *= sizes[d] > 1 ? sizes[d] : 1;
  }
}

// The strides of a dense tensor whose dims lie in the order that these have in memory. All sizes are positive and no dim
// is expanded. A dim of size 1 stands where a contiguous tensor would have it.
inline void packed_strides(int rank, const int64_t* sizes, const int64_t* strides, int64_t* packed) {
  int order[kMaxDims];
  int64_t want = 1;
  for (int i = stride_order(rank, sizes, strides, order) - 1; i >= 0; --i) {
    packed[order[i]] = want;
    want *= sizes[order[i]];
  }
  want = 1;
  for (int d = rank - 1; d >= 0; --d) {
    if (sizes[d] == 1) packed[d] = want;
    want = packed[d] * sizes[d];
  }
}

// Which of two dims a walk over several operands takes first, from the strides of each operand by dim: above 0, b; below 0, a.
// A dim along which an operand does not move says nothing of the order.
inline int compare_dims(int a, int b, const int64_t* sizes, int n, const int64_t* const* strides) {
  for (int k = 0; k < n; ++k) {
    const int64_t x = strides[k][a], y = strides[k][b];
    if (x == 0 || y == 0) continue;
    if (x != y) return x < y ? -1 : 1;
    if (sizes[a] > sizes[b]) return 1;
  }
  return 0;
}

// The strides of a new tensor whose dims lie in the order in which a walk over several operands takes them.
inline void walked_strides(int rank, const int64_t* sizes, int n, const int64_t* const* strides, int64_t* made) {
  int order[kMaxDims];                                                   // from the innermost
  for (int i = 0; i < rank; ++i) order[i] = rank - 1 - i;
  for (int i = 1; i < rank; ++i) {
    for (int at = i, below = i - 1; below >= 0; --below) {
      const int first = compare_dims(order[below], order[at], sizes, n, strides);
      if (first < 0) break;
      if (first == 0) continue;
      const int moved = order[below];
      order[below] = order[at];
      order[at] = moved;
      at = below;
    }
  }
  int64_t want = 1;
  for (int i = 0; i < rank; ++i) {
    made[order[i]] = want;
    want *= sizes[order[i]] > 1 ? sizes[order[i]] : 1;
  }
}

// The strides that show a tensor of `count` items in n new sizes, of as many items, without a copy; false: there are none.
inline bool view_strides(int rank, int64_t count, const int64_t* sizes, const int64_t* strides, int n,
                         const int64_t* new_sizes, int64_t* new_strides) {
  if (rank == 0 || count == 0) {
    if (count == 0 && n == rank && std::memcmp(new_sizes, sizes, n * sizeof(int64_t)) == 0)
      std::memcpy(new_strides, strides, n * sizeof(int64_t));
    else
      contiguous_strides(n, new_sizes, new_strides);
    return true;
  }
  int64_t old_run = 1, new_run = 1, base = strides[rank - 1];
  int v = n - 1;
  for (int d = rank - 1; d >= 0; --d) {
    old_run *= sizes[d];
    // A run of dims ends where the next outer dim does not continue it.
    if (d > 0 && (sizes[d - 1] == 1 || strides[d - 1] == old_run * base)) continue;
    for (; v >= 0 && (new_run < old_run || new_sizes[v] == 1); --v) {
      new_strides[v] = new_run * base;
      new_run *= new_sizes[v];
    }
    if (new_run != old_run) return false;
    if (d > 0) {
      base = strides[d - 1];
      old_run = new_run = 1;
    }
  }
  return v == -1;
}

// Widens shape, of `rank` dims and room for kMaxDims, by sizes. Returns the new rank, or -1 - d where dim d of the result
// does not fit; shape is then as it was met.
inline int broadcast(int rank, int64_t* shape, int n, const int64_t* sizes) {
  if (n > rank) {
    std::memmove(shape + (n - rank), shape, rank * sizeof(int64_t));
    for (int d = 0; d < n - rank; ++d) shape[d] = 1;
    rank = n;
  }
  for (int i = n - 1; i >= 0; --i) {      // from the last: the first that does not fit is the one torch names
    const int d = rank - n + i;
    if (shape[d] == sizes[i] || sizes[i] == 1) continue;
    if (shape[d] != 1) return -1 - d;
    shape[d] = sizes[i];
  }
  return rank;
}

}  // namespace mt::geometry
