// SPDX-License-Identifier: Apache-2.0

#include "tests/soak/stream.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace xtreme::soak {
namespace {

uint32_t AnyAmount(Dice* dice) {
  switch (dice->Below(8)) {
    case 0: return 0;
    case 1: return 1;
    case 2: return dice->Between(1, 100);
    case 3: return dice->Between(50'000, 300'000);
    default: return dice->Between(100, 20'000);
  }
}

uint32_t AnyPiece(Dice* dice) {
  switch (dice->Below(4)) {
    case 0: return dice->Between(1, 64);
    case 1: return 1'448;
    case 2: return dice->Between(65, 1'460);
    default: return dice->Between(1'461, Sender::kSlotBytes);
  }
}

}  // namespace

// With checks and sanitizers everything is slower.
TcpOptions Stream::Options(Patience patience) {
#if XTREME_DEBUG
  constexpr int64_t kProbe = 1'200'000'000;
#else
  constexpr int64_t kProbe = 400'000'000;
#endif
  const int64_t silence = patience == Patience::kLong ? kLongPatienceNs : 5 * kProbe;
  TcpOptions options;
  options.keepalive_idle_ns = kProbe;
  options.keepalive_interval_ns = kProbe;
  options.keepalive_probes = static_cast<uint8_t>(silence / kProbe);
  options.user_timeout_ns = silence;
  options.linger_ns = silence;
  options.connect_timeout_ns = silence;
  return options;
}

Stream::Patience Stream::PatienceOf(uint64_t key) {
  return StreamPlan::Of(key).has_to_end_well() ? Patience::kLong : Patience::kShort;
}

StreamPlan StreamPlan::Of(uint64_t key) {
  Dice dice(key);
  StreamPlan plan;
  plan.key = key;
  plan.up = kKeyBytes + AnyAmount(&dice);
  plan.down = AnyAmount(&dice);
  const uint32_t end = dice.Below(8);
  if (end >= 4) plan.end = static_cast<End>(end - 4);
  const uint32_t aborted = plan.end == End::kClientAborts ? plan.up : plan.down;
  plan.abort_at = plan.end == End::kClientAborts ? dice.Between(kKeyBytes, aborted)
                                                 : dice.Between(0, aborted);
  plan.slow = dice.OneIn(6);
  plan.closes = dice.OneIn(2);
  return plan;
}

Stream::Stream(uint64_t number, TcpSocket socket, uint64_t key)
    : number_(number),
      client_(true),
      socket_(std::move(socket)),
      plan_(StreamPlan::Of(key)),
      known_(true) {}

Stream::Stream(uint64_t number, TcpSocket socket)
    : number_(number), client_(false), socket_(std::move(socket)), established_(true) {}

void Stream::Fill(bool up, uint32_t from, std::vector<uint8_t>* bytes) const {
  model::WritePattern(up ? plan_.key : ~plan_.key, from, bytes->data(), bytes->size());
  for (uint32_t at = from; up && at < kKeyBytes && at - from < bytes->size(); ++at) {
    (*bytes)[at - from] = static_cast<uint8_t>(plan_.key >> (8 * at));
  }
}

std::string Stream::Push(Sender* sender, Dice* dice) {
  if (stale_) return "a stale handle, and no end came with it: " + Describe();
  if (!socket_.is_open() || !known_ || shut_) return "";
  const bool waits = !client_ && plan_.end == StreamPlan::End::kServerLast && !peer_closed_;
  if (!waits && refused_ == 0 && sent_ < to_send()) {
    if (std::string wrong = SendSome(sender, dice); !wrong.empty()) return wrong;
  }
  if (AbortsHere() && established_ && sent_ >= plan_.abort_at) {
    shut_ = true;
    xtreme_abort(socket_.Release());
  } else if (!waits && established_ && sent_ == to_send()) {
    EndSending();
  }
  return "";
}

std::string Stream::SendSome(Sender* sender, Dice* dice) {
  std::vector<uint8_t> bytes(std::min(AnyPiece(dice), to_send() - sent_));
  Fill(client_, sent_, &bytes);
  const auto result = sender->Send(socket_.handle(), nullptr, /*datagram=*/false, bytes, dice);
  if (!result.has_value()) return "";
  switch (*result) {
    case XTREME_SENT:
    case XTREME_QUEUED: sent_ += static_cast<uint32_t>(bytes.size()); return "";
    case XTREME_REFUSED_WINDOW:
    case XTREME_REFUSED_CONGESTION:
    case XTREME_REFUSED_RECOVERY:
    case XTREME_REFUSED_SQ_FULL:
    case XTREME_REFUSED_BUFFERS: refused_ = *result; return "";
    case XTREME_REFUSED_STATE: return "";
    default: return "a send of a stream is " + std::to_string(*result);
  }
}

void Stream::EndSending() {
  shut_ = true;
  if (plan_.closes && peer_closed_) return socket_.Close();
  if (xtreme_shutdown(socket_.handle()) < 0) shut_ = false;
}

std::string Stream::OnPacket(const Completion& packet) {
  std::vector<uint8_t> bytes(packet.length);
  bytes.resize(xtreme_copy_out(&packet, bytes.data(), bytes.size()));
  if (bytes.size() != packet.length) return "a packet of a stream is shorter than it says";
  const uint32_t from = received_;
  received_ += packet.length;
  if (!known_) {
    key_bytes_.insert(key_bytes_.end(), bytes.begin(), bytes.end());
    if (key_bytes_.size() < kKeyBytes) return "";
    uint64_t key;
    memcpy(&key, key_bytes_.data(), sizeof key);
    plan_ = StreamPlan::Of(key);
    known_ = true;
    if (std::string wrong = SetPatience(); !wrong.empty()) return wrong;
  }
  if (received_ > to_receive()) return "more bytes than were sent: " + Describe();
  std::vector<uint8_t> expected(bytes.size());
  Fill(!client_, from, &expected);
  const auto differs = std::mismatch(bytes.begin(), bytes.end(), expected.begin()).first;
  if (differs == bytes.end()) return "";
  return "a wrong byte at " + std::to_string(from + (differs - bytes.begin())) + ": " + Describe();
}

// Its listener's may be that of the quiet. The handle is stale when the end stands behind these
// bytes in the same batch.
std::string Stream::SetPatience() {
  if (!socket_.is_open()) return "";
  const Status set = socket_.SetOptions(Options(PatienceOf(plan_.key)));
  stale_ = !set && set.error().code == EBADF;
  return set || stale_ ? "" : "set options: " + set.error().message;
}

std::string Stream::OnPeerClosed() {
  peer_closed_ = true;
  return known_ && received_ == to_receive() ? "" : "closed before all had come: " + Describe();
}

std::string Stream::OnTerminated(int status) const {
  switch (status) {
    case 0: {
      const bool whole = known_ && peer_closed_ && shut_ && received_ == to_receive() &&
                         sent_ == to_send();
      return whole ? "" : "ended in order and is not whole: " + Describe();
    }
    case ECONNABORTED: return AbortsHere() ? "" : "aborted by nobody: " + Describe();
    case ECONNRESET:
    case ETIMEDOUT:
    case EHOSTUNREACH:
      if (!plan_.has_to_end_well()) return "";
      break;
    case ENOBUFS:  // Also of a small ring that has no memory for what was to follow the SYN.
      if (client_ && !established_ && !plan_.has_to_end_well()) return "";
      [[fallthrough]];
    case ENETDOWN:
      if (moved_) return "";
      break;
    default: break;
  }
  return "ended with " + std::to_string(status) + ": " + Describe();
}

std::string Stream::Describe() const {
  std::string text = client_ ? "client " : "server ";
  text += std::to_string(plan_.key) + " end " + std::to_string(static_cast<int>(plan_.end));
  text += " sent " + std::to_string(sent_) + "/" + std::to_string(to_send());
  text += " received " + std::to_string(received_) + "/" + std::to_string(to_receive());
  const auto add = [&text](bool is, const char* word) { text += is ? word : ""; };
  add(!known_, " unknown");
  add(!established_, " connecting");
  if (refused_ != 0) text += " refused " + std::to_string(refused_);
  add(shut_, " shut");
  add(peer_closed_, " peer-closed");
  xtreme_tcp_info info = {};
  info.size = sizeof info;
  if (xtreme_tcp_get_info(socket_.handle(), &info) != 0) return text + " no-handle";
  text += " peer " + ToString(info.peer);
  return text + " state " + std::to_string(info.state) + " in-flight " +
         std::to_string(info.in_flight) + " unsent " + std::to_string(info.unsent) + " window " +
         std::to_string(info.send_window) + " rto-ms " + std::to_string(info.rto_ns / 1'000'000) +
         " oldest-ms " + std::to_string(info.oldest_ns / 1'000'000) + " retransmits " +
         std::to_string(info.retransmits);
}

}  // namespace xtreme::soak
