// Which symbols the CANN that CANN_SIM_VERSION names does not have, and how they leave the libraries when these are loaded.
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>

#include "runtime/guard.h"

namespace cann_sim {
namespace {

struct First {
  const char* name;
  int version;  // 801 is CANN 8.1
};
const First firsts[] = {  // in the order of their names
#include "since_rows.inc"
};

// The dynamic symbols of a library.
struct Symbols {
  ElfW(Sym)* table = nullptr;
  const char* names = nullptr;
  size_t count = 0;

  explicit Symbols(const link_map& library) {
    const uint32_t* hash = nullptr;
    for (const ElfW(Dyn)* d = library.l_ld; d->d_tag != DT_NULL; ++d) {
      if (d->d_tag == DT_SYMTAB) table = reinterpret_cast<ElfW(Sym)*>(d->d_un.d_ptr);
      if (d->d_tag == DT_STRTAB) names = reinterpret_cast<const char*>(d->d_un.d_ptr);
      if (d->d_tag == DT_GNU_HASH) hash = reinterpret_cast<const uint32_t*>(d->d_un.d_ptr);
    }
    if (table && names && hash) count = count_of(hash);
  }

  // The table's length stands nowhere: it ends with the chain of the last bucket.
  static size_t count_of(const uint32_t* hash) {
    const uint32_t buckets = hash[0], first = hash[1], bloom_words = hash[2];
    const uint32_t* bucket = hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t* chain = bucket + buckets;
    uint32_t last = *std::max_element(bucket, chain);
    if (last < first) return first;
    while (!(chain[last - first] & 1)) ++last;
    return last + 1;
  }
};

}  // namespace

int parse_version(const char* text) {
  char* end;
  const long major = strtol(text, &end, 10);
  if (*end != '.' || end == text) return 0;
  const char* after = end + 1;
  const long minor = strtol(after, &end, 10);
  const bool whole = end != after && (!*end || *end == '.') && *after >= '0' && *after <= '9';
  return whole && major >= 8 && major < 100 && minor < 100 ? static_cast<int>(major * 100 + minor) : 0;
}

int stated_version() {
  const char* text = getenv("CANN_SIM_VERSION");
  return text ? parse_version(text) : 0;
}

bool is_absent(const char* name) {
  const int version = stated_version();
  if (!version) return false;
  std::string op(name);
  for (const std::string phase : {"GetWorkspaceSize", "GetMaxWorkspaceSize"})
    if (op.size() > phase.size() && !op.compare(op.size() - phase.size(), std::string::npos, phase)) op.resize(op.size() - phase.size());
  const First* found = std::lower_bound(std::begin(firsts), std::end(firsts), op,
                                        [](const First& f, const std::string& n) { return f.name < n; });
  return found != std::end(firsts) && op == found->name && found->version > version;
}

// Done when a library is loaded: the entry of a symbol becomes one without a definition, and dlsym does not find it. Settings
// are not read yet, for a program may still change its environment.
void hide_absent(const void* inside) {
  if (!stated_version()) return;
  Dl_info info;
  link_map* library = nullptr;
  if (!dladdr1(inside, &info, reinterpret_cast<void**>(&library), RTLD_DL_LINKMAP) || !library) return;
  const Symbols symbols(*library);
  if (!symbols.count) return;
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(symbols.table) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(symbols.table + symbols.count) + page - 1) / page * page;
  void* const pages = reinterpret_cast<void*>(begin);
  if (mprotect(pages, end - begin, PROT_READ | PROT_WRITE)) {
    fprintf(stderr, "cann_sim: %s keeps the symbols that CANN_SIM_VERSION does not have: %m\n", library->l_name);
    return;
  }
  for (size_t i = 0; i < symbols.count; ++i) {
    ElfW(Sym)& symbol = symbols.table[i];
    if (symbol.st_shndx == SHN_UNDEF || !is_absent(symbols.names + symbol.st_name)) continue;
    symbol.st_shndx = SHN_UNDEF;
    symbol.st_value = 0;
  }
  mprotect(pages, end - begin, PROT_READ);
}

}  // namespace cann_sim
