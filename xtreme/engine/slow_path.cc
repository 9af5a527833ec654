// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/slow_path.h"

#include <sys/epoll.h>

#include <atomic>
#include <utility>
#include <vector>

#include "stack/wire/frame.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/copy_in.h"
#include "xtreme/engine/kernel.h"
#include "xtreme/engine/mailbox.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/udp.h"

namespace xtreme::engine {
namespace {

// A datagram or ICMP error that came by the kernel's socket, on its way to the ring.
struct SlowDatagram {
  Handle socket;
  wire::Endpoint source;
  wire::Endpoint destination;
  std::vector<uint8_t> payload;
  int error;
  uint32_t ifindex;
};

void Arrive(Ring& ring, const SlowDatagram& datagram) {
  RingCore& core = ring.core();
  if (datagram.error != 0) {
    return ring.udp().SocketError(datagram.socket, datagram.destination, datagram.error);
  }
  packet::Buffer* buffer = CopyIn(core.device.pool.get(), datagram.payload);
  if (buffer == nullptr) return core.CountLoss(Drop::kSlowPathBuffers);
  ring.udp().SlowPath(datagram.socket, buffer, datagram.ifindex,
                      {.destination = datagram.destination.address,
                       .source = datagram.source.address,
                       .destination_port = datagram.destination.port,
                       .source_port = datagram.source.port,
                       .vlan_id = core.device.vlan_id});
}

}  // namespace

bool PortHoldings::HandOn(const KernelDatagram& datagram) {
  if (waiting_ == nullptr) waiting_ = std::make_shared<std::atomic<uint32_t>>(0);
  if (waiting_->load(std::memory_order_relaxed) >= kMostWaiting) return false;
  waiting_->fetch_add(1, std::memory_order_relaxed);
  SlowDatagram slow{.socket = socket_,
                    .source = datagram.source,
                    .destination = datagram.destination,
                    .payload = {datagram.payload.begin(), datagram.payload.end()},
                    .error = datagram.error,
                    .ifindex = datagram.ifindex};
  side_->mailbox->Push(MakeNotice([slow = std::move(slow), waiting = waiting_](Ring& ring) {
    waiting->fetch_sub(1, std::memory_order_relaxed);
    Arrive(ring, slow);
  }));
  return true;
}

void PortHoldings::OnReady(uint32_t) {
  uint32_t lost = 0;
  port->Drain([&](const KernelDatagram& datagram) { lost += !HandOn(datagram); });
  lost += port->TakeLost();
  if (lost == 0) return;
  side_->mailbox->Push(
      MakeNotice([lost](Ring& ring) { ring.core().CountLoss(Drop::kSlowPathFull, lost); }));
}

void PortHoldings::Serve(const std::shared_ptr<PortHoldings>& path, ControlThread* control,
                     const ControlSide* side, Handle socket) {
  path->side_ = side;
  path->socket_ = socket;
  if (path->port->fd() >= 0) control->WatchBy(path->port->fd(), EPOLLIN, path);
}

}  // namespace xtreme::engine
