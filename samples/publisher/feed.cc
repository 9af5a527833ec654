// SPDX-License-Identifier: Apache-2.0

#include "samples/publisher/feed.h"

#include <time.h>

#include <algorithm>

namespace publisher {

uint64_t MidnightNs() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec % 86'400) * 1'000'000'000 + now.tv_nsec;
}

Feed::Feed(const Options& options, LineSockets* sockets)
    : options_(options),
      sockets_(sockets),
      builder_(feed::mold::MakeSession(options.name)),
      answer_(feed::mold::MakeSession(options.name)),
      loss_{std::mt19937_64(options.seed * 2 + 1), std::mt19937_64(options.seed * 2 + 2)} {}

void Feed::Add(const feed::itch::Message& message) {
  std::array<uint8_t, feed::itch::kMostBytes> bytes;
  const size_t length = feed::itch::Emit(message, bytes);
  const std::span<const uint8_t> emitted = std::span(bytes).first(length);
  if (!builder_.Add(emitted)) {
    Flush();
    builder_.Add(emitted);
  }
  kept_.insert(kept_.end(), emitted.begin(), emitted.end());
  ends_.push_back(kept_.size());
  ++counters_.published;
}

void Feed::Flush() {
  if (builder_.count() == 0) return;
  ++counters_.datagrams;
  SendOnLines(builder_.Finish(), true);
  builder_.Begin(builder_.sequence() + builder_.count());
}

void Feed::SendOnLines(std::span<const uint8_t> datagram, bool may_lose) {
  for (size_t line = 0; line < options_.lines.size(); ++line) {
    // Heartbeats draw nothing: their number depends on the time.
    const bool lost =
        may_lose && static_cast<double>(loss_[line]() >> 11) * 0x1p-53 < options_.loss;
    if (lost) ++counters_.lost[line];
    else sockets_->Send(options_.lines[line], datagram);
  }
}

void Feed::Heartbeat(bool ended) {
  Flush();
  SendOnLines(ended ? builder_.FinishSession() : builder_.Finish(), false);
}

int Feed::AnswerRequests() {
  std::array<uint8_t, 64> bytes;
  int answered = 0;
  while (const auto asked = sockets_->Receive(bytes)) {
    ++counters_.requests;
    ++answered;
    feed::mold::Request request;
    const bool valid = feed::mold::Parse(std::span(bytes).first(asked->length), &request) &&
                       request.session == feed::mold::MakeSession(options_.name) &&
                       request.sequence >= 1 && request.sequence <= counters_.published;
    if (valid) Answer(asked->from, request);
    else ++counters_.refused_requests;
  }
  return answered;
}

// One datagram: as many of the messages asked for as fit.
void Feed::Answer(const sockaddr_in& to, const feed::mold::Request& request) {
  answer_.Begin(request.sequence);
  const uint64_t end = std::min(request.sequence + request.count, counters_.published + 1);
  for (uint64_t sequence = request.sequence; sequence < end; ++sequence) {
    if (!answer_.Add(Kept(sequence))) break;
    ++counters_.resent;
  }
  sockets_->Answer(to, answer_.Finish());
}

std::span<const uint8_t> Feed::Kept(uint64_t sequence) const {
  const size_t index = sequence - 1;
  const size_t start = index == 0 ? 0 : ends_[index - 1];
  return {kept_.data() + start, ends_[index] - start};
}

}  // namespace publisher
