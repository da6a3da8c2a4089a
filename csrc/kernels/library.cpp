// The table of entry points that a client of the kernel library gets; no work is done here.
#include "library.h"

#include "allocator.h"
#include "gemm.h"
#include "memory_limit.h"
#include "parallel.h"
#include "random.h"

namespace mt {

void set_blas_path(const char* file);  // blas.cpp

namespace {

#if defined(__AVX512F__)
constexpr const char* kLevel = "avx512";
#elif defined(__AVX2__)
constexpr const char* kLevel = "avx2";
#else
constexpr const char* kLevel = "base";
#endif

const Library table = {
    kLevel,
    find,
    rare_dtypes,
    find_pointwise,
    pointwise,
    allocate,
    release,
    empty_cache,
    allocator_stats,
    memory_limit,
    get_num_threads,
    set_num_threads,
    [](uint64_t seed) { return new Generator(seed); },
    [](Generator* g) { delete g; },
    [](Generator* g, uint64_t seed) { g->reseed(seed); },
    [](Generator* g) { return g->seed; },
    [](Generator* g, void* out) { return g->get_state(out); },
    [](Generator* g, const void* state, size_t bytes) { g->set_state(state, bytes); },
    [](Generator* g) { return g->random64(); },
    set_blas_path,
    bf16_unit,
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const Library* mt_kernel_library() { return &table; }

}  // namespace mt
