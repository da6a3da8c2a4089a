// Profiling. Of a session (aclprofInit, Start, Stop, Finalize) the tasks between start and stop are written as a trace that
// Chrome and Perfetto read, with a folder PROF_… beside it that `msprof` makes tables in (tools/msprof.py); a card's binary
// data is not made. Reports of the older interface (Msprof…) are taken and dropped, as on a card where no session runs.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <ctime>

#include "runtime/device.h"
#include "runtime/handles.h"

struct aclprofConfig {
  std::vector<uint32_t> devices;
};
struct aclprofStepInfo {
  int64_t begin = 0, end = 0;
};

namespace cann_sim {
namespace {

struct Session {
  std::mutex mutex;
  std::string folder;                      // empty: not initialised
  int runs = 0;                            // traces so far
  const aclprofConfig* running = nullptr;
  Handles<aclprofConfig> configs{256};
  Handles<aclprofStepInfo> steps{4096};
};
Session& session() {
  static Session& one = *new Session;
  return one;
}

bool make_folders(const std::string& path) {
  for (size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) mkdir(path.substr(0, at).c_str(), 0750);
  mkdir(path.c_str(), 0750);
  struct stat found;
  return !stat(path.c_str(), &found) && S_ISDIR(found.st_mode) && !access(path.c_str(), W_OK);
}
int64_t clock_ns(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return t.tv_sec * 1'000'000'000ll + t.tv_nsec;
}

// The folder of one run as CANN names it; letters that no other process of this user has at the same moment.
std::string prof_folder(const Session& s, int64_t now) {
  const time_t seconds = now / 1'000'000'000;
  tm parts{};
  gmtime_r(&seconds, &parts);
  char when[32], text[96];
  strftime(when, sizeof when, "%Y%m%d%H%M%S", &parts);
  std::string letters;
  for (uint64_t n = uint64_t(getpid()); letters.size() < 8; n /= 26) letters += char('A' + n % 26);
  snprintf(text, sizeof text, "/PROF_%06d_%s%03d_%s", s.runs, when, int(now / 1'000'000 % 1000), letters.c_str());
  return s.folder + text;
}

// What says where the trace is, and what its times are on the clock of the wall: that of the trace is steady.
bool begin_prof_folder(const std::string& folder, const std::string& trace, const aclprofConfig& config) {
  if (!make_folders(folder + "/host/data")) return false;
  for (uint32_t device : config.devices) make_folders(folder + "/device_" + std::to_string(device) + "/data");
  FILE* file = fopen((folder + "/host/start_info").c_str(), "w");
  if (!file) return false;
  const int64_t wall = clock_ns(CLOCK_REALTIME);
  fprintf(file, "{\"collectionTimeBegin\": \"%" PRId64 ".%03d\", \"clockMonotonicRaw\": \"%" PRId64 "\", \"steady\": \"%" PRId64
                "\", \"trace\": \"%s\"}\n", wall / 1000, int(wall % 1000), clock_ns(CLOCK_MONOTONIC_RAW), now_ns(), trace.c_str());
  return !fclose(file);
}
int check_config(Session& s, const aclprofConfig* config, const char* function) {
  if (!config) return fail(ACL_ERROR_INVALID_PARAM, "%s: profilerConfig is NULL", function);
  if (!s.configs.check(config)) return fail(ACL_ERROR_INVALID_PROFILING_CONFIG, "%s: profilerConfig is not live", function);
  if (s.folder.empty()) return fail(ACL_ERROR_PROF_NOT_RUN, "%s: aclprofInit was not called", function);
  return 0;
}

}  // namespace
}  // namespace cann_sim

using namespace cann_sim;

aclError aclprofInit(const char* profilerResultPath, size_t length) {
  CANN_ENTRY("aclprofInit");
  if (!profilerResultPath || !length) return fail(ACL_ERROR_INVALID_PARAM, "aclprofInit: profilerResultPath is NULL or empty");
  Session& s = session();
  std::lock_guard<std::mutex> hold(s.mutex);
  if (!s.folder.empty()) return fail(ACL_ERROR_PROF_ALREADY_RUN, "aclprofInit: called already, for %s", s.folder.c_str());
  const std::string path(profilerResultPath, strnlen(profilerResultPath, length));
  if (!make_folders(path)) return fail(ACL_ERROR_INVALID_PARAM, "aclprofInit: %s is not a folder that can be written", path.c_str());
  s.folder = path;
  return 0;
}

aclError aclprofFinalize() {
  CANN_ENTRY("aclprofFinalize");
  Session& s = session();
  std::lock_guard<std::mutex> hold(s.mutex);
  if (s.folder.empty()) return fail(ACL_ERROR_PROF_NOT_RUN, "aclprofFinalize: aclprofInit was not called");
  if (s.running) close_session_trace();
  s.running = nullptr;
  s.folder.clear();
  return 0;
}

aclprofConfig* aclprofCreateConfig(uint32_t* deviceIdList, uint32_t deviceNums, aclprofAicoreMetrics, const aclprofAicoreEvents*,
                                   uint64_t dataTypeConfig) {
  CANN_ENTRY_POINTER("aclprofCreateConfig");
  if (!dataTypeConfig || (deviceNums && !deviceIdList) || deviceNums > uint32_t(device_count())) {
    fail(ACL_ERROR_INVALID_PARAM, "aclprofCreateConfig: dataTypeConfig is 0, or the list of devices is wrong");
    return nullptr;
  }
  for (uint32_t i = 0; i < deviceNums; ++i)
    if (deviceIdList[i] >= uint32_t(device_count())) {
      fail(ACL_ERROR_RT_INVALID_DEVICEID, "aclprofCreateConfig: there is no device %u", deviceIdList[i]);
      return nullptr;
    }
  return session().configs.make(aclprofConfig{std::vector<uint32_t>(deviceIdList, deviceIdList + deviceNums)});
}

aclError aclprofDestroyConfig(const aclprofConfig* profilerConfig) {
  CANN_ENTRY("aclprofDestroyConfig");
  Session& s = session();
  std::lock_guard<std::mutex> hold(s.mutex);
  if (s.running == profilerConfig && profilerConfig) return fail(ACL_ERROR_PROF_ALREADY_RUN, "aclprofDestroyConfig: the session still runs");
  if (!s.configs.drop(profilerConfig)) return fail(ACL_ERROR_INVALID_PARAM, "aclprofDestroyConfig: profilerConfig is not live");
  return 0;
}

aclError aclprofSetConfig(aclprofConfigType configType, const char* config, size_t configLength) {
  CANN_ENTRY("aclprofSetConfig");
  if (!config || !configLength) return fail(ACL_ERROR_INVALID_PARAM, "aclprofSetConfig: config is NULL or empty");
  if (configType <= ACL_PROF_ARGS_MIN || configType > ACL_PROF_PATH)
    return fail(ACL_ERROR_INVALID_PARAM, "aclprofSetConfig: there is no setting %d", configType);
  return 0;  // of hardware counters and limits of files that this CANN does not make
}

aclError aclprofStart(const aclprofConfig* profilerConfig) {
  CANN_ENTRY("aclprofStart");
  Session& s = session();
  std::lock_guard<std::mutex> hold(s.mutex);
  if (int code = check_config(s, profilerConfig, "aclprofStart")) return code;
  if (s.running) return fail(ACL_ERROR_PROF_ALREADY_RUN, "aclprofStart: a session runs already");
  const std::string file = "cann_sim_trace_" + std::to_string(getpid()) + "_" + std::to_string(++s.runs) + ".json";
  const std::string folder = prof_folder(s, clock_ns(CLOCK_REALTIME));
  if (!open_session_trace(s.folder + "/" + file) || !begin_prof_folder(folder, file, *profilerConfig))
    return fail(ACL_ERROR_PROFILING_FAILURE, "aclprofStart: %s cannot be written", folder.c_str());
  s.running = profilerConfig;
  return 0;
}

aclError aclprofStop(const aclprofConfig* profilerConfig) {
  CANN_ENTRY("aclprofStop");
  Session& s = session();
  std::lock_guard<std::mutex> hold(s.mutex);
  if (int code = check_config(s, profilerConfig, "aclprofStop")) return code;
  if (s.running != profilerConfig) return fail(ACL_ERROR_PROF_NOT_RUN, "aclprofStop: no session runs with this configuration");
  close_session_trace();
  s.running = nullptr;
  return 0;
}

CANN_ABI aclError aclprofWarmup(const aclprofConfig* profilerConfig) {
  Session& s = session();
  std::lock_guard<std::mutex> hold(s.mutex);
  return check_config(s, profilerConfig, "aclprofWarmup");
}

aclprofStepInfo* aclprofCreateStepInfo() {
  CANN_ENTRY_POINTER("aclprofCreateStepInfo");
  return session().steps.make();
}

void aclprofDestroyStepInfo(aclprofStepInfo* stepinfo) { session().steps.drop(stepinfo); }

aclError aclprofGetStepTimestamp(aclprofStepInfo* stepInfo, aclprofStepTag tag, aclrtStream stream) {
  CANN_ENTRY("aclprofGetStepTimestamp");
  aclprofStepInfo* info = session().steps.get(stepInfo);
  if (!info) return fail(ACL_ERROR_INVALID_PARAM, "aclprofGetStepTimestamp: stepInfo is not live");
  if (int code = check_stream(stream)) return code;
  if (tag != ACL_STEP_START && tag != ACL_STEP_END) return fail(ACL_ERROR_INVALID_PARAM, "aclprofGetStepTimestamp: there is no tag %d", tag);
  (tag == ACL_STEP_START ? info->begin : info->end) = now_ns();
  return 0;
}

CANN_ABI uint64_t MsprofSysCycleTime() { return static_cast<uint64_t>(cann_sim::now_ns()); }

CANN_ABI uint64_t MsprofGetHashId(const char* text, size_t length) {
  uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (size_t i = 0; text && i < length; ++i) hash = (hash ^ static_cast<unsigned char>(text[i])) * 0x100000001b3ull;
  return hash;
}

CANN_ABI int32_t MsprofRegisterCallback(uint32_t, void*) { return 0; }
CANN_ABI int32_t MsprofReportApi(uint32_t, const void*) { return 0; }
CANN_ABI int32_t MsprofReportCompactInfo(uint32_t, const void*, uint32_t) { return 0; }
CANN_ABI int32_t MsprofReportAdditionalInfo(uint32_t, const void*, uint32_t) { return 0; }
