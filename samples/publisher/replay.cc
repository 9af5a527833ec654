// SPDX-License-Identifier: Apache-2.0

#include "samples/publisher/replay.h"

#include <arpa/inet.h>
#include <pcap/pcap.h>
#include <time.h>

#include <memory>
#include <optional>
#include <span>

#include "fmt/format.h"
#include "samples/feed/big_endian.h"

namespace publisher {
namespace {

struct Datagram {
  sockaddr_in to;
  std::span<const uint8_t> payload;
};

// The multicast datagram in an Ethernet frame (a VLAN tag is passed over); nothing for any other.
std::optional<Datagram> FindDatagram(std::span<const uint8_t> frame) {
  size_t at = 12;
  if (frame.size() < at + 6) return std::nullopt;
  if (feed::ReadBig<2>(frame.data() + at) == 0x8100) at += 4;
  if (frame.size() < at + 2 + 20 || feed::ReadBig<2>(frame.data() + at) != 0x0800) {
    return std::nullopt;
  }
  const std::span<const uint8_t> ip = frame.subspan(at + 2);
  const size_t header = (ip[0] & 0xf) * size_t{4};
  const size_t total = feed::ReadBig<2>(ip.data() + 2);
  const bool fragment = (feed::ReadBig<2>(ip.data() + 6) & 0x3fff) != 0;
  const bool multicast = (ip[16] & 0xf0) == 0xe0;
  if (ip[0] >> 4 != 4 || header < 20 || ip[9] != IPPROTO_UDP || fragment || !multicast ||
      total > ip.size() || total < header + 8) {
    return std::nullopt;
  }
  const size_t length = feed::ReadBig<2>(ip.data() + header + 4);
  if (length < 8 || header + length > total) return std::nullopt;
  Datagram datagram = {};
  datagram.to.sin_family = AF_INET;
  datagram.to.sin_addr.s_addr = htonl(static_cast<uint32_t>(feed::ReadBig<4>(ip.data() + 16)));
  datagram.to.sin_port = htons(static_cast<uint16_t>(feed::ReadBig<2>(ip.data() + header + 2)));
  datagram.payload = ip.subspan(header + 8, length - 8);
  return datagram;
}

int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

void SleepUntil(int64_t when_ns) {
  const timespec when = {.tv_sec = when_ns / 1'000'000'000, .tv_nsec = when_ns % 1'000'000'000};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, nullptr);
}

}  // namespace

std::string Replay(const std::string& file, double speed, LineSockets* sockets,
                   ReplayCounters* counters) {
  char error[PCAP_ERRBUF_SIZE];
  const std::unique_ptr<pcap_t, void (*)(pcap_t*)> capture(
      pcap_open_offline_with_tstamp_precision(file.c_str(), PCAP_TSTAMP_PRECISION_NANO, error),
      [](pcap_t* open) {
        if (open != nullptr) pcap_close(open);
      });
  if (capture == nullptr) return fmt::format("read {}: {}", file, error);
  if (pcap_datalink(capture.get()) != DLT_EN10MB) {
    return fmt::format("read {}: link type {} found, Ethernet possible", file,
                       pcap_datalink(capture.get()));
  }
  const int64_t start_ns = NowNs();
  std::optional<int64_t> first_ns;
  pcap_pkthdr* header;
  const uint8_t* bytes;
  int more;
  while ((more = pcap_next_ex(capture.get(), &header, &bytes)) == 1) {
    const std::optional<Datagram> datagram = FindDatagram({bytes, header->caplen});
    if (!datagram) {
      ++counters->passed_over;
      continue;
    }
    const int64_t at_ns = header->ts.tv_sec * int64_t{1'000'000'000} + header->ts.tv_usec;
    if (!first_ns) first_ns = at_ns;
    SleepUntil(start_ns + static_cast<int64_t>(static_cast<double>(at_ns - *first_ns) / speed));
    counters->published += sockets->Send(datagram->to, datagram->payload);
  }
  return more == PCAP_ERROR ? fmt::format("read {}: {}", file, pcap_geterr(capture.get())) : "";
}

}  // namespace publisher
