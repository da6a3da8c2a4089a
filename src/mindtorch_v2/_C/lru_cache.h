// A bounded table from rows of words to what was made for them. Knows neither CANN nor Python.
#pragma once
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace mt {

// Items in a row that is filled again and again: no item is set before it is written, none is freed by clear().
template <class T>
class Row {
 public:
  T* add(size_t n = 1) {
    if (size_ + n > room_) grow(n);
    T* at = data_.get() + size_;
    size_ += n;
    return at;
  }
  void push(const T& x) { *add() = x; }
  void clear() { size_ = 0; }
  void swap(Row& other) { std::swap(*this, other); }
  size_t size() const { return size_; }
  const T* data() const { return data_.get(); }
  const T& operator[](size_t i) const { return data_[i]; }
  T& at(size_t i) { return data_[i]; }
  const T* begin() const { return data_.get(); }
  const T* end() const { return data_.get() + size_; }

 private:
  void grow(size_t n) {
    const size_t room = (size_ + n) * 2 + 16;
    std::unique_ptr<T[]> more(new T[room]);  // may throw: until then nothing is changed
    if (size_) std::memcpy(static_cast<void*>(more.get()), data_.get(), size_ * sizeof(T));
    data_ = std::move(more);
    room_ = room;
  }
  std::unique_ptr<T[]> data_;
  size_t size_ = 0, room_ = 0;
};

using Key = Row<uint64_t>;

inline uint64_t hash_of(const Key& key) {
  auto fold = [](uint64_t a, uint64_t b) {
    const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  };
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15ull, kEven = 0xD6E8FEB86659FD93ull;
  const uint64_t* word = key.data();
  const size_t n = key.size();
  uint64_t h = n * kOdd;
  size_t i = 0;
  for (; i + 2 <= n; i += 2) h = fold(word[i] ^ kOdd ^ h, word[i + 1] ^ kEven);
  return i < n ? fold(word[i] ^ h, kOdd) : h;
}

// Four places for each set of keys; the one that was not used for the longest time goes first. So what is asked for all
// the time stays, however many keys come that never come again (a learning rate that changes with every step).
template <class T>
class LruCache {
 public:
  T* find(const Key& key, uint64_t hash) {
    if (places_.empty()) return nullptr;
    Place* set = &places_[hash % kSets * kWays];
    for (size_t i = 0; i < kWays; ++i) {
      Place& p = set[i];
      if (p.hash == hash && p.value && p.key.size() == key.size() &&
          std::memcmp(p.key.data(), key.data(), key.size() * sizeof(uint64_t)) == 0) {
        p.used = ++clock_;
        return p.value.get();
      }
    }
    return nullptr;
  }
  T* keep(const Key& key, uint64_t hash, std::unique_ptr<T> value) {  // of a key that is not there
    if (places_.empty()) places_.resize(kSets * kWays);
    Place* set = &places_[hash % kSets * kWays];
    Place* oldest = set;
    for (size_t i = 1; i < kWays; ++i)
      if (set[i].used < oldest->used) oldest = set + i;
    // First: what may throw. A new vector: an old one would keep the room of the longest key that its place ever had.
    oldest->key = std::vector<uint64_t>(key.begin(), key.end());
    if (!oldest->value) ++size_;
    oldest->hash = hash;
    oldest->used = ++clock_;
    oldest->value = std::move(value);
    return oldest->value.get();
  }
  void clear() {
    places_.clear();
    size_ = 0;
  }
  size_t size() const { return size_; }

 private:
  static constexpr size_t kSets = 1024, kWays = 4;
  struct Place {
    uint64_t hash = 0, used = 0;
    std::vector<uint64_t> key;
    std::unique_ptr<T> value;
  };
  std::vector<Place> places_;
  uint64_t clock_ = 0;
  size_t size_ = 0;
};

}  // namespace mt
