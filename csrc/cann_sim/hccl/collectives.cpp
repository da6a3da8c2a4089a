// The collectives: each is planned, when it is called, as phases of pieces between ranks, and runs as one task of its
// stream.
#include <algorithm>
#include <cstring>
#include <map>

#include "hccl/comm.h"

namespace cann_sim {
namespace {

class Collective final : public Task {
 public:
  Collective(std::shared_ptr<Comm> comm, const char* name, HcclDataType dtype, ReduceFn reduce,
             std::vector<Phase> phases)
      : comm_(std::move(comm)), name_(name), dtype_(dtype), reduce_(reduce), phases_(std::move(phases)) {}

  const char* name() const override { return name_; }
  // Ranks talk to all others at once, each pair over a link of its own.
  Work work() const override {
    Work work;
    for (const Phase& phase : phases_) {
      std::map<uint32_t, double> sent;
      for (const Piece& piece : phase) {
        const auto bytes = static_cast<double>(piece.bytes);
        if (piece.move == Move::send) sent[piece.peer] += bytes;
        work.bytes += bytes * (piece.move == Move::reduce ? 3 : piece.move == Move::copy ? 2 : 1);
      }
      double most = 0;
      for (auto& peer : sent) most = std::max(most, peer.second);
      work.link_bytes += most;
    }
    return work;
  }
  void list_uses(std::vector<Access>& uses) const override {
    for (const Phase& phase : phases_)
      for (const Piece& piece : phase) {
        const bool sends = piece.move == Move::send;
        if (piece.move == Move::copy) uses.push_back({piece.from, piece.bytes, false, "sendBuf"});
        uses.push_back({piece.at, piece.bytes, !sends, sends ? "sendBuf" : "recvBuf"});
      }
  }

  void run() override {
    std::vector<std::unique_lock<std::mutex>> held = lock_rings();
    Pins pins;
    Frame frame{op_number(name_), static_cast<uint32_t>(dtype_), 0, {}};
    Exchange exchange{comm_->segment,
                      comm_->rank,
                      name_,
                      frame,
                      reduce_,
                      hccl_element_size(dtype_),
                      comm_->exec_deadline(),
                      comm_->aborted};
    try {
      for (const Phase& phase : phases_)
        run_phase(exchange, phase, [&](void* p, size_t bytes) { return bytes ? pins.resolve(p, bytes) : nullptr; });
    } catch (const DeviceFault& fault) {
      comm_->abort(fault.code == ACL_ERROR_RT_AICPU_TIMEOUT ? HCCL_E_TIMEOUT : HCCL_E_REMOTE);
      throw;
    }
  }

 private:
  std::vector<std::unique_lock<std::mutex>> lock_rings() {
    std::vector<size_t> rings;
    for (const Phase& phase : phases_)
      for (const Piece& piece : phase)
        if (piece.move != Move::copy) rings.push_back(2 * piece.peer + (piece.move != Move::send));
    std::sort(rings.begin(), rings.end());  // one order for all tasks: no two wait for each other
    rings.erase(std::unique(rings.begin(), rings.end()), rings.end());
    std::vector<std::unique_lock<std::mutex>> held;
    for (size_t ring : rings) held.emplace_back(comm_->ring_locks[ring]);
    return held;
  }

  std::shared_ptr<Comm> comm_;
  const char* name_;
  HcclDataType dtype_;
  ReduceFn reduce_;
  std::vector<Phase> phases_;
};

// One call: its checks, and the pieces it is made of.
struct Plan {
  Plan(const char* name_, HcclComm handle, HcclDataType dtype_, aclrtStream stream_)
      : name(name_), comm(live_comm(handle)), dtype(dtype_), stream(stream_), size(hccl_element_size(dtype_)) {
    if (!size) refuse_hccl(HCCL_E_NOT_SUPPORT, "unknown data type " + std::to_string(dtype));
    if (comm->aborted)
      refuse_hccl(comm->error ? static_cast<int>(comm->error) : HCCL_E_UNAVAIL, "an earlier collective failed");
    if (int code = check_stream(stream))
      refuse_hccl(HCCL_E_RUNTIME, "the stream was refused with " + std::to_string(code));
    if (stream_device(stream) != comm->device)
      refuse_hccl(HCCL_E_PARA, "a stream of device " + std::to_string(stream_device(stream)) +
                                   "; the communicator is on device " + std::to_string(comm->device));
  }

  uint32_t me() const { return comm->rank; }
  uint32_t ranks() const { return comm->ranks; }
  uint32_t after(uint32_t k) const { return (me() + k) % ranks(); }  // the k-th rank after this one

  // `count` elements at p, which must be device memory.
  char* buffer(const char* what, const void* p, uint64_t count) const {
    if (count > UINT64_MAX / size / (2 * kMaxRanks))
      refuse_hccl(HCCL_E_PARA, std::string(what) + ": the count is too large");
    if (count && !p) refuse_hccl(HCCL_E_PTR, std::string("null ") + what);
    if (count && !is_device_memory(p, count * size))
      refuse_hccl(HCCL_E_PARA,
                  std::string(what) + ": not " + std::to_string(count * size) + " bytes of one device allocation");
    return static_cast<char*>(const_cast<void*>(p));
  }
  void rank_exists(const char* what, uint32_t rank, bool other = false) const {
    if (rank >= ranks() || (other && rank == me()))
      refuse_hccl(HCCL_E_PARA,
                  std::string(what) + " " + std::to_string(rank) + " of " + std::to_string(ranks()) + " ranks");
  }
  void reduces(HcclReduceOp op) {
    reduce = find_reduce(dtype, op);
    if (!reduce)
      refuse_hccl(HCCL_E_NOT_SUPPORT, "reduction " + std::to_string(op) + " of data type " + std::to_string(dtype));
  }

  Phase& phase() { return phases.emplace_back(); }
  void copy(Phase& into, void* to, const void* from, uint64_t count) const {
    if (to != from && count) into.push_back({Move::copy, me(), to, count * size, from});
  }
  Piece piece(Move move, uint32_t peer, void* at, uint64_t count) const { return {move, peer, at, count * size}; }

  int launch() {
    int code = enqueue(stream, new Collective(comm, name, dtype, reduce, std::move(phases)));
    if (code) refuse_hccl(HCCL_E_RUNTIME, "the stream did not take the task: " + std::to_string(code));
    return HCCL_SUCCESS;
  }

  const char* name;
  std::shared_ptr<Comm> comm;
  HcclDataType dtype;
  aclrtStream stream;
  size_t size;
  ReduceFn reduce = nullptr;
  std::vector<Phase> phases;
};

// Each rank reduces one part and gives it to the others: all of them end with the same bits.
void plan_all_reduce(Plan& plan, char* send, char* recv, uint64_t count) {
  uint64_t part = (count + plan.ranks() - 1) / plan.ranks();
  auto first = [&](uint32_t r) { return std::min(count, r * part); };
  auto length = [&](uint32_t r) { return first(r + 1) - first(r); };
  auto at = [&](char* base, uint32_t r) { return base + first(r) * plan.size; };
  uint32_t me = plan.me();
  plan.phases.resize(2);
  Phase &scatter = plan.phases[0], &gather = plan.phases[1];
  plan.copy(scatter, at(recv, me), at(send, me), length(me));
  for (uint32_t k = 1; k < plan.ranks(); ++k) {
    uint32_t peer = plan.after(k);
    scatter.push_back(plan.piece(Move::send, peer, at(send, peer), length(peer)));
    scatter.push_back(plan.piece(Move::reduce, peer, at(recv, me), length(me)));
    gather.push_back(plan.piece(Move::send, peer, at(recv, me), length(me)));
    gather.push_back(plan.piece(Move::receive, peer, at(recv, peer), length(peer)));
  }
}

// Counts and offsets, in elements, of what goes to and comes from every rank; they are read when the function is
// called.
struct Parts {
  std::vector<uint64_t> count, offset;
  Parts(const void* counts, const void* offsets, uint32_t n) {
    if (!counts || !offsets) refuse_hccl(HCCL_E_PTR, "null counts or displacements");
    auto c = static_cast<const uint64_t*>(counts), d = static_cast<const uint64_t*>(offsets);
    count.assign(c, c + n), offset.assign(d, d + n);
  }
  Parts(uint64_t each, uint32_t n) : count(n, each), offset(n) {
    for (uint32_t i = 0; i < n; ++i) offset[i] = i * each;
  }
  explicit Parts(std::vector<uint64_t> counts) : count(std::move(counts)), offset(count.size()) {
    for (size_t i = 1; i < count.size(); ++i) offset[i] = offset[i - 1] + count[i - 1];
  }
  char* at(const Plan& plan, const char* what, const void* base, uint32_t r) const {
    const char* begin = static_cast<const char*>(base) + offset[r] * plan.size;
    return plan.buffer(what, base || !count[r] ? begin : nullptr, count[r]);
  }
};

void plan_all_to_all(Plan& plan, const void* send, const Parts& out, const void* recv, const Parts& in) {
  Phase& phase = plan.phase();
  uint32_t me = plan.me();
  if (out.count[me] != in.count[me]) refuse_hccl(HCCL_E_PARA, "this rank sends itself another count than it receives");
  plan.copy(phase, in.at(plan, "recvBuf", recv, me), out.at(plan, "sendBuf", send, me), out.count[me]);
  for (uint32_t k = 1; k < plan.ranks(); ++k) {
    uint32_t peer = plan.after(k);
    phase.push_back(plan.piece(Move::send, peer, out.at(plan, "sendBuf", send, peer), out.count[peer]));
    phase.push_back(plan.piece(Move::receive, peer, in.at(plan, "recvBuf", recv, peer), in.count[peer]));
  }
}

void plan_all_gather(Plan& plan, const void* send, uint64_t count, const void* recv, const Parts& in) {
  Phase& phase = plan.phase();
  char* mine = plan.buffer("sendBuf", send, count);
  if (in.count[plan.me()] != count) refuse_hccl(HCCL_E_PARA, "recvCounts disagrees with sendCount for this rank");
  plan.copy(phase, in.at(plan, "recvBuf", recv, plan.me()), mine, count);
  for (uint32_t k = 1; k < plan.ranks(); ++k) {
    uint32_t peer = plan.after(k);
    phase.push_back(plan.piece(Move::send, peer, mine, count));
    phase.push_back(plan.piece(Move::receive, peer, in.at(plan, "recvBuf", recv, peer), in.count[peer]));
  }
}

void plan_reduce_scatter(Plan& plan, const void* send, const Parts& out, const void* recv, uint64_t count) {
  Phase& phase = plan.phase();
  char* mine = plan.buffer("recvBuf", recv, count);
  if (out.count[plan.me()] != count) refuse_hccl(HCCL_E_PARA, "sendCounts disagrees with recvCount for this rank");
  plan.copy(phase, mine, out.at(plan, "sendBuf", send, plan.me()), count);
  for (uint32_t k = 1; k < plan.ranks(); ++k) {
    uint32_t peer = plan.after(k);
    phase.push_back(plan.piece(Move::send, peer, out.at(plan, "sendBuf", send, peer), out.count[peer]));
    phase.push_back(plan.piece(Move::reduce, peer, mine, count));
  }
}

constexpr const char* kPointToPoint = "HcclSend or HcclRecv";

// Between HcclGroupStart and HcclGroupEnd, sends and receives of a stream wait to run as one task: two ranks that both
// send first would otherwise wait for each other.
thread_local int group_depth = 0;
thread_local std::vector<Plan> grouped;

int point_to_point(const char* function, Move move, void* buf, uint64_t count, HcclDataType dtype, uint32_t peer,
                   HcclComm comm, aclrtStream stream) {
  return guarded(function, [&] {
    Plan plan(kPointToPoint, comm, dtype, stream);
    plan.rank_exists(move == Move::send ? "destRank" : "srcRank", peer, true);
    plan.phase().push_back(plan.piece(move, peer, plan.buffer("buf", buf, count), count));
    if (!group_depth) return plan.launch();
    for (Plan& other : grouped)
      if (other.comm == plan.comm && other.stream == stream && other.dtype == dtype)
        return other.phases[0].push_back(plan.phases[0][0]), static_cast<int>(HCCL_SUCCESS);
    grouped.push_back(std::move(plan));
    return static_cast<int>(HCCL_SUCCESS);
  });
}

}  // namespace
}  // namespace cann_sim

using namespace cann_sim;

HcclResult HcclAllReduce(void* send, void* recv, uint64_t count, HcclDataType dtype, HcclReduceOp op, HcclComm comm,
                         aclrtStream stream) {
  return guarded("HcclAllReduce", [&] {
    Plan plan("HcclAllReduce", comm, dtype, stream);
    plan.reduces(op);
    plan_all_reduce(plan, plan.buffer("sendBuf", send, count), plan.buffer("recvBuf", recv, count), count);
    return plan.launch();
  });
}

HcclResult HcclBroadcast(void* buf, uint64_t count, HcclDataType dtype, uint32_t root, HcclComm comm,
                         aclrtStream stream) {
  return guarded("HcclBroadcast", [&] {
    Plan plan("HcclBroadcast", comm, dtype, stream);
    plan.rank_exists("root", root);
    char* at = plan.buffer("buf", buf, count);
    Phase& phase = plan.phase();
    if (plan.me() != root) phase.push_back(plan.piece(Move::receive, root, at, count));
    for (uint32_t k = 1; plan.me() == root && k < plan.ranks(); ++k)
      phase.push_back(plan.piece(Move::send, plan.after(k), at, count));
    return plan.launch();
  });
}

HcclResult HcclReduce(void* send, void* recv, uint64_t count, HcclDataType dtype, HcclReduceOp op, uint32_t root,
                      HcclComm comm, aclrtStream stream) {
  return guarded("HcclReduce", [&] {
    Plan plan("HcclReduce", comm, dtype, stream);
    plan.reduces(op);
    plan.rank_exists("root", root);
    char* from = plan.buffer("sendBuf", send, count);
    Phase& phase = plan.phase();
    if (plan.me() != root) {
      phase.push_back(plan.piece(Move::send, root, from, count));
      return plan.launch();
    }
    char* into = plan.buffer("recvBuf", recv, count);
    plan.copy(phase, into, from, count);
    for (uint32_t k = 1; k < plan.ranks(); ++k) phase.push_back(plan.piece(Move::reduce, plan.after(k), into, count));
    return plan.launch();
  });
}

HcclResult HcclScatter(void* send, void* recv, uint64_t count, HcclDataType dtype, uint32_t root, HcclComm comm,
                       aclrtStream stream) {
  return guarded("HcclScatter", [&] {
    Plan plan("HcclScatter", comm, dtype, stream);
    plan.rank_exists("root", root);
    char* into = plan.buffer("recvBuf", recv, count);
    Phase& phase = plan.phase();
    if (plan.me() != root) {
      phase.push_back(plan.piece(Move::receive, root, into, count));
      return plan.launch();
    }
    Parts out(count, plan.ranks());
    plan.copy(phase, into, out.at(plan, "sendBuf", send, root), count);
    for (uint32_t k = 1; k < plan.ranks(); ++k)
      phase.push_back(plan.piece(Move::send, plan.after(k), out.at(plan, "sendBuf", send, plan.after(k)), count));
    return plan.launch();
  });
}

HcclResult HcclAllGather(void* send, void* recv, uint64_t count, HcclDataType dtype, HcclComm comm,
                         aclrtStream stream) {
  return guarded("HcclAllGather", [&] {
    Plan plan("HcclAllGather", comm, dtype, stream);
    plan_all_gather(plan, send, count, recv, Parts(count, plan.ranks()));
    return plan.launch();
  });
}

HcclResult HcclAllGatherV(void* send, uint64_t count, void* recv, const void* counts, const void* offsets,
                          HcclDataType dtype, HcclComm comm, aclrtStream stream) {
  return guarded("HcclAllGatherV", [&] {
    Plan plan("HcclAllGatherV", comm, dtype, stream);
    plan_all_gather(plan, send, count, recv, Parts(counts, offsets, plan.ranks()));
    return plan.launch();
  });
}

HcclResult HcclReduceScatter(void* send, void* recv, uint64_t count, HcclDataType dtype, HcclReduceOp op, HcclComm comm,
                             aclrtStream stream) {
  return guarded("HcclReduceScatter", [&] {
    Plan plan("HcclReduceScatter", comm, dtype, stream);
    plan.reduces(op);
    plan_reduce_scatter(plan, send, Parts(count, plan.ranks()), recv, count);
    return plan.launch();
  });
}

HcclResult HcclReduceScatterV(void* send, const void* counts, const void* offsets, void* recv, uint64_t count,
                              HcclDataType dtype, HcclReduceOp op, HcclComm comm, aclrtStream stream) {
  return guarded("HcclReduceScatterV", [&] {
    Plan plan("HcclReduceScatterV", comm, dtype, stream);
    plan.reduces(op);
    plan_reduce_scatter(plan, send, Parts(counts, offsets, plan.ranks()), recv, count);
    return plan.launch();
  });
}

HcclResult HcclAlltoAll(const void* send, uint64_t send_count, HcclDataType dtype, const void* recv,
                        uint64_t recv_count, HcclDataType recv_dtype, HcclComm comm, aclrtStream stream) {
  return guarded("HcclAlltoAll", [&] {
    Plan plan("HcclAlltoAll", comm, dtype, stream);
    if (recv_dtype != dtype || recv_count != send_count) refuse_hccl(HCCL_E_PARA, "what is sent and received differs");
    plan_all_to_all(plan, send, Parts(send_count, plan.ranks()), recv, Parts(recv_count, plan.ranks()));
    return plan.launch();
  });
}

HcclResult HcclAlltoAllV(const void* send, const void* send_counts, const void* send_offsets, HcclDataType dtype,
                         const void* recv, const void* recv_counts, const void* recv_offsets, HcclDataType recv_dtype,
                         HcclComm comm, aclrtStream stream) {
  return guarded("HcclAlltoAllV", [&] {
    Plan plan("HcclAlltoAllV", comm, dtype, stream);
    if (recv_dtype != dtype) refuse_hccl(HCCL_E_PARA, "sendType and recvType differ");
    plan_all_to_all(plan, send, Parts(send_counts, send_offsets, plan.ranks()), recv,
                    Parts(recv_counts, recv_offsets, plan.ranks()));
    return plan.launch();
  });
}

HcclResult HcclAlltoAllVC(const void* send, const void* matrix, HcclDataType dtype, const void* recv,
                          HcclDataType recv_dtype, HcclComm comm, aclrtStream stream) {
  return guarded("HcclAlltoAllVC", [&] {
    Plan plan("HcclAlltoAllVC", comm, dtype, stream);
    if (!matrix) refuse_hccl(HCCL_E_PTR, "null sendCountMatrix");
    if (recv_dtype != dtype) refuse_hccl(HCCL_E_PARA, "sendType and recvType differ");
    auto counts = static_cast<const uint64_t*>(matrix);
    uint32_t n = plan.ranks();
    std::vector<uint64_t> out(counts + plan.me() * n, counts + (plan.me() + 1) * n), in(n);
    for (uint32_t r = 0; r < n; ++r) in[r] = counts[r * n + plan.me()];
    plan_all_to_all(plan, send, Parts(std::move(out)), recv, Parts(std::move(in)));
    return plan.launch();
  });
}

HcclResult HcclBarrier(HcclComm comm, aclrtStream stream) {
  return guarded("HcclBarrier", [&] {
    Plan plan("HcclBarrier", comm, HCCL_DATA_TYPE_INT8, stream);
    Phase& phase = plan.phase();
    for (uint32_t k = 1; k < plan.ranks(); ++k)  // empty messages: their frames alone make the ranks wait
      for (Move move : {Move::send, Move::receive}) phase.push_back(plan.piece(move, plan.after(k), nullptr, 0));
    return plan.launch();
  });
}

HcclResult HcclSend(void* buf, uint64_t count, HcclDataType dtype, uint32_t dest, HcclComm comm, aclrtStream stream) {
  return point_to_point("HcclSend", Move::send, buf, count, dtype, dest, comm, stream);
}

HcclResult HcclRecv(void* buf, uint64_t count, HcclDataType dtype, uint32_t source, HcclComm comm, aclrtStream stream) {
  return point_to_point("HcclRecv", Move::receive, buf, count, dtype, source, comm, stream);
}

HcclResult HcclBatchSendRecv(HcclSendRecvItem* items, uint32_t count, HcclComm comm, aclrtStream stream) {
  return guarded("HcclBatchSendRecv", [&] {
    if (!items || !count) refuse_hccl(items ? HCCL_E_PARA : HCCL_E_PTR, "no items");
    Plan plan(kPointToPoint, comm, items[0].dataType, stream);
    Phase& phase = plan.phase();
    for (const HcclSendRecvItem* item = items; item != items + count; ++item) {
      if (item->dataType != plan.dtype) refuse_hccl(HCCL_E_NOT_SUPPORT, "items of several data types");
      plan.rank_exists("remoteRank", item->remoteRank, true);
      Move move = item->sendRecvType == HCCL_SEND ? Move::send : Move::receive;
      phase.push_back(plan.piece(move, item->remoteRank, plan.buffer("buf", item->buf, item->count), item->count));
    }
    return plan.launch();
  });
}

HcclResult HcclGroupStart() {
  return guarded("HcclGroupStart", [] { return ++group_depth, HCCL_SUCCESS; });
}

HcclResult HcclGroupEnd() {
  return guarded("HcclGroupEnd", [] {
    if (!group_depth) refuse_hccl(HCCL_E_PARA, "no HcclGroupStart came before");
    if (--group_depth) return HCCL_SUCCESS;
    std::vector<Plan> plans;
    plans.swap(grouped);
    for (Plan& plan : plans) plan.launch();
    return HCCL_SUCCESS;
  });
}
