// SPDX-License-Identifier: Apache-2.0
//
// xtreme.h: options, rings, groups, sockets, counters and every errno that they promise.

#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "tests/api/api_fixture.h"
#include "xtreme/stats/reader.h"

namespace xtreme::api_test {
namespace {

using RingsTest = ApiTest;

// What a call that must fail said.
void ExpectError(int got, int error, std::string_view sentence) {
  EXPECT_EQ(got, -error);
  EXPECT_NE(std::string_view(xtreme_error()).find(sentence), std::string_view::npos)
      << xtreme_error();
}

constexpr size_t kFirstBytes = offsetof(xtreme_ring_options, link_bits_per_second) + 8;

TEST_F(RingsTest, AddressesAreReadAndWritten) {
  xtreme_address address;
  ASSERT_EQ(xtreme_address_parse("233.54.12.111:26477", &address), 0);
  EXPECT_EQ(address.port, 26477);
  EXPECT_EQ(address.ip[12], 233);
  char text[32];
  EXPECT_EQ(xtreme_address_format(&address, text, sizeof text), 19);
  EXPECT_STREQ(text, "233.54.12.111:26477");
  EXPECT_EQ(xtreme_address_format(&address, text, 4), 19);
  EXPECT_STREQ(text, "233");
  ExpectError(xtreme_address_parse("there", &address), EINVAL, "'there' asked");
  ExpectError(xtreme_address_parse("[::1]:9", &address), EAFNOSUPPORT, "IPv4 only");
}

TEST_F(RingsTest, AnInterfaceThatIsNotThereIsNodev) {
  const xtreme_ring_options options = Options("xt9");
  xtreme_ring ring;
  ExpectError(xtreme_ring_open(&options, &ring), ENODEV, "xt9");
}

TEST_F(RingsTest, AnInterfaceWithoutADeviceIsNodev) {
  const xtreme_ring_options options = Options("xt0peer");
  xtreme_ring ring;
  ExpectError(xtreme_ring_open(&options, &ring), ENODEV, "xt0peer");
}

TEST_F(RingsTest, OptionsOutOfRangeAreNamed) {
  xtreme_ring ring;
  xtreme_ring_options options = Options("xt0");
  options.rx_queue_frames = 100;
  ExpectError(xtreme_ring_open(&options, &ring), EINVAL, "rx_queue_frames");
  options = Options(nullptr);
  ExpectError(xtreme_ring_open(&options, &ring), EINVAL, "no interface");
  ExpectError(xtreme_ring_options_init(&options, sizeof options, "fast"), EINVAL, "'fast'");
  ExpectError(xtreme_ring_options_set(&options, "rx_bufers", "1"), EINVAL, "'rx_bufers'");
  ExpectError(xtreme_ring_options_set(&options, "wait", "never"), EINVAL, "'never'");
}

TEST_F(RingsTest, OptionsOfAnOlderProgramOpenARingAndNothingBehindThemIsTouched) {
  xtreme_ring_options options;
  memset(&options, 0xA5, sizeof options);
  ASSERT_EQ(xtreme_ring_options_init(&options, kFirstBytes, "dev"), 0) << xtreme_error();
  EXPECT_EQ(options.size, kFirstBytes);
  EXPECT_EQ(options.counters_access, 0xA5);
  ExpectError(xtreme_ring_options_set(&options, "counters_access", "all"), EINVAL,
              "'counters_access'");
  EXPECT_EQ(options.counters_access, 0xA5);
  options.interface_name = "xt0";
  OpenRing(options);
}

TEST_F(RingsTest, OptionsOfANewerProgramAreTakenWhenWhatIsNewIsZero) {
  struct Newer {
    xtreme_ring_options known;
    uint64_t unknown;
  } newer;
  ASSERT_EQ(xtreme_ring_options_init(&newer.known, sizeof newer, "dev"), 0);
  EXPECT_EQ(newer.unknown, 0u);
  EXPECT_EQ(newer.known.size, sizeof newer);
  newer.known.interface_name = "xt0";
  OpenRing(newer.known);
  newer.unknown = 1;
  xtreme_ring ring;
  ExpectError(xtreme_ring_open(&newer.known, &ring), E2BIG, "the rest is not 0");
}

TEST_F(RingsTest, NothingWhereSomethingIsNeededIsRefused) {
  xtreme_ring_options options = Options("xt0");
  ExpectError(xtreme_ring_options_init(&options, sizeof options, nullptr), EINVAL, "profile");
  ExpectError(xtreme_ring_options_set(&options, nullptr, "1"), EINVAL, "setting");
  ExpectError(xtreme_ring_options_set(&options, "poll_batch", nullptr), EINVAL, "'poll_batch'");
  EXPECT_EQ(xtreme_ring_options_set(&options, "control_cpus", nullptr), 0);
  xtreme_ring ring;
  ExpectError(xtreme_ring_open(nullptr, &ring), EINVAL, "no options");
  ring = OpenRing();
  xtreme_socket socket;
  ExpectError(xtreme_udp_open(ring, nullptr, &socket), EINVAL, "no options");
  ExpectError(xtreme_tcp_listen(ring, nullptr, &socket), EINVAL, "no options");
  ExpectError(xtreme_tcp_connect(ring, nullptr, nullptr, &socket), EINVAL, "no address");
  socket = OpenSocket(ring, ":9000");
  ExpectError(xtreme_udp_connect(socket, nullptr, 1), EINVAL, "no address");
  ExpectError(xtreme_join(socket, nullptr, nullptr, 0, 1), EINVAL, "no group");
  ExpectError(xtreme_leave(socket, nullptr, nullptr, 1), EADDRNOTAVAIL, "no group");
}

// A later version may give them a meaning.
TEST_F(RingsTest, FieldsThatAreReservedAreZeroOrRefused) {
  xtreme_ring ring;
  xtreme_ring_options options = Options("xt0");
  options.reserved[2] = 1;
  ExpectError(xtreme_ring_open(&options, &ring), E2BIG, "reserved");
  options = Options("xt0");
  options.reserved_too[0] = 1;
  ExpectError(xtreme_ring_open(&options, &ring), E2BIG, "reserved");
  const xtreme_ring open = OpenRing();
  xtreme_udp_options udp = UdpOptions(":9000");
  udp.reserved = 1;
  xtreme_socket socket;
  ExpectError(xtreme_udp_open(open, &udp, &socket), E2BIG, "reserved");
  udp.reserved = 0;
  udp.unused = 1;
  OpenSocket(open, udp);
}

TEST_F(RingsTest, SizesThatNeverWereAreRefused) {
  xtreme_ring_options options = Options("xt0");
  for (const size_t never : {kFirstBytes - 1, size_t{4'097}}) {
    ExpectError(xtreme_ring_options_init(&options, never, "dev"), EINVAL, "bytes asked");
  }
  options.size = 8;
  xtreme_ring ring;
  ExpectError(xtreme_ring_open(&options, &ring), EINVAL, "8 bytes asked");
  options.size = ~size_t{0} / 2;
  ExpectError(xtreme_ring_open(&options, &ring), EINVAL, "bytes asked");
  xtreme_udp_options udp = UdpOptions(":9000");
  udp.size = 16;
  xtreme_socket socket;
  ExpectError(xtreme_udp_open(OpenRing(), &udp, &socket), EINVAL, "16 bytes asked");
}

TEST_F(RingsTest, ARingIsStartedOnce) {
  const xtreme_ring ring = OpenRing();
  ExpectError(xtreme_ring_start(ring), EALREADY, "started already");
}

TEST_F(RingsTest, AClosedRingIsBadf) {
  const xtreme_ring ring = OpenRing();
  const xtreme_socket socket = OpenSocket(ring, ":9000");
  ASSERT_EQ(xtreme_ring_close(ring), 0);
  xtreme_completion completion;
  const xtreme_address group = Address("239.1.2.3");
  ExpectError(xtreme_ring_poll(ring, &completion, 1, sizeof completion), EBADF, "no such ring");
  EXPECT_EQ(xtreme_ring_close(ring), -EBADF);
  EXPECT_EQ(xtreme_ring_start(ring), -EBADF);
  EXPECT_EQ(xtreme_ring_adopt(ring), -EBADF);
  EXPECT_EQ(xtreme_ring_more(ring), -EBADF);
  EXPECT_EQ(xtreme_ring_arm(ring), -EBADF);
  EXPECT_EQ(xtreme_ring_wait(ring, &completion, 1, sizeof completion, 0), -EBADF);
  EXPECT_EQ(xtreme_ring_fd(ring), -EBADF);
  EXPECT_EQ(xtreme_ring_flush(ring), -EBADF);
  EXPECT_EQ(xtreme_ring_now(ring), -EBADF);
  EXPECT_EQ(xtreme_ring_clock_error(ring), -EBADF);
  EXPECT_EQ(xtreme_ring_wake(ring), -EBADF);
  EXPECT_EQ(xtreme_ring_describe(ring, nullptr, 0), -EBADF);
  EXPECT_EQ(xtreme_ring_counters(ring, nullptr, 0), -EBADF);
  EXPECT_EQ(xtreme_socket_counters(socket, nullptr, 0), -EBADF);
  EXPECT_EQ(xtreme_join(socket, &group, nullptr, 0, 0), -EBADF);
  EXPECT_EQ(xtreme_leave(socket, &group, nullptr, 0), -EBADF);
  EXPECT_EQ(xtreme_udp_connect(socket, &group, 0), -EBADF);
  EXPECT_EQ(xtreme_socket_close(socket, 0), -EBADF);
}

TEST_F(RingsTest, PollsThatCannotBeAreRefused) {
  const xtreme_ring ring = OpenRing();
  xtreme_completion completion;
  ExpectError(xtreme_ring_poll(ring, &completion, 0, sizeof completion), EINVAL, "poll: 0");
  ExpectError(xtreme_ring_poll(ring, &completion, 1, 63), EINVAL, "63 bytes");
  ExpectError(xtreme_ring_wait(ring, &completion, 0, sizeof completion, 0), EINVAL, "poll: 0");
  ExpectError(xtreme_poll_fd(0, &completion, 1, sizeof completion), EBADF, "fd 0");
}

TEST_F(RingsTest, AnArmedFdTellsOfAPacketAndIsPolledByItself) {
  const xtreme_ring ring = OpenRing();
  OpenSocket(ring, ":9000");
  const int fd = xtreme_ring_fd(ring);
  while (xtreme_ring_arm(ring) != 0) {
    xtreme_completion other;
    const int count = xtreme_ring_poll(ring, &other, 1, sizeof other);
    xtreme_release(&other, count, sizeof other);
  }
  Inject(9000, "wake");
  pollfd waiting = {.fd = fd, .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&waiting, 1, 5'000), 1);
  xtreme_completion packet;
  ASSERT_EQ(xtreme_poll_fd(fd, &packet, 1, sizeof packet), 1);
  EXPECT_EQ(Text(packet), "wake");
  EXPECT_EQ(xtreme_ring_more(ring), 0);
  xtreme_release(&packet, 1, sizeof packet);
}

TEST_F(RingsTest, AGroupPollsItsRingsThroughOneFd) {
  const xtreme_ring rings[] = {OpenRing("xt0"), OpenRing("xt1")};
  OpenSocket(rings[0], "10.1.0.1:9000");
  OpenSocket(rings[1], "10.2.0.1:9000");
  xtreme_group group;
  ASSERT_EQ(xtreme_group_open(rings, 2, &group), 0) << xtreme_error();
  Inject(9000, "one", 0);
  Inject(9000, "two", 1);
  xtreme_completion completions[8];
  std::string got;
  for (int i = 0; i < 100 && got.size() < 6; ++i) {
    const int count = xtreme_group_poll(group, completions, 8, sizeof completions[0]);
    for (int j = 0; j < count; ++j) {
      if (completions[j].kind == XTREME_PACKET) got += Text(completions[j]);
    }
    xtreme_release(completions, count, sizeof completions[0]);
  }
  EXPECT_EQ(got.size(), 6u) << got;
  EXPECT_EQ(xtreme_group_set_order(group, XTREME_GROUP_HARDWARE_TIME), 0);
  ExpectError(xtreme_group_set_order(group, 2), EINVAL, "order");
  EXPECT_GE(xtreme_group_poll(group, completions, 8, sizeof completions[0]), 0);
  EXPECT_GE(xtreme_group_fd(group), 0);
  EXPECT_GE(xtreme_group_arm(group), 0);
  EXPECT_GE(xtreme_poll_fd(xtreme_group_fd(group), completions, 8, sizeof completions[0]), 0);
  EXPECT_EQ(xtreme_group_close(group), 0);
  ExpectError(xtreme_group_close(group), EBADF, "no such group");
  EXPECT_EQ(xtreme_group_poll(group, completions, 8, sizeof completions[0]), -EBADF);
  EXPECT_EQ(xtreme_group_set_order(group, XTREME_GROUP_FAIR), -EBADF);
  EXPECT_EQ(xtreme_group_arm(group), -EBADF);
  EXPECT_EQ(xtreme_group_fd(group), -EBADF);
}

TEST_F(RingsTest, ARingIsInOneGroupAtMostAndNotClosedInIt) {
  const xtreme_ring rings[] = {OpenRing("xt0"), OpenRing("xt1")};
  const xtreme_ring twice[] = {rings[0], rings[0]};
  xtreme_group group;
  ExpectError(xtreme_group_open(rings, 0, &group), EINVAL, "0 rings");
  ExpectError(xtreme_group_open(twice, 2, &group), EBUSY, "named twice");
  ASSERT_EQ(xtreme_group_open(rings, 1, &group), 0);
  xtreme_group other;
  ExpectError(xtreme_group_open(rings, 2, &other), EBUSY, "in a group");
  ExpectError(xtreme_ring_close(rings[0]), EBUSY, "in a group");
  ASSERT_EQ(xtreme_group_close(group), 0);
  EXPECT_EQ(xtreme_group_open(rings, 2, &other), 0);
  EXPECT_EQ(xtreme_group_close(other), 0);
}

TEST_F(RingsTest, SocketsAreOpenedReadAndClosedWithTerminatedLast) {
  const xtreme_ring ring = OpenRing();
  const xtreme_socket socket = OpenSocket(ring, "10.1.0.1:9000");
  xtreme_address local;
  ASSERT_EQ(xtreme_socket_local(socket, &local), 0);
  EXPECT_EQ(local.port, 9000);
  EXPECT_EQ(xtreme_socket_set_user_data(socket, 77), 0);
  Inject(9000, "x");
  xtreme_completion packet = Await(ring, XTREME_PACKET);
  EXPECT_EQ(packet.user_data, 77u);
  EXPECT_EQ(packet.source_port, 5000);
  xtreme_release(&packet, 1, sizeof packet);
  ExpectError(xtreme_socket_close(socket, 0x80), EINVAL, "flags");
  ASSERT_EQ(xtreme_socket_close(socket, 0), 0);
  EXPECT_EQ(Await(ring, XTREME_TERMINATED).socket.value, socket.value);
  EXPECT_EQ(xtreme_socket_close(socket, 0), -EBADF);
  EXPECT_EQ(xtreme_socket_set_user_data(socket, 1), -EBADF);
  EXPECT_EQ(xtreme_socket_local(socket, &local), -EBADF);
  EXPECT_EQ(xtreme_socket_counters(socket, nullptr, 0), -EBADF);
}

TEST_F(RingsTest, SocketsThatCannotBeAreRefused) {
  xtreme_ring_options few = Options("xt0");
  few.max_sockets = 2;
  few.max_groups = 1;
  const xtreme_ring ring = OpenRing(few);
  xtreme_socket socket;
  xtreme_udp_options udp = UdpOptions("10.9.9.9:9000");
  ExpectError(xtreme_udp_open(ring, &udp, &socket), EADDRNOTAVAIL, "10.9.9.9");
  udp = UdpOptions(":9000");
  memset(udp.local.ip, 0x20, sizeof udp.local.ip);
  ExpectError(xtreme_udp_open(ring, &udp, &socket), EAFNOSUPPORT, "IPv4 only");
  const xtreme_socket first = OpenSocket(ring, ":9000");
  udp = UdpOptions(":9000");
  ExpectError(xtreme_udp_open(ring, &udp, &socket), EADDRINUSE, "another socket");
  OpenSocket(ring, ":9001");
  udp = UdpOptions(":9002");
  ExpectError(xtreme_udp_open(ring, &udp, &socket), EMFILE, "max_sockets 2");

  const xtreme_address group = Address("239.1.2.3");
  const xtreme_address second = Address("239.1.2.4");
  const xtreme_address host = Address("10.1.0.2:5000");
  const xtreme_address none = Address("*:0");
  ExpectError(xtreme_join(first, &host, nullptr, 0, 0), EINVAL, "10.1.0.2");
  ExpectError(xtreme_join(first, &group, nullptr, 0x80, 0), EINVAL, "flags");
  ExpectError(xtreme_join(first, &group, nullptr, XTREME_EXCLUDE_SOURCE, 0), EINVAL, "source");
  ExpectError(xtreme_leave(first, &group, nullptr, 0), EADDRNOTAVAIL, "not joined");
  ASSERT_EQ(xtreme_join(first, &group, nullptr, 0, 8), 0) << xtreme_error();
  EXPECT_EQ(Await(ring, XTREME_OP_DONE).cookie, 8u);
  ExpectError(xtreme_join(first, &second, nullptr, 0, 0), ENOBUFS, "max_groups 1");
  ExpectError(xtreme_join(first, &group, &host, 0, 0), EINVAL, "wanted and unwanted");
  ASSERT_EQ(xtreme_leave(first, &group, nullptr, 9), 0);
  EXPECT_EQ(Await(ring, XTREME_OP_DONE).cookie, 9u);
  ExpectError(xtreme_udp_connect(first, &none, 0), EINVAL, "no destination");
}

// Eight ports are leased ahead; more come with a poll.
TEST_F(RingsTest, PortsThatAreStillLeasedArePolledFor) {
  const xtreme_ring ring = OpenRing();
  const xtreme_udp_options any = UdpOptions("*:0");
  int opened = 0;
  const int64_t end_ns = xtreme_ring_now(ring) + kLongNs;
  while (opened < 40 && xtreme_ring_now(ring) < end_ns) {
    xtreme_socket socket;
    const int code = xtreme_udp_open(ring, &any, &socket);
    opened += code == 0;
    if (code == 0) continue;
    ExpectError(code, EAGAIN, "poll, then open again");
    xtreme_completion other;
    const int count = xtreme_ring_poll(ring, &other, 1, sizeof other);
    xtreme_release(&other, count, sizeof other);
  }
  EXPECT_EQ(opened, 40);
}

// More, and not one datagram would find room for a completion to each.
TEST_F(RingsTest, NoMoreSocketsShareAPortThanThereIsRoomFor) {
  xtreme_ring_options options = Options("xt0");
  options.completions = 64;
  options.max_sockets = 100;
  const xtreme_ring ring = OpenRing(options);
  xtreme_udp_options udp = UdpOptions(":9000");
  udp.reuse = 1;
  xtreme_socket socket;
  int opened = 0, code = 0;
  while (opened < 100 && (code = xtreme_udp_open(ring, &udp, &socket)) == 0) {
    ++opened;
    Await(ring, XTREME_OP_DONE);
  }
  EXPECT_EQ(opened, 63);
  ExpectError(code, ENOBUFS, "completions 64 are too few");
  Inject(9000, "heard");
  xtreme_completion packet = Await(ring, XTREME_PACKET);
  EXPECT_EQ(Text(packet), "heard");
  xtreme_release(&packet, 1, sizeof packet);
}

TEST_F(RingsTest, Ipv6IsRefusedByEveryCallThatTakesAnAddress) {
  const xtreme_ring ring = OpenRing();
  const xtreme_socket socket = OpenSocket(ring, ":9000");
  const xtreme_address group = Address("239.1.2.3");
  const xtreme_address four = Address("10.1.0.2:5000");
  xtreme_address six = four;
  memset(six.ip, 0x20, sizeof six.ip);
  xtreme_udp_options udp = UdpOptions(":9001");
  udp.local.ip[0] = 0x20;
  xtreme_socket other;
  ExpectError(xtreme_udp_open(ring, &udp, &other), EAFNOSUPPORT, "open socket: IPv4 only");
  ExpectError(xtreme_udp_connect(socket, &six, 0), EAFNOSUPPORT, "connect: IPv4 only");
  ExpectError(xtreme_join(socket, &six, nullptr, 0, 0), EAFNOSUPPORT, "join: IPv4 only");
  ExpectError(xtreme_join(socket, &group, &six, 0, 0), EAFNOSUPPORT, "join: IPv4 only");
  ExpectError(xtreme_leave(socket, &six, nullptr, 0), EAFNOSUPPORT, "leave: IPv4 only");
  ExpectError(xtreme_leave(socket, &group, &six, 0), EAFNOSUPPORT, "leave: IPv4 only");
  EXPECT_EQ(xtreme_send_to(socket, &six, "x", 1, nullptr), XTREME_REFUSED_ROUTE);
  EXPECT_EQ(xtreme_send_buffer(socket, &six, nullptr, "x", 1, nullptr), XTREME_REFUSED_ROUTE);
  EXPECT_EQ(Counter(ring, "ring", "refused_route"), 2u);
  EXPECT_EQ(xtreme_send_to(socket, &four, "x", 1, nullptr), XTREME_SENT);
}

TEST_F(RingsTest, CountersHaveNamesMeaningsAndValues) {
  const xtreme_ring ring = OpenRing();
  const xtreme_socket socket = OpenSocket(ring, ":9000");
  Inject(9000, "x");
  xtreme_completion packet = Await(ring, XTREME_PACKET);
  xtreme_release(&packet, 1, sizeof packet);
  EXPECT_EQ(Counter(ring, "ring", "packets"), 1u);
  EXPECT_EQ(Counter(ring, "port", "out_of_buffer"), 0u);
  EXPECT_GT(Counter(ring, "pool", "free"), 0u);
  xtreme_counter counters[64];
  const int there = xtreme_socket_counters(socket, counters, 64);
  ASSERT_GT(there, 0);
  EXPECT_STREQ(counters[0].scope, "udp");
  EXPECT_STREQ(counters[0].name, "datagrams");
  EXPECT_EQ(counters[0].value, 1u);
  for (int i = 0; i < there; ++i) EXPECT_GT(strlen(counters[i].meaning), 8u) << counters[i].name;
  EXPECT_EQ(xtreme_socket_counters(socket, counters, 1), there);
  char text[2048];
  EXPECT_GT(xtreme_ring_describe(ring, text, sizeof text), 20);
}

TEST_F(RingsTest, APortOfAnyAddressIsTakenForTheRingsOfOtherInterfaces) {
  const xtreme_ring first = OpenRing("xt0");
  const xtreme_ring second = OpenRing("xt1");
  OpenSocket(first, ":9000");
  OpenSocket(first, "10.1.0.1:9001");
  OpenSocket(second, "10.2.0.1:9001");
  xtreme_udp_options options = UdpOptions(":9000");
  xtreme_socket socket = {};
  ASSERT_EQ(xtreme_udp_open(second, &options, &socket), 0) << xtreme_error();
  EXPECT_EQ(Await(second, XTREME_OP_DONE).status, EADDRINUSE);
  xtreme_tcp_options listening = {};
  listening.size = sizeof listening;
  listening.local = Address(":9002");
  ASSERT_EQ(xtreme_tcp_listen(first, &listening, &socket), 0) << xtreme_error();
  EXPECT_EQ(Await(first, XTREME_OP_DONE).status, 0);
  ASSERT_EQ(xtreme_tcp_listen(second, &listening, &socket), 0) << xtreme_error();
  EXPECT_EQ(Await(second, XTREME_OP_DONE).status, EADDRINUSE);
}

TEST_F(RingsTest, CountersArePublishedForOtherProgramsAndGoWithTheRing) {
  char directory[] = "/dev/shm/xtreme_api_test.XXXXXX";
  ASSERT_NE(mkdtemp(directory), nullptr);
  xtreme_ring_options options = Options("xt0");
  options.counters_directory = directory;
  const xtreme_ring ring = OpenRing(options, /*start=*/false);
  const xtreme_socket socket = OpenSocket(ring, ":9000");
  ASSERT_EQ(xtreme_ring_start(ring), 0);
  const auto paths = stats::ListSegments(directory);
  ASSERT_EQ(paths.size(), 1u);
  const auto segment = stats::ReadSegment(paths[0]);
  ASSERT_TRUE(segment.ok()) << segment.status();
  EXPECT_TRUE(segment->alive);
  EXPECT_EQ(segment->interface, "xt0");
  EXPECT_EQ(segment->counters.size(),
            static_cast<size_t>(xtreme_ring_counters(ring, nullptr, 0)));
  ASSERT_EQ(segment->sockets.size(), 1u);
  EXPECT_EQ(segment->sockets[0].handle, socket.value);
  EXPECT_EQ(segment->sockets[0].local_port, 9000);
  // Those of other protocols have a place too, and are 0.
  EXPECT_EQ(segment->sockets[0].values.size(), segment->socket_names.size());
  const auto of_udp = std::count_if(segment->socket_names.begin(), segment->socket_names.end(),
                                    [](const auto& name) { return name.scope == "udp"; });
  EXPECT_EQ(of_udp, xtreme_socket_counters(socket, nullptr, 0));
  ASSERT_EQ(xtreme_ring_close(ring), 0);
  EXPECT_TRUE(stats::ListSegments(directory).empty());
  EXPECT_EQ(rmdir(directory), 0);
}

TEST_F(RingsTest, ADirectoryForCountersThatIsNotThereIsToldAndTheRingOpens) {
  xtreme_ring_options options = Options("xt0");
  options.counters_directory = "/dev/shm/xtreme_absent";
  char text[2048];
  xtreme_ring_describe(OpenRing(options), text, sizeof text);
  EXPECT_NE(std::string_view(text).find("/dev/shm/xtreme_absent: No such file"),
            std::string_view::npos)
      << text;
}

}  // namespace
}  // namespace xtreme::api_test
