// SPDX-License-Identifier: Apache-2.0
//
// What the log says of each rule that a program breaks, to the letter: a row for every message that
// there is, and each provoked on purpose.

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tools/connectx/device/test_program.h"
#include "tools/connectx/device/violation.h"

namespace xtreme::connectx {
namespace {

constexpr uint8_t kNop = 0x00;
constexpr uint8_t kSend = 0x0a;
constexpr uint8_t kTso = 0x0e;

// The numbers in the messages: QP 0x10000, CQ 0x400, UAR page 1, lkey 0x1000 for 64 KB at
// 0x70000000. Eight WQEBBs, four receive WQEs, sixteen CQEs.
struct Scene {
  explicit Scene(const Device::Options& options) : program(options) {}

  void Post(const Wqe& wqe) { qp->PostAndRing(wqe); }
  Wqe Data(uint64_t offset, uint32_t bytes) {
    return Wqe().Eth({}).Data(program.keys.lkey, program.Address(offset), bytes);
  }
  void Receive(uint32_t lkey, uint32_t room) {
    program.Steer(*qp);
    qp->PostReceive({{lkey, program.Address(0), room}});
    program.wire.Arrive(MakeFrame({}));
  }
  void CorruptBlueFlame() {
    qp->Post(Wqe().Eth(Bytes(18, 3)).Inline(Bytes(46, 4)));
    qp->RingBlueFlame();
    program.uar.page[0x800 + 100] ^= 1;
  }
  // Of 1,000 bytes each; the first has left, and then there is no more to send.
  void TakeSegmentsAway() {
    ASSERT_EQ(program.device->ModifyQp(qp->qpn, IBV_QPS_RTS, Rate{.kbps = 1'000'000}), 0);
    Bytes header = MakeFrame({.protocol = 6, .payload = "", .checksums = false});
    header.resize(54);
    Post(Wqe(kTso).Eth(header, 0, 1000).Data(program.keys.lkey, program.Address(0), 4000));
    program.Step();
    const uint32_t bytes = __builtin_bswap32(500);
    std::memcpy(qp->send_ring() + 16 + 80, &bytes, sizeof(bytes));
    program.clock.Advance(10'000);
  }

  TestProgram program;
  std::unique_ptr<TestCq> cq = program.MakeCq();
  std::unique_ptr<TestQp> qp = program.MakeQp(cq.get(), cq.get(), {.wqebbs = 8});
};

struct Row {
  const char* message;
  std::function<void(Scene&)> provoke;
  std::function<void(Device::Options&)> configure = [](Device::Options&) {};
};

Wqe With(Wqe wqe, const std::function<void(Wqe&)>& what) {
  what(wqe);
  return wqe;
}

const Row kRows[] = {
    {"wqe_index: QP 0x10000: WQEBB 0: WQE carries index 9",
     [](Scene& s) { s.Post(With(Wqe(kNop), [](Wqe& w) { w.index = 9; })); }},
    {"wqe_qpn: QP 0x10000: WQEBB 0: WQE carries QPN 0x77",
     [](Scene& s) { s.Post(With(Wqe(kNop), [](Wqe& w) { w.qpn = 0x77; })); }},
    {"wqe_size: QP 0x10000: WQEBB 0: no segments",
     [](Scene& s) { s.Post(With(Wqe(kNop), [](Wqe& w) { w.segments = 0; })); }},
    {"wqe_size: QP 0x10000: WQEBB 0: 9 segments, the record covers 1 WQEBBs",
     [](Scene& s) { s.Post(With(Wqe(kNop), [](Wqe& w) { w.segments = 9; })); }},
    {"wqe_size: QP 0x10000: WQEBB 0: no Ethernet segment", [](Scene& s) { s.Post(Wqe(kSend)); }},
    {"wqe_size: QP 0x10000: WQEBB 0: 3 segments, 60 header bytes",
     [](Scene& s) {
       s.Post(With(Wqe().Eth(Bytes(60, 0)), [](Wqe& w) { w.segments = 3; }));
     }},
    {"wqe_size: QP 0x10000: WQEBB 0: 40 inline bytes in 2 segments",
     [](Scene& s) {
       s.Post(With(Wqe().Eth({}).Inline(Bytes(40, 0)), [](Wqe& w) { w.segments = 4; }));
     }},
    {"opcode: QP 0x10000: WQEBB 0: opcode 0x77", [](Scene& s) { s.Post(Wqe(0x77)); }},
    {"inline_header: QP 0x10000: WQEBB 0: 17 header bytes inline, the device needs 18",
     [](Scene& s) { s.Post(Wqe().Eth(Bytes(17, 0)).Inline(Bytes(60, 0))); },
     [](Device::Options& options) { options.eth_min_inline = Device::MinInline::kL2; }},
    {"frame_length: QP 0x10000: WQEBB 0: data segment of 0 bytes",
     [](Scene& s) { s.Post(s.Data(0, 0)); }},
    {"frame_length: QP 0x10000: WQEBB 0: frame of 10 bytes",
     [](Scene& s) { s.Post(Wqe().Eth({}).Inline(Bytes(10, 0))); }},
    {"frame_length: QP 0x10000: WQEBB 0: frame of 1515 bytes, MTU 1500",
     [](Scene& s) { s.Post(s.Data(0, 1515)); }},
    {"frame_length: QP 0x10000: WQEBB 0: 12000 bytes, at most 9996",
     [](Scene& s) {
       s.Post(s.Data(0, 6000).Data(s.program.keys.lkey, s.program.Address(0), 6000));
     }},
    {"frame_length: QP 0x10000: WQEBB 0: 4097 bytes, at most 4096",
     [](Scene& s) {
       s.Post(Wqe(kTso).Eth(Bytes(54, 0), 0, 1000)
                  .Data(s.program.keys.lkey, s.program.Address(0), 4097));
     },
     [](Device::Options& options) { options.limits.tso_bytes = 4096; }},
    {"memory_key: QP 0x10000: WQEBB 0: lkey 0x1000 does not cover 100 bytes at 0x7000ff9d",
     [](Scene& s) { s.Post(s.Data(65536 - 99, 100)); }},
    {"segmentation: QP 0x10000: WQEBB 0: 42 inline bytes are not the headers of a TCP segment",
     [](Scene& s) {
       s.Post(Wqe(kTso).Eth(Bytes(42, 0), 0, 100)
                  .Data(s.program.keys.lkey, s.program.Address(0), 200));
     }},
    {"segmentation: QP 0x10000: WQEBB 0: of 500 bytes, 1000 of which were sent already",
     [](Scene& s) { s.TakeSegmentsAway(); }},
    {"feature: QP 0x10000: WQEBB 0: cs_flags 0x10, mss 0",
     [](Scene& s) { s.Post(Wqe().Eth({}, 0x10).Inline(Bytes(60, 0))); }},
    {"feature: QP 0x10000: WQEBB 0: cs_flags 0, mss 100",
     [](Scene& s) { s.Post(Wqe().Eth({}, 0, 100).Inline(Bytes(60, 0))); }},
    {"feature: QP 0x10000: WQEBB 0: cs_flags 0x80, mss 0",
     [](Scene& s) { s.Post(Wqe(kTso).Eth(Bytes(54, 0), 0x80, 0).Inline(Bytes(60, 0))); }},
    {"feature: QP 0x10000: WQEBB 0: inline_hdr_sz 0x8000",
     [](Scene& s) { s.Post(Wqe().EthWithTag(0x8100, 5).Inline(Bytes(60, 0))); },
     [](Device::Options& options) { options.features.vlan_insertion = false; }},
    {"feature: QP 0x10000: WQEBB 0: inline_hdr_sz 0x400",
     [](Scene& s) {
       s.Post(With(Wqe().Eth({}).Inline(Bytes(60, 0)), [](Wqe& w) { w.bytes[16 + 12] = 4; }));
     }},
    {"send_overrun: QP 0x10000: record 9, next WQEBB 0, 8 WQEBBs",
     [](Scene& s) {
       s.qp->Post(Wqe(kNop));
       s.qp->record()[1] = __builtin_bswap32(9);
       s.qp->Ring();
     }},
    {"receive_overrun: RQ 0x10000: record 5, next WQE 0, 4 WQEs",
     [](Scene& s) {
       s.program.Steer(*s.qp);
       s.qp->record()[0] = __builtin_bswap32(5);
       s.program.wire.Arrive(MakeFrame({}));
     }},
    {"memory_key: RQ 0x10000: WQE 0: lkey 0x1100 does not let 2048 bytes at 0x70000000 be written",
     [](Scene& s) { s.Receive(s.program.keys.lkey + 0x100, 2048); }},
    {"receive_length: RQ 0x10000: WQE 0: 12 bytes of the frame have no room",
     [](Scene& s) { s.Receive(s.program.keys.lkey, 60); }},
    {"cq_overrun: CQ 0x400: 16 CQEs unread, no room for one more",
     [](Scene& s) {
       for (int i = 0; i < 17; ++i) {
         s.Post(Wqe(kNop));
         s.program.Step();
       }
     }},
    {"cq_consumer: CQ 0x400: consumer index 3, producer index 0, 16 entries",
     [](Scene& s) {
       s.cq->record()[0] = __builtin_bswap32(3);
       s.Post(Wqe(kNop));
     }},
    {"cq_consumer: CQ 0x400: armed at 2, producer index 0",
     [](Scene& s) {
       s.cq->consumer = 2;
       s.cq->Arm();
     }},
    {"cq_arm: CQ 0x400: arm sequence 2, expected 0",
     [](Scene& s) {
       s.cq->arm_sequence = 2;
       s.cq->Arm();
     }},
    {"cq_arm: CQ 0x400: doorbell 0, record 0x20000000",
     [](Scene& s) {
       s.cq->Arm();
       s.cq->record()[1] = __builtin_bswap32(0x2000'0000);
     }},
    {"cq_arm: CQ 0x464: armed on UAR page 1, which is not its own",
     [](Scene& s) {
       s.cq->cqn += 100;
       s.cq->Arm();
     }},
    {"doorbell_record: QP 0x10000: doorbell for WQEBB 0, record 0",
     [](Scene& s) {
       s.qp->Post(Wqe(kNop));
       s.qp->record()[1] = 0;
       s.qp->Ring();
     }},
    {"doorbell_bytes: QP 0x10000: doorbell for WQEBB 0: not the WQE's first 8 bytes",
     [](Scene& s) {
       s.qp->Post(Wqe(kNop));
       uint64_t bytes;
       std::memcpy(&bytes, s.qp->send_ring(), sizeof(bytes));
       bytes ^= uint64_t{0x3f} << 56;  // Another ds.
       std::memcpy(s.program.uar.page + 0x800, &bytes, sizeof(bytes));
     }},
    {"doorbell_bytes: QP 0x10000: BlueFlame of WQEBB 0 differs from the ring",
     [](Scene& s) { s.CorruptBlueFlame(); }},
    {"doorbell_bytes: UAR page 1: doorbell for QP 0x77, not on this page",
     [](Scene& s) { s.Post(With(Wqe(kNop), [](Wqe& w) { w.qpn = 0x77; })); }},
    {"queue_state: QP 0x10000: doorbell before the queue is ready to send",
     [](Scene& s) {
       s.qp->Reset();
       s.Post(Wqe(kNop));
     }},
    {"freed_queue: UAR page 1: doorbell for QP 0x10001, which was destroyed",
     [](Scene& s) {
       auto gone = s.program.MakeQp(s.cq.get(), s.cq.get());
       ASSERT_EQ(s.program.device->DestroyQp(gone->qpn), 0);
       gone->PostAndRing(Wqe(kNop));
     }},
    {"freed_queue: CQ 0x401: armed after it was destroyed",
     [](Scene& s) {
       auto gone = s.program.MakeCq();
       ASSERT_EQ(s.program.device->DestroyCq(gone->cqn, nullptr), 0);
       gone->Arm();
     }},
    {"flow_tag: QP 0x10000: tag 0x2 asked, an equal match has 0x1",
     [](Scene& s) {
       FlowRequest request{.tag = 1, .qp = s.qp->qpn};
       request.value.ether_type = 0x0800;
       request.mask.ether_type = 0xffff;
       uint32_t flow;
       ASSERT_EQ(s.program.device->CreateFlow(request, &flow), 0);
       request.tag = 2;
       ASSERT_EQ(s.program.device->CreateFlow(request, &flow), EEXIST);
     }},
};

class MessageTest : public testing::TestWithParam<Row> {};

TEST_P(MessageTest, NamesRuleObjectAndWhatWasSeen) {
  Device::Options options = TestProgram::DefaultOptions();
  GetParam().configure(options);
  Scene scene(options);
  GetParam().provoke(scene);
  scene.program.Step();
  const std::vector<std::string> said = scene.program.device->Violations();
  EXPECT_NE(std::find(said.begin(), said.end(), GetParam().message), said.end())
      << testing::PrintToString(said);
}

INSTANTIATE_TEST_SUITE_P(All, MessageTest, testing::ValuesIn(kRows), [](const auto& info) {
  std::string name = std::to_string(info.index) + "_";
  for (const char* at = info.param.message; *at != ':'; ++at) name += *at;
  return name;
});

TEST(MessagesTest, EveryRuleHasOne) {
  std::set<std::string> rules;
  for (const Row& row : kRows) {
    rules.emplace(row.message, std::strchr(row.message, ':') - row.message);
  }
  for (int rule = 1; RuleName(static_cast<Rule>(rule)) != "unknown"; ++rule) {
    EXPECT_EQ(rules.count(std::string(RuleName(static_cast<Rule>(rule)))), 1u) << rule;
  }
  EXPECT_EQ(rules.size(), 20u);
}

}  // namespace
}  // namespace xtreme::connectx
