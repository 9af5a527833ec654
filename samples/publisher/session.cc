// SPDX-License-Identifier: Apache-2.0

#include "samples/publisher/session.h"

#include <time.h>

#include <algorithm>

#include "samples/feed/itch50.h"

namespace publisher {
namespace {

constexpr int kMostDatagramsAtOnce = 64;

}  // namespace

uint64_t MidnightNs() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec % 86'400) * 1'000'000'000 + now.tv_nsec;
}

Session::Session(const Options& options, LineSockets* sockets)
    : options_(options),
      sockets_(sockets),
      market_(options.seed, options.stocks),
      builder_(feed::mold::MakeSession(options.name)),
      loss_{std::mt19937_64(options.seed * 2 + 1), std::mt19937_64(options.seed * 2 + 2)} {
  kept_.reserve(options.messages * 36);
  ends_.reserve(options.messages);
}

void Session::Publish(int64_t now_ns) {
  if (start_ns_ < 0) start_ns_ = now_ns;
  const double elapsed = static_cast<double>(now_ns - start_ns_) / 1e9;
  const auto due = std::min<uint64_t>(
      options_.messages, static_cast<uint64_t>(elapsed * options_.messages_per_second));
  for (int i = 0; i < kMostDatagramsAtOnce && counters_.published < due; ++i) {
    // Whole datagrams only, but for the last one.
    const uint64_t waiting = due - counters_.published;
    const auto whole = static_cast<uint64_t>(options_.messages_per_datagram);
    if (waiting < whole && due != options_.messages) return;
    PublishDatagram();
  }
}

void Session::PublishDatagram() {
  builder_.Begin(counters_.published + 1);
  const uint64_t now = MidnightNs();
  std::array<uint8_t, feed::itch::kMostBytes> bytes;
  for (int i = 0; i < options_.messages_per_datagram && !finished(); ++i) {
    feed::itch::Message message = market_.Next();
    message.time_ns = now;
    const size_t length = feed::itch::Emit(message, bytes);
    builder_.Add(std::span(bytes).first(length));
    kept_.insert(kept_.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(length));
    ends_.push_back(static_cast<uint32_t>(kept_.size()));
    ++counters_.published;
  }
  ++counters_.datagrams;
  SendOnLines(builder_.Finish(), true);
}

void Session::SendOnLines(std::span<const uint8_t> datagram, bool may_lose) {
  for (size_t line = 0; line < options_.lines.size(); ++line) {
    const double dice = static_cast<double>(loss_[line]() >> 11) * 0x1p-53;
    if (may_lose && dice < options_.loss) ++counters_.lost[line];
    else sockets_->Send(options_.lines[line], datagram);
  }
}

void Session::Heartbeat() {
  builder_.Begin(counters_.published + 1);
  SendOnLines(finished() ? builder_.FinishSession() : builder_.Finish(), false);
}

int Session::AnswerRequests() {
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
void Session::Answer(const sockaddr_in& to, const feed::mold::Request& request) {
  builder_.Begin(request.sequence);
  const uint64_t end = std::min(request.sequence + request.count, counters_.published + 1);
  for (uint64_t sequence = request.sequence; sequence < end; ++sequence) {
    if (!builder_.Add(Kept(sequence))) break;
    ++counters_.resent;
  }
  sockets_->Answer(to, builder_.Finish());
}

std::span<const uint8_t> Session::Kept(uint64_t sequence) const {
  const size_t index = sequence - 1;
  const size_t start = index == 0 ? 0 : ends_[index - 1];
  return {kept_.data() + start, ends_[index] - start};
}

}  // namespace publisher
