// SPDX-License-Identifier: Apache-2.0
//
// Tcp: the TCP of one ring: listeners and connections, from the received frame to the completion
// and from the send to the posted frame; reached by Ring::tcp(). The protocol is stack/tcp's.
//
// Invariant: a handle's completions come in the order in which their causes happened, TERMINATED
// last and once. Rules and ports are started here and done on the control thread; nothing here
// enters the kernel, and nothing allocates but opening a listener, and settings where more
// different ones are in use than ever before (tcp_profiles.h).
// Window: received bytes count against it until credited, by themselves when the last reference to
// their buffer is dropped (on whatever thread; the owner's next poll sees it), or early, or only
// (TcpSettings::manual_credit), by Credit(). Each byte is credited once.
// Units: bytes, nanoseconds; addresses and ports in host order. Threads: the ring's owner.

#ifndef XTREME_XTREME_ENGINE_TCP_H_
#define XTREME_XTREME_ENGINE_TCP_H_

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "stack/base/time.h"
#include "stack/wire/address.h"
#include "xtreme/completion/known_flows.h"
#include "xtreme/engine/completion.h"
#include "xtreme/engine/handle.h"
#include "xtreme/engine/outcome.h"
#include "xtreme/engine/send_flow.h"
#include "xtreme/engine/tcp_options.h"

namespace xtreme::host {
struct IcmpRefusals;
struct RouteResult;
}  // namespace xtreme::host
namespace xtreme::nic {
struct FlowRule;
struct RateLimit;
struct RxFrame;
}  // namespace xtreme::nic
namespace xtreme::wire {
struct TcpFrame;
}
namespace xtreme::tcp {
class Connection;
class Stack;
struct FlowKey;
struct LinkPath;
struct Outgoing;
struct TimeWaitRecord;
enum class SendResult : uint8_t;
}  // namespace xtreme::tcp

namespace xtreme::engine {

template <typename Protocol>
class PreparedOf;
class Neighbours;
class TcpDevice;
class TcpSockets;
struct FrameLedger;
struct PathErrors;
struct PreparedSend;
struct RingCore;
struct RingRemains;
struct SendRecord;
struct SocketHoldings;
struct StrayNotice;
struct TcpDoor;
struct TcpEvent;
struct TcpForward;
struct TcpForwards;
struct TcpHeir;
struct TcpMove;
struct TcpPort;
struct TcpPortKey;
struct TcpPorts;
struct TcpSocket;

class Tcp {
 public:
  using KnownFlows = completion::KnownFlows;

  // Both outlive it. Without connections (max_connections 0) it only refuses.
  Tcp(RingCore* core, Neighbours* neighbours, FrameLedger* ledger);
  // Sends what resets the peers, if it still can; see also Bury().
  ~Tcp();
  Tcp(const Tcp&) = delete;
  Tcp& operator=(const Tcp&) = delete;

  // --- Opening (tcp_open.cc) ---

  // SYNs to `options.local` are welcome once OP_DONE (cookie 0) says that port and rule stand; if
  // its status is not 0 (ENOSPC: the device's table of rules is full), close the listener. Each
  // connection is an ACCEPTED: `socket` the child, `cookie` the listener's handle, source the peer,
  // destination the local address.
  // EINVAL: no port, or a setting out of range. EADDRNOTAVAIL: not an address of the interface.
  // EADDRINUSE: a listener of the ring has it. EMFILE: max_connections. EOPNOTSUPP: the ring has no
  // TCP (max_connections 0).
  Outcome OpenListener(const TcpListenerOptions& options, Handle* handle);
  // A listener that was opened hushed answers from here on. EBADF: no listener of the ring.
  Outcome Welcome(Handle handle);
  // Another backlog from here on. EBADF: as above.
  Outcome SetBacklog(Handle handle, uint32_t backlog);
  // Of a listener that holds what it handed out: one of them counts no more. EBADF: as above.
  Outcome TookOne(Handle handle);

  // Starts a connection, which ends in exactly one of ESTABLISHED and TERMINATED (ECONNREFUSED,
  // ETIMEDOUT, EHOSTUNREACH: no route or the next hop does not answer; EADDRINUSE: no port is free
  // towards this peer, or the kernel refuses the one asked for; ENOSPC: the device's table of rules
  // is full). Sends are queued meanwhile; while port or next hop are not known yet, one that may
  // not wait, or does not fit into the send queue, is refused with kRefusedState.
  // EINVAL: a setting, or no unicast peer with a port. EADDRNOTAVAIL: not an address of the
  // interface. ENETUNREACH: the route leads elsewhere than through this interface. EMFILE,
  // EOPNOTSUPP: as above.
  Outcome Connect(const TcpConnectOptions& options, Handle* handle);

  // Null for a stale handle or a closed socket. Listeners too.
  TcpSocket* Find(Handle handle) const;

  // --- Sending (tcp_send.cc); `socket` is a connection ---

  // All of it or nothing. With `payload.buffer` in place, and its reference goes over to the ring
  // unless refused; else the bytes are copied. Of no bytes: kSent where some would be taken, else
  // kRefusedState, and no completion follows.
  // `options.flags`: SendFlag. Refused, and not for kRefusedState: one TX_SPACE follows when as
  // much would be taken. kWarm: the same path without an effect but on caches.
  SendResult Send(TcpSocket* socket, const Payload& payload, const SendOptions& options) {
    return send_(*this, socket, payload, options);
  }
  // As many of `bytes` as fit, copied; how many. `result`: of these, or why none. want_done and
  // want_wire tell of the last byte taken.
  size_t SendSome(TcpSocket* socket, std::span<const uint8_t> bytes, const SendOptions& options,
                  SendResult* result);
  // Whether it has ample room (Pcb::AmpleRoom). If not, one TX_SPACE follows when it has, and none
  // for a send that was refused before.
  bool HasAmpleRoom(TcpSocket* socket);
  // What Send of `length` bytes with kNowOrFail would say.
  SendResult WouldSend(const TcpSocket* socket, size_t length) const;
  // Takes a refusal's count back: of a send that was refused, and counted, before.
  void Uncount(TcpSocket& socket, SendResult reason);

  // Builds a send of `payload` ahead (prepared_sends.h), which is copied, and arms it; before the
  // connection is established too. Fired, it is a send that may not queue. EBADF; ENOTCONN: a
  // listener; EINVAL: no bytes; EMSGSIZE: more than the send queue holds; ENOBUFS: kMost there are.
  Outcome PrepareSend(Handle handle, std::span<const uint8_t> payload, Handle* prepared);

  // As Udp::SetRate; ENOTCONN: a listener; EAGAIN: too many are not done. (socket_rate.cc)
  Outcome SetRate(Handle handle, const nic::RateLimit& rate, uint64_t cookie);

  // --- Receiving (tcp_receive.cc) ---

  // Opens the window by `bytes` that were handed out and not credited yet; the release of their
  // buffers credits them no more. EBADF; EINVAL: more than are owed.
  Outcome Credit(Handle handle, uint32_t bytes);
  // Releases `buffer`, one link, of a packet of `socket` that is handed out and read: as
  // BufferPool::ReleaseByOwner does, but that nobody has to find out whose it is.
  void ReleaseRead(TcpSocket& socket, packet::Buffer* buffer);
  // Copies what `from` holds, one link of a packet that is handed out and not read, behind what
  // `to` holds, one of the same socket, with which it is credited; `from` is released. So who reads
  // late keeps fewer buffers. False: there is no room for it, or others have `from`; nothing was
  // done.
  bool Join(packet::Buffer* to, packet::Buffer* from);

  // --- Closing (tcp_close.cc) ---

  // FIN behind what is queued; receiving goes on. EBADF; ENOTCONN: a listener, or not established.
  Outcome Shutdown(Handle handle);
  // Only TX_DONEs and TERMINATED come any more. A connection goes on until the peer has everything
  // and said FIN, or ends after `timeout` (reset, TERMINATED with ETIMEDOUT, when bytes are not
  // acknowledged; with 0 when only its FIN is missing); kNever: after its close_timeout. With bytes
  // that came and were not handed out it is reset (RFC 2525 section 2.17; TERMINATED with
  // ECONNRESET), as it is by those that come later. Of a listener: what it accepted and was not
  // handed out is reset, the rest goes on. EBADF.
  Outcome Close(Handle handle, base::Nanoseconds timeout = base::kNever);
  // The same, and nothing comes any more. EBADF.
  Outcome Detach(Handle handle, base::Nanoseconds timeout = base::kNever);
  // RST; TERMINATED with ECONNABORTED. Of a listener: as Close. EBADF.
  Outcome Abort(Handle handle);
  // Detach of a listener of a kernel's socket: what it accepted gets rules of its own, so that the
  // kernel gets who connects from then on. The socket may listen on without it: then nobody is
  // answered until that is done. If the device has no room for the rules, that is told
  // (kRuleFallback), and the kernel gets nobody until all of these have ended. Waits for the
  // control thread. EBADF. (tcp_hand_over.cc)
  Outcome DetachListener(Handle handle);

  // --- Moving to another ring (tcp_move.cc, tcp_arrive.cc) ---

  // The way to this ring, for Move() of another; any thread may keep it. Null: the ring has no TCP.
  const std::shared_ptr<TcpDoor>& door() const { return door_; }
  // Hands the connection over to the ring of `to`, with all that it has sent, received and not
  // told. Here only what was told before comes, TX_DONE of what the peer has acknowledged, TX_WIRE
  // of what has left, and DEPARTED last, in place of TERMINATED. There, ARRIVED (`cookie`; the user
  // data of now) with a new handle, or TERMINATED without one: EMFILE, EADDRINUSE, ENOBUFS,
  // ENETDOWN; its peer is reset then. What was still due is told there.
  // The ring it came from passes on frames that still come to it, and the credit of what was handed
  // out there; its port and its listener's rule stay until the connection has ended.
  // All or nothing: EBADF; EOPNOTSUPP: no TCP there; EINVAL: it is there; EPIPE: that ring is
  // closed; EXDEV: it is on another interface; ENETDOWN: this one is not started, or broken;
  // ENOTCONN: not established, or closing both ways; EBUSY: prepared sends, a rate, or one that is
  // being set; EMFILE.
  Outcome Move(Handle handle, const std::shared_ptr<TcpDoor>& to, uint64_t cookie);

  // --- Settings and reports (tcp_settings.cc) ---

  // EBADF.
  Outcome SetUserData(Handle handle, uint64_t user_data);
  // Those that can change at any time. A listener's: of later children. EBADF, EINVAL.
  Outcome SetSettings(Handle handle, const TcpSettings& settings);
  // False for a stale handle or a closed socket.
  bool GetSettings(Handle handle, TcpSettings* settings) const;
  bool Report(Handle handle, TcpReport* report) const;
  // The longest IP packet from `local` to `peer`, by the route, the port, and, of the connection if
  // there is one, what a router said.
  uint32_t PathMtu(Handle handle, const wire::Endpoint& peer, wire::Ipv4Address local) const;
  // Calls `visit(name, meaning, value)` for each counter of one socket; false as above.
  using CounterVisitor =
      std::function<void(std::string_view name, std::string_view meaning, uint64_t value)>;
  bool VisitSocketCounters(Handle handle, const CounterVisitor& visit) const;

  // Nothing of any connection, detached ones included, waits for a peer: the process may end
  // without a reset.
  bool Quiescent() const;
  // Connections and listeners with a handle.
  uint32_t sockets() const;
  // All of them; null when the ring has no TCP.
  const TcpSockets* table() const { return sockets_.get(); }
  // Of the ring: calls `visit` for each counter of the stack.
  void VisitCounters(const CounterVisitor& visit) const;
  // Of its tables, the pool's buffers not included.
  size_t memory_bytes() const;
  // The same, piece by piece, to be touched and locked; nothing when the ring has no TCP.
  std::vector<std::span<std::byte>> memory();
  // Null when the ring has no TCP.
  const tcp::Stack* stack() const { return stack_.get(); }

  // --- What the poll brings ---

  // A frame, with its reference. Tells what it caused as far as there is room; the rest comes by
  // TellNews(), before which nothing else may be received.
  void Receive(const nic::RxFrame& rx);
  // The same of a frame that came whole and verified, from inside the driver (KnownFlows), unless
  // something of TCP's waits to be told: what it causes first is written to `out`. Mostly it is
  // what its connection expects, and causes no completion but a PACKET.
  static KnownFlows::Taken Take(void* tcp, packet::Buffer* buffer, uint8_t* frame, uint32_t length,
                                uint64_t hw_clock, Completion* out);
  // A frame that refers to a segment has completed: at most two completions, for which there is
  // room.
  void Settle(const SendRecord& record);
  void TellNews();
  void OnRoom();
  // Few buffers are left to receive into: they are for acknowledgements, by which others come back.
  void SetShortOfBuffers(bool is);
  base::Nanoseconds NextDeadline();
  // No packet that came before `now` waits.
  void OnTimers(base::Nanoseconds now);
  // As Udp::Resolve.
  bool Resolve(Completion* completion);

  // --- What the ring and the control thread bring ---

  // The ring is started: connects go on.
  void OnStart();
  void OnBroken();
  // The kernel's addresses, routes or neighbours changed.
  void OnRoutes();
  // The ring is on another port: what is sent from here on comes from there.
  void OnMoved();
  // The port that the ring is on works again: what went nowhere meanwhile goes at once.
  void OnLinkUp();
  // Device times of what has come and was not told are not those of the device of now.
  void ForgetTimes();
  // The next hop of a connect is known; or `error`.
  void OnResolved(Handle handle, int error);
  // The port and rules of a socket stand, or why not; the same of all that wait for one.
  void OnOpened(Handle handle, const Outcome& outcome);
  void OnLeased(const TcpPortKey& key, Handle asked, const Outcome& outcome, bool fallback);
  // What the port of `local` held is given back, which `handle` was the last to receive by.
  void OnReleased(Handle handle, const wire::Endpoint& local);
  // These receive by rules of their own, and not by those of the port any more; or why none does.
  void OnHandedOver(const TcpPortKey& port, const std::vector<TcpHeir>& heirs);
  void OnNotHandedOver(const Outcome& outcome);
  // From other rings: a connection; a frame or credit of one; where one is now; that it is gone,
  // and its record if it is in TIME-WAIT; one that this ring sent and nobody took; that one could
  // get no rule of its own.
  void OnArrival(std::unique_ptr<TcpMove> move);
  void OnStray(const StrayNotice& stray);
  void OnEarly(const StrayNotice& early);
  void OnCredit(const tcp::FlowKey& key, uint32_t bytes);
  void OnElsewhere(const tcp::FlowKey& key, const std::shared_ptr<TcpDoor>& where);
  void OnGone(const tcp::FlowKey& key, const tcp::TimeWaitRecord* time_wait);
  void OnUndelivered(const TcpMove& move);
  // `why` lives until what it told was handed out.
  void OnUnsteered(const Outcome& why);
  // ICMP errors that came in on an interface of the ring, and how many did not come this far.
  void OnPathErrors(const PathErrors& batch, uint64_t lost);
  // The block of ports for connects.
  void OnPorts(uint16_t first_port, const Outcome& outcome, bool fallback);
  // Resets every peer, also of what was closed and has not ended. Only the end may follow.
  void AbortAll();
  // Aborts what is open and hands over what the control thread must end. Posted frames may refer to
  // buffers: those go into `remains`. Nothing may be called afterwards.
  void Bury(RingRemains* remains);

 private:
  // Opening (tcp_open.cc, tcp_connect.cc).
  Outcome Admit(const char* action, const TcpSettings& settings) const;
  std::vector<wire::Ipv4Address> OwnAddresses() const;
  bool IsOurs(wire::Ipv4Address address) const;
  nic::FlowRule AnyRule() const;
  nic::FlowRule RuleOf(const tcp::FlowKey& key) const;
  std::vector<nic::FlowRule> RulesOf(const wire::Endpoint& local, uint16_t port_mask) const;
  void StartOpen(TcpSocket& socket, int kernel_socket);
  void StartLease(TcpSocket& socket, int kernel_socket);
  void LeavePort(TcpSocket& socket);
  void GiveBack(TcpPort* port, Handle user);
  void StartRules(const std::shared_ptr<SocketHoldings>& holdings,
                  std::vector<nic::FlowRule> rules);
  void StartPorts();
  host::RouteResult RouteOf(const wire::Endpoint& peer, wire::Ipv4Address local) const;
  wire::Ipv4Address SourceOf(const host::RouteResult& route) const;
  // Gives it the profile of `settings`, where no packet is longer than `mtu`.
  void Behave(TcpSocket& socket, const TcpSettings& settings, uint32_t mtu);
  void GoOn(TcpSocket& socket);
  bool HasPort(const TcpSocket& socket);
  void GoOnBy(TcpSocket& socket, const host::RouteResult& route);
  void SendSyn(TcpSocket& socket, const tcp::LinkPath& path);
  void MarkPath(TcpSocket& socket);
  void Refresh(TcpSocket& socket, bool accepted = false);
  void RefreshPaths();
  void FollowSome();
  void FollowNow(TcpSocket& socket);
  // Before anything is sent that does not answer a frame: by `socket`, or by whichever.
  void FollowPaths(TcpSocket& socket);
  void FollowPaths();
  uint32_t LinkMtu() const;
  void NoteAnswer();
  bool IsKnown(const wire::TcpFrame& frame) const;
  bool ArrivalsWait() const;
  void TakeFrame(const wire::TcpFrame& frame, packet::Buffer* buffer, uint64_t stamp);

  // Receiving (tcp_receive.cc, path_errors.cc).
  bool ReceiveIcmp(const packet::Buffer& buffer, const wire::TcpFrame& frame);
  KnownFlows::Taken TakeAny(packet::Buffer* buffer, uint8_t* bytes, uint32_t length,
                            uint64_t hw_clock, Completion* out);
  bool Drain();
  void Tell(const TcpEvent& event);
  void TellData(TcpSocket& socket, const TcpEvent& event);
  void TellAccepted(const TcpEvent& event);
  Completion* TellKind(TcpSocket& socket, Kind kind, int status = 0, uint64_t cookie = 0);
  bool KeepsSpace(TcpSocket& socket);
  void TellSpace(TcpSocket& socket);
  void SetTime(uint64_t hw_clock, Completion* completion) const;
  static void OnReturn(void* tcp, uint64_t loan);
  void CreditRelease(TcpSocket& socket, uint32_t bytes);
  void OweCredit(TcpSocket& socket, uint32_t bytes);
  void CreditReturned(base::Nanoseconds now);

  // Sending (tcp_send.cc, tcp_send_long.cc).
  bool CanSend(const TcpSocket& socket) const;
  bool PostSegment(tcp::Connection& connection, const tcp::Outgoing& outgoing,
                   const Payload& payload, packet::Buffer* kept, uint32_t flags, bool* gathered);
  // On a queue where no more is due than the post; where that and to keep it is; where more is.
  enum class Due { kPost, kPostAndKeep, kMore };
  template <Due kDue>
  bool SendDirect(TcpSocket& socket, const Payload& payload, const SendOptions& options);
  template <Due kDue>
  static SendResult SendBy(Tcp& tcp, TcpSocket* socket, const Payload& payload,
                           const SendOptions& options);
  void ChooseSend();
  SendResult SendLong(TcpSocket* socket, const Payload& payload, const SendOptions& options);
  bool SendGathered(TcpSocket& socket, const Payload& payload, const SendOptions& options);
  SendResult SendOtherwise(TcpSocket* socket, const Payload& payload, const SendOptions& options);
  bool SendAtOnce(TcpSocket& socket, const Payload& payload, const SendOptions& options);
  tcp::SendResult HandForeign(tcp::Connection& connection, const Payload& payload,
                              const SendOptions& options, base::Nanoseconds now, bool promised);
  tcp::SendResult Hand(tcp::Connection& connection, const Payload& payload,
                       const SendOptions& options, base::Nanoseconds now, bool promised = false);
  SendResult Refuse(TcpSocket& socket, SendResult reason);
  SendResult SendWarm(TcpSocket& socket, const Payload& payload, const SendOptions& options);
  void EndCall(bool ring);

  // Sends before the SYN (tcp_early.cc).
  static size_t EarlyRoom(const TcpSocket& socket);
  SendResult SendEarly(TcpSocket& socket, const Payload& payload, const SendOptions& options);
  void HandOverEarly(TcpSocket& socket);
  void CancelEarly(TcpSocket& socket);

  // Prepared sends (tcp_prepared.cc).
  friend class PreparedOf<Tcp>;
  void BuildPrepared(PreparedSend& prepared);
  void ChooseFire(PreparedSend& prepared, size_t tcp_at);
  SendResult PostPrepared(PreparedSend& prepared, const SendOptions& options);
  SendResult FirePrepared(PreparedSend& prepared);
  SendResult FireKept(PreparedSend& prepared);
  template <typename See>
  SendResult FireAhead(PreparedSend& prepared, const See& see);
  void Spend(PreparedSend& prepared);
  SendResult PostOtherwise(PreparedSend& prepared, const SendOptions& options);

  // Moving (tcp_move.cc, tcp_arrive.cc).
  Outcome MayMove(const TcpSocket& socket, const TcpDoor* to) const;
  TcpForward& AddForward(TcpSocket& socket, const std::shared_ptr<TcpDoor>& to);
  void StartSteering(TcpMove& move, TcpForward& forward, std::future<void> under_way);
  void PassCredit(Handle handle, uint32_t bytes);
  void PassCredits();
  void TakePort(TcpSocket& socket, TcpMove& move);
  void RefuseArrival(const TcpMove& move, int error);
  void EndTrail(TcpSocket& socket);

  // Closing (tcp_close.cc).
  void Silence(TcpSocket& socket);
  bool HasUnread(Handle handle) const;
  void CloseListener(TcpSocket& socket);
  void StartHandOver(TcpPort& port, bool keeps_lease);
  TcpPort** PlaceOfPort(const TcpPort* port, const tcp::FlowKey& key);
  void End(TcpSocket& socket, int status);
  void TellEnd(TcpSocket& socket);
  void Erase(TcpSocket& socket);

  RingCore* const core_;
  Neighbours* const neighbours_;
  FrameLedger* const ledger_;
  std::unique_ptr<TcpDevice> device_;
  std::unique_ptr<PreparedOf<Tcp>> prepared_;
  std::unique_ptr<TcpSockets> sockets_;
  std::unique_ptr<TcpPorts> ports_;
  std::unique_ptr<host::IcmpRefusals> icmp_refusals_;
  std::shared_ptr<TcpDoor> door_;          // Null: the ring has no TCP.
  std::unique_ptr<TcpForwards> forwards_;  // Null: no connection has left.
  std::unique_ptr<tcp::Stack> stack_;  // Null: the ring has no TCP.
  // Of what TakeAny() is about: its parsed frame, which need not be cleared first; and whose it is,
  // or null, as Take() found, whose arguments stay in their registers.
  std::unique_ptr<wire::TcpFrame> frame_;
  tcp::Connection* found_ = nullptr;
  // Places of sockets whose paths are looked at now, so that they are right for another state of
  // the world: `left` of the first `end`, from `next` on.
  struct {
    uint64_t epoch = 0;
    uint32_t next = 0;
    uint32_t left = 0;
    uint32_t end = 0;
  } following_;
  uint64_t epoch_ = 0;                 // The state of the world that all paths are right for.
  uint64_t direct_epoch_ = 0;          // And SendDirect() is: it may send.
  // Send() of the queue that there was then: one that keeps what it sends has its own, so that no
  // other asks.
  SendResult (*send_)(Tcp&, TcpSocket*, const Payload&, const SendOptions&) = &SendBy<Due::kPost>;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_TCP_H_
