// Finds and opens OpenBLAS (the wheel scipy-openblas32: 32-bit integers, names prefixed scipy_) at the first use; one whose
// products are wrong is refused, and its kernels for plainer processors are tried.
#include "blas.h"

#include <dlfcn.h>
#if defined(__linux__)
#include <sched.h>
#endif
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

namespace mt {
namespace {

#if defined(__APPLE__)
constexpr const char* kFile = "libscipy_openblas.dylib";
#else
constexpr const char* kFile = "libscipy_openblas.so";
#endif

std::mutex path_mutex;
std::string& path() {
  static std::string p;
  return p;
}

// An explicit path is the only candidate: falling back to another library would hide the mistake.
std::vector<std::string> candidates() {
  {
    std::lock_guard<std::mutex> lock(path_mutex);
    if (!path().empty()) return {path()};
  }
  if (const char* env = std::getenv("MT_BLAS_LIBRARY"); env && *env) return {env};
  std::vector<std::string> found;
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&candidates), &info) && info.dli_fname) {
    std::string here = info.dli_fname;
    size_t slash = here.rfind('/');
    here = slash == std::string::npos ? "." : here.substr(0, slash);
    for (const char* up : {"/../", "/../../"}) found.push_back(here + up + "scipy_openblas32/lib/" + kFile);
  }
  found.push_back(kFile);
  return found;
}

// The kernels to ask OpenBLAS for, in this order, where those that it chose for the processor are wrong.
#if defined(__aarch64__)
constexpr const char* kPlainer[] = {"NEOVERSEN1", "ARMV8"};
#else
constexpr const char* kPlainer[] = {"Haswell", "Nehalem"};
#endif
constexpr const char* kCoreVariable = "OPENBLAS_CORETYPE";

// While it lives the environment asks OpenBLAS for these kernels; nullptr: for what was asked before.
class CoreType {
 public:
  explicit CoreType(const char* name) : changed_(name) {
    if (!changed_) return;
    if (const char* before = getenv(kCoreVariable)) before_ = before, was_set_ = true;
    setenv(kCoreVariable, name, 1);
  }
  ~CoreType() {
    if (changed_ && was_set_) setenv(kCoreVariable, before_.c_str(), 1);
    else if (changed_) unsetenv(kCoreVariable);
  }

 private:
  bool changed_, was_set_ = false;
  std::string before_;
};

// While it lives the calling thread may run on one processor only. OpenBLAS starts a thread for each processor that it
// sees when it is opened, though we never use them; where the system refuses one (a limit on processes or memory), it
// interrupts the program.
class OneProcessor {
 public:
#if defined(__linux__)
  OneProcessor() {
    const int here = sched_getcpu();
    if (here < 0 || here >= kMost || sched_getaffinity(0, sizeof(before_), before_)) return;
    cpu_set_t only[kMost / CPU_SETSIZE];
    CPU_ZERO_S(sizeof(only), only);
    CPU_SET_S(here, sizeof(only), only);
    changed_ = !sched_setaffinity(0, sizeof(only), only);
  }
  ~OneProcessor() {
    if (changed_) sched_setaffinity(0, sizeof(before_), before_);
  }

 private:
  static constexpr int kMost = 8 * CPU_SETSIZE;  // the system refuses a set that is too small for its processors
  cpu_set_t before_[kMost / CPU_SETSIZE];
  bool changed_ = false;
#endif
};

// OpenBLAS ends the process where it finds no room for its buffer (33 MB), so that is looked for before.
void check_room() {
  constexpr size_t kRoom = 128 << 20;  // the library too
  void* room = mmap(nullptr, kRoom, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) throw std::bad_alloc();
  munmap(room, kRoom);
}

void* symbol(void* handle, const std::string& name) {
  void* p = dlsym(handle, name.c_str());
  if (!p) throw std::runtime_error("OpenBLAS has no symbol " + name);
  return p;
}

Blas read_routines(void* handle) {
  // Threads are ours (parallel_for), so that one pool serves all kernels; OpenBLAS computes in the calling thread.
  reinterpret_cast<void (*)(int)>(symbol(handle, "scipy_openblas_set_num_threads"))(1);
  constexpr const char* names[] = {
#define MT_NAME(name) #name,
      MT_BLAS_ROUTINES(MT_NAME)
#undef MT_NAME
  };
  Blas b;
  for (int type = 0; type < 4; ++type)
    for (int r = 0; r < Blas::kCount; ++r) {
      std::string name = names[r];
      if (type >= 2 && name == "orgqr") name = "ungqr";
      if (type >= 2 && name == "syevd") name = "heevd";
      if (type < 2 && name.compare(0, 2, "he") == 0) name.replace(0, 2, "sy");
      b.routine[type][r] = symbol(handle, std::string("scipy_") + "sdcz"[type] + name + "_");
    }
  // Maps the buffer, which stays: the next call may come when there is no room for it.
  float one = 1;
  int n = 1, info = 0;
  reinterpret_cast<void (*)(const char*, int*, float*, int*, int*, size_t)>(b.routine[0][Blas::potrf])(
      "L", &n, &one, &n, &info, 1);
  return b;
}

std::string describe(void* handle, const std::string& file) {
  auto core = reinterpret_cast<const char* (*)()>(dlsym(handle, "scipy_openblas_get_corename"));
  return file + ", core type " + (core ? core() : "unknown");
}

// The first candidate that multiplies correctly. OpenBLAS selects its kernels when it is loaded, so it is unloaded before the
// next core type is tried.
Blas open_blas() {
  check_room();
  const OneProcessor only;
  std::string missing, refused;
  for (const auto& file : candidates())
    for (int choice = -1; choice < static_cast<int>(std::size(kPlainer)); ++choice) {
      const CoreType asked(choice < 0 ? nullptr : kPlainer[choice]);
      void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (!handle) {
        const char* why = dlerror();
        missing += "\n  " + file + ": " + (why ? why : "cannot be opened");
        break;
      }
      const Blas found = read_routines(handle);
      const std::string wrong = find_wrong_product(found);
      if (wrong.empty()) {
        if (!refused.empty())
          fprintf(stderr, "mindtorch_v2: OpenBLAS multiplies wrongly here and is not used:%s\n  used instead: %s\n",
                  refused.c_str(), describe(handle, file).c_str());
        return found;
      }
      refused += "\n  " + describe(handle, file) + ": " + wrong;
      dlclose(handle);
    }
  if (!refused.empty()) throw std::runtime_error("no OpenBLAS here multiplies correctly:" + refused);
  throw std::runtime_error("matrix operations need OpenBLAS (pip install scipy-openblas32), looked for:" + missing);
}

}  // namespace

void set_blas_path(const char* file) {
  std::lock_guard<std::mutex> lock(path_mutex);
  path() = file ? file : "";
}

const Blas& blas() {
  static const Blas b = open_blas();  // an exception leaves it unset: the next call tries again
  return b;
}

}  // namespace mt
