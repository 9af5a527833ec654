// SPDX-License-Identifier: Apache-2.0
// Ports leased from the kernel: one bound kernel socket for each port, so that no other program
// gets it and the kernel answers for it when we are gone.
//
// Invariant: a port is ours exactly as long as its socket is open; a killed process leaves nothing.
// Threads: PortLease and PortBlock are acquired and destroyed on the control thread (system calls);
// PortBlock::Take and Return belong to the ring's owner and make none.
// Spec: ip(7), socket(7), RFC 6056 section 3.3 (choice of ephemeral ports).

#ifndef XTREME_XTREME_HOST_PORT_LEASE_H_
#define XTREME_XTREME_HOST_PORT_LEASE_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "stack/wire/address.h"
#include "xtreme/host/file_descriptor.h"

namespace xtreme::host {

enum class PortProtocol : uint8_t { kUdp, kTcp };

struct PortRequest {
  PortProtocol protocol = PortProtocol::kUdp;
  // Address Any: of every interface; port 0: the kernel chooses.
  wire::Endpoint local;
  // As the application set them: SO_REUSEADDR and SO_REUSEPORT. With the latter the kernel hands
  // this socket its share of what no ring takes, and drops that share unless `deliver`.
  bool reuse_address = false;
  bool reuse_port = false;
  // UDP only. True: the kernel socket is a slow path (fragments that the kernel reassembled) that
  // the ring drains; non-blocking. False: every datagram is dropped before it takes memory.
  bool deliver = false;
  // With `deliver`: SO_RCVBUF in bytes; 0 keeps the system's default.
  uint32_t receive_buffer_bytes = 0;
};

class PortLease {
 public:
  // INVALID_ARGUMENT: `deliver` asked of TCP. ALREADY_EXISTS: the port is in use (EADDRINUSE).
  // PERMISSION_DENIED: a port below net.ipv4.ip_unprivileged_port_start. Otherwise the errno of the
  // system call, above all EADDRNOTAVAIL: the address is not of this host. Nothing is left open
  // after an error.
  static absl::StatusOr<PortLease> Acquire(const PortRequest& request);
  // The port of a socket that is bound already; the socket is duplicated. The errno of dup or
  // getsockname.
  static absl::StatusOr<PortLease> Adopt(int bound_socket);

  // Of a listener's socket that was adopted: it does not listen on our behalf any more. The port
  // stays taken, by a socket of its own. False: somebody else's listens there still, or the port
  // could not be had again. Nothing to be done of a lease that does not listen.
  bool EndListening();

  PortProtocol protocol() const { return protocol_; }
  // What is bound; the port is never 0.
  wire::Endpoint local() const { return local_; }
  // The kernel's socket, still owned here; readable only with `deliver`.
  int fd() const { return fd_.get(); }

 private:
  PortLease(PortProtocol protocol, wire::Endpoint local, FileDescriptor fd)
      : protocol_(protocol), local_(local), fd_(std::move(fd)) {}

  PortProtocol protocol_;
  wire::Endpoint local_;
  FileDescriptor fd_;
};

// A power of two of consecutive ports, aligned to their number, so that one masked match in
// hardware covers them.
class PortBlock {
 public:
  struct Options {
    PortProtocol protocol = PortProtocol::kTcp;
    wire::Ipv4Address address;
    // 0 to 12: 1 to 4,096 ports.
    uint8_t count_log2 = 4;
    // Where the search begins in net.ipv4.ip_local_port_range; chosen at random when absent, so
    // that two processes seldom meet and outsiders cannot guess.
    std::optional<uint32_t> seed;
  };

  // Tries every aligned block of the range. INVALID_ARGUMENT: `count_log2`. RESOURCE_EXHAUSTED:
  // each block has a port in use, or the range has no aligned block. Else the error of the first
  // bind that failed for another reason than a port in use.
  static absl::StatusOr<PortBlock> Acquire(const Options& options);

  uint16_t first_port() const { return leases_.front().local().port; }
  // How many it has, taken or not.
  size_t size() const { return leases_.size(); }
  size_t available() const { return free_.size(); }

  // The port that was returned longest ago; nullopt when all are taken.
  std::optional<uint16_t> Take();
  // `port` was taken from here and no connection uses it any more.
  void Return(uint16_t port) { free_.push_back(port); }

 private:
  explicit PortBlock(std::vector<PortLease> leases);

  std::vector<PortLease> leases_;
  std::deque<uint16_t> free_;
};

}  // namespace xtreme::host

#endif  // XTREME_XTREME_HOST_PORT_LEASE_H_
