// SPDX-License-Identifier: Apache-2.0
//
// From the ring's completions to the socket's queue, and from there to the program.

#include <linux/net_tstamp.h>
#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <optional>
#include <utility>

#include "api/sockets/blocking.h"
#include "api/sockets/faces.h"
#include "api/sockets/kernel_calls.h"
#include "api/sockets/progress.h"
#include "api/sockets/socket.h"
#include "api/sockets/stream.h"
#include "api/sockets/waiting.h"
#include "stack/packet/buffer_pool.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/tcp.h"

namespace xtreme::sockets {
namespace {

constexpr uint32_t kReadable = EPOLLIN | EPOLLRDNORM;
// What a queued datagram is charged beside its bytes, so that small ones are bounded too.
constexpr uint32_t kQueuedOverhead = 512;
// Of a stream: from so many packets that nobody has read, others share buffers, so that small
// segments do not take the pool.
constexpr size_t kReadLate = 64;

bool HasMoreLinks(const Received& packet, size_t most) {
  const packet::Buffer* link = packet.buffer;
  for (size_t i = 0; i < most && link != nullptr; ++i) link = link->next;
  return link != nullptr;
}

// Into the buffer of the last one, neither being read in part.
bool Join(engine::Tcp& tcp, Received* last, const Received& packet) {
  if (last->buffer == nullptr || packet.data != packet.buffer->data) return false;
  if (!tcp.Join(last->buffer, packet.buffer)) return false;
  last->length += packet.length;
  return true;
}

}  // namespace

void Socket::OnCompletion(const engine::Completion& completion) {
  if (stream_ != nullptr && completion.kind != engine::Kind::kPacket) {
    return OnStreamEvent(completion);
  }
  switch (completion.kind) {
    case engine::Kind::kPacket: return OnPacket(completion);
    case engine::Kind::kError: return OnError(completion);
    default: return;
  }
}

// Linux tells who has a peer of errors about that alone, and who has none where IP_RECVERR asks for
// it. One of before there was that peer may still be on its way.
void Socket::OnError(const engine::Completion& completion) {
  if (peer_.port == 0 || completion.status == 0) return;
  const wire::Endpoint about = ReceivedFrom(completion).destination;
  if (about.port != 0 && about != peer_) return;
  error_.store(completion.status, std::memory_order_relaxed);
  if (taker_ == Taker::kCompletions) door()->Tell({.socket = this, .events = EPOLLERR});
  Mark();
}

void Socket::OnPacket(const engine::Completion& completion) {
  Received packet = ReceivedFrom(completion);
  CountReceived(completion);
  const Wanted asked = wanted();
  if (asked.arrival() || callback_) clock_gettime(CLOCK_REALTIME, &packet.arrival);
  if (deaf_) return Release(&packet);
  // Nobody is to read it, ever (RFC 1122, section 4.2.2.13).
  if (stream_ != nullptr && read_shut_ && write_shut_) {
    Release(&packet);
    door()->ring().tcp().Abort(handle_);
    return EndStream(ECONNRESET);
  }
  if (callback_) {
    // In a copy: the callback may take itself off, or close the socket.
    const ReceiveCallback callback = callback_;
    const std::shared_ptr<Socket> self = shared_from_this();
    const Uncancelled whole;
    const Verdict verdict = callback(*this, packet);
    counters_.by_callback += verdict != Verdict::kQueue;
    if (verdict == Verdict::kDrop || path() != Path::kOffloaded) return Release(&packet);
    if (verdict == Verdict::kHold) return Hold(packet);
  }
  if (taker_ == Taker::kCompletions) {
    return door()->Tell({.socket = this, .events = kPacketHappened, .packet = packet});
  }
  Queue(packet);
}

bool Socket::HasRoomFor(const engine::Completion& packet, uint32_t* charge) {
  const uint32_t more = packet.length + kQueuedOverhead;
  if (stream_ == nullptr && queued_bytes_ + *charge + more > queue_limit_) {
    ++counters_.dropped;
    return false;
  }
  *charge += more;
  return true;
}

void Socket::Queue(const Received& packet) {
  const uint32_t charge = packet.length + kQueuedOverhead;
  // A stream's window is its limit.
  if (stream_ == nullptr && queued_bytes_ + charge > queue_limit_) {
    ++counters_.dropped;
    Received dropped = packet;
    return Release(&dropped);
  }
  if (stream_ != nullptr && queue_.size() >= kReadLate &&
      Join(door()->ring().tcp(), &queue_.back(), packet)) {
    queued_bytes_ += packet.length;
    return Change(QueueMask(), 0, kReadable);
  }
  queued_bytes_ += charge;
  queue_.push_back(packet);
  plain_ &= ~kTakesNext;
  queue_.back().dropped = static_cast<uint32_t>(counters_.dropped);
  Change(QueueMask(), 0, kReadable);
}

uint32_t Socket::queued_payload() const {
  if (stream_ != nullptr) {  // Of the first, some may have been read.
    uint32_t bytes = 0;
    for (const Received& each : queue_) bytes += each.length;
    return bytes;
  }
  return queued_bytes_ - static_cast<uint32_t>(queue_.size()) * kQueuedOverhead;
}

uint32_t Socket::QueueMask() const {
  const uint32_t enough = low_water_.load(std::memory_order_relaxed);
  if (enough <= 1) [[likely]] return queue_.empty() ? 0 : kReadable;
  uint32_t bytes = 0;
  for (const Received& each : queue_) {
    bytes += each.length;
    if (bytes >= enough) return kReadable;
  }
  return bytes == 0 ? 0 : kBelowLowWater;
}

// With what it still has of buffers.
void Socket::DropFirst() {
  Received& front = queue_.front();
  queued_bytes_ -= front.length + kQueuedOverhead;
  if (front.buffer != nullptr) Release(&front);
  queue_.pop_front();
  if (queue_.empty()) OnReadEmpty();
}

// Of who receives by calls, and for whom more may come, nothing else makes it readable.
void Socket::OnReadEmpty() {
  queued_bytes_ = 0;
  if ((plain_ & kReceives) == 0) return Mark();
  plain_ |= kTakesNext;
  Change(0, kReadable, 0);
}

void Socket::DropQueue() {
  for (Received& packet : queue_) Release(&packet);
  queue_.clear();
  queued_bytes_ = 0;
}

// The mask from the state.
void Socket::Mark() {
  SetPlain();
  uint32_t begin = stream_ == nullptr ? EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND : StreamMask();
  begin |= QueueMask();
  if (read_shut_) begin |= kReadable;
  if (read_shut_) begin |= EPOLLRDHUP;
  if (read_shut_ && write_shut_) begin |= EPOLLHUP;
  if (error_.load(std::memory_order_relaxed) != 0) begin |= EPOLLERR;
  const uint32_t before = mask();
  Change(begin, ~begin, begin & ~before);
}

uint32_t Socket::Look() { return mask(); }

// Inside the door.
int Socket::TakeError() {
  if (error_.load(std::memory_order_relaxed) == 0) return 0;
  const int error = error_.exchange(0, std::memory_order_relaxed);
  Mark();
  return error;
}

int Socket::TakePendingError() {
  if (error_.load(std::memory_order_relaxed) == 0) return 0;
  RingDoor* const ring = door();
  if (ring == nullptr) return error_.exchange(0, std::memory_order_relaxed);
  const RingDoor::Entry entry(ring);
  return TakeError();
}

void Socket::KeepError(int error) {
  RingDoor* const ring = door();
  if (ring == nullptr) return;
  const RingDoor::Entry entry(ring);
  error_.store(error, std::memory_order_relaxed);
  Mark();
}

ssize_t Socket::TakeOne(ReceiveRequest* request) {
  Received& front = queue_.front();
  if (request->took != nullptr && HasMoreLinks(front, request->most_links)) return -ENOBUFS;
  request->about = front;
  size_t copied = 0;
  size_t room = 0;
  Received rest = front;
  for (const iovec& part : request->to) {
    room += part.iov_len;
    if (request->took != nullptr || copied >= front.length) continue;
    // A link at a time from where the last part ended.
    const size_t taken = CopyOut(rest, part.iov_base, part.iov_len);
    copied += taken;
    if (copied >= front.length) continue;
    PassOver(&rest, taken);
  }
  const size_t whole = front.length;
  if (request->took == nullptr && whole > room) request->message_flags |= MSG_TRUNC;
  if ((request->flags & MSG_PEEK) == 0) {
    if (request->took != nullptr) {
      *request->took = std::exchange(front, {.length = front.length});
      held_.insert(request->took->buffer);
    }
    DropFirst();
  }
  if (request->took != nullptr || (request->flags & MSG_TRUNC) != 0) {
    return static_cast<ssize_t>(whole);
  }
  return static_cast<ssize_t>(copied);
}

ssize_t Socket::TakeDatagram(ReceiveRequest* request) {
  if (path() != Path::kOffloaded) return Elsewhere();
  // Another's completions are not stolen.
  if (taker_ == Taker::kCompletions) return -EOPNOTSUPP;
  if (const int error = TakeError(); error != 0) return -error;
  if (!queue_.empty()) return TakeOne(request);
  // Linux: shutdown() wakes who waits, and nothing else.
  return read_shut_ && Waits(request->flags) ? 0 : -EAGAIN;
}

ssize_t Socket::Receive(ReceiveRequest* request) {
  TakeByCalls();
  if (stream_ != nullptr) {
    return path() == Path::kOffloaded ? ReceiveBytes(request) : Elsewhere();
  }
  for (;;) {
    const ssize_t got = ReceiveDatagram(request);
    const bool awaits = got == kAskKernel && path() == Path::kUndecided && Waits(request->flags) &&
                        (request->flags & MSG_ERRQUEUE) == 0 && faces_->enabled();
    if (!awaits) [[likely]] return got;
    const int waited = AwaitDecision();
    if (waited != 0) return waited;
  }
}

ssize_t Socket::ReceiveDatagram(ReceiveRequest* request) {
  if (path() == Path::kUndecided) Decide();
  if (path() != Path::kOffloaded) return Elsewhere();
  if ((request->flags & MSG_ERRQUEUE) != 0) return NoErrorQueued();
  return BlockingAs(
      request->flags, receive_timeout_, EPOLLIN, [&] { return TakeDatagram(request); },
      [&](RingDoor* door) { return TakeAfterProgress(door, request); });
}

// What would be in the queue of errors (MSG_ERRQUEUE) makes the socket the kernel's, but for times
// of what a connection sends, which a ring does not tell.
ssize_t Socket::NoErrorQueued() const {
  return (wanted().timestamping & SOF_TIMESTAMPING_TX_RECORD_MASK) != 0 ? -EOPNOTSUPP : -EAGAIN;
}

int Socket::AwaitDecision() {
  const base::Nanoseconds until = base::DeadlineAfter(SteadyNow(), receive_timeout_.load());
  Sleeper& sleeper = Sleeper::OfThread();
  sleeper.Rest();
  const Attachment attachment(this, &sleeper);
  while (path() == Path::kUndecided) {
    if (SteadyNow() >= until) return -EAGAIN;
    pollfd own[] = {{.fd = fd(), .events = POLLIN}};
    const int slept = SleepOnRings({}, own, until, nullptr);
    if (own[0].revents != 0) return kAskKernel;
    if (slept == -EINTR && (until != base::kNever || !CallsAreRestarted())) return -EINTR;
  }
  return 0;
}

ssize_t Socket::TakeAfterProgress(RingDoor* door, ReceiveRequest* request) {
  const bool one = request->to.size() == 1 && request->took == nullptr && !SaysMore();
  const bool plain = one && (plain_ & kTakesNext) != 0 && !door->behind() &&
                     (request->flags & ~kUsualFlags) == 0;
  if (plain) {
    const std::span to(static_cast<uint8_t*>(request->to[0].iov_base), request->to[0].iov_len);
    const ssize_t got = TakeNext(door, to, &request->about);
    if (request->about.length > to.size()) request->message_flags |= MSG_TRUNC;
    if (got != kGiveFirst) return got;
    door->EndProgress(0);
  } else {
    door->Progress();
  }
  return stream_ == nullptr ? TakeDatagram(request) : TakeBytes(request);
}

// A connection's next bytes belong to this call too, and of no bytes of it nothing is to be said
// but errors.
ssize_t Socket::TakeFirst(RingDoor* door, std::span<uint8_t> to, Arrived* about) {
  const std::span<const engine::Completion> polled = door->polled();
  const engine::Completion& first = polled.front();
  const bool ends_it = stream_ == nullptr || (polled.size() == 1 && !to.empty());
  if (!ends_it || !IsForCall(first)) return kGiveFirst;
  if (about != nullptr) *about = {SourceOf(first), first.length};
  const size_t copied = TakeArrived(first, ReceivedFrom(first), to);
  door->EndProgress(1);
  return static_cast<ssize_t>(copied);
}

size_t Socket::TakeArrived(const engine::Completion& packet, Received received,
                           std::span<uint8_t> to) {
  CountReceived(packet);
  const size_t copied = CopyOut(received, to.data(), to.size());
  if (stream_ == nullptr || copied == packet.length) {
    Release(&received);
  } else {
    TakeFront(&received, copied);
    Queue(received);
  }
  return copied;
}

// --- The short way of a message ---

// Beside the bytes, more than a short way knows: times of a connection's, and what waits behind.
bool Socket::SaysMore() const {
  return stream_ != nullptr &&
         (wanted().any() || stream_->tells_queued.load(std::memory_order_relaxed));
}

ssize_t Socket::ReceiveMessageShort(RingDoor* door, std::span<uint8_t> to, int flags,
                                    Received* about) {
  if ((flags & ~kUsualFlags) != 0 || (plain_ & kReceives) == 0 || SaysMore()) return kLongWay;
  if ((plain_ & kTakesNext) == 0) {
    if (stream_ != nullptr || queue_.empty()) return kLongWay;
    *about = queue_.front();
    const size_t copied = CopyOut(*about, to.data(), to.size());
    DropFirst();
    return static_cast<ssize_t>(copied);
  }
  if (door->behind()) return kLongWay;
  const ssize_t got = TakeNext(door, to, about);
  return got == -EAGAIN && Waits(flags) ? kLongWay : got;
}

ssize_t Socket::TakeNext(RingDoor* door, std::span<uint8_t> to, Received* about) {
  if (stream_ != nullptr) return TakeArriving(door, to, nullptr);
  const Wanted asked = wanted();
  about->dropped = static_cast<uint32_t>(counters_.dropped);
  // What its headers say needs no completion.
  const bool by_headers = !asked.packet_info && asked.timestamping == 0;
  packet::Buffer* const datagram =
      by_headers ? door->PollDatagram(*udp_socket_, to.size()) : nullptr;
  if (datagram != nullptr) {
    if (asked.arrival()) clock_gettime(CLOCK_REALTIME, &about->arrival);
    Arrived arrived;
    const ssize_t copied = TakeDatagram(door, datagram, to, &arrived);
    about->source = arrived.source;
    about->length = static_cast<uint32_t>(arrived.length);
    return copied;
  }
  const std::span<const engine::Completion> polled = door->BeginProgress();
  if (polled.empty()) {
    door->FinishProgress();
    return -EAGAIN;
  }
  if (!IsForCall(polled.front())) return kGiveFirst;
  const uint32_t dropped = about->dropped;
  *about = ReceivedFrom(polled.front());
  about->dropped = dropped;
  if (asked.arrival()) clock_gettime(CLOCK_REALTIME, &about->arrival);
  const size_t copied = TakeArrived(polled.front(), *about, to);
  door->EndProgress(1);
  return static_cast<ssize_t>(copied);
}

// ---

int Socket::ReadableBytes() {
  if (path() == Path::kUndecided && stream_ == nullptr) Decide();
  RingDoor* const ring = door();
  if (ring == nullptr && path() == Path::kUndecided) return kAskKernel;  // No error is taken.
  if (ring == nullptr) return static_cast<int>(Elsewhere());
  if (listening()) return -EINVAL;
  const RingDoor::Entry entry(ring);
  ring->Progress();
  if (stream_ == nullptr) return queue_.empty() ? 0 : static_cast<int>(queue_.front().length);
  uint32_t bytes = 0;
  for (const Received& each : queue_) bytes += each.length;
  return static_cast<int>(bytes);
}

int Socket::Shutdown(int how) {
  if (how < SHUT_RD || how > SHUT_RDWR) return -EINVAL;
  const std::lock_guard lock(faces_->setup());
  const bool listens = stream_ != nullptr && (stream_->state == Stream::State::kListening ||
                                              stream_->state == Stream::State::kOffered ||
                                              stream_->state == Stream::State::kDeferred);
  if (listens && (path() == Path::kOffloaded || path() == Path::kUndecided)) {
    // Linux: it has nothing to send.
    if (how == SHUT_WR) return 0;
    LeaveToKernelLocked("shutdown() of a listener");
    stream_->state = Stream::State::kIdle;
  }
  if (stream_ != nullptr && path() == Path::kOffloaded) return ShutdownStream(how);
  const int result = Kernel().shutdown(fd(), how) == 0 ? 0 : -errno;
  // As the kernel does, of a socket without a peer or a name too, though it says ENOTCONN. What
  // listened is as new afterwards.
  const bool remembered = path() == Path::kUndecided && result == -ENOTCONN;
  if (stream_ != nullptr && !remembered) return result;
  RingDoor* const ring = door();
  std::optional<RingDoor::Entry> entry;
  if (ring != nullptr) entry.emplace(ring);
  if (how != SHUT_WR) read_shut_ = true;
  if (how != SHUT_RD) write_shut_ = true;
  if (ring == nullptr) return result;
  Mark();
  Change(0, 0, mask());
  return result;
}

int Socket::Free(packet::Buffer* packet) {
  const auto found = held_.find(packet);
  if (found == held_.end()) return -ENOENT;
  held_.erase(found);
  packet::BufferPool::ReleaseChain(packet);
  return 0;
}

}  // namespace xtreme::sockets
