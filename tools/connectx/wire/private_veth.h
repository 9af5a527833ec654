// SPDX-License-Identifier: Apache-2.0
//
// The private veth pair on which a network interface's frames reach the software ConnectX: the
// decider sends copies out of `inlet`, and a packet socket taps what leaves it.
//
// Why a tap on the way out: by then the kernel has done to a frame what a sender's card would have,
// because the inlet offers no offload: cut super-frames to MTU size, finished checksums, put the
// VLAN tag in place. And the tap runs inside the decider's own send, so no queue between the two
// drops. What leaves the inlet is of no further use: the far end's small MTU ends it inside the
// driver.
//
// Invariant: the names carry the owner (process id, start time, a digit), and the owner holds an
// abstract Unix address of the same name, which the kernel frees when the owner dies however it
// dies. So any process in the network namespace can tell a dead owner's pair and removes it.
// Thread: one at a time.

#ifndef XTREME_TOOLS_CONNECTX_WIRE_PRIVATE_VETH_H_
#define XTREME_TOOLS_CONNECTX_WIRE_PRIVATE_VETH_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct nl_sock;

namespace xtreme::connectx {

class PrivateVeth {
 public:
  // Makes the pair in the calling thread's network namespace and brings it up. `serves` names the
  // interface that it works for, for people who list the interfaces.
  // Errors: PermissionDenied without CAP_NET_ADMIN, Internal with what the kernel said.
  static absl::StatusOr<std::unique_ptr<PrivateVeth>> Create(const std::string& serves);
  ~PrivateVeth();

  PrivateVeth(const PrivateVeth&) = delete;
  PrivateVeth& operator=(const PrivateVeth&) = delete;

  // Removes the pairs whose owners are dead, and returns their owners' names.
  static absl::StatusOr<std::vector<std::string>> RemoveAbandoned();

  // Unique in the network namespace while this object lives: letters and digits.
  const std::string& owner() const { return owner_; }
  const std::string& inlet() const { return inlet_; }
  const std::string& outlet() const { return outlet_; }
  int inlet_index() const { return inlet_index_; }

 private:
  PrivateVeth(nl_sock* netlink, int lock_fd, std::string owner);
  absl::Status Build(const std::string& serves);

  nl_sock* const netlink_;
  const int lock_fd_;
  const std::string owner_;
  const std::string inlet_;
  const std::string outlet_;
  int inlet_index_ = 0;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_WIRE_PRIVATE_VETH_H_
