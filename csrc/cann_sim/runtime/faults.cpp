// The fault plan: which calls, tasks, devices and allocations are to fail, and when.
//
// CANN_SIM_FAULTS is a list separated by commas; n counts from 1, and * stands for every time:
//   aclrtMemcpy:3=507899      the third call of the function answers the code (an aclnn op's name: its first phase)
//   op aclnnAdd:2=507015      the second run of the op fails on the device; the code surfaces at a synchronising call
//   lost:1@100                device 1 is lost when it reaches its 100th task
//   oom:5                     the fifth allocation of device memory answers 207001
#include <cstdlib>
#include <memory>

#include "runtime/device.h"

namespace cann_sim {
namespace {

struct Rule {
  uint64_t n;                     // 0: every time
  int code;
  std::atomic<uint64_t> count{0};
  Rule(uint64_t at, int c) : n(at), code(c) {}
  bool hits() {
    uint64_t now = count.fetch_add(1, std::memory_order_relaxed) + 1;
    return n == 0 || now == n;
  }
};
using Rules = std::multimap<std::string, std::unique_ptr<Rule>>;

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
      losses.emplace(when.substr(0, at), std::make_unique<Rule>(n, ACL_ERROR_RT_LOST_HEARTBEAT));
      return true;
    }
    if (what == "oom") {
      if (!number(when, &n)) return false;
      allocations.emplace("", std::make_unique<Rule>(n, ACL_ERROR_RT_MEMORY_ALLOCATION));
      return true;
    }
    size_t equals = when.find('=');
    if (equals == std::string::npos || !number(when.substr(0, equals), &n) || !number(when.substr(equals + 1), &code) ||
        code == 0)
      return false;
    bool is_task = what.compare(0, 3, "op ") == 0;
    (is_task ? tasks : calls).emplace(is_task ? what.substr(3) : what, std::make_unique<Rule>(n,
                                                                                              static_cast<int>(code)));
    return true;
  }

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

Plan* plan() {  // nullptr: there is none
  static Plan* const once = settings().faults.empty() ? nullptr : new Plan(settings().faults);
  return once;
}

int first_hit(Rules& rules, const std::string& key) {
  int code = 0;
  auto range = rules.equal_range(key);
  for (auto r = range.first; r != range.second; ++r)
    if (r->second->hits() && !code) code = r->second->code;
  return code;
}

}  // namespace

const std::string& faults_error() {
  static const std::string none;
  return plan() ? plan()->error : none;
}

int planned_fault(const char* function) {
  Plan* p = plan();
  if (!p || p->calls.empty()) return 0;
  int code = first_hit(p->calls, function);
  return code ? fail(code, "%s: fails by the fault plan", function) : 0;
}

int planned_task_fault(const char* task, Device& d) {
  Plan* p = plan();
  if (!p) return 0;
  if (first_hit(p->losses, std::to_string(d.id))) d.lost = true;
  return first_hit(p->tasks, task);
}

bool planned_allocation_failure() {
  Plan* p = plan();
  return p && first_hit(p->allocations, "");
}

}  // namespace cann_sim
