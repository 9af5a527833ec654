// SPDX-License-Identifier: Apache-2.0
//
// One end of a conversation through plain verbs, for tests: an open device with a RAW_PACKET QP in
// RTS, registered memory and completion queues, all made by the distribution's libibverbs.
//
// Invariant: what was made is destroyed in the reverse order, and every verb is checked.
// Frames: Ethernet, IPv4 and UDP with both checksums left zero for the device to fill.
// Thread: the test's.

#ifndef XTREME_TOOLS_CONNECTX_VERBS_ENDPOINT_H_
#define XTREME_TOOLS_CONNECTX_VERBS_ENDPOINT_H_

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/connectx/wire/wire.h"

namespace xtreme::connectx {

inline constexpr MacAddress kMacA = {0x02, 0, 0, 0, 0, 0xa};
inline constexpr MacAddress kMacB = {0x02, 0, 0, 0, 0, 0xb};
inline constexpr uint32_t kIpA = 0x0a000001;
inline constexpr uint32_t kIpB = 0x0a000002;
inline constexpr size_t kUdpHeadersBytes = 14 + 20 + 8;

// An open context of the device of that name; null when there is none.
ibv_context* OpenDevice(std::string_view name);

// A UDP datagram from A to B.
std::vector<uint8_t> UdpFrame(uint16_t destination_port, std::string_view payload);

class Endpoint {
 public:
  struct Options {
    int queue_depth = 16;
    bool completion_channel = false;  // For the receive CQ.
    uint32_t create_flags = 0;        // MLX5DV_QP_CREATE_*.
  };

  explicit Endpoint(std::string_view device) : Endpoint(device, Options{}) {}
  Endpoint(std::string_view device, const Options& options);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // Hands slot `slot` (wr_id) of the receive memory to the device.
  void PostReceive(int slot);
  // Sends `frame` signalled, with wr_id `slot`; 0 or an errno.
  int Send(int slot, std::span<const uint8_t> frame, unsigned flags);
  // Directs UDP to B and `port` here. Null: errno says why not.
  ibv_flow* Listen(uint16_t port, uint32_t tag);
  // The next completion; status IBV_WC_GENERAL_ERR when there is none.
  static ibv_wc Poll(ibv_cq* cq);

  // The first `length` bytes of a receive slot.
  std::span<const uint8_t> received(int slot, size_t length) const;

  ibv_context* context() const { return context_; }
  ibv_pd* pd() const { return pd_; }
  ibv_comp_channel* channel() const { return channel_; }
  ibv_cq* send_cq() const { return send_cq_; }
  ibv_cq* receive_cq() const { return receive_cq_; }
  ibv_qp* qp() const { return qp_; }

 private:
  static constexpr size_t kSlotBytes = 2048;

  void CreateQueues(const Options& options);
  void MoveToReadyToSend();

  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* send_cq_ = nullptr;
  ibv_cq* receive_cq_ = nullptr;
  ibv_qp* qp_ = nullptr;
  std::vector<uint8_t> memory_;  // Send slots, then receive slots.
  ibv_mr* region_ = nullptr;
  size_t depth_ = 0;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_VERBS_ENDPOINT_H_
