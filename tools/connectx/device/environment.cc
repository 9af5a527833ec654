// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/device/environment.h"

namespace xtreme::connectx {

std::vector<Device::NamedCounter> PortCounters::Snapshot() const {
  constexpr uint64_t kWordBytes = 4;  // IB's PortCounters count octets divided by 4.
  return {
      {"port_xmit_packets", transmit.packets.value()},
      {"port_xmit_data", transmit.bytes.value() / kWordBytes},
      {"port_xmit_discards", transmit.discards.value()},
      {"unicast_xmit_packets", transmit.unicast.value()},
      {"multicast_xmit_packets", transmit.multicast.value()},
      {"port_rcv_packets", receive.packets.value()},
      {"port_rcv_data", receive.bytes.value() / kWordBytes},
      {"port_rcv_errors", receive.discards.value()},
      {"unicast_rcv_packets", receive.unicast.value()},
      {"multicast_rcv_packets", receive.multicast.value()},
      {"out_of_buffer", out_of_buffer.value()},
      {"rx_steer_missed_packets", steering_missed.value()},
      {"req_cqe_error", request_cqe_error.value()},
      {"req_cqe_flush_error", request_cqe_flush_error.value()},
      {"resp_cqe_error", response_cqe_error.value()},
      {"resp_cqe_flush_error", response_cqe_flush_error.value()},
      {"resp_local_length_error", response_local_length_error.value()},
  };
}

}  // namespace xtreme::connectx
