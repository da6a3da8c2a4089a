// Notifies: a flag between two streams that the waiting one resets by itself.
#include "runtime/stream.h"

namespace cann_sim {
namespace {

struct Notify {
  explicit Notify(uint32_t number) : id(number) {}
  ~Notify() { flag->release(); }
  const uint32_t id;
  Mark* const flag = new Mark(nullptr);
};
Handles<Notify>& notifies() {
  static auto* pool = [] {
    count_at_finalize("notifies", [] { return notifies().live(); });
    return new Handles<Notify>(65536);
  }();
  return *pool;
}
std::atomic<uint32_t> next_notify{0};

class NotifyTask : public ControlTask {
 public:
  explicit NotifyTask(Mark* flag) : flag_(flag) { flag->retain(); }
  ~NotifyTask() override { flag_->release(); }

 protected:
  Mark* const flag_;
};

class RecordTask final : public NotifyTask {
 public:
  using NotifyTask::NotifyTask;
  void run() override { flag_->reach_now(); }
  const char* name() const override { return "aclrtRecordNotify"; }
};

class WaitTask final : public NotifyTask {
 public:
  WaitTask(Mark* flag, uint32_t timeout_ms) : NotifyTask(flag), timeout_ms_(timeout_ms) {}
  void run() override {
    Deadline deadline = timeout_ms_ ? deadline_ms(timeout_ms_) : kForever;
    if (!bell().wait([this] { return flag_->reached() || Stream::waits_in_vain(); }, deadline))
      throw DeviceFault(ACL_ERROR_RT_WAIT_TIMEOUT,
                        "the notify was not recorded within " + std::to_string(timeout_ms_) + " ms");
    flag_->learn_from();
    flag_->forget();
  }
  const char* name() const override { return "aclrtWaitAndResetNotify"; }

 private:
  uint32_t timeout_ms_;
};

Notify* find_notify(aclrtNotify handle, const char* function, int* code) {
  if (!handle) return *code = fail(ACL_ERROR_INVALID_PARAM, "%s: notify is NULL", function), nullptr;
  if (!current_context()) return *code = ACL_ERROR_RT_CONTEXT_NULL, nullptr;
  Notify* found = notifies().get(handle);
  if (!found) *code = fail(ACL_ERROR_RT_PARAM_INVALID, "%s: %p is not a live notify", function, handle);
  return found;
}

}  // namespace
}  // namespace cann_sim

using namespace cann_sim;

aclError aclrtCreateNotify(aclrtNotify* notify, uint64_t flag) {
  CANN_ENTRY("aclrtCreateNotify");
  if (!notify) return fail(ACL_ERROR_INVALID_PARAM, "aclrtCreateNotify: notify is NULL");
  if (flag > ACL_NOTIFY_DEVICE_USE_ONLY) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtCreateNotify: unknown flag");
  if (!current_context()) return ACL_ERROR_RT_CONTEXT_NULL;
  Notify* made = notifies().make(next_notify.fetch_add(1));
  if (!made) return fail(ACL_ERROR_RT_NO_NOTIFY_RESOURCE, "aclrtCreateNotify: too many notifies");
  *notify = made;
  return 0;
}

aclError aclrtDestroyNotify(aclrtNotify notify) {
  CANN_ENTRY("aclrtDestroyNotify");
  int code = 0;
  if (!find_notify(notify, "aclrtDestroyNotify", &code)) return code;
  notifies().drop(notify);
  return 0;
}

aclError aclrtRecordNotify(aclrtNotify notify, aclrtStream stream) {
  CANN_ENTRY("aclrtRecordNotify");
  int code = 0;
  Notify* n = find_notify(notify, "aclrtRecordNotify", &code);
  return n ? enqueue(stream, new RecordTask(n->flag)) : code;
}

aclError aclrtWaitAndResetNotify(aclrtNotify notify, aclrtStream stream, uint32_t timeout) {
  CANN_ENTRY("aclrtWaitAndResetNotify");
  int code = 0;
  Notify* n = find_notify(notify, "aclrtWaitAndResetNotify", &code);
  return n ? enqueue(stream, new WaitTask(n->flag, timeout)) : code;
}

aclError aclrtGetNotifyId(aclrtNotify notify, uint32_t* notifyId) {
  CANN_ENTRY("aclrtGetNotifyId");
  if (!notifyId) return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetNotifyId: notifyId is NULL");
  int code = 0;
  Notify* n = find_notify(notify, "aclrtGetNotifyId", &code);
  if (!n) return code;
  *notifyId = n->id;
  return 0;
}

aclError aclrtNotifyBatchReset(aclrtNotify* notifies_, size_t num) {
  CANN_ENTRY("aclrtNotifyBatchReset");
  if (!notifies_ || !num)
    return fail(ACL_ERROR_INVALID_PARAM, "aclrtNotifyBatchReset: %s", notifies_ ? "num is 0" : "notifies is NULL");
  int code = 0;
  for (size_t i = 0; i < num; ++i)
    if (!find_notify(notifies_[i], "aclrtNotifyBatchReset", &code)) return code;
  for (size_t i = 0; i < num; ++i) notifies().get(notifies_[i])->flag->forget();
  return 0;
}
