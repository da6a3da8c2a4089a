// Device memory and pinned host memory as the runtime keeps them: inside libascendcl only.
#pragma once
#include <functional>

#include "runtime/device.h"

namespace cann_sim {

constexpr uint64_t kHugePage = 2ull << 20, kPage = 4096;
inline uint64_t round_up(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }

// Where a client's device address points: the workers see the same bytes `shift` further on.
struct Range {
  uintptr_t base = 0, size = 0;
  bool owns(const void* p) const { return reinterpret_cast<uintptr_t>(p) - base < size; }
};
const Range& client_range();          // all device addresses there can be; reserved, never readable by the client
char* worker_address(const void* client);

void free_all(Device& d);             // what the device still has given out

// What aclrtMalloc and aclrtFree do. `extra`: the 32 bytes that kernels may read past the end.
int allocate(void** out, size_t size, int32_t policy, uint64_t extra, const char* function);
int release(void* p, const char* function);

// ---- the address space (address_space.cpp)
// A free run of client addresses, aligned, not soon after one that was just given back; 0 when there is none.
uintptr_t take_addresses(uint64_t size, uint64_t alignment, uintptr_t wanted);
void give_addresses(uintptr_t base);
// Gives the workers pages behind client addresses: fresh ones, or those of a file.
bool back_with_memory(uintptr_t client, uint64_t size);
bool back_with_file(uintptr_t client, uint64_t size, int file, uint64_t offset);
void take_back(uintptr_t client, uint64_t size);
void give_pages(uintptr_t client, uint64_t size);  // to the host; the addresses stay usable

// Fills new memory with what is neither zero nor a number, so that it is not taken for initialised memory.
void poison_fresh(uintptr_t client, uint64_t size);

// ---- accounting
bool charge(Device& d, uint64_t bytes);  // false: the device has no more memory
void discharge(Device& d, uint64_t bytes);

// ---- freed memory stays mapped until the tasks that ran when it was freed are through
void retire(std::function<void()> when_unused);  // called after the memory left the table

// ---- mapped memory inside reservations (virtual_memory.cpp)
void drop_virtual_memory(Device& d);
size_t count_reservations();

// ---- pinned host memory (host_memory.cpp)
bool is_pinned(const void* p, size_t bytes);
// Whether only the device reaches it: an address of client_range() that no host memory is mapped to.
bool is_device_address(const void* p);
// Maps pages of a file to reserved addresses, for the host and for ops alike; and takes them away. False: the host refuses.
bool map_host_memory(uintptr_t base, uint64_t size, int file, uint64_t offset);
void unmap_host_memory(uintptr_t base, uint64_t size);
bool is_mapped(const void* p, size_t bytes);  // host memory that ops reach at its own address (aclrtHostRegister)
void count_pinned(size_t* count, uint64_t* bytes);

}  // namespace cann_sim
