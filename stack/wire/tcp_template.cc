// SPDX-License-Identifier: Apache-2.0
#include "stack/wire/tcp_template.h"

namespace xtreme::wire {

void TcpTemplate::FillChecksums(uint8_t* headers, std::span<const uint8_t> payload) const {
  uint8_t* const ip = headers + ip_offset();
  base::StoreBe16(ip + 10, 0);
  base::StoreBe16(ip + 10, Checksum(std::span(ip, kIpv4MinHeaderBytes)));
  uint8_t* const tcp = headers + tcp_offset();
  base::StoreBe16(tcp + 16, 0);
  const size_t header_bytes = size_t{4} * (tcp[12] >> 4);
  base::StoreBe16(tcp + 16, TcpChecksum(Ipv4Address::Load(ip + 12), Ipv4Address::Load(ip + 16),
                                        std::span<const uint8_t>(tcp, header_bytes), payload));
}

}  // namespace xtreme::wire
