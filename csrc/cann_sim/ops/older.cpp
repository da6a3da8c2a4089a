// Ops of the older interface: their table, the checks of a call, and the task that runs it.
#include "ops/older.h"

#include <cstring>

#include "runtime/desc.h"

namespace cann_sim {
namespace {

std::map<std::string, OlderOp>& table() {
  static auto& one = *new std::map<std::string, OlderOp>;
  return one;
}

int64_t bytes_of(const OlderOperand& o) { return o.numel() * element_size(o.dtype); }

class OlderTask final : public Task {
 public:
  OlderTask(const OlderOp& row, std::vector<OlderOperand> in, std::vector<OlderOperand> out, const aclopAttr* attr,
            std::shared_ptr<std::map<size_t, Sizes>> found)
      : row_(row), in_(std::move(in)), out_(std::move(out)), attr_(attr ? new aclopAttr(*attr) : nullptr), found_(std::move(found)) {}
  // What a row refuses while it runs, a card's compiler refuses before anything is queued.
  void run() override {
    Older call(row_.name, in_, out_, attr_.get(), found_.get());
    Pins pins;                          // memory that is gone is a fault as that of any other task
    for (const auto* operands : {&in_, &out_})
      for (const OlderOperand& o : *operands)
        if (o.given() && o.host.empty() && o.numel()) pins.resolve(o.data, static_cast<size_t>(bytes_of(o)));
    try {
      row_.run(call);
    } catch (const DeviceFault& fault) {
      if (fault.code != ACL_ERROR_RT_AICPU_EXCEPTION && fault.code != ACL_ERROR_RT_AICORE_EXCEPTION) throw;
      throw LateRefusal(ACL_ERROR_GE_FAILURE, fault.what());
    }
  }
  const char* name() const override { return row_.name; }
  void list_uses(std::vector<Access>& uses) const override {
    auto list = [&](const std::vector<OlderOperand>& operands, bool writes) {
      for (const OlderOperand& o : operands)
        if (o.given() && o.host.empty() && o.numel())
          uses.push_back({o.data, static_cast<size_t>(bytes_of(o)), writes, writes ? "an output" : "an input", true});
    };
    list(in_, false);
    list(out_, true);
  }

 private:
  const OlderOp& row_;
  std::vector<OlderOperand> in_, out_;
  std::unique_ptr<aclopAttr> attr_;
  std::shared_ptr<std::map<size_t, Sizes>> found_;
};

// What the client sent, for a message: 2 inputs int32 [2, 3], float32 [], attributes axis=-1 mode="sum"
std::string listed(const std::vector<int64_t>& items) {
  std::string text;
  for (int64_t i : items) text += (text.empty() ? "" : ", ") + std::to_string(i);
  return "[" + text + "]";
}
std::string described(const std::vector<OlderOperand>& operands) {
  std::string text;
  for (const OlderOperand& o : operands)
    text += (text.empty() ? " " : ", ") + (o.given() ? "of data type " + std::to_string(o.dtype) + " " + listed(o.dims) : "absent");
  return text;
}
std::string described(const aclopAttr* attr) {
  if (!attr) return " none";
  std::string text;
  for (auto& a : attr->ints) text += " " + a.first + "=" + (a.second.size() == 1 ? std::to_string(a.second[0]) : listed(a.second));
  for (auto& a : attr->floats) text += " " + a.first + "=" + (a.second.size() == 1 ? std::to_string(a.second[0]) : "[...]");
  for (auto& a : attr->strings) text += " " + a.first + "=\"" + (a.second.empty() ? "" : a.second[0]) + "\"";
  for (auto& a : attr->lists) text += " " + a.first;
  return text;
}
std::string described(const std::vector<OlderOperand>& in, const std::vector<OlderOperand>& out, const aclopAttr* attr) {
  return std::to_string(in.size()) + " inputs" + described(in) + ", " + std::to_string(out.size()) + " outputs" + described(out) + ", attributes" + described(attr);
}

int check(const char* op, const char* what, const std::vector<OlderOperand>& operands) {
  for (size_t i = 0; i < operands.size(); ++i) {
    const OlderOperand& o = operands[i];
    if (!o.given() || !o.numel()) continue;
    const auto bytes = static_cast<size_t>(bytes_of(o));
    if (!bytes) return fail(ACL_ERROR_UNSUPPORTED_DATA_TYPE, "%s: %s %zu of data type %d", op, what, i, o.dtype);
    if (!o.host.empty()) {
      if (o.host.size() < bytes) return fail(ACL_ERROR_INVALID_PARAM, "%s: %s %zu is too short", op, what, i);
    } else if (bytes > o.bytes || !is_device_memory(o.data, bytes)) {
      return fail(ACL_ERROR_INVALID_PARAM, "%s: %s %zu has no %zu bytes of live device memory at %p", op, what, i, bytes, o.data);
    }
  }
  return 0;
}

}  // namespace

OlderOps::OlderOps(std::initializer_list<OlderOp> rows) {
  for (const OlderOp& row : rows) table().emplace(row.name, row);
}

int run_older(const char* op, std::vector<OlderOperand> in, std::vector<OlderOperand> out, const aclopAttr* attr,
              aclrtStream stream, std::map<size_t, Sizes>* found) {
  const auto known = table().find(op);
  if (known == table().end())
    return fail(ACL_ERROR_OP_NOT_FOUND, "%s: not one of the ops that run by this older interface; use aclnn (got %s)", op,
                described(in, out, attr).c_str());
  if (recording()) record_call(std::string(op) + ": " + described(in, out, attr));
  const OlderOp& row = known->second;
  if (in.size() < row.least || in.size() > row.most)
    return fail(ACL_ERROR_OP_INPUT_NOT_MATCH, "%s: expected %zu to %zu inputs, got %zu", op, row.least, row.most, in.size());
  if (out.size() != row.outputs)
    return fail(ACL_ERROR_OP_OUTPUT_NOT_MATCH, "%s: expected %zu outputs, got %zu", op, row.outputs, out.size());
  if (int code = check(op, "input", in)) return code;
  if (int code = check(op, "output", out)) return code;
  if (row.check) try {
    Older call(row.name, in, out, attr);
    row.check(call);
  } catch (const DeviceFault& refusal) {
    return fail(ACL_ERROR_OP_OUTPUT_NOT_MATCH, "%s", refusal.what());
  }
  if (!found) return enqueue(stream, new OlderTask(row, std::move(in), std::move(out), attr, nullptr));
  const auto shapes = std::make_shared<std::map<size_t, Sizes>>();  // the task's too: a wait may end early
  if (int code = enqueue(stream, new OlderTask(row, std::move(in), std::move(out), attr, shapes))) return code;
  if (int code = aclrtSynchronizeStream(stream)) return code;
  *found = *shapes;
  return 0;
}

// ---- a call ---------------------------------------------------------------------------------------------------------
int64_t OlderOperand::numel() const {
  int64_t n = 1;
  for (int64_t size : dims) n *= size;
  return n;
}

Older::Older(const char* op, std::vector<OlderOperand> in, std::vector<OlderOperand> out, const aclopAttr* attr,
             std::map<size_t, Sizes>* found)
    : op_(op), in_(std::move(in)), out_(std::move(out)), attr_(attr ? new aclopAttr(*attr) : new aclopAttr), found_(found) {}
Older::~Older() = default;

void Older::refuse(const std::string& why) const { throw DeviceFault(ACL_ERROR_RT_AICPU_EXCEPTION, op_ + ": " + why); }

Value Older::value(OlderOperand& o) {
  if (!o.given()) return Value();
  Value v;
  v.ndim = static_cast<int32_t>(o.dims.size());
  v.dtype = bits_of(o.dtype);
  int64_t step = 1;
  for (int d = v.ndim - 1; d >= 0; --d) {
    v.sizes[d] = o.dims[d];
    v.strides[d] = step;
    step *= o.dims[d];
  }
  if (!o.numel()) return v;
  v.data = o.host.empty() ? pins_.resolve(o.data, static_cast<size_t>(bytes_of(o))) : o.host.data();
  return v;
}
Value Older::in(size_t i) { return i < in_.size() ? value(in_[i]) : Value(); }
Value Older::out(size_t i) { return value(out_.at(i)); }
Value Older::found(size_t i, const Sizes& sizes) {
  OlderOperand part = out_.at(i);
  part.dims = sizes;
  if (part.numel() > out_[i].numel()) refuse("output " + std::to_string(i) + " has no room for what was found");
  if (found_) (*found_)[i] = sizes;
  return value(part);
}

Value Older::strided(OlderOperand& o, const Sizes& sizes, const Sizes& strides, int64_t offset) {
  if (sizes.size() != strides.size() || sizes.size() > size_t(kMaxRank)) refuse("sizes and strides do not fit together");
  Value v;
  v.ndim = int32_t(sizes.size());
  v.dtype = bits_of(o.dtype);
  int64_t last = offset, items = 1;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] < 0 || strides[d] < 0) refuse("a size or a stride is negative");
    v.sizes[d] = sizes[d];
    v.strides[d] = strides[d];
    last += (sizes[d] - 1) * strides[d];
    items *= sizes[d];
  }
  if (!items) return v;
  const int64_t size = mt::itemsize(v.dtype);
  if (offset < 0) refuse("the view begins before the memory");
  if (!o.host.empty()) refuse("a view of host memory is not supported");
  v.data = pins_.resolve(static_cast<char*>(o.data) + offset * size, size_t((last - offset + 1) * size));
  return v;
}

Sizes Older::numbers(size_t i) {
  const Value v = in(i).to(mt::kInt64).dense();
  return Sizes(v.ptr<int64_t>(), v.ptr<int64_t>() + v.numel());
}
double Older::number(size_t i) {
  const Value v = in(i).to(mt::kDouble).dense();
  if (v.numel() != 1) refuse("input " + std::to_string(i) + " must have one item");
  return *v.ptr<double>();
}

int64_t Older::integer(const char* name, int64_t otherwise) const {
  const auto i = attr_->ints.find(name);
  return i == attr_->ints.end() || i->second.empty() ? otherwise : i->second[0];
}
double Older::real(const char* name, double otherwise) const {
  const auto i = attr_->floats.find(name);
  if (i != attr_->floats.end() && !i->second.empty()) return i->second[0];
  return static_cast<double>(integer(name, 0)) + (attr_->ints.count(name) ? 0 : otherwise);
}
std::string Older::text(const char* name, const char* otherwise) const {
  const auto i = attr_->strings.find(name);
  return i == attr_->strings.end() || i->second.empty() ? otherwise : i->second[0];
}
Sizes Older::list(const char* name) const {
  const auto i = attr_->ints.find(name);
  return i == attr_->ints.end() ? Sizes() : i->second;
}

std::vector<double> Older::reals(const char* name) const {
  const auto i = attr_->floats.find(name);
  return i == attr_->floats.end() ? std::vector<double>() : std::vector<double>(i->second.begin(), i->second.end());
}

}  // namespace cann_sim
