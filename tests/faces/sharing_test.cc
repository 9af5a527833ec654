// SPDX-License-Identifier: Apache-2.0
//
// Descriptors that other processes have too, and numbers that are given on: what one of them does
// with its own takes nothing from the others. Programs in Python with libxtreme.so preloaded,
// against the kernel on the other side.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

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

// It stays this process', and whoever gets it finds the kernel's socket.
TEST_F(SharingTest, ConnectionThatIsHandedOverIsNamedInTheLog) {
  const auto echo = StartEcho();
  const auto program = StartOnXtreme(Script("handing", R"(
import socket
c = socket.create_connection(('10.9.0.2', 8000), timeout=10)
here, there = socket.socketpair(socket.AF_UNIX)
socket.send_fds(here, [b'x'], [0, c.fileno()])
assert socket.recv_fds(there, 10, 2)[0] == b'x'
c.sendall(b'stays')
assert c.recv(10) == b'stays'
)"));
  EXPECT_EQ(program->Wait(), 0) << program->Output();
  EXPECT_NE(program->Output().find("is handed over (SCM_RIGHTS)"), std::string::npos)
      << program->Output();
}

// Who is told that it cannot, in the words of splice(2), reads and writes instead.
TEST_F(SharingTest, ConnectionOfARingIsNotSplicedAndLosesNothing) {
  const auto echo = StartEcho();
  Run("splicing", R"(
import errno, os, socket
c = socket.create_connection(('10.9.0.2', 8000), timeout=10)
out, into = os.pipe()
os.write(into, b'piped')
for ends in ((out, c.fileno()), (c.fileno(), into)):
    try: os.splice(*ends, 5)
    except OSError as e: assert e.errno == errno.EINVAL, e
    else: assert False
assert os.read(out, 10) == b'piped'
c.sendall(b'whole')
assert c.recv(10) == b'whole'
)");
}

// --- Streams of the C library ---

TEST_F(SharingTest, NumberOfASocketWhoseStreamWasClosedIsAnotherFiles) {
  const auto echo = StartEcho();
  Run("streams", R"(
import ctypes, os, socket, tempfile
libc = ctypes.CDLL(None, use_errno=True)
libc.fdopen.restype = libc.freopen.restype = ctypes.c_void_p
libc.fclose.argtypes = [ctypes.c_void_p]
libc.freopen.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p]
path = tempfile.mktemp()
with open(path, 'w') as f: f.write('from the file')
def stream():
    c = socket.create_connection(('10.9.0.2', 8000), timeout=10)
    c.sendall(b'from the net')
    c.recv(100, socket.MSG_PEEK)
    number = c.detach()
    return number, libc.fdopen(number, b'r')
number, closed = stream()
libc.fclose(closed)
assert os.open(path, os.O_RDONLY) == number
assert os.read(number, 100) == b'from the file'
number, opened = stream()
opened = libc.freopen(path.encode(), b'r', opened)
assert libc.fileno(ctypes.c_void_p(opened)) == number
assert os.read(number, 100) == b'from the file'
libc.fclose(opened)
os.unlink(path)
)");
}

TEST_F(SharingTest, StreamOfTheCLibraryReadsAndWritesAConnectionOfARing) {
  const auto echo = StartEcho();
  Run("stdio", R"(
import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)
libc.fdopen.restype = libc.fgets.restype = ctypes.c_void_p
def stream(c, mode=b'r+'): return ctypes.c_void_p(libc.fdopen(c.fileno(), mode))
room = ctypes.create_string_buffer(1000)
c = socket.create_connection(('10.9.0.2', 8000), timeout=10)
c.setblocking(True)
out, into = stream(c, b'w'), ctypes.c_void_p(libc.fdopen(os.dup(c.fileno()), b'r'))
assert libc.fileno(out) == c.fileno()
assert libc.fseek(out, ctypes.c_long(0), 0) == -1
assert libc.fprintf(out, b'line %d\nand more\n', 7) == 16 and libc.fflush(out) == 0
assert libc.fgets(room, 1000, into) and room.value == b'line 7\n'
assert libc.fgets(room, 1000, into) and room.value == b'and more\n'
assert libc.dprintf(c.fileno(), b'%s by number\n', b'printed') == 18
assert libc.fgets(room, 1000, into) and room.value == b'printed by number\n'
# What is not written yet when it is closed, leaves; the number is free, and its copy ends.
libc.fputs(b'last words\n', out)
number = c.detach()
assert libc.fclose(out) == 0
assert os.open('/dev/null', os.O_RDONLY) == number
assert libc.fgets(room, 1000, into) and room.value == b'last words\n'
socket.socket(fileno=os.dup(libc.fileno(into))).shutdown(socket.SHUT_WR)
assert not libc.fgets(room, 1000, into) and libc.feof(into)
assert libc.fclose(into) == 0
# Another file in its place.
c = socket.create_connection(('10.9.0.2', 8000), timeout=10)
c.setblocking(True)
copy = socket.socket(fileno=os.dup(c.fileno()))
out = stream(c, b'w')
libc.fputs(b'before it is another', out)
libc.freopen.restype = ctypes.c_void_p
assert libc.freopen(b'/dev/null', b'w', out) and libc.fputs(b'to nobody', out) >= 0
assert copy.recv(100) == b'before it is another'
)");
}

TEST_F(SharingTest, StreamOfTheCLibraryWritesWhatItHasWhenTheProgramEnds) {
  const auto sink = StartOnKernel(Script("sink", R"(
import socket
s = socket.create_server(('10.9.0.2', 8000))
print('ready', flush=True)
c, _ = s.accept()
came = b''
while part := c.recv(100): came += part
print('came:', came, flush=True)
)"));
  ASSERT_TRUE(sink->Says("ready")) << sink->Output();
  Run("exits", R"(
import ctypes, socket
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
c = socket.create_connection(('10.9.0.2', 8000), timeout=10)
c.setblocking(True)
libc.fputs(b'written at the end', ctypes.c_void_p(libc.fdopen(c.detach(), b'w')))
libc.exit(0)
)");
  EXPECT_TRUE(sink->Says("came: b'written at the end'")) << sink->Output();
}

TEST_F(SharingTest, StandardStreamsGoByAConnectionThatTakesTheirNumbers) {
  const auto echo = StartEcho();
  Run("standard", R"(
import ctypes, os, socket
libc = ctypes.CDLL(None)
libc.fgets.restype = ctypes.c_void_p
room = ctypes.create_string_buffer(1000)
def stdin(): return ctypes.c_void_p.in_dll(libc, 'stdin')
c = socket.create_connection(('10.9.0.2', 8000), timeout=10)
c.setblocking(True)
kept = [os.dup(0), os.dup(1)]
os.dup2(c.fileno(), 0), os.dup2(c.fileno(), 1)
libc.printf(b'printed\n')
assert libc.fflush(None) == 0
assert libc.fgets(room, 1000, stdin()) and room.value == b'printed\n'
# And by what they were when they are that again.
for number in (0, 1): os.dup2(kept[number], number)
libc.printf(b'to the log\n')
assert libc.fflush(None) == 0
c.sendall(b'.')
assert c.recv(100) == b'.'
)");
}

TEST_F(SharingTest, ChildThatUsesItsParentsConnectionIsToldWhyItCannot) {
  const auto echo = StartEcho();
  const auto program = StartOnXtreme(Script("inherits", R"(
import errno, os, socket
c = socket.create_connection(('10.9.0.2', 8000), timeout=10)
c.setblocking(True)
def child(does):
    pid = os.fork()
    if pid == 0:
        try: does()
        finally: os._exit(0)
    os.waitpid(pid, 0)
child(lambda: c.close())
print('closed', flush=True)
ends = c.getsockname(), c.getpeername()
child(lambda: print('named', ends == (c.getsockname(), c.getpeername()), flush=True))
def inherits(): os.dup2(c.fileno(), 0)
child(inherits)
def sends():
    try: c.send(b'x')
    except OSError as e: print('refused', e.errno == errno.EOPNOTSUPP, flush=True)
child(sends)
c.sendall(b'parent'), print(c.recv(100), flush=True)
)"));
  EXPECT_EQ(program->Wait(), 0) << program->Output();
  const std::string output = program->Output();
  const std::string warning = "a child of fork() cannot use its parent's connection to 10.9.0.2";
  const size_t first = output.find(warning);
  EXPECT_NE(first, std::string::npos) << output;
  EXPECT_NE(output.find(warning, first + 1), std::string::npos) << output;
  EXPECT_LT(output.find("closed"), first) << output;
  EXPECT_NE(output.find("named True"), std::string::npos) << output;
  EXPECT_NE(output.find("refused True"), std::string::npos) << output;
  EXPECT_NE(output.find("b'parent'"), std::string::npos) << output;
}

// --- Listeners ---

// What asks the other side to connect here, and a listener on a ring.
constexpr const char* kListening = R"(
import errno, os, select, socket, subprocess, sys, threading, time
def ask(port):
    with socket.create_connection(('10.9.0.2', 8001), timeout=10) as c:
        c.sendall(b'%d' % port)
        return c.recv(100)
def listener(port, address='10.9.0.1', reuse=1):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
    s.bind((address, port))
    s.listen(5)
    s.settimeout(10)
    select.select([s], [], [], 0)
    return s
)";

// Connects to the port that it is told; a connection stays until the next is asked for.
constexpr const char* kHelper = R"(
import socket
s = socket.create_server(('10.9.0.2', 8001))
print('ready', flush=True)
kept = None
while True:
    c, peer = s.accept()
    if port := c.recv(100):
        try:
            kept = socket.create_connection(('10.9.0.1', int(port)), timeout=5)
            c.sendall(b'connected')
        except OSError as e: c.sendall(type(e).__name__.encode())
    c.close()
)";

TEST_F(SharingTest, ConnectionThatCouldHaveNoDescriptorWaitsUntilItCan) {
  const auto helper = StartOnKernel(Script("helper", kHelper));
  ASSERT_TRUE(helper->Says("ready"));
  Run("out_of_descriptors", std::string(kListening) + R"(
import resource
s = listener(7104)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, b'\x05' + bytes(15))
c = socket.create_connection(('10.9.0.2', 8001), timeout=10)
c.setblocking(True)
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
last = os.dup(0)
os.close(last)
resource.setrlimit(resource.RLIMIT_NOFILE, (last, hard))
c.sendall(b'7104')
for turn in range(20):
    assert select.select([s], [], [], 10)[0] == [s]
    try:
        s.accept()
        assert False, 'accepted'
    except OSError as e: assert e.errno == errno.EMFILE, e
assert c.recv(100) == b'connected'
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
child, peer = s.accept()
assert peer[0] == '10.9.0.2' and child.getpeername() == peer
assert child.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16)[0] == 5
child.sendall(b'x')
)");
}

TEST_F(SharingTest, ListenerThatWasHandedOnListensAfterItsFirstOwnerClosedIt) {
  const auto helper = StartOnKernel(Script("helper", kHelper));
  ASSERT_TRUE(helper->Says("ready"));
  Run("handing", std::string(kListening) + R"(
a, b = socket.socketpair()
for has_child in (False, True):
    s = listener(7100)
    if has_child:
        assert ask(7100) == b'connected'
        child = s.accept()[0]
    socket.send_fds(a, [b'x'], [s.fileno()])
    handed = socket.socket(fileno=socket.recv_fds(b, 10, 1)[1][0])
    handed.settimeout(10)
    s.close()
    assert handed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1, has_child
    # The wire is the ring's as long as it has connections there.
    if has_child:
        child.close()
    else:
        assert ask(7100) == b'connected'
        handed.accept()[0].close()
    handed.close()
)");
}

TEST_F(SharingTest, ListenerThatAProgramInheritedListensAfterItsFirstOwnerClosedIt) {
  const auto helper = StartOnKernel(Script("helper", kHelper));
  ASSERT_TRUE(helper->Says("ready"));
  const std::string heir = Script("heir", R"(
import socket, sys
s = socket.socket(fileno=int(sys.argv[1]))
sys.stdin.readline()
s.settimeout(10)
s.accept()
)");
  Run("inheriting", std::string(kListening) + R"(
s = listener(7100)
os.set_inheritable(s.fileno(), True)
heir = subprocess.Popen(')" + heir + R"( %d' % s.fileno(), shell=True, close_fds=False,
                        stdin=subprocess.PIPE, text=True)
s.close()
heir.stdin.write('closed\n')
heir.stdin.flush()
assert ask(7100) == b'connected'
assert heir.wait(20) == 0
)");
}

TEST_F(SharingTest, ListenerThatNobodyElseHasListensNoMoreWhenItIsClosed) {
  const auto helper = StartOnKernel(Script("helper", kHelper));
  ASSERT_TRUE(helper->Says("ready"));
  Run("closing", std::string(kListening) + R"(
for reuse in (0, 1):
    port = 7100 + reuse
    s = listener(port, '0.0.0.0', reuse)
    assert ask(port) == b'connected'
    child = s.accept()[0]
    s.close()
    assert ask(port) == b'ConnectionRefusedError'
    try:
        socket.create_connection(('127.0.0.1', port))
        assert False, 'the kernel listens'
    except ConnectionRefusedError: pass
    # The connection has the port.
    try:
        listener(port, '0.0.0.0', 0)
        assert False, 'the port is free'
    except OSError as e: assert e.errno == errno.EADDRINUSE
    if reuse:
        s = listener(port, '0.0.0.0')
        assert ask(port) == b'connected'
        s.accept()[0].close()
        s.close()
    child.close()
# While another thread waits for it.
s = listener(7103, '0.0.0.0')
s.settimeout(None)
def accept():
    try: s.accept()
    except OSError: pass
t = threading.Thread(target=accept)
t.start()
time.sleep(0.2)
os.close(s.fileno())
t.join(10)
assert not t.is_alive()
assert ask(7103) == b'ConnectionRefusedError'
os._exit(0)
)");
}

// --- A worker that has the ring closes its listener, as when nginx reloads ---

// `serve(there)` in a process of its own, from when that has said b'r'.
constexpr const char* kWorkers = R"(
import os, select, socket
def worker(serve):
    here, there = socket.socketpair()
    if os.fork() == 0:
        try: serve(there)
        finally: os._exit(0)
    assert here.recv(1) == b'r'
    return here
)";

// The next worker has it too, in the kernel; the first one goes on with its connections.
constexpr const char* kReloading = R"(
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(('0.0.0.0', 7105))
s.listen(50)
s.settimeout(60)
def old(master):
    select.select([s], [], [], 0)
    master.sendall(b'r')
    some = [s.accept()[0] for turn in range(3)]
    master.sendall(b'a')
    assert master.recv(1) == b'q'
    s.close()
    some[0].sendall(b'closed')
    some.pop().close()
    while some:
        for c in select.select(some, [], [], 60)[0]:
            if came := c.recv(100): c.sendall(b'old ' + came)
            else: some.remove(c)
def new(master):
    select.select([s], [], [], 0)
    master.sendall(b'r')
    while True: s.accept()[0].sendall(b'new')
first = worker(old)
print('ready', flush=True)
assert first.recv(1) == b'a'
second = worker(new)
first.sendall(b'q')
os.wait()
print('ended', flush=True)
os.wait()
)";

constexpr const char* kClients = R"(
import socket, struct, time
def connect(port=0):
    c = socket.socket()
    c.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    c.settimeout(20)
    if port: c.bind(('10.9.0.2', port))
    c.connect(('10.9.0.1', 7105))
    return c
def begin(*port):
    c = connect(*port)
    assert c.recv(10) == b'new'
    return c
kept = [connect() for turn in range(3)]
assert kept[0].recv(10) == b'closed'
started = time.monotonic()
some = [begin() for turn in range(30)]
took = time.monotonic() - started
assert took < 0.9, 'a SYN was lost: %g s' % took
def asks(c):
    c.sendall(b'one')
    return c.recv(100)
for turn in range(3): assert [asks(c) for c in kept[:2]] == [b'old one'] * 2
# The old worker has ended this one, and the new one may have its port.
last = kept.pop()
port = last.getsockname()[1]
assert last.recv(10) == b''
last.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
last.close()
begin(port)
begin()
assert asks(kept[0]) == b'old one'
)";

TEST_F(SharingTest, ListenerThatAWorkerClosedIsTheNextWorkersAtOnceAndTheConnectionsGoOn) {
  const std::string reloading = Script("reloading", std::string(kWorkers) + kReloading);
  const auto server = StartOnXtreme(reloading, "XTREME_LOG_LEVEL=debug");
  ASSERT_TRUE(server->Says("ready")) << server->Output();
  const auto clients = StartOnKernel(Script("clients", kClients));
  EXPECT_EQ(clients->Wait(), 0) << clients->Output() << server->Output();
  EXPECT_TRUE(server->Says("ended")) << server->Output();
  EXPECT_TRUE(server->Says("another process serves its address")) << server->Output();
}

TEST_F(SharingTest, ListenerThatGoesToTheKernelListensThereAtOnceAndItsConnectionsGoOn) {
  const auto helper = StartOnKernel(Script("helper", kHelper));
  ASSERT_TRUE(helper->Says("ready"));
  Run("leaving", std::string(kListening) + R"(
s = listener(7107, '0.0.0.0')
assert ask(7107) == b'connected'
child = s.accept()[0]
s.setsockopt(socket.SOL_SOCKET, socket.SO_DONTROUTE, 1)
child.settimeout(0.2)
try: assert child.recv(10) == b'x', 'it has ended'
except TimeoutError: pass
assert ask(7107) == b'connected'
assert s.accept()[0].getpeername()[0] == '10.9.0.2'
# The helper keeps one at a time.
child.settimeout(10)
assert child.recv(10) == b''
)");
}

// --- The next worker's listener goes to its ring, when it may ---

// What the next worker waits by is named.
constexpr const char* kSucceeding = R"(
import sys, threading
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(('0.0.0.0', 7108))
s.listen(50)
def answer(c, who):
    while came := c.recv(100): c.sendall(who + came)
    c.close()
def old(master):
    select.select([s], [], [], 0)
    master.sendall(b'r')
    c = s.accept()[0]
    master.sendall(b'a')
    assert master.recv(1) == b'q'
    s.close()
    c.sendall(b'closed')
    answer(c, b'old ')
def by_epoll():
    events = select.epoll()
    events.register(s, select.EPOLLIN)
    while True:
        events.poll()
        yield s.accept()[0]
def by_epoll_that_never_waits():
    events = select.epoll()
    events.register(s, select.EPOLLIN)
    while True:
        if events.poll(0): yield s.accept()[0]
def by_select():
    while True:
        select.select([s], [], [])
        yield s.accept()[0]
def by_accept():
    s.settimeout(None)
    while True: yield s.accept()[0]
def by_accept_that_never_waits():
    s.setblocking(False)
    while True:
        try: c = s.accept()[0]
        except BlockingIOError: continue
        c.setblocking(True)
        yield c
def new(master):
    select.select([s], [], [], 0)
    master.sendall(b'r')
    for c in globals()['by_' + sys.argv[1]]():
        threading.Thread(target=answer, args=(c, b'new '), daemon=True).start()
first = worker(old)
print('ready', flush=True)
assert first.recv(1) == b'a'
second = worker(new)
first.sendall(b'q')
os.wait()
os.wait()
)";

// When the old worker's connection ends there is one in the kernel, as long as the file is there
// whose name is given first; then one comes after the other until the second file is there.
constexpr const char* kSuccessorsClients = R"(
import os, socket, sys, time
def connect():
    c = socket.create_connection(('10.9.0.1', 7108), timeout=20)
    return c
def asks(c):
    c.sendall(b'one')
    return c.recv(100)
kept = connect()
assert kept.recv(10) == b'closed'
stays = connect()
assert asks(stays) == b'new one'
assert asks(kept) == b'old one'
kept.close()
print('in the kernel', flush=True)
while os.path.exists(sys.argv[1]): time.sleep(0.05)
assert asks(stays) == b'new one'
stays.close()
count = 0
while not os.path.exists(sys.argv[2]) or count < 20:
    c = connect()
    assert asks(c) == b'new one'
    c.close()
    count += 1
    time.sleep(0.02)
)";

class SuccessorTest : public SharingTest, public ::testing::WithParamInterface<const char*> {
 protected:
  static std::string FileOf(const std::string& name) {
    return std::string(std::getenv("TEST_TMPDIR")) + "/" + name + GetParam();
  }
  static int CountOf(const std::string& text, const std::string& part) {
    int count = 0;
    for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
    return count;
  }
  static int RingsOf(const Program& server) {
    return CountOf(server.Output(), "offloaded on ours, listens as");
  }
};

TEST_P(SuccessorTest, ListenerGoesToTheNextWorkersRingWhenTheKernelHasNoConnections) {
  const std::string stays = FileOf("stays"), ends = FileOf("ends");
  std::ofstream(stays).flush();
  const auto server = StartOnXtreme(
      Script("succeeding", std::string(kWorkers) + kSucceeding) + " " + GetParam(),
      "XTREME_LOG_LEVEL=debug");
  ASSERT_TRUE(server->Says("ready")) << server->Output();
  const auto clients =
      StartOnKernel(Script("clients", kSuccessorsClients) + " " + stays + " " + ends);
  ASSERT_TRUE(clients->Says("in the kernel")) << clients->Output() << server->Output();
  EXPECT_TRUE(server->Says("the kernel has connections at its address")) << server->Output();
  EXPECT_EQ(RingsOf(*server), 1) << server->Output();
  std::filesystem::remove(stays);
  for (int tries = 0; tries < 1'000 && RingsOf(*server) < 2; ++tries) usleep(10'000);
  EXPECT_EQ(RingsOf(*server), 2) << server->Output();
  std::ofstream(ends).flush();
  EXPECT_EQ(clients->Wait(), 0) << clients->Output() << server->Output();
}

INSTANTIATE_TEST_SUITE_P(Ways, SuccessorTest,
                         ::testing::Values("epoll", "epoll_that_never_waits", "select", "accept",
                                           "accept_that_never_waits"),
                         [](const auto& way) { return std::string(way.param); });

// A server that is started again while connections of the one before go on: as its listener was
// closed before, it has one of its own, which is to get all that come.
TEST_F(SharingTest, ServerThatIsStartedAgainGetsWhoConnectsWhileOldConnectionsGoOn) {
  const std::string serving = Script("serving", R"(
import select, socket, sys
s = socket.create_server(('10.9.0.1', 7110))
s.settimeout(60)
print('ready', flush=True)
c = s.accept()[0]
c.sendall(sys.argv[1].encode())
s.close()
print('closed', flush=True)
while came := c.recv(100): c.sendall(came)
)");
  const std::string ready = std::string(std::getenv("TEST_TMPDIR")) + "/ready";
  const auto clients = StartOnKernel(Script("clients", R"(
import os, socket, sys, time
def connect():
    c = socket.create_connection(('10.9.0.1', 7110), timeout=20)
    return c, c.recv(100)
for turn in range(3):
    while not os.path.exists(sys.argv[1] + str(turn)): time.sleep(0.01)
    c, name = connect()
    assert name == b'server%d' % turn, name
    kept = (kept if turn else []) + [c]
    for each in kept:
        each.sendall(b'goes on')
        assert each.recv(100) == b'goes on'
    print('turn', turn, flush=True)
)") + " " + ready);
  std::vector<std::unique_ptr<Program>> servers;
  for (int turn = 0; turn < 3; ++turn) {
    servers.push_back(StartOnXtreme(serving + " server" + std::to_string(turn),
                                    "XTREME_LOG_LEVEL=debug"));
    ASSERT_TRUE(servers.back()->Says("ready")) << servers.back()->Output();
    std::ofstream(ready + std::to_string(turn)).flush();
    ASSERT_TRUE(clients->Says("turn " + std::to_string(turn)))
        << clients->Output() << servers.back()->Output();
    ASSERT_TRUE(servers.back()->Says("closed")) << servers.back()->Output();
  }
  EXPECT_EQ(clients->Wait(), 0) << clients->Output();
  for (const auto& server : servers) EXPECT_EQ(server->Wait(), 0) << server->Output();
}

// haproxy's way: a new process gets the listener from the old one (-x), which it ends (-sf).
constexpr const char* kHaproxysClients = R"(
import socket
def connect():
    return socket.create_connection(('10.9.0.1', 7109), timeout=20)
def asks(c):
    c.sendall(b'one')
    return c.recv(100)
kept = connect()
assert asks(kept) == b'one'
for turn in range(60):
    # Who is being accepted as the old one closes its listener may be reset.
    with connect() as c:
        try: assert asks(c) == b'one'
        except ConnectionResetError: print('reset', flush=True)
    assert asks(kept) == b'one'
    print('turn', turn, flush=True)
)";

TEST_F(SharingTest, HaproxyThatTakesOverRefusesNobodyAndTheOldOneGoesOn) {
  const auto echo = StartEcho();
  ASSERT_TRUE(echo->Says("ready"));
  const std::string own = "/tmp/xtreme_haproxy" + std::to_string(getpid());
  const std::string config = std::string(std::getenv("TEST_TMPDIR")) + "/haproxy.cfg";
  std::ofstream(config) << "global\n maxconn 200\n noreuseport\n stats socket " << own
                        << ".sock mode 600 level admin expose-fd listeners\ndefaults\n mode tcp\n "
                           "timeout connect 9s\n timeout client 60s\n timeout server 60s\nlisten "
                           "all\n bind 10.9.0.1:7109\n server one 10.9.0.2:8000\n";
  const std::string start = "haproxy -db -f " + config;
  const auto old = StartOnXtreme(start, "XTREME_LOG_LEVEL=debug");
  ASSERT_TRUE(old->Says("offloaded on ours, listens as")) << old->Output();
  const auto clients = StartOnKernel(Script("haproxys_clients", kHaproxysClients));
  ASSERT_TRUE(clients->Says("turn 9")) << clients->Output() << old->Output();
  const std::string says = old->Output(), before = "Xtreme, process ";
  const int pid = std::atoi(says.c_str() + says.find(before) + before.size());
  ASSERT_GT(pid, 1) << says;
  const auto next = StartOnXtreme(start + " -x " + own + ".sock -sf " + std::to_string(pid),
                                  "XTREME_LOG_LEVEL=debug");
  EXPECT_EQ(clients->Wait(), 0) << clients->Output() << old->Output() << next->Output();
  EXPECT_EQ(old->Wait(), 0) << old->Output();
  // What it was handed is the kernel's there.
  const auto last = StartOnKernel(Script("haproxys_clients", kHaproxysClients));
  EXPECT_EQ(last->Wait(), 0) << last->Output() << next->Output();
  std::filesystem::remove(own + ".sock");
}

// The first worker, which had the ring, is gone, and the second serves in the kernel; the third is
// not to have a ring, which would reset what is the second's.
TEST_F(SharingTest, ListenerWithConnectionsOfAnotherProcessInTheKernelStaysThere) {
  const auto server = StartOnXtreme(Script("respawning", std::string(kWorkers) + R"(
s = socket.create_server(('0.0.0.0', 7106))
s.settimeout(60)
def poll(master):
    select.select([s], [], [], 0)
    master.sendall(b'r')
def serve(master):
    poll(master)
    c = s.accept()[0]
    master.sendall(b'a')
    assert master.recv(1) == b'g'
    c.sendall(b'go')
    c.settimeout(20)
    c.sendall(c.recv(100))
    c.recv(100)
first = worker(lambda master: (poll(master), master.recv(1)))
second = worker(serve)
first.sendall(b'q')
os.wait()
print('ready', flush=True)
assert second.recv(1) == b'a'
third = worker(lambda master: (poll(master), master.recv(1)))
second.sendall(b'g')
os.wait()
third.sendall(b'q')
os.wait()
)"),
                                    "XTREME_LOG_LEVEL=debug");
  ASSERT_TRUE(server->Says("ready")) << server->Output();
  const auto client = StartOnKernel(Script("client", R"(
import socket
c = socket.create_connection(('10.9.0.1', 7106), timeout=20)
assert c.recv(10) == b'go'
c.sendall(b'still')
assert c.recv(100) == b'still'
)"));
  EXPECT_EQ(client->Wait(), 0) << client->Output() << server->Output();
  EXPECT_EQ(server->Wait(), 0) << server->Output();
  EXPECT_NE(server->Output().find("offloaded on ours"), std::string::npos) << server->Output();
}

}  // namespace
}  // namespace xtreme::faces
