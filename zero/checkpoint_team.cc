#include "zero/internal/checkpoint_team.h"

#include <numeric>
#include <string_view>

namespace zpp::internal {
namespace {

using Json = nlohmann::json;

std::string Pack(const Status& own, const Json& value) {
  Json json = {{"code", static_cast<int>(own.code())}};
  json[own.ok() ? "value" : "message"] = own.ok() ? value : Json(own.message());
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Status FailureOf(int rank, const Json& json) {
  const auto code = static_cast<StatusCode>(json.at("code").get<int>());
  if (code == StatusCode::kOk) return {};
  return {code, "rank " + std::to_string(rank) + ": " + json.at("message").get<std::string>()};
}

}  // namespace

Result<std::vector<std::string>> Team::GatherTexts(const std::string& own) {
  const auto world = static_cast<size_t>(comm_.world());
  const CallOptions call = {.deadline = Deadline::In(patience_s_)};
  const auto own_bytes = static_cast<int64_t>(own.size());
  std::vector<int64_t> bytes(world);
  const auto word = static_cast<int64_t>(sizeof(int64_t));
  ZPP_RETURN_IF_ERROR(
      comm_.AllGather({DType::kByte, &own_bytes, word},
                      {DType::kByte, bytes.data(), word * static_cast<int64_t>(world)}, call));
  std::string all(static_cast<size_t>(std::reduce(bytes.begin(), bytes.end())), '\0');
  CallOptions uneven = call;
  uneven.shard_elems = bytes;
  ZPP_RETURN_IF_ERROR(comm_.AllGather({DType::kByte, own.data(), own_bytes},
                                      {DType::kByte, all.data(), static_cast<int64_t>(all.size())},
                                      uneven));
  std::vector<std::string> texts;
  size_t at = 0;
  for (const int64_t n : bytes) {
    texts.push_back(all.substr(at, static_cast<size_t>(n)));
    at += static_cast<size_t>(n);
  }
  return texts;
}

Result<std::vector<Json>> Team::Gather(const Status& own, const Json& value) {
  ZPP_ASSIGN_OR_RETURN(const std::vector<std::string> texts, GatherTexts(Pack(own, value)));
  std::vector<Json> values;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    Json json = Json::parse(texts[rank], nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded()) return Internal("rank " + std::to_string(rank) + " sent no JSON");
    ZPP_RETURN_IF_ERROR(FailureOf(static_cast<int>(rank), json));
    values.push_back(std::move(json["value"]));
  }
  return values;
}

Status Team::Agree(const Status& own) { return Gather(own, nullptr).status(); }

}  // namespace zpp::internal
