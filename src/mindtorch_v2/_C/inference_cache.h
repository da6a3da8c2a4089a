// Results of shape rules, by their arguments: the words of a call, and of each output its rank (-1: none), dtype and
// sizes. Knows neither tensors nor Python; guarded by the GIL.
#pragma once
#include <string_view>

#include "lru_cache.h"

namespace mt {

class InferenceCache {
 public:
  using Specs = std::vector<int64_t>;

  // ---- the call that is looked up: begun, then its arguments in order
  void begin(uint64_t row, uint64_t mode) {
    key_.clear();
    key_.push(row);
    key_.push(mode);
  }
  void none() { key_.push(kNone); }
  void generator() { key_.push(kGenerator); }
  void dtype(int id) { key_.push(kDtype | uint64_t(id) << 8); }
  void list(size_t items) { key_.push(kList | uint64_t(items) << 8); }
  void tensor(int dtype, int device, int rank, const int64_t* sizes) {
    uint64_t* words = key_.add(1 + rank);
    words[0] = kTensor | uint64_t(dtype) << 8 | uint64_t(device) << 16 | uint64_t(rank) << 32;
    std::memcpy(words + 1, sizes, rank * sizeof(int64_t));
  }
  void integer(int64_t value, bool is_bool) {
    uint64_t* words = key_.add(2);
    words[0] = kInt | uint64_t(is_bool) << 8;
    words[1] = uint64_t(value);
  }
  void real(double value) {
    uint64_t* words = key_.add(2);
    words[0] = kFloat;
    std::memcpy(words + 1, &value, sizeof value);
  }
  void text(std::string_view value) {
    for (const char c : value) key_.push(kText | uint64_t(static_cast<unsigned char>(c)) << 8);
    key_.push(kText);
  }

  const Specs* find() { return known_.find(key_, hash_of(key_)); }
  void keep(const Specs& specs) {
    const uint64_t hash = hash_of(key_);
    if (!known_.find(key_, hash)) known_.keep(key_, hash, std::make_unique<Specs>(specs));
  }

 private:
  enum Word : uint64_t { kNone, kTensor, kInt, kFloat, kList, kText, kDtype, kGenerator };
  Key key_;
  LruCache<Specs> known_;
};

}  // namespace mt
