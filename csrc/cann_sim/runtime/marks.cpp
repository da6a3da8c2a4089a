// Marks of clients in traces, and the stamps and ranges of aclprof.
#include "runtime/marks.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <vector>

#include "runtime/stream.h"

namespace cann_sim {
namespace {

struct Range {
  std::string text;
  int64_t begin;
};
struct Ranges {
  std::mutex mutex;
  std::map<uint64_t, Range> open;
  uint64_t next = 1;
};
Ranges& ranges() {
  static Ranges& one = *new Ranges;
  return one;
}
thread_local std::vector<uint64_t> pushed;  // aclprofPush and aclprofRangePushEx nest within a thread

std::string for_json(std::string text) {
  for (char& c : text)
    if (c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' ') c = ' ';
  return text;
}

void trace_host(const std::string& text, int64_t begin, int64_t end) { trace_task(text.c_str(), -1, 0, begin, end); }

class MarkTask final : public ControlTask {
 public:
  explicit MarkTask(std::string text) : text_(std::move(text)) {}
  void run() override {}
  const char* name() const override { return text_.c_str(); }

 private:
  const std::string text_;
};

// What aclprofCreateStamp makes: a text that marks and ranges show.
struct Stamp {
  std::string text;
};
Handles<Stamp>& stamps() {
  static auto& pool = *new Handles<Stamp>(4096);
  return pool;
}

Stamp* find_stamp(void* handle, const char* function, int* code) {
  Stamp* found = handle ? stamps().get(handle) : nullptr;
  if (!found) *code = fail(ACL_ERROR_INVALID_PARAM, "%s: %p is not a live stamp", function, handle);
  return found;
}

int pop(const char* function) {
  if (pushed.empty()) return fail(ACL_ERROR_INVALID_PARAM, "%s: nothing was pushed by this thread", function);
  end_range(pushed.back());
  pushed.pop_back();
  return 0;
}

}  // namespace

void mark_instant(const std::string& text, aclrtStream stream) {
  if (!tracing()) return;
  const std::string clean = for_json(text);
  const int64_t now = now_ns();
  trace_host(clean, now, now);
  if (stream) enqueue(stream, new MarkTask(clean));
}

uint64_t begin_range(const std::string& text) {
  Ranges& r = ranges();
  std::lock_guard<std::mutex> hold(r.mutex);
  r.open.emplace(r.next, Range{for_json(text), now_ns()});
  return r.next++;
}

bool end_range(uint64_t id) {
  Ranges& r = ranges();
  std::lock_guard<std::mutex> hold(r.mutex);
  auto found = r.open.find(id);
  if (found == r.open.end()) return false;
  if (tracing()) trace_host(found->second.text, found->second.begin, now_ns());
  r.open.erase(found);
  return true;
}

}  // namespace cann_sim

using namespace cann_sim;

void* aclprofCreateStamp() {
  CANN_ENTRY_POINTER("aclprofCreateStamp");
  return stamps().make();
}

void aclprofDestroyStamp(void* stamp) { stamps().drop(stamp); }

aclError aclprofSetStampTraceMessage(void* stamp, const char* msg, uint32_t msgLen) {
  CANN_ENTRY("aclprofSetStampTraceMessage");
  int code = 0;
  Stamp* found = find_stamp(stamp, "aclprofSetStampTraceMessage", &code);
  if (!found) return code;
  if (!msg || !msgLen) return fail(ACL_ERROR_INVALID_PARAM, "aclprofSetStampTraceMessage: msg is NULL or empty");
  found->text.assign(msg, strnlen(msg, msgLen));
  return 0;
}

aclError aclprofMark(void* stamp) {
  CANN_ENTRY("aclprofMark");
  int code = 0;
  if (Stamp* found = find_stamp(stamp, "aclprofMark", &code)) mark_instant(found->text, nullptr);
  return code;
}

aclError aclprofMarkEx(const char* msg, size_t msgLen, aclrtStream stream) {
  CANN_ENTRY("aclprofMarkEx");
  if (!msg || !msgLen) return fail(ACL_ERROR_INVALID_PARAM, "aclprofMarkEx: msg is NULL or empty");
  if (int code = check_stream(stream)) return code;
  mark_instant(std::string(msg, strnlen(msg, msgLen)), nullptr);
  return 0;
}

aclError aclprofPush(void* stamp) {
  CANN_ENTRY("aclprofPush");
  int code = 0;
  if (Stamp* found = find_stamp(stamp, "aclprofPush", &code)) pushed.push_back(begin_range(found->text));
  return code;
}

aclError aclprofPop() {
  CANN_ENTRY("aclprofPop");
  return pop("aclprofPop");
}

aclError aclprofRangePushEx(aclprofEventAttributes* attr) {
  CANN_ENTRY("aclprofRangePushEx");
  if (!attr || !attr->message.text) return fail(ACL_ERROR_INVALID_PARAM, "aclprofRangePushEx: %s is NULL", attr ? "the message" : "attr");
  pushed.push_back(begin_range(attr->message.text));
  return 0;
}

aclError aclprofRangePop() {
  CANN_ENTRY("aclprofRangePop");
  return pop("aclprofRangePop");
}

aclError aclprofRangeStart(void* stamp, uint32_t* rangeId) {
  CANN_ENTRY("aclprofRangeStart");
  if (!rangeId) return fail(ACL_ERROR_INVALID_PARAM, "aclprofRangeStart: rangeId is NULL");
  int code = 0;
  if (Stamp* found = find_stamp(stamp, "aclprofRangeStart", &code)) *rangeId = static_cast<uint32_t>(begin_range(found->text));
  return code;
}

aclError aclprofRangeStop(uint32_t rangeId) {
  CANN_ENTRY("aclprofRangeStop");
  if (end_range(rangeId)) return 0;
  return fail(ACL_ERROR_INVALID_PARAM, "aclprofRangeStop: range %u is not open", rangeId);
}

namespace {

// A feature of profiling as clients read it, who declare the record and its inner one with a virtual destructor each: the
// pointers to their tables of functions are looked at by nobody.
struct Feature {
  const void* table = nullptr;
  char name[64];
  const void* inner_table = nullptr;
  char compatible[16] = "1", version[16] = "1", component[16] = "all", component_version[16] = "all", log[128] = "cann_sim";
};
static_assert(sizeof(Feature) == 272);
Feature features[] = {{nullptr, "ATTR"}, {nullptr, "MemoryAccess"}, {nullptr, "AICORE_SHAPE"}};

int list_features(size_t* featuresSize, void** featuresData, const char* function) {
  if (!featuresSize || !featuresData) return fail(ACL_ERROR_INVALID_PARAM, "%s: an output is NULL", function);
  *featuresSize = std::size(features);
  *featuresData = features;
  return 0;
}

}  // namespace

CANN_ABI aclError aclprofGetSupportedFeatures(size_t* featuresSize, void** featuresData) {
  return list_features(featuresSize, featuresData, "aclprofGetSupportedFeatures");
}
CANN_ABI aclError aclprofGetSupportedFeaturesV2(size_t* featuresSize, void** featuresData) {
  return list_features(featuresSize, featuresData, "aclprofGetSupportedFeaturesV2");
}
CANN_ABI aclError aclprofRegisterDeviceCallback() { return 0; }
