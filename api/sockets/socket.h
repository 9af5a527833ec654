// SPDX-License-Identifier: Apache-2.0
//
// Socket: an AF_INET socket of the program: a kernel socket, and, when it is offloaded, a socket of
// a ring in its place.
//
// A socket begins undecided. When it is bound, connected or first sent from, it is offloaded, or
// left to the kernel for a reason that is kept; a datagram socket may go to the kernel later.
// Invariant: the kernel's socket has every option, name, membership and flag that the program set,
// so that going to the kernel needs no replay.
// Results are 0 or a count, or -errno. Threads: any; what hangs on the ring inside its door, what
// decides the path under the setup lock, which is taken first. A call that another thread's close()
// overtakes fails with EBADF: it never asks the kernel by a number that may be another file's.

#ifndef XTREME_API_SOCKETS_SOCKET_H_
#define XTREME_API_SOCKETS_SOCKET_H_

#include <netinet/in.h>
#include <pthread.h>
#include <sys/epoll.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "api/sockets/received.h"
#include "api/sockets/ring_choice.h"
#include "api/sockets/ring_door.h"
#include "api/sockets/rules.h"
#include "api/sockets/watch.h"
#include "stack/base/time.h"
#include "stack/wire/address.h"

namespace xtreme::engine {
struct RingCore;
struct SendFlows;
struct TcpSettings;
struct UdpSocket;
}
namespace xtreme::nic {
enum class TxStatus : uint8_t;
}

namespace xtreme::sockets {

class Faces;
class RefusedOnce;
struct Stream;
struct StreamOption;

// A result: the call is the kernel's to answer.
inline constexpr int kAskKernel = -EREMOTEIO;
// Results of a short way: it does not lead there; what came is to be given to whom it is for, and
// then the long way is the call's.
inline constexpr ssize_t kLongWay = -ESTRPIPE;
inline constexpr ssize_t kGiveFirst = -EUCLEAN;

enum class Path : uint8_t { kUndecided, kOffloaded, kKernel, kParents, kClosed };

// Who takes what comes: calls like recv(), or socketxtreme_poll(). The first use decides.
enum class Taker : uint8_t { kUndecided, kCalls, kCompletions };

// What a receive callback says of a packet.
enum class Verdict : uint8_t { kDrop, kQueue, kHold };
using ReceiveCallback = std::function<Verdict(Socket& socket, const Received& packet)>;

// Flags of a send or receive that short ways know.
inline constexpr int kUsualFlags = MSG_DONTWAIT | MSG_NOSIGNAL;
inline constexpr int kDummySend = 0x400;  // VMA_SND_FLAGS_DUMMY.
// Length of VMA's value of SO_MAX_PACING_RATE, which the kernel does not know.
inline constexpr socklen_t kVmaRateBytes = 12;

struct SendRequest {
  std::span<const iovec> from;
  int flags = 0;              // Of send(2), and VMA_SND_FLAGS_DUMMY.
  const wire::Endpoint* to = nullptr;  // Null: the peer.
  bool wrong = false;         // EINVAL is the answer, unless the socket's state has another.

  // Whether a part of it is bytes at no address: EFAULT, as by Linux.
  bool nowhere() const {
    for (const iovec& part : from) {
      if (part.iov_base == nullptr && part.iov_len != 0) return true;
    }
    return false;
  }
};

class Socket final : public Pollable, public std::enable_shared_from_this<Socket> {
 public:
  // Of the program's socket() call, or what came of it; `fd` is the kernel's socket, `offload`: by
  // the thread's word.
  Socket(Faces* faces, int fd, int type, bool nonblocking, bool offload);
  ~Socket() override;

  // --- Naming (socket_naming.cc) ---

  int Bind(const sockaddr_in& local);
  int Connect(const sockaddr* peer, socklen_t length);
  int Name(sockaddr* to, socklen_t* length) const;
  int PeerName(sockaddr* to, socklen_t* length) const;

  // --- Streams (stream_open.cc) ---

  int Listen(int backlog);
  // A connection that was accepted, not in the table of descriptors yet; null: `error`, of which
  // kAskKernel says that the kernel has one or is to be asked. `flags`: of accept4(2).
  std::shared_ptr<Socket> Accept(int flags, int* error);
  // A connection of the kernel's side of a listener, by its descriptor `fd`, as accept4(2), or
  // -errno; -EAGAIN: there is none, however the descriptor blocks.
  int AcceptInKernel(int fd, sockaddr* address, socklen_t* length, int flags);
  // The same of one that is on no ring, where that may wait; meanwhile it goes to none. kAskKernel:
  // it has gone to one.
  int AwaitInKernel(int fd, sockaddr* address, socklen_t* length, int flags);
  bool listening() const;
  // A listener that no ring may have yet; its connections are the kernel's.
  bool deferred() const;
  // One of them is offered again. False: it is none any more.
  bool ServeDeferred();
  // A connection of a ring, however far it is.
  bool HasConnected() const;

  // --- The path (socket_path.cc) ---

  // Decides, if that can be done now: a bound or connected datagram socket, a listener.
  void Decide();
  // For good; `reason` is kept and logged. What waited in the ring's queue is lost to it.
  void LeaveToKernel(const std::string& reason);
  // O_ASYNC was set: SIGIO is the kernel's to send; of a stream on a ring it never comes (the log).
  void WantSignals();
  Path path() const { return path_.load(std::memory_order_acquire); }
  const std::string& reason() const { return reason_; }
  // The last descriptor is to be closed: waits as SO_LINGER says (socket(7)), with no lock held.
  void LingerBeforeClose();
  // The last descriptor is being closed.
  void Close();
  // The process ends below its threads: of a stream of `inside` what was sent goes on, and FIN.
  void EndStream(RingDoor* inside);
  // The descriptor it was known by is being closed, `fd` is another one.
  void Rename(int fd) { fd_.store(fd, std::memory_order_relaxed); }
  void AfterFork() override;
  // In a child after fork(), of a socket on a ring, which is the parent's: datagrams are the
  // kernel's from here on; every call on a connection but close() fails with EOPNOTSUPP.
  void BecomeParents();
  // Says in the log, once, that the program is to be left to the kernel, if it is a parent's.
  void WarnOfParents() const;

  // --- Data (socket_receive.cc, socket_send.cc); kAskKernel: it is not offloaded ---

  ssize_t Receive(ReceiveRequest* request);
  ssize_t Send(const SendRequest& request);
  // Of a datagram socket on a ring: by the kernel's, as sendmsg(2).
  ssize_t SendByKernel(const msghdr& message, int flags) const;

  // What came, if it was not put into the queue.
  struct Arrived {
    wire::Endpoint source;
    size_t length;  // Whole.
  };
  // The same the short way (data_calls.cc), inside the door that Descriptors::Way led by: of one
  // part, on a socket that is plain. kLongWay: nothing was sent, received or counted, and the call
  // is to be made by Receive() or Send(), outside; of kGiveFirst after RingDoor::EndProgress(0),
  // which may close the socket. `about`: of a datagram, if not null.
  ssize_t ReceiveShort(RingDoor* door, std::span<uint8_t> to, int flags, Arrived* about);
  // Of a message, with what the socket was asked to say of it.
  ssize_t ReceiveMessageShort(RingDoor* door, std::span<uint8_t> to, int flags, Received* about);
  ssize_t SendShort(RingDoor* door, std::span<const uint8_t> from, int flags);
  ssize_t SendShortTo(RingDoor* door, std::span<const uint8_t> from, int flags,
                      const wire::Endpoint& to);
  // The same past the door, in a program that has one thread (Way::alone): whether a datagram of
  // `size` bytes to its peer goes that way; and how it does, which is all of the call.
  bool SendsAlone(size_t size) const;
  ssize_t SendAlone(std::span<const uint8_t> from, int flags);
  // The ring has another owner, or its sends another state.
  void SetAlone();
  // The error that the next call would fail with, taken; 0: none. And one that it is to fail with.
  int TakePendingError();
  void KeepError(int error);
  int Shutdown(int how);
  // FIONREAD.
  int ReadableBytes();
  // SIOCOUTQ and SIOCOUTQNSD of a connection: what the peer has not acknowledged, and what of it
  // was not sent.
  int UnacknowledgedBytes();
  int UnsentBytes();

  // --- Options (socket_options.cc) ---

  // 0; -errno: the kernel is not to be asked to take it.
  int RefuseOption(int level, int name, const void* value, socklen_t length) const;
  // After the kernel took it.
  int SetOption(int level, int name, const void* value, socklen_t length);
  // False: the kernel's answer is right.
  bool GetOption(int level, int name, void* value, socklen_t* length, int* result);
  base::Nanoseconds receive_timeout() const {
    return receive_timeout_.load(std::memory_order_relaxed);
  }
  void SetNonBlocking(bool on) { nonblocking_.store(on, std::memory_order_relaxed); }
  bool nonblocking() const { return nonblocking_.load(std::memory_order_relaxed); }
  // SO_TIMESTAMP..., SO_RXQ_OVFL, IP_PKTINFO: what a message carries. A word, read and written
  // whole.
  struct alignas(8) Wanted {
    bool packet_info = false;
    bool timestamp_us = false;
    bool timestamp_ns = false;
    bool overflow = false;
    uint32_t timestamping = 0;  // SOF_TIMESTAMPING_...

    bool any() const {
      return packet_info || overflow || arrival();
    }
    bool arrival() const { return timestamp_us || timestamp_ns || timestamping != 0; }
  };
  Wanted wanted() const { return wanted_.load(std::memory_order_relaxed); }
  // TCP_INQ: what a message of a connection says that waits behind it; -1: nothing is to be said.
  int TellableBytes();

  // --- What the ring tells: inside the door ---

  void OnCompletion(const engine::Completion& completion);
  // Whether a packet does nothing but become a completion.
  bool HandsOn() const { return (plain_ & kHandsOn) != 0; }
  void CountReceived(const engine::Completion& packet) {
    CountReceived({&packet, 1}, packet.length, packet.flags);
  }
  // `bytes`: of all of them; `flags`: that any of them has.
  void CountReceived(std::span<const engine::Completion> packets, uint64_t bytes, uint16_t flags) {
    // Those of datagrams its endpoint counts.
    if (stream_ != nullptr) counters_.received += packets.size();
    if (stream_ != nullptr) counters_.received_bytes += bytes;
    if ((flags & engine::kSlowPath) == 0) [[likely]] return;
    for (const engine::Completion& packet : packets) {
      counters_.slow_path += (packet.flags & engine::kSlowPath) != 0;
    }
  }

  // --- Watching ---

  RingDoor* door() const override { return door_.load(std::memory_order_acquire); }
  // On its ring: inside the door.
  engine::Handle handle() const { return handle_; }
  // Listeners listen on the kernel's side too, for what comes by other ways than the ring's.
  bool KernelToo() const override { return listening(); }
  bool ServedHere() const override { return door() != nullptr; }
  bool Ended() const override { return path() == Path::kClosed; }
  // The ring it is on or, bound to an address or a device, will be on; null: none.
  RingDoor* RingToBe();
  uint32_t Look() override;
  // It receives, accepts, or is offered to select, poll or epoll.
  void TakeByCalls();

  // Of sockets that have no ring yet. -EBUSY: it has one.
  int ChooseRing(const RingChoice& choice);

  // Ethernet, IPv4 and UDP or TCP of what it sends to its peer, lengths without payload, checksums
  // 0. `length`: room at `to`, and then how many; null `to`: only that. Waits for the neighbour.
  // -EINVAL: not offloaded. -ENOTCONN. -EHOSTUNREACH: no route, or no answer. -ENOBUFS.
  int NetworkHeader(void* to, uint16_t* length);

  // --- VMA's side (inside the door) ---

  void SetCallback(ReceiveCallback callback) {
    callback_ = std::move(callback);
    SetPlain();
  }
  bool HasCallback() const { return static_cast<bool>(callback_); }
  // Whether a packet may wait for the callback, beside what is queued and `*charge` of those that
  // wait already, to which it is added; else it is counted as dropped.
  bool HasRoomFor(const engine::Completion& packet, uint32_t* charge);
  Taker taker() const { return taker_; }
  void TakeByCompletions();
  // Keeps a packet until Free.
  void Hold(const Received& packet) { held_.insert(packet.buffer); }
  // -ENOENT: not held.
  int Free(packet::Buffer* packet);
  uint64_t user_data = 0;

  int fd() const { return fd_.load(std::memory_order_relaxed); }
  int type() const { return type_; }  // SOCK_DGRAM or SOCK_STREAM.
  // Inside the door, if it is on a ring.
  SocketCounters counters() const;
  size_t queued() const { return queue_.size(); }
  // Bytes of what is queued, without what its limit charges beside them.
  uint32_t queued_payload() const;
  wire::Endpoint local() const { return local_; }
  wire::Endpoint peer() const { return peer_; }

  // Descriptors of the program for it.
  std::atomic<int> descriptors{1};

 private:
  struct Membership {
    wire::Ipv4Address group;
    wire::Ipv4Address source;  // Any: of every source.
    bool exclude = false;
    std::string interface;

    auto operator<=>(const Membership&) const = default;
  };

  // socket_path.cc; under the setup lock.
  void DecideLocked();
  RingKey KeyOn(const std::string& interface);
  uint64_t Separator() const;
  std::string WhyNot() const;
  bool TakesGroups() const;
  // "": it is offloaded by the rules.
  std::string RuleAgainst(Role role, const wire::Endpoint& first,
                          const wire::Endpoint& second) const;
  bool OpenOn(RingDoor* door);
  bool JoinOnRing(const Membership& membership);
  void LeaveToKernelLocked(const std::string& reason);
  void TakeDown();

  // socket_naming.cc
  struct Ends {
    wire::Endpoint local;
    wire::Endpoint peer;
  };
  std::optional<Ends> EndsOnRing() const;
  int ConnectDatagram(const sockaddr_in& peer);
  int Dissolve();
  void KeepWaiting(RingDoor* ring, std::deque<Received>* waits);
  void LearnLocal();
  void GiveUpPort();

  // What a call says that finds it on no ring.
  ssize_t Elsewhere();
  // And one that found it on a ring, which it has left since.
  ssize_t Overtaken();

  // Short ways (data_calls.cc, progress.h); inside the door.
  // Calls and packets that need nothing else looked at. SetPlain() goes with every change of what
  // it is made of, which Mark() does.
  enum Plain : uint8_t {
    kSends = 1 << 0,       // Datagrams, to its peer.
    kSendsBytes = 1 << 1,  // Of a connection.
    kSendsTo = 1 << 2,     // Datagrams, to anybody.
    kReceives = 1 << 3,    // What comes is for calls like recv().
    kTakesNext = 1 << 4,   // That, and nothing waits: the next call takes what comes next.
    kHandsOn = 1 << 5,     // What comes is for completions.
  };
  void SetPlain();
  // Linux: a datagram that has left is an edge of these.
  static constexpr uint32_t kSent = EPOLLOUT | EPOLLWRNORM;
  // What SendAlone() goes by while kSends holds and nobody waits for kSent; `owner`: else nobody.
  struct Alone {
    uintptr_t owner = RingDoor::kNobody;
    engine::SendFlows* flows = nullptr;
    engine::RingCore* core = nullptr;
    // The call that is under way, which posts and keeps nothing else.
    std::span<const uint8_t> from;
    int flags = 0;
  };
  void WatchedChanged() override;
  // Lets the ring make progress, while it is not behind(): the first packet that comes goes to the
  // caller without having been queued, if it is for this socket, as much of it as `to` has room
  // for. `about` as above. kGiveFirst: nothing was taken.
  ssize_t TakeArriving(RingDoor* door, std::span<uint8_t> to, Arrived* about);
  // The same of a datagram that the ring has taken for this socket, all of it.
  ssize_t TakeDatagram(RingDoor* door, packet::Buffer* datagram, std::span<uint8_t> to,
                       Arrived* about);
  // Gives back what a connection's packet came in, which was copied.
  void ReleaseRead(RingDoor* door, packet::Buffer* buffer);
  // As TakeArriving() of what came, where it is not one packet, whole and in one link.
  ssize_t TakeFirst(RingDoor* door, std::span<uint8_t> to, Arrived* about);
  size_t TakeArrived(const engine::Completion& packet, Received received, std::span<uint8_t> to);
  bool IsForCall(const engine::Completion& first) const;
  ssize_t ReceiveQueued(std::span<uint8_t> to, Arrived* about);
  ssize_t SentDatagram(engine::SendResult result, size_t bytes);
  ssize_t TakeBackRefusal(engine::SendResult reason);
  ssize_t SendAloneAgain(nic::TxStatus status);
  ssize_t SendStreamShort(RingDoor* door, std::span<const uint8_t> from);

  // socket_receive.cc; inside the door.
  void OnError(const engine::Completion& completion);
  void OnPacket(const engine::Completion& completion);
  void Queue(const Received& packet);
  // Which bits of the mask what is queued has.
  uint32_t QueueMask() const;
  void DropFirst();
  void OnReadEmpty();
  void DropQueue();
  ssize_t TakeDatagram(ReceiveRequest* request);
  // Lets the ring make progress, and takes; what is plain goes past the queue.
  ssize_t TakeAfterProgress(RingDoor* door, ReceiveRequest* request);
  ssize_t TakeOne(ReceiveRequest* request);
  bool SaysMore() const;
  // As TakeArriving(), with all that is known of it, which is not to be used but told.
  ssize_t TakeNext(RingDoor* door, std::span<uint8_t> to, Received* about);
  bool Waits(int flags) const { return !nonblocking() && (flags & MSG_DONTWAIT) == 0; }
  ssize_t ReceiveDatagram(ReceiveRequest* request);
  ssize_t NoErrorQueued() const;
  // Of a datagram socket without a name, to which nothing comes: waits until another thread gives
  // it one by its first send. 0: look again. kAskKernel: it has an answer. -EAGAIN: the time
  // is over. -EINTR.
  int AwaitDecision();
  // Waits until `take` returns something else than -EAGAIN, as the socket and `flags` say
  // (blocking.h). `again(door)` lets the ring make progress first. `done`: as Waiting has it.
  template <typename Take>
  ssize_t Blocking(int flags, base::Nanoseconds limit, uint32_t events, const Take& take,
                   const ssize_t* done = nullptr);
  template <typename Take, typename Again>
  ssize_t BlockingAs(int flags, base::Nanoseconds limit, uint32_t events, const Take& take,
                     const Again& again, const ssize_t* done = nullptr);
  // Takes the pending error.
  int TakeError();
  void Mark();

  // stream_open.cc
  int ConnectStream(const sockaddr_in& peer);
  int BeginToConnect(const sockaddr_in& peer);
  int WaitForConnect();
  const char* WhyNotOpened(int status) const;
  void ConnectInKernel(const char* why);
  int LearnOfFailure();
  void BeginAnew(int error = 0);
  bool LeaveErrorInKernel(int error);
  int TakeLeftError();
  void EndStreamAnew(bool by_shutdown = false);
  RingDoor* Claim();
  bool KernelConnects(const std::string& interface);
  RingDoor* DoorForStream(std::string* why);
  void ServeListener();
  void DeferLocked(const char* reason, RingDoor* keeper);
  void EndClaim();
  void OpenListener(RingDoor* door);
  void OnAccepted(const engine::Completion& completion);
  void TellAccepted();
  // Of an accepted connection: what its listener was told, and its kernel's socket, or -errno.
  void Inherit(const std::vector<StreamOption>& options);
  int MakeDescriptor(int flags);

  // stream_settings.cc
  engine::TcpSettings StreamSettings() const;
  void TakeSetting(int level, int name, engine::TcpSettings* settings) const;
  void TakeTcpSetting(int name, engine::TcpSettings* settings) const;
  void FollowStreamOption(int level, int name);
  void FollowUnsentLowWater();

  // stream_data.cc; inside the door.
  void OnStreamEvent(const engine::Completion& completion);
  void EndStream(int status);
  void TellOfEnd();
  uint32_t StreamMask() const;
  ssize_t ReceiveBytes(ReceiveRequest* request);
  ssize_t TakeBytes(ReceiveRequest* request);
  ssize_t PeekBytes(ReceiveRequest* request, size_t enough);
  ssize_t SendStream(const SendRequest& request);
  ssize_t WarmStream(const SendRequest& request);
  int ConnectAsItSends();
  ssize_t WhyOvertaken(ssize_t result);
  bool IsClosing() const;
  ssize_t PutBytes(std::span<const iovec> from, int flags, RefusedOnce* refusals);
  void SetUnwritable();
  int ShutdownStream(int how);
  bool StillSends();
  bool AwaitsAcknowledgement();
  void CloseStream(RingDoor* door);
  bool FillTcpInfo(void* value, socklen_t* length);
  bool SegmentBytes(int* bytes);
  template <typename Bytes>
  int AskStream(const Bytes& bytes);

  // socket_send.cc
  ssize_t SendDatagram(const SendRequest& request);
  ssize_t SendPart(const SendRequest& request);
  int SendParts();
  int PartsToKernel(int flags) const;
  void DropParts();
  int Cork(bool on);
  // Of a connection; its flow counts a datagram that is sent (engine::SendCounters).
  void CountSent(bool warm, size_t bytes) {
    if (warm) {
      ++counters_.dummies;
    } else {
      ++counters_.sent;
      counters_.sent_bytes += bytes;
    }
  }
  ssize_t SendByKernel(const SendRequest& request) const;
  // By a rule, of a datagram to `to`, null: the peer.
  bool IsKernelsToSend(const wire::Endpoint* to) const;

  // vma_options.cc
  static bool IsVmaOption(int level, int name);
  int SetUserData(const void* value, socklen_t length);
  int SetVmaOption(int name, const void* value, socklen_t length);
  int GetVmaOption(int name, void* value, const socklen_t* length) const;
  int ShutdownRx();
  int SetRingLogic(const void* value, socklen_t length);
  int SetFlowTag(const void* value, socklen_t length);
  uint32_t FlowTagOnRing() const;

  // kernel_options.cc: as RefuseOption; what it does not refuse takes a socket to the kernel.
  int HeedKernelOption(int level, int name, const void* value, socklen_t length);
  bool BindWithinRange();

  // socket_pace.cc; under the setup lock, but for connections that were accepted.
  struct Pace {
    uint64_t bytes_per_second = 0;  // 0: no limit.
    uint32_t burst_bytes = 0;
    uint16_t typical_packet_bytes = 0;
  };
  static constexpr uint64_t kPaceCookie = ~uint64_t{0};
  int SetPace(const void* value, socklen_t length);
  // On the ring. Without `waits`, what the device says is logged.
  engine::Outcome StartPace(bool waits);
  // False: the kernel knows.
  bool TellPace(void* value, const socklen_t* length) const;

  // socket_options.cc
  int SetIpOption(int name, const void* value, socklen_t length);
  void SetForRing(bool on) const;
  bool GetIpOption(int name, void* value, socklen_t* length);
  bool GetTcpOption(int name, void* value, socklen_t* length, int* result);
  int GetPeerOption(void* value, socklen_t* length);
  int ChangeMembership(int name, const void* value, socklen_t length);
  void GiveUpMembership(const Membership& change, bool all_sources);
  int SetGroupInterface(const void* value, socklen_t length);
  int FollowDevice();
  void SetLowWater(int bytes);
  void SetPeekOffset(int bytes);
  void CopySettings();
  int FollowTcpOption(int name, const void* value, socklen_t length);

  Faces* const faces_;
  std::atomic<int> fd_;
  const int type_;
  std::atomic<Path> path_{Path::kUndecided};
  std::string reason_;
  std::atomic<bool> nonblocking_;

  // The ring's side.
  RingChoice choice_;
  uint32_t flow_tag_ = 0;  // SO_VMA_FLOW_TAG; under the setup lock.
  std::optional<uint64_t> separator_;  // Once its ring was asked for.
  const pthread_t opener_ = pthread_self();
  std::atomic<RingDoor*> door_{nullptr};
  engine::Handle handle_ = 0;
  uint8_t plain_ = 0;        // Plain.
  Alone alone_;
  engine::UdpSocket* udp_socket_ = nullptr;  // By handle_: kept, because only this closes it.
  std::atomic<Taker> taker_{Taker::kUndecided};
  ReceiveCallback callback_;
  std::deque<Received> queue_;
  uint32_t queued_bytes_ = 0;
  std::atomic<uint32_t> queue_limit_{212'992};
  std::atomic<uint32_t> low_water_{1};  // SO_RCVLOWAT of a connection.
  std::set<packet::Buffer*> held_;
  SocketCounters counters_;
  std::unique_ptr<Stream> stream_;  // Null: datagrams.

  // A datagram that is not complete yet: MSG_MORE, UDP_CORK.
  struct Parts {
    wire::Endpoint to;
    std::vector<uint8_t> bytes;
  };
  std::unique_ptr<Parts> parts_;  // Inside the door.
  bool corked_ = false;           // The same: UDP_CORK.
  std::atomic<bool> in_parts_{false};  // Either is so.

  // Names and memberships.
  bool bound_ = false;
  bool any_port_ = false;    // bind() left its choice to the kernel.
  // IP_MULTICAST_IF; "" and any: the routes'. Under the setup lock.
  std::string group_interface_;
  wire::Ipv4Address group_source_;
  bool reuse_port_ = false;
  const bool offload_wanted_;
  wire::Endpoint local_;
  wire::Endpoint peer_;      // Port 0: not connected.
  std::set<Membership> memberships_;
  Pace pace_;
  // As they were when it went to the ring; null: none is of what is sent. Inside the door.
  std::unique_ptr<const Rules> sender_rules_;

  // State that calls ask for.
  std::atomic<int> error_{0};
  bool read_shut_ = false;
  bool deaf_ = false;        // SO_VMA_SHUTDOWN_RX.
  bool write_shut_ = false;
  std::atomic<Wanted> wanted_{};
  std::atomic<base::Nanoseconds> receive_timeout_{base::kNever};
  std::atomic<base::Nanoseconds> send_timeout_{base::kNever};
};

}  // namespace xtreme::sockets

#endif  // XTREME_API_SOCKETS_SOCKET_H_
