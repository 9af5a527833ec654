// SPDX-License-Identifier: Apache-2.0

#include "tests/e2e/wire_rig.h"

#include <utility>

#include "tools/connectx/connectx.h"
#include "tools/connectx/wire/netif.h"

namespace xtreme::e2e {

WireDevice::WireDevice(const net::MacAddress& mac, uint32_t mtu) {
  auto wire = connectx::NetworkInterface::Open({.interface = "xt0"});
  EXPECT_TRUE(wire.ok()) << wire.status();
  wire_ = *std::move(wire);
  auto connectx = connectx::SoftwareConnectX::Create(
      {.ports = {{.device = {.name = "mlx5_0", .mac = mac, .mtu = mtu},
                  .interface = "xt0",
                  .wire = wire_.get()}}});
  EXPECT_TRUE(connectx.ok()) << connectx.status();
  connectx_ = *std::move(connectx);
}

WireDevice::~WireDevice() = default;

}  // namespace xtreme::e2e
