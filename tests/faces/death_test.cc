// SPDX-License-Identifier: Apache-2.0
//
// Either end of a busy connection is killed (SIGKILL) at seeded moments, from before it is there
// on: the other end gets bytes that are right, then the end of the stream or an errno that says so,
// within seconds; and who is started next finds nothing in its way. Who only waits learns by its
// keepalive probes, which the killed program's kernel answers by a reset.

#include <unistd.h>

#include <fstream>
#include <memory>
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "tests/faces/program.h"

namespace xtreme::faces {
namespace {

constexpr int kMoments = 9;

// Which end is on rings, and which end is killed.
struct Scene {
  const char* name;
  bool ours_serves;
  bool ours_dies;
};

class DeathTest : public FacesTest, public ::testing::WithParamInterface<Scene> {
 protected:
  static std::string Script(const std::string& name, const std::string& text) {
    const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/" + name + ".py";
    std::ofstream(path) << text;
    return "/usr/bin/python3 " + path + " ";
  }
  // Both say "connected", and at the end "lost: NAME"; 1: what came was wrong.
  static std::string Server() {
    return Script("server", R"(
import errno, socket, sys
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((sys.argv[1], 8000))
s.listen(5)
print('ready', flush=True)
c, peer = s.accept()
c.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL):
    c.setsockopt(socket.IPPROTO_TCP, option, 1)
c.settimeout(15)
print('connected', flush=True)
try:
    while part := c.recv(65536): c.sendall(part)
    print('lost: end', flush=True)
except OSError as e:
    print('lost:', errno.errorcode.get(e.errno, repr(e)), flush=True)
)");
  }
  static std::string Client() {
    return Script("client", R"(
import errno, random, socket, sys
numbers = random.Random(int(sys.argv[2]))
try:
    c = socket.create_connection((sys.argv[1], 8000), timeout=15)
    c.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL):
        c.setsockopt(socket.IPPROTO_TCP, option, 1)
    print('connected', flush=True)
    while True:
        sent = numbers.randbytes(numbers.choice([1, 100, 5000, 60000]))
        c.sendall(sent)
        got = b''
        while len(got) < len(sent):
            part = c.recv(65536)
            if not part:
                print('lost: end', flush=True)
                sys.exit(0 if sent.startswith(got) else 1)
            got += part
        if got != sent: sys.exit(1)
except OSError as e:
    print('lost:', errno.errorcode.get(e.errno, repr(e)), flush=True)
)");
  }
  static bool Connected(const Program& program) {
    return program.Output().find("connected") != std::string::npos;
  }
  // "" or what is wrong with how it learned.
  static std::string WhatIsWrong(Program& survivor) {
    const int code = survivor.Wait();
    const std::string said = survivor.Output();
    if (code != 0) return "exit code " + std::to_string(code) + "\n" + said;
    for (const char* way : {"end", "ECONNRESET", "EPIPE", "ECONNREFUSED"}) {
      if (said.find(std::string("lost: ") + way) != std::string::npos) return "";
    }
    return said;
  }
};

TEST_P(DeathTest, TheOtherEndLearnsOfItCleanly) {
  const Scene& scene = GetParam();
  std::minstd_rand random(7);
  const std::string address = scene.ours_serves ? kOurs : kTheirs;
  for (int moment = 0; moment < kMoments; ++moment) {
    const std::string log = "XTREME_LOG_LEVEL=error";
    const auto server = scene.ours_serves ? StartOnXtreme(Server() + address, log)
                                          : StartOnKernel(Server() + address);
    ASSERT_TRUE(server->Says("ready")) << server->Output();
    const std::string connect = Client() + address + " " + std::to_string(moment);
    const auto client = scene.ours_serves ? StartOnKernel(connect) : StartOnXtreme(connect, log);
    Program& victim = scene.ours_serves == scene.ours_dies ? *server : *client;
    Program& survivor = scene.ours_serves == scene.ours_dies ? *client : *server;
    // The first ones while it starts, the others while bytes are under way.
    if (moment >= 2) {
      ASSERT_TRUE(victim.Says("connected")) << victim.Output() << survivor.Output();
    }
    usleep(static_cast<unsigned>(random() % (moment < 2 ? 300'000 : 100'000)));
    victim.Signal(SIGKILL);
    victim.Wait();
    // A server whose client never came waits in vain.
    usleep(200'000);
    const bool waits = &survivor == server.get() && !Connected(survivor);
    if (waits) continue;
    EXPECT_EQ(WhatIsWrong(survivor), "") << "moment " << moment;
  }
}

INSTANTIATE_TEST_SUITE_P(Scenes, DeathTest,
                         ::testing::Values(Scene{"OurServerDies", true, true},
                                           Scene{"OurServerLives", true, false},
                                           Scene{"OurClientDies", false, true},
                                           Scene{"OurClientLives", false, false}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace xtreme::faces
