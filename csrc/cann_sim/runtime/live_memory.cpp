// The table of live device memory: looking addresses up, pinning what a task uses, and giving pages back afterwards.
#include <algorithm>
#include <cstdio>
#include <deque>
#include <shared_mutex>

#include "runtime/allocation.h"
#include "runtime/stream.h"

namespace cann_sim {
namespace {

// Counts what was retired. A thread's memory of what it looked up is good while the count stays the same.
std::atomic<uint64_t> generation{1};

// ---- who is in the middle of a task: the generation at which it began, 0 when not
struct User {
  std::atomic<uint64_t> since{0};
  int depth = 0;
  bool in_use = true;
};
struct Users {
  std::mutex mutex;
  std::vector<User*> all;

  User* join() {
    std::lock_guard<std::mutex> hold(mutex);
    for (User* u : all)
      if (!u->in_use) return u->in_use = true, u;
    all.push_back(new User);
    return all.back();
  }
  void leave(User* u) {
    std::lock_guard<std::mutex> hold(mutex);
    u->in_use = false;
  }
  uint64_t oldest() {  // UINT64_MAX: no thread is in a task
    std::lock_guard<std::mutex> hold(mutex);
    uint64_t least = UINT64_MAX;
    for (User* u : all)
      if (uint64_t since = u->since.load()) least = std::min(least, since);
    return least;
  }
};
Users& users() {
  static Users& one = *new Users;
  return one;
}
User& this_user() {
  struct Membership {
    User* user = users().join();
    ~Membership() { users().leave(user); }
  };
  thread_local Membership mine;
  return *mine.user;
}

// ---- what waits for the tasks that may still use it
struct Retired {
  uint64_t generation;
  std::function<void()> when_unused;
};
struct Limbo {
  std::mutex mutex;
  std::deque<Retired> waiting;
  std::atomic<size_t> count{0};

  // The first that is no longer used; empty: there is none.
  std::function<void()> take_unused() {
    std::lock_guard<std::mutex> hold(mutex);
    if (waiting.empty() || waiting.front().generation > users().oldest()) return nullptr;
    std::function<void()> act = std::move(waiting.front().when_unused);
    waiting.pop_front();
    count = waiting.size();
    return act;
  }
  // Called by destructors on workers: allocates nothing, and what cannot be freed leaks until the process ends.
  void clear_unused() noexcept {
    while (std::function<void()> act = take_unused()) {
      try {
        act();
      } catch (const std::exception& error) {
        fprintf(stderr, "cann_sim: device memory is not freed: %s\n", error.what());
      }
    }
  }
};
Limbo& limbo() {
  static Limbo& one = *new Limbo;
  return one;
}

// ---- the table
struct Table {
  std::shared_mutex mutex;
  std::map<uintptr_t, Allocation> live;
  uint64_t entered = 0;
  std::deque<std::pair<uintptr_t, uint64_t>> freed;  // the last ones, for messages

  std::map<uintptr_t, Allocation>::iterator at(uintptr_t p) {
    auto i = live.upper_bound(p);
    if (i == live.begin()) return live.end();
    --i;
    return p - i->first < i->second.size ? i : live.end();
  }
};
Table& table() {
  static Table& one = *new Table;
  return one;
}

struct Remembered {
  uint64_t generation = 0;
  uintptr_t base = 0, size = 0;
  Device* device = nullptr;
};
constexpr int kRemembered = 4;
thread_local Remembered remembered[kRemembered];
thread_local int next_remembered = 0;

// Whether [p, p + bytes) is live. Mapped pieces of a reservation that touch each other count as one.
bool look_up(uintptr_t p, size_t bytes, Device** device) {
  uint64_t now = generation.load();
  for (const Remembered& r : remembered)
    if (r.generation == now && p - r.base < r.size && bytes <= r.size - (p - r.base)) return *device = r.device, true;
  Table& t = table();
  std::shared_lock<std::shared_mutex> hold(t.mutex);
  now = generation.load();
  auto i = t.at(p);
  if (i == t.live.end()) return false;
  uintptr_t base = i->first, end = base + i->second.size;
  if (i->second.mapped)
    for (auto next = std::next(i); end - p < bytes && next != t.live.end() && next->first == end; ++next)
      end += next->second.size;
  *device = i->second.device;
  if (end - p < bytes) return false;
  remembered[next_remembered] = {now, base, end - base, *device};
  next_remembered = (next_remembered + 1) % kRemembered;
  return true;
}

std::string describe(uintptr_t p, size_t bytes) {
  char text[256];
  Table& t = table();
  std::shared_lock<std::shared_mutex> hold(t.mutex);
  auto i = t.at(p);
  const char* what = client_range().owns(reinterpret_cast<void*>(p)) ? "is not allocated" : "is not a device address";
  if (i != t.live.end()) {
    snprintf(text, sizeof text, "%zu bytes at %#zx go past the end of an allocation of %zu bytes at %#zx", bytes,
             static_cast<size_t>(p), static_cast<size_t>(i->second.size), static_cast<size_t>(i->first));
    return text;
  }
  for (auto& f : t.freed)
    if (p - f.first < f.second) what = "was freed";
  snprintf(text, sizeof text, "device memory at %#zx (%zu bytes) %s", static_cast<size_t>(p), bytes, what);
  return text;
}

}  // namespace

void enter_allocation(uintptr_t base, const Allocation& made) {
  Table& t = table();
  // What other processes may have written, or what was there before, is not fresh.
  if (following_order()) note_allocation(base, made.size, made.mapped || made.imported || made.shared);
  std::unique_lock<std::shared_mutex> hold(t.mutex);
  Allocation& entered = t.live[base] = made;
  if (!entered.number) entered.number = ++t.entered;
}

bool remove_allocation(uintptr_t base, bool mapped, Allocation* removed, const char* function) {
  Table& t = table();
  std::unique_lock<std::shared_mutex> hold(t.mutex);
  auto i = t.live.find(base);
  if (i == t.live.end() || i->second.mapped != mapped) return false;
  *removed = i->second;
  t.live.erase(i);
  t.freed.emplace_back(base, removed->size);
  if (t.freed.size() > 256) t.freed.pop_front();
  hold.unlock();
  if (following_order()) note_free(function, base, removed->size);
  return true;
}

std::vector<std::pair<uintptr_t, Allocation>> live_allocations(const Device* d) {
  Table& t = table();
  std::shared_lock<std::shared_mutex> hold(t.mutex);
  std::vector<std::pair<uintptr_t, Allocation>> found;
  for (auto& i : t.live)
    if (!d || i.second.device == d) found.push_back(i);
  return found;
}

bool find_allocation(const void* p, uintptr_t* base, Allocation* found) {
  Table& t = table();
  std::shared_lock<std::shared_mutex> hold(t.mutex);
  auto i = t.at(reinterpret_cast<uintptr_t>(p));
  if (i == t.live.end()) return false;
  *base = i->first;
  *found = i->second;
  return true;
}

std::string describe_memory(const void* p, size_t bytes) { return describe(reinterpret_cast<uintptr_t>(p), bytes); }

void retire(std::function<void()> when_unused) {
  Limbo& l = limbo();
  {
    std::lock_guard<std::mutex> hold(l.mutex);
    l.waiting.push_back({generation.fetch_add(1) + 1, std::move(when_unused)});
    l.count = l.waiting.size();
  }
  l.clear_unused();
}

Pins::Pins() {
  User& me = this_user();
  if (me.depth++ == 0) me.since = generation.load();  // before anything is looked up: see retire()
}

Pins::~Pins() {
  User& me = this_user();
  if (--me.depth) return;
  me.since = 0;
  if (limbo().count.load()) limbo().clear_unused();
}

void* Pins::resolve(const void* p, size_t bytes) {
  if (!p && !bytes) return nullptr;
  Device* owner = nullptr;
  if (!is_device_address(p) && is_mapped(p, bytes)) return const_cast<void*>(p);
  if (!look_up(reinterpret_cast<uintptr_t>(p), bytes, &owner))
    throw DeviceFault(ACL_ERROR_RT_AICORE_EXCEPTION, describe_memory(p, bytes));
  Stream* worker = Stream::of_this_worker();
  if (worker && owner != &worker->device && !worker->device.reaches(*owner))
    throw DeviceFault(ACL_ERROR_RT_AICORE_EXCEPTION,
                      "device " + std::to_string(worker->device.id) + " used memory of device " +
                          std::to_string(owner->id) + " without aclrtDeviceEnablePeerAccess");
  return worker_address(p);
}

bool is_device_memory(const void* p, size_t bytes) {
  Device* owner;
  if (!is_device_address(p)) return is_mapped(p, bytes);
  return look_up(reinterpret_cast<uintptr_t>(p), bytes, &owner);
}

}  // namespace cann_sim
