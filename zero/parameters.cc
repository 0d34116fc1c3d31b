#include "zero/parameters.h"

#include <algorithm>
#include <unordered_set>

namespace zpp {
namespace {

constexpr int64_t kMaxParam_elems = int64_t{1} << 48;

// -1 when it is negative or too large.
int64_t Product(std::span<const int64_t> dims) {
  int64_t product = 1;
  bool empty = false;
  for (const int64_t dim : dims) {
    if (dim < 0) return -1;
    empty = empty || dim == 0;
    if (dim > 0 && product > kMaxParam_elems / dim) return -1;
    product *= std::max<int64_t>(dim, 1);
  }
  return empty ? 0 : product;
}

Status CheckOne(const ParamSpec& param) {
  if (param.name.empty()) return InvalidArgument("a parameter has no name");
  const int64_t elems = Product(param.shape);
  if (elems < 0 || elems >= kMaxParam_elems) {
    return InvalidArgument("parameter " + ToString(param) +
                           ": dimensions must be 0 or more and their product below 2^48");
  }
  if (param.dtype && !IsFloat(*param.dtype)) {
    return InvalidArgument("parameter " + ToString(param) +
                           ": its type must be fp32, fp16 or bf16");
  }
  if (param.unit < 0) {
    return InvalidArgument("parameter " + ToString(param) + ": unit " + std::to_string(param.unit) +
                           "; units count from 0");
  }
  return {};
}

Status CheckUnits(std::span<const ParamSpec> params) {
  int last = -1;
  std::unordered_set<int> units;
  for (const ParamSpec& param : params) {
    units.insert(param.unit);
    last = std::max(last, param.unit);
  }
  for (int unit = 0; unit <= last; ++unit) {
    if (!units.contains(unit)) {
      return InvalidArgument("no parameter is in unit " + std::to_string(unit) +
                             ", but some are in unit " + std::to_string(last));
    }
  }
  return {};
}

}  // namespace

int64_t ParamSpec::elems() const { return Product(shape); }

int64_t ParamSpec::row_elems() const {
  if (shape.size() < 2) return elems();
  return Product(std::span(shape).subspan(1));
}

Status CheckParameters(std::span<const ParamSpec> params) {
  std::unordered_set<std::string_view> names;
  int64_t total_elems = 0;
  for (const ParamSpec& param : params) {
    ZPP_RETURN_IF_ERROR(CheckOne(param));
    if (!names.insert(param.name).second) {
      return InvalidArgument("two parameters have the name '" + param.name + "'");
    }
    total_elems += param.elems();
    if (total_elems >= kMaxParam_elems) {
      return InvalidArgument("the parameters together have 2^48 elements or more");
    }
  }
  return CheckUnits(params);
}

std::string ToString(const ParamSpec& param) {
  std::string text = "'" + param.name + "' (";
  for (size_t i = 0; i < param.shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(param.shape[i]);
  }
  return text + ")";
}

}  // namespace zpp
