// SPDX-License-Identifier: Apache-2.0
//
// What a device without checksum offload leaves to software: the checksums that a frame's flags ask
// of it.
//
// Pure. Byte order: frames as on the wire. Spec: RFC 791, RFC 768, RFC 9293 section 3.1, RFC 1071.

#ifndef XTREME_XTREME_MLX5_SOFTWARE_CHECKSUM_H_
#define XTREME_XTREME_MLX5_SOFTWARE_CHECKSUM_H_

#include <cstdint>
#include <span>

namespace xtreme::mlx5 {

// Writes into `header` (Ethernet to the end of the UDP or TCP header) the checksums that `flags`
// (nic::TxFlag) ask for, over header and payload. What is not IPv4, or not UDP or TCP, or ends
// before the field, stays as it is: so does a card.
void FinishChecksums(uint32_t flags, std::span<uint8_t> header, std::span<const uint8_t> payload);

}  // namespace xtreme::mlx5

#endif  // XTREME_XTREME_MLX5_SOFTWARE_CHECKSUM_H_
