// SPDX-License-Identifier: Apache-2.0
//
// TcpDevice: what the TCP stack sends by: a segment becomes a frame in the ring's send queue.
//
// Invariant: a WQE that gathers a segment's payload, or whose time is wanted, has a record in the
// send log until it completed; whatever fits stands whole in its WQE, and nothing refers to it.
// Threads: the ring's owner.

#ifndef XTREME_XTREME_ENGINE_TCP_DEVICE_H_
#define XTREME_XTREME_ENGINE_TCP_DEVICE_H_

#include <cstdint>
#include <span>

#include "stack/tcp/stack.h"

namespace xtreme::engine {

struct RingCore;

class TcpDevice final : public tcp::Device {
 public:
  explicit TcpDevice(RingCore* core) : core_(core) {}

  tcp::Sink::Taken Transmit(const tcp::OutgoingFrame& frame) override;
  bool PlaceAck(const tcp::Connection& connection, const tcp::Outgoing& says) override;
  uint32_t Room(const tcp::Connection* connection) const override;
  void OnShortOfRoom() override;
  uint32_t PostedBuffers() const override;
  // None of a connection with a rate, whose queue is another, nor where frames are summed here.
  uint32_t RunBytes(const tcp::Connection& connection) const override;
  tcp::Sink::Taken TransmitRun(const tcp::OutgoingFrame& first,
                               std::span<tcp::Segment* const> run,
                               uint32_t segment_bytes) override;

  // While true frames are posted without a doorbell: more follow, or a poll ends with one.
  bool defer = true;

 private:
  bool Place(const wire::TcpTemplate& headers, const tcp::Outgoing& says);
  bool PlaceWithOptions(const uint8_t* headers, const tcp::Outgoing& says);
  tcp::Sink::Taken TransmitOtherwise(const tcp::OutgoingFrame& outgoing);
  tcp::Sink::Taken TransmitBare(const tcp::OutgoingFrame& outgoing);

  RingCore* const core_;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_TCP_DEVICE_H_
