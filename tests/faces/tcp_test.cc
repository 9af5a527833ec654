// SPDX-License-Identifier: Apache-2.0
//
// Stream programs, unchanged (Debian's python3 among them), with libxtreme.so preloaded, against
// the kernel on the other side.

#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "tests/faces/program.h"

namespace xtreme::faces {
namespace {

constexpr const char* kOffloaded = "offloaded on ours";
constexpr const char* kDebug = "XTREME_LOG_LEVEL=debug";
constexpr const char* kPython = "/usr/bin/python3 ";

class TcpTest : public FacesTest {
 protected:
  // A program in Python.
  std::string Script(const std::string& name, const std::string& text) {
    const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/" + name + ".py";
    std::ofstream(path) << text;
    return kPython + path;
  }
  // Echoes what each of `count` connections sends, one after the other.
  std::string EchoServer(const std::string& address) {
    return Script("server", R"(
import socket
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((')" + address + R"(', 8000))
s.listen(5)
print('ready', flush=True)
for turn in range(3):
    c, peer = s.accept()
    assert peer == c.getpeername() and c.getsockname()[1] == 8000
    while True:
        part = c.recv(65536)
        if not part: break
        c.sendall(part)
    c.close()
print('served', flush=True)
)");
  }
  std::string EchoClient(const std::string& address) {
    return Script("client", R"(
import hashlib, os, socket, threading
for turn in range(3):
    c = socket.create_connection((')" + address + R"(', 8000), timeout=15)
    assert c.getpeername() == (')" + address + R"(', 8000)
    sent = os.urandom([1, 5000, 3000000][turn])
    def send():
        c.sendall(sent)
        c.shutdown(socket.SHUT_WR)
    t = threading.Thread(target=send)
    t.start()
    got = bytearray()
    while True:
        part = c.recv(65536)
        if not part: break
        got += part
    t.join()
    assert got == sent, (len(got), len(sent))
    c.close()
print('equal', flush=True)
)");
  }
};

TEST_F(TcpTest, EchoServerIsOffloadedAndAnswersTheKernel) {
  const auto server = StartOnXtreme(EchoServer(kOurs), kDebug);
  ASSERT_TRUE(server->Says("ready")) << server->Output();
  EXPECT_TRUE(server->Says(kOffloaded)) << server->Output();
  const auto client = StartOnKernel(EchoClient(kOurs));
  EXPECT_EQ(client->Wait(), 0) << client->Output() << server->Output();
  EXPECT_EQ(server->Wait(), 0) << server->Output();
}

TEST_F(TcpTest, ClientIsOffloaded) {
  const auto server = StartOnKernel(EchoServer(kTheirs));
  ASSERT_TRUE(server->Says("ready")) << server->Output();
  const auto client = StartOnXtreme(EchoClient(kTheirs), kDebug);
  EXPECT_EQ(client->Wait(), 0) << client->Output() << server->Output();
  EXPECT_NE(client->Output().find(kOffloaded), std::string::npos) << client->Output();
  EXPECT_EQ(server->Wait(), 0) << server->Output();
}

TEST_F(TcpTest, RefusedConnectionIsTheErrorThatLinuxGives) {
  const auto client = StartOnXtreme(Script("refused", R"(
import errno, socket
try:
    socket.create_connection(('10.9.0.2', 8001), timeout=10)
except ConnectionRefusedError:
    print('refused')
)"),
                                    kDebug);
  EXPECT_EQ(client->Wait(), 0) << client->Output();
  EXPECT_NE(client->Output().find("\nrefused"), std::string::npos) << client->Output();
  EXPECT_NE(client->Output().find(kOffloaded), std::string::npos) << client->Output();
}

// That of the first connection of a program, which has no ports yet, too.
TEST_F(TcpTest, PortOfWhatStillConnectsIsTheOneThatItConnectsFrom) {
  const auto server = StartOnKernel(EchoServer(kTheirs));
  ASSERT_TRUE(server->Says("ready")) << server->Output();
  const auto client = StartOnXtreme(Script("connects", R"(
import select, socket
for i in range(2):
    s = socket.socket()
    s.setblocking(False)
    s.connect_ex(('10.9.0.2', 8000))
    begun = s.getsockname()
    select.select([], [s], [], 20)
    assert s.getpeername() and begun == s.getsockname(), (begun, s.getsockname())
print('the same')
)"),
                                    kDebug);
  EXPECT_EQ(client->Wait(), 0) << client->Output();
  EXPECT_NE(client->Output().find("\nthe same"), std::string::npos) << client->Output();
  EXPECT_NE(client->Output().find(kOffloaded), std::string::npos) << client->Output();
}

TEST_F(TcpTest, AsyncioServesManyConnectionsAtOnce) {
  const auto server = StartOnXtreme(Script("asyncio_server", R"(
import asyncio
async def serve(reader, writer):
    while part := await reader.read(65536):
        writer.write(part)
        await writer.drain()
    writer.close()
async def main():
    server = await asyncio.start_server(serve, '0.0.0.0', 8000)
    print('ready', flush=True)
    await server.serve_forever()
asyncio.run(main())
)"),
                                    kDebug);
  ASSERT_TRUE(server->Says("ready")) << server->Output();
  EXPECT_TRUE(server->Says(kOffloaded)) << server->Output();
  const auto client = StartOnKernel(Script("asyncio_client", R"(
import asyncio, os
async def one():
    reader, writer = await asyncio.open_connection('10.9.0.1', 8000)
    sent = os.urandom(100000)
    writer.write(sent)
    writer.write_eof()
    assert await reader.read() == sent
    writer.close()
async def main():
    await asyncio.gather(*[one() for each in range(20)])
asyncio.run(main())
)"));
  EXPECT_EQ(client->Wait(), 0) << client->Output() << server->Output();
}

// Listeners on any address answer this host too, by the kernel.
TEST_F(TcpTest, ListenerIsReachedByLoopbackToo) {
  const auto server = StartOnXtreme(EchoServer("0.0.0.0"), kDebug);
  ASSERT_TRUE(server->Says("ready")) << server->Output();
  const auto client = StartWithoutDevice(EchoClient("127.0.0.1"));
  EXPECT_EQ(client->Wait(), 0) << client->Output() << server->Output();
  EXPECT_EQ(server->Wait(), 0) << server->Output();
}

// Clients that wait for a server to come back are there before its first accept: whose handshake
// the kernel has done goes on, on whatever side the listener is from then on.
TEST_F(TcpTest, ConnectionsThatBeginWhileAListenerGoesToARingAreNotReset) {
  const auto server = StartOnXtreme(Script("early_server", R"(
import socket
# The ring is up before.
first = socket.create_server(('10.9.0.1', 7999))
first.setblocking(False)
try: first.accept()
except BlockingIOError: pass
print('ready', flush=True)
for port in range(8000, 8060):
    listener = socket.create_server(('10.9.0.1', port))
    c, peer = listener.accept()
    c.settimeout(10)
    got = b''
    while len(got) < 1000: got += c.recv(1000)
    c.sendall(got)
    assert c.recv(1) == b''
    c.close()
    listener.close()
)"));
  ASSERT_TRUE(server->Says("ready")) << server->Output();
  const auto client = StartOnKernel(Script("early_client", R"(
import socket
def connect(port):
    while True:
        c = socket.socket()
        c.settimeout(10)
        try:
            c.connect(('10.9.0.1', port))
            return c
        except ConnectionRefusedError: c.close()
for port in range(8000, 8060):
    c = connect(port)
    for part in range(10): c.sendall(b'x' * 100)
    got = b''
    while len(got) < 1000:
        part = c.recv(1000)
        assert part, port
        got += part
    c.close()
)"));
  EXPECT_EQ(client->Wait(), 0) << client->Output() << server->Output();
  EXPECT_EQ(server->Wait(), 0) << server->Output();
}

// SIGIO is the kernel's to send; where it cannot be, the log says so.
TEST_F(TcpTest, SocketThatWantsSignalsIsTheKernelsUnlessItIsAConnectionAlready) {
  const auto server = StartOnKernel(EchoServer(kTheirs));
  ASSERT_TRUE(server->Says("ready")) << server->Output();
  const auto client = StartOnXtreme(Script("signals", R"(
import fcntl, os, signal, socket, struct, termios, time
came = 0
def count(*unused):
    global came
    came += 1
signal.signal(signal.SIGIO, count)
def arm(s, by_ioctl):
    fcntl.fcntl(s, fcntl.F_SETOWN, os.getpid())
    if by_ioctl: fcntl.ioctl(s, termios.FIOASYNC, struct.pack('i', 1))
    else: fcntl.fcntl(s, fcntl.F_SETFL, os.O_ASYNC)
# Before it is decided, and after.
for by_ioctl in (False, True):
    for binds_first in (False, True):
        u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        u.settimeout(10)
        if binds_first: u.bind(('10.9.0.1', 0))
        arm(u, by_ioctl)
        if not binds_first: u.bind(('10.9.0.1', 0))
        came = 0
        u.sendto(b'x', u.getsockname())
        assert u.recv(1) == b'x'
        for turn in range(1000):
            if came: break
            time.sleep(0.01)
        assert came, (by_ioctl, binds_first)
for by_ioctl in (False, True):
    c = socket.socket()
    arm(c, by_ioctl)
    c.connect(('10.9.0.2', 8000))
    assert c.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) == bytes([1])
    c.close()
c = socket.create_connection(('10.9.0.2', 8000), timeout=10)
arm(c, False)
c.setblocking(True)
c.sendall(b'x')
assert c.recv(1) == b'x'
)"),
                                    kDebug);
  EXPECT_EQ(client->Wait(), 0) << client->Output();
  EXPECT_EQ(server->Wait(), 0) << server->Output();
  const std::string said = client->Output();
  size_t left = 0;
  constexpr std::string_view kReason = "left to the kernel: O_ASYNC";
  for (size_t at = said.find(kReason); at != said.npos; at = said.find(kReason, at + 1)) ++left;
  EXPECT_EQ(left, 6u) << said;
  EXPECT_NE(said.find("is on a ring, of which SIGIO never comes"), said.npos) << said;
}

// One ring for the listener and its children; no accept(); data, then EOF, as events.
TEST_F(TcpTest, SocketxtremeServerEchoes) {
  const auto server = StartOnXtreme(PathOf("tests/faces/vma_tcp_echo") + " " + kOurs + " 8000 3");
  ASSERT_TRUE(server->Says("ready")) << server->Output();
  const auto client = StartOnKernel(EchoClient(kOurs));
  EXPECT_EQ(client->Wait(), 0) << client->Output() << server->Output();
  EXPECT_EQ(server->Wait(), 0) << server->Output();
}

}  // namespace
}  // namespace xtreme::faces
