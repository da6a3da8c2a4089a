// Reads how much memory the machine has and what the limits of this process and of its control groups allow.
#include "memory_limit.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace mt {
namespace {

// The text of a small file; empty where there is none. Not by a C++ stream: making the first one sets up locales, which
// crashed on other threads of processes that hold libstdc++ twice.
std::string text_of(const std::string& file) {
  std::string text;
  if (FILE* in = std::fopen(file.c_str(), "re")) {
    char piece[4096];
    for (size_t n; (n = std::fread(piece, 1, sizeof piece, in)) > 0;) text.append(piece, n);
    std::fclose(in);
  }
  return text;
}

// A file with one number; "max", or no file: no limit.
int64_t limit_in(const std::string& file) {
  std::string text = text_of(file);
  text.resize(text.find_last_not_of(" \n") + 1);
  if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos) return INT64_MAX;
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
  const std::string groups = text_of(base + "/proc/self/cgroup");
  for (size_t begin = 0, end; begin < groups.size(); begin = end + 1) {
    end = std::min(groups.find('\n', begin), groups.size());
    const std::string line = groups.substr(begin, end - begin);  // "4:cpu,memory:/path", in version 2 "0::/path"
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
