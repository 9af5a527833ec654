// SPDX-License-Identifier: Apache-2.0
//
// A program's side of the device for tests: rings, records and buffers in plain memory, WQEs byte
// by byte, a wire that records and injects. The device runs in step mode under a virtual clock.
//
// Invariant: nothing here uses the device's code for layouts; offsets are written out as numbers.
// Units: bytes, WQEBBs. Byte order: Be* functions write big endian. Thread: one.

#ifndef XTREME_TOOLS_CONNECTX_DEVICE_TEST_PROGRAM_H_
#define XTREME_TOOLS_CONNECTX_DEVICE_TEST_PROGRAM_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/connectx/device/device.h"
#include "tools/connectx/device/test_frame.h"

namespace xtreme::connectx {

class ScriptedWire final : public Wire {
 public:
  bool Transmit(std::span<const uint8_t> frame, int64_t) override {
    if (full) return false;
    sent.emplace_back(frame.begin(), frame.end());
    return true;
  }
  int Receive(FrameSink& sink, int max, int64_t now_ns) override;
  int fd() const override { return -1; }
  absl::Status AddRule(const WireRule& rule) override;
  absl::Status RemoveRule(const WireRule& rule) override;
  bool up() const override { return plugged; }
  uint32_t mtu() const override { return own_mtu; }
  std::vector<NamedCount> counters() const override { return {}; }

  void Arrive(Bytes frame) { waiting.push_back(std::move(frame)); }

  bool full = false;
  bool plugged = true;
  uint32_t own_mtu = 0;
  bool refuses_rules = false;
  std::vector<Bytes> sent;
  std::deque<Bytes> waiting;
  std::vector<WireRule> rules;
};

class RecordingSink final : public EventSink {
 public:
  void OnCompletion(uint64_t user_handle) override { completions.push_back(user_handle); }
  void OnAsync(ibv_event_type type, uint64_t user_handle) override {
    async.emplace_back(type, user_handle);
  }

  std::vector<uint64_t> completions;
  std::vector<std::pair<ibv_event_type, uint64_t>> async;
};

// The last 64 bytes of a CQE, by field.
struct Cqe {
  Bytes bytes;
  uint8_t opcode() const { return bytes[63] >> 4; }
  uint8_t owner() const { return bytes[63] & 1; }
  uint8_t syndrome() const { return bytes[55]; }
  uint8_t vendor_syndrome() const { return bytes[54]; }
  uint8_t checks() const { return bytes[28]; }        // L2 1, L3 2, L4 4.
  uint8_t header_types() const { return bytes[29]; }  // L4 << 4, L3 << 2.
  uint32_t uidx() const { return Word(32); }
  uint32_t rx_hash() const { return Word(12); }
  uint8_t rx_hash_type() const { return bytes[16]; }
  uint16_t vlan_info() const { return static_cast<uint16_t>(bytes[30] << 8 | bytes[31]); }
  uint32_t byte_count() const { return Word(44); }
  uint64_t timestamp() const { return uint64_t{Word(48)} << 32 | Word(52); }
  uint32_t tag_or_qpn() const { return Word(56); }
  uint16_t wqe_counter() const { return static_cast<uint16_t>(Word(60) >> 16); }

 private:
  uint32_t Word(size_t at) const {
    return static_cast<uint32_t>(bytes[at] << 24 | bytes[at + 1] << 16 | bytes[at + 2] << 8 |
                                 bytes[at + 3]);
  }
};

class TestCq {
 public:
  TestCq(Device* device, uint32_t uar_page, uint8_t* uar, uint32_t entries, uint32_t cqe_size = 64,
         bool real_time = false);
  // Consumes the next CQE, or says there is none. The record is updated.
  std::optional<Cqe> Poll();
  // Polls and leaves the record alone.
  std::optional<Cqe> PollQuietly();
  // Writes arm record and doorbell.
  void Arm(bool solicited_only = false);

  uint32_t cqn = 0;
  uint32_t consumer = 0;
  uint32_t arm_sequence = 0;
  RecordingSink sink;
  uint32_t* record() { return record_.data(); }
  uint8_t* ring() { return ring_.get(); }

 private:
  const uint32_t entries_;
  const uint32_t cqe_size_;
  uint8_t* const uar_;
  std::unique_ptr<uint8_t[]> ring_;
  alignas(64) std::array<uint32_t, 2> record_{};
};

// A send WQE under construction: sixteen-byte segments.
class Wqe {
 public:
  explicit Wqe(uint8_t opcode = 0x0a, uint8_t fm_ce_se = 2 << 2);
  Wqe& Eth(std::span<const uint8_t> inline_header, uint8_t cs_flags = 0, uint16_t mss = 0);
  // An Ethernet segment that asks for a tag: TPID 0x8100 or 0x88a8.
  Wqe& EthWithTag(uint16_t tpid, uint16_t tci, uint8_t cs_flags = 0);
  Wqe& Inline(std::span<const uint8_t> bytes);
  Wqe& Data(uint32_t lkey, uint64_t address, uint32_t byte_count);
  Bytes bytes;

  // What Post writes instead of the truth.
  std::optional<uint16_t> index;
  std::optional<uint32_t> qpn;
  std::optional<uint8_t> segments;
};

class TestQp {
 public:
  struct Shape {
    uint32_t wqebbs = 8;
    uint32_t wqes = 4;
    uint32_t wqe_shift_log2 = 5;  // Two data segments.
    uint32_t uidx = 0xabcde;
    ContextId context = 1;
    bool strip_vlan = false;
    SelfLoopback self_loopback;
  };
  TestQp(Device* device, uint32_t pd, const Uar& uar, TestCq* send_cq, TestCq* receive_cq,
         const Shape& shape);

  void ToRts();
  // To RESET, indices and record to 0.
  void Reset();
  // Puts a WQE into the ring and moves the record, without ringing.
  void Post(const Wqe& wqe);
  // Rings for the WQE posted last, at one of the four registers.
  void Ring(int slot = 0);
  // Rings with the whole WQE.
  void RingBlueFlame(int slot = 0);
  void PostAndRing(const Wqe& wqe) {
    Post(wqe);
    Ring();
  }
  struct Piece {
    uint32_t lkey;
    uint64_t address;
    uint32_t byte_count;
  };
  // Posts one receive WQE and moves the record.
  void PostReceive(const std::vector<Piece>& pieces);

  uint32_t qpn = 0;
  RecordingSink sink;
  uint32_t* record() { return record_.data(); }
  uint8_t* send_ring() { return send_ring_.get(); }
  uint8_t* receive_ring() { return receive_ring_.get(); }

 private:
  Device* const device_;
  const Shape shape_;
  uint8_t* const uar_;
  std::unique_ptr<uint8_t[]> send_ring_;
  std::unique_ptr<uint8_t[]> receive_ring_;
  alignas(64) std::array<uint32_t, 2> record_{};
  uint16_t next_ = 0;
  uint16_t last_ = 0;
  uint16_t next_receive_ = 0;
};

// One device, one protection domain, 64 KB of registered memory.
class TestProgram {
 public:
  explicit TestProgram(Device::Options options = DefaultOptions());
  static Device::Options DefaultOptions();

  std::unique_ptr<TestCq> MakeCq(uint32_t entries = 16, uint32_t cqe_size = 64,
                                 bool real_time = false);
  // In RTS, completing at `send_cq` and `receive_cq`.
  std::unique_ptr<TestQp> MakeQp(TestCq* send_cq, TestCq* receive_cq,
                                 const TestQp::Shape& shape = {});
  // A rule {EtherType IPv4} or what `request` says, to `qp`.
  uint32_t Steer(const TestQp& qp, FlowRequest request = {});
  // Services the device until it has nothing to do.
  void Step();
  uint64_t CounterValue(std::string_view name) const;
  // The rules' names of all violations, in order, joined by spaces.
  std::string Violations() const;

  uint64_t Address(size_t offset) const { return kIova + offset; }

  static constexpr uint64_t kIova = 0x7000'0000;
  VirtualClock clock;
  ScriptedWire wire;
  std::unique_ptr<Device> device;
  uint32_t pd = 0;
  Uar uar;
  Bytes memory;
  MemoryKeys keys;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_DEVICE_TEST_PROGRAM_H_
