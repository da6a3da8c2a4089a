// Einstein summation: operands are folded from the left, each pair as one batched matrix product.
#include <algorithm>
#include <string>

#include "ops/result.h"

namespace cann_sim {
namespace {

struct Equation {
  std::vector<std::string> in;  // one letter a dim; an ellipsis is written out in letters of its own
  std::string out;
};

// "..." becomes the last `width` of these: digits are no letters of an equation.
constexpr const char* kEllipsis = "01234567";

std::string spelled(const std::string& term, int64_t ndim, int64_t& width) {
  std::string letters;
  for (size_t i = 0; i < term.size(); ++i) {
    if (term[i] == ' ') continue;
    if (term.compare(i, 3, "...") == 0) {
      letters += '.', i += 2;
      continue;
    }
    EXPECT(std::isalpha(static_cast<unsigned char>(term[i])), "'%c' is no subscript", term[i]);
    letters += term[i];
  }
  size_t dots = letters.find('.');
  if (ndim >= 0) {
    width = ndim - int64_t(letters.size()) + (dots != std::string::npos);
    EXPECT(dots == std::string::npos ? width == 0 : width >= 0, "subscripts '%s' do not fit %ld dims", term.c_str(),
           long(ndim));
  }
  if (dots != std::string::npos) letters.replace(dots, 1, std::string(kEllipsis + 8 - width, size_t(width)));
  return letters;
}

Equation parse(const Call& c) {
  std::string text = c.string(1);
  size_t arrow = text.find("->"), from = 0;
  std::string left = text.substr(0, arrow);
  Equation e;
  int64_t widest = 0;
  for (int64_t i = 0; i < c.tensors(0).size(); ++i) {
    size_t comma = left.find(',', from);
    EXPECT(from <= left.size(), "'%s' has fewer terms than there are operands", text.c_str());
    int64_t width = 0;
    e.in.push_back(spelled(left.substr(from, comma - from), c.tensors(0)[i].ndim, width));
    widest = std::max(widest, width);
    from = comma == std::string::npos ? left.size() + 1 : comma + 1;
  }
  EXPECT(from > left.size(), "'%s' has more terms than there are operands", text.c_str());
  if (arrow != std::string::npos) {
    e.out = spelled(text.substr(arrow + 2), -1, widest);
    return e;
  }
  std::string all;
  for (const std::string& term : e.in) all += term;
  e.out.assign(kEllipsis + 8 - widest, size_t(widest));
  for (char letter = 'A'; letter <= 'z'; ++letter)
    if (std::count(all.begin(), all.end(), letter) == 1) e.out += letter;
  return e;
}

// The size behind every letter; 1 gives way, as in broadcasting.
struct Extents {
  int64_t size[128];
  Extents(const Call& c, const Equation& e) {
    std::fill_n(size, 128, -1);
    for (size_t i = 0; i < e.in.size(); ++i)
      for (size_t d = 0; d < e.in[i].size(); ++d) {
        int64_t& known = size[size_t(e.in[i][d])];
        int64_t n = c.tensors(0)[int64_t(i)].sizes[d];
        EXPECT(known < 0 || known == n || known == 1 || n == 1, "subscript %c has sizes %ld and %ld", e.in[i][d],
               long(known), long(n));
        const size_t first = e.in[i].find(e.in[i][d]);
        EXPECT(first == d || c.tensors(0)[int64_t(i)].sizes[first] == n, "subscript %c has sizes %ld and %ld in one operand", e.in[i][d],
               long(c.tensors(0)[int64_t(i)].sizes[first]), long(n));
        known = known < 0 || known == 1 ? n : known;
      }
  }
  Sizes of(const std::string& letters) const {
    Sizes sizes;
    for (char letter : letters) sizes.push_back(size[size_t(letter)]);
    return sizes;
  }
};

void check_einsum(const Call& c) {
  EXPECT(c.tensors(0).size() > 0, "einsum needs an operand");
  for (const TensorMeta& t : c.tensors(0)) dtype_of(t.dtype);
  Equation e = parse(c);
  Extents extents(c, e);
  for (char letter : e.out) {
    EXPECT(extents.size[size_t(letter)] >= 0, "output subscript %c is in no term", letter);
    EXPECT(std::count(e.out.begin(), e.out.end(), letter) == 1, "output subscript %c appears twice", letter);
  }
  expect_shape(c, 2, extents.of(e.out));
}

struct Term {
  Value v;
  std::string letters;

  // A letter that appears twice: the diagonal, as a view.
  void take_diagonals() {
    for (size_t d = 0; d < letters.size(); ++d)
      for (size_t other; (other = letters.find(letters[d], d + 1)) != std::string::npos; letters.erase(other, 1)) {
        v.strides[d] += v.strides[other];
        for (int i = int(other); i + 1 < v.ndim; ++i) v.sizes[i] = v.sizes[i + 1], v.strides[i] = v.strides[i + 1];
        --v.ndim;
      }
  }
  // Adds up what neither the output nor a later term names.
  void sum_unnamed(const std::string& named) {
    Sizes dims;
    std::string left;
    for (size_t d = 0; d < letters.size(); ++d)
      if (named.find(letters[d]) == std::string::npos) dims.push_back(int64_t(d));
      else left += letters[d];
    if (dims.empty()) return;
    Sizes kept;
    for (char letter : left) kept.push_back(v.sizes[letters.find(letter)]);
    Value made = empty(kept, v.dtype);
    call_kernel("sum", {made, v}, {list(dims), integer(0), none()});
    v = made, letters = left;
  }
  // As [sizes of `order`], missing letters as size 1.
  Value arranged(const std::string& order, const Extents& extents, bool broadcast) const {
    Value a = v;
    a.ndim = 0;
    for (char letter : order) {
      size_t d = letters.find(letter);
      bool here = d != std::string::npos;
      a.sizes[a.ndim] = broadcast ? extents.size[size_t(letter)] : here ? v.sizes[d] : 1;
      a.strides[a.ndim++] = here && v.sizes[d] != 1 ? v.strides[d] : 0;
    }
    return a;
  }
};

int64_t product(const Sizes& s) {
  int64_t n = 1;
  for (int64_t x : s) n *= x;
  return n;
}

Term contract(const Term& a, const Term& b, const std::string& named, const Extents& extents) {
  std::string batch, rows, cols, inner;
  for (char letter : a.letters) {
    bool both = b.letters.find(letter) != std::string::npos, kept = named.find(letter) != std::string::npos;
    (both ? kept ? batch : inner : rows) += letter;
  }
  for (char letter : b.letters)
    if (a.letters.find(letter) == std::string::npos) cols += letter;
  Sizes nb = extents.of(batch), nr = extents.of(rows), nc = extents.of(cols), ni = extents.of(inner);
  Value left = a.arranged(batch + rows + inner, extents, true).reshape({product(nb), product(nr), product(ni)});
  Value right = b.arranged(batch + inner + cols, extents, true).reshape({product(nb), product(ni), product(nc)});
  Value made = empty({product(nb), product(nr), product(nc)}, a.v.dtype);
  call_kernel("bmm", {made, left, right});
  Term out{Value(), batch + rows + cols};
  out.v = made.reshape(extents.of(out.letters));
  return out;
}

void einsum(Run& r) {
  Equation e = parse(r.call);
  Extents extents(r.call, e);
  std::vector<Value> operands = r.tensors(0);
  Value out = r.tensor(2);
  DType t = operands[0].dtype;
  for (const Value& v : operands) t = promote(t, v.dtype);
  Term sum;
  for (size_t i = 0; i < operands.size(); ++i) {
    Term next{operands[i].to(t), e.in[i]};
    next.take_diagonals();
    std::string named = e.out, before = i ? sum.letters : "";
    for (size_t later = i + 1; later < e.in.size(); ++later) named += e.in[later];
    next.sum_unnamed(named + before);
    if (i) sum.sum_unnamed(named + next.letters);
    sum = i ? contract(sum, next, named, extents) : next;
  }
  sum.sum_unnamed(e.out);
  copy(out, sum.arranged(e.out, extents, true));
}

const Op op("aclnnEinsum", check_einsum, einsum);

}  // namespace
}  // namespace cann_sim
