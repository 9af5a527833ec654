// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a SoupBinTCP stream with OUCH in it: cutting it into packets does not depend on how
// it arrives, parsing stays inside, and what a session or an exchange makes of it adds up.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "samples/trading/matcher.h"
#include "samples/trading/ouch42.h"
#include "samples/trading/soup_bin_tcp.h"
#include "samples/trading/soup_session.h"

namespace {

using Bytes = std::vector<uint8_t>;

struct Cut {
  std::vector<std::pair<char, Bytes>> packets;
  trading::soup::Verdict end = {};
  bool operator==(const Cut&) const = default;
};

Cut CutUp(std::span<const uint8_t> stream, size_t chunk) {
  trading::soup::Stream cutter;
  Cut cut;
  for (size_t at = 0; at < stream.size(); at += chunk) {
    const size_t length = std::min(chunk, stream.size() - at);
    cut.end = cutter.On(stream.subspan(at, length), [&cut](const trading::soup::Packet& packet) {
      cut.packets.emplace_back(static_cast<char>(packet.type),
                               Bytes(packet.payload.begin(), packet.payload.end()));
    });
  }
  return cut;
}

// Shares that were accepted are executed, cancelled or open.
class Ledger : public trading::Market {
 public:
  void Publish(const feed::itch::Message&) override {}
  void Tell(uint32_t, const trading::ouch::Message& message) override {
    const auto shares = static_cast<int64_t>(message.shares);
    if (message.type == trading::ouch::Type::kAccepted) open_ += shares;
    if (message.type == trading::ouch::Type::kExecuted) open_ -= shares;
    if (message.type == trading::ouch::Type::kCanceled) open_ -= shares;
    if (open_ < 0) abort();
  }

 private:
  int64_t open_ = 0;
};

void Trade(const Cut& cut) {
  Ledger ledger;
  trading::Matcher matcher({"XTRA", "XTRB"}, &ledger);
  for (const auto& [type, payload] : cut.packets) {
    trading::ouch::Message message;
    if (trading::ouch::Parse(payload, &message) != trading::ouch::Refusal::kNone) continue;
    matcher.On(static_cast<uint32_t>(type), message, 0);
    std::array<uint8_t, trading::ouch::kMostBytes> again;
    if (trading::ouch::Emit(message, again) != payload.size()) abort();
  }
  for (size_t stock = 0; stock < 2; ++stock) {
    const auto bid = matcher.book(stock).best_bid(), ask = matcher.book(stock).best_ask();
    if (bid && ask && *bid >= *ask) abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::span<const uint8_t> stream(bytes, size);
  const Cut whole = CutUp(stream, size + 1);
  if (size > 0 && !(CutUp(stream, 1) == whole && CutUp(stream, 7) == whole)) abort();
  Trade(whole);

  trading::soup::ClientSession client("user", "password");
  client.Connect(0);
  uint64_t expected = 0;
  client.On(stream, 0, [&expected](uint64_t sequence, std::span<const uint8_t>) {
    if (expected != 0 && sequence != expected) abort();
    expected = sequence + 1;
  });

  trading::soup::Outbox outbox("DAY1");
  outbox.Append(stream.first(std::min<size_t>(size, 64)));
  trading::soup::ServerConnection server;
  server.On(stream, 0, [&outbox](const auto&) { return &outbox; }, [](auto) {});
  Bytes out;
  server.Pump(0, &out);
  return 0;
}
