// The one door of the kernel library: a table of entry points. The library is built once per instruction set
// (base, avx2) as a shared object of its own; a client opens the best one and calls through this table.
#pragma once
#include <cstddef>
#include <initializer_list>

#include "view.h"

namespace mt {

// ---- pointwise -------------------------------------------------------------------------------------------
// A pointwise kernel is a set of loops over contiguous memory, one per compute dtype. ptr holds the outputs, then
// the inputs; all are arrays of n items of the compute dtype, except as `out` and `first` say. The engine in
// pointwise.cpp brings every other case to this one: broadcasting, strides, casts, threads. float16 and bfloat16
// are computed by the float loop, the other small dtypes where the kernel says so.
using Loop = void (*)(void* const* ptr, int64_t n, const Attr* attr);
struct Pointwise {
  const char* name;
  int32_t nout, nin;
  int32_t out;                // -1: the compute dtype; -2: its real counterpart (abs of complex); else a DType (kBool)
  int32_t first;              // dtype of input 0: -1: the compute dtype; else a DType (kBool for the mask of where)
  Loop loop[kNumDTypes];      // nullptr: this compute dtype is not supported
  int32_t rare = 0;           // kFloat8: the loop of float serves them too; kComplex32: that of complex64 does
};
// The dtype whose loop serves one that has none of its own: itself where there is no such.
inline DType loop_dtype(const Pointwise* k, DType d) {
  if (k->loop[d] || is_integral(d)) return d;
  if (is_float8(d)) return k->rare & kFloat8 && k->loop[kFloat] ? kFloat : d;
  if (d == kComplexHalf) return k->rare & kComplex32 && k->loop[kComplexFloat] ? kComplexFloat : d;
  return (d == kHalf || d == kBFloat16) && k->loop[kFloat] ? kFloat : d;
}

// ---- caching allocator -----------------------------------------------------------------------------------
struct AllocatorStats {
  int64_t allocated_bytes, peak_allocated_bytes, reserved_bytes, peak_reserved_bytes, cached_bytes;
  int64_t allocations, cache_hits;
  int64_t bound_bytes, limit_bytes;  // what may be cached now; what the machine or the container allows the process
  int64_t idle_ms;                   // for how long unneeded memory is cached
};

struct Library {
  const char* level;                                       // "avx512", "avx2" or "base"
  Kernel (*find)(const char* name);                        // nullptr when there is none
  int32_t (*rare)(const char* name);                       // the rare dtypes that the kernel takes
  const Pointwise* (*find_pointwise)(const char* name);    // nullptr when there is none
  // t: outputs, then inputs. Inputs broadcast to the shape of output 0; dtypes are cast to `compute` and back.
  void (*pointwise)(const Pointwise* k, DType compute, const View* t, const Attr* attr);
  void* (*allocate)(size_t bytes);                         // 64-byte aligned; throws std::bad_alloc
  void (*release)(void* p, size_t bytes);                  // bytes as given to allocate
  void (*empty_cache)();
  void (*allocator_stats)(AllocatorStats* out);
  int64_t (*memory_limit)(const char* root);               // of the process; root: "" but for tests
  int (*get_num_threads)();
  void (*set_num_threads)(int n);
  Generator* (*generator_new)(uint64_t seed);
  void (*generator_delete)(Generator*);
  void (*generator_seed)(Generator*, uint64_t seed);
  uint64_t (*generator_initial_seed)(Generator*);
  size_t (*generator_state)(Generator*, void* out);        // torch's CPU state layout; out == nullptr: size only
  void (*generator_set_state)(Generator*, const void* state, size_t bytes);
  uint64_t (*generator_random64)(Generator*);
  void (*set_blas_path)(const char* file);                 // libscipy_openblas.so, opened at the first matmul
  const char* (*bf16_unit)();                              // "amx", "avx512_bf16" or ""
};

extern "C" const Library* mt_kernel_library();

// Registration, at static initialisation: `static Register r("topk", topk);` with a comment giving the schema.
struct Register {
  Register(const char* name, Kernel kernel);
};
struct RegisterPointwise {
  explicit RegisterPointwise(const Pointwise& k);
};
// Kernels, registered before in the same file, that take rare dtypes. A pointwise one has loops for what is not in
// Pointwise::rare.
struct Serves {
  Serves(int32_t rare, std::initializer_list<const char*> names);
};

// For kernels that build on others of this library.
void pointwise(const Pointwise* k, DType compute, const View* t, const Attr* attr);
const Pointwise* find_pointwise(const char* name);
Kernel find(const char* name);
int32_t rare_dtypes(const char* name);
void copy(const View& dst, const View& src);               // strided, casting; copy.cpp

}  // namespace mt
