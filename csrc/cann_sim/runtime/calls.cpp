// The record of what a client called: each launch of an aclnn op with its arguments, each other function by its name and
// the numbers that it was given.
//
// CANN_SIM_CALLS=FILE writes it when the process ends, a line "COUNT TEXT" for each text that differs, in the order in which
// they came first. A client that compares calls asks for it while it runs: the cannSim functions at the end.
#include <cstdio>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "runtime/device.h"
#include "runtime/guard.h"

namespace cann_sim {
namespace {

struct Record {
  std::atomic<bool> on{false};
  std::mutex mutex;  // guards the rest
  std::unordered_map<std::string, uint64_t> counts;
  std::vector<const std::string*> order;  // keys of counts

  Record() { on = !settings().calls.empty(); }
  void clear() {
    order.clear();
    counts.clear();
  }
  std::string text() const {
    std::string lines;
    for (const std::string* call : order) lines += std::to_string(counts.at(*call)) + " " + *call + "\n";
    return lines;
  }
};

Record& record() {
  static Record& once = *new Record;  // never destroyed: workers may still call while the process ends
  return once;
}

}  // namespace

bool recording() { return record().on.load(std::memory_order_relaxed); }

void record_call(const std::string& text) {
  Record& r = record();
  std::lock_guard<std::mutex> hold(r.mutex);
  auto [found, fresh] = r.counts.emplace(text, 0);
  if (fresh) r.order.push_back(&found->first);
  ++found->second;
}

thread_local const char* noted_function = nullptr;
thread_local std::string noted_values;

void note_values(const char* function, std::initializer_list<NamedValue> values) {
  noted_function = function;
  noted_values.clear();
  for (const NamedValue& v : values)
    noted_values += (noted_values.empty() ? "" : ", ") + std::string(v.name) + "=" + std::to_string(v.value);
}

std::string with_values(const char* function) {
  if (!noted_function || strcmp(noted_function, function)) return function;
  noted_function = nullptr;
  return std::string(function) + "(" + noted_values + ")";
}

void write_calls() {
  if (settings().calls.empty()) return;
  Record& r = record();
  std::lock_guard<std::mutex> hold(r.mutex);
  FILE* file = fopen(settings().calls.c_str(), "w");
  if (!file) {
    fprintf(stderr, "cann_sim: CANN_SIM_CALLS: cannot write %s\n", settings().calls.c_str());
    return;
  }
  fputs(r.text().c_str(), file);
  fclose(file);
}

}  // namespace cann_sim

using namespace cann_sim;

// Records calls from now on, from nothing; or stops.
CANN_ABI void cannSimRecordCalls(int on) {
  Record& r = record();
  std::lock_guard<std::mutex> hold(r.mutex);
  r.clear();
  r.on = on;
}

// A line "COUNT TEXT" for each call that differs; the bytes that the text needs.
CANN_ABI size_t cannSimRecordedCalls(char* out, size_t room) try {
  Record& r = record();
  std::lock_guard<std::mutex> hold(r.mutex);
  return copy_text(r.text(), out, room);
} catch (...) {
  return value_for_exception<size_t>("cannSimRecordedCalls");
}
