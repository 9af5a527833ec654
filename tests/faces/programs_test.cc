// SPDX-License-Identifier: Apache-2.0
//
// Debian's programs, unchanged, with libxtreme.so preloaded, each in the roles it has, against the
// kernel on the other side; and seen, in the log, to be offloaded.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "tests/faces/program.h"

namespace xtreme::faces {
namespace {

constexpr const char* kOffloaded = "offloaded on ours";
constexpr const char* kDebug = "XTREME_LOG_LEVEL=debug";

class ProgramsTest : public FacesTest {
 protected:
  // Fails the test if this machine has not got it: tools/install installs all of them.
  void Needs(const std::string& program) {
    for (const char* folder : {"/usr/bin/", "/usr/sbin/", "/bin/"}) {
      if (access((folder + program).c_str(), X_OK) == 0) return;
    }
    FAIL() << program << " is not installed: run tools/install";
  }
  static std::string Temporary(const std::string& name) {
    return std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
  }
  static std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(Temporary(name)) << text;
    return Temporary(name);
  }
  // Until `port` is listened at: "-lt" or "-lu", `ours` or theirs. False: not within 5 s.
  bool Listens(bool ours, const std::string& kind, int port) {
    const std::string look = "ss -Hn " + kind + " sport = :" + std::to_string(port);
    for (int tries = 0; tries < 250; ++tries) {
      const auto asked = ours ? StartBeside(look) : StartOnKernel(look);
      if (asked->Wait() == 0 && !asked->Output().empty()) return true;
      usleep(20'000);
    }
    return false;
  }
  static bool SaysTwice(const Program& program, const std::string& text) {
    for (int tries = 0; tries < 3'000; ++tries) {
      const std::string output = program.Output();
      const size_t first = output.find(text);
      if (first != std::string::npos && output.find(text, first + 1) != std::string::npos) {
        return true;
      }
      usleep(10'000);
    }
    return false;
  }
  static bool IsOffloaded(const Program& program) {
    return program.Output().find(kOffloaded) != std::string::npos;
  }
  // Files of 1 byte, 100 kB and 20 MB, and a page that names them.
  std::string MakeFiles() {
    const std::string folder = Temporary("files");
    EXPECT_EQ(system(("mkdir -p " + folder + " && cd " + folder +
                      " && head -c 1 /dev/urandom > one && head -c 100000 /dev/urandom > some && "
                      "head -c 20000000 /dev/urandom > many && chmod -R a+rX .").c_str()),
              0);
    return folder;
  }
  // Gets all three and compares them.
  std::string GetFiles(const std::string& from, const std::string& folder) {
    return "/bin/sh -c 'for each in one some many; do curl -sS --max-time 15 " + from +
           "/$each | cmp - " + folder + "/$each || exit 1; done; echo equal'";
  }
  std::string Nginx(const std::string& address, int workers, const std::string& folder) {
    const std::string work = Temporary("nginx" + std::to_string(getpid()));
    std::string paths;
    for (const char* kind : {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"}) {
      paths += std::string(kind) + "_temp_path " + work + kind + "; ";
    }
    return "nginx -e stderr -c " +
           Write("nginx.conf", "user root; daemon off; worker_processes " +
                                   std::to_string(workers) + "; error_log stderr; pid " + work +
                                   "pid;\nevents { worker_connections 1000; }\nhttp { access_log "
                                   "off; sendfile on; tcp_nopush on; " +
                                   paths + "server { listen " + address + ":8080; root " + folder +
                                   "; } }\n");
  }
  std::string Redis(const std::string& address) {
    // One program that goes by its name.
    return "bash -c 'exec -a redis-server redis-check-rdb --bind " + address +
           " --port 6379 --save \"\" --appendonly no --protected-mode no'";
  }
};

// --- sockperf ---

class SockperfTest : public ProgramsTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(SockperfTest, ServerIsOffloadedAndAnswers) {
  Needs("sockperf");
  const std::string at = std::string(" -i ") + kOurs + " -p 7000";
  const auto server = StartOnXtreme("sockperf server" + at + GetParam(), kDebug);
  ASSERT_TRUE(server->Says(kOffloaded)) << server->Output();
  const auto client =
      StartOnKernel("sockperf ping-pong -t 1 --mps=500 --data-integrity" + at + GetParam());
  EXPECT_EQ(client->Wait(), 0) << client->Output() << server->Output();
  EXPECT_NE(client->Output().find("# dropped messages = 0;"), std::string::npos)
      << client->Output();
}

TEST_P(SockperfTest, ClientIsOffloadedAndIsAnswered) {
  Needs("sockperf");
  const std::string at = std::string(" -i ") + kTheirs + " -p 7000";
  const auto server = StartOnKernel("sockperf server" + at + GetParam());
  ASSERT_TRUE(Listens(false, std::string(GetParam()).empty() ? "-lu" : "-lt", 7000));
  const auto client =
      StartOnXtreme("sockperf ping-pong -t 1 --mps=500 --data-integrity" + at + GetParam(), kDebug);
  EXPECT_EQ(client->Wait(), 0) << client->Output();
  EXPECT_TRUE(IsOffloaded(*client)) << client->Output();
  EXPECT_NE(client->Output().find("# dropped messages = 0;"), std::string::npos)
      << client->Output();
}

TEST_P(SockperfTest, ThroughputAndLoadFromTwoThreadsEnd) {
  Needs("sockperf");
  const std::string at = std::string(" -i ") + kTheirs + " -p 7000";
  const auto server = StartOnKernel("sockperf server" + at + GetParam());
  ASSERT_TRUE(Listens(false, std::string(GetParam()).empty() ? "-lu" : "-lt", 7000));
  for (const char* way : {"throughput --mps=10000", "under-load --mps=1000"}) {
    const auto client =
        StartOnXtreme(std::string("sockperf ") + way + " -t 1" + at + GetParam(), kDebug);
    EXPECT_EQ(client->Wait(), 0) << client->Output();
    EXPECT_TRUE(IsOffloaded(*client)) << client->Output();
  }
}

INSTANTIATE_TEST_SUITE_P(Protocols, SockperfTest, ::testing::Values("", " --tcp"),
                         [](const auto& info) { return info.index == 0 ? "Udp" : "Tcp"; });

// --- iperf3 ---

class IperfTest : public ProgramsTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(IperfTest, BothRolesMoveBytes) {
  Needs("iperf3");
  const std::string ways = GetParam();
  for (const bool serves : {true, false}) {
    const std::string address = serves ? kOurs : kTheirs;
    const std::string serve = "iperf3 -s -1 --forceflush -B " + address;
    const auto server = serves ? StartOnXtreme(serve, kDebug) : StartOnKernel(serve);
    // Who connects before it polls is the kernel's.
    ASSERT_TRUE(serves ? server->Says(kOffloaded) : Listens(false, "-lt", 5201));
    const std::string ask = "iperf3 -t 1 -c " + address + ways;
    const auto client = serves ? StartOnKernel(ask) : StartOnXtreme(ask, kDebug);
    EXPECT_EQ(client->Wait(), 0) << client->Output() << server->Output();
    EXPECT_NE(client->Output().find("iperf Done."), std::string::npos) << client->Output();
    EXPECT_EQ(server->Wait(), 0) << server->Output();
    EXPECT_TRUE(IsOffloaded(serves ? *server : *client));
  }
}

std::string WayOfIperf(const ::testing::TestParamInfo<const char*>& way) {
  constexpr const char* kNames[] = {"Out", "In", "FourOut", "FourIn", "Udp"};
  return kNames[way.index];
}

INSTANTIATE_TEST_SUITE_P(Ways, IperfTest,
                         ::testing::Values("", " -R", " -P 4", " -R -P 4", " -u -b 20M"),
                         WayOfIperf);

// --- HTTP ---

TEST_F(ProgramsTest, WorkerOfNginxHasTheRingAndSendsFiles) {
  Needs("nginx"), Needs("curl");
  const std::string files = MakeFiles();
  const auto server = StartOnXtreme(Nginx(kOurs, 1, files), kDebug);
  ASSERT_TRUE(server->Says("offloaded on ours, listens as")) << server->Output();
  const auto client = StartOnKernel(GetFiles(std::string("http://") + kOurs + ":8080", files));
  EXPECT_EQ(client->Wait(), 0) << client->Output() << server->Output();
  EXPECT_EQ(client->Output(), "equal\n") << server->Output();
}

TEST_F(ProgramsTest, OneOfTwoWorkersOfNginxHasTheRingAndTheOtherIsToldWhyNot) {
  Needs("nginx"), Needs("wrk");
  const std::string files = MakeFiles();
  const auto server = StartOnXtreme(Nginx(kOurs, 2, files), kDebug);
  ASSERT_TRUE(server->Says("offloaded on ours, listens as")) << server->Output();
  ASSERT_TRUE(server->Says("left to the kernel: another process serves its address"))
      << server->Output();
  const auto load =
      StartOnKernel(std::string("wrk -t 1 -c 10 -d 1 http://") + kOurs + ":8080/some");
  EXPECT_EQ(load->Wait(), 0) << load->Output();
  EXPECT_EQ(load->Output().find("Socket errors"), std::string::npos) << load->Output();
  const auto client = StartOnKernel(GetFiles(std::string("http://") + kOurs + ":8080", files));
  EXPECT_EQ(client->Wait(), 0) << client->Output() << server->Output();
}

// Nobody is refused while the old worker, which has the ring, still serves a client that reads no
// further until it is told to. The next one has it then.
TEST_F(ProgramsTest, ReloadOfNginxRefusesNobodyAndItsOldWorkerGoesOn) {
  Needs("nginx"), Needs("curl");
  const std::string files = MakeFiles();
  const std::string from = std::string("http://") + kOurs + ":8080/";
  const auto server = StartOnXtreme(Nginx(kOurs, 1, files), kDebug);
  ASSERT_TRUE(server->Says("offloaded on ours, listens as")) << server->Output();
  const std::string go = Temporary("go" + std::to_string(getpid()));
  ASSERT_EQ(mkfifo(go.c_str(), 0600), 0);
  const int tell = open(go.c_str(), O_RDWR);
  const auto slow = StartOnKernel("/bin/bash -c 'curl -sSv " + from +
                                  "many | { head -c 1000000; read < " + go + "; cat; } | cmp - " +
                                  files + "/many && echo equal'");
  ASSERT_TRUE(slow->Says("200 OK")) << slow->Output();
  // Who is being accepted at that very moment may be reset (56).
  const auto others = StartOnKernel("/bin/bash -c 'for i in {1..100}; do curl -sS --max-time 3 " +
                                    from + "some -o /dev/null || [ $? = 56 ] || exit 1; "
                                    "echo $i; done; echo all'");
  ASSERT_TRUE(others->Says("20")) << others->Output();
  const auto reload = StartBeside("/bin/sh -c 'kill -HUP $(cat " +
                                  Temporary("nginx" + std::to_string(getpid()) + "pid") + ")'");
  EXPECT_EQ(reload->Wait(), 0) << reload->Output();
  EXPECT_TRUE(server->Says("left to the kernel: another process serves its address"))
      << server->Output();
  EXPECT_EQ(others->Wait(), 0) << others->Output();
  EXPECT_EQ(write(tell, "\n", 1), 1);
  EXPECT_EQ(slow->Wait(), 0) << slow->Output();
  close(tell);
  unlink(go.c_str());
  // The old worker is gone, and so is who came meanwhile.
  EXPECT_TRUE(SaysTwice(*server, "offloaded on ours, listens as")) << server->Output();
  const auto client = StartOnKernel(GetFiles(std::string("http://") + kOurs + ":8080", files));
  EXPECT_EQ(client->Wait(), 0) << client->Output() << server->Output();
}

TEST_F(ProgramsTest, CurlIsOffloadedAndGetsWhatNginxHas) {
  Needs("nginx"), Needs("curl");
  const std::string files = MakeFiles();
  const auto server = StartOnKernel(Nginx(kTheirs, 1, files));
  ASSERT_TRUE(Listens(false, "-lt", 8080)) << server->Output();
  const auto client =
      StartOnXtreme(GetFiles(std::string("http://") + kTheirs + ":8080", files), kDebug);
  EXPECT_EQ(client->Wait(), 0) << client->Output();
  EXPECT_TRUE(IsOffloaded(*client)) << client->Output();
  EXPECT_NE(client->Output().find("equal\n"), std::string::npos) << client->Output();
}

TEST_F(ProgramsTest, WrkIsOffloadedOnTwoThreads) {
  Needs("nginx"), Needs("wrk");
  const auto server = StartOnKernel(Nginx(kTheirs, 1, MakeFiles()));
  ASSERT_TRUE(Listens(false, "-lt", 8080)) << server->Output();
  const auto load = StartOnXtreme(
      std::string("wrk -t 2 -c 40 -d 1 http://") + kTheirs + ":8080/one", kDebug);
  EXPECT_EQ(load->Wait(), 0) << load->Output();
  EXPECT_TRUE(IsOffloaded(*load)) << load->Output();
  EXPECT_EQ(load->Output().find("Socket errors"), std::string::npos) << load->Output();
  EXPECT_EQ(load->Output().find(" 0 requests"), std::string::npos) << load->Output();
}

// More of either than a ring has ports for, or than profiles make room for.
TEST_F(ProgramsTest, HundredsOfConnectionsAreServedByEither) {
  Needs("nginx"), Needs("wrk");
  for (const bool serves : {true, false}) {
    const std::string address = serves ? kOurs : kTheirs;
    const std::string serve = Nginx(address, 1, MakeFiles());
    const auto server = serves ? StartOnXtreme(serve, kDebug) : StartOnKernel(serve);
    ASSERT_TRUE(serves ? server->Says("offloaded on ours, listens as")
                       : Listens(false, "-lt", 8080));
    const std::string ask = "wrk -t 1 -c 400 -d 1 http://" + address + ":8080/one";
    const auto load = serves ? StartOnKernel(ask) : StartOnXtreme(ask, kDebug);
    EXPECT_EQ(load->Wait(), 0) << load->Output();
    EXPECT_TRUE(IsOffloaded(serves ? *server : *load));
    EXPECT_EQ(load->Output().find("Socket errors"), std::string::npos) << load->Output();
  }
}

// Its sockets are both: a listener of the ring, and connections to theirs. It splices where it may.
TEST_F(ProgramsTest, ThreadsOfHaproxyStandBetweenClientsAndServer) {
  Needs("haproxy"), Needs("nginx"), Needs("curl"), Needs("wrk");
  const std::string files = MakeFiles();
  const auto server = StartOnKernel(Nginx(kTheirs, 1, files));
  ASSERT_TRUE(Listens(false, "-lt", 8080)) << server->Output();
  for (const std::string mode : {"http", "tcp"}) {
    const auto between = StartOnXtreme(
        "haproxy -db -f " +
            Write("haproxy.cfg",
                  "global\n maxconn 200\n nbthread 2\n noreuseport\ndefaults\n mode " + mode +
                      "\n timeout connect 5s\n timeout client 15s\n timeout server 15s\n option "
                      "splice-auto\nlisten all\n bind " + kOurs + ":8080\n server one " +
                      kTheirs + ":8080\n"),
        kDebug);
    ASSERT_TRUE(between->Says("offloaded on ours, listens as")) << between->Output();
    const std::string from = std::string("http://") + kOurs + ":8080";
    const auto client = StartOnKernel(GetFiles(from, files));
    EXPECT_EQ(client->Wait(), 0) << client->Output() << between->Output();
    EXPECT_EQ(client->Output(), "equal\n") << between->Output();
    const auto load = StartOnKernel("wrk -t 1 -c 20 -d 1 " + from + "/some");
    EXPECT_EQ(load->Wait(), 0) << load->Output();
    EXPECT_EQ(load->Output().find("Socket errors"), std::string::npos) << load->Output();
    EXPECT_TRUE(between->Says("offloaded on ours, connects to 10.9.0.2:8080"));
  }
}

TEST_F(ProgramsTest, HttpServerOfPythonServesCurl) {
  Needs("python3"), Needs("curl");
  const std::string files = MakeFiles();
  const auto server = StartOnXtreme(
      std::string("python3 -m http.server -b ") + kOurs + " -d " + files + " 8080", kDebug);
  ASSERT_TRUE(server->Says("offloaded on ours, listens as")) << server->Output();
  const auto client = StartOnKernel(GetFiles(std::string("http://") + kOurs + ":8080", files));
  EXPECT_EQ(client->Wait(), 0) << client->Output() << server->Output();
}

TEST_F(ProgramsTest, ServerOfOpensslAndCurlMoveFilesByTls) {
  Needs("openssl"), Needs("curl");
  const std::string files = MakeFiles();
  const std::string key = Temporary("key"), certificate = Temporary("certificate");
  ASSERT_EQ(system(("openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -keyout " +
                    key + " -out " + certificate + " 2> /dev/null")
                       .c_str()),
            0);
  for (const bool serves : {true, false}) {
    const std::string at = std::string(serves ? kOurs : kTheirs) + ":8443";
    const std::string serve = "/bin/sh -c 'cd " + files + " && exec openssl s_server -quiet -WWW " +
                              "-accept " + at + " -key " + key + " -cert " + certificate + "'";
    const auto server = serves ? StartOnXtreme(serve, kDebug) : StartOnKernel(serve);
    ASSERT_TRUE(serves ? server->Says(kOffloaded) : Listens(false, "-lt", 8443));
    const std::string get = GetFiles("-k https://" + at, files);
    const auto client = serves ? StartOnKernel(get) : StartOnXtreme(get, kDebug);
    EXPECT_EQ(client->Wait(), 0) << client->Output() << server->Output();
    EXPECT_TRUE(IsOffloaded(serves ? *server : *client)) << client->Output();
  }
}

// --- Python ---

// Eight connections that are read and written at once, ended by halves, and datagrams.
constexpr const char* kAsynchronous = R"(
import asyncio, sys
role, address = sys.argv[1:3]
async def echo(reader, writer):
    while piece := await reader.read(65536):
        writer.write(piece)
        await writer.drain()
    writer.close()
class Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport): self.transport = transport
    def datagram_received(self, data, peer): self.transport.sendto(data, peer)
class Answers(asyncio.DatagramProtocol):
    came = asyncio.Queue()
    def datagram_received(self, data, peer): self.came.put_nowait(data)
async def serve():
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(Echo, local_addr=(address, 7000))
    server = await asyncio.start_server(echo, address, 7000)
    await server.serve_forever()
async def ask(number):
    reader, writer = await asyncio.open_connection(address, 7000)
    data = bytes([number]) * 500_000
    async def put():
        writer.write(data)
        await writer.drain()
        writer.write_eof()
    putting = asyncio.create_task(put())
    assert await reader.read(-1) == data
    await putting
async def ask_all():
    await asyncio.gather(*[ask(number) for number in range(8)])
    loop = asyncio.get_running_loop()
    transport, answers = await loop.create_datagram_endpoint(
        Answers, remote_addr=(address, 7000))
    for number in range(20):
        transport.sendto(b'%d' % number)
        assert await asyncio.wait_for(answers.came.get(), 10) == b'%d' % number
asyncio.run(serve() if role == 'serve' else ask_all())
)";

TEST_F(ProgramsTest, LoopOfPythonServesAndAsks) {
  Needs("python3");
  const std::string script = "python3 " + Write("asynchronous.py", kAsynchronous);
  for (const bool serves : {true, false}) {
    const std::string address = serves ? kOurs : kTheirs;
    const std::string serve = script + " serve " + address;
    const auto server = serves ? StartOnXtreme(serve, kDebug) : StartOnKernel(serve);
    ASSERT_TRUE(serves ? server->Says("offloaded on ours, listens") : Listens(false, "-lt", 7000));
    const std::string ask = script + " ask " + address;
    const auto client = serves ? StartOnKernel(ask) : StartOnXtreme(ask, kDebug);
    EXPECT_EQ(client->Wait(), 0) << client->Output() << server->Output();
    EXPECT_TRUE(IsOffloaded(serves ? *server : *client)) << client->Output();
  }
}

// A hundred connections of one session, bodies of both, streams, files and a web socket.
constexpr const char* kOfAiohttp = R"(
import asyncio, sys
from aiohttp import ClientSession, WSMsgType, web
role, address, folder = sys.argv[1:4]
async def length(request): return web.Response(text=str(len(await request.read())))
async def stream(request):
    response = web.StreamResponse()
    await response.prepare(request)
    for number in range(100): await response.write(bytes([number]) * 10_000)
    return response
async def file(request): return web.FileResponse(folder + '/many')
async def echo(request):
    socket = web.WebSocketResponse(max_msg_size=0)
    await socket.prepare(request)
    async for message in socket:
        if message.type == WSMsgType.BINARY: await socket.send_bytes(message.data)
    return socket
async def serve():
    app = web.Application(client_max_size=1 << 24)
    app.add_routes([web.post('/length', length), web.get('/stream', stream),
                    web.get('/file', file), web.get('/echo', echo)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, address, 8090).start()
    await asyncio.sleep(100)
async def ask():
    async with ClientSession(f'http://{address}:8090') as session:
        async def post(size):
            async with session.post('/length', data=b'x' * size) as answer:
                assert await answer.text() == str(size)
        await asyncio.gather(*[post(100 * number) for number in range(200)])
        await post(3_000_000)
        async with session.get('/stream') as answer:
            wanted = b''.join(bytes([number]) * 10_000 for number in range(100))
            assert await answer.read() == wanted
        many = open(folder + '/many', 'rb').read()
        async with session.get('/file') as answer: assert await answer.read() == many
        async with session.ws_connect('/echo', max_msg_size=0) as socket:
            for size in (1, 1000, 500_000):
                await socket.send_bytes(many[:size])
                assert (await socket.receive()).data == many[:size]
asyncio.run(serve() if role == 'serve' else ask())
)";

TEST_F(ProgramsTest, AiohttpServesAndAsks) {
  const std::string files = MakeFiles();
  // Debian's own, which has the package.
  const std::string script = "/usr/bin/python3 " + Write("of_aiohttp.py", kOfAiohttp);
  for (const bool serves : {true, false}) {
    const std::string address = serves ? kOurs : kTheirs;
    const std::string serve = script + " serve " + address + " " + files;
    const auto server = serves ? StartOnXtreme(serve, kDebug) : StartOnKernel(serve);
    ASSERT_TRUE(serves ? server->Says("offloaded on ours, listens") : Listens(false, "-lt", 8090))
        << server->Output();
    const std::string ask = script + " ask " + address + " " + files;
    const auto client = serves ? StartOnKernel(ask) : StartOnXtreme(ask, kDebug);
    EXPECT_EQ(client->Wait(), 0) << client->Output() << server->Output();
    EXPECT_TRUE(IsOffloaded(serves ? *server : *client)) << client->Output();
  }
}

TEST_F(ProgramsTest, ProgramThatClosesAllThatItDidNotOpenIsOffloaded) {
  Needs("python3");
  const std::string serve = Write("answer.py", R"(
import socket, sys
listener = socket.create_server((sys.argv[1], 7000))
print('ready', flush=True)
while True:
    c, peer = listener.accept()
    c.sendall(c.recv(1))
    c.close()
)");
  const auto server = StartOnKernel("python3 " + serve + " " + kTheirs);
  ASSERT_TRUE(server->Says("ready")) << server->Output();
  const std::string ask = Write("close_and_ask.py", R"(
import ctypes, os, socket, sys
if sys.argv[2] == 'range': os.closerange(3, 1 << 20)
elif sys.argv[2] == 'each':
    for fd in range(3, 1024): ctypes.CDLL(None).close(fd)
else: ctypes.CDLL(None).closefrom(3)
with socket.create_connection((sys.argv[1], 7000), timeout=10) as c:
    c.sendall(b'x')
    assert c.recv(1) == b'x'
)");
  for (const std::string way : {"range", "from", "each"}) {
    const std::string log = Temporary("log_" + way);
    const auto client = StartOnXtreme("python3 " + ask + " " + kTheirs + " " + way,
                                      std::string(kDebug) + " XTREME_LOG_FILE=" + log);
    EXPECT_EQ(client->Wait(), 0) << client->Output();
    std::ifstream in(log);
    const std::string told(std::istreambuf_iterator<char>(in), {});
    EXPECT_NE(told.find(kOffloaded), std::string::npos) << told;
  }
}

// The end of each connection to theirs is said, with the first byte that came by it.
constexpr const char* kEchoAndSay = R"(
import socket, sys, threading
def serve(c):
    name = byte = c.recv(1)
    while byte:
        c.sendall(byte)
        byte = c.recv(1)
    print('ended', name.decode(), flush=True)
listener = socket.create_server((sys.argv[1], 7000))
print('ready', flush=True)
while True: threading.Thread(target=serve, args=listener.accept()[:1]).start()
)";

// Connections a, b and c to theirs, in the order of their numbers.
constexpr const char* kThreeConnections = R"(
import ctypes, errno, os, signal, socket, subprocess, sys
def ask(name):
    connections[name].sendall(name)
    assert connections[name].recv(1) == name
def lost(name):
    try: connections[name].send(name)
    except OSError as e: return errno.errorcode[e.errno]
connections = {}
for name in (b'a', b'b', b'c'):
    connections[name] = socket.create_connection((sys.argv[1], 7000), timeout=10)
    ask(name)
closefrom = ctypes.CDLL(None).closefrom
)";

TEST_F(ProgramsTest, SocketsAboveTheNumberThatIsClosedFromEndAndNoOthers) {
  Needs("python3");
  const auto server = StartOnKernel("python3 " + Write("serve.py", kEchoAndSay) + " " + kTheirs);
  ASSERT_TRUE(server->Says("ready")) << server->Output();
  const std::string script = Write("close_from.py", std::string(kThreeConnections) + R"(
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
closefrom(connections[b'b'].fileno())
errors = lost(b'b'), lost(b'c'), lost(b'a')
connections[b'a'].recv(1)  # What is not read resets a connection that ends.
print('lost', *errors, flush=True)
signal.sigwait([signal.SIGTERM])
)");
  const auto client = StartOnXtreme("python3 " + script + " " + kTheirs, kDebug);
  ASSERT_TRUE(client->Says("lost EBADF EBADF None\n")) << client->Output();
  EXPECT_TRUE(IsOffloaded(*client)) << client->Output();
  EXPECT_TRUE(server->Says("ended b")) << server->Output();
  EXPECT_TRUE(server->Says("ended c")) << server->Output();
  EXPECT_EQ(server->Output().find("ended a"), std::string::npos) << "before the program ends";
  client->Signal(SIGTERM);
  EXPECT_EQ(client->Wait(), 0) << client->Output();
  EXPECT_TRUE(server->Says("ended a")) << server->Output();
}

TEST_F(ProgramsTest, ChildThatClosesAllBeforeItsProgramDoesItsParentNoHarm) {
  Needs("python3");
  const auto server = StartOnKernel("python3 " + Write("serve.py", kEchoAndSay) + " " + kTheirs);
  ASSERT_TRUE(server->Says("ready")) << server->Output();
  const std::string script = Write("children.py", std::string(kThreeConnections) + R"(
if sys.argv[2] != 'subprocess':
    child = os.fork() if sys.argv[2] == 'fork' else ctypes.CDLL(None).syscall(57)  # SYS_fork
    if child == 0:
        connections[b'a'].close()
        pair = socket.socketpair()  # By its number, which is nobody's of ours any more.
        pair[0].send(b'p')
        assert pair[1].recv(1) == b'p'
        closefrom(3)
        os.execv('/bin/true', ['true'])
    assert os.waitpid(child, 0)[1] == 0
else: subprocess.run(['/bin/true'], check=True)
for name in connections: ask(name)
print('here', flush=True)
)");
  for (const std::string way : {"fork", "syscall", "subprocess"}) {
    const auto client = StartOnXtreme("python3 " + script + " " + kTheirs + " " + way, kDebug);
    EXPECT_EQ(client->Wait(), 0) << way << client->Output();
    EXPECT_NE(client->Output().find("here\n"), std::string::npos) << client->Output();
    EXPECT_TRUE(IsOffloaded(*client)) << client->Output();
  }
}

// --- Java ---

// Java opens IPv6 sockets, which are the kernel's, unless it is told not to.
TEST_F(ProgramsTest, SelectorOfJavaServesManyConnections) {
  Needs("java"), Needs("javac"), Needs("python3");
  Write("Echo.java", R"(
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.*;

public class Echo {
  public static void main(String[] arguments) throws Exception {
    Selector selector = Selector.open();
    ServerSocketChannel server = ServerSocketChannel.open();
    server.bind(new InetSocketAddress(arguments[0], 8000));
    server.configureBlocking(false);
    server.register(selector, SelectionKey.OP_ACCEPT);
    System.out.println("ready");
    ByteBuffer bytes = ByteBuffer.allocate(65536);
    while (true) {
      selector.select();
      for (SelectionKey key : selector.selectedKeys()) {
        if (key.isAcceptable()) {
          SocketChannel child = server.accept();
          if (child == null) continue;
          child.configureBlocking(false);
          child.register(selector, SelectionKey.OP_READ);
          continue;
        }
        SocketChannel channel = (SocketChannel) key.channel();
        bytes.clear();
        if (channel.read(bytes) < 0) {
          channel.close();
          continue;
        }
        bytes.flip();
        while (bytes.hasRemaining()) channel.write(bytes);
      }
      selector.selectedKeys().clear();
    }
  }
}
)");
  ASSERT_EQ(system(("cd " + Temporary("") + " && javac Echo.java").c_str()), 0);
  const auto server = StartOnXtreme(
      "java -Djava.net.preferIPv4Stack=true -cp " + Temporary("") + " Echo " + kOurs, kDebug);
  ASSERT_TRUE(server->Says("ready") || server->Says("ready")) << server->Output();
  ASSERT_TRUE(server->Says("offloaded on ours, listens as")) << server->Output();
  const std::string script = Write("echo_client.py", R"(
import os, socket, sys
connections = [socket.create_connection((sys.argv[1], 8000), timeout=10) for each in range(20)]
for size in (1, 1000, 50000):
    for c in connections:
        sent = os.urandom(size)
        c.sendall(sent)
        got = b''
        while len(got) < size: got += c.recv(size - len(got))
        assert got == sent
)");
  const auto client = StartOnKernel("python3 " + script + " " + kOurs);
  EXPECT_EQ(client->Wait(), 0) << client->Output() << server->Output();
}

// --- Stores ---

TEST_F(ProgramsTest, RedisServesItsBenchmark) {
  Needs("redis-check-rdb"), Needs("redis-benchmark");
  const auto server = StartOnXtreme(Redis(kOurs), kDebug);
  ASSERT_TRUE(server->Says("offloaded on ours, listens as")) << server->Output();
  const auto client = StartOnKernel(std::string("redis-benchmark -q -n 2000 -c 10 -P 4 -h ") +
                                    kOurs + " -t set,get,lrange_100");
  EXPECT_EQ(client->Wait(), 0) << client->Output() << server->Output();
  EXPECT_NE(client->Output().find("requests per second"), std::string::npos) << client->Output();
}

TEST_F(ProgramsTest, ClientsOfRedisAreOffloaded) {
  Needs("redis-check-rdb"), Needs("redis-cli"), Needs("redis-benchmark");
  const auto server = StartOnKernel(Redis(kTheirs));
  ASSERT_TRUE(Listens(false, "-lt", 6379)) << server->Output();
  const std::string at = std::string(" -h ") + kTheirs;
  const auto load =
      StartOnXtreme("redis-benchmark -q -n 2000 -c 10 -t set,get" + at, kDebug);
  EXPECT_EQ(load->Wait(), 0) << load->Output();
  EXPECT_TRUE(IsOffloaded(*load)) << load->Output();
  const auto client = StartOnXtreme("redis-cli" + at + " set colour red", kDebug);
  EXPECT_EQ(client->Wait(), 0) << client->Output();
  EXPECT_NE(client->Output().find("OK\n"), std::string::npos) << client->Output();
  EXPECT_TRUE(IsOffloaded(*client)) << client->Output();
}

TEST_F(ProgramsTest, ThreadsOfMemcachedShareARing) {
  Needs("memcached"), Needs("python3");
  const auto server =
      StartOnXtreme(std::string("memcached -u root -t 2 -l ") + kOurs, kDebug);
  ASSERT_TRUE(server->Says("offloaded on ours, listens as")) << server->Output();
  const std::string script = Write("memcached.py", R"(
import socket, sys
connections = [socket.create_connection((sys.argv[1], 11211), timeout=5) for each in range(8)]
def exact(c, wanted):
    got = b''
    while len(got) < len(wanted): got += c.recv(len(wanted) - len(got))
    assert got == wanted, got
for i in range(400):
    c = connections[i % 8]
    value = b'%d' % i * (1 + i * 17 % 3000)
    c.sendall(b'set k%d 0 0 %d\r\n%s\r\n' % (i, len(value), value))
    exact(c, b'STORED\r\n')
    c = connections[(i + 3) % 8]
    c.sendall(b'get k%d\r\n' % i)
    exact(c, b'VALUE k%d 0 %d\r\n%s\r\nEND\r\n' % (i, len(value), value))
)");
  const auto client = StartOnKernel("python3 " + script + " " + kOurs);
  EXPECT_EQ(client->Wait(), 0) << client->Output() << server->Output();
}

// --- netcat ---

TEST_F(ProgramsTest, NetcatSendsAFile) {
  Needs("nc");
  const std::string files = MakeFiles();
  const auto server = StartOnKernel("/bin/sh -c 'nc -N -l 10.9.0.2 7000 < /dev/null | cmp - " +
                                    files + "/many && echo equal'");
  ASSERT_TRUE(Listens(false, "-lt", 7000)) << server->Output();
  const auto client =
      StartOnXtreme("/bin/sh -c 'nc -N 10.9.0.2 7000 < " + files + "/many'", kDebug);
  EXPECT_EQ(client->Wait(), 0) << client->Output();
  EXPECT_TRUE(IsOffloaded(*client)) << client->Output();
  EXPECT_EQ(server->Wait(), 0) << server->Output();
  EXPECT_EQ(server->Output(), "equal\n");
}

// It sets SO_REUSEPORT, among whose sockets the kernel divides.
TEST_F(ProgramsTest, ListeningNetcatIsTheKernelsAndReceivesAFile) {
  Needs("nc");
  const std::string files = MakeFiles();
  const std::string got = Temporary("got");
  const auto server =
      StartOnXtreme("/bin/sh -c 'nc -N -l 10.9.0.1 7000 < /dev/null > " + got + "'", kDebug);
  ASSERT_TRUE(Listens(true, "-lt", 7000)) << server->Output();
  const auto client = StartOnKernel("/bin/sh -c 'nc -N 10.9.0.1 7000 < " + files + "/many'");
  EXPECT_EQ(client->Wait(), 0) << client->Output();
  EXPECT_EQ(server->Wait(), 0) << server->Output();
  EXPECT_NE(server->Output().find("left to the kernel: SO_REUSEPORT"), std::string::npos)
      << server->Output();
  EXPECT_EQ(system(("cmp " + got + " " + files + "/many").c_str()), 0);
}

// --- socat ---

// Without MSG_DONTWAIT, and the echo does so too: what is writable must not wait.
TEST_F(ProgramsTest, SocatSendsAndReceivesByTurns) {
  Needs("socat");
  const std::string many = MakeFiles() + "/many";
  const auto server =
      StartOnKernel("socat TCP4-LISTEN:7000,bind=10.9.0.2,reuseaddr EXEC:cat,nofork");
  ASSERT_TRUE(Listens(false, "-lt", 7000)) << server->Output();
  const auto client = StartOnXtreme("/bin/sh -c 'socat -t 9 - TCP4:10.9.0.2:7000 < " + many +
                                        " | cmp - " + many + " && echo equal'",
                                    kDebug);
  EXPECT_EQ(client->Wait(), 0) << client->Output();
  EXPECT_TRUE(IsOffloaded(*client)) << client->Output();
  EXPECT_NE(client->Output().find("equal\n"), std::string::npos) << client->Output();
}

TEST_F(ProgramsTest, SocatReceivesAndSendsToAGroup) {
  Needs("socat");
  const std::string text = Write("text", "a line\n");
  for (const bool receives : {true, false}) {
    const std::string take =
        std::string("socat -u UDP4-RECVFROM:7000,ip-add-membership=239.1.1.1:") +
        (receives ? kOurs : kTheirs) + " -";
    const auto to = receives ? StartOnXtreme(take, kDebug) : StartOnKernel(take);
    ASSERT_TRUE(receives ? to->Says(kOffloaded) : Listens(false, "-lu", 7000)) << to->Output();
    const std::string give =
        "socat -u OPEN:" + text + " UDP4-DATAGRAM:239.1.1.1:7000,ip-multicast-ttl=3";
    const auto from = receives ? StartOnKernel(give) : StartOnXtreme(give, kDebug);
    EXPECT_EQ(from->Wait(), 0) << from->Output();
    EXPECT_EQ(to->Wait(), 0) << to->Output();
    EXPECT_NE(to->Output().find("a line\n"), std::string::npos) << to->Output();
    EXPECT_TRUE(IsOffloaded(receives ? *to : *from)) << from->Output();
  }
}

// --- Without a card: as if we were not there ---

TEST_F(ProgramsTest, WithoutADeviceServersServe) {
  Needs("nginx"), Needs("curl"), Needs("redis-check-rdb"), Needs("redis-cli");
  const std::string files = MakeFiles();
  const auto web = StartWithoutDevice(Nginx(kOurs, 2, files));
  const auto store = StartWithoutDevice(Redis(kOurs));
  ASSERT_TRUE(Listens(true, "-lt", 8080)) << web->Output();
  ASSERT_TRUE(Listens(true, "-lt", 6379)) << store->Output();
  const auto got = StartOnKernel(GetFiles(std::string("http://") + kOurs + ":8080", files));
  EXPECT_EQ(got->Wait(), 0) << got->Output() << web->Output();
  const auto set = StartOnKernel(std::string("redis-cli -h ") + kOurs + " set colour red");
  EXPECT_EQ(set->Wait(), 0) << set->Output() << store->Output();
  EXPECT_EQ(set->Output(), "OK\n");
  EXPECT_EQ(web->Output().find("XTREME"), std::string::npos) << web->Output();
}

TEST_F(ProgramsTest, WithoutADeviceClientsAreServed) {
  Needs("nginx"), Needs("curl"), Needs("sockperf");
  const std::string files = MakeFiles();
  const auto web = StartOnKernel(Nginx(kTheirs, 1, files));
  const auto echo = StartOnKernel("sockperf server -i 10.9.0.2 -p 7000");
  ASSERT_TRUE(Listens(false, "-lt", 8080)) << web->Output();
  ASSERT_TRUE(Listens(false, "-lu", 7000)) << echo->Output();
  const auto got = StartWithoutDevice(GetFiles(std::string("http://") + kTheirs + ":8080", files));
  EXPECT_EQ(got->Wait(), 0) << got->Output();
  EXPECT_EQ(got->Output(), "equal\n");
  const auto load = StartWithoutDevice("sockperf ping-pong -t 1 --mps=500 -i 10.9.0.2 -p 7000");
  EXPECT_EQ(load->Wait(), 0) << load->Output();
}

}  // namespace
}  // namespace xtreme::faces
