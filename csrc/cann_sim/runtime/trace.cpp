// Traces: every task with its stream and times, as Chrome and Perfetto read it. One is that of CANN_SIM_TRACE, another that of
// a profiling session (profiling.cpp).
#include <atomic>
#include <chrono>
#include <cstdio>

#include "runtime/device.h"

namespace cann_sim {
namespace {

// One array of events. It is written as it goes and readable without its end, so that a crash costs the last few only.
struct Trace {
  FILE* file = nullptr;
  bool first = true;
  int64_t flushed = 0;

  bool open(const std::string& path) {
    file = fopen(path.c_str(), "w");
    if (file) fputs("[\n", file);
    first = true;
    return file;
  }
  void write(const char* name, int device, int stream, int64_t begin, int64_t end, int64_t queued) {
    if (!file) return;
    fprintf(file, "%s{\"name\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f", first ? "" : ",\n", name,
            device, stream, static_cast<double>(begin) / 1e3, static_cast<double>(end - begin) / 1e3);
    if (queued) fprintf(file, ",\"args\":{\"queued\":%.3f}", static_cast<double>(queued) / 1e3);
    fputs("}", file);
    first = false;
    if (end - flushed < 100'000'000) return;
    fflush(file);
    flushed = end;
  }
  void close() {
    if (!file) return;
    fputs("\n]\n", file);
    fclose(file);
    file = nullptr;
  }
};
struct Traces {
  std::mutex mutex;
  Trace all, session;
  std::atomic<bool> on{false};

  Traces() {
    if (settings().trace.empty()) return;
    on = all.open(settings().trace);
    if (!on) fprintf(stderr, "cann_sim: CANN_SIM_TRACE: cannot write %s\n", settings().trace.c_str());
  }
};
Traces& traces() {
  static Traces& one = *new Traces;
  return one;
}

}  // namespace

int64_t now_ns() {
  auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

bool tracing() { return traces().on.load(std::memory_order_relaxed); }

void trace_task(const char* name, int device, int stream, int64_t begin, int64_t end, int64_t queued) {
  Traces& t = traces();
  std::lock_guard<std::mutex> hold(t.mutex);
  t.all.write(name, device, stream, begin, end, queued);
  t.session.write(name, device, stream, begin, end, queued);
}

bool open_session_trace(const std::string& path) {
  Traces& t = traces();
  std::lock_guard<std::mutex> hold(t.mutex);
  if (!t.session.open(path)) return false;
  t.on = true;
  return true;
}

void close_session_trace() {
  Traces& t = traces();
  std::lock_guard<std::mutex> hold(t.mutex);
  t.session.close();
  t.on = t.all.file != nullptr;
}

void flush_trace() {
  if (!tracing()) return;
  std::lock_guard<std::mutex> hold(traces().mutex);
  if (traces().all.file) fflush(traces().all.file);
}

void close_trace() {
  if (!tracing()) return;
  Traces& t = traces();
  std::lock_guard<std::mutex> hold(t.mutex);
  t.all.close();
  t.session.close();
  t.on = false;
}

}  // namespace cann_sim
