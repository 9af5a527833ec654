// SPDX-License-Identifier: Apache-2.0
//
// The C API over a software ConnectX that the test steps: two interfaces of a network namespace,
// each with a device behind it, and the other end of each device's cable in the test's hand.
//
// The library is the process' one, with its real clock and control thread. Threads: the test's.

#ifndef XTREME_TESTS_API_API_FIXTURE_H_
#define XTREME_TESTS_API_API_FIXTURE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/xtreme.h"
#include "gtest/gtest.h"
#include "stack/wire/ethernet.h"
#include "tests/net/namespace.h"
#include "tools/connectx/connectx.h"
#include "tools/connectx/wire/link.h"
#include "xtreme/engine/testing/ring_fixture.h"

namespace xtreme::api_test {

// The frames that came out of a device.
struct Frames : connectx::FrameSink {
  void OnFrame(std::span<const uint8_t> frame, int64_t) override {
    frames.emplace_back(frame.begin(), frame.end());
  }
  std::vector<std::vector<uint8_t>> frames;
};

class ApiTest : public ::testing::Test {
 protected:
  static constexpr int64_t kLongNs = 5'000'000'000;  // What takes longer will not come.
  static constexpr const char* kOwn[] = {"10.1.0.1", "10.2.0.1"};
  static constexpr const char* kPeer[] = {"10.1.0.2", "10.2.0.2"};

  void SetUp() override {
    auto space = net::Namespace::Create();
    ASSERT_TRUE(space.ok()) << space.status();
    space_ = *std::move(space);
    inside_ = std::make_unique<net::Namespace::Inside>(*space_);
    connectx::SoftwareConnectX::Options options;
    options.mode = connectx::SoftwareConnectX::Mode::kStep;
    for (int i = 0; i < 2; ++i) {
      const std::string name = "xt" + std::to_string(i);
      ASSERT_TRUE(net::ConnectByVeth(*space_, name, *space_, name + "peer").ok());
      const net::MacAddress mac = {2, 0, 0, 0, 0, 1};
      ASSERT_TRUE(space_->SetMac(name, mac).ok());
      ASSERT_TRUE(space_->AddAddress(name, std::string(kOwn[i]) + "/24").ok());
      ASSERT_TRUE(space_->AddNeighbour(name, kPeer[i], {2, 0, 0, 0, 0, 2}).ok());
      auto link = connectx::MakeLink();
      ASSERT_TRUE(link.ok()) << link.status();
      ends_[i] = *std::move(link);
      connectx::Device::Options device = DeviceOf(i);
      device.name = "mlx5_" + std::to_string(i);
      device.mac = mac;
      options.ports.push_back({.device = std::move(device),
                               .interface = name,
                               .wire = ends_[i][0].get()});
    }
    ASSERT_TRUE(space_->AddRoute("224.0.0.0/4", "xt0").ok());
    auto connectx = connectx::SoftwareConnectX::Create(std::move(options));
    ASSERT_TRUE(connectx.ok()) << connectx.status();
    connectx_ = *std::move(connectx);
  }

  // What kind of device is behind interface `at`; its name and address are the fixture's.
  virtual connectx::Device::Options DeviceOf(int at) const {
    static_cast<void>(at);
    return {};
  }

  void TearDown() override {
    for (const xtreme_ring ring : rings_) xtreme_ring_close(ring);
  }

  static xtreme_ring_options Options(const char* interface) {
    xtreme_ring_options options;
    EXPECT_EQ(xtreme_ring_options_init(&options, sizeof options, "dev"), 0);
    options.interface_name = interface;
    options.rx_buffers = 1024;
    options.counters_directory = "";
    return options;
  }
  xtreme_ring OpenRing(const char* interface = "xt0", bool start = true) {
    return OpenRing(Options(interface), start);
  }
  xtreme_ring OpenRing(const xtreme_ring_options& options, bool start = true) {
    xtreme_ring ring = {};
    EXPECT_EQ(xtreme_ring_open(&options, &ring), 0) << xtreme_error();
    if (start) {
      EXPECT_EQ(xtreme_ring_start(ring), 0) << xtreme_error();
    }
    rings_.push_back(ring);
    return ring;
  }
  static xtreme_udp_options UdpOptions(const char* local) {
    xtreme_udp_options options = {};
    options.size = sizeof options;
    EXPECT_EQ(xtreme_address_parse(local, &options.local), 0);
    return options;
  }
  xtreme_socket OpenSocket(xtreme_ring ring, const char* local) {
    return OpenSocket(ring, UdpOptions(local));
  }
  xtreme_socket OpenSocket(xtreme_ring ring, const xtreme_udp_options& options) {
    xtreme_socket socket = {};
    EXPECT_EQ(xtreme_udp_open(ring, &options, &socket), 0) << xtreme_error();
    const xtreme_completion done = Await(ring, XTREME_OP_DONE);
    EXPECT_EQ(done.status, 0) << (done.text == nullptr ? "" : done.text);
    EXPECT_EQ(done.socket.value, socket.value);
    return socket;
  }
  static xtreme_address Address(const char* text) {
    xtreme_address address = {};
    EXPECT_EQ(xtreme_address_parse(text, &address), 0) << text;
    return address;
  }
  void Connect(xtreme_ring ring, xtreme_socket socket, const char* peer) {
    const xtreme_address to = Address(peer);
    ASSERT_EQ(xtreme_udp_connect(socket, &to, 5), 0) << xtreme_error();
    const xtreme_completion done = Await(ring, XTREME_OP_DONE);
    EXPECT_EQ(done.cookie, 5u);
    EXPECT_EQ(done.status, 0);
  }

  // The next completion of this kind, those before it released; one of kind NONE if none comes.
  xtreme_completion Await(xtreme_ring ring, int kind) {
    const int64_t end_ns = xtreme_ring_now(ring) + kLongNs;
    while (xtreme_ring_now(ring) < end_ns) {
      connectx_->Step();
      xtreme_completion completion = {};
      if (xtreme_ring_wait(ring, &completion, 1, sizeof completion, 1'000'000) < 1) continue;
      if (completion.kind == kind) return completion;
      xtreme_release(&completion, 1, sizeof completion);
    }
    ADD_FAILURE() << "no completion of kind " << kind;
    return {};
  }

  // A datagram for port `port` from the other end of cable `at`, which arrives at that time.
  void Inject(uint16_t port, std::string_view payload, int at = 0, int64_t time_ns = 0) {
    engine::testing::FrameFields fields;
    const auto ip = [at](uint8_t host) {
      return wire::Ipv4Address(10, static_cast<uint8_t>(1 + at), 0, host);
    };
    fields.source = {ip(2), 5000};
    fields.destination = {ip(1), port};
    fields.payload = std::string(payload);
    ends_[at][1]->Transmit(engine::testing::MakeFrame(fields), time_ns);
    connectx_->Step();
  }
  // The payloads of the UDP datagrams that left device 0.
  std::vector<std::string> Sent() {
    connectx_->Step();
    Frames sink;
    ends_[0][1]->Receive(sink, 1000, 0);
    std::vector<std::string> payloads;
    for (const std::vector<uint8_t>& frame : sink.frames) {
      if (frame.size() < 42 || frame[23] != 17) continue;
      const size_t length = static_cast<size_t>(frame[38]) << 8 | frame[39];
      payloads.emplace_back(frame.begin() + 42,
                            frame.begin() + static_cast<long>(34 + length));
    }
    return payloads;
  }
  static std::string Text(const xtreme_completion& packet) {
    std::string text(packet.length, 0);
    text.resize(xtreme_copy_out(&packet, text.data(), text.size()));
    return text;
  }
  static uint64_t Counter(xtreme_ring ring, std::string_view scope, std::string_view name) {
    std::vector<xtreme_counter> counters(1000);
    counters.resize(static_cast<size_t>(xtreme_ring_counters(ring, counters.data(), 1000)));
    for (const xtreme_counter& counter : counters) {
      if (counter.scope == scope && counter.name == name) return counter.value;
    }
    ADD_FAILURE() << "no counter " << scope << "/" << name;
    return 0;
  }

  std::unique_ptr<net::Namespace> space_;
  std::unique_ptr<net::Namespace::Inside> inside_;
  std::array<std::array<std::unique_ptr<connectx::LinkEnd>, 2>, 2> ends_;
  std::unique_ptr<connectx::SoftwareConnectX> connectx_;
  std::vector<xtreme_ring> rings_;  // Closed at the end; closing twice is EBADF.
};

}  // namespace xtreme::api_test

#endif  // XTREME_TESTS_API_API_FIXTURE_H_
