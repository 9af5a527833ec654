// SPDX-License-Identifier: Apache-2.0
//
// Programs for VMA, compiled against mellanox/vma_extra.h alone, with the kernel on the other side.

#include <string>

#include "gtest/gtest.h"
#include "tests/faces/program.h"

namespace xtreme::faces {
namespace {

class VmaTest : public FacesTest, public ::testing::WithParamInterface<const char*> {
 protected:
  std::string Echo() { return PathOf("tests/faces/vma_echo"); }
  std::string Client() { return PathOf("tests/faces/udp_program"); }
};

TEST_P(VmaTest, EchoServerAnswersTheKernel) {
  const auto server = StartOnXtreme(Echo() + " " + kOurs + " 7000 150 " + GetParam());
  ASSERT_TRUE(server->Says("ready")) << server->Output();
  const auto client = StartOnKernel(Client() + " ask " + kOurs + " 7000 150 64");
  EXPECT_EQ(client->Wait(), 0) << client->Output() << server->Output();
  EXPECT_EQ(client->Output(), "asked, 0 lost\n") << server->Output();
  EXPECT_EQ(server->Wait(), 0) << server->Output();
}

INSTANTIATE_TEST_SUITE_P(Ways, VmaTest,
                         ::testing::Values("ring", "socket", "epoll", "ref", "callback", "zcopy"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(VmaTest, MaskTellsTheTruthAndErrorsAreTheOnesProgramsKnow) {
  const auto program = StartOnXtreme(Echo() + " " + kOurs + " 7000 1 mask");
  EXPECT_EQ(program->Wait(), 0) << program->Output();
  EXPECT_NE(program->Output().find("offloaded on ours as 10.9.0.1:7000"), std::string::npos)
      << program->Output();
}

}  // namespace
}  // namespace xtreme::faces
