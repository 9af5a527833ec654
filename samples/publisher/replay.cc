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

constexpr int64_t kSecondNs = 1'000'000'000;

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
  return now.tv_sec * kSecondNs + now.tv_nsec;
}

void SleepUntil(int64_t when_ns) {
  const timespec when = {.tv_sec = when_ns / kSecondNs, .tv_nsec = when_ns % kSecondNs};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, nullptr);
}

// Calls `each(datagram, time_ns)` for the datagrams of a capture; `passed_over` counts the rest. ""
// or what failed.
template <typename Each>
std::string ForEachDatagram(const std::string& file, uint64_t* passed_over, Each&& each) {
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
  pcap_pkthdr* header;
  const uint8_t* bytes;
  int more;
  while ((more = pcap_next_ex(capture.get(), &header, &bytes)) == 1) {
    const std::optional<Datagram> datagram = FindDatagram({bytes, header->caplen});
    if (datagram) each(*datagram, header->ts.tv_sec * kSecondNs + header->ts.tv_usec);
    else ++*passed_over;
  }
  return more == PCAP_ERROR ? fmt::format("read {}: {}", file, pcap_geterr(capture.get())) : "";
}

std::string EndpointText(const sockaddr_in& endpoint) {
  char text[INET_ADDRSTRLEN];
  inet_ntop(AF_INET, &endpoint.sin_addr, text, sizeof text);
  return fmt::format("{}:{}", text, ntohs(endpoint.sin_port));
}

}  // namespace

std::string List(const std::string& file, CaptureContents* contents) {
  uint64_t passed_over = 0;
  std::optional<int64_t> first_ns;
  return ForEachDatagram(file, &passed_over, [&](const Datagram& datagram, int64_t at_ns) {
    ++contents->datagrams[EndpointText(datagram.to)];
    if (!first_ns) first_ns = at_ns;
    contents->seconds = static_cast<double>(at_ns - *first_ns) / kSecondNs;
  });
}

std::string Replay(const std::string& file, double speed, LineSockets* sockets,
                   ReplayCounters* counters) {
  const int64_t start_ns = NowNs();
  std::optional<int64_t> first_ns;
  const auto send = [&](const Datagram& datagram, int64_t at_ns) {
    if (!first_ns) first_ns = at_ns;
    SleepUntil(start_ns + static_cast<int64_t>(static_cast<double>(at_ns - *first_ns) / speed));
    counters->published += sockets->Send(datagram.to, datagram.payload);
  };
  return ForEachDatagram(file, &counters->passed_over, send);
}

}  // namespace publisher
