// The trace of CANN_SIM_TRACE: every task with its stream and times, as Chrome and Perfetto read it.
#include <chrono>
#include <cstdio>

#include "runtime/device.h"

namespace cann_sim {
namespace {

// One array of events. It is written as it goes and readable without its end, so that a crash costs the last few only.
struct Trace {
  std::mutex mutex;
  FILE* file = nullptr;
  bool first = true;
  int64_t flushed = 0;

  Trace() {
    if (settings().trace.empty()) return;
    file = fopen(settings().trace.c_str(), "w");
    if (file) fputs("[\n", file);
    else fprintf(stderr, "cann_sim: CANN_SIM_TRACE: cannot write %s\n", settings().trace.c_str());
  }
};
Trace& trace() {
  static Trace& one = *new Trace;
  return one;
}

}  // namespace

int64_t now_ns() {
  auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

bool tracing() {
  static const bool on = trace().file != nullptr;
  return on;
}

void trace_task(const char* name, int device, int stream, int64_t begin, int64_t end) {
  Trace& t = trace();
  std::lock_guard<std::mutex> hold(t.mutex);
  if (!t.file) return;
  fprintf(t.file, "%s{\"name\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f}",
          t.first ? "" : ",\n", name,
          device, stream, static_cast<double>(begin) / 1e3, static_cast<double>(end - begin) / 1e3);
  t.first = false;
  if (end - t.flushed < 100'000'000) return;
  fflush(t.file);
  t.flushed = end;
}

void flush_trace() {
  if (!tracing()) return;
  std::lock_guard<std::mutex> hold(trace().mutex);
  if (trace().file) fflush(trace().file);
}

void close_trace() {
  if (!tracing()) return;
  Trace& t = trace();
  std::lock_guard<std::mutex> hold(t.mutex);
  if (!t.file) return;
  fputs("\n]\n", t.file);
  fclose(t.file);
  t.file = nullptr;
}

}  // namespace cann_sim
