// Copies and fills between host and device memory, blocking and queued.
#include <cstring>

#include "runtime/allocation.h"
#include "runtime/stream.h"

namespace cann_sim {
namespace {

// Rows of `width` bytes; a plain copy has one.
struct Region {
  void* dst;
  const void* src;
  size_t dst_pitch, src_pitch, width, height;
  uint64_t dst_bytes() const { return height ? dst_pitch * (height - 1) + width : 0; }
  uint64_t src_bytes() const { return height ? src_pitch * (height - 1) + width : 0; }
};

bool on_device(const void* p) { return is_device_address(p); }

void move(const Region& r) {
  Pins pins;
  char* dst = static_cast<char*>(on_device(r.dst) ? pins.resolve(r.dst, r.dst_bytes()) : r.dst);
  auto src = static_cast<const char*>(on_device(r.src) ? pins.resolve(r.src, r.src_bytes()) : r.src);
  if (settings().mode == Mode::null) {  // device memory is not touched: what comes back is zeros
    for (size_t i = 0; !on_device(r.dst) && i < r.height; ++i) memset(dst + i * r.dst_pitch, 0, r.width);
    return;
  }
  for (size_t i = 0; i < r.height; ++i) memmove(dst + i * r.dst_pitch, src + i * r.src_pitch, r.width);
}

bool between_devices(const Region& r) {
  Allocation dst, src;
  uintptr_t base;
  return on_device(r.dst) && on_device(r.src) && find_allocation(r.dst, &base, &dst) &&
         find_allocation(r.src, &base, &src) && dst.device != src.device;
}

class CopyTask final : public Task {
 public:
  CopyTask(const Region& region, bool snapshot) : region_(region) {
    always_runs = !on_device(region.dst);
    peers_ = modelling() && between_devices(region);
    watches_ = !snapshot && !on_device(region.src) && settings().check_race;
    if (watches_) hash_ = hash_source(region.src, region.src_bytes());
    if (!snapshot) return;
    auto from = static_cast<const char*>(region.src);
    kept_.assign(from, from + region.src_bytes());
    region_.src = kept_.data();
  }
  void run() override {
    move(region_);
    if (watches_ && host_knew && is_pinned(region_.src, region_.src_bytes()))
      watch_source(region_.src, region_.src_bytes(), hash_, *host_knew);
  }
  const char* name() const override { return "aclrtMemcpyAsync"; }
  Work work() const override {
    Work work;
    const auto bytes = static_cast<double>(region_.width * region_.height);
    if (on_device(region_.src) && on_device(region_.dst)) (peers_ ? work.link_bytes : work.bytes) = peers_ ? bytes : 2 * bytes;
    else work.host_bytes = bytes;
    return work;
  }
  void list_uses(std::vector<Access>& uses) const override {
    if (kept_.empty()) list_rows(uses, region_.src, region_.src_pitch, false);
    list_rows(uses, region_.dst, region_.dst_pitch, true);
  }

 private:
  void list_rows(std::vector<Access>& uses, const void* base, size_t pitch, bool writes) const {
    const char* what = writes ? "dst" : "src";
    const bool dense = pitch == region_.width;
    for (size_t i = 0; i < (dense ? 1 : region_.height); ++i)
      uses.push_back({static_cast<const char*>(base) + i * pitch, region_.width * (dense ? region_.height : 1), writes, what});
  }
  Region region_;
  bool watches_ = false, peers_ = false;
  uint64_t hash_ = 0;                   // of pinned memory, when the copy was queued
  std::vector<char> kept_;              // pageable host memory, as it was when the copy was queued
};

class FillTask final : public Task {
 public:
  FillTask(void* p, uint32_t value, size_t width, size_t count) : p_(p), value_(value), width_(width), count_(count) {}
  void run() override;
  const char* name() const override { return "aclrtMemsetAsync"; }
  void list_uses(std::vector<Access>& uses) const override { uses.push_back({p_, width_ * count_, true, "devPtr"}); }

 private:
  void* p_;
  uint32_t value_;
  size_t width_, count_;                // of one value in bytes; how many
};

void fill(void* p, uint32_t value, size_t width, size_t count) {
  Pins pins;
  char* at = static_cast<char*>(on_device(p) ? pins.resolve(p, width * count) : p);
  if (settings().mode == Mode::null) return;
  if (width == 1) memset(at, static_cast<int>(value), count);
  else for (size_t i = 0; i < count; ++i) memcpy(at + 4 * i, &value, 4);
}

void FillTask::run() { fill(p_, value_, width_, count_); }

// Between devices the current one must be allowed to reach the other.
int check_peers(const Region& r, const char* function) {
  Allocation dst, src;
  uintptr_t base;
  if (!on_device(r.dst) || !on_device(r.src)) return 0;
  if (!find_allocation(r.dst, &base, &dst) || !find_allocation(r.src, &base, &src)) return 0;
  if (dst.device == src.device) return 0;
  bool allowed = src.device->reaches(*dst.device) || dst.device->reaches(*src.device);
  if (allowed) return 0;
  return fail(ACL_ERROR_RT_NO_PERMISSION, "%s: copies between devices %d and %d need aclrtDeviceEnablePeerAccess",
              function,
              src.device->id, dst.device->id);
}

int check_kind(const Region& r, aclrtMemcpyKind kind, const char* function) {
  bool from = on_device(r.src), to = on_device(r.dst);
  switch (kind) {
    case ACL_MEMCPY_HOST_TO_HOST: if (!from && !to) return 0; break;
    case ACL_MEMCPY_HOST_TO_DEVICE:
    case ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE: if (!from && to) return 0; break;
    case ACL_MEMCPY_DEVICE_TO_HOST: if (from && !to) return 0; break;
    case ACL_MEMCPY_DEVICE_TO_DEVICE:
    case ACL_MEMCPY_INNER_DEVICE_TO_DEVICE:
    case ACL_MEMCPY_INTER_DEVICE_TO_DEVICE: if (from && to) return 0; break;
    default: return 0;                  // ACL_MEMCPY_DEFAULT: the addresses decide
  }
  return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: kind %d does not fit: src %p is %s memory, dst %p is %s memory",
              function,
              kind, r.src, from ? "device" : "host", r.dst, to ? "device" : "host");
}

int check_region(const Region& r, aclrtMemcpyKind kind, const char* function) {
  if (!r.dst || !r.src) return fail(ACL_ERROR_INVALID_PARAM, "%s: %s is NULL", function, r.dst ? "src" : "dst");
  if (kind < ACL_MEMCPY_HOST_TO_HOST || kind > ACL_MEMCPY_INTER_DEVICE_TO_DEVICE)
    return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: %d is not a kind of copy", function, kind);
  if (on_device(r.dst) && !is_device_memory(r.dst, r.dst_bytes()))
    return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: dst: %s", function, describe_memory(r.dst, r.dst_bytes()).c_str());
  if (on_device(r.src) && !is_device_memory(r.src, r.src_bytes()))
    return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: src: %s", function, describe_memory(r.src, r.src_bytes()).c_str());
  return check_peers(r, function);
}

int check_room(size_t room, size_t count, const char* function) {
  if (count <= room) return 0;
  return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: %zu bytes do not fit into %zu", function, count, room);
}

int check_pitches(const Region& r, const char* function) {
  if (!r.width || !r.height) return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: width or height is 0", function);
  if (r.width <= r.dst_pitch && r.width <= r.src_pitch) return 0;
  return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: a row of %zu bytes is wider than a pitch (%zu, %zu)", function, r.width,
              r.dst_pitch, r.src_pitch);
}

// A blocking call: not ordered with any stream, and not possible after a fault or while this thread captures.
int begin_blocking(const char* function) {
  Context* c = current_context();
  if (!c) return ACL_ERROR_RT_CONTEXT_NULL;
  if (int code = refuse_unsafe_call(function)) return code;
  return c->faults->report();
}

int copy_now(const Region& r, aclrtMemcpyKind kind, const char* function) {
  if (int code = begin_blocking(function)) return code;
  if (int code = check_region(r, kind, function)) return code;
  if (settings().strict)
    if (int code = check_kind(r, kind, function)) return code;
  if (following_order()) {
    if (on_device(r.src)) note_host_use(function, {r.src, r.src_bytes(), false, "src"});
    if (on_device(r.dst)) note_host_use(function, {r.dst, r.dst_bytes(), true, "dst"});
  }
  try {
    move(r);
  } catch (const DeviceFault& fault) {  // freed by another thread since the check
    return fail(fault.code, "%s: %s", function, fault.what());
  }
  return 0;
}

int copy_later(const Region& r, aclrtMemcpyKind kind, aclrtStream stream, const char* function) {
  if (int code = check_stream(stream, function)) return code;
  if (int code = check_region(r, kind, function)) return code;
  if (int code = check_kind(r, kind, function)) return code;
  if (!on_device(r.dst) && !on_device(r.src))
    return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "%s: copies from host to host are not queued", function);
  bool pageable = !on_device(r.src) && !is_pinned(r.src, r.src_bytes());
  if (pageable || (!on_device(r.dst) && !is_pinned(r.dst, r.dst_bytes())))
    if (int code = refuse_pageable_copy(stream, function)) return code;
  return enqueue(stream, new CopyTask(r, pageable));
}

int check_fill(const void* p, size_t bytes, const char* function) {
  if (!p) return fail(ACL_ERROR_INVALID_PARAM, "%s: devPtr is NULL", function);
  if (!bytes || !on_device(p) || is_device_memory(p, bytes)) return 0;
  return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: %s", function, describe_memory(p, bytes).c_str());
}

int fill_now(void* p, size_t room, uint32_t value, size_t width, size_t count, const char* function) {
  if (int code = begin_blocking(function)) return code;
  if (int code = check_room(room, width * count, function)) return code;
  if (int code = check_fill(p, width * count, function)) return code;
  if (!count) return 0;
  if (following_order()) note_host_use(function, {p, width * count, true, "devPtr"});
  try {
    fill(p, value, width, count);
  } catch (const DeviceFault& fault) {
    return fail(fault.code, "%s: %s", function, fault.what());
  }
  return 0;
}

int fill_later(void* p, size_t room, uint32_t value, size_t width, size_t count, aclrtStream stream,
               const char* function) {
  if (int code = check_stream(stream, function)) return code;
  if (int code = check_room(room, width * count, function)) return code;
  if (int code = check_fill(p, width * count, function)) return code;
  if (p && !on_device(p))
    return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: %p is host memory; only device memory is filled by a stream", function,
                p);
  return count ? enqueue(stream, new FillTask(p, value, width, count)) : 0;
}

Region plain(void* dst, const void* src, size_t count) { return {dst, src, count, count, count, 1}; }

}  // namespace
}  // namespace cann_sim

using namespace cann_sim;

aclError aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind) {
  CANN_ENTRY("aclrtMemcpy");
  if (!count && current_context()) return 0;
  if (int code = check_room(destMax, count, "aclrtMemcpy")) return code;
  return copy_now(plain(dst, src, count), kind, "aclrtMemcpy");
}

aclError aclrtMemcpyAsync(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind,
                          aclrtStream stream) {
  CANN_ENTRY("aclrtMemcpyAsync");
  if (!count) return check_stream(stream, "aclrtMemcpyAsync");
  if (int code = check_room(destMax, count, "aclrtMemcpyAsync")) return code;
  return copy_later(plain(dst, src, count), kind, stream, "aclrtMemcpyAsync");
}

aclError aclrtMemcpyAsyncWithCondition(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind,
                                       aclrtStream stream) {
  CANN_ENTRY("aclrtMemcpyAsyncWithCondition");
  if (!count) return check_stream(stream, "aclrtMemcpyAsyncWithCondition");
  if (int code = check_room(destMax, count, "aclrtMemcpyAsyncWithCondition")) return code;
  return copy_later(plain(dst, src, count), kind, stream, "aclrtMemcpyAsyncWithCondition");
}

aclError aclrtMemcpy2d(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width, size_t height,
                       aclrtMemcpyKind kind) {
  CANN_ENTRY("aclrtMemcpy2d");
  Region r = {dst, src, dpitch, spitch, width, height};
  if (int code = check_pitches(r, "aclrtMemcpy2d")) return code;
  return copy_now(r, kind, "aclrtMemcpy2d");
}

aclError aclrtMemcpy2dAsync(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width, size_t height,
                            aclrtMemcpyKind kind, aclrtStream stream) {
  CANN_ENTRY("aclrtMemcpy2dAsync");
  Region r = {dst, src, dpitch, spitch, width, height};
  if (int code = check_pitches(r, "aclrtMemcpy2dAsync")) return code;
  return copy_later(r, kind, stream, "aclrtMemcpy2dAsync");
}

aclError aclrtMemset(void* devPtr, size_t maxCount, int32_t value, size_t count) {
  CANN_ENTRY("aclrtMemset");
  return fill_now(devPtr, maxCount, value, 1, count, "aclrtMemset");
}

aclError aclrtMemsetAsync(void* devPtr, size_t maxCount, int32_t value, size_t count, aclrtStream stream) {
  CANN_ENTRY("aclrtMemsetAsync");
  return fill_later(devPtr, maxCount, value, 1, count, stream, "aclrtMemsetAsync");
}

aclError aclrtMemsetD32(void* ptr, size_t memSize, uint32_t value, size_t N) {
  CANN_ENTRY("aclrtMemsetD32");
  return fill_now(ptr, memSize, value, 4, N, "aclrtMemsetD32");
}

aclError aclrtMemsetD32Async(void* ptr, size_t memSize, uint32_t value, size_t N, aclrtStream stream) {
  CANN_ENTRY("aclrtMemsetD32Async");
  return fill_later(ptr, memSize, value, 4, N, stream, "aclrtMemsetD32Async");
}

// ---- many copies in one call: the addresses say in which direction each goes ------------------------------------

namespace {

template <class Copy>
int copy_all(void** dsts, size_t* rooms, void** srcs, size_t* sizes, size_t count, size_t* failed, const char* function,
             Copy copy) {
  if (failed) *failed = SIZE_MAX;
  if (!dsts || !rooms || !srcs || !sizes || !count)
    return fail(ACL_ERROR_INVALID_PARAM, "%s: an array is NULL, or numBatches is 0", function);
  for (size_t i = 0; i < count; ++i) {
    int code = check_room(rooms[i], sizes[i], function);
    if (!code && sizes[i]) code = copy(plain(dsts[i], srcs[i], sizes[i]));
    if (!code) continue;
    if (failed) *failed = i;
    return code;
  }
  return 0;
}

}  // namespace

aclError aclrtMemcpyBatch(void** dsts, size_t* destMaxs, void** srcs, size_t* sizes, size_t numBatches,
                          aclrtMemcpyBatchAttr*,
                          size_t*, size_t, size_t* failIndex) {
  CANN_ENTRY("aclrtMemcpyBatch");
  return copy_all(dsts, destMaxs, srcs, sizes, numBatches, failIndex, "aclrtMemcpyBatch",
                  [](const Region& r) { return copy_now(r, ACL_MEMCPY_DEFAULT, "aclrtMemcpyBatch"); });
}

aclError aclrtMemcpyBatchV2(void** dsts, size_t* destMaxs, void** srcs, size_t* sizes, size_t numBatches,
                            aclrtMemcpyBatchAttr*, size_t*, size_t) {
  CANN_ENTRY("aclrtMemcpyBatchV2");
  return copy_all(dsts, destMaxs, srcs, sizes, numBatches, nullptr, "aclrtMemcpyBatchV2",
                  [](const Region& r) { return copy_now(r, ACL_MEMCPY_DEFAULT, "aclrtMemcpyBatchV2"); });
}

aclError aclrtMemcpyBatchAsync(void** dsts, size_t* destMaxs, void** srcs, size_t* sizes, size_t numBatches,
                               aclrtMemcpyBatchAttr*, size_t*, size_t, size_t* failIndex, aclrtStream stream) {
  CANN_ENTRY("aclrtMemcpyBatchAsync");
  return copy_all(dsts, destMaxs, srcs, sizes, numBatches, failIndex, "aclrtMemcpyBatchAsync",
                  [=](const Region& r) { return copy_later(r, ACL_MEMCPY_DEFAULT, stream, "aclrtMemcpyBatchAsync"); });
}

aclError aclrtMemcpyBatchAsyncV2(void** dsts, size_t* destMaxs, void** srcs, size_t* sizes, size_t numBatches,
                                 aclrtMemcpyBatchAttr*, size_t*, size_t, aclrtStream stream) {
  CANN_ENTRY("aclrtMemcpyBatchAsyncV2");
  return copy_all(dsts, destMaxs, srcs, sizes, numBatches, nullptr, "aclrtMemcpyBatchAsyncV2",
                  [=](const Region& r) { return copy_later(r, ACL_MEMCPY_DEFAULT, stream,
                                                           "aclrtMemcpyBatchAsyncV2"); });
}
