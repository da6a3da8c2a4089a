// The settings of the simulator, read once from CANN_SIM_*, and the SoC they name. 
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>

#include "runtime/device.h"
#include "runtime/guard.h"
#include "runtime/model.h"

namespace cann_sim {
namespace {

const Soc socs[] = {
#include "soc_rows.inc"
};
struct ShortName {
  const char *name, *soc;
};
const ShortName short_names[] = {
#include "short_names.inc"
};
constexpr uint64_t kGiB = 1ull << 30;
constexpr uint64_t kMostMemory = 1024 * kGiB;  // of one device: it must fit into the address space several times

struct Reader {
  Settings made;
  const Soc* soc = nullptr;
  std::vector<int> visible;
  std::string error;

  void refuse(const char* name, const char* expected, const char* value) {
    if (error.empty()) error = std::string(name) + ": expected " + expected + ", got '" + value + "'";
  }

  template <class T>
  void number(const char* name, uint64_t least, uint64_t most, T* out) {
    const char* text = getenv(name);
    if (!text || !*text) return;
    char* end;
    uint64_t n = strtoull(text, &end, 10);
    if (*end || *text == '-' || n < least || n > most) {
      std::string range = "a number from " + std::to_string(least) + " to " + std::to_string(most);
      return refuse(name, range.c_str(), text);
    }
    *out = static_cast<T>(n);
  }

  void text(const char* name, std::string* out) {
    const char* found = getenv(name);
    if (found && *found) *out = found;
  }

  void memory() {
    made.memory = soc->memory ? soc->memory : 32 * kGiB;
    const char* text = getenv("CANN_SIM_MEMORY");
    if (!text || !*text) return;
    char* end;
    uint64_t n = strtoull(text, &end, 10);
    const char* units = "\0KMGT";
    const char* unit = *end ? strchr(units + 1, *end & ~0x20) : units;
    bool whole = unit && (!*end || !end[1]) && end != text && *text != '-';
    int shift = whole ? static_cast<int>(unit - units) * 10 : 0;
    if (!whole || n > (kMostMemory >> shift) || (n << shift) < (1 << 20))
      return refuse("CANN_SIM_MEMORY", "bytes, or a number with K, M, G or T, from 1M to 1T", text);
    made.memory = n << shift;
  }

  void mode() {
    std::string name = "normal";
    text("CANN_SIM_MODE", &name);
    if (name == "normal") made.mode = Mode::normal;
    else if (name == "delay") made.mode = Mode::delay;
    else if (name == "null") made.mode = Mode::null;
    else if (name != "model") refuse("CANN_SIM_MODE", "normal, delay, null or model", name.c_str());
    else if (find_peaks(made.soc)) made.mode = Mode::model;
    else refuse("CANN_SIM_MODE", "another mode than model, which knows no peaks of CANN_SIM_SOC", made.soc.c_str());
  }

  void checks() {
    std::string list;
    text("CANN_SIM_CHECK", &list);
    for (size_t at = 0; at < list.size();) {
      const size_t comma = std::min(list.find(',', at), list.size());
      const std::string word = list.substr(at, comma - at);
      at = comma + 1;
      if (word == "race") made.check_race = true;
      else if (word == "memory") made.check_memory = true;
      else if (word == "leak") made.check_leak = true;
      else if (word == "fatal") made.check_fatal = true;
      else return refuse("CANN_SIM_CHECK", "a list of race, memory, leak and fatal", list.c_str());
    }
  }

  Reader() {
    number("CANN_SIM_DEVICES", 1, 64, &made.devices);
    number("CANN_SIM_SEED", 0, UINT64_MAX, &made.seed);
    int strict = 0, hf32 = 0;
    number("CANN_SIM_DEPTH", 1, 1 << 30, &made.depth);
    number("CANN_SIM_HF32", 0, 1, &hf32);
    made.hf32 = hf32;
    number("CANN_SIM_STRICT", 0, 1, &strict);
    made.strict = strict;
    text("CANN_SIM_SOC", &made.soc);
    text("CANN_SIM_VERSION", &made.version);
    text("CANN_SIM_TRACE", &made.trace);
    text("CANN_SIM_CALLS", &made.calls);
    text("CANN_SIM_FAULTS", &made.faults);
    text("CANN_SIM_CARD", &made.card);
    for (char c : made.card)
      if (!isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '-')
        refuse("CANN_SIM_CARD", "a name of letters, digits, _ and -", made.card.c_str());
    if (!parse_version(made.version.c_str())) {
      refuse("CANN_SIM_VERSION", "a version from 8.0 on, such as 8.1 or 8.3.RC1", made.version.c_str());
      made.version = Settings().version;
    } else {
      made.version_is_set = getenv("CANN_SIM_VERSION");
    }
    // Clients compare three numbers, and take two for less than any release: 9.1 is 9.1.0.
    if (std::count(made.version.begin(), made.version.end(), '.') == 1) made.version += ".0";
    for (const ShortName& s : short_names)
      if (made.soc == s.name) made.soc = s.soc;
    for (const Soc& s : socs)
      if (made.soc == s.name) soc = &s;
    if (!soc) {
      refuse("CANN_SIM_SOC", "the long name of a SoC, such as Ascend910B2, or 910A, 910B, 910_93, 310P, 950", made.soc.c_str());
      made.soc = "Ascend910B2";
      for (const Soc& s : socs)
        if (made.soc == s.name) soc = &s;
    }
    memory();
    mode();
    checks();
    see_devices();
  }

  // Like CANN: a list such as 0,2. It ends before the first character that is neither a digit nor a comma, and before a
  // device that is not there; one that does not ascend, or names a device twice, leaves none.
  void see_devices() {
    const char* text = getenv("ASCEND_RT_VISIBLE_DEVICES");
    if (!text) {
      for (int i = 0; i < made.devices; ++i) visible.push_back(i);
      return;
    }
    std::vector<int> named;
    while (*text >= '0' && *text <= '9') {
      char* end;
      const long id = strtol(text, &end, 10);
      if (!named.empty() && id <= named.back()) return;
      named.push_back(static_cast<int>(std::min(id, long{made.devices})));
      if (*end != ',') break;
      text = end + 1;
    }
    for (int id : named)
      if (id < made.devices) visible.push_back(id);
  }
};

const Reader& reader() {
  static const Reader& once = *new Reader;  // never destroyed: workers may still ask while the process ends
  return once;
}

}  // namespace

const Settings& settings() { return reader().made; }
const Soc& soc() { return *reader().soc; }
const Soc* find_soc(const char* name) {
  for (const Soc& s : socs)
    if (!strcmp(s.name, name)) return &s;
  return nullptr;
}
const std::vector<int>& visible_devices() { return reader().visible; }
const std::string& settings_error() { return reader().error; }

}  // namespace cann_sim
