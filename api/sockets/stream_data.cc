// SPDX-License-Identifier: Apache-2.0
//
// The bytes of connections, and what else happens to them.

#include <linux/tcp.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <limits>
#include <utility>
#include <vector>

#include "api/sockets/blocking.h"
#include "api/sockets/kernel_calls.h"
#include "api/sockets/log.h"
#include "api/sockets/refused_once.h"
#include "api/sockets/socket.h"
#include "api/sockets/stream.h"
#include "api/sockets/waiting.h"
#include "stack/packet/buffer_pool.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/send_flow.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/tcp_socket.h"

namespace xtreme::sockets {
namespace {

constexpr uint32_t kReadable = EPOLLIN | EPOLLRDNORM;
constexpr uint32_t kWritable = EPOLLOUT | EPOLLWRNORM;

// The parts of a call that are left, of which none is empty: one needs no list.
class Left {
 public:
  explicit Left(std::span<const iovec> parts) {
    if (parts.size() == 1) {
      one_ = parts[0];
      parts_ = {&one_, one_.iov_len == 0 ? 0u : 1u};
      return;
    }
    many_.assign(parts.begin(), parts.end());
    std::erase_if(many_, [](const iovec& part) { return part.iov_len == 0; });
    parts_ = many_;
  }
  Left(const Left&) = delete;
  Left& operator=(const Left&) = delete;

  std::span<const iovec> parts() const { return parts_; }
  bool empty() const { return parts_.empty(); }
  // `count` bytes, which there are, at the front are done.
  void Advance(size_t count) {
    while (!parts_.empty() && count >= parts_.front().iov_len) {
      count -= parts_.front().iov_len;
      parts_ = parts_.subspan(1);
    }
    if (count == 0) return;
    iovec& front = parts_.front();
    if (front.iov_base != nullptr) front.iov_base = static_cast<uint8_t*>(front.iov_base) + count;
    front.iov_len -= count;
  }

 private:
  iovec one_{};
  std::vector<iovec> many_;
  std::span<iovec> parts_;
};

// tcp_states.h of Linux; linux/tcp.h, which knows all of tcp_info, has none.
enum : uint8_t {
  TCP_ESTABLISHED = 1,
  TCP_SYN_SENT,
  TCP_SYN_RECV,
  TCP_FIN_WAIT1,
  TCP_FIN_WAIT2,
  TCP_TIME_WAIT,
  TCP_CLOSE,
  TCP_CLOSE_WAIT,
  TCP_LAST_ACK,
  TCP_LISTEN,
  TCP_CLOSING,
};

uint8_t StateOnLinux(engine::TcpState state) {
  using State = engine::TcpState;
  switch (state) {
    case State::kClosed: return TCP_CLOSE;
    case State::kListen: return TCP_LISTEN;
    case State::kSynSent: return TCP_SYN_SENT;
    case State::kSynReceived: return TCP_SYN_RECV;
    case State::kEstablished: return TCP_ESTABLISHED;
    case State::kFinWait1: return TCP_FIN_WAIT1;
    case State::kFinWait2: return TCP_FIN_WAIT2;
    case State::kCloseWait: return TCP_CLOSE_WAIT;
    case State::kClosing: return TCP_CLOSING;
    case State::kLastAck: return TCP_LAST_ACK;
    case State::kTimeWait: return TCP_TIME_WAIT;
  }
  return TCP_CLOSE;
}

}  // namespace

uint32_t Socket::StreamMask() const {
  switch (stream_->state) {
    case Stream::State::kListening: return stream_->accepted.empty() ? 0 : kReadable;
    case Stream::State::kEnded: return kReadable | kWritable | EPOLLHUP | EPOLLRDHUP;
    case Stream::State::kConnected:
      return (stream_->peer_closed ? kReadable | EPOLLRDHUP : 0) |
             (stream_->writable || write_shut_ ? kWritable : 0);
    default: return 0;
  }
}

// Why the ring could not begin to connect, of which nobody was sent anything; null: it could. A
// port that the program chose is taken by a connection of the ring, to which the kernel's segments
// would seem to belong.
const char* Socket::WhyNotOpened(int status) const {
  if (stream_->state != Stream::State::kConnecting) return nullptr;
  if (status == ENOSPC) return "connect: the device's table of rules is full";
  const bool any_port = local_.port == 0;
  if (status == EADDRINUSE && any_port) return "connect: no port of the ring is free to its peer";
  return nullptr;
}

void Socket::OnStreamEvent(const engine::Completion& completion) {
  const bool completions = taker_ == Taker::kCompletions;
  switch (completion.kind) {
    case engine::Kind::kAccepted: return OnAccepted(completion);
    case engine::Kind::kEstablished:
      stream_->state = Stream::State::kConnected;
      stream_->established = true;
      local_ = ReceivedFrom(completion).destination;
      if (completions) door()->Tell({.socket = this, .events = EPOLLOUT});
      return Mark();
    case engine::Kind::kPeerClosed:
      stream_->peer_closed = true;
      if (completions) door()->Tell({.socket = this, .events = EPOLLIN | EPOLLRDHUP});
      Mark();
      // An edge, even if bytes wait as well: who reads fewer than it asked for waits for the next.
      return Change(0, 0, mask());
    case engine::Kind::kTxSpace:
      stream_->writable = true;
      if (completions) door()->Tell({.socket = this, .events = EPOLLOUT});
      return Change(kWritable, 0, kWritable);
    case engine::Kind::kTerminated:
      // Who takes completions has no use for the kernel's.
      if (const char* const why = WhyNotOpened(completion.status); why != nullptr && !completions) {
        return ConnectInKernel(why);
      }
      // Linux: it keeps its name.
      if (local_.port == 0) local_.port = completion.destination_port;
      return EndStream(completion.status);
    case engine::Kind::kOpDone:
      if (completion.status == 0 || completion.cookie != kPaceCookie) return;
      return Log(LogLevel::kDetails, "fd {} is not paced: {}", fd(),
                 completion.text == nullptr ? "" : completion.text);
    default: return;
  }
}

void Socket::EndStream(int status) {
  if (stream_->state == Stream::State::kEnded) return;
  const bool orderly = status == 0;
  // Linux: between two names there is one connection.
  const bool opens = stream_->state == Stream::State::kConnecting;
  if (opens && status == EADDRINUSE) status = EADDRNOTAVAIL;
  // Linux: a reset in CLOSE-WAIT is what becomes of bytes that were sent too late.
  const bool close_wait = stream_->peer_closed && !write_shut_;
  if (status == ECONNRESET && close_wait) status = EPIPE;
  stream_->state = Stream::State::kEnded;
  if (!orderly) error_.store(status, std::memory_order_relaxed);
  if (taker_ == Taker::kCompletions) TellOfEnd();
  Mark();
}

// Not where both have said FIN, of which the peer's was told.
void Socket::TellOfEnd() {
  const bool orderly = error_.load(std::memory_order_relaxed) == 0;
  if (orderly && stream_->peer_closed) return;
  const uint32_t error = orderly ? 0 : uint32_t{EPOLLERR};
  door()->Tell({.socket = this, .events = EPOLLIN | EPOLLHUP | EPOLLRDHUP | error});
}

// --- Receiving ---

ssize_t Socket::TakeBytes(ReceiveRequest* request) {
  if (path() != Path::kOffloaded) return Overtaken();
  const bool peek = (request->flags & MSG_PEEK) != 0;
  size_t before = peek ? stream_->PeekOffset() : 0;
  if (queue_.empty() || (before != 0 && before >= queued_payload())) {
    const bool over = read_shut_ || stream_->state == Stream::State::kEnded;
    // Linux: after FIN there is nothing to read, and no error to learn by reading.
    if (stream_->peer_closed) return 0;
    if (const int error = TakeError(); error != 0) return -error;
    if (over) return 0;
    if (stream_->state == Stream::State::kListening) return -ENOTCONN;
    return taker_ == Taker::kCompletions ? -EOPNOTSUPP : -EAGAIN;
  }
  if (request->took != nullptr) return TakeOne(request);
  // As Linux: bytes of a connection are counted, and nothing is written (tcp(7)).
  const bool discards = (request->flags & MSG_TRUNC) != 0;
  size_t total = 0;
  size_t index = 0;
  while (before != 0 && before >= queue_[index].length) before -= queue_[index++].length;
  Received view = queue_[index];
  if (before != 0) PassOver(&view, before);
  for (const iovec& part : request->to) {
    size_t at = 0;
    while (at < part.iov_len && index < queue_.size()) {
      Received& front = peek ? view : queue_.front();
      const size_t room = part.iov_len - at;
      const size_t taken =
          discards ? std::min<size_t>(room, front.length)
                   : CopyOut(front, static_cast<uint8_t*>(part.iov_base) + at, room);
      at += taken;
      total += taken;
      const bool whole = taken == front.length;
      if (peek && !whole) PassOver(&view, taken);
      if (peek && whole && ++index < queue_.size()) view = queue_[index];
      if (!peek) TakeFront(&front, taken);
      if (!peek && whole) queue_.pop_front();
    }
  }
  stream_->MovePeekOffset(peek ? static_cast<ssize_t>(total) : -static_cast<ssize_t>(total));
  const bool emptied = queue_.empty();
  if (emptied) OnReadEmpty();
  if (!emptied && low_water_.load(std::memory_order_relaxed) > 1) Mark();
  return static_cast<ssize_t>(total);
}

// Linux: looks move it on, and what is read moves it back.
void Stream::MovePeekOffset(ssize_t bytes) {
  const ssize_t offset = peek_offset.load(std::memory_order_relaxed);
  if (offset < 0) [[likely]] return;
  peek_offset.store(static_cast<int>(std::max<ssize_t>(offset + bytes, 0)),
                    std::memory_order_relaxed);
}

ssize_t Socket::ReceiveBytes(ReceiveRequest* request) {
  if ((request->flags & MSG_ERRQUEUE) != 0) return NoErrorQueued();
  // As Linux says where there are no urgent bytes: a ring has them among the others.
  if ((request->flags & MSG_OOB) != 0) return listening() ? -ENOTCONN : -EINVAL;
  request->about.source = peer_;
  // As Linux: with MSG_WAITALL as many as are asked for, else as SO_RCVLOWAT says.
  const bool all = (request->flags & MSG_WAITALL) != 0;
  const size_t enough = all ? std::numeric_limits<size_t>::max() : low_water_.load();
  const bool peek = (request->flags & MSG_PEEK) != 0;
  const bool ahead = peek && stream_->PeekOffset() != 0;
  // What is handed over is one packet, however many bytes it has.
  if ((enough == 1 && !ahead) || request->took != nullptr) {
    return BlockingAs(
        request->flags, receive_timeout_, EPOLLIN, [&] { return TakeBytes(request); },
        [&](RingDoor* door) { return TakeAfterProgress(door, request); });
  }
  if (peek) return PeekBytes(request, enough);
  Left left(request->to);
  ssize_t done = 0;
  constexpr uint32_t kEvents = EPOLLIN | kBelowLowWater;
  const auto take = [&]() -> ssize_t {
    // An error is the next call's, if this one has something.
    if (done > 0 && queue_.empty() && error_.load(std::memory_order_relaxed) != 0) return done;
    ReceiveRequest part{.to = left.parts(), .flags = request->flags};
    const ssize_t got = TakeBytes(&part);
    if (got <= 0) return got;
    done += got;
    left.Advance(static_cast<size_t>(got));
    return left.empty() || static_cast<size_t>(done) >= enough ? done : -EAGAIN;
  };
  const ssize_t result = Blocking(request->flags, receive_timeout_, kEvents, take, &done);
  return done > 0 ? done : result;
}

// Nothing is taken before there is enough: that more has come is seen by a look alone.
ssize_t Socket::PeekBytes(ReceiveRequest* request, size_t enough) {
  size_t room = 0;
  for (const iovec& part : request->to) room += part.iov_len;
  enough = std::min(enough, std::max<size_t>(room, 1));
  const base::Nanoseconds until = Waits(request->flags)
                                      ? base::DeadlineAfter(SteadyNow(), receive_timeout_)
                                      : base::Nanoseconds(0);
  bool interrupted = false;
  bool has_some = false;
  for (;;) {
    RingDoor* const ring = door();
    if (ring == nullptr) return Overtaken();
    Sleeper::OfThread().Rest();
    const Attachment attachment(this, &Sleeper::OfThread());
    {
      const RingDoor::Entry entry(ring);
      ring->Progress();
      const bool ends = stream_->peer_closed || read_shut_ ||
                        stream_->state == Stream::State::kEnded ||
                        error_.load(std::memory_order_relaxed) != 0;
      const bool over = interrupted || SteadyNow() >= until;
      const size_t queued = queued_payload();
      const size_t there = queued - std::min(queued, stream_->PeekOffset());
      has_some = there != 0;
      const bool takes = queue_.empty() || ends || over || there >= enough;
      const ssize_t got = takes ? TakeBytes(request) : -EAGAIN;
      if (got == -EAGAIN && interrupted) return -EINTR;
      if (got != -EAGAIN || over) return got;
    }
    if (door() != ring) continue;
    RingDoor* const doors[] = {ring};
    const bool signalled = SleepOnRings(doors, {}, until, nullptr) == -EINTR;
    // Linux: who has some bytes is not begun anew.
    interrupted = signalled && (until != base::kNever || has_some || !CallsAreRestarted());
  }
}

// --- Sending ---

// It has ended in the ring, and TERMINATED, which says why, waits for what it held.
bool Socket::IsClosing() const {
  engine::TcpReport report;
  return door()->ring().tcp().Report(handle_, &report) &&
         report.state == engine::TcpState::kClosed;
}

// One TX_SPACE follows, or TERMINATED.
void Socket::SetUnwritable() {
  stream_->writable = false;
  Change(0, kWritable, 0);
}

ssize_t Socket::PutBytes(std::span<const iovec> from, int flags, RefusedOnce* refusals) {
  if (path() != Path::kOffloaded) return Overtaken();
  if (const int error = TakeError(); error != 0) return -error;
  if (write_shut_ || stream_->state == Stream::State::kEnded) return -EPIPE;
  if (stream_->state == Stream::State::kConnecting) return -EAGAIN;
  if (stream_->state != Stream::State::kConnected) return -EPIPE;
  engine::Tcp& tcp = door()->ring().tcp();
  engine::TcpSocket* const socket = tcp.Find(handle_);
  if (socket == nullptr) return -EPIPE;
  size_t sent = 0;
  for (size_t i = 0; i < from.size(); ++i) {
    const bool more = (flags & MSG_MORE) != 0 || i + 1 < from.size();
    const engine::SendOptions options{.flags = more ? uint32_t{engine::kMore} : 0};
    std::span<const uint8_t> bytes(static_cast<const uint8_t*>(from[i].iov_base), from[i].iov_len);
    while (!bytes.empty()) {
      engine::SendResult result{};
      const size_t taken = tcp.SendSome(socket, bytes, options, &result);
      sent += taken;
      bytes = bytes.subspan(taken);
      if (taken > 0) {
        refusals->Taken(tcp, *socket);
        continue;
      }
      refusals->Refused(tcp, *socket, result);
      if (result == engine::SendResult::kRefusedState && sent == 0 && !IsClosing()) return -EPIPE;
      SetUnwritable();
      break;
    }
    if (!bytes.empty()) break;
  }
  // Linux: what is writable takes more than a few bytes, without waiting, and who waits is not
  // woken for less.
  if (taker_ != Taker::kCompletions && !tcp.HasAmpleRoom(socket)) SetUnwritable();
  counters_.sent += sent > 0;
  counters_.sent_bytes += sent;
  return sent > 0 ? static_cast<ssize_t>(sent) : -EAGAIN;
}

// Of the first part, as many bytes as go into one segment.
ssize_t Socket::WarmStream(const SendRequest& request) {
  const RingDoor::Entry entry(door());
  engine::Tcp& tcp = door()->ring().tcp();
  engine::TcpSocket* const socket = tcp.Find(handle_);
  if (socket == nullptr || stream_->state != Stream::State::kConnected) return -ENOTCONN;
  const iovec part = request.from.empty() ? iovec{} : request.from.front();
  const auto length = static_cast<ssize_t>(part.iov_len);
  const engine::SendResult result =
      tcp.Send(socket, {.data = static_cast<const uint8_t*>(part.iov_base), .length = part.iov_len},
               {.flags = engine::kWarm});
  if (result == engine::SendResult::kRefusedSize) return -EMSGSIZE;
  if (static_cast<int>(result) < 0) return -EAGAIN;
  CountSent(/*warm=*/true, part.iov_len);
  return length;
}

// MSG_FASTOPEN: as connect() of a socket that has connected, or tries to; what has not is the
// kernel's by now.
int Socket::ConnectAsItSends() {
  if (stream_->state == Stream::State::kIdle) return static_cast<int>(Elsewhere());
  const int result = ConnectStream(sockaddr_in{});
  return result == kAskKernel ? -EISCONN : result;
}

// `request.to` is ignored, as Linux does for connections.
ssize_t Socket::SendStream(const SendRequest& request) {
  if ((request.flags & MSG_OOB) != 0) return -EOPNOTSUPP;
  if ((request.flags & MSG_FASTOPEN) != 0) {
    if (const int connected = ConnectAsItSends(); connected != 0) return connected;
  }
  if ((request.flags & kDummySend) != 0) return WarmStream(request);
  RefusedOnce refusals;
  Left left(request.from);
  const bool nowhere = request.nowhere();
  if (left.empty() || nowhere || request.wrong) {
    const ssize_t put = Blocking(request.flags, send_timeout_, EPOLLOUT, [&]() -> ssize_t {
      const ssize_t sent = PutBytes({}, request.flags, &refusals);
      const bool connecting = stream_->state == Stream::State::kConnecting;
      return sent == -EAGAIN && !connecting ? 0 : sent;
    });
    // Linux: even where it was shut before there was a connection, whose own end is not.
    if (request.wrong && (put == 0 || (put == -EPIPE && StillSends()))) return -EINVAL;
    return put == 0 && nowhere ? -EFAULT : WhyOvertaken(put);
  }
  const bool waits = Waits(request.flags);
  ssize_t done = 0;
  const auto put = [&]() -> ssize_t {
    if (done > 0 && error_.load(std::memory_order_relaxed) != 0) return done;
    const ssize_t sent = PutBytes(left.parts(), request.flags, &refusals);
    if (sent <= 0) return sent;
    done += sent;
    left.Advance(static_cast<size_t>(sent));
    return left.empty() || !waits ? done : -EAGAIN;
  };
  const ssize_t result = Blocking(request.flags, send_timeout_, EPOLLOUT, put, &done);
  return done > 0 ? done : WhyOvertaken(result);
}

// Linux: who waits to send takes the error of what another thread dissolved.
ssize_t Socket::WhyOvertaken(ssize_t result) {
  if (result != -EPIPE || path() != Path::kUndecided) [[likely]] return result;
  const int error = TakeLeftError();
  return error != 0 ? -error : result;
}

// --- The end ---

int Socket::ShutdownStream(int how) {
  RingDoor* const ring = door();
  if (ring == nullptr) return static_cast<int>(Elsewhere());
  // Linux: whichever way is shut, the attempt is over, as if it had been reset.
  if (stream_->state == Stream::State::kConnecting) return EndStreamAnew(/*by_shutdown=*/true), 0;
  const RingDoor::Entry entry(ring);
  // Linux: an attempt that failed, of which nobody was told, is not followed by another.
  if (stream_->state == Stream::State::kEnded && !stream_->connect_told) stream_->spoiled = true;
  stream_->connect_told = true;
  if (stream_->state != Stream::State::kConnected) {
    // Who waits is woken all the same.
    Change(0, 0, mask());
    return -ENOTCONN;
  }
  if (how != SHUT_WR) read_shut_ = true;
  if (how != SHUT_RD) {
    // Perhaps it was before there was a connection: then that is not shut yet.
    write_shut_ = true;
    ring->ring().tcp().Shutdown(handle_);
  }
  Mark();
  // Linux: an edge of all that holds.
  Change(0, 0, mask());
  return 0;
}

// Its side of the connection is not closed, whatever was shut.
bool Socket::StillSends() {
  RingDoor* const ring = door();
  if (ring == nullptr) return false;
  const RingDoor::Entry entry(ring);
  using State = engine::TcpState;
  engine::TcpReport report;
  return ring->ring().tcp().Report(handle_, &report) &&
         (report.state == State::kEstablished || report.state == State::kCloseWait);
}

// It has closed its side, and the peer has not acknowledged all of it yet.
bool Socket::AwaitsAcknowledgement() {
  RingDoor* const ring = door();
  if (ring == nullptr) return false;
  const RingDoor::Entry entry(ring);
  if (ring->polling()) return false;  // Nothing comes before who gives it goes on.
  ring->Progress();
  using State = engine::TcpState;
  engine::TcpReport report;
  return ring->ring().tcp().Report(handle_, &report) &&
         (report.state == State::kFinWait1 || report.state == State::kClosing ||
          report.state == State::kLastAck);
}

void Socket::LingerBeforeClose() {
  linger lingers{};
  socklen_t length = sizeof lingers;
  const bool last = HasConnected() && descriptors == 1 && taker_ != Taker::kCompletions &&
                    stream_->Asked(SOL_SOCKET, SO_LINGER).value_or(0) != 0;
  if (!last || Kernel().getsockopt(fd(), SOL_SOCKET, SO_LINGER, &lingers, &length) != 0) return;
  if (lingers.l_onoff == 0 || lingers.l_linger == 0 || ReadableBytes() > 0) return;
  if (Shutdown(SHUT_WR) != 0) return;
  const base::Nanoseconds until =
      base::DeadlineAfter(SteadyNow(), base::Seconds(static_cast<uint32_t>(lingers.l_linger)));
  constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 1'000'000};
  // Until a signal comes, too.
  while (AwaitsAcknowledgement() && SteadyNow() < until && nanosleep(&kPause, nullptr) == 0) {
  }
}

// Bytes that were not read are lost to the program; the peer is told by a reset, as by Linux.
void Socket::CloseStream(RingDoor* ring) {
  engine::Tcp& tcp = ring->ring().tcp();
  linger lingers{};
  socklen_t length = sizeof lingers;
  Kernel().getsockopt(fd(), SOL_SOCKET, SO_LINGER, &lingers, &length);
  const bool resets = (lingers.l_onoff != 0 && lingers.l_linger == 0) || !queue_.empty();
  if (listening()) {
    ring->KeepClaim(local_, std::exchange(stream_->claim, -1));
    tcp.DetachListener(handle_);
  } else if (resets && stream_->state == Stream::State::kConnected) {
    tcp.Abort(handle_);
  } else {
    tcp.Detach(handle_);
  }
  for (const auto& child : stream_->accepted) {
    tcp.Abort(child->handle_);
    ring->Forget(child->handle_, child.get());
    child->DropQueue();
    child->door_.store(nullptr);
  }
  stream_->accepted.clear();
}

// As Linux: FIN counts as a byte.
int Socket::TellableBytes() {
  if (stream_ == nullptr || !stream_->tells_queued.load(std::memory_order_relaxed)) return -1;
  const int bytes = ReadableBytes();
  return bytes < 0 ? -1 : bytes + (stream_->peer_closed ? 1 : 0);
}

int Socket::UnacknowledgedBytes() {
  return AskStream([](const engine::TcpReport& each) { return each.in_flight + each.unsent; });
}

int Socket::UnsentBytes() {
  return AskStream([](const engine::TcpReport& report) { return report.unsent; });
}

// Bytes of a connection that wait to be sent, or acknowledged, as `bytes` takes them from a report.
template <typename Bytes>
int Socket::AskStream(const Bytes& bytes) {
  RingDoor* const ring = door();
  if (stream_ == nullptr || ring == nullptr) return kAskKernel;
  if (listening()) return -EINVAL;
  const RingDoor::Entry entry(ring);
  ring->Progress();
  engine::TcpReport report;
  const bool open = ring->ring().tcp().Report(handle_, &report);
  const bool opening = report.state == engine::TcpState::kSynSent ||
                       report.state == engine::TcpState::kSynReceived;
  return open && !opening ? static_cast<int>(bytes(report)) : 0;
}

// Of what is no connection yet, or no more, the kernel's socket says what was asked for.
bool Socket::SegmentBytes(int* bytes) {
  RingDoor* const ring = door();
  if (!HasConnected() || ring == nullptr) return false;
  const RingDoor::Entry entry(ring);
  engine::TcpReport report;
  *bytes = ring->ring().tcp().Report(handle_, &report) ? static_cast<int>(report.mss) : 0;
  return *bytes != 0;
}

bool Socket::FillTcpInfo(void* value, socklen_t* length) {
  RingDoor* const ring = door();
  if (stream_ == nullptr || ring == nullptr) return false;
  const RingDoor::Entry entry(ring);
  engine::TcpReport report;
  ring->Progress();
  if (path() != Path::kOffloaded || !ring->ring().tcp().Report(handle_, &report)) return false;
  tcp_info info{};
  const uint32_t mss = std::max(report.mss, 1u);
  info.tcpi_state = StateOnLinux(report.state);
  info.tcpi_unacked = (report.in_flight + mss - 1) / mss;
  info.tcpi_snd_ssthresh = report.slow_start_threshold / mss;
  info.tcpi_rtt = static_cast<uint32_t>(report.srtt.count() / 1'000);
  info.tcpi_rttvar = static_cast<uint32_t>(report.rttvar.count() / 1'000);
  info.tcpi_rto = static_cast<uint32_t>(report.rto.count() / 1'000);
  info.tcpi_snd_mss = report.mss;
  info.tcpi_snd_cwnd = report.mss == 0 ? 0 : report.congestion_window / report.mss;
  info.tcpi_total_retrans = report.retransmits;
  info.tcpi_ca_state = report.in_recovery ? TCP_CA_Recovery : TCP_CA_Open;
  info.tcpi_pmtu = ring->ring().tcp().PathMtu(handle_, peer_, local_.address);
  info.tcpi_rcv_space = report.receive_window;
  info.tcpi_notsent_bytes = report.unsent;
  const engine::TcpCounters& counters = ring->ring().tcp().Find(handle_)->counters;
  info.tcpi_bytes_received = counters.received_bytes;
  // On Linux the SYN of who connects is one of them.
  const uint64_t not_acknowledged = uint64_t{report.in_flight} + report.unsent;
  const uint64_t sent = counters.sent_bytes + (stream_->connects && stream_->established ? 1 : 0);
  info.tcpi_bytes_acked = sent - std::min(sent, not_acknowledged);
  *length = std::min<socklen_t>(*length, sizeof info);
  memcpy(value, &info, *length);
  return true;
}

}  // namespace xtreme::sockets
