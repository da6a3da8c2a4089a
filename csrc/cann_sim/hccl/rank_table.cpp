// Communicators from a rank table: a JSON file that says which devices are the ranks. The processes find each other by a file
// in /dev/shm that rank 0 makes under a name which follows from the table, and takes away when all have come.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <thread>

#include "hccl/comm.h"
#include "runtime/device.h"

namespace cann_sim {
namespace {

constexpr size_t kMostBytes = 16 << 20;  // of a table

std::string read_table(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse_hccl(HCCL_E_OPEN_FILE_FAILURE, std::string("cannot read the rank table ") + path);
  std::string text;
  text.resize(kMostBytes);
  file.read(&text[0], static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

// Each rank's device_id. A table has one object for every device, in whatever lists its version keeps them.
std::vector<int> devices_of(const std::string& table) {
  static const std::regex object("\\{[^{}]*\\}"), pair("\"(rank_id|device_id)\"\\s*:\\s*\"?(\\d{1,9})\"?");
  std::vector<std::pair<int, int>> found;  // rank, device
  for (std::sregex_iterator o(table.begin(), table.end(), object), end; o != end; ++o) {
    const std::string text = o->str();
    int rank = -1, device = -1;
    for (std::sregex_iterator p(text.begin(), text.end(), pair); p != std::sregex_iterator(); ++p)
      ((*p)[1] == "rank_id" ? rank : device) = std::atoi((*p)[2].str().c_str());
    if (rank >= 0 && device >= 0) found.emplace_back(rank, device);
  }
  std::vector<int> devices(found.size(), -1);
  for (auto& entry : found) {
    if (static_cast<size_t>(entry.first) >= devices.size() || devices[entry.first] >= 0)
      refuse_hccl(HCCL_E_PARA, "the rank table does not have each rank_id from 0 on once");
    devices[entry.first] = entry.second;
  }
  if (devices.empty()) refuse_hccl(HCCL_E_PARA, "the rank table names no device with device_id and rank_id");
  return devices;
}

std::string meeting_file(const std::string& table, const CommOptions& options) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (unsigned char c : table + '\0' + options.name) hash = (hash ^ c) * 0x100000001b3ull;
  char path[80];
  std::snprintf(path, sizeof path, "/dev/shm/cann_sim_ranks_%u_%016llx", static_cast<unsigned>(geteuid()),
                static_cast<unsigned long long>(hash));
  return path;
}

// The file appears whole, in the place of one that an earlier run left behind.
void publish(const std::string& path, const RootRecord& root) {
  const std::string fresh = path + "." + std::to_string(getpid());
  const int fd = open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  const bool written = fd >= 0 && write(fd, &root, sizeof root) == sizeof root;
  if (fd >= 0) close(fd);
  if (!written || std::rename(fresh.c_str(), path.c_str()))
    refuse_hccl(HCCL_E_SYSCALL, "cannot write " + path + ": " + std::strerror(errno));
}

bool fetch(const std::string& path, RootRecord* root) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return false;
  struct stat file;
  const bool whole = !fstat(fd, &file) && file.st_uid == geteuid() && read(fd, root, sizeof *root) == sizeof *root;
  close(fd);
  return whole;
}

// A file of a run that has ended names a process that is gone, or memory that it has closed: the next one is waited for.
int join(const std::string& path, uint32_t ranks, uint32_t rank, const CommOptions& options, HcclComm* comm) {
  const Deadline deadline = after_setting("HCCL_CONNECT_TIMEOUT", 120);
  std::set<uint64_t> stale;
  while (std::chrono::steady_clock::now() < deadline) {
    RootRecord root;
    if (fetch(path, &root) && !stale.count(root.nonce)) try {
        return open_comm(root, ranks, rank, options, comm);
      } catch (const HcclFailure& failure) {
        if (failure.code != HCCL_E_OPEN_FILE_FAILURE && failure.code != HCCL_E_NOT_FOUND) throw;
        stale.insert(root.nonce);
      }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  refuse_hccl(HCCL_E_TIMEOUT, "rank 0 of the rank table did not come within HCCL_CONNECT_TIMEOUT");
}

int init_cluster_info(const char* clusterInfo, uint32_t rank, const CommOptions& options, HcclComm* comm) {
  if (!clusterInfo || !comm) refuse_hccl(HCCL_E_PTR, "null clusterInfo or comm");
  const std::string table = read_table(clusterInfo);
  const std::vector<int> devices = devices_of(table);
  const auto ranks = static_cast<uint32_t>(devices.size());
  check_ranks(ranks, rank);
  const int physical = physical_device(current_device());
  if (devices[rank] != physical)
    refuse_hccl(HCCL_E_PARA, "rank " + std::to_string(rank) + " is device " + std::to_string(devices[rank]) +
                                 " in the rank table, this thread's is " + std::to_string(physical));
  const std::string path = meeting_file(table, options);
  if (rank) return join(path, ranks, rank, options, comm);
  const RootRecord root = Segment::make_root();
  publish(path, root);
  struct Gone {
    const std::string& path;
    ~Gone() { unlink(path.c_str()); }
  } gone{path};
  return open_comm(root, ranks, rank, options, comm);
}

}  // namespace
}  // namespace cann_sim

using namespace cann_sim;

HcclResult HcclCommInitClusterInfo(const char* clusterInfo, uint32_t rank, HcclComm* comm) {
  return guarded("HcclCommInitClusterInfo", [&] { return init_cluster_info(clusterInfo, rank, CommOptions{}, comm); });
}

HcclResult HcclCommInitClusterInfoConfig(const char* clusterInfo, uint32_t rank, HcclCommConfig* config, HcclComm* comm) {
  return guarded("HcclCommInitClusterInfoConfig", [&] {
    if (!config) refuse_hccl(HCCL_E_PTR, "null config");
    return init_cluster_info(clusterInfo, rank, read_config(config), comm);
  });
}
