// Launches aclnn ops: arguments in, CANN's two phases out. Knows CANN's C ABI by function pointers that were resolved
// elsewhere, and nothing of Python. Everything runs under the interpreter's lock, so there is no other.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "lru_cache.h"

namespace mt {
namespace npu {

// CANN's functions around an op, in the order of API_NAMES in launch.pxi.
struct Api {
  void* (*create_tensor)(const int64_t*, uint64_t, int32_t, const int64_t*, int64_t, int32_t, const int64_t*, uint64_t, void*);
  void* (*create_scalar)(void*, int32_t);
  void* (*create_ints)(const int64_t*, uint64_t);
  void* (*create_floats)(const float*, uint64_t);
  void* (*create_bools)(const bool*, uint64_t);
  void* (*create_tensors)(void* const*, uint64_t);
  void* (*create_scalars)(void* const*, uint64_t);
  int32_t (*destroy_tensor)(void*);
  int32_t (*destroy_scalar)(void*);
  int32_t (*destroy_ints)(void*);
  int32_t (*destroy_floats)(void*);
  int32_t (*destroy_bools)(void*);
  int32_t (*destroy_tensors)(void*);
  int32_t (*destroy_scalars)(void*);
  int32_t (*destroy_executor)(void*);
  int32_t (*set_repeatable)(void*);
  int32_t (*set_input)(void*, size_t, void*, void*);
  int32_t (*set_output)(void*, size_t, void*, void*);
  int32_t (*set_input_of_list)(void*, size_t, size_t, void*, void*);
  int32_t (*set_output_of_list)(void*, size_t, size_t, void*, void*);
  int32_t (*view_shape)(void*, int64_t**, uint64_t*);
  int32_t (*synchronize)(void*);
};

enum Kind : int32_t {  // of an argument
  kTensor, kOut, kInout, kTensors, kOuts, kInouts, kScalar, kScalars, kInts, kFloats, kBools, kString,
  kInt64, kInt32, kInt8, kUint64, kBool, kDtype, kDoubleValue, kFloatValue
};
inline bool is_tensor_kind(int32_t k) { return k <= kInout; }
inline bool is_list_kind(int32_t k) { return k >= kTensors && k <= kInouts; }

// ---- calling a function whose arguments are only known as data -----------------------------------------------------
// Integers and pointers go to one row of registers, floats to another, each in order; the rest go to the stack in order.
// So one prototype with all registers first serves every signature. A float travels in the low half of a double.
#if defined(__x86_64__)
constexpr int kWordRegisters = 6;
#elif defined(__aarch64__)
constexpr int kWordRegisters = 8;
#else
#error "the calling convention of this processor is not known here"
#endif
constexpr int kFloatRegisters = 8, kStackWords = 64;

class Words {
 public:
  void word(int64_t x) {
    if (words_ < kWordRegisters) word_[words_++] = x;
    else push(x);
  }
  void pointer(const void* p) { word(reinterpret_cast<int64_t>(p)); }
  void number(double x) {
    if (floats_ < kFloatRegisters) {
      float_[floats_++] = x;
    } else {
      int64_t bits;
      std::memcpy(&bits, &x, 8);
      push(bits);
    }
  }
  void short_number(float x) {  // the callee reads the low 32 bits only
    double wide = 0;
    std::memcpy(&wide, &x, 4);
    number(wide);
  }
  bool fits() const { return stacked_ <= kStackWords; }
  int32_t call(void* function) const {
    if (stacked_ == 0) return with_stack<0>(function, std::make_index_sequence<0>());
    if (stacked_ <= 8) return with_stack<8>(function, std::make_index_sequence<8>());
    if (stacked_ <= 24) return with_stack<24>(function, std::make_index_sequence<24>());
    return with_stack<kStackWords>(function, std::make_index_sequence<kStackWords>());
  }

 private:
  void push(int64_t x) {
    if (stacked_ < kStackWords) stack_[stacked_] = x;
    ++stacked_;
  }
  template <size_t> using Word = int64_t;
  template <int N, size_t... I>
  int32_t with_stack(void* function, std::index_sequence<I...>) const {
    const double* f = float_;
    const int64_t* w = word_;
#if defined(__x86_64__)
    using Function = int32_t (*)(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, double, double, double, double, double,
                                 double, double, double, Word<I>...);
    return reinterpret_cast<Function>(function)(w[0], w[1], w[2], w[3], w[4], w[5], f[0], f[1], f[2], f[3], f[4], f[5], f[6],
                                                f[7], stack_[I]...);
#else
    using Function = int32_t (*)(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, double, double,
                                 double, double, double, double, double, double, Word<I>...);
    return reinterpret_cast<Function>(function)(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], f[0], f[1], f[2], f[3], f[4],
                                                f[5], f[6], f[7], stack_[I]...);
#endif
  }
  int64_t word_[8] = {};
  double float_[kFloatRegisters] = {};
  int64_t stack_[kStackWords];
  int words_ = 0, floats_ = 0, stacked_ = 0;
};

// ---- the arguments of one call -----------------------------------------------------------------------------------
struct TensorArg {
  const int64_t *sizes, *strides;
  int64_t offset, storage_items;
  void* base;
  int32_t ndim, dtype;  // ndim -1: absent
  bool dense;           // row-major, so that the strides follow from the sizes
  bool whole;           // dense, and all of its storage
};
struct Item {
  int32_t kind;
  bool given;
  int32_t first, count;  // of a tensor or list: its place in the call's pools
  int64_t i;
  double d;
};
struct Number {
  int32_t dtype;
  int64_t i;
  double re, im;
};
inline bool is_whole_number(int32_t dtype) { return dtype == 9 || dtype == 12; }  // ACL_INT64, ACL_BOOL
inline uint64_t bits_of(double x) {
  uint64_t bits;
  std::memcpy(&bits, &x, 8);
  return bits;
}

// Arguments as CANN's objects are made of them, and the key that says which calls are alike: everything but addresses.
class Call {
 public:
  void begin(uint64_t plan) {
    items.clear();
    tensors.clear();
    numbers.clear();
    ints.clear();
    floats.clear();
    text.clear();
    key.clear();
    key.push(plan);
  }
  void tensor(int32_t kind, const TensorArg& t) {
    items.push({kind, t.ndim >= 0, static_cast<int32_t>(tensors.size()), 1, 0, 0});
    add(t);
  }
  void list(int32_t kind, int32_t count, bool given) {  // count calls of add follow
    items.push({kind, given, static_cast<int32_t>(tensors.size()), count, 0, 0});
    key.push(static_cast<uint64_t>(count) << 1 | given);
  }
  void add(const TensorArg& t) {
    tensors.push(t);
    if (t.ndim < 0) return key.push(0);
    const size_t n = static_cast<size_t>(t.ndim), words = 1 + n + (t.whole ? 0 : 2) + (t.dense ? 0 : n);
    uint64_t* word = key.add(words);
    *word++ = (n + 1) << 32 | static_cast<uint64_t>(t.dtype) << 2 | static_cast<uint64_t>(t.dense) << 1 | t.whole;
    std::memcpy(word, t.sizes, 8 * n);
    word += n;
    if (t.whole) return;
    *word++ = static_cast<uint64_t>(t.offset);
    *word++ = static_cast<uint64_t>(t.storage_items);
    if (!t.dense) std::memcpy(word, t.strides, 8 * n);
  }
  void scalars(int32_t kind, int32_t count, bool given) {  // count calls of scalar follow
    items.push({kind, given, static_cast<int32_t>(numbers.size()), count, 0, 0});
    key.push(static_cast<uint64_t>(count) << 1 | given);
  }
  void scalar(const Number& n) {
    numbers.push(n);
    uint64_t* word = key.add(3);
    word[0] = static_cast<uint64_t>(n.dtype);
    word[1] = is_whole_number(n.dtype) ? static_cast<uint64_t>(n.i) : bits_of(n.re);
    word[2] = bits_of(n.im);
  }
  void integers(int32_t kind, const int64_t* from, int32_t count, bool given) {
    items.push({kind, given, static_cast<int32_t>(ints.size()), count, 0, 0});
    key.push(static_cast<uint64_t>(count) << 1 | given);
    if (!count) return;
    std::memcpy(ints.add(count), from, 8 * static_cast<size_t>(count));
    std::memcpy(key.add(count), from, 8 * static_cast<size_t>(count));
  }
  void reals(const double* from, int32_t count, bool given) {
    items.push({kFloats, given, static_cast<int32_t>(floats.size()), count, 0, 0});
    key.push(static_cast<uint64_t>(count) << 1 | given);
    for (int32_t k = 0; k < count; ++k) {
      floats.push(static_cast<float>(from[k]));
      key.push(bits_of(from[k]));
    }
  }
  void plain(int32_t kind, int64_t i, double d) {
    items.push({kind, true, 0, 0, i, d});
    key.push(static_cast<uint64_t>(i) ^ bits_of(d));
  }
  void string(const char* s) {
    const size_t n = s ? std::strlen(s) : 0;
    items.push({kString, s != nullptr, static_cast<int32_t>(text.size()), 0, 0, 0});
    if (s) std::memcpy(text.add(n + 1), s, n + 1);
    key.push(n << 1 | (s != nullptr));
    for (size_t k = 0; k < n; ++k) key.push(static_cast<uint64_t>(s[k]));
  }
  // Said before Python may run: until then sizes and strides are the tensors' own, which may get another geometry.
  void own_dims() {
    size_t words = 0;
    for (const TensorArg& t : tensors) words += t.ndim > 0 ? 2 * static_cast<size_t>(t.ndim) : 0;
    dims.clear();
    int64_t* own = dims.add(words);
    for (size_t k = 0; k < tensors.size(); ++k) {
      TensorArg& t = tensors.at(k);
      if (t.ndim <= 0) continue;
      t.sizes = std::copy(t.sizes, t.sizes + t.ndim, own) - t.ndim;
      t.strides = std::copy(t.strides, t.strides + t.ndim, own + t.ndim) - t.ndim;
      own += 2 * t.ndim;
    }
  }
  // All arguments are there. A call that writes over what it reads is of its own kind: CANN may copy first.
  uint64_t end() {
    uint64_t over = 0, at = 0;
    for (const Item& out : items) {
      if (out.kind != kOut || !out.given) continue;
      for (const Item& in : items)
        if (in.kind == kTensor && in.given && tensors[in.first].base == tensors[out.first].base) over |= 1ull << (at % 64);
      ++at;
    }
    if (over) key.push(over);
    return hash_of(key);
  }

  Row<Item> items;
  Row<TensorArg> tensors;
  Row<Number> numbers;
  Row<int64_t> ints, dims;
  Row<float> floats;
  Row<char> text;
  Key key;
};

// ---- executors that are kept -------------------------------------------------------------------------------------
// Called when CANN refuses to destroy an object, which is then leaked: the code that drops a call cannot act on it.
inline void (*destroy_failed)(const char* function, int32_t code) = nullptr;
constexpr int32_t kNoObject = -1;  // a first phase that did not run: CANN made no object for an argument

// The objects behind one first phase. Destroyed with it, unless a repeatable executor keeps them for the next call.
class Prepared {
 public:
  explicit Prepared(const Api& api) : api_(api) {}
  ~Prepared() {
    if (executor) destroy({"aclDestroyAclOpExecutor", api_.destroy_executor, executor});  // kept, or never launched
    for (const Made& m : made_) destroy(m);
  }
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;

  // Makes CANN's objects and runs the first phase; its status, or kNoObject with `refused` set.
  int32_t first_phase(const Call& call, void* function) {
    Words words;
    made_.reserve(call.items.size() + call.tensors.size() + call.numbers.size());  // so that no object is made and lost
    slots.reserve(call.tensors.size());
    for (const Item& item : call.items)
      if (!argument(words, call, item)) return kNoObject;
    words.pointer(&workspace);
    words.pointer(&executor);
    if (words.fits()) return words.call(function);
    refused = "more arguments than the launcher passes";
    return kNoObject;
  }

  void* executor = nullptr;
  uint64_t workspace = 0;
  bool repeatable = false;
  const char* refused = "";     // the function that returned no object
  struct Slot {
    int32_t at, input, output;  // input/output -1: not one
    int32_t place;              // in the list that `object` is then; -1: a tensor of its own
    void *object, *address;
  };
  std::vector<Slot> slots;      // every tensor

 private:
  struct Made {
    const char* function;
    int32_t (*destroy)(void*);
    void* object;
  };
  static void destroy(const Made& m) {
    const int32_t code = m.destroy(m.object);
    if (code && destroy_failed) destroy_failed(m.function, code);
  }

  // Keeps an object that `create` made, to be destroyed by `function`; where it made none, notes that.
  void* keep(void* object, const char* create, const char* function, int32_t (*destroy)(void*)) {
    if (object) made_.push_back({function, destroy, object});
    else refused = create;
    return object;
  }
  void* keep_tensor(void* object) { return keep(object, "aclCreateTensor", "aclDestroyTensor", api_.destroy_tensor); }
  void* keep_scalar(void* object) { return keep(object, "aclCreateScalar", "aclDestroyScalar", api_.destroy_scalar); }
  // A list owns its items once it is made; until then each is our own. An item that is absent is null.
  template <class MakeItem>
  void* keep_list(int32_t count, MakeItem make_item, void* (*create)(void* const*, uint64_t), const char* created,
                  const char* function, int32_t (*destroy)(void*)) {
    const size_t before = made_.size();
    std::vector<void*> all;
    for (int32_t k = 0; k < count; ++k) {
      bool given = true;
      all.push_back(make_item(k, given));
      if (given && !all.back()) return nullptr;
    }
    void* list = create(all.data(), all.size());
    if (list) made_.resize(before);
    return keep(list, created, function, destroy);
  }
  void* make_tensor(const TensorArg& t) {
    // CANN wants a layout by rank; all of these mean "plain, strided" (NCL, NCHW, NCDHW, ND).
    const int32_t format = t.ndim == 3 ? 47 : t.ndim == 4 ? 0 : t.ndim == 5 ? 30 : 2;
    return api_.create_tensor(t.sizes, static_cast<uint64_t>(t.ndim), t.dtype, t.strides, t.offset, format, &t.storage_items,
                              1, t.base);
  }
  void* make_scalar(const Number& n) {
    if (is_whole_number(n.dtype)) {
      int64_t i = n.i;
      return api_.create_scalar(&i, n.dtype);
    }
    double parts[2] = {n.re, n.im};
    return api_.create_scalar(parts, n.dtype);
  }
  // Adds one argument to the words; false: CANN has made no object for it.
  bool argument(Words& words, const Call& call, const Item& item) {
    void* object = nullptr;
    bool given = item.given;
    switch (item.kind) {
      case kTensor: case kOut: case kInout: {
        const TensorArg& t = call.tensors[item.first];
        if (given) object = keep_tensor(make_tensor(t));
        slots.push_back({item.first, item.kind != kOut ? inputs_++ : -1, item.kind != kTensor ? outputs_++ : -1, -1,
                         object, t.base});
        break;
      }
      case kTensors: case kOuts: case kInouts: {
        const int32_t input = item.kind != kOuts ? inputs_++ : -1, output = item.kind != kTensors ? outputs_++ : -1;
        given = given && item.count;
        if (!given) break;
        auto make = [&](int32_t k, bool& present) {
          const TensorArg& t = call.tensors[item.first + k];
          present = t.ndim >= 0;
          return present ? keep_tensor(make_tensor(t)) : nullptr;
        };
        object = keep_list(item.count, make, api_.create_tensors, "aclCreateTensorList", "aclDestroyTensorList",
                           api_.destroy_tensors);
        for (int32_t k = 0; k < item.count; ++k)
          slots.push_back({item.first + k, input, output, k, object, call.tensors[item.first + k].base});
        break;
      }
      case kScalar:
        if (given) object = keep_scalar(make_scalar(call.numbers[item.first]));
        break;
      case kScalars: {
        given = true;
        auto make = [&](int32_t k, bool&) { return keep_scalar(make_scalar(call.numbers[item.first + k])); };
        object = keep_list(item.count, make, api_.create_scalars, "aclCreateScalarList", "aclDestroyScalarList",
                           api_.destroy_scalars);
        break;
      }
      case kInts:
        if (given)
          object = keep(api_.create_ints(call.ints.data() + item.first, item.count), "aclCreateIntArray",
                        "aclDestroyIntArray", api_.destroy_ints);
        break;
      case kBools: {
        if (!given) break;
        std::unique_ptr<bool[]> all(new bool[item.count + 1]);
        for (int32_t k = 0; k < item.count; ++k) all[k] = call.ints[item.first + k] != 0;
        object = keep(api_.create_bools(all.get(), item.count), "aclCreateBoolArray", "aclDestroyBoolArray",
                      api_.destroy_bools);
        break;
      }
      case kFloats:
        if (given)
          object = keep(api_.create_floats(call.floats.data() + item.first, item.count), "aclCreateFloatArray",
                        "aclDestroyFloatArray", api_.destroy_floats);
        break;
      case kString:
        words.pointer(item.given ? call.text.data() + item.first : nullptr);
        return true;
      case kDoubleValue: words.number(item.d); return true;
      case kFloatValue: words.short_number(static_cast<float>(item.d)); return true;
      default: words.word(item.i); return true;
    }
    words.pointer(object);
    return object || !given;
  }

  const Api& api_;
  std::vector<Made> made_;
  int32_t inputs_ = 0, outputs_ = 0;
};

// What was launched last, for the message about a device that failed: the error appears only at the next wait.
struct Launched {
  void* plan = nullptr;
  int32_t device = 0;
  Key key;
};

using Prepareds = LruCache<Prepared>;
using SecondPhase = int32_t (*)(void*, uint64_t, void*, void*);

// Moves a kept call to this call's addresses; false when CANN refuses.
inline bool move_to(const Api& api, Prepared& p, const Call& call) {
  for (Prepared::Slot& slot : p.slots) {
    void* address = call.tensors[slot.at].base;
    if (!slot.object || address == slot.address) continue;
    slot.address = nullptr;  // not known while only one of the two is set
    const size_t in = static_cast<size_t>(slot.input), out = static_cast<size_t>(slot.output);
    const size_t place = static_cast<size_t>(slot.place);
    if (slot.input >= 0 && (slot.place < 0 ? api.set_input(p.executor, in, slot.object, address)
                                           : api.set_input_of_list(p.executor, in, place, slot.object, address)))
      return false;
    if (slot.output >= 0 && (slot.place < 0 ? api.set_output(p.executor, out, slot.object, address)
                                            : api.set_output_of_list(p.executor, out, place, slot.object, address)))
      return false;
    slot.address = address;
  }
  return true;
}

}  // namespace npu
}  // namespace mt
