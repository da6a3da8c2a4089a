// Storage of a tensor: a block of bytes with a count of the tensors that use it. Guarded by the GIL.
#pragma once
#include <Python.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

#include "library.h"

namespace mt {

struct Storage {
  int64_t refs = 1;
  void* data = nullptr;
  size_t nbytes = 0;
  int32_t device = 0, index = -1;
  PyObject* owner = nullptr;   // what keeps the block alive; null: it is the CPU allocator's
  Storage* former = nullptr;   // blocks that it had before and that a kernel may still use; freed when users is 0 again
  int32_t exports = 0;         // arrays, capsules and buffers over the block: while there are any, it must stay
  int32_t users = 0;           // kernels that run over the block without the GIL
  bool pinned = false, resizable = true;
  bool shrunk = false;         // was made smaller: tensors may now reach beyond its end
  bool managed = false;        // the owner is a Memory (backend.pxi), which takes the block back
  bool copy_on_write = false;  // the owner is a SharedBlock (storage.pxi): other storages may read the same bytes
  bool keeps_seen = false;     // `seen` is owned: Python let it go while tensors use the storage, and may ask for it again
  PyObject* seen = nullptr;    // the StorageBase that Python has of it, borrowed; see object()

  // That object, unless it is about to end: weak references and attributes are cleared before its link to the storage.
  PyObject* object() const { return seen && Py_REFCNT(seen) > 0 ? seen : nullptr; }
};

// How often the memory of a tensor was changed in place; shared by the tensor, its views and detached aliases.
struct Version {
  int64_t refs = 1;
  uint32_t value = 0;
};

// Null where there is no memory, as malloc: the core looks, and no exception crosses it.
inline Storage* new_storage() { return new (std::nothrow) Storage(); }
inline Version* new_version() { return new (std::nothrow) Version(); }

// What the running thread has switched on or off.
struct Modes {
  bool grad = true, inference = false, grad_wanted = true, function_off = false;
  // The layers of this thread, which an op tests as one word: open function modes and transforms, a bit for every device
  // type with autocast on, open dispatch modes, profilers. See layers.pxi.
  alignas(8) uint8_t function_mode_count = 0;
  uint8_t transforms = 0, autocast = 0, dispatch_mode_count = 0, watchers = 0, no_layer[3] = {0, 0, 0};
  uint8_t autocast_dtype[4] = {kBFloat16, kBFloat16, kHalf, kHalf};   // of the types: cpu, meta, npu, PrivateUse1
  bool autocast_cache = true;          // weights that were cast are kept until the outermost block ends
  int32_t autocast_depth = 0;          // blocks that are open
  uint32_t level = 0;                  // of the innermost function of torch.func that runs: see _open_level
  PyObject* backward = nullptr;   // the innermost GraphTask that runs, borrowed
  // The thread's ThreadStacks (thread_state.pxi) and its lists, borrowed; null until the thread uses one of them.
  PyObject *stacks = nullptr, *saved_hooks = nullptr, *devices = nullptr;

  bool interposed() const {
    uint64_t layers;
    static_assert(sizeof layers == 5 * sizeof function_mode_count + sizeof no_layer, "five layers in one word");
    memcpy(&layers, &function_mode_count, sizeof layers);
    return layers;
  }
};
inline const Library* open_library(const char* file) {
  void* handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (!handle) throw std::runtime_error(std::string("cannot open the kernel library: ") + dlerror());
  auto entry = reinterpret_cast<const Library* (*)()>(dlsym(handle, "mt_kernel_library"));
  if (!entry) throw std::runtime_error(std::string("no mt_kernel_library in ") + file);
  return entry();
}

// A null where there is no memory: cheaper to test than a Python exception to catch.
inline void* allocate_or_null(const Library* lib, size_t bytes) {
  try {
    return lib->allocate(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

// A kernel's exception as torch's: a dtype that an op does not know is a NotImplementedError, and is named as torch does.
inline void raise_kernel_error() {
  try {
    throw;
  } catch (const std::bad_alloc& e) {
    PyErr_SetString(PyExc_MemoryError, e.what());
  } catch (const std::out_of_range& e) {
    PyErr_SetString(PyExc_IndexError, e.what());
  } catch (const std::invalid_argument& e) {
    PyErr_SetString(PyExc_ValueError, e.what());
  } catch (const std::exception& e) {
    std::string text = e.what();
    const size_t at = text.find("not implemented for '");
    if (at != std::string::npos)
      for (int d = 0; d < kNumDTypes; ++d) {
        const std::string name = std::string("'") + dtype_name(DType(d)) + "'";
        const size_t place = text.find(name, at);
        if (place == std::string::npos) continue;
        text.replace(place, name.size(), std::string("'") + dtype_word(DType(d)) + "'");
        break;
      }
    PyErr_SetString(at == std::string::npos ? PyExc_RuntimeError : PyExc_NotImplementedError, text.c_str());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "unknown error in a kernel");
  }
}

// The build of the kernels that suits this processor best: 0 base, 1 AVX2, 2 AVX-512.
inline int processor_level() {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return avx2 ? avx512 ? 2 : 1 : 0;
#else
  return 0;
#endif
}

}  // namespace mt
