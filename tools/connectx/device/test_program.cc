// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/device/test_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>

namespace xtreme::connectx {
namespace {

uint32_t Be32(uint32_t value) { return __builtin_bswap32(value); }

void Put32(uint8_t* at, uint32_t value) {
  value = Be32(value);
  std::memcpy(at, &value, sizeof(value));
}

void Append32(Bytes* bytes, uint32_t value) {
  bytes->resize(bytes->size() + 4);
  Put32(bytes->data() + bytes->size() - 4, value);
}

void PadToSegment(Bytes* bytes) { bytes->resize((bytes->size() + 15) / 16 * 16); }

void StoreDoorbell(uint8_t* at, const uint8_t* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof(word));
  std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(at)).store(word);
}

// Release: what was written before is the device's when it sees the record.
void StoreRecord(uint32_t* word, uint32_t value) {
  std::atomic_ref<uint32_t>(*word).store(Be32(value), std::memory_order_release);
}

}  // namespace

int ScriptedWire::Receive(FrameSink& sink, int max, int64_t now_ns) {
  int count = 0;
  for (; count < max && !waiting.empty(); ++count) {
    sink.OnFrame(waiting.front(), now_ns);
    waiting.pop_front();
  }
  return count;
}

absl::Status ScriptedWire::AddRule(const WireRule& rule) {
  if (refuses_rules) return absl::ResourceExhaustedError("no room for a rule");
  rules.push_back(rule);
  return absl::OkStatus();
}

absl::Status ScriptedWire::RemoveRule(const WireRule& rule) {
  const auto found = std::find(rules.begin(), rules.end(), rule);
  if (found == rules.end()) return absl::NotFoundError("no such rule");
  rules.erase(found);
  return absl::OkStatus();
}

TestCq::TestCq(Device* device, uint32_t uar_page, uint8_t* uar, uint32_t entries, uint32_t cqe_size,
               bool real_time)
    : entries_(entries),
      cqe_size_(cqe_size),
      uar_(uar),
      ring_(std::make_unique<uint8_t[]>(size_t{entries} * cqe_size)) {
  std::memset(ring_.get(), 0xa5, size_t{entries} * cqe_size);
  for (uint32_t i = 0; i < entries; ++i) ring_[(i + 1) * cqe_size - 1] = 0xf0;
  CqRequest request{.ring = ring_.get(),
                    .entries = entries,
                    .cqe_size = cqe_size,
                    .doorbell_record = record_.data(),
                    .uar = uar_page,
                    .completions = &sink,
                    .async = &sink,
                    .user_handle = 0xc0,
                    .real_time = real_time};
  EXPECT_EQ(device->CreateCq(request, &cqn), 0);
}

std::optional<Cqe> TestCq::PollQuietly() {
  uint8_t* slot = ring_.get() + size_t{(consumer & (entries_ - 1)) + 1} * cqe_size_ - 64;
  const uint8_t op_own = std::atomic_ref<uint8_t>(slot[63]).load(std::memory_order_acquire);
  if (op_own >> 4 == 15 || (op_own & 1) != ((consumer & entries_) != 0 ? 1 : 0)) return {};
  ++consumer;
  return Cqe{Bytes(slot, slot + 64)};
}

std::optional<Cqe> TestCq::Poll() {
  std::optional<Cqe> cqe = PollQuietly();
  StoreRecord(&record_[0], consumer & 0xffffff);
  return cqe;
}

void TestCq::Arm(bool solicited_only) {
  const uint32_t word =
      arm_sequence << 28 | (solicited_only ? 1u << 24 : 0) | (consumer & 0xffffff);
  StoreRecord(&record_[1], word);
  uint8_t doorbell[8];
  Put32(doorbell, word);
  Put32(doorbell + 4, cqn);
  StoreDoorbell(uar_ + 0x20, doorbell);
}

Wqe::Wqe(uint8_t opcode, uint8_t fm_ce_se) {
  bytes.resize(16);
  bytes[3] = opcode;
  bytes[11] = fm_ce_se;
}

Wqe& Wqe::EthWithTag(uint16_t tpid, uint16_t tci, uint8_t cs_flags) {
  const size_t at = bytes.size();
  bytes.resize(at + 16);
  bytes[at + 4] = cs_flags;
  bytes[at + 12] = 0x80;
  bytes[at + 13] = tpid == 0x88a8 ? 1 : 0;
  bytes[at + 14] = static_cast<uint8_t>(tci >> 8);
  bytes[at + 15] = static_cast<uint8_t>(tci);
  return *this;
}

Wqe& Wqe::Eth(std::span<const uint8_t> inline_header, uint8_t cs_flags, uint16_t mss) {
  const size_t at = bytes.size();
  bytes.resize(at + 14);
  bytes[at + 4] = cs_flags;
  bytes[at + 6] = static_cast<uint8_t>(mss >> 8);
  bytes[at + 7] = static_cast<uint8_t>(mss);
  bytes[at + 12] = static_cast<uint8_t>(inline_header.size() >> 8);
  bytes[at + 13] = static_cast<uint8_t>(inline_header.size());
  bytes.insert(bytes.end(), inline_header.begin(), inline_header.end());
  PadToSegment(&bytes);
  return *this;
}

Wqe& Wqe::Inline(std::span<const uint8_t> inlined) {
  Append32(&bytes, 0x80000000u | static_cast<uint32_t>(inlined.size()));
  bytes.insert(bytes.end(), inlined.begin(), inlined.end());
  PadToSegment(&bytes);
  return *this;
}

Wqe& Wqe::Data(uint32_t lkey, uint64_t address, uint32_t byte_count) {
  Append32(&bytes, byte_count);
  Append32(&bytes, lkey);
  Append32(&bytes, static_cast<uint32_t>(address >> 32));
  Append32(&bytes, static_cast<uint32_t>(address));
  return *this;
}

TestQp::TestQp(Device* device, uint32_t pd, const Uar& uar, TestCq* send_cq, TestCq* receive_cq,
               const Shape& shape)
    : device_(device),
      shape_(shape),
      uar_(uar.page),
      send_ring_(std::make_unique<uint8_t[]>(size_t{shape.wqebbs} * 64)),
      receive_ring_(std::make_unique<uint8_t[]>(size_t{shape.wqes} << shape.wqe_shift_log2)) {
  const QpRequest request{
      .context = shape.context,
      .pd = pd,
      .send = {send_ring_.get(), shape.wqebbs, send_cq->cqn},
      .receive = {receive_ring_.get(), shape.wqes, shape.wqe_shift_log2, receive_cq->cqn,
                  shape.strip_vlan},
      .doorbell_record = record_.data(),
      .uidx = shape.uidx,
      .uar = uar.page_id,
      .self_loopback = shape.self_loopback,
      .async = &sink,
      .user_handle = 0x9b};
  EXPECT_EQ(device->CreateQp(request, &qpn), 0);
}

void TestQp::ToRts() {
  EXPECT_EQ(device_->ModifyQp(qpn, IBV_QPS_INIT), 0);
  EXPECT_EQ(device_->ModifyQp(qpn, IBV_QPS_RTR), 0);
  EXPECT_EQ(device_->ModifyQp(qpn, IBV_QPS_RTS), 0);
}

void TestQp::Reset() {
  EXPECT_EQ(device_->ModifyQp(qpn, IBV_QPS_RESET), 0);
  record_ = {};
  next_ = last_ = next_receive_ = 0;
}

void TestQp::Post(const Wqe& wqe) {
  Bytes bytes = wqe.bytes;
  const auto segments = static_cast<uint32_t>(bytes.size() / 16);
  Put32(bytes.data(), static_cast<uint32_t>(wqe.index.value_or(next_)) << 8 | bytes[3]);
  Put32(bytes.data() + 4, wqe.qpn.value_or(qpn) << 8 | wqe.segments.value_or(segments));
  const size_t ring_bytes = size_t{shape_.wqebbs} * 64;
  for (size_t i = 0; i < bytes.size(); ++i) {
    send_ring_[(next_ * size_t{64} + i) % ring_bytes] = bytes[i];
  }
  last_ = next_;
  next_ = static_cast<uint16_t>(next_ + (segments + 3) / 4);
  StoreRecord(&record_[1], next_);
}

void TestQp::Ring(int slot) {
  StoreDoorbell(uar_ + 0x800 + slot * 0x100,
                send_ring_.get() + size_t{last_ & (shape_.wqebbs - 1)} * 64);
}

void TestQp::RingBlueFlame(int slot) {
  uint8_t* reg = uar_ + 0x800 + slot * 0x100;
  const uint16_t wqebbs = static_cast<uint16_t>(next_ - last_);
  for (uint16_t i = 0; i < wqebbs; ++i) {
    const size_t at = (last_ + size_t{i}) & (shape_.wqebbs - 1);
    std::memcpy(reg + size_t{i} * 64, send_ring_.get() + at * 64, 64);
  }
}

void TestQp::PostReceive(const std::vector<Piece>& pieces) {
  const size_t stride = size_t{1} << shape_.wqe_shift_log2;
  uint8_t* wqe = receive_ring_.get() + (next_receive_ & (shape_.wqes - 1)) * stride;
  size_t at = 0;
  for (const Piece& piece : pieces) {
    Put32(wqe + at, piece.byte_count);
    Put32(wqe + at + 4, piece.lkey);
    Put32(wqe + at + 8, static_cast<uint32_t>(piece.address >> 32));
    Put32(wqe + at + 12, static_cast<uint32_t>(piece.address));
    at += 16;
  }
  if (at < stride) {
    std::memset(wqe + at, 0, 16);
    Put32(wqe + at + 4, 0x100);
  }
  StoreRecord(&record_[0], ++next_receive_);
}

Device::Options TestProgram::DefaultOptions() {
  Device::Options options;
  options.mac = {0x02, 0, 0, 0, 0, 0x01};
  options.eth_min_inline = Device::MinInline::kNone;
  options.step = true;
  return options;
}

TestProgram::TestProgram(Device::Options options)
    : device(*Device::Create(options, &wire, &clock)), memory(65536, 0x5a) {
  EXPECT_EQ(device->AllocPd(&pd), 0);
  EXPECT_EQ(device->AllocUar(UarType::kNonCached, &uar), 0);
  const MemoryRequest request{.pd = pd,
                              .start = memory.data(),
                              .length = memory.size(),
                              .iova = kIova,
                              .local_write = true};
  EXPECT_EQ(device->RegisterMemory(request, &keys), 0);
}

std::unique_ptr<TestCq> TestProgram::MakeCq(uint32_t entries, uint32_t cqe_size,
                                            bool real_time) {
  return std::make_unique<TestCq>(device.get(), uar.page_id, uar.page, entries, cqe_size,
                                  real_time);
}

std::unique_ptr<TestQp> TestProgram::MakeQp(TestCq* send_cq, TestCq* receive_cq,
                                            const TestQp::Shape& shape) {
  auto qp = std::make_unique<TestQp>(device.get(), pd, uar, send_cq, receive_cq, shape);
  qp->ToRts();
  return qp;
}

uint32_t TestProgram::Steer(const TestQp& qp, FlowRequest request) {
  if (request.mask == FlowFields{}) {
    request.value.ether_type = 0x0800;
    request.mask.ether_type = 0xffff;
  }
  request.qp = qp.qpn;
  uint32_t flow = 0;
  EXPECT_EQ(device->CreateFlow(request, &flow), 0);
  return flow;
}

void TestProgram::Step() {
  while (device->Service()) {
  }
}

uint64_t TestProgram::CounterValue(std::string_view name) const {
  for (const Device::NamedCounter& counter : device->Counters()) {
    if (name == counter.name) return counter.value;
  }
  ADD_FAILURE() << "no counter " << name;
  return 0;
}

std::string TestProgram::Violations() const {
  std::string names;
  for (const std::string& violation : device->Violations()) {
    names += (names.empty() ? "" : " ") + violation.substr(0, violation.find(':'));
  }
  return names;
}

}  // namespace xtreme::connectx
