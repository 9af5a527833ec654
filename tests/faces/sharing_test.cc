// SPDX-License-Identifier: Apache-2.0
//
// Descriptors that other processes have too, and numbers that are given on: what one of them does
// with its own takes nothing from the others. Programs in Python with libxtreme.so preloaded,
// against the kernel on the other side.

#include <fstream>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "tests/faces/program.h"

namespace xtreme::faces {
namespace {

class SharingTest : public FacesTest {
 protected:
  static std::string Script(const std::string& name, const std::string& text) {
    const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/" + name + ".py";
    std::ofstream(path) << text;
    return "/usr/bin/python3 " + path;
  }
  // Echoes on the other side, to any number at once.
  std::unique_ptr<Program> StartEcho() {
    auto echo = StartOnKernel(Script("echo", R"(
import socket, threading
s = socket.create_server(('10.9.0.2', 8000))
print('ready', flush=True)
def serve(c):
    while part := c.recv(65536): c.sendall(part)
    c.close()
while True: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
)"));
    EXPECT_TRUE(echo->Says("ready")) << echo->Output();
    return echo;
  }
  // Runs `text`, which asserts, and is to be offloaded.
  void Run(const std::string& name, const std::string& text) {
    const auto program = StartOnXtreme(Script(name, text), "XTREME_LOG_LEVEL=debug");
    EXPECT_EQ(program->Wait(), 0) << program->Output();
    EXPECT_NE(program->Output().find("offloaded on ours"), std::string::npos)
        << program->Output();
  }
};

// subprocess does so by vfork(), and its child closes all that it is not to have.
TEST_F(SharingTest, WhatAChildClosesBeforeExecStaysTheParents) {
  const auto echo = StartEcho();
  Run("spawning", R"(
import os, socket, subprocess
c = socket.create_connection(('10.9.0.2', 8000), timeout=10)
os.set_inheritable(c.fileno(), True)
for way in ({}, {'close_fds': False}, {'pass_fds': (c.fileno(),)}):
    subprocess.run(['/bin/true'], check=True, **way)
    c.sendall(b'after')
    assert c.recv(10) == b'after', way
# With file actions of the C library.
os.waitpid(os.posix_spawn('/bin/true', ['true'], {}, file_actions=[
    (os.POSIX_SPAWN_CLOSE, c.fileno()), (os.POSIX_SPAWN_DUP2, 1, c.fileno())]), 0)
c.sendall(b'spawned')
assert c.recv(10) == b'spawned'
)");
}

}  // namespace
}  // namespace xtreme::faces
