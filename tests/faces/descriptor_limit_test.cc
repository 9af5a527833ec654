// SPDX-License-Identifier: Apache-2.0
//
// What may be open does not decide what is taken: a program that may have a million files takes no
// more memory for it than one that may have a thousand, and its last descriptor is served too.

#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

#include "gtest/gtest.h"
#include "tests/faces/program.h"

namespace xtreme::faces {
namespace {

constexpr uint64_t kFew = 1'024;
constexpr uint64_t kMany = 1'048'576;  // What Linux lets a limit be unless it is told otherwise.
constexpr int64_t kNoise = 16;  // KiB; a pointer for each would be 150 at the least.

// Echoes one datagram by the highest descriptor it may have, and says what memory it has.
constexpr const char* kServer = R"(
import fcntl, resource, socket
last = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 1
first = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
first.bind(('10.9.0.1', 7000))
one = socket.socket(fileno=fcntl.fcntl(first, fcntl.F_DUPFD, last))
first.close()
print('ready', flush=True)
data, peer = one.recvfrom(100)
one.sendto(data, peer)
for line in open('/proc/self/status'):
    if line.startswith('VmData'): print('private', line.split()[1])
print('number', one.fileno(), flush=True)
)";

constexpr const char* kClient = R"(
import socket
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.settimeout(60)
one.sendto(b'asked', ('10.9.0.1', 7000))
assert one.recv(100) == b'asked'
)";

class DescriptorLimitTest : public FacesTest {
 protected:
  static std::string Script(const std::string& name, const char* text) {
    const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/" + name + ".py";
    std::ofstream(path) << text;
    return "/usr/bin/python3 " + path;
  }
  // KiB of private memory of a program that was started, and the faces loaded, with so many files
  // at most.
  int64_t Serve(uint64_t files) {
    const auto server = StartOnXtreme("prlimit --nofile=" + std::to_string(files) + ":" +
                                          std::to_string(files) + " " + Script("server", kServer),
                                      "XTREME_LOG_LEVEL=debug");
    EXPECT_TRUE(server->Says("ready")) << server->Output();
    EXPECT_NE(server->Output().find("offloaded on ours"), std::string::npos) << server->Output();
    const auto client = StartOnKernel(Script("client", kClient));
    EXPECT_EQ(client->Wait(), 0) << client->Output() << server->Output();
    EXPECT_EQ(server->Wait(), 0) << server->Output();
    int64_t memory = 0;
    uint64_t number = 0;
    std::istringstream words(server->Output());
    for (std::string word; words >> word;) {
      if (word == "private") words >> memory;
      if (word == "number") words >> number;
    }
    EXPECT_EQ(number, files - 1);
    EXPECT_GT(memory, 0) << server->Output();
    return memory;
  }
  // The heap grows by steps, of which one more is chance.
  int64_t LeastOfSome(uint64_t files) {
    constexpr int kTimes = 3;
    int64_t least = Serve(files);
    for (int i = 1; i < kTimes; ++i) least = std::min(least, Serve(files));
    return least;
  }
};

TEST_F(DescriptorLimitTest, MemoryDoesNotFollowIt) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit most = {.rlim_cur = kMany, .rlim_max = kMany};
  // Not everybody may raise it.
  const uint64_t many = setrlimit(RLIMIT_NOFILE, &most) == 0 ? kMany : limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  ASSERT_GT(many, 2 * kFew);
  const int64_t few = LeastOfSome(kFew);
  EXPECT_LE(LeastOfSome(many), few + kNoise);
}

}  // namespace
}  // namespace xtreme::faces
