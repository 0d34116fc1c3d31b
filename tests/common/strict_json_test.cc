#include "common/strict_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace zpp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

std::string Nested(int levels) {
  const auto n = static_cast<size_t>(levels);
  return std::string(n, '[') + std::string(n, ']');
}

TEST(StrictJson, GivesWhatTheTextSays) {
  const auto json = ParseStrictJson(R"({"a":[1,2.5,{"b":null}],"c":"x"})");
  ASSERT_TRUE(json.ok()) << json.status().ToString();
  EXPECT_EQ((*json)["a"][1], 2.5);
  EXPECT_EQ((*json)["c"], "x");
  EXPECT_TRUE(ParseStrictJson("3").ok());
}

TEST(StrictJson, DepthIsBounded) {
  for (int depth : {0, 1, 2, 16}) {
    const JsonLimits limits{.max_depth = depth};
    EXPECT_TRUE(ParseStrictJson(depth == 0 ? "1" : Nested(depth), limits).ok()) << depth;
    const auto deeper = ParseStrictJson(Nested(depth + 1), limits);
    EXPECT_EQ(deeper.status().code(), StatusCode::kDataLoss) << depth;
    EXPECT_THAT(deeper.status().message(), HasSubstr("nested deeper")) << depth;
  }
  // Objects count like arrays.
  EXPECT_FALSE(ParseStrictJson(R"({"a":{"b":{}}})", {.max_depth = 2}).ok());
}

TEST(StrictJson, BytesAreBounded) {
  EXPECT_TRUE(ParseStrictJson("[1]", {.max_bytes = 3}).ok());
  const auto longer = ParseStrictJson("[1] ", {.max_bytes = 3});
  EXPECT_EQ(longer.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(longer.status().message(), HasSubstr("4 bytes is longer than the limit of 3"));
}

TEST(StrictJson, NoKeyTwiceInOneObject) {
  for (const char* text :
       {R"({"a":1,"a":1})", R"([{"b":{"a":[{}],"a":2}}])",
        R"({"a":{"a":1},"b":{"c":1,"d":{"c":2},"c":3}})", "{\"\\u0061\":1,\"a\":2}"}) {
    const auto json = ParseStrictJson(text);
    ASSERT_FALSE(json.ok()) << text;
    EXPECT_THAT(json.status().message(), HasSubstr("twice in one object")) << text;
  }
  EXPECT_TRUE(ParseStrictJson(R"([{"a":1},{"a":{"a":{"a":1}}},{"a":2}])").ok());
  EXPECT_THAT(ParseStrictJson("{\"a\":1,\n\n\"a\":\n2}").status().message(),
              HasSubstr("again on line 3"));
}

// One line for people, whatever the text is.
TEST(StrictJson, BadTextIsOnePrintableSentence) {
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[1,]"), std::string("[1] x"),
        std::string("{\"a\":tru}"), std::string("1e999"), std::string("\"\xff\xfe\""),
        std::string("[\"a\nb\"]"), std::string("\0[]", 3), std::string("{\"a\n\":1,\"a\n\":2}"),
        std::string("{\"a\\n\":1,\"a\\n\":2}"), std::string("nan")}) {
    const auto json = ParseStrictJson(text);
    ASSERT_FALSE(json.ok()) << text;
    EXPECT_EQ(json.status().code(), StatusCode::kDataLoss) << text;
    const std::string& message = json.status().message();
    EXPECT_LT(message.size(), 250u) << message;
    EXPECT_THAT(message, Not(HasSubstr("json.exception")));
    for (char c : message) EXPECT_TRUE(c >= ' ' && c <= '~') << message;
  }
  EXPECT_THAT(ParseStrictJson("[1,\n 2,\n x]").status().message(), HasSubstr("line 3, column 2"));
}

// Every key has its line; what is in arrays is found by its index, and values of any kind in front
// of it count.
TEST(StrictJson, LinesOfKeys) {
  JsonLines lines;
  const auto json = ParseStrictJson(
      "{\"a\": 1,\n\"b\":\n\n[0, [1,\n{\"c\": {}, \"d\":\n [\"\\n\"]}], {\n\"c\"\n:null}],"
      "\"e/f~g\": {\r\n\"\": 2}}\n",
      {}, &lines);
  ASSERT_TRUE(json.ok()) << json.status().ToString();
  EXPECT_THAT(lines,
              ElementsAre(Pair("/a", 1), Pair("/b", 2), Pair("/b/1/1/c", 5), Pair("/b/1/1/d", 5),
                          Pair("/b/2/c", 7), Pair("/e~1f~0g", 8), Pair("/e~1f~0g/", 9)));
  for (const auto& [pointer, line] : lines) {
    EXPECT_TRUE(json->contains(nlohmann::json::json_pointer(pointer))) << pointer;
  }
  EXPECT_EQ(JsonPointerStep("~/"), "/~0~1");
}

TEST(StrictJson, NoLinesOfWhatIsWrong) {
  JsonLines lines;
  EXPECT_FALSE(ParseStrictJson("{\"a\":1,\n\"b\":}", {}, &lines).ok());
  EXPECT_TRUE(lines.empty());
  ASSERT_TRUE(ParseStrictJson("[{}, []]", {}, &lines).ok());
  EXPECT_TRUE(lines.empty());
}

TEST(StrictJson, PrintableIsShortAndClean) {
  EXPECT_EQ(Printable("abc", 3), "abc");
  EXPECT_EQ(Printable("abcd", 3), "abc...");
  EXPECT_EQ(Printable("a\n\x80\x7f~ "), "a???~ ");
  EXPECT_EQ(Printable(""), "");
}

}  // namespace
}  // namespace zpp
