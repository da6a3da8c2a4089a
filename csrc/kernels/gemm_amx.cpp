// The bfloat16 product with the tiles of AMX, sixteen times the rate of float with AVX-512; used where the processor has
// them and the system gives them. gemm_bf16.cpp is the way without.
#include "gemm_bf16.h"
#include "workspace.h"

#if defined(__AVX512BW__) && defined(__AVX512VL__)
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define MT_AMX __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl,avx512bf16")))

namespace mt {
namespace {

constexpr int64_t kTile = 16;            // rows of a tile; a row is 16 words: sums, or pairs of factors
constexpr int64_t kSquare = 2 * kTile;   // rows and columns of C that are kept in four tiles
constexpr int64_t kPairs = 1024;         // depth of a block: packed rows of A and a strip of B fit in L2, sums stay in tiles
constexpr int64_t kBlockRows = 256, kBlockColumns = 1024;

int64_t ceil_to(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// Linux lets a process use the tiles when it has asked for their state to be saved.
bool request_tiles() {
#ifdef __linux__
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return __builtin_cpu_supports("amx-bf16") && __builtin_cpu_supports("amx-tile") &&
      syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

// All eight tiles with 16 rows of 64 bytes. A constant in memory: GCC 12 takes the instruction below to read 8 bytes of its
// operand only, and leaves the rest of one that is written before it unwritten.
struct alignas(64) TileConfig {
  uint8_t palette = 1, first_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr TileConfig kTileConfig;

// The tiles of the calling thread while it lives.
class Tiles {
 public:
  MT_AMX Tiles() { _tile_loadconfig(&kTileConfig); }
  MT_AMX ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
};

// C[32 x 32] (+)= A B over `steps` of 16 pairs; a step of A is 32 rows of 16 words, one of B 16 rows of 32.
MT_AMX void square(int64_t steps, const uint32_t* A, const uint32_t* B, float* C, int64_t ldc, bool add) {
  const int64_t row = ldc * 4;
  float *low = C + kTile * ldc;
  asm volatile("" ::: "memory");  // GCC does not know that the loads of tiles read memory
  if (add) {
    _tile_loadd(0, C, row);
    _tile_loadd(1, C + kTile, row);
    _tile_loadd(2, low, row);
    _tile_loadd(3, low + kTile, row);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t s = 0; s < steps; ++s, A += kSquare * kTile, B += kSquare * kTile) {
    _tile_loadd(4, A, 64);
    _tile_loadd(6, B, 128);
    _tile_loadd(7, B + kTile, 128);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, A + kTile * kTile, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, C, row);
  _tile_stored(1, C + kTile, row);
  _tile_stored(2, low, row);
  _tile_stored(3, low + kTile, row);
}

// 32 rows of A as steps of [row][pair], zero beyond `lines` and beyond k: what the tiles multiply with must be finite.
MT_BF16 void pack_rows(const uint16_t* X, int64_t line, int64_t item, int64_t lines, int64_t pairs, bool odd,
                              uint32_t* to) {
  const int64_t items = 2 * pairs - odd;
  for (int64_t s = 0; s * kTile < pairs; ++s, to += kSquare * kTile) {
    const int64_t here = std::min(2 * kTile, items - s * 2 * kTile);
    if (item == 1) {
      const __mmask32 valid = here == 32 ? ~0u : (1u << here) - 1;
      for (int64_t i = 0; i < kSquare; ++i)
        _mm512_storeu_si512(to + i * kTile, i < lines
            ? _mm512_maskz_loadu_epi16(valid, X + i * line + s * 2 * kTile) : _mm512_setzero_si512());
    } else {
      uint32_t words[kTile * kSquare];
      const int64_t deep = (here + 1) / 2;
      pack_pairs(X + s * 2 * kTile * item, line, item, lines, deep, here & 1, kSquare, words);
      std::fill(words + deep * kSquare, words + kTile * kSquare, 0u);
      for (int64_t half = 0; half < 2; ++half)
        transpose16(words + half * kTile, 4 * kSquare, to + half * kTile * kTile, kTile);
    }
  }
}

// 32 columns of B as words [pair][column], to a whole number of steps.
void pack_columns(const uint16_t* X, int64_t line, int64_t item, int64_t lines, int64_t pairs, bool odd, uint32_t* to) {
  pack_pairs(X, line, item, lines, pairs, odd, kSquare, to);
  std::fill(to + pairs * kSquare, to + ceil_to(pairs, kTile) * kSquare, 0u);
}

}  // namespace

bool has_amx() {
  static const bool has = request_tiles();
  return has;
}

void amx_gemm(const Product& p) {
  const Tiles tiles;
  const int64_t pairs = (p.k + 1) / 2, room = ceil_to(pairs, kTile), nc = std::min(kBlockColumns, ceil_to(p.n, kSquare));
  const int64_t mc = std::min(kBlockRows, ceil_to(p.m, kSquare)), most = std::min(kPairs, room);
  const bool whole = pairs <= kPairs;  // each square is finished as it is made; else its sums are kept
  const int64_t ld = whole ? kSquare : nc + kTile;  // rows a power of two apart would share a set of the first level cache
  const int64_t words = room * nc + most * mc;
  const Workspace memory((words + (whole ? kSquare : mc) * ld) * 4);
  uint32_t *B = memory.get<uint32_t>(), *A = B + room * nc;
  float* sums = memory.get<float>() + words;
  const int64_t a_line = p.transA ? 1 : p.lda, a_item = p.transA ? p.lda : 1, b_line = p.transB ? p.ldb : 1,
      b_item = p.transB ? 1 : p.ldb;
  for (int64_t j0 = 0; j0 < p.n; j0 += nc) {
    const int64_t cols = std::min(nc, p.n - j0);
    for (int64_t i0 = 0; i0 < p.m; i0 += mc) {
      const int64_t rows = std::min(mc, p.m - i0);
      for (int64_t q = 0; q < pairs; q += kPairs) {
        const int64_t depth = std::min(kPairs, pairs - q), deep = ceil_to(depth, kTile);
        const bool odd = (p.k & 1) && q + depth == pairs;
        for (int64_t i = 0; i < rows; i += kSquare)
          pack_rows(at<uint16_t>(p.A, (i0 + i) * a_line + 2 * q * a_item), a_line, a_item, std::min(kSquare, rows - i), depth,
                    odd, A + i * deep);
        for (int64_t j = 0; j < cols; j += kSquare) {
          uint32_t* strip = B + q * nc + j * deep;
          const int64_t width = std::min(kSquare, cols - j);
          if (i0 == 0)
            pack_columns(at<uint16_t>(p.B, (j0 + j) * b_line + 2 * q * b_item), b_line, b_item, width, depth, odd, strip);
          for (int64_t i = 0; i < rows; i += kSquare) {
            square(deep / kTile, A + i * deep, strip, sums + (whole ? 0 : i * ld + j), ld, q != 0);
            if (whole) finish_bf16(p, i0 + i, j0 + j, std::min(kSquare, rows - i), width, sums, ld);
          }
        }
      }
      if (!whole) finish_bf16(p, i0, j0, rows, cols, sums, ld);
    }
  }
}

}  // namespace mt
#endif
