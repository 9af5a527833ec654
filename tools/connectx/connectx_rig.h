// SPDX-License-Identifier: Apache-2.0
//
// For tests: a software ConnectX of two devices, mlx5_0 and mlx5_1, joined by a cable in memory.
//
// Invariant: the wires outlive the devices.
// Thread: the test's.

#ifndef XTREME_TOOLS_CONNECTX_CONNECTX_RIG_H_
#define XTREME_TOOLS_CONNECTX_CONNECTX_RIG_H_

#include <array>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "tools/connectx/connectx.h"
#include "tools/connectx/verbs_endpoint.h"
#include "tools/connectx/wire/link.h"

namespace xtreme::connectx {

class ConnectXRig {
 public:
  // `device`: what both are, but for name and address.
  explicit ConnectXRig(SoftwareConnectX::Mode mode, ServiceThread::Options thread = {},
                       const Device::Options& device = {}) {
    auto link = MakeLink();
    EXPECT_TRUE(link.ok()) << link.status();
    ends_ = *std::move(link);
    auto connectx = SoftwareConnectX::Create(
        {.mode = mode,
         .ports = {{.device = Named(device, "mlx5_0", kMacA), .wire = ends_[0].get()},
                   {.device = Named(device, "mlx5_1", kMacB), .wire = ends_[1].get()}},
         .thread = thread});
    EXPECT_TRUE(connectx.ok()) << connectx.status();
    connectx_ = *std::move(connectx);
  }

  SoftwareConnectX& operator*() { return *connectx_; }
  SoftwareConnectX* operator->() { return connectx_.get(); }
  // The end of the cable in device `index`, to pull it.
  LinkEnd& end(size_t index) { return *ends_[index]; }

  // A test that breaks a rule on purpose names it, once for each time.
  void ExpectViolation(std::string rule) { expected_.insert(std::move(rule)); }

  // What the programs of a test must leave: no object, and nothing else that hardware punishes.
  void ExpectClean() {
    EXPECT_EQ(connectx_->live_objects(), LiveObjects{});
    for (size_t i = 0; i < connectx_->size(); ++i) {
      for (const auto& violation : connectx_->device(i).Violations()) {
        const auto known = expected_.find(violation.substr(0, violation.find(':')));
        if (known == expected_.end()) ADD_FAILURE() << violation;
        if (known != expected_.end()) expected_.erase(known);
      }
    }
    for (const std::string& rule : expected_) ADD_FAILURE() << rule << " was not broken";
  }

 private:
  static Device::Options Named(Device::Options device, const char* name, const MacAddress& mac) {
    device.name = name;
    device.mac = mac;
    return device;
  }

  std::array<std::unique_ptr<LinkEnd>, 2> ends_;
  std::multiset<std::string> expected_;
  std::unique_ptr<SoftwareConnectX> connectx_;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_CONNECTX_RIG_H_
