// The order that a client established: what host and streams have synchronised with, and the uses of memory compared by it.
#include <algorithm>
#include <cstring>

#include "runtime/check.h"
#include "runtime/memory.h"
#include "runtime/stream.h"

namespace cann_sim {
namespace {

struct Watched {                        // pinned memory that a copy reads
  const void* at;
  size_t bytes;
  uint64_t hash;
  Use use;
};

struct Order {
  std::mutex mutex;                     // guards the rest
  KnownRef host = std::make_shared<Known>(1, 0);
  std::map<uint32_t, Known> streams;    // by actor
  UseMap uses;
  std::vector<Watched> watched;
  std::map<const void*, Known> words;   // of aclrtValueWrite: what the writers knew
};
Order& order() {
  static Order& one = *new Order;
  return one;
}

uint32_t actor_of(const Stream& s) { return static_cast<uint32_t>(s.id) + 1; }

// True: something was new.
bool join(Known& mine, const Known& other) {
  bool news = false;
  if (mine.size() < other.size()) mine.resize(other.size(), 0);
  for (size_t i = 0; i < other.size(); ++i)
    if (mine[i] < other[i]) mine[i] = other[i], news = true;
  return news;
}

Known& knowledge(Order& o, uint32_t actor) {
  Known& known = o.streams[actor];
  if (known.size() <= actor) known.resize(actor + 1, 0);
  return known;
}

bool overlap(const void* a, size_t n, const void* b, size_t m) {
  const auto x = reinterpret_cast<uintptr_t>(a), y = reinterpret_cast<uintptr_t>(b);
  return x < y + m && y < x + n;
}

void verify(const Watched& w) {
  if (hash_source(w.at, w.bytes) == w.hash) return;
  char text[64];
  snprintf(text, sizeof text, "%zu bytes at %p", w.bytes, w.at);
  report_problem("race", std::string(w.use.task) + " changed source",
                 "the host changed pinned memory that " + describe_use(w.use) + " before anything had waited for the copy: " + text);
}

// The caller holds the mutex.
void host_learns(Order& o, const Known& known) {
  auto more = std::make_shared<Known>(*o.host);
  if (!join(*more, known)) return;
  o.host = more;
  auto done = [&](const Watched& w) {
    if ((*more)[w.use.actor] < w.use.count) return false;
    verify(w);
    return true;
  };
  o.watched.erase(std::remove_if(o.watched.begin(), o.watched.end(), done), o.watched.end());
}

// The host's next action, which whatever it queues from now on knows of. The caller holds the mutex.
Use next_of_host(Order& o, const char* function, bool writes) {
  auto more = std::make_shared<Known>(*o.host);
  const uint64_t count = ++(*more)[0];
  o.host = more;
  return {0, count, function, "", 0, writes};
}

}  // namespace

bool following_order() { return settings().check_race || settings().check_memory; }

KnownRef host_knows() {
  Order& o = order();
  std::lock_guard<std::mutex> hold(o.mutex);
  return o.host;
}

void begin_task(const Stream& stream, const Task& task) {
  if (!task.host_knew) return;
  Order& o = order();
  std::lock_guard<std::mutex> hold(o.mutex);
  join(knowledge(o, actor_of(stream)), *task.host_knew);
}

void note_uses(const Stream& stream, const Task& task) {
  std::vector<Access> used;
  task.list_uses(used);
  const uint32_t actor = actor_of(stream);
  Order& o = order();
  std::lock_guard<std::mutex> hold(o.mutex);
  Known& known = knowledge(o, actor);
  Use use{actor, ++known[actor], task.name(), "", stream.custom_tag.load(), false};
  for (const Access& access : used) {
    use.what = access.what;
    use.writes = access.writes;
    o.uses.use(access, use, known);
    if (!access.writes || o.watched.empty()) continue;
    auto rewritten = [&](const Watched& w) { return overlap(w.at, w.bytes, access.at, access.bytes); };
    o.watched.erase(std::remove_if(o.watched.begin(), o.watched.end(), rewritten), o.watched.end());
  }
}

KnownRef this_thread_knows() {
  Order& o = order();
  std::lock_guard<std::mutex> hold(o.mutex);
  Stream* worker = Stream::of_this_worker();
  return worker ? std::make_shared<Known>(knowledge(o, actor_of(*worker))) : o.host;
}

void learn(const KnownRef& known) {
  if (!known) return;
  Order& o = order();
  std::lock_guard<std::mutex> hold(o.mutex);
  if (Stream* worker = Stream::of_this_worker()) join(knowledge(o, actor_of(*worker)), *known);
  else host_learns(o, *known);
}

void host_waited_for(const Stream& stream) {
  Order& o = order();
  std::lock_guard<std::mutex> hold(o.mutex);
  host_learns(o, knowledge(o, actor_of(stream)));
}

void note_host_use(const char* function, const Access& access) {
  Order& o = order();
  std::lock_guard<std::mutex> hold(o.mutex);
  const Use use = next_of_host(o, function, access.writes);
  o.uses.use(access, use, *o.host);
}

void note_allocation(uintptr_t base, uint64_t bytes, bool written) {
  Order& o = order();
  std::lock_guard<std::mutex> hold(o.mutex);
  o.uses.begin_life(base, bytes, written);
}

void note_free(const char* function, uintptr_t base, uint64_t bytes) {
  Order& o = order();
  std::lock_guard<std::mutex> hold(o.mutex);
  if (const Stream* worker = Stream::of_this_worker()) {  // in the order of its stream, of which the host knows nothing yet
    const Known& known = knowledge(o, actor_of(*worker));
    const Use use{actor_of(*worker), known[actor_of(*worker)], function, "", worker->custom_tag.load(), true};
    o.uses.end_life(base, bytes, use, known, false);
    return;
  }
  const Use use = next_of_host(o, function, true);
  o.uses.end_life(base, bytes, use, *o.host, false);
}

void note_word_written(const void* at) {
  Order& o = order();
  std::lock_guard<std::mutex> hold(o.mutex);
  const Stream* worker = Stream::of_this_worker();
  o.uses.begin_life(reinterpret_cast<uintptr_t>(at), 8, true);  // no data: words are made to be used at once
  join(o.words[at], knowledge(o, actor_of(*worker)));
}

void note_word_awaited(const void* at) {
  Order& o = order();
  std::lock_guard<std::mutex> hold(o.mutex);
  auto word = o.words.find(at);
  if (word != o.words.end()) join(knowledge(o, actor_of(*Stream::of_this_worker())), word->second);
}

uint64_t hash_source(const void* at, size_t bytes) {
  auto p = static_cast<const unsigned char*>(at);
  uint64_t hash = 0xcbf29ce484222325ull ^ bytes, word;
  for (; bytes >= 8; p += 8, bytes -= 8) {
    memcpy(&word, p, 8);
    hash = (hash ^ word) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 29;
  }
  for (; bytes; ++p, --bytes) hash = (hash ^ *p) * 0x100000001b3ull;
  return hash;
}

void watch_source(const void* at, size_t bytes, uint64_t hash, const Known& host_knew) {
  Order& o = order();
  std::lock_guard<std::mutex> hold(o.mutex);
  // A task may have written it since the host took the hash, which is as it should be.
  if (o.uses.was_written_unknown(reinterpret_cast<uintptr_t>(at), bytes, host_knew)) return;
  const Stream& s = *Stream::of_this_worker();
  const uint32_t actor = actor_of(s);
  o.watched.push_back({at, bytes, hash, {actor, knowledge(o, actor)[actor], "aclrtMemcpyAsync", "src", s.custom_tag.load(), false}});
}

void note_host_memory_gone(const char* function, const void* at, size_t bytes) {
  Order& o = order();
  std::lock_guard<std::mutex> hold(o.mutex);
  auto gone = [&](const Watched& w) { return overlap(w.at, w.bytes, at, bytes); };
  o.watched.erase(std::remove_if(o.watched.begin(), o.watched.end(), gone), o.watched.end());
  const Use use = next_of_host(o, function, true);
  o.uses.end_life(reinterpret_cast<uintptr_t>(at), bytes, use, *o.host, true);
}

}  // namespace cann_sim
