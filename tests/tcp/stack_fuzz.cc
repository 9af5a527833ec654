// SPDX-License-Identifier: Apache-2.0
//
// Sequences of segments and calls against a Stack. Whatever comes: no byte is delivered twice, out
// of order or wrong; the right edge of the window never moves back; TERMINATED is a connection's
// last event and comes once; nothing leaks; the stack asks for no time that is past for ever.

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "stack/packet/buffer_pool.h"
#include "stack/tcp/connection.h"
#include "stack/tcp/fire.h"
#include "stack/tcp/stack.h"
#include "stack/tcp/take_expected.h"
#include "stack/wire/tcp_frame.h"

namespace xtreme::tcp {
namespace {

constexpr wire::Endpoint kLocal{wire::Ipv4Address(10, 0, 0, 1), 80};

void Check(bool holds) {
  if (!holds) std::abort();
}

class Exercise : public Device {
 public:
  explicit Exercise(std::span<const uint8_t> input) : input_(input) {
    using packet::BufferPool;
    pool_ = *BufferPool::Create(
        {.buffers = 256, .buffer_bytes = 2048, .hugepages = BufferPool::Hugepages::kNever});
    Stack::Options options{.connections = 3,
                           .segments = 32,
                           .deliveries = 8,
                           .syn_queue = 2,
                           .time_wait = 2,
                           .held_segments = 16};
    stack_ = std::make_unique<Stack>(options, *this, *pool_, now_);
    pcb_options_.receive_window = 3000 + 100u * Byte();
    pcb_options_.sack = (Byte() & 1) != 0;
    pcb_options_.timestamps = (Byte() & 1) != 0;
    pcb_options_.keepalive_idle = base::Seconds(30);
    stack_->OpenListener({.local = kLocal, .options = &pcb_options_, .backlog = 2});
  }

  void Run() {
    while (!input_.empty()) {
      Step();
      Drain();
    }
    CompleteAll();
    Drain();
    stack_.reset();
    Check(pool_->free_count() == pool_->capacity());
  }

  Sink::Taken Transmit(const OutgoingFrame& frame) override {
    if (refuse_) return Sink::Taken::kRefused;
    uint8_t headers[OutgoingFrame::kMaxHeadersBytes];
    const size_t bytes = frame.WriteHeaders(headers);
    Check(bytes >= 54 && bytes <= sizeof headers);
    Peer& peer = peers_[frame.headers->data()[frame.headers->tcp_offset() + 3] & 3];
    const Outgoing& out = *frame.outgoing;
    if ((out.flags & wire::kTcpSyn) != 0) peer.iss = out.sequence.value();
    peer.next =
        (out.sequence + (frame.segment() != nullptr ? frame.segment()->SequenceLength() : 0))
            .value();
    if (frame.connection != nullptr && (out.flags & wire::kTcpRst) == 0)
      CheckEdge(*frame.connection);
    if (frame.segment() == nullptr || frame.segment()->length < 100) return Sink::Taken::kCopied;
    posted_.push_back({frame.connection, frame.segment()});
    return Sink::Taken::kReferenced;
  }

 private:
  struct Peer {
    uint32_t iss = 0;   // what the stack sends from
    uint32_t next = 0;  // where it stands
  };
  struct Posted {
    Connection* connection;
    Segment* segment;
  };
  struct Watched {
    Seq edge;
    bool has_edge = false;
    uint32_t delivered = 0;
    bool opened = false;
    bool guessed = false;
    bool peer_closed = false;
  };

  uint8_t Byte() {
    if (input_.empty()) return 0;
    const uint8_t byte = input_[0];
    input_ = input_.subspan(1);
    return byte;
  }

  void CheckEdge(Connection& connection) {
    Watched& watched = watched_[&connection];
    const Seq edge = connection.receive_edge();
    if (connection.state() == State::kSynSent) return;
    Check(!watched.has_edge || edge >= watched.edge);
    watched.edge = edge;
    watched.has_edge = true;
  }

  static uint8_t ByteOf(uint32_t offset) {
    return static_cast<uint8_t>(offset * 31 + offset / 251);
  }
  static uint32_t IrsOf(int peer) { return 0xFFFFFF00u + static_cast<uint32_t>(peer) * 999; }

  void Step() {
    const uint8_t what = Byte();
    if (what < 160) return Arrive();
    if (what < 190) return Call();
    if (what < 220) return Wait();
    if (what < 230) return CompleteAll();
    if (what < 240) {
      refuse_ = !refuse_;
      if (!refuse_) stack_->OnRoom(now_);
      return;
    }
    const uint8_t peer = Byte() & 3;
    const uint8_t kind = Byte();
    stack_->OnPathError(KeyOf(peer),
                        {.sequence = peers_[peer].next - Byte(),
                         .error = kind & 1 ? EMSGSIZE : EHOSTUNREACH,
                         .hard = (kind & 2) != 0,
                         .mtu = Byte() * 8u,
                         .length = kind * 8u},
                        now_);
  }

  static FlowKey KeyOf(int peer) {
    return FlowKey::Of(kLocal, {wire::Ipv4Address(10, 0, 0, 2), static_cast<uint16_t>(4000 + peer)},
                       0);
  }

  // A segment near what would be right, or not.
  void Arrive() {
    const int peer = Byte() & 3;
    wire::TcpFrame frame;
    frame.flow = {.destination = kLocal.address,
                  .source = wire::Ipv4Address(10, 0, 0, 2),
                  .destination_port = kLocal.port,
                  .source_port = static_cast<uint16_t>(4000 + peer),
                  .vlan_id = 0};
    static constexpr uint8_t kUsual[] = {
        wire::kTcpAck, wire::kTcpAck | wire::kTcpPsh, wire::kTcpSyn, wire::kTcpAck | wire::kTcpFin,
        wire::kTcpRst, wire::kTcpSyn | wire::kTcpAck, wire::kTcpAck, wire::kTcpAck};
    const uint8_t flags = Byte();
    wire::TcpSegment& segment = frame.segment;
    segment.flags = flags < 240 ? kUsual[flags % 8] : Byte();
    const uint32_t offset = segment.Has(wire::kTcpSyn) ? 0 : 1 + Byte() * 40u + Byte() % 40u;
    segment.sequence = IrsOf(peer) + offset;
    const uint8_t back = Byte();
    segment.acknowledgement = peers_[peer].next - (back < 200 ? back % 4 * 50u : back * 7u);
    segment.window = static_cast<uint16_t>(Byte() * 257u);
    segment.payload_bytes = segment.Has(wire::kTcpSyn) ? 0 : static_cast<uint16_t>(Byte() * 4u);
    if (segment.Has(wire::kTcpSyn) || (flags & 16) != 0) segment.options = Options(peer);
    if ((flags & 32) != 0 && TakeShortly(frame, offset)) return;
    Send(frame, offset);
  }

  // Where the stack would take it without an event of its own.
  bool TakeShortly(const wire::TcpFrame& frame, uint32_t offset) {
    Connection* const connection = stack_->Find(FlowKey::Of(frame.flow));
    if (connection == nullptr || !connection->SaysAckOnly(frame.segment)) return false;
    const uint32_t bytes = frame.segment.payload_bytes;
    const ParsedAck segment(frame.segment);
    if (!stack_->TakeIfExpected(*connection, segment, bytes, [this] { return now_; })) return false;
    Watched& watched = watched_[connection];
    Check(watched.opened && (bytes == 0 || !watched.peer_closed));
    for (uint32_t i = 0; i < bytes; ++i) {
      Check(ByteOf(offset - 1 + i) == ByteOf(watched.delivered++) || watched.guessed);
    }
    CheckEdge(*connection);
    return true;
  }

  wire::TcpOptions Options(int peer) {
    wire::TcpOptions options;
    const uint8_t which = Byte();
    if (which & 1) options.mss = static_cast<uint16_t>(Byte() * 8u);
    if (which & 2) options.window_scale = Byte() % 16;
    options.sack_permitted = (which & 4) != 0;
    if (which & 8) options.timestamps = wire::TcpTimestamps{1000u + Byte(), Byte()};
    if (which & 16) {
      const uint32_t right = peers_[peer].next - Byte();
      const wire::SackBlock block{right - Byte() * 3u, right};
      options.SetSack({&block, 1});
    }
    return options;
  }

  void Send(wire::TcpFrame& frame, uint32_t offset) {
    packet::Buffer* const buffer = pool_->Acquire();
    if (buffer == nullptr) return;
    std::memset(buffer->data, 0, 54);
    for (uint32_t i = 0; i < frame.segment.payload_bytes; ++i) {
      buffer->data[54 + i] = ByteOf(offset - 1 + i);
    }
    buffer->length = 54u + frame.segment.payload_bytes;
    frame.payload_offset = 54;
    const uint64_t accepted = stack_->counters().cookies_accepted;
    stack_->Input(frame, buffer, 0, now_);
    // A cookie is guessed once in 2^23: such a connection begins anywhere.
    guessed_ = stack_->counters().cookies_accepted != accepted && offset != 1;
  }

  void Call() {
    const uint8_t what = Byte();
    if (what % 16 == 15) {
      const int peer = Byte() & 3;
      const Stack::Opened opened = stack_->Open(
          {.local = kLocal, .remote = KeyOf(peer).remote(), .options = &pcb_options_}, now_);
      if (opened.connection != nullptr) open_.push_back(opened.connection);
      return;
    }
    if (open_.empty()) return;
    Connection& connection = *open_[Byte() % open_.size()];
    switch (what % 8) {
      case 0:
        stack_->Shutdown(connection, now_);
        break;
      case 1:
        stack_->Close(connection, base::Seconds(Byte()), now_);
        break;
      case 2:
        stack_->Abort(connection, now_);
        break;
      case 3:
        stack_->Credit(connection, Byte() * 20u, now_);
        break;
      default: {
        const std::vector<uint8_t> bytes(Byte() * 10u);
        if ((what & 64) != 0 && Fire(connection, bytes, what > 128)) break;
        stack_->SendCopy(connection, bytes, {.want_done = what > 128, .cookie = what}, now_);
      }
    }
  }

  // Where the stack would let it leave as one segment that its caller posts.
  bool Fire(Connection& connection, std::span<const uint8_t> bytes, bool want_done) {
    const Stack::Send send{.now_or_fail = want_done, .want_done = want_done, .cookie = 1};
    const auto length = static_cast<uint32_t>(bytes.size());
    Outgoing outgoing;
    if (bytes.empty() || !stack_->MayFire(connection, length, send, now_, &outgoing)) return false;
    packet::Buffer* const kept = pool_->Acquire();
    if (kept == nullptr) return false;
    std::memcpy(kept->data, bytes.data(), length);
    kept->length = length;
    Segment& segment =
        stack_->Fired(connection, outgoing, {.bytes = kept->data, .length = length, .buffer = kept},
                      send, /*posts_reference=*/length >= 100, now_);
    if (length >= 100) posted_.push_back({&connection, &segment});
    peers_[connection.flow_key().remote().port & 3].next = (outgoing.sequence + length).value();
    CheckEdge(connection);
    return true;
  }

  void Wait() {
    now_ += base::Microseconds(int64_t{1} << Byte() % 27);
    for (int i = 0; stack_->NextDeadline() <= now_; ++i) {
      stack_->OnTimers(now_);
      Drain();
      Check(i < 100);
    }
  }

  void CompleteAll() {
    const std::vector<Posted> posted = std::move(posted_);
    posted_.clear();
    for (const Posted& wqe : posted) {
      stack_->OnWqeCompleted(*wqe.connection, *wqe.segment);
    }
  }

  void Drain() {
    Stack::Event event;
    while (stack_->TakeEvent(&event)) Take(event);
  }

  void Take(const Stack::Event& event) {
    using Kind = Stack::Event::Kind;
    Watched& watched = watched_[event.connection];
    switch (event.kind) {
      case Kind::kAccepted:
        open_.push_back(event.connection);
        watched.guessed = guessed_;
        [[fallthrough]];
      case Kind::kEstablished:
        Check(!watched.opened);
        watched.opened = true;
        break;
      case Kind::kData:
        TakeBytes(event, watched);
        break;
      case Kind::kPeerClosed:
        Check(watched.opened && !watched.peer_closed);
        watched.peer_closed = true;
        break;
      case Kind::kTerminated:
        std::erase(open_, event.connection);
        watched_.erase(event.connection);
        stack_->Release(*event.connection);
        break;
      default:
        break;
    }
  }

  void TakeBytes(const Stack::Event& event, Watched& watched) {
    Check(watched.opened && !watched.peer_closed);
    uint32_t bytes = 0;
    for (const packet::Buffer* link = event.chain; link != nullptr; link = link->next) {
      for (const uint8_t byte : link->bytes()) {
        Check(byte == ByteOf(watched.delivered++) || watched.guessed);
        ++bytes;
      }
    }
    Check(bytes == event.bytes);
    packet::BufferPool::ReleaseChain(event.chain);
  }

  std::span<const uint8_t> input_;
  packet::BufferPool::Handle pool_;
  std::unique_ptr<Stack> stack_;
  PcbOptions pcb_options_;
  base::Nanoseconds now_ = base::Seconds(1);
  Peer peers_[4];
  std::vector<Posted> posted_;
  std::vector<Connection*> open_;
  std::map<Connection*, Watched> watched_;
  bool refuse_ = false;
  bool guessed_ = false;  // What the last segment acknowledged.
};

}  // namespace
}  // namespace xtreme::tcp

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  xtreme::tcp::Exercise({data, size}).Run();
  return 0;
}
