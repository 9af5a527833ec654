// SPDX-License-Identifier: Apache-2.0
//
// Many connections, at once through epoll and one after the other, in rounds: after the last one
// the program has no descriptor more than after the one before, and less heap more than the least
// piece for each connection would be; and none of its connections was the kernel's.
//
//   churn_test [--connections=N] [--cycles=N]

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/faces/program.h"

namespace xtreme::faces {
namespace {

constexpr size_t kRounds = 4;
constexpr int kPatience = 1'000;  // Seconds.
// Of heap that a round may leave, of those that are still ending: a socket is more.
constexpr double kBytesOfConnection = 1'000;
uint32_t g_connections = 400;
uint32_t g_cycles = 600;

// What both programs begin with.
constexpr const char* kCommon = R"(
import ctypes, os, resource, select, socket, sys
address, count, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
class Heap(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
                'arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keep'.split()]
libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Heap
def report(most):
    heap = libc.mallinfo2()
    print('round', most, len(os.listdir('/proc/self/fd')), heap.uordblks + heap.hblkhd, flush=True)
)";

// Echoes; `count` connections a round, however many at once. With a fourth argument it closes each
// after the first echo.
constexpr const char* kServer = R"(
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind((address, 8000))
listener.listen(4096)
listener.setblocking(False)
events = select.epoll()
events.register(listener, select.EPOLLIN)
closes = len(sys.argv) > 4
open_ones = {}
print('ready', flush=True)
def accept():
    while True:
        try:
            one, peer = listener.accept()
        except BlockingIOError:
            return
        one.setblocking(False)
        open_ones[one.fileno()] = one
        events.register(one.fileno(), select.EPOLLIN)
def serve(fd):
    one = open_ones[fd]
    try:
        part = one.recv(4096)
    except BlockingIOError:
        return 0
    if part:
        one.sendall(part)
        if not closes:
            return 0
    events.unregister(fd)
    del open_ones[fd]
    one.close()
    return 1
for each in range(rounds):
    closed = most = 0
    while closed < count:
        for fd, what in events.poll():
            if fd == listener.fileno():
                accept()
                most = max(most, len(open_ones))
            else:
                closed += serve(fd)
    report(most)
print('done', flush=True)
)";

// Opens all before it closes any.
constexpr const char* kHolder = R"(
for each in range(rounds):
    ones = []
    for i in range(count):
        one = socket.create_connection((address, 8000))
        one.sendall(b'12345678')
        ones.append(one)
    wrong = sum(one.recv(8) != b'12345678' for one in ones)
    for one in ones:
        one.close()
    print('wrong', wrong, flush=True)
    ones = one = None
    report(count)
print('done', flush=True)
)";

// One after the other, each to its end.
constexpr const char* kCycler = R"(
for each in range(rounds):
    for i in range(count):
        one = socket.create_connection((address, 8000))
        one.sendall(b'12345678')
        got = b''
        while part := one.recv(8):
            got += part
            if len(sys.argv) > 4:
                break
        if got != b'12345678':
            print('wrong', got, flush=True)
        one.close()
    report(1)
print('done', flush=True)
)";

struct Round {
  uint32_t at_once = 0;
  int descriptors = 0;
  double heap = 0;
};

std::vector<Round> RoundsOf(const std::string& output) {
  std::vector<Round> rounds;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string word;
    Round round;
    if (fields >> word >> round.at_once >> round.descriptors >> round.heap && word == "round") {
      rounds.push_back(round);
    }
  }
  return rounds;
}

class ChurnTest : public FacesTest {
 protected:
  void SetUp() override {
    FacesTest::SetUp();
    unlink(log().c_str());  // Of the test before.
    // Its connections are as many as it has ports, and one after the other.
    for (net::Namespace* each : {&here(), &there()}) {
      ASSERT_TRUE(each->SetSysctl("net.ipv4.ip_local_port_range", "1024 65535").ok());
      ASSERT_TRUE(each->SetSysctl("net.ipv4.tcp_tw_reuse", "1").ok());
    }
  }
  static std::string Script(const std::string& name, const std::string& text) {
    const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/" + name + ".py";
    std::ofstream(path) << kCommon << text;
    return "/usr/bin/python3 " + path + " ";
  }
  static std::string Arguments(const char* address, uint32_t count) {
    return std::string(address) + " " + std::to_string(count) + " " + std::to_string(kRounds);
  }
  std::string Settings() const {
    return "XTREME_LOG_LEVEL=details XTREME_LOG_FILE=" + log() +
           " XTREME_MAX_CONNECTIONS=" + std::to_string(2 * g_connections + 1'024);
  }
  // Both to their ends, and `ours` without a leak.
  void Check(Program& ours, Program& theirs, uint32_t count) {
    EXPECT_EQ(ours.Wait(kPatience), 0) << ours.Output() << theirs.Output();
    EXPECT_EQ(theirs.Wait(kPatience), 0) << theirs.Output();
    EXPECT_TRUE(ours.Output().ends_with("done\n")) << ours.Output();
    const std::string said = ours.Output() + theirs.Output();
    for (const char* wrong : {"wrong b", "Traceback"}) {
      EXPECT_EQ(said.find(wrong), std::string::npos) << said;
    }
    rounds_ = RoundsOf(ours.Output());
    ASSERT_EQ(rounds_.size(), kRounds) << ours.Output();
    const Round& before = rounds_[kRounds - 2];
    const Round& last = rounds_[kRounds - 1];
    // Some of the last ones may still be ending: of a leak there would be one for each.
    EXPECT_LT(last.descriptors, before.descriptors + static_cast<int>(count / 2)) << ours.Output();
    EXPECT_LT(last.heap - before.heap, kBytesOfConnection * count) << ours.Output();
    std::ifstream in(log());
    const std::string told(std::istreambuf_iterator<char>(in), {});
    EXPECT_NE(told.find("ring on ours"), std::string::npos) << told;
    EXPECT_EQ(told.find("left to the kernel"), std::string::npos) << told;
  }
  std::string log() const { return std::string(std::getenv("TEST_TMPDIR")) + "/log"; }

  std::vector<Round> rounds_;
};

TEST_F(ChurnTest, ServerHasManyConnectionsAtOnceAndNothingLeftOfThem) {
  const auto server =
      StartOnXtreme(Script("server", kServer) + Arguments(kOurs, g_connections), Settings());
  ASSERT_TRUE(server->Says("ready")) << server->Output();
  const auto client = StartOnKernel(Script("client", kHolder) + Arguments(kOurs, g_connections));
  Check(*server, *client, g_connections);
  for (const Round& each : rounds_) EXPECT_EQ(each.at_once, g_connections);
}

TEST_F(ChurnTest, ServerHasManyOneAfterTheOther) {
  const auto server =
      StartOnXtreme(Script("server", kServer) + Arguments(kOurs, g_cycles), Settings());
  ASSERT_TRUE(server->Says("ready")) << server->Output();
  const auto client =
      StartOnKernel(Script("client", kCycler) + Arguments(kOurs, g_cycles) + " first");
  Check(*server, *client, g_cycles);
}

TEST_F(ChurnTest, ClientHasManyOneAfterTheOther) {
  const auto server =
      StartOnKernel(Script("server", kServer) + Arguments(kTheirs, g_cycles) + " closes");
  ASSERT_TRUE(server->Says("ready")) << server->Output();
  const auto client =
      StartOnXtreme(Script("client", kCycler) + Arguments(kTheirs, g_cycles), Settings());
  Check(*client, *server, g_cycles);
}

}  // namespace
}  // namespace xtreme::faces

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  CLI::App app("Many connections through the socket faces, and what is left of them.");
  app.add_option("--connections", xtreme::faces::g_connections, "of a round, at once");
  app.add_option("--cycles", xtreme::faces::g_cycles, "of a round, one after the other");
  CLI11_PARSE(app, argc, argv);
  return RUN_ALL_TESTS();
}
