// SPDX-License-Identifier: Apache-2.0
//
// Every view over any bytes: a view that parses reads nothing beyond its bytes (the sanitizer sees
// to it) and what it says fits in them.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "stack/wire/arp.h"
#include "stack/wire/ethernet.h"
#include "stack/wire/golden.h"
#include "stack/wire/icmp.h"
#include "stack/wire/ipv4.h"
#include "stack/wire/udp.h"

namespace xtreme::wire {
namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

void TryEthernet(std::span<const uint8_t> bytes) {
  const auto view = EthernetView::Parse(bytes);
  if (!view.ok()) return;
  Require(view->header_bytes() + view->payload().size() == bytes.size());
  const EthernetRepr repr{.destination = view->destination(),
                          .source = view->source(),
                          .vlan = view->vlan(),
                          .ether_type = view->ether_type()};
  Bytes written = Poisoned(bytes.size());
  Require(repr.Emit(written) == view->header_bytes());
  Require(std::equal(written.begin(), written.begin() + view->header_bytes(), bytes.begin()));
}

void TryArp(std::span<const uint8_t> bytes) {
  const auto view = ArpView::Parse(bytes);
  if (!view.ok()) return;
  const ArpRepr repr{view->operation(), view->sender_mac(), view->sender(), view->target_mac(),
                     view->target()};
  Bytes written = Poisoned(kArpBytes);
  Require(repr.Emit(written) == kArpBytes);
  Require(std::equal(written.begin(), written.end(), bytes.begin()));
}

void TryIpv4(std::span<const uint8_t> bytes) {
  for (ChecksumCheck check : {ChecksumCheck::kVerify, ChecksumCheck::kTrusted}) {
    const auto view = Ipv4View::Parse(bytes, check);
    if (!view.ok()) continue;
    Require(view->header_bytes() + view->payload().size() == view->total_bytes());
    Require(view->total_bytes() <= bytes.size());
    Require(view->options().size() + kIpv4MinHeaderBytes == view->header_bytes());
    Require(view->fragment_offset_bytes() + view->total_bytes() <= kIpv4MaxBytes);
  }
  const auto quoted = Ipv4View::ParseQuoted(bytes);
  if (quoted.ok()) Require(quoted->header_bytes() + quoted->payload().size() <= bytes.size());
}

void TryIcmp(std::span<const uint8_t> bytes) {
  const auto view = IcmpErrorView::Parse(bytes, ChecksumCheck::kTrusted);
  if (!view.ok()) return;
  const IcmpErrorRepr repr{view->type(), view->code(), view->next_hop_mtu()};
  Bytes written(bytes.size());
  const size_t size = repr.Emit(written, bytes.subspan(kIcmpErrorHeaderBytes));
  Require(size > 0 && size <= bytes.size());
  const auto again = IcmpErrorView::Parse(std::span(written).first(size), ChecksumCheck::kVerify);
  Require(again.ok());
  Require(again->offending_source_port() == view->offending_source_port());
  Require(again->offending_destination_port() == view->offending_destination_port());
}

void TryUdp(std::span<const uint8_t> bytes) {
  const auto view = UdpView::Parse(bytes);
  if (!view.ok()) return;
  Require(view->payload().size() + kUdpHeaderBytes == view->length_bytes());
  Require(view->length_bytes() <= bytes.size());
  view->HasValidChecksum(Ipv4Address(192, 0, 2, 1), Ipv4Address(192, 0, 2, 2));
}

}  // namespace
}  // namespace xtreme::wire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t length) {
  const xtreme::wire::Exact exact(xtreme::wire::Bytes(bytes, bytes + length));
  xtreme::wire::TryEthernet(exact.span());
  xtreme::wire::TryArp(exact.span());
  xtreme::wire::TryIpv4(exact.span());
  xtreme::wire::TryIcmp(exact.span());
  xtreme::wire::TryUdp(exact.span());
  return 0;
}
