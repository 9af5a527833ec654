// SPDX-License-Identifier: Apache-2.0
// Sees the ICMP errors about TCP segments that come in on an interface: the kernel, which knows no
// connection of ours, has nobody to tell, and a raw socket gets a copy.
//
// Only destination unreachable, time exceeded and parameter problem pass, and only what quotes TCP:
// of UDP the kernel tells the bound socket itself. Raw sockets get what the kernel has not checked
// yet, so all of it is checked here. Whether an error is to be believed, its connection decides.
//
// Needs CAP_NET_RAW. Threads: one at a time. Spec: RFC 792, RFC 1191, raw(7), icmp(7).

#ifndef XTREME_XTREME_HOST_ICMP_ERRORS_H_
#define XTREME_XTREME_HOST_ICMP_ERRORS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "stack/base/counters.h"
#include "stack/ip/icmp_error.h"
#include "xtreme/host/file_descriptor.h"

namespace xtreme::host {

struct IcmpRefusals {
  uint64_t not_ip = 0;
  uint64_t checksum = 0;
  uint64_t malformed = 0;
  uint64_t no_meaning = 0;
  uint64_t lost = 0;

  static constexpr auto Table() {
    using R = IcmpRefusals;
    return std::to_array<base::CounterDescriptor<R>>({
        {"icmp_not_ip", "ICMP errors whose own IP header is none, or that came in fragments",
         &R::not_ip},
        {"icmp_checksum", "ICMP errors with a wrong checksum", &R::checksum},
        {"icmp_malformed", "ICMP errors cut short, or that quote no TCP segment's beginning",
         &R::malformed},
        {"icmp_no_meaning", "ICMP errors with a code that nobody knows", &R::no_meaning},
        {"icmp_lost", "ICMP errors not looked at because too many came", &R::lost},
    });
  }
};
static_assert(base::DescribesEveryCounter<IcmpRefusals>());

// What `datagram`, from its IPv4 header on, says about a TCP segment; else why not, counted.
// `vlan_id` as in ip::InterpretIcmpError.
std::optional<ip::SocketError> ParseIcmpError(std::span<const uint8_t> datagram, uint16_t vlan_id,
                                              IcmpRefusals* refusals);

class IcmpErrors {
 public:
  // Listens on the interface `ifindex` of the calling thread's network namespace.
  // INVALID_ARGUMENT: `ifindex` is 0. PERMISSION_DENIED: CAP_NET_RAW is missing, and the message
  // says so. Else the errno of the system call.
  static absl::StatusOr<IcmpErrors> Open(uint32_t ifindex);

  // Readable when Poll has something.
  int fd() const { return fd_.get(); }

  // Takes at most as many messages as there is room for, in order of arrival; those that say
  // something fill `errors` from the front. Returns how many. Never blocks.
  size_t Poll(std::span<ip::SocketError> errors);

  // Of the messages since the last call.
  IcmpRefusals TakeRefusals();

 private:
  explicit IcmpErrors(FileDescriptor fd) : fd_(std::move(fd)) {}

  FileDescriptor fd_;
  IcmpRefusals refusals_;
  uint32_t dropped_ = 0;  // The kernel's count for the socket, as of the last call.
};

}  // namespace xtreme::host

#endif  // XTREME_XTREME_HOST_ICMP_ERRORS_H_
