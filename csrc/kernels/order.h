// The total order sort, topk and unique use: every real dtype as an unsigned key, and items of key and index.
#pragma once
#include "indexing.h"

namespace mt {
namespace ordering {

template <int bytes> struct Unsigned;
template <> struct Unsigned<1> { using type = uint8_t; };
template <> struct Unsigned<2> { using type = uint16_t; };
template <> struct Unsigned<4> { using type = uint32_t; };
template <> struct Unsigned<8> { using type = uint64_t; };
template <class T> using key_t = typename Unsigned<sizeof(T)>::type;

template <class T> constexpr bool is_float_v = is_half_v<T> || std::is_floating_point_v<T>;

// Bits of infinity: the exponent field.
template <class T> constexpr key_t<T> kInfinity =
    sizeof(T) == 8 ? key_t<T>(0x7ff0000000000000) : sizeof(T) == 4 ? key_t<T>(0x7f800000)
    : std::is_same_v<T, f16> ? key_t<T>(0x7c00) : key_t<T>(0x7f80);

// Keys compare as the values do: NaN is greatest, -0.0 equals 0.0. `lossy` gathers whether decode() would not give
// back the very same bits (a NaN, or -0.0).
template <class T> inline key_t<T> encode(T value, key_t<T>& lossy) {
  using U = key_t<T>;
  constexpr U sign = U(U(1) << (8 * sizeof(T) - 1));
  U u;
  std::memcpy(&u, &value, sizeof u);
  if constexpr (std::is_same_v<T, b8>) {
    return u != 0;
  } else if constexpr (is_float_v<T>) {
    U nan = U(u & U(~sign)) > kInfinity<T> ? U(~U(0)) : U(0), zero = u == sign ? U(~U(0)) : U(0);
    lossy |= U(nan | zero);
    u = U(u & U(~zero));
    U flip = U(U(0) - U(u >> (8 * sizeof(T) - 1))) | sign;
    return U(U(u ^ flip) | nan);
  } else if constexpr (std::is_signed_v<T>) {
    return U(u ^ sign);
  } else {
    return u;
  }
}
template <class T> inline T decode(key_t<T> key) {
  using U = key_t<T>;
  constexpr U sign = U(U(1) << (8 * sizeof(T) - 1));
  U u = key;
  if constexpr (is_float_v<T>) u = U(key & sign) ? U(key ^ sign) : U(~key);
  else if constexpr (std::is_signed_v<T>) u = U(key ^ sign);
  T value;
  std::memcpy(&value, &u, sizeof u);
  return value;
}

// An item is a key and where it stood. No two items are equal, so that any sorting method is a stable one. Keys of up
// to 32 bits share one 64-bit word with the index.
struct Wide {
  uint64_t key;
  int64_t index;
  bool operator<(const Wide& o) const { return key != o.key ? key < o.key : index < o.index; }
};
template <class T> using item_t = std::conditional_t<sizeof(T) == 8, Wide, uint64_t>;

inline uint64_t key_of(uint64_t item) { return item >> 32; }
inline int64_t index_of(uint64_t item) { return int64_t(item & 0xffffffff); }
inline uint64_t key_of(const Wide& item) { return item.key; }
inline int64_t index_of(const Wide& item) { return item.index; }
inline void set_item(uint64_t& item, uint64_t key, int64_t index) { item = key << 32 | uint64_t(index); }
inline void set_item(Wide& item, uint64_t key, int64_t index) { item = {key, index}; }

inline void check_length(int64_t n) {
  if (n > int64_t(0xffffffff)) throw std::runtime_error("sort of more than 2**32 items along a dim is not supported");
}

// The rows of a walk along `dim`: the operand views with that dim taken out.
struct RowWalk {
  Walk<3> walk;
  int64_t rows = 1;
  RowWalk(const View* t, int count, int dim) {
    walk.ops = count;
    for (int d = 0; d < t[0].ndim; ++d) {
      if (d == dim) continue;
      walk.sizes[walk.ndim] = t[0].sizes[d];
      for (int k = 0; k < count; ++k) walk.strides[walk.ndim][k] = t[k].strides[d];
      rows *= walk.sizes[walk.ndim++];
    }
    if (rows > 0) walk.collapse();
  }
  // f(offsets of the operands) for each row of [begin, end)
  template <class F> void run(int64_t begin, int64_t end, F&& f) const {
    walk.run(begin, end, [&](const int64_t* at, int64_t n) {
      int64_t now[3];
      for (int k = 0; k < walk.ops; ++k) now[k] = at[k];
      for (int64_t i = 0; i < n; ++i) {
        f(static_cast<const int64_t*>(now));
        for (int k = 0; k < walk.ops; ++k) now[k] += walk.inner()[k];
      }
    });
  }
};

}  // namespace ordering
using namespace ordering;
}  // namespace mt
