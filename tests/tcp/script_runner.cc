// SPDX-License-Identifier: Apache-2.0

#include <cerrno>
#include <cstring>
#include <deque>
#include <sstream>

#include "stack/packet/buffer_pool.h"
#include "stack/tcp/connection.h"
#include "stack/tcp/stack.h"
#include "stack/wire/tcp_frame.h"
#include "stack/wire/tcp_template.h"
#include "tests/tcp/script.h"

namespace xtreme::tcp::testing {
namespace {

constexpr base::Nanoseconds kStart = base::Seconds(1000);
constexpr uint32_t kStartMs = 1'000'000;
constexpr uint32_t kPeerIsn = 5000;
constexpr uint32_t kBufferBytes = 2048;
constexpr uint32_t kLongest = kBufferBytes - 54;
constexpr wire::Endpoint kLocal{wire::Ipv4Address(10, 0, 0, 1), 80};
constexpr wire::Endpoint kPeer{wire::Ipv4Address(10, 0, 0, 2), 4000};

struct Sent {
  base::Nanoseconds when;
  ScriptSegment segment;
};

const char* NameOfResult(SendResult result) {
  switch (result) {
    case SendResult::kSent:
      return "sent";
    case SendResult::kQueued:
      return "queued";
    case SendResult::kWindow:
      return "window";
    case SendResult::kCongestion:
      return "congestion";
    case SendResult::kRecovery:
      return "recovery";
    case SendResult::kDevice:
      return "device";
    case SendResult::kBuffers:
      return "buffers";
    case SendResult::kState:
      return "state";
  }
  return "?";
}

int ErrorOf(const std::string& name) {
  if (name == "ECONNREFUSED") return ECONNREFUSED;
  if (name == "EHOSTUNREACH") return EHOSTUNREACH;
  return name == "EMSGSIZE" ? EMSGSIZE : 0;
}

std::string NameOfError(int error) {
  if (error == 0) return "0";
  return ::strerrorname_np(error);
}

class Runner : public Device {
 public:
  Runner() {
    using packet::BufferPool;
    auto pool = BufferPool::Create({.buffers = 1024,
                                    .buffer_bytes = kBufferBytes,
                                    .hugepages = BufferPool::Hugepages::kNever});
    pool_ = *std::move(pool);
    MakeStack();
    options_.quick_acks = 0;
    options_.timestamps = false;
  }

  Sink::Taken Transmit(const OutgoingFrame& frame) override {
    if (deaf_) return Sink::Taken::kRefused;
    uint8_t bytes[2048];
    const size_t headers = frame.WriteHeaders(bytes);
    Segment* const segment = frame.segment();
    const size_t payload = segment != nullptr ? segment->length : 0;
    if (payload != 0) std::memcpy(bytes + headers, segment->bytes, payload);
    wire::TcpFrame tcp;
    frame.headers->FillChecksums(bytes, {bytes + headers, payload});
    if (wire::ParseTcpFrame(bytes, headers + payload, wire::kNoChecksumVerified, &tcp) ==
        wire::FrameVerdict::kTcp) {
      sent_.push_back({now_, Relative(tcp.segment)});
    }
    return Sink::Taken::kCopied;
  }

  std::string Run(const std::vector<ScriptLine>& lines) {
    for (const ScriptLine& line : lines) {
      std::string wrong = Step(line);
      if (!wrong.empty()) return "line " + std::to_string(line.number) + ": " + wrong;
    }
    if (!sent_.empty()) return "at the end: sent " + ToString(sent_.front().segment);
    if (!events_.empty()) return "at the end: event " + events_.front();
    return "";
  }

 private:
  void MakeStack() { stack_ = std::make_unique<Stack>(stack_options_, *this, *pool_, kStart); }

  std::string Step(const ScriptLine& line) {
    using Kind = ScriptLine::Kind;
    const base::Nanoseconds before = now_;
    if (line.latest > line.wait) return ExpectSentBetween(line);
    AdvanceTo(now_ + line.wait);
    if (line.kind == Kind::kSent) return ExpectSent(line);
    // Time that passes brings only what the script says.
    if (!sent_.empty() && line.kind != Kind::kEvent && sent_.front().when > before) {
      return "before it, sent " + ToString(sent_.front().segment);
    }
    switch (line.kind) {
      case Kind::kSet:
        return Set(line.words);
      case Kind::kCall:
        return Call(line.words);
      case Kind::kArrives:
        if (line.segment.length > kLongest) return "longer than a buffer";
        Arrive(line.segment);
        return "";
      case Kind::kEvent:
        return ExpectEvent(line.words);
      case Kind::kIs:
        return ExpectReport(line.words);
      case Kind::kSent:
        break;
    }
    return "";
  }

  void AdvanceTo(base::Nanoseconds when) {
    while (stack_->NextDeadline() <= when) {
      now_ = base::Later(now_, stack_->NextDeadline());
      stack_->OnTimers(now_);
      Drain();
    }
    now_ = when;
  }

  // As the script counts: from the initial numbers of each side.
  ScriptSegment Relative(const wire::TcpSegment& segment) {
    if (segment.Has(wire::kTcpSyn) && !isn_known_) {
      isn_ = segment.sequence;
      isn_known_ = true;
    }
    ScriptSegment relative;
    relative.flags = segment.flags;
    relative.sequence = segment.sequence - isn_;
    relative.length = segment.payload_bytes;
    if (segment.Has(wire::kTcpAck)) relative.ack = segment.acknowledgement - kPeerIsn;
    relative.window = segment.window;
    relative.options = segment.options;
    Shift(&*relative.options, 0 - kPeerIsn, 0 - kStartMs, 0);
    return relative;
  }

  static void Shift(wire::TcpOptions* options, uint32_t sack, uint32_t value, uint32_t echo) {
    for (wire::SackBlock& block : std::span(options->sack_blocks).first(options->sack_count)) {
      block.left += sack;
      block.right += sack;
    }
    if (!options->timestamps) return;
    options->timestamps->value += value;
    if (options->timestamps->echo != 0) options->timestamps->echo += echo;
  }

  void Arrive(const ScriptSegment& segment) {
    wire::TcpFrame frame;
    frame.flow = {.destination = kLocal.address,
                  .source = kPeer.address,
                  .destination_port = kLocal.port,
                  .source_port = kPeer.port,
                  .vlan_id = 0};
    frame.segment.sequence = kPeerIsn + segment.sequence;
    frame.segment.acknowledgement = segment.ack ? isn_ + *segment.ack : 0;
    frame.segment.window = segment.window.value_or(65535);
    frame.segment.urgent_pointer = segment.urgent.value_or(0);
    frame.segment.flags = segment.flags;
    frame.segment.payload_bytes = static_cast<uint16_t>(segment.length);
    if (segment.options) frame.segment.options = *segment.options;
    Shift(&frame.segment.options, isn_, 0, kStartMs);
    frame.payload_offset = 54;
    packet::Buffer* const buffer = pool_->Acquire();
    std::memset(buffer->data, 0, 54);
    for (uint32_t i = 0; i < segment.length; ++i) {
      buffer->data[54 + i] = static_cast<uint8_t>(segment.sequence + i);
    }
    buffer->length = 54 + segment.length;
    stack_->Input(frame, buffer, 0, now_);
    Drain();
  }

  void Drain() {
    Stack::Event event;
    while (!leaves_events_ && stack_->TakeEvent(&event)) {
      Connection* const connection = event.connection;
      const bool credit = !compares_events_ && event.kind == Stack::Event::Kind::kData;
      events_.push_back(Describe(event));
      if (!compares_events_) events_.clear();
      if (credit) stack_->Credit(*connection, event.bytes, now_);
    }
  }

  std::string Describe(const Stack::Event& event) {
    using Kind = Stack::Event::Kind;
    switch (event.kind) {
      case Kind::kEstablished:
        return "established";
      case Kind::kAccepted:
        connection_ = event.connection;
        return "accepted";
      case Kind::kData:
        return "data " + TakeBytes(event);
      case Kind::kDone:
        return event.cancelled ? "cancelled" : "done";
      case Kind::kPeerClosed:
        return "peer_closed";
      case Kind::kSendSpace:
        return "send_space";
      case Kind::kTerminated:
      case Kind::kDeparted:
        break;
    }
    stack_->Release(*event.connection);
    connection_ = nullptr;
    return "terminated " + NameOfError(event.status);
  }

  std::string TakeBytes(const Stack::Event& event) {
    bool right = true;
    for (const packet::Buffer* link = event.chain; link != nullptr; link = link->next) {
      for (const uint8_t byte : link->bytes()) right &= byte == static_cast<uint8_t>(next_byte_++);
    }
    packet::BufferPool::ReleaseChain(event.chain);
    return std::to_string(event.bytes) + (right ? "" : " (wrong bytes)");
  }

  std::string ExpectEvent(const std::vector<std::string>& words) {
    std::string expected;
    for (const std::string& word : words) expected += (expected.empty() ? "" : " ") + word;
    if (events_.empty()) return "no event, expected " + expected;
    const std::string event = events_.front();
    events_.pop_front();
    return event == expected ? "" : "event " + event + ", expected " + expected;
  }

  std::string ExpectSent(const ScriptLine& line) {
    if (sent_.empty()) return "nothing sent, expected " + ToString(line.segment);
    const base::Nanoseconds late = now_ - sent_.front().when;
    const ScriptSegment got = TakeSent(line.segment.length);
    const ScriptSegment& want = line.segment;
    const uint8_t compared = compares_push_ ? 0xFF : ~wire::kTcpPsh;
    const bool same = ((want.flags ^ got.flags) & compared) == 0 &&
                      want.sequence == got.sequence && want.length == got.length &&
                      (!want.ack || want.ack == got.ack) &&
                      (!want.window || want.window == got.window) &&
                      (!want.options || *want.options == *got.options);
    if (!same) return "sent " + ToString(got) + ", expected " + ToString(want);
    if (late > base::Milliseconds(1)) {
      return "sent " + std::to_string(late.count() / 1'000) + " us before its time";
    }
    return "";
  }

  // The first that was sent, with those that touch it up to `length`.
  ScriptSegment TakeSent(uint32_t length) {
    ScriptSegment taken = sent_.front().segment;
    sent_.pop_front();
    while (taken.length != 0 && taken.length < length && !sent_.empty()) {
      const ScriptSegment& next = sent_.front().segment;
      const bool touches = next.sequence == taken.sequence + taken.length;
      if (!touches || taken.length + next.length > length) break;
      const uint32_t before = taken.length;
      const uint32_t first = taken.sequence;
      taken = next;
      taken.sequence = first;
      taken.length += before;
      sent_.pop_front();
    }
    return taken;
  }

  // Time goes on until something is sent.
  std::string ExpectSentBetween(const ScriptLine& line) {
    if (!sent_.empty()) return "before it, sent " + ToString(sent_.front().segment);
    const base::Nanoseconds earliest = now_ + line.wait;
    const base::Nanoseconds latest = now_ + line.latest;
    while (sent_.empty() && stack_->NextDeadline() <= latest) AdvanceTo(stack_->NextDeadline());
    if (sent_.empty()) now_ = latest;
    if (now_ < earliest) {
      return "sent " + std::to_string((earliest - now_).count() / 1'000) + " us before its time";
    }
    return ExpectSent(line);
  }

  std::string ExpectReport(const std::vector<std::string>& words) {
    for (const std::string& word : words) {
      const size_t equals = word.find('=');
      const std::optional<int64_t> value = Reported(word.substr(0, equals));
      if (equals == std::string::npos || !value) return "not reported: " + word;
      const std::string is = word.substr(0, equals + 1) + std::to_string(*value);
      if (is != word) return is + ", expected " + word;
    }
    return "";
  }

  std::optional<int64_t> Reported(const std::string& name) {
    if (connection_ == nullptr) return Counted(name);
    const ConnectionReport report = connection_->Report(now_);
    if (name == "cwnd") return report.congestion_window;
    if (name == "ssthresh") return report.slow_start_threshold;
    if (name == "smss") return report.smss;
    if (name == "srtt_us") return report.srtt.count() / 1'000;
    if (name == "rto_us") return report.rto.count() / 1'000;
    if (name == "unsent") return report.unsent;
    if (name == "in_flight") return report.in_flight;
    if (name == "window") return report.send_window;
    if (name == "retransmits") return report.retransmits;
    if (name == "recovery") return report.in_recovery;
    return Counted(name);
  }

  std::optional<int64_t> Counted(const std::string& name) {
    std::optional<int64_t> counted;
    const auto visit = [&](std::string_view one, std::string_view, uint64_t count) {
      if (one == name) counted = static_cast<int64_t>(count);
    };
    base::VisitCounters(stack_->counters(), visit);
    base::VisitCounters(stack_->pcb_counters(), visit);
    base::VisitCounters(stack_->reassembly_counters(), visit);
    return counted;
  }

  std::string Set(const std::vector<std::string>& words) {
    for (const std::string& word : words) {
      const size_t equals = word.find('=');
      if (equals == std::string::npos) return "not NAME=VALUE: " + word;
      const double value = std::strtod(word.c_str() + equals + 1, nullptr);
      const std::string name = word.substr(0, equals);
      const bool known = SetOne(name, value) || SetOfRunner(name, value) || SetOfStack(name, value);
      if (!known) return "unknown setting: " + word;
    }
    if (connection_ != nullptr) stack_->OnOptionsChanged(*connection_, now_);
    return "";
  }

  bool SetOfRunner(const std::string& name, double value) {
    if (name == "push") return compares_push_ = value != 0, true;
    if (name == "events") return compares_events_ = value != 0, true;
    return false;
  }

  // Before anything else.
  bool SetOfStack(const std::string& name, double value) {
    const auto count = static_cast<uint32_t>(value);
    if (name == "segments") {
      stack_options_.segments = count;
    } else if (name == "syn_queue") {
      stack_options_.syn_queue = count;
    } else if (name == "deliveries") {
      stack_options_.deliveries = count;
    } else if (name == "syns_per_second") {
      stack_options_.syns_per_second = count;
    } else {
      return false;
    }
    MakeStack();
    return true;
  }

  bool SetOne(const std::string& name, double value) {
    const base::Nanoseconds time(static_cast<int64_t>(value * 1e9));
    const auto count = static_cast<uint32_t>(value);
    if (name == "timestamps") return options_.timestamps = value != 0, true;
    if (name == "sack") return options_.sack = value != 0, true;
    if (name == "nagle") return options_.nagle = value != 0, true;
    if (name == "cork") return options_.cork = value != 0, true;
    if (name == "quick_ack") return options_.quick_ack = value != 0, true;
    if (name == "quick_acks") return options_.quick_acks = static_cast<uint8_t>(count), true;
    if (name == "receive_window") return options_.receive_window = count, true;
    if (name == "send_queue") return options_.send_queue = count, true;
    if (name == "mss") return options_.mss = static_cast<uint16_t>(count), true;
    if (name == "delayed_ack") return options_.delayed_ack = time, true;
    if (name == "min_rto") return options_.rto.min_rto = time, true;
    if (name == "retransmissions") {
      return options_.retransmissions = static_cast<uint8_t>(count), true;
    }
    if (name == "user_timeout") return options_.user_timeout = time, true;
    if (name == "fin_wait_timeout") return options_.fin_wait_timeout = time, true;
    if (name == "unsent_low_water") return options_.unsent_low_water = count, true;
    if (name == "scaled_window") return options_.scaled_window = count, true;
    if (name == "deferrals") return options_.deferrals = static_cast<uint8_t>(count), true;
    if (name == "connect_timeout") return options_.connect_timeout = time, true;
    if (name == "path_mtu_timeout") return options_.path_mtu_timeout = time, true;
    if (name == "keepalive_idle") return options_.keepalive_idle = time, true;
    if (name == "keepalive_interval") return options_.keepalive_interval = time, true;
    if (name == "keepalive_probes") {
      return options_.keepalive_probes = static_cast<uint8_t>(count), true;
    }
    return false;
  }

  std::string Call(const std::vector<std::string>& words) {
    const std::string& verb = words[0];
    const auto number = [&words](size_t i) {
      return i < words.size() ? std::strtod(words[i].c_str(), nullptr) : 0.0;
    };
    if (verb == "listen") {
      Stack::Listen listen{.local = kLocal, .options = &options_};
      if (words.size() > 1) listen.backlog = static_cast<uint32_t>(number(1));
      stack_->OpenListener(listen);
    } else if (verb == "connect") {
      connection_ =
          stack_->Open({.local = kLocal, .remote = kPeer, .options = &options_}, now_).connection;
    } else if (verb == "deaf" || verb == "room") {
      deaf_ = verb == "deaf";
      if (!deaf_) stack_->OnRoom(now_);
    } else if (verb == "up") {
      stack_->OnLinkUp(now_);
    } else if (verb == "leave") {
      leaves_events_ = true;
    } else if (verb == "icmp") {
      const int error = ErrorOf(words[2]);
      stack_->OnPathError(FlowKey::Of(kLocal, kPeer, 0),
                          {.sequence = isn_ + static_cast<uint32_t>(number(1)),
                           .error = error,
                           .hard = error == ECONNREFUSED,
                           .mtu = static_cast<uint32_t>(number(3)),
                           .length = static_cast<uint32_t>(number(4))},
                          now_);
    } else {
      return CallConnection(words, number(1));
    }
    Drain();
    return "";
  }

  std::string CallConnection(const std::vector<std::string>& words, double number) {
    if (connection_ == nullptr) return "no connection to call";
    const std::string& verb = words[0];
    const base::Nanoseconds time(static_cast<int64_t>(number * 1e9));
    std::string wrong;
    if (verb == "send") {
      wrong = SendBytes(words, static_cast<size_t>(number));
    } else if (verb == "credit") {
      stack_->Credit(*connection_, static_cast<uint32_t>(number), now_);
    } else if (verb == "shutdown") {
      stack_->Shutdown(*connection_, now_);
    } else if (verb == "close") {
      stack_->Close(*connection_, words.size() > 1 ? time : base::Seconds(60), now_);
    } else if (verb == "abort") {
      stack_->Abort(*connection_, now_);
    } else {
      return "unknown call: " + verb;
    }
    Drain();
    return wrong;
  }

  std::string SendBytes(const std::vector<std::string>& words, size_t length) {
    Stack::Send send;
    std::string expected;
    for (size_t i = 2; i < words.size(); ++i) {
      send.now_or_fail |= words[i] == "now";
      send.more |= words[i] == "more";
      send.want_done |= words[i] == "done";
      if (words[i] == "->" && i + 1 < words.size()) expected = words[i + 1];
    }
    const std::vector<uint8_t> bytes(length);
    const std::string result = NameOfResult(stack_->SendCopy(*connection_, bytes, send, now_));
    return expected.empty() || expected == result ? "" : "send said " + result;
  }

  packet::BufferPool::Handle pool_;
  Stack::Options stack_options_{.connections = 4};
  std::unique_ptr<Stack> stack_;
  PcbOptions options_;
  Connection* connection_ = nullptr;
  base::Nanoseconds now_ = kStart;
  uint32_t isn_ = 0;
  bool isn_known_ = false;
  bool deaf_ = false;
  bool leaves_events_ = false;
  bool compares_push_ = true;
  bool compares_events_ = true;
  uint32_t next_byte_ = 1;
  std::deque<Sent> sent_;
  std::deque<std::string> events_;
};

}  // namespace

std::string RunScript(const std::vector<ScriptLine>& lines) { return Runner().Run(lines); }

}  // namespace xtreme::tcp::testing
