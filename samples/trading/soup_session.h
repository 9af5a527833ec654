// SPDX-License-Identifier: Apache-2.0
//
// Both ends of a SoupBinTCP session, which outlives its connections: after a connection was lost
// the client asks for the next message it has not seen, and the server, which keeps all, goes on
// there.
//
// Invariant: the client hands out each sequenced message once and in order, whatever connections
// brought it. No I/O: what is to be sent is returned or appended; time is an argument.
// Units: nanoseconds of any clock. Threads: one.

#ifndef XTREME_SAMPLES_TRADING_SOUP_SESSION_H_
#define XTREME_SAMPLES_TRADING_SOUP_SESSION_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "samples/trading/soup_bin_tcp.h"

namespace trading::soup {

// When to send a heartbeat, and when the other end counts as gone.
class Silence {
 public:
  enum class Action : uint8_t { kNothing, kHeartbeat, kGiveUp };

  void Begin(int64_t now_ns) { sent_ns_ = heard_ns_ = now_ns; }
  void OnSent(int64_t now_ns) { sent_ns_ = now_ns; }
  void OnHeard(int64_t now_ns) { heard_ns_ = now_ns; }
  Action Next(int64_t now_ns) const {
    if (now_ns - heard_ns_ >= kDeadNs) return Action::kGiveUp;
    return now_ns - sent_ns_ >= kHeartbeatNs ? Action::kHeartbeat : Action::kNothing;
  }
  // When Next() says something else than kNothing, unless something happens before.
  int64_t deadline_ns() const {
    return std::min(sent_ns_ + kHeartbeatNs, heard_ns_ + kDeadNs);
  }

 private:
  int64_t sent_ns_ = 0;
  int64_t heard_ns_ = 0;
};

class ClientSession {
 public:
  enum class State : uint8_t {
    kDisconnected,
    kLoggingIn,
    kOpen,
    kRejected,  // The login; `reason()` says why. To be disconnected.
    kEnded,     // The session is over: nothing will come any more.
    kBroken,    // The server said what it must not. To be disconnected.
  };

  ClientSession(std::string_view user, std::string_view password) {
    login_.user = PadRight<6>(user);
    login_.password = PadRight<10>(password);
    login_.session = MakeSession("");
    login_.sequence = 1;
  }

  // A connection is there: what to send first.
  std::array<uint8_t, kHeaderBytes + 46> Connect(int64_t now_ns) {
    stream_ = Stream();
    silence_.Begin(now_ns);
    state_ = State::kLoggingIn;
    return Emit(login_);
  }
  // The connection is gone.
  void Disconnect() {
    if (state_ != State::kEnded) state_ = State::kDisconnected;
  }

  // What came; calls `on_message(sequence, payload)` for each message not seen before.
  template <typename OnMessage>
  void On(std::span<const uint8_t> bytes, int64_t now_ns, OnMessage&& on_message) {
    silence_.OnHeard(now_ns);
    stream_.On(bytes, [&](const Packet& packet) { OnPacket(packet, on_message); });
    if (stream_.broken()) state_ = State::kBroken;
  }

  // To be told of everything that is sent, and asked what to do.
  void OnSent(int64_t now_ns) { silence_.OnSent(now_ns); }
  Silence::Action Next(int64_t now_ns) const { return silence_.Next(now_ns); }
  int64_t deadline_ns() const { return silence_.deadline_ns(); }

  State state() const { return state_; }
  RejectReason reason() const { return reason_; }
  uint64_t next_sequence() const { return login_.sequence; }
  uint64_t repeated() const { return repeated_; }

 private:
  template <typename OnMessage>
  void OnPacket(const Packet& packet, OnMessage&& on_message) {
    const bool open = state_ == State::kOpen;
    switch (packet.type) {
      case Type::kLoginAccepted: return OnAccepted(packet);
      case Type::kLoginRejected:
        reason_ = static_cast<RejectReason>(packet.payload[0]);
        state_ = State::kRejected;
        return;
      case Type::kSequenced: return open ? OnSequenced(packet, on_message) : Break();
      case Type::kEndOfSession:
        state_ = State::kEnded;
        return;
      case Type::kServerHeartbeat:
      case Type::kDebug: return;
      default: return Break();
    }
  }

  void OnAccepted(const Packet& packet) {
    const auto accepted = ReadLoginAccepted(packet);
    if (state_ != State::kLoggingIn || !accepted) return Break();
    // Another session begins its numbers anew.
    if (accepted->session != login_.session) login_.sequence = accepted->sequence;
    // What was missed cannot be made good any more.
    if (accepted->sequence > login_.sequence) return Break();
    login_.session = accepted->session;
    arriving_ = accepted->sequence;
    state_ = State::kOpen;
  }

  template <typename OnMessage>
  void OnSequenced(const Packet& packet, OnMessage&& on_message) {
    const uint64_t sequence = arriving_++;
    if (sequence < login_.sequence) {
      ++repeated_;
      return;
    }
    ++login_.sequence;
    on_message(sequence, packet.payload);
  }

  void Break() { state_ = State::kBroken; }

  LoginRequest login_;  // As the next connection would say it.
  Stream stream_;
  Silence silence_;
  State state_ = State::kDisconnected;
  RejectReason reason_ = RejectReason::kNotAuthorized;
  uint64_t arriving_ = 0;  // The number of the next sequenced packet.
  uint64_t repeated_ = 0;
};

// The sequenced messages of one account, all of them.
class Outbox {
 public:
  explicit Outbox(std::string_view session) : session_(MakeSession(session)) {}

  void Append(std::span<const uint8_t> message) {
    const auto header = Header(Type::kSequenced, message.size());
    packets_.insert(packets_.end(), header.begin(), header.end());
    packets_.insert(packets_.end(), message.begin(), message.end());
    begins_.push_back(packets_.size());
  }

  // Of the message that is appended next; the first is 1.
  uint64_t next() const { return begins_.size(); }
  const Session& session() const { return session_; }
  // All packets from that of message `sequence` (1 .. next()) on.
  std::span<const uint8_t> From(uint64_t sequence) const {
    return std::span(packets_).subspan(begins_[sequence - 1]);
  }

 private:
  const Session session_;
  std::vector<uint8_t> packets_;
  std::vector<size_t> begins_ = {0};  // Where each message's packet begins; by sequence - 1.
};

// One connection of a client.
class ServerConnection {
 public:
  // Calls `log_in(request)`, which returns the account's Outbox or null, and `on_message(payload)`
  // for what the client sends after it.
  template <typename LogIn, typename OnMessage>
  void On(std::span<const uint8_t> bytes, int64_t now_ns, LogIn&& log_in, OnMessage&& on_message) {
    silence_.OnHeard(now_ns);
    stream_.On(bytes, [&](const Packet& packet) {
      if (over_) return;
      if (outbox_ == nullptr) return OnLogin(packet, log_in);
      if (packet.type == Type::kUnsequenced) return on_message(packet.payload);
      const bool harmless = packet.type == Type::kClientHeartbeat || packet.type == Type::kDebug;
      over_ = !harmless;
    });
    if (stream_.broken()) over_ = true;
  }

  void Begin(int64_t now_ns) { silence_.Begin(now_ns); }

  // Appends what is due now to `out`.
  void Pump(int64_t now_ns, std::vector<uint8_t>* out) {
    const size_t before = out->size();
    out->insert(out->end(), answer_.begin(), answer_.end());
    answer_.clear();
    if (outbox_ != nullptr && sequence_ < outbox_->next()) {
      const auto packets = outbox_->From(sequence_);
      out->insert(out->end(), packets.begin(), packets.end());
      sequence_ = outbox_->next();
    }
    const Silence::Action action = silence_.Next(now_ns);
    if (action == Silence::Action::kGiveUp) over_ = true;
    if (action == Silence::Action::kHeartbeat && outbox_ != nullptr && out->size() == before) {
      const auto heartbeat = Emit(Type::kServerHeartbeat);
      out->insert(out->end(), heartbeat.begin(), heartbeat.end());
    }
    if (out->size() != before) silence_.OnSent(now_ns);
  }

  // To be closed, once what Pump() appended is sent.
  bool over() const { return over_; }
  bool logged_in() const { return outbox_ != nullptr; }

 private:
  template <typename LogIn>
  void OnLogin(const Packet& packet, LogIn&& log_in) {
    if (packet.type == Type::kDebug) return;  // May come at any time.
    over_ = true;  // Unless all is well.
    if (packet.type != Type::kLoginRequest) return;
    const auto request = ReadLoginRequest(packet);
    if (!request) return;
    const Outbox* outbox = log_in(*request);
    if (outbox == nullptr) return Answer(Emit(RejectReason::kNotAuthorized));
    const bool current =
        request->session == MakeSession("") || request->session == outbox->session();
    if (!current || request->sequence > outbox->next()) {
      return Answer(Emit(RejectReason::kNoSuchSession));
    }
    outbox_ = outbox;
    sequence_ = request->sequence == 0 ? outbox->next() : request->sequence;
    Answer(Emit(LoginAccepted{outbox->session(), sequence_}));
    over_ = false;
  }

  template <typename Packet>
  void Answer(const Packet& packet) {
    answer_.assign(packet.begin(), packet.end());
  }

  Stream stream_;
  Silence silence_;
  const Outbox* outbox_ = nullptr;  // Of who is logged in.
  uint64_t sequence_ = 0;           // Of the next message to send.
  std::vector<uint8_t> answer_;     // To the login.
  bool over_ = false;
};

}  // namespace trading::soup

#endif  // XTREME_SAMPLES_TRADING_SOUP_SESSION_H_
