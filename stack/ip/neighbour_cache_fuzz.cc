// SPDX-License-Identifier: Apache-2.0
//
// Sequences of sends, ARP packets, confirmations and passing time, two bytes of input each: every
// packet that was accepted comes back exactly once, actions end, and the deadline is never late.
#include <array>
#include <cstdint>
#include <cstdlib>

#include "stack/ip/neighbour_cache.h"
#include "stack/wire/arp.h"

namespace xtreme::ip {
namespace {

using Kind = NeighbourCache::Action::Kind;
using Status = NeighbourCache::Status;

void Require(bool holds) {
  if (!holds) std::abort();
}

class Run {
 public:
  void Step(uint8_t what, uint8_t which) {
    const wire::Ipv4Address address(10, 0, 0, 1 + which % 6);
    const wire::MacAddress mac({static_cast<uint8_t>(which >> 5), 0, 0, 0, 0, which});
    switch (what % 10) {
      case 0:
      case 1:
        Send(address);
        break;
      case 2:
        Hear(address, mac, which);
        break;
      case 3:
        cache_.Confirm(address, mac, now_);
        break;
      case 4:
        cache_.Invalidate(address, now_);
        break;
      case 5:
        if (which % 2 == 0) {
          cache_.Pin(address, now_);
        } else {
          cache_.Unpin(address);
        }
        break;
      case 6:
        now_ += base::Milliseconds(100 * which);
        break;
      case 7:
        cache_.ResolveFrom(address, mac, now_);
        break;
      case 8:
        cache_.Adopt(address, mac, now_);
        break;
      default:
        Act();
    }
  }

  // Nobody answers any more: in the end nothing waits.
  void End() {
    for (int i = 0; i < 100; ++i, now_ += base::Seconds(1)) Act();
    Require(waiting_ == 0);
  }

 private:
  struct Sent : NeighbourCache::Packet {
    bool waits = false;
  };

  void Send(wire::Ipv4Address address) {
    Sent* packet = &packets_[next_++ % packets_.size()];
    if (packet->waits) return;
    if (cache_.Enqueue(address, packet, now_).status != Status::kPending) return;
    packet->waits = true;
    ++waiting_;
  }

  void Hear(wire::Ipv4Address sender, wire::MacAddress mac, uint8_t which) {
    std::array<uint8_t, wire::kArpBytes> bytes;
    wire::ArpRepr{
        .operation = which & 8 ? wire::ArpOperation::kReply : wire::ArpOperation::kRequest,
        .sender_mac = mac,
        .sender = which & 16 ? sender : wire::Ipv4Address::Any(),
        .target = kOptions.address}
        .Emit(bytes);
    cache_.OnArp(*wire::ArpView::Parse(bytes), now_);
  }

  void Act() {
    for (int actions = 0;; ++actions) {
      Require(actions < 200);
      const NeighbourCache::Action action = cache_.Next(now_);
      if (action.kind == Kind::kNone) break;
      if (action.kind != Kind::kTransmit && action.kind != Kind::kUnreachable) continue;
      Sent* packet = static_cast<Sent*>(action.packet);
      Require(packet->waits);
      packet->waits = false;
      --waiting_;
    }
    Require(cache_.NextDeadline() > now_);
    Require(waiting_ == 0 || cache_.NextDeadline() != base::kNever);
  }

  static constexpr NeighbourCache::Options kOptions{.mac = wire::MacAddress({2, 0, 0, 0, 0, 1}),
                                                    .address = wire::Ipv4Address(10, 0, 0, 99),
                                                    .answer_requests = true,
                                                    .entries = 4,
                                                    .queue_packets = 3};

  NeighbourCache cache_{kOptions};
  std::array<Sent, 32> packets_{};
  size_t next_ = 0;
  int waiting_ = 0;
  base::Nanoseconds now_ = base::Seconds(1000);
};

}  // namespace
}  // namespace xtreme::ip

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t length) {
  xtreme::ip::Run run;
  for (size_t i = 0; i + 2 <= length; i += 2) run.Step(bytes[i], bytes[i + 1]);
  run.End();
  return 0;
}
