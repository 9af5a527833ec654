// SPDX-License-Identifier: Apache-2.0
// Sees the ARP replies on an interface: our request leaves by the ring, the reply comes to the
// kernel, and a packet socket with a filter gets a copy.
//
// Only replies and gratuitous announcements (sender and target the same) pass the filter, so a LAN
// full of requests wakes nobody. A sighting is a claim of its sender, like all of ARP.
//
// Needs CAP_NET_RAW. Threads: one at a time. Spec: RFC 826, RFC 5227 section 2.3, packet(7).

#ifndef XTREME_XTREME_HOST_NEIGHBOUR_PROBE_H_
#define XTREME_XTREME_HOST_NEIGHBOUR_PROBE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "stack/base/counters.h"
#include "stack/wire/address.h"
#include "xtreme/host/file_descriptor.h"

namespace xtreme::host {

struct NeighbourSighting {
  uint32_t ifindex = 0;
  wire::Ipv4Address address;
  wire::MacAddress mac;
  // An announcement that nobody asked for: it updates what is known and teaches nothing new.
  bool gratuitous = false;
  friend bool operator==(const NeighbourSighting&, const NeighbourSighting&) = default;
};

// What an ARP packet (after the Ethernet header) says about its sender; nullopt when it is
// malformed, neither reply nor gratuitous, or names a sender that cannot be a host's (a group's
// MAC, 0.0.0.0).
std::optional<NeighbourSighting> ParseSighting(uint32_t ifindex, std::span<const uint8_t> packet);

struct NeighbourProbeCounters {
  uint64_t sightings = 0;
  uint64_t ignored = 0;

  static constexpr auto Table() {
    return std::to_array<base::CounterDescriptor<NeighbourProbeCounters>>(
        {{"sightings", "ARP replies and announcements seen", &NeighbourProbeCounters::sightings},
         {"ignored", "ARP packets that passed the filter and say nothing usable",
          &NeighbourProbeCounters::ignored}});
  }
};
static_assert(base::DescribesEveryCounter<NeighbourProbeCounters>());

class NeighbourProbe {
 public:
  // Listens on the interface `ifindex` of the calling thread's network namespace.
  // INVALID_ARGUMENT: `ifindex` is 0. PERMISSION_DENIED: CAP_NET_RAW is missing, and the message
  // says so. Else the errno of the system call, above all ENODEV.
  static absl::StatusOr<NeighbourProbe> Open(uint32_t ifindex);

  uint32_t ifindex() const { return ifindex_; }
  // Readable when Poll has something.
  int fd() const { return fd_.get(); }

  // Fills `sightings` from the front, in order of arrival, and returns how many. Takes as many
  // packets as there is room for, of use or not: the fd is readable while more wait. An interface
  // that is down or gone yields none. Never blocks.
  size_t Poll(std::span<NeighbourSighting> sightings);

  const NeighbourProbeCounters& counters() const { return counters_; }

 private:
  NeighbourProbe(uint32_t ifindex, FileDescriptor fd) : ifindex_(ifindex), fd_(std::move(fd)) {}

  uint32_t ifindex_;
  FileDescriptor fd_;
  NeighbourProbeCounters counters_;
};

}  // namespace xtreme::host

#endif  // XTREME_XTREME_HOST_NEIGHBOUR_PROBE_H_
