// The fault plan: which calls, tasks, devices and allocations are to fail, and when.
//
// CANN_SIM_FAULTS is a list separated by commas; n counts from 1, and * stands for every time:
//   aclrtMemcpy:3=507899      the third call of the function answers the code (an aclnn op's name: its first phase);
//                             a function that returns a pointer returns NULL
//   launch aclnnAdd:2=361001  the second call of the op's second phase answers the code
//   op aclnnAdd:2=507015      the second run of the op fails on the device; the code surfaces at a synchronising call
//   lost:1@100                device 1 is lost when it reaches its 100th task
//   oom:5                     the fifth allocation of device memory answers 207001
// A client that tests itself replaces the plan at run time and counts its calls: the cannSim functions at the end.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

#include "runtime/device.h"
#include "runtime/guard.h"

namespace cann_sim {
namespace {

struct Rule {
  uint64_t n;                     // 0: every time
  int code;
  uint64_t count = 0;
  bool hits() { return ++count == n || n == 0; }
};
using Rules = std::multimap<std::string, Rule>;

struct Plan {
  Rules calls, tasks, losses, allocations;  // losses by device id, allocations under ""
  std::string error;

  static bool number(const std::string& text, uint64_t* out) {
    if (text == "*") return *out = 0, true;
    char* end;
    *out = strtoull(text.c_str(), &end, 10);
    return !text.empty() && !*end && *out > 0;
  }

  bool add(const std::string& item) {
    size_t colon = item.find(':');
    if (colon == std::string::npos) return false;
    std::string what = item.substr(0, colon), when = item.substr(colon + 1);
    uint64_t n, code = 0;
    if (what == "lost") {
      size_t at = when.find('@');
      if (at == std::string::npos || !number(when.substr(at + 1), &n)) return false;
      losses.emplace(when.substr(0, at), Rule{n, ACL_ERROR_RT_LOST_HEARTBEAT});
      return true;
    }
    if (what == "oom") {
      if (!number(when, &n)) return false;
      allocations.emplace("", Rule{n, ACL_ERROR_RT_MEMORY_ALLOCATION});
      return true;
    }
    size_t equals = when.find('=');
    if (equals == std::string::npos || !number(when.substr(0, equals), &n) || !number(when.substr(equals + 1), &code) ||
        code == 0)
      return false;
    bool is_task = what.compare(0, 3, "op ") == 0;
    (is_task ? tasks : calls).emplace(is_task ? what.substr(3) : what, Rule{n, static_cast<int>(code)});
    return true;
  }

  bool any() const { return !(calls.empty() && tasks.empty() && losses.empty() && allocations.empty()); }

  explicit Plan(const std::string& text) {
    for (size_t begin = 0; begin < text.size();) {
      size_t end = std::min(text.find(',', begin), text.size());
      std::string item = text.substr(begin, end - begin);
      begin = end + 1;
      while (!item.empty() && item.front() == ' ') item.erase(0, 1);
      while (!item.empty() && item.back() == ' ') item.pop_back();
      if (!item.empty() && !add(item) && error.empty()) error = item;
    }
  }
};

// The plan in force and the counts of calls. `watched` is all that a call looks at while there is neither.
struct Watch {
  std::atomic<bool> watched{false};
  std::mutex mutex;               // guards the rest
  Plan plan;
  bool counting = false;
  std::map<std::string, uint64_t> counts;  // "aclrtMalloc", "launch aclnnAdd", "op aclnnAdd"

  Watch() : plan(settings().faults) { watched = !settings().faults.empty(); }
  void count(const std::string& key) {
    if (counting) ++counts[key];
  }
};

Watch& watch() {
  static Watch& once = *new Watch;  // never destroyed: workers may still ask while the process ends
  return once;
}

int first_hit(Rules& rules, const std::string& key) {
  int code = 0;
  auto range = rules.equal_range(key);
  for (auto r = range.first; r != range.second; ++r)
    if (r->second.hits() && !code) code = r->second.code;
  return code;
}

}  // namespace

const std::string& faults_error() {
  static const std::string once = watch().plan.error;
  return once;
}

int planned_fault(const char* function, const char* phase) noexcept try {
  if (recording() && !*phase && strncmp(function, "aclnn", 5)) record_call(with_values(function));  // ops: where they are launched
  Watch& w = watch();
  if (!w.watched.load(std::memory_order_relaxed)) return 0;
  const std::string key = std::string(phase) + function;
  int code;
  {
    std::lock_guard<std::mutex> hold(w.mutex);
    w.count(key);
    code = first_hit(w.plan.calls, key);
  }
  return code ? fail(code, "%s: fails by the fault plan", key.c_str()) : 0;
} catch (const std::bad_alloc&) {  // there is no memory to look the plan up: the call has a real reason to fail
  return 0;
}

int planned_task_fault(const char* task, Device& d) {
  Watch& w = watch();
  if (!w.watched.load(std::memory_order_relaxed)) return 0;
  std::lock_guard<std::mutex> hold(w.mutex);
  w.count(std::string("op ") + task);
  if (first_hit(w.plan.losses, std::to_string(d.id))) d.lost = true;
  return first_hit(w.plan.tasks, task);
}

bool planned_allocation_failure() {
  Watch& w = watch();
  if (!w.watched.load(std::memory_order_relaxed)) return false;
  std::lock_guard<std::mutex> hold(w.mutex);
  return first_hit(w.plan.allocations, "");
}

}  // namespace cann_sim

using namespace cann_sim;

// ---- for clients that test themselves --------------------------------------------------------------------------
// Replaces the fault plan, its counts at 0; an empty text is no plan. 0, or 100000 with the plan left as it was.
CANN_ABI int cannSimSetFaults(const char* text) try {
  Plan made(text ? text : "");
  if (!made.error.empty()) return fail(ACL_ERROR_INVALID_PARAM, "cannSimSetFaults: not understood: %s", made.error.c_str());
  Watch& w = watch();
  std::lock_guard<std::mutex> hold(w.mutex);
  w.plan = std::move(made);
  w.watched = w.counting || (text && *text);
  return 0;
} catch (...) {
  return acl_code_for_exception<int>("cannSimSetFaults");
}

// Counts calls and tasks from now on, from 0; or stops.
CANN_ABI void cannSimCountCalls(int on) {
  Watch& w = watch();
  std::lock_guard<std::mutex> hold(w.mutex);
  w.counting = on;
  if (on) w.counts.clear();
  w.watched = w.counting || w.plan.any();
}

// A line "COUNT NAME" for each function, second phase and task that was counted; the bytes that the text needs.
CANN_ABI size_t cannSimCalls(char* out, size_t room) try {
  Watch& w = watch();
  std::lock_guard<std::mutex> hold(w.mutex);
  std::string text;
  for (const auto& c : w.counts) text += std::to_string(c.second) + " " + c.first + "\n";
  return copy_text(text, out, room);
} catch (...) {
  return value_for_exception<size_t>("cannSimCalls");
}
