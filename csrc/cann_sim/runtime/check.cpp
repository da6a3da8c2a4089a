// The reports of CANN_SIM_CHECK: written once each as they are found, counted, and queried by clients that test themselves.
#include "runtime/check.h"

#include <unistd.h>

#include <cstdarg>
#include <cstdio>

#include "runtime/device.h"
#include "runtime/guard.h"

namespace cann_sim {
namespace {

constexpr int kFatalStatus = 66;
constexpr size_t kMostReports = 1000;   // that differ

struct Reports {
  std::mutex mutex;
  std::map<std::string, size_t> seen;   // by kind and names: the place in texts
  std::vector<std::pair<std::string, uint64_t>> texts;  // and how often
};
Reports& reports() {
  static Reports& one = *new Reports;
  return one;
}

}  // namespace

void report_problem(const char* kind, const std::string& key, const std::string& text) {
  Reports& r = reports();
  std::lock_guard<std::mutex> hold(r.mutex);
  auto [found, fresh] = r.seen.emplace(std::string(kind) + "|" + key, r.texts.size());
  if (!fresh) {
    ++r.texts[found->second].second;
    return;
  }
  if (r.texts.size() >= kMostReports) return void(r.seen.erase(found));
  r.texts.emplace_back(std::string(kind) + ": " + text, 1);
  fprintf(stderr, "cann_sim: %s: %s\n", kind, text.c_str());
}

void report_misuse(const char* format, ...) {
  if (!settings().check_memory) return;
  char text[600];
  va_list rest;
  va_start(rest, format);
  vsnprintf(text, sizeof text, format, rest);
  va_end(rest);
  report_problem("memory", text, text);
}

std::string describe_use(const Use& use) {
  std::string text = use.task;
  text += use.writes ? " writes" : " reads";
  if (*use.what) text += std::string(" ") + use.what;
  if (!use.actor) return text + " (the host)";
  text += " (task " + std::to_string(use.count) + " of stream " + std::to_string(use.actor - 1);
  if (use.tag) text += ", tag " + std::to_string(use.tag);
  return text + ")";
}

void finish_checks() {
  const Settings& set = settings();
  if (!set.checks()) return;
  Reports& r = reports();
  std::lock_guard<std::mutex> hold(r.mutex);
  uint64_t times = 0;
  for (auto& text : r.texts) times += text.second;
  if (!times) return;
  fprintf(stderr, "cann_sim: %zu problems, seen %llu times\n", r.texts.size(), static_cast<unsigned long long>(times));
  if (!set.check_fatal) return;
  fflush(nullptr);
  _exit(kFatalStatus);
}

}  // namespace cann_sim

using namespace cann_sim;

// A line "TIMES KIND: TEXT" for each report since the last cannSimClearReports; the bytes that the text needs.
CANN_ABI size_t cannSimReports(char* out, size_t room) try {
  Reports& r = reports();
  std::lock_guard<std::mutex> hold(r.mutex);
  std::string lines;
  for (auto& text : r.texts) lines += std::to_string(text.second) + " " + text.first + "\n";
  return copy_text(lines, out, room);
} catch (...) {
  return value_for_exception<size_t>("cannSimReports");
}

CANN_ABI void cannSimClearReports() {
  Reports& r = reports();
  std::lock_guard<std::mutex> hold(r.mutex);
  r.seen.clear();
  r.texts.clear();
}
