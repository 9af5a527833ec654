// SPDX-License-Identifier: Apache-2.0
//
// xtreme.h: streams, each call with what it promises and each of its errors, against the kernel's
// TCP at the other end of a veth.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/xtreme.h"
#include "gtest/gtest.h"
#include "tests/e2e/tcp_bed.h"
#include "tests/net/kernel_tcp.h"
#include "tools/connectx/wire/impairment.h"

namespace xtreme::api_test {
namespace {

using net::KernelTcp;

// What a call that must fail said.
void ExpectError(int got, int error, std::string_view sentence) {
  EXPECT_EQ(got, -error);
  EXPECT_NE(std::string_view(xtreme_error()).find(sentence), std::string_view::npos)
      << xtreme_error();
}

xtreme_address Address(const char* text) {
  xtreme_address address = {};
  EXPECT_EQ(xtreme_address_parse(text, &address), 0) << text;
  return address;
}

xtreme_tcp_options TcpOptionsAt(const char* local) {
  xtreme_tcp_options options = {};
  options.size = sizeof options;
  options.local = Address(local);
  return options;
}

class TcpTest : public testing::Test {
 protected:
  void SetUp() override {
    const absl::Status made = bed_.Make(1);
    ASSERT_TRUE(made.ok()) << made;
    ring_owner_ = bed_.OpenRing();
    ASSERT_NE(ring_owner_, nullptr);
    ring_ = ring_owner_->handle();
  }

  KernelTcp ListenInKernel(uint16_t port = 7000) {
    const net::Namespace::Inside inside(bed_.kernel());
    return KernelTcp::Listen(e2e::TcpBed::kKernelAddress, port);
  }
  KernelTcp ConnectInKernel(uint16_t port) {
    const net::Namespace::Inside inside(bed_.kernel());
    return KernelTcp::Connect(e2e::TcpBed::kRingAddress, port);
  }
  xtreme_socket Connect(const xtreme_tcp_options* options = nullptr) {
    const xtreme_address peer = Address("10.9.0.1:7000");
    xtreme_socket socket = {};
    EXPECT_EQ(xtreme_tcp_connect(ring_, &peer, options, &socket), 0) << xtreme_error();
    return socket;
  }
  // A connection of ours that the kernel accepted.
  xtreme_socket Establish(KernelTcp* peer, const xtreme_tcp_options* options = nullptr) {
    const KernelTcp listener = ListenInKernel();
    const xtreme_socket socket = Connect(options);
    Await(XTREME_ESTABLISHED);
    *peer = listener.Accept();
    EXPECT_TRUE(peer->is_open());
    return socket;
  }
  xtreme_socket Listen(xtreme_tcp_options options) {
    xtreme_socket socket = {};
    EXPECT_EQ(xtreme_tcp_listen(ring_, &options, &socket), 0) << xtreme_error();
    const xtreme_completion done = Await(XTREME_OP_DONE);
    EXPECT_EQ(done.status, 0) << (done.text == nullptr ? "" : done.text);
    EXPECT_EQ(done.socket.value, socket.value);
    return socket;
  }

  // The next completion of this kind, those before it released; one of kind NONE if none comes.
  xtreme_completion Await(int kind) { return e2e::Await(ring_, kind); }
  // Polls for a while; the kinds that came, what they carried released.
  std::vector<int> PollFor(int64_t ns) {
    std::vector<int> kinds;
    const int64_t end_ns = xtreme_ring_now(ring_) + ns;
    while (xtreme_ring_now(ring_) < end_ns) {
      xtreme_completion completion = {};
      if (xtreme_ring_wait(ring_, &completion, 1, sizeof completion, 1'000'000) < 1) continue;
      kinds.push_back(completion.kind);
      xtreme_release(&completion, 1, sizeof completion);
    }
    return kinds;
  }
  // Bytes of PACKETs until so many came, their buffers released.
  std::string Receive(size_t count) {
    std::string bytes;
    while (bytes.size() < count) {
      const xtreme_completion packet = Await(XTREME_PACKET);
      if (packet.kind != XTREME_PACKET) break;
      const size_t before = bytes.size();
      bytes.resize(before + packet.length);
      xtreme_copy_out(&packet, bytes.data() + before, packet.length);
      xtreme_release(&packet, 1, sizeof packet);
    }
    return bytes;
  }
  static int Send(xtreme_socket socket, std::string_view bytes, uint32_t flags = 0,
                  uint64_t cookie = 0) {
    const xtreme_send_options options = {flags, 0, cookie};
    return xtreme_send(socket, bytes.data(), bytes.size(), &options);
  }
  static xtreme_tcp_info Info(xtreme_socket socket) {
    xtreme_tcp_info info = {};
    info.size = sizeof info;
    EXPECT_EQ(xtreme_tcp_get_info(socket, &info), 0) << xtreme_error();
    return info;
  }

  e2e::TcpBed bed_;
  std::unique_ptr<Ring> ring_owner_;
  xtreme_ring ring_ = {};
};

// --- Opening ------------------------------------------------------------------------------------

TEST_F(TcpTest, ConnectEndsInEstablishedAndKnowsBothEnds) {
  KernelTcp peer;
  xtreme_tcp_options options = TcpOptionsAt("10.9.0.2:7100");
  options.user_data = 17;
  const KernelTcp listener = ListenInKernel();
  const xtreme_socket socket = Connect(&options);
  const xtreme_completion established = Await(XTREME_ESTABLISHED);
  EXPECT_EQ(established.socket.value, socket.value);
  EXPECT_EQ(established.user_data, 17u);
  xtreme_address local;
  ASSERT_EQ(xtreme_socket_local(socket, &local), 0);
  EXPECT_EQ(memcmp(&local, &options.local, sizeof local), 0);
  EXPECT_EQ(Info(socket).peer.port, 7000);
}

TEST_F(TcpTest, ConnectThatIsRefusedEndsInTerminated) {
  const xtreme_socket socket = Connect();
  const xtreme_completion end = Await(XTREME_TERMINATED);
  EXPECT_EQ(end.status, ECONNREFUSED);
  EXPECT_EQ(end.socket.value, socket.value);
  ExpectError(xtreme_shutdown(socket), EBADF, "");
}

TEST_F(TcpTest, ConnectToAHostThatIsNotThereEndsInTerminated) {
  xtreme_tcp_options options = TcpOptionsAt("*:0");
  options.connect_timeout_ns = 300'000'000;
  const xtreme_address nobody = Address("10.9.0.77:7000");
  xtreme_socket socket;
  ASSERT_EQ(xtreme_tcp_connect(ring_, &nobody, &options, &socket), 0);
  const xtreme_completion end = Await(XTREME_TERMINATED);
  EXPECT_TRUE(end.status == EHOSTUNREACH || end.status == ETIMEDOUT) << end.status;
  EXPECT_EQ(memcmp(end.source_ip, nobody.ip, sizeof nobody.ip), 0) << "no segment had left";
  EXPECT_EQ(end.source_port, 7000);
}

TEST_F(TcpTest, APreparedSendOfAStreamIsPatchedFiredAndArmedAgain) {
  KernelTcp peer;
  const xtreme_socket socket = Establish(&peer);
  xtreme_prepared order = {};
  ASSERT_EQ(xtreme_prepare(socket, "buy 17", 6, &order), 0) << xtreme_error();
  EXPECT_EQ(xtreme_patch(order, 4, "18", 2), 0);
  const xtreme_send_options told = {XTREME_WANT_WIRE | XTREME_WANT_DONE, 0, 31};
  EXPECT_EQ(xtreme_fire(order, &told), XTREME_SENT);
  EXPECT_EQ(xtreme_fire(order, nullptr), XTREME_REFUSED_STATE);
  EXPECT_EQ(Await(XTREME_TX_WIRE).cookie, 31u);
  EXPECT_EQ(Await(XTREME_TX_DONE).cookie, 31u);
  EXPECT_EQ(xtreme_rearm(order), 0);
  EXPECT_EQ(Send(socket, ", "), XTREME_SENT);
  EXPECT_EQ(xtreme_fire(order, nullptr), XTREME_SENT);
  EXPECT_EQ(peer.Receive(14), "buy 18, buy 18");
  EXPECT_EQ(xtreme_socket_close(socket, 0), 0);
  ExpectError(xtreme_cancel(order), EBADF, "prepared");
}

TEST_F(TcpTest, ListenerAcceptsAndItsChildInheritsUserData) {
  xtreme_tcp_options options = TcpOptionsAt(":7200");
  options.user_data = 5;
  const xtreme_socket listener = Listen(options);
  KernelTcp peer = ConnectInKernel(7200);
  const xtreme_completion accepted = Await(XTREME_ACCEPTED);
  peer.Send("hello");
  EXPECT_EQ(accepted.cookie, listener.value);
  EXPECT_NE(accepted.socket.value, listener.value);
  EXPECT_EQ(accepted.user_data, 5u);
  EXPECT_EQ(accepted.destination_port, 7200);
  EXPECT_EQ(accepted.source_ip[15], 1);
  EXPECT_EQ(Receive(5), "hello");
  EXPECT_EQ(Send(accepted.socket, "back"), XTREME_SENT);
  EXPECT_EQ(peer.Receive(4), "back");
}

TEST_F(TcpTest, ListenerSaysWhyNot) {
  xtreme_socket socket;
  xtreme_tcp_options options = TcpOptionsAt(":0");
  ExpectError(xtreme_tcp_listen(ring_, &options, &socket), EINVAL, "port");
  options = TcpOptionsAt("10.9.0.99:7200");
  ExpectError(xtreme_tcp_listen(ring_, &options, &socket), EADDRNOTAVAIL, "10.9.0.99");
  Listen(TcpOptionsAt(":7200"));
  options = TcpOptionsAt(":7200");
  ExpectError(xtreme_tcp_listen(ring_, &options, &socket), EADDRINUSE, "7200");
  memset(options.local.ip, 0x20, sizeof options.local.ip);
  ExpectError(xtreme_tcp_listen(ring_, &options, &socket), EAFNOSUPPORT, "IPv4 only");
  ExpectError(xtreme_tcp_listen({}, &options, &socket), EBADF, "no such ring");
}

TEST_F(TcpTest, PortOfAnotherProgramComesAsOpDone) {
  const int other = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in local = {};
  local.sin_family = AF_INET;
  local.sin_port = htons(7200);
  ASSERT_EQ(::bind(other, reinterpret_cast<const sockaddr*>(&local), sizeof local), 0);
  ASSERT_EQ(::listen(other, 1), 0);
  xtreme_tcp_options options = TcpOptionsAt(":7200");
  xtreme_socket socket;
  ASSERT_EQ(xtreme_tcp_listen(ring_, &options, &socket), 0);
  EXPECT_EQ(Await(XTREME_OP_DONE).status, EADDRINUSE);
  ::close(other);
}

TEST_F(TcpTest, ConnectSaysWhyNot) {
  xtreme_socket socket;
  const struct {
    const char* peer;
    int error;
  } rows[] = {
      {"10.9.0.1:0", EINVAL},
      {"224.0.0.5:7000", EINVAL},
      {"10.77.0.1:7000", ENETUNREACH},
  };
  for (const auto& row : rows) {
    const xtreme_address peer = Address(row.peer);
    ExpectError(xtreme_tcp_connect(ring_, &peer, nullptr, &socket), row.error, "connect");
  }
  const xtreme_address peer = Address("10.9.0.1:7000");
  const xtreme_tcp_options elsewhere = TcpOptionsAt("10.9.0.99:0");
  ExpectError(xtreme_tcp_connect(ring_, &peer, &elsewhere, &socket), EADDRNOTAVAIL, "10.9.0.99");
  xtreme_address six = peer;
  memset(six.ip, 0x20, sizeof six.ip);
  ExpectError(xtreme_tcp_connect(ring_, &six, nullptr, &socket), EAFNOSUPPORT, "IPv4 only");
  ExpectError(xtreme_tcp_connect({}, &peer, nullptr, &socket), EBADF, "no such ring");
}

TEST_F(TcpTest, OptionsOutOfRangeAreNamed) {
  using Options = xtreme_tcp_options;
  const struct {
    const char* name;
    void (*spoil)(Options*);
  } rows[] = {
      {"preset", [](Options* o) { o->preset = 3; }},
      {"congestion", [](Options* o) { o->congestion = 4; }},
      {"nodelay", [](Options* o) { o->nodelay = 3; }},
      {"quick_ack", [](Options* o) { o->quick_ack = 3; }},
      {"manual_credit", [](Options* o) { o->manual_credit = 3; }},
      {"timestamps", [](Options* o) { o->timestamps = 3; }},
      {"sack", [](Options* o) { o->sack = 3; }},
      {"user_timeout_ns", [](Options* o) { o->user_timeout_ns = -2; }},
      {"min_rto", [](Options* o) { o->min_rto_ns = 99'999; }},
      {"min_rto", [](Options* o) { o->min_rto_ns = 60'000'000'001; }},
      {"min_rto", [](Options* o) { o->min_rto_ns = XTREME_NEVER_NS; }},
      {"delayed_ack", [](Options* o) { o->delayed_ack_ns = 500'000'001; }},
      {"receive_window", [](Options* o) { o->receive_window = 2'047; }},
      {"send_queue", [](Options* o) { o->send_queue = (1u << 30) + 1; }},
  };
  const xtreme_address peer = Address("10.9.0.1:7000");
  for (const auto& row : rows) {
    xtreme_tcp_options options = TcpOptionsAt(":7200");
    row.spoil(&options);
    xtreme_socket socket;
    ExpectError(xtreme_tcp_listen(ring_, &options, &socket), EINVAL, row.name);
    ExpectError(xtreme_tcp_connect(ring_, &peer, &options, &socket), EINVAL, row.name);
  }
}

TEST_F(TcpTest, OptionsOfOtherSizesAreTakenOrRefused) {
  struct Newer {
    xtreme_tcp_options known;
    uint64_t unknown;
  } newer = {TcpOptionsAt(":7200"), 0};
  newer.known.size = sizeof newer;
  xtreme_socket socket;
  EXPECT_EQ(xtreme_tcp_listen(ring_, &newer.known, &socket), 0) << xtreme_error();
  newer.unknown = 1;
  ExpectError(xtreme_tcp_listen(ring_, &newer.known, &socket), E2BIG, "the rest is not 0");
  newer.known.size = 8;
  ExpectError(xtreme_tcp_listen(ring_, &newer.known, &socket), EINVAL, "8 bytes asked");
  for (const bool too : {false, true}) {
    xtreme_tcp_options reserved = TcpOptionsAt(":7201");
    reserved.reserved = !too;
    reserved.reserved_too = too;
    ExpectError(xtreme_tcp_listen(ring_, &reserved, &socket), E2BIG, "reserved");
  }
}

TEST_F(TcpTest, RingHasAsManyConnectionsAsItWasAskedFor) {
  auto few = bed_.OpenRing(e2e::TcpBed::Options().Set("max_connections", "1"));
  ASSERT_NE(few, nullptr);
  xtreme_tcp_options options = TcpOptionsAt(":7201");
  xtreme_socket socket;
  ASSERT_EQ(xtreme_tcp_listen(few->handle(), &options, &socket), 0) << xtreme_error();
  options = TcpOptionsAt(":7202");
  ExpectError(xtreme_tcp_listen(few->handle(), &options, &socket), EMFILE, "max_connections");
  auto none = bed_.OpenRing(e2e::TcpBed::Options().Set("max_connections", "0"));
  ASSERT_NE(none, nullptr);
  ExpectError(xtreme_tcp_listen(none->handle(), &options, &socket), EOPNOTSUPP,
              "max_connections 0");
}

// --- Sending ------------------------------------------------------------------------------------

TEST_F(TcpTest, SendBeforeTheHandshakeIsQueuedOrRefusedWhenItMustBeNow) {
  KernelTcp first;
  Establish(&first);  // From here on the way is known, and the SYN leaves at once.
  const KernelTcp listener = ListenInKernel();
  const xtreme_socket socket = Connect();
  EXPECT_EQ(Send(socket, "now", XTREME_NOW_OR_FAIL), XTREME_REFUSED_STATE);
  EXPECT_EQ(Send(socket, "early"), XTREME_QUEUED);
  Await(XTREME_ESTABLISHED);
  KernelTcp peer = listener.Accept();
  EXPECT_EQ(peer.Receive(5), "early");
}

// One of them is the library's own word for "more follows".
TEST_F(TcpTest, FlagsThatAreNoneAreNotLookedAt) {
  KernelTcp peer;
  const xtreme_socket socket = Establish(&peer);
  for (uint32_t flag = XTREME_WARM << 1; flag != 0; flag <<= 1) {
    EXPECT_EQ(Send(socket, "x", flag), XTREME_SENT) << flag;
    EXPECT_EQ(peer.Receive(1), "x") << flag;
  }
}

TEST_F(TcpTest, WatchedSendTellsWhenItLeftAndThatThePeerHasIt) {
  KernelTcp peer;
  const xtreme_socket socket = Establish(&peer);
  ASSERT_EQ(Send(socket, "order", XTREME_WANT_WIRE | XTREME_WANT_DONE, 31), XTREME_SENT);
  const xtreme_completion wire = Await(XTREME_TX_WIRE);
  EXPECT_EQ(wire.cookie, 31u);
  EXPECT_GT(wire.hw_time_ns, 0);
  const xtreme_completion done = Await(XTREME_TX_DONE);
  EXPECT_EQ(done.cookie, 31u);
  EXPECT_EQ(done.status, 0);
  EXPECT_EQ(peer.Receive(5), "order");
}

TEST_F(TcpTest, BufferIsSentInPlaceAndComesBackWhenAcknowledged) {
  KernelTcp peer;
  const xtreme_socket socket = Establish(&peer);
  xtreme_buffer* buffer;
  uint8_t* data;
  uint32_t capacity;
  ASSERT_EQ(xtreme_buffer_acquire(ring_, &buffer, &data, &capacity), 0);
  memcpy(data, "in place", 8);
  const xtreme_address peer_address = Address("10.9.0.1:7000");
  EXPECT_EQ(xtreme_send_buffer(socket, &peer_address, buffer, data, 8, nullptr),
            XTREME_REFUSED_STATE);
  const xtreme_send_options watched = {XTREME_WANT_DONE, 0, 1};
  ASSERT_EQ(xtreme_send_buffer(socket, nullptr, buffer, data, 8, &watched), XTREME_SENT);
  EXPECT_EQ(peer.Receive(8), "in place");
  EXPECT_EQ(Await(XTREME_TX_DONE).status, 0);
}

TEST_F(TcpTest, FullWindowRefusesAndSpaceIsToldOnce) {
  KernelTcp peer;
  xtreme_tcp_options options = TcpOptionsAt("*:0");
  options.send_queue = 100'000;
  const xtreme_socket socket = Establish(&peer, &options);
  const std::string piece(10'000, 'p');
  size_t sent = 0;
  while (Send(socket, piece) >= 0) sent += piece.size();
  EXPECT_EQ(sent, 100'000u);
  EXPECT_EQ(Send(socket, piece), XTREME_REFUSED_WINDOW);
  auto received = std::async(std::launch::async, [&] { return peer.Receive(sent).size(); });
  Await(XTREME_TX_SPACE);
  EXPECT_GE(Send(socket, piece), 0);
  const std::vector<int> more = PollFor(100'000'000);
  EXPECT_EQ(std::count(more.begin(), more.end(), XTREME_TX_SPACE), 0);
  EXPECT_EQ(received.get(), sent);
}

TEST_F(TcpTest, SendSomeTakesWhatFits) {
  KernelTcp peer;
  xtreme_tcp_options options = TcpOptionsAt("*:0");
  options.send_queue = 5'000;
  const xtreme_socket socket = Establish(&peer, &options);
  const std::string bytes(20'000, 's');
  size_t taken = 0;
  EXPECT_GE(xtreme_send_some(socket, bytes.data(), bytes.size(), nullptr, &taken), 0);
  EXPECT_GT(taken, 0u);
  EXPECT_LE(taken, 5'000u);
  EXPECT_EQ(peer.Receive(taken), bytes.substr(0, taken));
  const xtreme_send_options warm = {XTREME_WARM, 0, 0};
  EXPECT_EQ(xtreme_send_some(socket, "w", 1, &warm, &taken), XTREME_SENT);
  EXPECT_EQ(taken, 0u) << "it is still to be sent";
  EXPECT_EQ(xtreme_send_some({}, bytes.data(), 1, nullptr, &taken), XTREME_REFUSED_STATE);
  EXPECT_EQ(taken, 0u);
}

TEST_F(TcpTest, CallsForTheOtherKindOfSocketAreRefused) {
  KernelTcp peer;
  const xtreme_socket stream = Establish(&peer);
  const xtreme_address to = Address("10.9.0.1:7000");
  EXPECT_EQ(xtreme_send_to(stream, &to, "x", 1, nullptr), XTREME_REFUSED_STATE);
  const xtreme_bytes bytes = {"x", 1, 0};
  int last = 0;
  EXPECT_EQ(xtreme_send_many(stream, &bytes, 1, 0, &last), 0);
  EXPECT_EQ(last, XTREME_REFUSED_STATE);
  xtreme_udp_options options = {};
  options.size = sizeof options;
  xtreme_socket datagrams;
  ASSERT_EQ(xtreme_udp_open(ring_, &options, &datagrams), 0);
  size_t taken;
  EXPECT_EQ(xtreme_send_some(datagrams, "x", 1, nullptr, &taken), XTREME_REFUSED_STATE);
  ExpectError(xtreme_shutdown(datagrams), EBADF, "");
  ExpectError(xtreme_credit(datagrams, 1), EBADF, "");
  ExpectError(xtreme_abort(datagrams), EBADF, "");
}

// --- Receiving ----------------------------------------------------------------------------------

TEST_F(TcpTest, PeerThatClosesIsToldAfterItsLastByte) {
  KernelTcp peer;
  const xtreme_socket socket = Establish(&peer);
  peer.Send("last words");
  peer.ShutDown();
  EXPECT_EQ(Receive(10), "last words");
  EXPECT_EQ(Await(XTREME_PEER_CLOSED).socket.value, socket.value);
  EXPECT_EQ(Send(socket, "still"), XTREME_SENT);
  EXPECT_EQ(peer.Receive(5), "still");
}

TEST_F(TcpTest, OnlyCreditOpensTheWindowWhenItIsManual) {
  KernelTcp peer;
  xtreme_tcp_options options = TcpOptionsAt("*:0");
  options.manual_credit = XTREME_ON;
  options.receive_window = 4'096;
  const xtreme_socket socket = Establish(&peer, &options);
  peer.Send(std::string(8'192, 'c'));
  EXPECT_EQ(Receive(4'096).size(), 4'096u);
  EXPECT_EQ(Info(socket).owed_credit, 4'096u);
  EXPECT_EQ(PollFor(50'000'000), std::vector<int>());
  ExpectError(xtreme_credit(socket, 4'097), EINVAL, "more bytes");
  ASSERT_EQ(xtreme_credit(socket, 4'096), 0) << xtreme_error();
  EXPECT_EQ(Receive(4'096).size(), 4'096u);
}

// --- Closing ------------------------------------------------------------------------------------

TEST_F(TcpTest, ShutdownSaysThatWeAreDoneAndReceivesOn) {
  KernelTcp peer;
  const xtreme_socket socket = Establish(&peer);
  Send(socket, "question");
  ASSERT_EQ(xtreme_shutdown(socket), 0) << xtreme_error();
  EXPECT_EQ(peer.Receive(8), "question");
  EXPECT_EQ(peer.ReceiveEnd(), "");
  peer.Send("answer");
  EXPECT_EQ(Receive(6), "answer");
  EXPECT_EQ(Send(socket, "more"), XTREME_REFUSED_STATE);
  ExpectError(xtreme_shutdown(Listen(TcpOptionsAt(":7200"))), ENOTCONN, "");
}

TEST_F(TcpTest, ClosedConnectionGivesThePeerAllAndTerminatesLast) {
  KernelTcp peer;
  const xtreme_socket socket = Establish(&peer);
  Send(socket, "all of it", XTREME_WANT_DONE, 3);
  ASSERT_EQ(xtreme_socket_close(socket, 0), 0);
  EXPECT_EQ(xtreme_ring_quiescent(ring_), 0);
  EXPECT_EQ(peer.Receive(9), "all of it");
  EXPECT_EQ(peer.ReceiveEnd(), "");
  peer.Close();
  EXPECT_EQ(Await(XTREME_TX_DONE).cookie, 3u);
  EXPECT_EQ(Await(XTREME_TERMINATED).status, 0);
  EXPECT_EQ(xtreme_ring_quiescent(ring_), 1);
}

TEST_F(TcpTest, DetachedConnectionGivesThePeerAllAndTellsNothing) {
  KernelTcp peer;
  const xtreme_socket socket = Establish(&peer);
  Send(socket, "all of it", XTREME_WANT_DONE, 3);
  ExpectError(xtreme_socket_close(socket, 2), EINVAL, "flags");
  ASSERT_EQ(xtreme_socket_close(socket, XTREME_DETACH), 0);
  EXPECT_EQ(PollFor(20'000'000), std::vector<int>());
  EXPECT_EQ(peer.Receive(9), "all of it");
  EXPECT_EQ(peer.ReceiveEnd(), "");
  peer.Close();
  EXPECT_EQ(PollFor(50'000'000), std::vector<int>());
  EXPECT_EQ(xtreme_ring_quiescent(ring_), 1);
}

TEST_F(TcpTest, ClosedConnectionIsResetWhenThePeerDoesNotAcknowledge) {
  KernelTcp peer;
  xtreme_tcp_options options = TcpOptionsAt("*:0");
  options.linger_ns = 100'000'000;
  const xtreme_socket socket = Establish(&peer, &options);
  bed_.Impair({.loss = 1});
  Send(socket, "lost", XTREME_WANT_DONE, 3);
  ASSERT_EQ(xtreme_socket_close(socket, 0), 0);
  EXPECT_EQ(Await(XTREME_TX_DONE).status, ECANCELED);
  EXPECT_EQ(Await(XTREME_TERMINATED).status, ETIMEDOUT);
}

TEST_F(TcpTest, ClosedConnectionDoesNotWaitForeverForThePeerToClose) {
  KernelTcp peer;
  xtreme_tcp_options options = TcpOptionsAt("*:0");
  options.linger_ns = 100'000'000;
  const xtreme_socket socket = Establish(&peer, &options);
  ASSERT_EQ(xtreme_socket_close(socket, 0), 0);
  EXPECT_EQ(Await(XTREME_TERMINATED).status, 0);
}

TEST_F(TcpTest, AConnectIsAbortedAlsoBeforeItsFirstSegment) {
  const xtreme_socket socket = Connect();
  ASSERT_EQ(xtreme_abort(socket), 0);
  const xtreme_completion last = Await(XTREME_TERMINATED);
  EXPECT_EQ(last.socket.value, socket.value);
  EXPECT_EQ(last.status, ECONNABORTED);
}

TEST_F(TcpTest, WhatNoQueueHoldsWouldBeRefused) {
  KernelTcp peer;
  const xtreme_socket socket = Establish(&peer);
  EXPECT_EQ(xtreme_would_send(socket, 5), XTREME_SENT);
  EXPECT_EQ(xtreme_would_send(socket, (size_t{1} << 32) + 5), XTREME_REFUSED_WINDOW);
}

TEST_F(TcpTest, AbortResetsAndSaysSo) {
  KernelTcp peer;
  const xtreme_socket socket = Establish(&peer);
  ASSERT_EQ(xtreme_abort(socket), 0);
  EXPECT_EQ(Await(XTREME_TERMINATED).status, ECONNABORTED);
  EXPECT_EQ(peer.ReceiveEnd(), strerror(ECONNRESET));
}

TEST_F(TcpTest, HandleThatIsGoneIsBadf) {
  KernelTcp peer;
  const xtreme_socket socket = Establish(&peer);
  xtreme_abort(socket);
  Await(XTREME_TERMINATED);
  const xtreme_tcp_options options = TcpOptionsAt("*:0");
  xtreme_tcp_info info = {};
  info.size = sizeof info;
  xtreme_address local;
  ExpectError(xtreme_tcp_set_options(socket, &options), EBADF, "no such stream");
  ExpectError(xtreme_tcp_get_info(socket, &info), EBADF, "no such stream");
  ExpectError(xtreme_credit(socket, 1), EBADF, "");
  ExpectError(xtreme_shutdown(socket), EBADF, "");
  ExpectError(xtreme_abort(socket), EBADF, "");
  ExpectError(xtreme_socket_close(socket, 0), EBADF, "");
  ExpectError(xtreme_socket_set_user_data(socket, 1), EBADF, "");
  ExpectError(xtreme_socket_local(socket, &local), EBADF, "no such socket");
  EXPECT_EQ(Send(socket, "x"), XTREME_REFUSED_STATE);
  EXPECT_EQ(xtreme_would_send(socket, 1), XTREME_REFUSED_STATE);
  EXPECT_EQ(xtreme_ring_quiescent({}), -EBADF);
}

// --- Settings and reports -----------------------------------------------------------------------

TEST_F(TcpTest, InfoTellsTheStateOfAConnection) {
  KernelTcp peer;
  const xtreme_socket socket = Establish(&peer);
  Send(socket, std::string(500, 'i'), XTREME_WANT_DONE);
  Await(XTREME_TX_DONE);
  const xtreme_tcp_info info = Info(socket);
  EXPECT_EQ(info.state, XTREME_TCP_ESTABLISHED);
  EXPECT_EQ(info.local.ip[15], 2);
  EXPECT_EQ(info.peer.ip[15], 1);
  EXPECT_GT(info.srtt_ns, 0);
  EXPECT_GE(info.rto_ns, 200'000'000);
  EXPECT_GT(info.send_window, 10'000u);
  EXPECT_GE(info.mss, 1'400u);
  EXPECT_EQ(info.unsent, 0u);
  EXPECT_EQ(info.oldest_ns, 0);
  EXPECT_EQ(Info(Listen(TcpOptionsAt(":7200"))).state, XTREME_TCP_LISTEN);
}

TEST_F(TcpTest, InfoOfAnotherSizeIsFilledOrRefused) {
  KernelTcp peer;
  const xtreme_socket socket = Establish(&peer);
  struct Newer {
    xtreme_tcp_info known;
    uint64_t unknown;
  } newer;
  memset(&newer, 0xA5, sizeof newer);
  newer.known.size = sizeof newer;
  ASSERT_EQ(xtreme_tcp_get_info(socket, &newer.known), 0);
  EXPECT_EQ(newer.known.size, sizeof newer);
  EXPECT_EQ(newer.known.state, XTREME_TCP_ESTABLISHED);
  EXPECT_EQ(newer.unknown, 0u);
  // What nobody set would be zeroed far beyond it.
  for (const size_t never : {size_t{8}, size_t{4'097}, ~size_t{0}}) {
    newer.known.size = never;
    ExpectError(xtreme_tcp_get_info(socket, &newer.known), EINVAL, "bytes asked");
  }
}

TEST_F(TcpTest, SettingsChangeLaterAndOnlyThoseThatWereNamed) {
  KernelTcp peer;
  xtreme_tcp_options options = TcpOptionsAt("*:0");
  options.preset = XTREME_TCP_FAIL_FAST;
  const xtreme_socket socket = Establish(&peer, &options);
  xtreme_tcp_options change = {};
  change.size = sizeof change;
  change.min_rto_ns = 1'000'000;
  change.linger_ns = 100'000'000;
  ASSERT_EQ(xtreme_tcp_set_options(socket, &change), 0) << xtreme_error();
  Send(socket, "x", XTREME_WANT_DONE);
  Await(XTREME_TX_DONE);
  EXPECT_LT(Info(socket).rto_ns, 200'000'000);
  change.min_rto_ns = 1;
  ExpectError(xtreme_tcp_set_options(socket, &change), EINVAL, "min_rto");
  const int64_t begin_ns = xtreme_ring_now(ring_);
  xtreme_socket_close(socket, 0);
  EXPECT_EQ(Await(XTREME_TERMINATED).status, 0);
  EXPECT_LT(xtreme_ring_now(ring_) - begin_ns, 1'000'000'000);
}

TEST_F(TcpTest, FailFastSessionEndsSoonAfterThePeerFallsSilent) {
  KernelTcp peer;
  xtreme_tcp_options options = TcpOptionsAt("*:0");
  options.preset = XTREME_TCP_FAIL_FAST;
  const xtreme_socket socket = Establish(&peer, &options);
  const int64_t begin_ns = xtreme_ring_now(ring_);
  bed_.Impair({.loss = 1});
  EXPECT_EQ(Send(socket, "into the void"), XTREME_SENT);
  EXPECT_EQ(Await(XTREME_TERMINATED).status, ETIMEDOUT);
  EXPECT_LT(xtreme_ring_now(ring_) - begin_ns, 6'000'000'000);
}

TEST_F(TcpTest, UserDataIsThatOfTheMomentOfHandingOut) {
  KernelTcp peer;
  const xtreme_socket socket = Establish(&peer);
  peer.Send("x");
  ASSERT_EQ(xtreme_socket_set_user_data(socket, 77), 0);
  const xtreme_completion packet = Await(XTREME_PACKET);
  EXPECT_EQ(packet.user_data, 77u);
  xtreme_release(&packet, 1, sizeof packet);
}

TEST_F(TcpTest, StreamHasCounters) {
  KernelTcp peer;
  const xtreme_socket socket = Establish(&peer);
  Send(socket, "12345");
  std::vector<xtreme_counter> counters(100);
  const int count = xtreme_socket_counters(socket, counters.data(), 100);
  ASSERT_GT(count, 0) << xtreme_error();
  uint64_t sent = 0;
  for (int i = 0; i < count; ++i) {
    if (std::string_view(counters[i].name) == "sent_bytes") sent = counters[i].value;
    EXPECT_STREQ(counters[i].scope, "tcp");
  }
  EXPECT_EQ(sent, 5u);
}

}  // namespace
}  // namespace xtreme::api_test
