// MPI's C functions, opened with dlopen by MPI's standard ABI, and the waiting for their requests. Knows nothing of Python.
#pragma once
#include <dlfcn.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "scalar.h"

namespace mt_mpi {

using Handle = void*;  // of a communicator, data type, operation, group or request
using Count = int64_t;

inline Handle constant(intptr_t number) { return reinterpret_cast<Handle>(number); }
const Handle kWorld = constant(0x101), kErrorsReturn = constant(0x143), kNoRequest = constant(0x180), kByte = constant(0x247);
constexpr int kSerialized = 2048;  // MPI_THREAD_SERIALIZED: any thread may call, one at a time
constexpr int kErrorText = 512;

using UserFunction = void(void* in, void* inout, Count* count, Handle* type);

// One line a function: the member has the name of the function without MPI_.
#define MT_MPI_FUNCTIONS(X)                                                                                            \
  X(Init_thread, int*, char***, int, int*)                                                                             \
  X(Initialized, int*)                                                                                                 \
  X(Finalized, int*)                                                                                                   \
  X(Finalize)                                                                                                          \
  X(Comm_rank, Handle, int*)                                                                                           \
  X(Comm_size, Handle, int*)                                                                                           \
  X(Comm_dup, Handle, Handle*)                                                                                         \
  X(Comm_free, Handle*)                                                                                                \
  X(Comm_group, Handle, Handle*)                                                                                       \
  X(Comm_create_group, Handle, Handle, int, Handle*)                                                                   \
  X(Comm_set_errhandler, Handle, Handle)                                                                               \
  X(Group_incl, Handle, int, const int*, Handle*)                                                                      \
  X(Group_free, Handle*)                                                                                               \
  X(Op_create_c, UserFunction*, int, Handle*)                                                                          \
  X(Error_string, int, char*, int*)                                                                                    \
  X(Test, Handle*, int*, int*)                                                                                         \
  X(Ibarrier, Handle, Handle*)                                                                                         \
  X(Iallreduce_c, const void*, void*, Count, Handle, Handle, Handle, Handle*)                                          \
  X(Ireduce_c, const void*, void*, Count, Handle, Handle, int, Handle, Handle*)                                        \
  X(Ireduce_scatter_block_c, const void*, void*, Count, Handle, Handle, Handle, Handle*)                               \
  X(Ibcast_c, void*, Count, Handle, int, Handle, Handle*)                                                              \
  X(Iallgather_c, const void*, Count, Handle, void*, Count, Handle, Handle, Handle*)                                   \
  X(Igather_c, const void*, Count, Handle, void*, Count, Handle, int, Handle, Handle*)                                 \
  X(Iscatter_c, const void*, Count, Handle, void*, Count, Handle, int, Handle, Handle*)                                \
  X(Ialltoallv_c, const void*, const Count*, const intptr_t*, Handle, void*, const Count*, const intptr_t*, Handle,    \
    Handle, Handle*)                                                                                                   \
  X(Isend_c, const void*, Count, Handle, int, int, Handle, Handle*)                                                    \
  X(Irecv_c, void*, Count, Handle, int, int, Handle, Handle*)

struct Mpi {
#define MT_MPI_MEMBER(name, ...) int (*name)(__VA_ARGS__) = nullptr;
  MT_MPI_FUNCTIONS(MT_MPI_MEMBER)
#undef MT_MPI_MEMBER
  std::mutex lock;  // around every call: one thread at a time is enough for a progress thread and its callers

  // "" or what is missing.
  std::string open(const char* path) {
    void* library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!library) return dlerror();
    std::string missing;
#define MT_MPI_RESOLVE(name, ...)                                             \
  name = reinterpret_cast<int (*)(__VA_ARGS__)>(dlsym(library, "MPI_" #name)); \
  if (!name) missing += " MPI_" #name;
    MT_MPI_FUNCTIONS(MT_MPI_RESOLVE)
#undef MT_MPI_RESOLVE
    return missing.empty() ? "" : std::string(path) + " lacks" + missing;
  }

  std::string text(int code) {
    char buffer[kErrorText] = "";
    int length = 0;
    std::lock_guard<std::mutex> held(lock);
    if (Error_string(code, buffer, &length)) return "MPI error " + std::to_string(code);
    return std::string(buffer, length);
  }
};

inline Mpi& mpi() {
  static Mpi* one = new Mpi;  // never destroyed: a thread may still ask at exit
  return *one;
}

// One operation that was started. Two threads may ask for it; the one that finds it done frees it in MPI.
struct Pending {
  Handle request = kNoRequest;
  std::atomic<int> state{0};  // 1: done
  std::atomic<int> error{0};
  int status[8] = {-1, -1};  // MPI_Status: source and tag come first
  // What alltoallv reads until it is done.
  std::vector<Count> counts;
  std::vector<intptr_t> offsets;

  bool test() {
    if (state.load(std::memory_order_acquire)) return true;
    std::lock_guard<std::mutex> held(mpi().lock);
    if (state.load(std::memory_order_acquire)) return true;
    int flag = 0, code = mpi().Test(&request, &flag, status);
    if (code) error = code;
    if (code || flag) state.store(1, std::memory_order_release);
    return code || flag;
  }
};

using Clock = std::chrono::steady_clock;

// Until one of them is done; false: the time is over. MPI moves data only while it is asked, so this asks without rest
// while that moves something (an empty question takes about 200 ns), and takes naps when it does not. Not sched_yield: on
// a busy host that gives away the whole turn, and comes back after milliseconds; who wakes from a nap comes first.
inline bool wait_any(const std::vector<Pending*>& all, double seconds, int nap_us) {
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  constexpr auto kBusy = std::chrono::microseconds(4), kSpin = std::chrono::microseconds(5);
  static thread_local bool precise = prctl(PR_SET_TIMERSLACK, 1000UL) == 0;  // naps are else 50 us longer
  (void)precise;
  auto before = Clock::now(), moved = before;
  for (;;) {
    bool done = false;
    for (Pending* one : all) done |= one->test();
    if (done) return true;
    auto now = Clock::now();
    if (now > deadline) return false;
    if (now - before > kBusy) moved = now;
    if (now - moved > kSpin) usleep(nap_us);
    before = Clock::now();
  }
}

enum class Reduce { sum, product, minimum, maximum };

// MPI has no 16-bit floats: they travel as 16-bit integers, and these functions combine them in float32.
template <class T, Reduce op> void combine(void* in, void* inout, Count* count, Handle*) {
  const T* from = static_cast<const T*>(in);
  T* into = static_cast<T*>(inout);
  for (Count i = 0; i < *count; ++i) {
    float a = mt::cast<float>(into[i]), b = mt::cast<float>(from[i]);
    float c = op == Reduce::sum       ? a + b
              : op == Reduce::product ? a * b
              : op == Reduce::minimum ? (a < b || a != a ? a : b)
                                      : (a > b || a != a ? a : b);
    into[i] = mt::cast<T>(c);
  }
}

template <class T> UserFunction* combine_of(int op) {
  switch (op) {
    case 0: return combine<T, Reduce::sum>;
    case 1: return combine<T, Reduce::product>;
    case 2: return combine<T, Reduce::minimum>;
    default: return combine<T, Reduce::maximum>;
  }
}

inline UserFunction* half_function(bool bfloat, int op) {
  return bfloat ? combine_of<mt::bf16>(op) : combine_of<mt::f16>(op);
}

}  // namespace mt_mpi
