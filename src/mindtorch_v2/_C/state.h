// What all compiled parts of the core share and read on every call; defined once, in libmt_core. Guarded by the GIL, but for
// what is of a thread.
#pragma once
#include "storage.h"

#define MT_SHARED __attribute__((visibility("default")))

namespace mt {

constexpr int kSpareStorages = 256, kSpareTensors = 1024;

extern MT_SHARED const Library* kernels;                     // the kernel library that suits this processor
extern MT_SHARED Storage* spare_storages[kSpareStorages];    // freed ones, for the next
extern MT_SHARED int spare_storage_count;
extern MT_SHARED PyObject* spare_tensors[kSpareTensors];     // freed, as __cinit__ leaves a new one, but for sizes and strides
extern MT_SHARED int spare_tensor_count;
extern MT_SHARED PyTypeObject* tensor_type;                  // the Python class Tensor
extern MT_SHARED PyTypeObject* parameter_type;

// __thread, not thread_local: no other file has to check whether it is initialised. initial-exec: read without a
// call; so few bytes fit the room that the loader keeps for this.
extern __thread Modes thread_modes __attribute__((tls_model("initial-exec"), visibility("default")));
inline Modes& modes() { return thread_modes; }

// A storage that was freed before, or a new one; null where there is no memory.
inline Storage* take_storage() { return spare_storage_count ? spare_storages[--spare_storage_count] : new_storage(); }
inline void drop_storage(Storage* s) {
  if (spare_storage_count == kSpareStorages) {
    delete s;
    return;
  }
  *s = Storage();
  spare_storages[spare_storage_count++] = s;
}

}  // namespace mt
