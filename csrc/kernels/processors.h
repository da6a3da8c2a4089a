// How many threads a process starts with: what the environment says, else the processors it may use.
#pragma once
#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

namespace mt {

// Processors that a quota in this folder of a control group gives per period; INT_MAX: no limit is set.
inline int quota_of(const std::string& folder) {
  std::string quota;
  double period = 0;
  std::ifstream both(folder + "/cpu.max");  // version 2: "max 100000" or "150000 100000"
  if (!(both >> quota >> period)) {
    std::ifstream first(folder + "/cpu.cfs_quota_us"), second(folder + "/cpu.cfs_period_us");  // version 1
    first >> quota;
    second >> period;
  }
  const double limit = std::atof(quota.c_str()) / period;  // of "max" and "-1" not positive
  return limit > 0 && limit < INT_MAX ? std::max(1, int(std::ceil(limit))) : INT_MAX;
}

// The least of the quotas of this process's control groups and all those above them. In a container the paths that
// /proc names are often not those that it sees: then the outermost folder is its own.
inline int cgroup_processors(const std::string& root) {
  int least = INT_MAX;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/path", or "4:cpu,cpuacct:/path"
    const size_t first = line.find(':'), second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && ("," + controllers + ",").find(",cpu,") == std::string::npos) continue;
    const std::string base = root + "/sys/fs/cgroup" + (controllers.empty() ? "" : "/cpu");
    for (std::string path = line.substr(second + 1);; path.resize(path.rfind('/'))) {
      while (!path.empty() && path.back() == '/') path.pop_back();
      least = std::min(least, quota_of(base + path));
      if (path.find('/') == std::string::npos) break;
    }
  }
  return least;
}

// A positive number in the environment, of a list the first; 0: none.
inline int threads_of(const char* name) {
  const char* text = std::getenv(name);
  const long n = text ? std::strtol(text, nullptr, 10) : 0;
  return n > 0 && n <= INT_MAX ? int(n) : 0;
}

// Those of the affinity mask, which hardware_concurrency counts, as far as the control groups let them run.
inline int processors() {
  return std::max(1, std::min(int(std::thread::hardware_concurrency()), cgroup_processors("")));
}

inline int default_threads() {  // PyTorch's variables, in its order
  if (const int n = threads_of("MKL_NUM_THREADS")) return n;
  if (const int n = threads_of("OMP_NUM_THREADS")) return n;
  return processors();
}

}  // namespace mt
