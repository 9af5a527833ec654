// SPDX-License-Identifier: Apache-2.0
//
// What ends by other ways than close() and exit(): descriptors that syscall(2) closes, programs
// that call _exit() and quick_exit(), and children of a program whose threads use sockets.

#include <fstream>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "tests/faces/program.h"

namespace xtreme::faces {
namespace {

constexpr const char* kOffloaded = "offloaded on ours";
constexpr const char* kDebug = "XTREME_LOG_LEVEL=debug";

class EndingTest : public FacesTest {
 protected:
  static std::string Script(const std::string& name, const std::string& text) {
    const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/" + name + ".py";
    std::ofstream(path) << text;
    return "/usr/bin/python3 " + path + " ";
  }
  // Says how many bytes came before the end of each connection.
  std::unique_ptr<Program> Reader() {
    auto reader = StartOnKernel(Script("reader", R"(
import socket, sys
listener = socket.create_server((sys.argv[1], 8000))
print('ready', flush=True)
while True:
    c, peer = listener.accept()
    count = 0
    while part := c.recv(65536): count += len(part)
    print('end after', count, flush=True)
)") + kTheirs);
    EXPECT_TRUE(reader->Says("ready")) << reader->Output();
    return reader;
  }
  std::unique_ptr<Program> Ours(const std::string& name, const std::string& text) {
    return StartOnXtreme(Script(name, "import ctypes, os, signal, socket, sys\n"
                                      "c = socket.create_connection((sys.argv[1], 8000))\n" +
                                          text) +
                             kTheirs,
                         kDebug);
  }
};

// As libuv does, and so node.
TEST_F(EndingTest, ConnectionThatIsClosedBySyscallEndsAndItsNumberIsTheNextFiles) {
  const auto reader = Reader();
  const auto client = Ours("closes", R"(
c.sendall(b'x' * 5)
number = c.detach()
close = 3
assert ctypes.CDLL(None).syscall(close, number) == 0
file = os.open('/etc/passwd', os.O_RDONLY)
assert file == number, (file, number)
print('read', os.read(file, 4), flush=True)
signal.pause()
)");
  EXPECT_TRUE(client->Says("read b'root'")) << client->Output();
  EXPECT_TRUE(reader->Says("end after 5")) << "before the program ends: " << client->Output();
  EXPECT_NE(client->Output().find(kOffloaded), std::string::npos) << client->Output();
}

TEST_F(EndingTest, SyscallReadsAndWritesWhatARingServesAndFailsAsTheCallsDo) {
  const auto reader = Reader();
  const auto client = Ours("asks", R"(
syscall = ctypes.CDLL(None, use_errno=True).syscall
read, write, dup, getpid, close = 0, 1, 32, 39, 3
assert syscall(write, c.fileno(), b'abc', 3) == 3
copy = syscall(dup, c.fileno())
assert copy > 0 and syscall(write, copy, b'de', 2) == 2
c.setblocking(False)
assert syscall(read, c.fileno(), ctypes.create_string_buffer(9), 9) == -1
print('errno', ctypes.get_errno())
assert syscall(getpid) == os.getpid()
assert syscall(close, 999) == -1 and ctypes.get_errno() == 9
)");
  EXPECT_EQ(client->Wait(), 0) << client->Output();
  EXPECT_NE(client->Output().find("errno 11\n"), std::string::npos) << client->Output();
  EXPECT_NE(client->Output().find(kOffloaded), std::string::npos) << client->Output();
  EXPECT_TRUE(reader->Says("end after 5")) << reader->Output();
}

TEST_F(EndingTest, WhatWasSentBeforeExitWithoutDestructorsArrivesAndThenTheEnd) {
  const auto reader = Reader();
  const char* const ways[] = {"os._exit(3)", "ctypes.CDLL(None)._Exit(3)",
                              "ctypes.CDLL(None).quick_exit(3)"};
  int bytes = 100'000;
  for (const char* way : ways) {
    const std::string send = "c.sendall(b'x' * " + std::to_string(bytes) + ")\n";
    const auto client = Ours("exits", send + way);
    EXPECT_EQ(client->Wait(), 3) << client->Output();
    EXPECT_NE(client->Output().find(kOffloaded), std::string::npos) << client->Output();
    EXPECT_TRUE(reader->Says("end after " + std::to_string(bytes))) << way << reader->Output();
    ++bytes;
  }
}

// The first datagram to a peer whose MAC address nobody knows yet.
TEST_F(EndingTest, DatagramThatWaitsForItsNeighbourAtTheEndArrives) {
  const auto reader = StartOnKernel(Script("hears", R"(
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 8000))
print('ready', flush=True)
while True: print('heard', s.recv(100), flush=True)
)") + kTheirs);
  ASSERT_TRUE(reader->Says("ready")) << reader->Output();
  const auto sender = StartOnXtreme(Script("tells", R"(
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.sendto(b'the last', (sys.argv[1], 8000))
)") + kTheirs,
                                    kDebug);
  EXPECT_EQ(sender->Wait(), 0) << sender->Output();
  EXPECT_NE(sender->Output().find(kOffloaded), std::string::npos) << sender->Output();
  EXPECT_TRUE(reader->Says("heard b'the last'")) << reader->Output();
}

// A lock that another thread has at the fork is nobody's to give back in the child.
TEST_F(EndingTest, ChildrenOfAProgramWhoseThreadsUseSocketsEnd) {
  const auto program =
      StartOnXtreme(PathOf("tests/faces/fork_program ") + kTheirs + " 150", kDebug);
  EXPECT_EQ(program->Wait(), 0) << program->Output();
  EXPECT_NE(program->Output().find("150 children ended"), std::string::npos) << program->Output();
  EXPECT_NE(program->Output().find(kOffloaded), std::string::npos) << program->Output();
}

// Streams of the C library have a lock of their own, which is theirs whoever first opened one.
TEST_F(EndingTest, HandlersOfForkMayOpenAndCloseStreams) {
  const std::string command = PathOf("tests/faces/fork_program ") + kTheirs + " 20 streams";
  const auto with = StartOnXtreme(command, kDebug);
  const auto without = StartWithoutDevice(command);
  for (const auto* program : {&with, &without}) {
    EXPECT_EQ((*program)->Wait(), 0) << (*program)->Output();
    EXPECT_NE((*program)->Output().find("20 children ended"), std::string::npos);
  }
  EXPECT_NE(with->Output().find(kOffloaded), std::string::npos) << with->Output();
}

}  // namespace
}  // namespace xtreme::faces
