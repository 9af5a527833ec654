// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/slow_path.h"

#include <sys/epoll.h>

#include <atomic>
#include <utility>
#include <vector>

#include "stack/wire/frame.h"
#include "xtreme/engine/control_side.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/copy_in.h"
#include "xtreme/engine/kernel.h"
#include "xtreme/engine/mailbox.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/socket_table.h"
#include "xtreme/engine/udp.h"

namespace xtreme::engine {
namespace {

// A datagram or ICMP error that came by the kernel's socket, on its way to the ring.
struct SlowDatagram {
  uint32_t place;  // Of its socket.
  wire::Endpoint source;
  wire::Endpoint destination;
  std::vector<uint8_t> payload;
  int error;
  uint32_t ifindex;
};

void Arrive(Ring& ring, const SlowDatagram& datagram) {
  RingCore& core = ring.core();
  // Nobody else's yet: the ring is told later that it is given back.
  const Handle socket = ring.udp().sockets().At(datagram.place)->handle;
  if (datagram.error != 0) {
    return ring.udp().SocketError(socket, datagram.destination, datagram.error);
  }
  packet::Buffer* buffer = CopyIn(core.device.pool.get(), datagram.payload);
  if (buffer == nullptr) return core.CountLoss(Drop::kSlowPathBuffers);
  ring.udp().SlowPath(socket, buffer, datagram.ifindex,
                      {.destination = datagram.destination.address,
                       .source = datagram.source.address,
                       .destination_port = datagram.destination.port,
                       .source_port = datagram.source.port,
                       .vlan_id = core.device.vlan_id});
}

// False: too many wait.
bool HandOn(ControlSide& side, uint32_t place, const KernelDatagram& datagram) {
  std::atomic<uint32_t>* const waiting = &side.waiting[place];
  if (waiting->load(std::memory_order_relaxed) >= kMostWaiting) return false;
  waiting->fetch_add(1, std::memory_order_relaxed);
  SlowDatagram slow{.place = place,
                    .source = datagram.source,
                    .destination = datagram.destination,
                    .payload = {datagram.payload.begin(), datagram.payload.end()},
                    .error = datagram.error,
                    .ifindex = datagram.ifindex};
  side.mailbox->Push(MakeNotice([slow = std::move(slow), waiting](Ring& ring) {
    waiting->fetch_sub(1, std::memory_order_relaxed);
    Arrive(ring, slow);
  }));
  return true;
}

void Drain(ControlSide& side, uint32_t place) {
  KernelPort* const port = side.of_udp[place].port.get();
  if (port == nullptr) return;  // Given back by what this call came behind.
  uint32_t lost = 0;
  port->Drain([&](const KernelDatagram& datagram) { lost += !HandOn(side, place, datagram); });
  lost += port->TakeLost();
  if (lost == 0) return;
  side.mailbox->Push(
      MakeNotice([lost](Ring& ring) { ring.core().CountLoss(Drop::kSlowPathFull, lost); }));
}

}  // namespace

void ServePort(ControlThread& control, ControlSide& side, Handle socket) {
  const int fd = side.HoldingsOf(socket).port->fd();
  if (fd < 0) return;
  if (side.port_watch == 0) {
    side.port_watch = control.StartMany(
        [&side](uint32_t place, uint32_t) { Drain(side, place); });
  }
  control.WatchOneOf(side.port_watch, PlaceOf(socket), fd, EPOLLIN);
}

}  // namespace xtreme::engine
