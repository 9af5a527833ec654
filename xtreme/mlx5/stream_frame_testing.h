// SPDX-License-Identifier: Apache-2.0
//
// One TCP segment as a frame that Post() takes, and as a stream's.
#ifndef XTREME_XTREME_MLX5_STREAM_FRAME_TESTING_H_
#define XTREME_XTREME_MLX5_STREAM_FRAME_TESTING_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "stack/base/byte_order.h"
#include "xtreme/nic/queue_pair.h"
#include "xtreme/nic/stream_post.h"

namespace xtreme::mlx5::testing {

class StreamFrame {
 public:
  StreamFrame(uint32_t header_bytes, uint32_t length)
      : header_bytes_(header_bytes), length_(length) {
    std::iota(header_.begin(), header_.end(), 1);
    std::iota(payload_.begin(), payload_.end(), 100);
    base::StoreBe16(&header_[16], static_cast<uint16_t>(header_bytes - 14 + length));
    std::memcpy(&tcp_, &header_[nic::StreamSegment::kTcpAt], sizeof(tcp_));
    std::memcpy(reinterpret_cast<uint8_t*>(&tcp_) + header_bytes - nic::StreamSegment::kTcpAt,
                payload_.data(), nic::StreamSegment::kLongestHeader - header_bytes);
    before_ = header_;  // What changes is not read from the headers.
    base::StoreBe16(&before_[16], 0);
    std::fill_n(&before_[nic::StreamSegment::kTcpAt + 4], 12, 0);
  }

  nic::TxFrame frame(uint32_t flags = 0, uint32_t key = 0) const {
    constexpr uint32_t kChecksums = nic::kTxIpChecksum | nic::kTxL4Checksum;
    return {.header = header_.data(), .payload = payload_.data(), .header_length = header_bytes_,
            .payload_length = length_, .key = key,
            .flags = static_cast<uint16_t>(kChecksums | flags)};
  }
  // As it is on the wire.
  std::vector<uint8_t> bytes() const {
    std::vector<uint8_t> all(header_.begin(), header_.begin() + header_bytes_);
    all.insert(all.end(), payload_.begin(), payload_.begin() + length_);
    return all;
  }
  nic::StreamSegment segment() const {
    return {.headers = before_.data(), .header_bytes = header_bytes_, .tcp = tcp_,
            .payload = payload_.data(), .payload_length = length_};
  }

 private:
  uint32_t header_bytes_, length_;
  std::array<uint8_t, 128> header_, before_;
  std::array<uint8_t, 2 * nic::StreamSegment::kPayloadReadable> payload_;
  nic::HalfLine tcp_;
};

}  // namespace xtreme::mlx5::testing

#endif  // XTREME_XTREME_MLX5_STREAM_FRAME_TESTING_H_
