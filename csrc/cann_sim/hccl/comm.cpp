// Making, asking and destroying communicators. What they do for a living is in collectives.cpp.
#include "hccl/comm.h"

#include <cstdlib>
#include <cstring>
#include <thread>

namespace cann_sim {

namespace {

std::string name_of(const RootRecord& root) {
  char text[40];
  std::snprintf(text, sizeof text, "cann_sim_%016llx", static_cast<unsigned long long>(root.nonce));
  return text;
}

}  // namespace

Comm::Comm(const RootRecord& root, uint32_t ranks_, uint32_t rank_, int device_, const CommOptions& options)
    : ranks(ranks_),
      rank(rank_),
      device(device_),
      name(options.name.empty() ? name_of(root) : options.name),
      segment(root, ranks_, rank_),
      deterministic(options.deterministic),
      ring_locks(2 * size_t{ranks_}),
      exec_timeout_(options.exec_timeout) {
  segment.join();
}

Comm::~Comm() { segment.leave(); }

Deadline Comm::exec_deadline() const {
  if (exec_timeout_ == 0) return Deadline::max();
  if (exec_timeout_ > 0) return std::chrono::steady_clock::now() + std::chrono::seconds(exec_timeout_);
  return after_setting("HCCL_EXEC_TIMEOUT", 1836);
}

void Comm::abort(int code) {
  int none = 0;
  if (error.compare_exchange_strong(none, code)) segment.set_failed(true);  // not when it is suspended: all are
  aborted = true;
}

namespace {

// Aborting a device's tasks suspends its communicators: what they exchanged may be half a message.
int32_t suspend_all(int32_t device, aclrtDeviceTaskAbortStage stage, uint32_t, void*) {
  if (stage != ACL_RT_DEVICE_TASK_ABORT_PRE) return 0;
  for (CommHandle* handle : comms().all()) {
    const std::shared_ptr<Comm> comm = handle->comm;
    if (comm->device == device) comm->error = HCCL_E_SUSPENDING, comm->aborted = true;
  }
  return 0;
}

}  // namespace

Handles<CommHandle>& comms() {
  static auto* pool = [] {  // never destroyed: tasks may end after static destruction
    count_at_finalize("communicators", [] { return comms().live(); });
    on_task_abort("cann_sim hccl", suspend_all, nullptr);
    return new Handles<CommHandle>(4096);
  }();
  return *pool;
}

std::shared_ptr<Comm> live_comm(HcclComm comm) {
  if (!comm) refuse_hccl(HCCL_E_PTR, "null communicator");
  CommHandle* handle = comms().get(comm);
  if (!handle) refuse_hccl(HCCL_E_PARA, "the communicator is unknown or was destroyed");
  return handle->comm;
}

Deadline after_setting(const char* variable, int default_seconds) {
  const char* text = std::getenv(variable);
  int seconds = text ? std::atoi(text) : 0;
  return std::chrono::steady_clock::now() + std::chrono::seconds(seconds > 0 ? seconds : default_seconds);
}

int current_device() {
  int32_t device = -1;
  if (aclrtGetDevice(&device)) refuse_hccl(HCCL_E_RUNTIME, "no device is set in this thread");
  return device;
}

void check_ranks(uint32_t ranks, uint32_t rank) {
  if (!ranks || rank >= ranks)
    refuse_hccl(HCCL_E_PARA, "rank " + std::to_string(rank) + " of " + std::to_string(ranks) + " ranks");
  if (ranks > kMaxRanks)
    refuse_hccl(HCCL_E_NOT_SUPPORT,
                std::to_string(ranks) + " ranks; this CANN has at most " + std::to_string(kMaxRanks));
}

namespace {

HcclComm hand_out(std::shared_ptr<Comm> comm) {
  CommHandle* handle = comms().make(std::move(comm));
  if (!handle) refuse_hccl(HCCL_E_MEMORY, "too many communicators are alive");
  return handle;
}

// Waits, as HCCL does, until every rank is there.
void meet(Comm& comm) {
  if (comm.segment.wait_for_all(after_setting("HCCL_CONNECT_TIMEOUT", 120))) return;
  refuse_hccl(HCCL_E_TIMEOUT, "not all of " + std::to_string(comm.ranks) + " ranks came within HCCL_CONNECT_TIMEOUT");
}

}  // namespace

int open_comm(const RootRecord& root, uint32_t ranks, uint32_t rank, const CommOptions& options, HcclComm* out) {
  auto comm = std::make_shared<Comm>(root, ranks, rank, current_device(), options);
  meet(*comm);
  Segment::close_root(root);
  *out = hand_out(std::move(comm));
  return HCCL_SUCCESS;
}

namespace {

int init_root_info(uint32_t ranks, const HcclRootInfo* info, uint32_t rank, const CommOptions& options, HcclComm* out) {
  if (!info || !out) refuse_hccl(HCCL_E_PTR, "null rootInfo or comm");
  check_ranks(ranks, rank);
  RootRecord root;
  std::memcpy(&root, info->internal, sizeof root);
  return open_comm(root, ranks, rank, options, out);
}

// The file of a sub-communicator's segment is announced in its parent's memory under a key of its id and members.
uint64_t sub_key(uint64_t id, const uint32_t* members, uint32_t count) {
  uint64_t key = id ^ 0x9e3779b97f4a7c15ull;
  for (uint32_t i = 0; i < count; ++i) key = (key ^ members[i]) * 0x100000001b3ull + i;
  return key > 1 ? key : key + 2;  // 0 and 1 are a free slot and one that is being filled
}

SubSlot& announce(Segment& parent, uint64_t key, const RootRecord& root) {
  for (SubSlot& slot : parent.header().sub) {
    uint64_t free = 0;
    if (!slot.key.compare_exchange_strong(free, 1)) continue;
    slot.pid = root.pid, slot.fd = root.fd, slot.nonce = root.nonce;
    slot.key = key;
    return slot;
  }
  refuse_hccl(HCCL_E_MEMORY, "too many sub-communicators are being made");
}

RootRecord await(Segment& parent, uint64_t key) {
  Deadline deadline = after_setting("HCCL_CONNECT_TIMEOUT", 120);
  for (;;) {
    for (SubSlot& slot : parent.header().sub)
      if (slot.key == key) return Segment::root_of(slot.pid, slot.fd, slot.nonce);
    if (std::chrono::steady_clock::now() > deadline)
      refuse_hccl(HCCL_E_TIMEOUT, "its first member did not come within HCCL_CONNECT_TIMEOUT");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

int create_sub(Comm& parent, uint32_t count, const uint32_t* members, uint64_t id, uint32_t rank,
               const CommOptions& options, HcclComm* out) {
  check_ranks(count, rank);
  for (uint32_t i = 0; i < count; ++i)
    if (members[i] >= parent.ranks)
      refuse_hccl(HCCL_E_PARA, "member " + std::to_string(members[i]) + " is no rank of comm");
  if (members[rank] != parent.rank)
    refuse_hccl(HCCL_E_PARA, "rankIds[subCommRankId] is " + std::to_string(members[rank]) + ", this is rank " +
                                 std::to_string(parent.rank));
  uint64_t key = sub_key(id, members, count);
  struct Announced {                // until all have come, or not: the next one of the same members must not find it
    SubSlot* slot = nullptr;
    ~Announced() {
      if (slot) slot->key = 0;
    }
  } announced;
  RootRecord root;
  if (rank == 0) root = Segment::make_root(), announced.slot = &announce(parent.segment, key, root);
  else root = await(parent.segment, key);
  auto comm = std::make_shared<Comm>(root, count, rank, parent.device, options);
  meet(*comm);
  Segment::close_root(root);
  *out = hand_out(std::move(comm));
  return HCCL_SUCCESS;
}

std::atomic<int32_t> default_deterministic{0};

}  // namespace
}  // namespace cann_sim

using namespace cann_sim;

HcclResult HcclGetRootInfo(HcclRootInfo* info) {
  return guarded("HcclGetRootInfo", [&] {
    if (!info) refuse_hccl(HCCL_E_PTR, "null rootInfo");
    RootRecord root = Segment::make_root();
    std::memset(info, 0, sizeof *info);
    std::memcpy(info->internal, &root, sizeof root);
    return HCCL_SUCCESS;
  });
}

HcclResult HcclCommInitRootInfo(uint32_t ranks, const HcclRootInfo* info, uint32_t rank, HcclComm* comm) {
  return guarded("HcclCommInitRootInfo", [&] { return init_root_info(ranks, info, rank, CommOptions{}, comm); });
}

HcclResult HcclCommInitRootInfoConfig(uint32_t ranks, const HcclRootInfo* info, uint32_t rank,
                                      const HcclCommConfig* config, HcclComm* comm) {
  return guarded("HcclCommInitRootInfoConfig", [&] {
    if (!config) refuse_hccl(HCCL_E_PTR, "null config");
    return init_root_info(ranks, info, rank, read_config(config), comm);
  });
}

HcclResult HcclCommInitAll(uint32_t count, int32_t* devices, HcclComm* out) {
  return guarded("HcclCommInitAll", [&] {
    if (!devices || !out) refuse_hccl(HCCL_E_PTR, "null devices or comms");
    check_ranks(count, 0);
    RootRecord root = Segment::make_root();
    std::vector<std::shared_ptr<Comm>> made;
    for (uint32_t i = 0; i < count; ++i)
      made.push_back(std::make_shared<Comm>(root, count, i, devices[i], CommOptions{}));
    Segment::close_root(root);
    for (uint32_t i = 0; i < count; ++i) out[i] = hand_out(std::move(made[i]));
    return HCCL_SUCCESS;
  });
}

HcclResult HcclCreateSubCommConfig(HcclComm* comm, uint32_t count, uint32_t* members, uint64_t id, uint32_t rank,
                                   HcclCommConfig* config, HcclComm* out) {
  return guarded("HcclCreateSubCommConfig", [&] {
    if (!comm || !out || !config) refuse_hccl(HCCL_E_PTR, "null comm, config or subComm");
    std::shared_ptr<Comm> parent = live_comm(*comm);
    if (!members && !count) return *out = nullptr, HCCL_SUCCESS;  // a rank that is no member
    if (!members) refuse_hccl(HCCL_E_PTR, "null rankIds");
    return static_cast<int64_t>(create_sub(*parent, count, members, id, rank, read_config(config), out));
  });
}

HcclResult HcclCommDestroy(HcclComm comm) {
  return guarded("HcclCommDestroy", [&] {
    std::shared_ptr<Comm> held = live_comm(comm);
    held->aborted = true;  // work that is still queued cannot be finished by the other ranks
    drop_windows(*held);
    comms().drop(comm);
    return HCCL_SUCCESS;
  });
}

HcclResult HcclCommSuspend(HcclComm comm) {
  return guarded("HcclCommSuspend", [&] {
    std::shared_ptr<Comm> held = live_comm(comm);
    held->error = HCCL_E_SUSPENDING;
    held->aborted = true;
    return HCCL_SUCCESS;
  });
}

// Every rank calls it; where nothing has ended the communicator's work, nothing is to be done. The rings of all are emptied
// between two meetings, when no rank exchanges data.
HcclResult HcclCommResume(HcclComm comm) {
  return guarded("HcclCommResume", [&] {
    std::shared_ptr<Comm> held = live_comm(comm);
    if (!held->aborted) return HCCL_SUCCESS;
    std::vector<std::unique_lock<std::mutex>> idle;
    for (std::mutex& lock : held->ring_locks) idle.emplace_back(lock);  // tasks that have not seen the end yet leave
    const Deadline deadline = after_setting("HCCL_CONNECT_TIMEOUT", 120);
    if (!held->segment.meet_again(deadline)) refuse_hccl(HCCL_E_TIMEOUT, "not all ranks resumed within HCCL_CONNECT_TIMEOUT");
    for (uint32_t from = 0; from < held->ranks; ++from) held->segment.ring(from, held->rank).empty();
    held->segment.set_failed(false);
    if (!held->segment.meet_again(deadline)) refuse_hccl(HCCL_E_TIMEOUT, "not all ranks resumed within HCCL_CONNECT_TIMEOUT");
    held->error = HCCL_SUCCESS;
    held->aborted = false;
    return HCCL_SUCCESS;
  });
}

HcclResult HcclGetCommAsyncError(HcclComm comm, HcclResult* error) {
  return guarded("HcclGetCommAsyncError", [&] {
    if (!error) refuse_hccl(HCCL_E_PTR, "null asyncError");
    *error = live_comm(comm)->error;
    return HCCL_SUCCESS;
  });
}

HcclResult HcclGetRankId(HcclComm comm, uint32_t* rank) {
  return guarded("HcclGetRankId", [&] {
    if (!rank) refuse_hccl(HCCL_E_PTR, "null rank");
    *rank = live_comm(comm)->rank;
    return HCCL_SUCCESS;
  });
}

HcclResult HcclGetRankSize(HcclComm comm, uint32_t* ranks) {
  return guarded("HcclGetRankSize", [&] {
    if (!ranks) refuse_hccl(HCCL_E_PTR, "null rankSize");
    *ranks = live_comm(comm)->ranks;
    return HCCL_SUCCESS;
  });
}

HcclResult HcclGetCommName(HcclComm comm, char* name) {
  return guarded("HcclGetCommName", [&] {
    if (!name) refuse_hccl(HCCL_E_PTR, "null commName");
    std::string text = live_comm(comm)->name;
    std::memcpy(name, text.c_str(), text.size() + 1);  // names are cut to COMM_NAME_MAX_LENGTH when they are made
    return HCCL_SUCCESS;
  });
}

HcclResult HcclSetConfig(HcclConfig config, HcclConfigValue value) {
  return guarded("HcclSetConfig", [&] {
    if (config != HCCL_DETERMINISTIC) refuse_hccl(HCCL_E_PARA, "unknown config " + std::to_string(config));
    default_deterministic = value.value;
    return HCCL_SUCCESS;
  });
}

HcclResult HcclGetConfig(HcclConfig config, HcclConfigValue* value) {
  return guarded("HcclGetConfig", [&] {
    if (!value) refuse_hccl(HCCL_E_PTR, "null configValue");
    if (config != HCCL_DETERMINISTIC) refuse_hccl(HCCL_E_PARA, "unknown config " + std::to_string(config));
    value->value = default_deterministic;
    return HCCL_SUCCESS;
  });
}

HcclResult HcclSetCommConfig(HcclComm comm, HcclConfig config, HcclConfigValue value) {
  return guarded("HcclSetCommConfig", [&] {
    std::shared_ptr<Comm> held = live_comm(comm);
    if (config != HCCL_DETERMINISTIC) refuse_hccl(HCCL_E_PARA, "unknown config " + std::to_string(config));
    held->deterministic = value.value;
    return HCCL_SUCCESS;
  });
}

HcclResult HcclGetCommConfig(HcclComm comm, HcclConfig config, HcclConfigValue* value) {
  return guarded("HcclGetCommConfig", [&] {
    if (!value) refuse_hccl(HCCL_E_PTR, "null configValue");
    std::shared_ptr<Comm> held = live_comm(comm);
    if (config != HCCL_DETERMINISTIC) refuse_hccl(HCCL_E_PARA, "unknown config " + std::to_string(config));
    value->value = held->deterministic;
    return HCCL_SUCCESS;
  });
}

uint32_t HcclGetCommConfigCapability() { return HCCL_COMM_CONFIG_RESERVED; }

const char* HcclGetErrorString(HcclResult code) {
  static const char* const kNames[] = {"no error",
                                       "parameter error",
                                       "empty pointer",
                                       "memory error",
                                       "internal error",
                                       "not supported",
                                       "not found",
                                       "resource unavailable",
                                       "system call error",
                                       "timeout",
                                       "open file failure",
                                       "tcp connect failure",
                                       "roce connect failure",
                                       "tcp transfer failure",
                                       "roce transfer failure",
                                       "runtime error",
                                       "driver error",
                                       "profiling error",
                                       "cce error",
                                       "network error",
                                       "operation should be retried",
                                       "remote error",
                                       "suspending"};
  return code >= 0 && code < static_cast<int>(std::size(kNames)) ? kNames[code] : "unknown error";
}
