// SPDX-License-Identifier: Apache-2.0
//
// Udp: the UDP of one ring: its sockets, from the received frame to the completion and from the
// send to the posted frame.
//
// Invariant: a socket's completions come in the order in which their causes happened, TERMINATED
// last and once. Rules, ports and memberships are started here and done on the control thread.
// Addresses and ports in host order. Threads: the ring's owner.

#ifndef XTREME_XTREME_ENGINE_UDP_H_
#define XTREME_XTREME_ENGINE_UDP_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "stack/wire/address.h"
#include "xtreme/completion/completion.h"
#include "xtreme/engine/handle.h"
#include "xtreme/engine/loopback_directory.h"
#include "xtreme/engine/neighbour_waiters.h"
#include "xtreme/engine/outcome.h"
#include "xtreme/engine/udp_options.h"

namespace xtreme::ip {
class Reassembler;
struct ReassembledDatagram;
}  // namespace xtreme::ip
namespace xtreme::nic {
struct FlowRule;
struct RateLimit;
enum class TxStatus : uint8_t;
struct RxFrame;
struct TxPayload;
}  // namespace xtreme::nic
namespace xtreme::udp {
class Demux;
class SourceFilter;
struct Binding;
struct LocalAddress;
}  // namespace xtreme::udp
namespace xtreme::wire {
enum class FrameVerdict : uint8_t;
struct UdpFlow;
struct UdpFrame;
}  // namespace xtreme::wire

namespace xtreme::engine {

template <typename Protocol>
class PreparedOf;
class Neighbours;
class KernelPort;
class PortStock;
class SocketTable;
struct FrameLedger;
struct Payload;
struct PreparedSend;
struct Reassembly;
struct RingCore;
struct RingTimer;
struct SendFlow;
struct SendOptions;
struct SendRecord;
struct UdpSocket;

enum JoinFlag : uint32_t {
  kShareWithKernel = 1 << 0,
  kExcludeSource = 1 << 1,
};

// A join of a group, or of one source of it.
struct GroupJoin {
  Handle handle = 0;
  wire::Ipv4Address group;
  std::optional<wire::Ipv4Address> source;  // Wanted or unwanted.

  bool operator==(const GroupJoin&) const = default;
};

class Udp : public NeighbourWaiters {
 public:
  explicit Udp(RingCore* core);
  ~Udp();

  // --- Sockets (udp_open.cc, udp_rules.cc, udp_close.cc) ---

  // EADDRINUSE, EADDRNOTAVAIL, EINVAL (the tag), EMFILE, EAGAIN (any port: none is leased yet),
  // ENOBUFS (the fifo has no room for one more listener). What the kernel and the card say comes as
  // OP_DONE, cookie 0.
  Outcome Open(const UdpOptions& options, Handle* handle);
  // Null for a stale handle or a closed socket.
  UdpSocket* Find(Handle handle) const;
  // EBADF.
  Outcome SetUserData(Handle handle, uint64_t user_data);
  // EBADF. `detach`: no completion any more.
  Outcome Close(Handle handle, bool detach);

  // --- Groups and peers (membership.cc, udp_connect.cc) ---

  // EBADF, EINVAL (no group, another port, or a mixture of wanted and unwanted sources), ENOBUFS.
  Outcome Join(Handle handle, const wire::Endpoint& group,
               std::optional<wire::Ipv4Address> source, uint32_t flags, uint64_t cookie);
  // EBADF, EADDRNOTAVAIL.
  Outcome Leave(Handle handle, const wire::Endpoint& group,
                std::optional<wire::Ipv4Address> source, uint64_t cookie);
  // EBADF, EINVAL.
  Outcome Connect(Handle handle, const wire::Endpoint& peer, uint64_t cookie);

  // --- Sending (udp_send.cc) ---

  // To the default destination.
  SendResult Send(UdpSocket* socket, const Payload& payload, const SendOptions& options);
  // The rest of it behind the short way (udp_send.h).
  SendResult SendOtherwise(UdpSocket& socket, const Payload& payload, const SendOptions& options);
  // After a short post was refused with `status`.
  SendResult SendAgain(UdpSocket& socket, SendFlow& flow, const Payload& payload, uint32_t flags,
                       nic::TxStatus status);
  SendResult SendTo(UdpSocket* socket, const wire::Endpoint& peer, const Payload& payload,
                    const SendOptions& options);
  // Copies a datagram for each payload to the default destination, in order, up to the first that
  // is refused; how many were not. One doorbell for all. `flags`: kNowOrFail, kNoDoorbell. `last`:
  // the result of the last one tried.
  uint32_t SendBurst(UdpSocket* socket, std::span<const nic::TxPayload> payloads, uint32_t flags,
                     SendResult* last);
  SendResult WouldSend(UdpSocket* socket, size_t length);
  // Counts a send by a handle that is stale, or to an address that is not IPv4.
  SendResult RefuseStale();
  SendResult RefuseFamily(UdpSocket& socket) { return Refuse(socket, SendResult::kRefusedRoute); }
  // Takes a refusal's count back: of a send that was refused, and counted, before.
  void Uncount(UdpSocket& socket, SendResult reason);
  // Builds a datagram to the default destination ahead (prepared_sends.h). EBADF, ENOTCONN,
  // EMSGSIZE, ENOBUFS.
  Outcome PrepareSend(Handle handle, std::span<const uint8_t> payload, Handle* prepared);
  // Has the socket's sends paced by the device from the OP_DONE on; a rate of 0: no more. EBADF,
  // EOPNOTSUPP (the device paces nothing), EINVAL (the packet size). (socket_rate.cc)
  Outcome SetRate(Handle handle, const nic::RateLimit& rate, uint64_t cookie);
  // Resolves the flows of connected sockets and runs a warm send on each.
  void Warm();

  // --- What the poll brings ---

  // Frames from the receive queue, with their references, TCP's too. Each of the others emits at
  // most core->fanout completions. How many were taken: all, unless TCP left no room for the rest.
  uint32_t Receive(std::span<const nic::RxFrame> frames);
  // Tells what was wanted of a settled frame: at most two completions, for which there is room.
  void Settle(const SendRecord& record);
  // Fills in user data at hand-out. False: not to be handed out (its buffer is released here).
  bool Resolve(completion::Completion* completion);
  // Emits what sockets have to tell, as far as there is room.
  void TellNews();
  void Expire(RingTimer* timer);
  void AdoptRoutes();
  void NeighbourSeen(wire::Ipv4Address address, wire::MacAddress mac);

  // What other rings send to groups joined here; false: more waits than there is room for.
  bool TakeLooped();
  void AddPeer(LoopbackPeers::node_type peer);
  void RemovePeer(uint64_t key, const LoopbackQueue* queue);

  // --- What the control thread brings: each emits at most one completion ---

  void OpDone(Handle handle, uint64_t cookie, const Outcome& outcome, bool fallback);
  // One that was started is done, and undone if it failed; emits nothing. `standing`: the filter
  // that the kernel has for the socket since; null: it is no member.
  void JoinDone(const GroupJoin& join, bool ok, const udp::SourceFilter* standing);
  void Released(Handle handle);
  // `ifindex`: where the kernel got it; 0: not said.
  void SlowPath(Handle handle, packet::Buffer* buffer, uint32_t ifindex,
                const wire::UdpFlow& flow);
  // An ICMP error about a datagram to `destination`, or a rule that could not follow (port 0).
  void SocketError(Handle handle, const wire::Endpoint& destination, int error);

  // --- Accessors ---

  const udp::Demux& demux() const { return *demux_; }
  const FrameLedger& ledger() const { return *ledger_; }
  // Null: the kernel reassembles.
  const ip::Reassembler* reassembler() const;
  const SocketTable& sockets() const { return *sockets_; }
  const Neighbours& neighbours() const { return *neighbours_; }
  Neighbours& neighbours() { return *neighbours_; }
  FrameLedger& ledger() { return *ledger_; }
  // Of the table of sockets.
  std::span<std::byte> memory();
  // Has ports leased ahead, when few are left.
  void StockPorts();
  PortStock& ports() { return *ports_; }

 private:
  // Receiving (udp_receive.cc).
  bool ReceiveKnown(const nic::RxFrame& rx);
  void Learn(const uint8_t* bytes, const wire::UdpFrame& frame, const udp::Binding* binding,
             const completion::Completion& completion);
  void ReceiveFrame(const nic::RxFrame& rx);
  void ReceiveOther(const nic::RxFrame& rx, const wire::UdpFrame& frame,
                    wire::FrameVerdict verdict);
  void ReceiveShared(const nic::RxFrame& rx, const wire::UdpFrame& frame,
                     const udp::Binding* binding, const udp::Binding* next);
  // kMulticast, kBroadcast or neither.
  uint16_t CastOf(wire::Ipv4Address destination) const;
  bool AdmitHeld(UdpSocket& socket, packet::Buffer* buffer);
  bool AdmitChain(UdpSocket& socket, packet::Buffer* head, uint32_t links);
  void NumberChain(packet::Buffer* head);
  static void AddReferences(packet::Buffer* head);
  uint32_t DeliverChain(packet::Buffer* head, const wire::UdpFlow& flow,
                        const udp::Binding* binding, uint16_t flags);
  // Datagrams in several buffers (udp_chains.cc).
  void ReceiveFragment(const nic::RxFrame& rx, const wire::UdpFrame& frame);
  void DeliverWhole(ip::ReassembledDatagram& whole);
  void EmitChain(UdpSocket& socket, packet::Buffer* buffer, const wire::UdpFlow& flow,
                 uint16_t flags);
  const completion::Completion* EmitPacket(UdpSocket& socket, const nic::RxFrame& rx,
                                           const wire::UdpFrame& frame, uint16_t flags);

  // Sending (udp_send.cc, udp_frames.cc, udp_flow.cc).
  SendResult SendForeign(UdpSocket& socket, SendFlow& flow, const Payload& payload,
                         const SendOptions& options);
  SendResult SendOn(UdpSocket& socket, SendFlow& flow, const Payload& payload,
                    const SendOptions& options);
  uint32_t PostShorts(UdpSocket& socket, std::span<const nic::TxPayload> payloads, uint32_t flags);
  SendResult PostDatagram(UdpSocket& socket, SendFlow& flow, const Payload& payload,
                          const SendOptions& options);
  SendResult PostFragments(UdpSocket& socket, SendFlow& flow, const Payload& payload,
                           const SendOptions& options);
  SendResult QueueDatagram(UdpSocket& socket, SendFlow& flow, const Payload& payload,
                           const SendOptions& options);
  // The frames of one datagram, in order, in `frames_`; false: the pool has too few buffers.
  bool BuildFrames(const UdpSocket& socket, const SendFlow& flow, const Payload& payload,
                   const SendOptions& options);
  void ReleaseFrames();
  // From `first` on, but for one reference to `callers` (null: to none).
  void ReleaseUnposted(const WaitingFrame* first, const packet::Buffer* callers);
  uint32_t FramesOf(const SendFlow& flow, size_t length) const;
  // Of the send queue that the socket sends by; reaps it if not.
  bool HasRoom(const UdpSocket& socket, uint32_t frames);
  SendResult Refuse(UdpSocket& socket, SendResult reason);
  SendResult ResultOf(UdpSocket& socket, nic::TxStatus status);
  void Resolve(UdpSocket& socket, SendFlow& flow);
  void BuildHeaders(const UdpSocket& socket, SendFlow& flow, wire::MacAddress mac);
  SendFlow& FlowTo(UdpSocket& socket, const wire::Endpoint& peer);
  // Own multicast (udp_loopback.cc).
  bool IsHeardHere(wire::Ipv4Address group, uint16_t port) const;
  void LoopBack(const SendFlow& flow, const Payload& payload);
  void DeliverLooped(packet::Buffer* head, const wire::UdpFlow& flow, uint16_t flags);

  // Groups (membership.cc).
  void UndoJoin(const GroupJoin& failed, const udp::SourceFilter* standing);
  void Forget(Handle handle, wire::Ipv4Address group);

  // Sockets (udp_open.cc, udp_close.cc).
  Outcome ChooseLocal(const UdpOptions& options, wire::Endpoint* local) const;
  void StartOpen(UdpSocket& socket, int kernel_socket, std::unique_ptr<KernelPort> port);
  void StartRelease(UdpSocket& socket);
  std::vector<udp::LocalAddress> LocalAddresses() const;
  std::vector<nic::FlowRule> RulesOf(const UdpSocket& socket) const;
  void FollowAddresses(const std::vector<udp::LocalAddress>& local);
  void StartRules(UdpSocket& socket);
  void CountLocal(const UdpSocket& socket, int change);
  void AddNews(UdpSocket& socket);

  // Prepared sends (udp_prepared.cc).
  friend class PreparedOf<Udp>;
  void BuildPrepared(PreparedSend& prepared);
  SendResult PostPrepared(PreparedSend& prepared, const SendOptions& options);

  void OnPosted(const WaitingFrame& frame) override;
  void OnFailed(const WaitingFrame& frame, int error) override;
  void OnConnected(const WaitingConnect& connect, int error) override;
  void OnLost(wire::Ipv4Address next_hop) override;
  PacedQueue* PaceOf(const WaitingFrame& frame) const override;

  RingCore* const core_;
  std::unique_ptr<udp::Demux> demux_;
  std::unique_ptr<SocketTable> sockets_;
  std::unique_ptr<Neighbours> neighbours_;
  std::unique_ptr<FrameLedger> ledger_;
  std::unique_ptr<Reassembly> reassembly_;  // Where fragments are the ring's own.
  std::unique_ptr<PortStock> ports_;
  bool tcp_came_ = false;  // The last frame was TCP's.
  std::unique_ptr<PreparedOf<Udp>> prepared_;
  std::vector<WaitingFrame> frames_;  // Of the datagram being cut.
  std::vector<GroupJoin> joins_;      // Under way, the oldest first.
  LoopbackPeers peers_;
  // Identification of datagrams in fragments, or that routers may cut. From a random one on: other
  // rings of the host count for themselves.
  uint16_t next_id_;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_UDP_H_
