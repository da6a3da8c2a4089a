// aclInit and aclFinalize, and the report of what is still alive at the end.
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <regex>

#include "runtime/allocation.h"
#include "runtime/graph.h"
#include "runtime/guard.h"
#include "runtime/physical.h"

namespace cann_sim {
namespace {

std::mutex init_mutex;
uint64_t inits = 0;                     // aclInit less aclFinalizeReference
bool finalized = false;
std::atomic<int> device_of_threads{-1};

// {"defaultDevice": {"default_device": "0"}} in aclInit's file; the rest of it configures what is not simulated. -1: no such
// entry, -2: it names no device.
int read_default_device(const char* path) {
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::smatch found;
  if (!std::regex_search(text, found, std::regex("\"default_device\"\\s*:\\s*\"?(-?\\d*)"))) return -1;
  const std::string number = found[1];
  if (number.empty() || number.size() > 4) return -2;
  const int device = std::stoi(number);
  return device < 0 || device >= static_cast<int>(device_count()) ? -2 : device;
}

// What there is to begin and to end is the parent's, and so may be every lock.
int refuse_forked(const char* function) {
  if (!is_forked_child()) return 0;
  return fail(ACL_ERROR_RT_DEV_SETUP_ERROR, "%s: the process was forked after its parent had used a device", function);
}

struct Counter {
  const char* what;
  size_t (*count)();
  std::string (*which)();
};
std::vector<Counter>& counters() {
  static auto& one = *new std::vector<Counter>;
  return one;
}

struct Alive {
  std::string what;
  size_t count;
  uint64_t bytes;
  std::string (*which)() = nullptr;
};

// The largest allocations, with the number of the call that made them.
std::string largest_allocations() {
  auto live = live_allocations(nullptr);
  const size_t shown = std::min<size_t>(live.size(), 3);
  std::partial_sort(live.begin(), live.begin() + static_cast<ptrdiff_t>(shown), live.end(),
                    [](const auto& a, const auto& b) { return a.second.size > b.second.size; });
  std::string text;
  for (size_t i = 0; i < shown; ++i)
    text += (i ? ", " : ": ") + std::to_string(live[i].second.size) + " bytes by allocation " +
            std::to_string(live[i].second.number) + " of device " + std::to_string(live[i].second.device->id);
  return text;
}

std::vector<Alive> list_alive() {
  size_t mallocs = 0, mapped = 0, pinned;
  uint64_t bytes = 0, mapped_bytes = 0, pinned_bytes;
  for (auto& live : live_allocations(nullptr)) {
    (live.second.mapped ? mapped : mallocs)++;
    (live.second.mapped ? mapped_bytes : bytes) += live.second.size;
  }
  count_pinned(&pinned, &pinned_bytes);
  size_t made = 0, defaults = contexts().live();  // each context has a default stream
  for (Context* c : contexts().all()) made += !c->primary;
  std::vector<Alive> found = {
      {"allocations of device memory", mallocs, bytes, largest_allocations},
      {"mappings of device memory", mapped, mapped_bytes},
      {"reservations of addresses", count_reservations(), 0},
      {"allocations or registrations of pinned host memory", pinned, pinned_bytes},
      {"handles of physical memory", physical().live(), 0},
      {"graphs", graphs().live(), 0},
      {"conditions of graphs", live_conditions(), 0},
      {"contexts", made, 0},
      {"streams", streams().live() - defaults, 0},
      {"events", events().live(), 0},
  };
  std::lock_guard<std::mutex> hold(init_mutex);
  for (const Counter& c : counters()) found.push_back({c.what, c.count(), 0, c.which});
  return found;
}

void report_leaks(const char* when) {
  for (const Alive& a : list_alive()) {
    if (!a.count) continue;
    std::string text = std::string(when) + ": still alive: " + std::to_string(a.count) + " " + a.what;
    if (a.bytes) text += " (" + std::to_string(a.bytes) + " bytes)";
    if (a.which) text += a.which();
    if (settings().check_leak) report_problem("leak", a.what, text);
    else fprintf(stderr, "cann_sim: %s\n", text.c_str());
  }
}


int finalize() {
  device_of_threads = -1;
  if (settings().strict || settings().check_leak) report_leaks("aclFinalize");
  close_all_devices();
  close_trace();
  write_calls();
  return 0;
}

}  // namespace

int default_device() { return device_of_threads.load(); }

size_t copy_text(const std::string& text, char* out, size_t room) {
  if (out && room) {
    const size_t n = std::min(text.size(), room - 1);
    std::memcpy(out, text.data(), n);
    out[n] = 0;
  }
  return text.size() + 1;
}

void report_leaks_at_exit() {
  if (settings().check_leak && inits) report_leaks("the process ends without aclFinalize");
}

void count_at_finalize(const char* what, size_t (*count)(), std::string (*which)()) {
  std::lock_guard<std::mutex> hold(init_mutex);
  counters().push_back({what, count, which});
}

}  // namespace cann_sim

using namespace cann_sim;

aclError aclInit(const char* configPath) {
  CANN_ENTRY("aclInit");
  if (int code = refuse_forked("aclInit")) return code;
  if (!settings_error().empty()) return fail(ACL_ERROR_INVALID_PARAM, "aclInit: %s", settings_error().c_str());
  if (!faults_error().empty())
    return fail(ACL_ERROR_INVALID_PARAM, "aclInit: CANN_SIM_FAULTS: '%s' is not understood", faults_error().c_str());
  struct stat found;
  if (configPath && *configPath && stat(configPath, &found))
    return fail(ACL_ERROR_INVALID_FILE, "aclInit: there is no file %s", configPath);
  const int named = configPath && *configPath ? read_default_device(configPath) : -1;
  if (named == -2) return fail(ACL_ERROR_RT_INVALID_DEVICEID, "aclInit: default_device in %s is no device", configPath);
  std::lock_guard<std::mutex> hold(init_mutex);
  finalized = false;
  if (inits++) return fail(ACL_ERROR_REPEAT_INITIALIZE, "aclInit: already initialised");
  device_of_threads = named;
  if (settings().checks()) stop_workers_at_exit();
  return 0;
}

aclError aclFinalize() {
  CANN_ENTRY("aclFinalize");
  if (int code = refuse_forked("aclFinalize")) return code;
  {
    std::lock_guard<std::mutex> hold(init_mutex);
    if (!inits)
      return finalized ? fail(ACL_ERROR_REPEAT_FINALIZE, "aclFinalize: already finalised")
                       : fail(ACL_ERROR_UNINITIALIZE, "aclFinalize: aclInit was not called");
    inits = 0;
    finalized = true;
  }
  return finalize();
}

aclError aclFinalizeReference(uint64_t* refCount) {
  CANN_ENTRY("aclFinalizeReference");
  if (int code = refuse_forked("aclFinalizeReference")) return code;
  bool last;
  {
    std::lock_guard<std::mutex> hold(init_mutex);
    if (!inits) return fail(ACL_ERROR_REPEAT_FINALIZE, "aclFinalizeReference: not initialised");
    last = --inits == 0;
    finalized = last;
    if (refCount) *refCount = inits;
  }
  return last ? finalize() : 0;
}

// For clients that test themselves: a line "COUNT BYTES KIND" for every kind of handle; the bytes that the text needs.
CANN_ABI size_t cannSimAlive(char* out, size_t room) try {
  std::string text;
  for (const Alive& a : list_alive()) text += std::to_string(a.count) + " " + std::to_string(a.bytes) + " " + a.what + "\n";
  return copy_text(text, out, room);
} catch (...) {
  return value_for_exception<size_t>("cannSimAlive");
}
