// SPDX-License-Identifier: Apache-2.0

#include "api/native/address.h"

#include <gtest/gtest.h>

namespace xtreme::api {
namespace {

TEST(AddressTest, ParsesEveryFormOfTheManual) {
  wire::Endpoint endpoint;
  ASSERT_EQ(ParseEndpoint("233.54.12.111:26477", &endpoint), ParseVerdict::kOk);
  EXPECT_EQ(endpoint, (wire::Endpoint{wire::Ipv4Address(233, 54, 12, 111), 26477}));
  ASSERT_EQ(ParseEndpoint("10.0.0.1", &endpoint), ParseVerdict::kOk);
  EXPECT_EQ(endpoint, (wire::Endpoint{wire::Ipv4Address(10, 0, 0, 1), 0}));
  for (const char* any : {":9000", "*:9000"}) {
    ASSERT_EQ(ParseEndpoint(any, &endpoint), ParseVerdict::kOk) << any;
    EXPECT_EQ(endpoint, (wire::Endpoint{wire::Ipv4Address::Any(), 9000})) << any;
  }
}

TEST(AddressTest, RefusesWhatIsNotOfAnyFormAndLeavesTheResult) {
  wire::Endpoint endpoint{wire::Ipv4Address(1, 2, 3, 4), 5};
  for (const char* text : {"", "10.0.0", "10.0.0.1:", "10.0.0.1:70000", "10.0.0.1:1x", "eth0:1",
                           "10.0.0.1:-1", "10.0.0.01:1"}) {
    EXPECT_EQ(ParseEndpoint(text, &endpoint), ParseVerdict::kMalformed) << text;
  }
  EXPECT_EQ(ParseEndpoint("[::1]:80", &endpoint), ParseVerdict::kIpv6);
  EXPECT_EQ(endpoint.port, 5);
}

TEST(AddressTest, Ipv4IsMappedAndIpv6IsNotOurs) {
  const wire::Endpoint endpoint{wire::Ipv4Address(10, 0, 0, 1), 80};
  xtreme_address address = FromEndpoint(endpoint);
  EXPECT_EQ(address.ip[10], 0xff);
  EXPECT_EQ(address.ip[15], 1);
  EXPECT_EQ(ToEndpoint(address), endpoint);
  address.ip[0] = 0x20;
  EXPECT_EQ(ToEndpoint(address), std::nullopt);
  EXPECT_EQ(ToEndpoint(xtreme_address{}), wire::Endpoint{});
}

}  // namespace
}  // namespace xtreme::api
