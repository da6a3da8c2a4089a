// Reads how much memory the machine has and what the limits of this process and of its control groups allow.
#include "memory_limit.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <string>

namespace mt {
namespace {

// A file with one number; "max", or no file: no limit.
int64_t limit_in(const std::string& file) {
  std::ifstream in(file);
  std::string text;
  if (!(in >> text) || text.empty() || text.find_first_not_of("0123456789") != std::string::npos) return INT64_MAX;
  errno = 0;
  const unsigned long long n = std::strtoull(text.c_str(), nullptr, 10);
  return errno || n > uint64_t(INT64_MAX) ? INT64_MAX : int64_t(n);
}

// A group is held to the limits of all that it lies in. In a container the path may be the host's, of which only the
// mount itself is seen: that is the last step.
int64_t limit_up_from(const std::string& mount, std::string group, const char* name) {
  int64_t least = INT64_MAX;
  for (;;) {
    least = std::min(least, limit_in(mount + group + "/" + name));
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos) return least;
    group.resize(slash);
  }
}

int64_t process_limit() {
  int64_t least = int64_t(sysconf(_SC_PHYS_PAGES)) * int64_t(sysconf(_SC_PAGESIZE));
  rlimit r;
  if (getrlimit(RLIMIT_AS, &r) == 0 && r.rlim_cur < rlim_t(least)) least = int64_t(r.rlim_cur);
  if (getrlimit(RLIMIT_DATA, &r) == 0 && r.rlim_cur < rlim_t(least)) least = int64_t(r.rlim_cur);
  return least;
}

}  // namespace

int64_t memory_limit(const char* root) {
  const std::string base = root, mount = base + "/sys/fs/cgroup";
  int64_t least = process_limit();
  std::ifstream in(base + "/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {  // "4:cpu,memory:/path" of version 1, "0::/path" of version 2
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (controllers == ",,") {
      least = std::min(least, limit_up_from(mount, group, "memory.max"));
      least = std::min(least, limit_up_from(mount + "/unified", group, "memory.max"));
    } else if (controllers.find(",memory,") != std::string::npos) {
      least = std::min(least, limit_up_from(mount + "/memory", group, "memory.limit_in_bytes"));
    }
  }
  return least;
}

}  // namespace mt
