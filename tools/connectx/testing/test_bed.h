// SPDX-License-Identifier: Apache-2.0
//
// A test bed for programs on ConnectX cards: software devices whose wires the test holds in its
// hand. It sends frames to a device, sees what the device sends, loses frames, pulls cables.
//
// One device a port. A port with an interface is found by that name, by Xtreme as by any driver: it
// stands, with its address, in a network namespace of the test's own that the calling thread is in
// while the bed lives. Link //tools/connectx/testing:main, so that no privilege is needed.
// Invariant: one bed at a time in a process, made before the first verb and destroyed after the
// last. Wrong use ends the test with a message (abort).
// Units: nanoseconds; addresses as text. Thread: the test's, but the devices have one of their own
// under the real clock.

#ifndef XTREME_TOOLS_CONNECTX_TESTING_TEST_BED_H_
#define XTREME_TOOLS_CONNECTX_TESTING_TEST_BED_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace xtreme::connectx {

class TestBed {
 public:
  using Mac = std::array<uint8_t, 6>;
  using Frame = std::vector<uint8_t>;

  struct Port {
    std::string interface;  // "eth2"; empty: none, for programs that speak verbs only.
    std::string address;    // Of the interface: "10.0.0.1/24".
    // Of a Linux host at the other end of the wire, in the same network: "10.0.0.9/24"; its groups
    // go there too. Empty: there is none, the wire is the test's. Not under the virtual clock.
    std::string host;
  };

  struct Options {
    std::vector<Port> ports;     // Devices mlx5_0, mlx5_1 ...
    bool virtual_clock = false;  // Then nothing happens but in Pump.
    // Settings of the devices by the names that tools/connectx/run prints: {"LOSS", "0.01"},
    // {"SEED", "7"}, {"PERSONALITY", "cx6dx"}, {"WITHOUT", "blueflame"}, {"CAPTURE", "x.pcapng"},
    // {"MTU", "9000"}: of the interfaces too. Faults hit frames in both directions. INTERFACE,
    // SHARED, DEVICES, COUNTERS and REPORT are the launcher's, and wrong use here.
    std::map<std::string, std::string> settings;

    // What the connectx_test rule of this test says.
    static Options FromRule();
  };

  // A UDP datagram. Addresses as "10.0.0.1:7000".
  struct Datagram {
    std::string source;
    std::string destination;
    std::string payload;

    friend bool operator==(const Datagram&, const Datagram&) = default;
  };

  enum class Way { kToDevice, kFromDevice };

  // With the options of the rule.
  TestBed();
  explicit TestBed(const Options& options);
  ~TestBed();
  TestBed(const TestBed&) = delete;
  TestBed& operator=(const TestBed&) = delete;

  // A host that answers to no ARP: the kernel knows that `address` ("10.0.0.9") is behind the port.
  void AddPeer(size_t port, const std::string& address);

  // A socket (SOCK_STREAM, SOCK_DGRAM) of the host at the other end of a port that has one, by
  // whose kernel it talks with the device, over the wire's faults; the caller closes it. Send,
  // Expect and Overrun of such a port are wrong use.
  int HostSocket(size_t port, int type);

  // Puts a frame of 14 to 10,000 bytes on the wire to the device. False: 1,024 wait already.
  bool Send(size_t port, std::span<const uint8_t> frame);
  // The same with headers and right checksums; multicast where the destination is a group.
  bool Send(size_t port, const Datagram& datagram);

  // The next frame that the device sent. Nothing: none came within `patience_ms` of real time, or,
  // under the virtual clock, none is there now.
  std::optional<Frame> Expect(size_t port, int patience_ms = 5'000);
  // The next frame that is a UDP datagram; others (ARP, IGMP) are passed over.
  std::optional<Datagram> ExpectDatagram(size_t port, int patience_ms = 5'000);

  // Loses the next `count` frames of that way.
  void Drop(size_t port, Way way, uint64_t count);
  // Pulls the cable out, or plugs it in.
  void SetConnected(size_t port, bool connected);
  // Sends `frame` until the device has run out of receive buffers; returns how often it was sent. 0
  // if that did not happen within 100,000 frames.
  int Overrun(size_t port, std::span<const uint8_t> frame);
  // Virtual clock: moves it, and lets the devices do all that is due. False: nothing was.
  bool Pump(int64_t advance_ns = 0);

  // A counter of the port as the card's sysfs has it ("out_of_buffer"), or of its wire
  // ("impaired_rx_lost").
  uint64_t Counter(size_t port, std::string_view name) const;
  // What the program did that hardware punishes; empty after a good test.
  std::vector<std::string> Violations() const;

  // Of the device, and of the hosts at the other end.
  Mac device_mac(size_t port) const;
  Mac peer_mac() const;

  // An address or a port that is none, and more payload than a datagram takes, are wrong use.
  static Frame Encode(const Datagram& datagram, const Mac& from, const Mac& to);
  // Nothing, unless it is UDP over IPv4 without a VLAN tag, whole and with right checksums.
  static std::optional<Datagram> Decode(std::span<const uint8_t> frame);

 private:
  struct State;

  const std::unique_ptr<State> state_;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_TESTING_TEST_BED_H_
