// What the indexing and ordering kernels share: walks over several strided operands, temporaries, index arithmetic.
#pragma once
#include <algorithm>
#include <new>
#include <stdexcept>
#include <string>

#include "allocator.h"
#include "convert.h"
#include "dispatch.h"
#include "library.h"
#include "parallel.h"
#include "scalar.h"

// A namespace of its own: other files of the library have helpers of the same names.
namespace mt {
namespace indexing {

inline int wrap_dim(int64_t dim, int ndim) {
  int64_t n = std::max(ndim, 1);
  if (dim < -n || dim >= n)
    throw std::out_of_range("Dimension out of range (expected to be in range of [" + std::to_string(-n) + ", " +
                            std::to_string(n - 1) + "], but got " + std::to_string(dim) + ")");
  return int(dim < 0 ? dim + n : dim);
}

// A 0-dim tensor counts as one of one dim of one item.
inline int64_t size_at(const View& v, int d) { return d < v.ndim ? v.sizes[d] : 1; }
inline int64_t stride_at(const View& v, int d) { return d < v.ndim ? v.strides[d] : 1; }

// Temporary memory from the caching allocator, not zeroed: a large std::vector would pay a page fault per 4 KiB.
template <class T> class Scratch {
 public:
  Scratch() = default;
  explicit Scratch(int64_t n) : data_(static_cast<T*>(allocate(bytes_for(n)))), bytes_(bytes_for(n)) {}
  Scratch(Scratch&& o) noexcept : data_(o.data_), bytes_(o.bytes_) { o.data_ = nullptr; }
  Scratch& operator=(Scratch&& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(bytes_, o.bytes_);
    return *this;
  }
  Scratch(const Scratch&) = delete;
  ~Scratch() {
    if (data_) release(data_, bytes_);
  }
  T* get() const { return data_; }
  T& operator[](int64_t i) const { return data_[i]; }

 private:
  static size_t bytes_for(int64_t n) {
    // A count from the caller may be too large to be multiplied.
    if (n < 0 || n > INT64_MAX / int64_t(sizeof(T))) throw std::bad_alloc();
    return size_t(n) * sizeof(T);
  }
  T* data_ = nullptr;
  size_t bytes_ = 0;
};

// `like` as contiguous memory of a dtype: itself where it is that already, else a temporary.
class Packed {
 public:
  // The temporary is filled from `like`; copied back by finish(); both. kReadStrided: filled, but made for another dtype only.
  enum Use { kRead, kWrite, kUpdate, kReadStrided };
  Packed(const View& like, DType dtype, Use use) : view(like), like_(like) {
    if (like.dtype == dtype && (use == kReadStrided || like.contiguous())) return;
    scratch_ = Scratch<char>(std::max<int64_t>(like.numel(), 1) * itemsize(dtype));
    int64_t step = 1;
    for (int d = like.ndim - 1; d >= 0; --d) {
      strides_[d] = step;
      step *= like.sizes[d];
    }
    view.data = scratch_.get();
    view.strides = strides_;
    view.dtype = dtype;
    if (use != kWrite) copy(view, like);
  }
  Packed(const Packed&) = delete;
  void finish() {
    if (scratch_.get()) copy(like_, view);
  }
  template <class T> T* ptr() const { return view.ptr<T>(); }
  View view;

 private:
  View like_;
  int64_t strides_[kMaxDims];
  Scratch<char> scratch_;
};

// A row-major walk over one shape with up to N strided operands; the last dim is left to the caller's loop.
template <int N> struct Walk {
  int32_t ops = N, ndim = 0;
  int64_t sizes[kMaxDims];
  int64_t strides[kMaxDims + 1][N];
  int64_t base[N] = {};

  int64_t numel() const {
    int64_t n = 1;
    for (int d = 0; d < ndim; ++d) n *= sizes[d];
    return n;
  }
  const int64_t* inner() const { return strides[ndim - 1]; }

  void narrow(int d, int64_t begin, int64_t end) {
    for (int k = 0; k < ops; ++k) base[k] += begin * strides[d][k];
    sizes[d] = end - begin;
  }

  // Drops dims of one item and merges neighbours that every operand walks as one; leaves at least one dim.
  void collapse() {
    int last = -1;
    for (int d = 0; d < ndim; ++d) {
      if (sizes[d] == 1) continue;
      bool merge = last >= 0;
      for (int k = 0; k < ops && merge; ++k) merge = strides[last][k] == strides[d][k] * sizes[d];
      if (!merge) sizes[++last] = sizes[d];
      else sizes[last] *= sizes[d];
      for (int k = 0; k < ops; ++k) strides[last][k] = strides[d][k];
    }
    if (last < 0) {
      sizes[last = 0] = 1;
      for (int k = 0; k < ops; ++k) strides[0][k] = 0;
    }
    ndim = last + 1;
  }

  // Calls f(offset of each operand, n) for the runs of n items along the last dim that make up [begin, end).
  template <class F> void run(int64_t begin, int64_t end, F&& f) const {
    int64_t at[kMaxDims], offset[N], rest = begin;
    for (int k = 0; k < ops; ++k) offset[k] = base[k];
    for (int d = ndim - 1; d >= 0; --d) {
      at[d] = rest % sizes[d];
      rest /= sizes[d];
      for (int k = 0; k < ops; ++k) offset[k] += at[d] * strides[d][k];
    }
    while (begin < end) {
      int d = ndim - 1;
      int64_t n = std::min(sizes[d] - at[d], end - begin);
      f(static_cast<const int64_t*>(offset), n);
      begin += n;
      for (int k = 0; k < ops; ++k) offset[k] -= at[d] * strides[d][k];
      at[d] = 0;
      while (--d >= 0) {
        for (int k = 0; k < ops; ++k) offset[k] += strides[d][k];
        if (++at[d] < sizes[d]) break;
        for (int k = 0; k < ops; ++k) offset[k] -= sizes[d] * strides[d][k];
        at[d] = 0;
      }
    }
  }
};

// One run of items: `plain` lies at its own stride; item k of `indexed` lies at k * indexed_stride + offset[k]
// (offset == nullptr: all zero). Strides and offsets count items.
using Items = void (*)(char* plain, int64_t plain_stride, char* indexed, int64_t indexed_stride,
                       const int64_t* offset, int64_t n);
Items take_items(DType dtype);                     // plain = indexed
Items put_items(DType dtype);                      // indexed = plain
enum Reduce { kSum, kProd, kMax, kMin };
Items combine_items(DType dtype, Reduce reduce, const char* op);  // indexed = reduce(indexed, plain); scatter.cpp

// Throws torch's error for an index that is out of range.
using OutOfBounds = void (*)(int64_t index, int dim, int64_t size);
void bad_index(int64_t index, int dim, int64_t size);          // IndexError, of index
void bad_gather(int64_t index, int dim, int64_t size);         // RuntimeError, of gather and scatter
// Indices of rows without items: nothing is read by them, so no walk looks at them. Throws where one is out of bounds.
void check_indices(const View& index, int64_t size);
void bad_select(int64_t index, int dim, int64_t size);         // IndexError "index out of range in self"

// The walk of every indexing op. Operand 0 is the plain side (the output of gather, the source of scatter), operand 1
// the indexed side, whose indexed dims have stride 0; then come the index tensors, whose values times `stride`
// are added to the offset of operand 1.
struct IndexWalk {
  Walk<kMaxDims + 2> walk;
  const int64_t* index[kMaxDims];
  int64_t size[kMaxDims], stride[kMaxDims];
  int32_t dim[kMaxDims];
  bool wrap = false;                               // negative indices count from the end
  bool ready = false;                              // index[0] holds offsets already
  OutOfBounds bad = bad_index;

  IndexWalk() { walk.ops = 2; }
  int count() const { return walk.ops - 2; }
  void add(const View& v, int64_t size_, int64_t stride_, int dim_) {
    int k = count();
    index[k] = v.ptr<int64_t>();
    size[k] = size_;
    stride[k] = stride_;
    dim[k] = dim_;
    ++walk.ops;
  }
  const int64_t* offsets(const int64_t* at, int64_t n, int64_t* buffer) const;
  void run(Items items, const View& plain, const View& indexed);    // reads: any split over threads
  void write(Items items, const View& plain, const View& indexed);  // writes: a thread owns what it writes

 private:
  bool write_by_range(Items items, const View& plain, const View& indexed) const;
};

// One index along `dim`: of the walk's full shape (gather, scatter), or 1-D (index_select, index_add).
void along_dim(IndexWalk& w, const View& shape, const View& plain, const View& indexed, const View& index, int dim);

// Index tensors (some not given) for the first dims of self, as torch's advanced indexing.
void advanced(IndexWalk& w, const View& self, const View* indices, int count, const View& plain);

}  // namespace indexing
using namespace indexing;
}  // namespace mt
