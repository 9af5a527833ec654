// SPDX-License-Identifier: Apache-2.0

#include "api/sockets/settings.h"

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace xtreme::sockets {
namespace {

std::string Read(std::vector<const char*> environment, FaceSettings* settings,
                 std::vector<std::string>* remarks) {
  environment.push_back(nullptr);
  return ReadSettings(const_cast<char**>(environment.data()), settings, remarks);
}

TEST(FaceSettingsTest, VmasVariablesAreAliasesAndOursPrevail) {
  FaceSettings settings;
  std::vector<std::string> remarks;
  EXPECT_EQ(Read({"XTREME_RX_POLL=5", "VMA_RX_POLL=-1", "VMA_SELECT_POLL=0", "HOME=/",
                  "VMA_TRACELEVEL=DEBUG", "VMA_THREAD_MODE=0", "XTREME_SPIN_US=7"},
                 &settings, &remarks),
            "");
  EXPECT_EQ(settings.rx_poll, 5);
  EXPECT_EQ(settings.select_poll_us, 0);
  EXPECT_EQ(settings.log_level, 5);
  EXPECT_TRUE(settings.single_thread);
  EXPECT_EQ(settings.ring.spin_us, 7u);
  EXPECT_TRUE(remarks.empty());
}

TEST(FaceSettingsTest, VmasVariableWithoutAMeaningIsARemark) {
  FaceSettings settings;
  std::vector<std::string> remarks;
  EXPECT_EQ(Read({"VMA_GRO_STREAMS_MAX=0"}, &settings, &remarks), "");
  ASSERT_EQ(remarks.size(), 1u);
  EXPECT_EQ(remarks[0], "VMA_GRO_STREAMS_MAX has no meaning here and no effect");
}

TEST(FaceSettingsTest, UnknownOrMalformedIsAnErrorThatNamesIt) {
  FaceSettings settings;
  std::vector<std::string> remarks;
  EXPECT_EQ(Read({"VMA_RX_POLL=many"}, &settings, &remarks),
            "VMA_RX_POLL: 'many' asked, -1 to 1000000000 possible");
  EXPECT_NE(Read({"XTREME_COLOUR=red"}, &settings, &remarks).find("XTREME_COLOUR"),
            std::string::npos);
}

TEST(FaceSettingsTest, ReferenceStandsInTheDocumentation) {
  std::ifstream file("docs/settings.md");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_NE(text.find(FaceReference()), std::string::npos) << FaceReference();
}

}  // namespace
}  // namespace xtreme::sockets
