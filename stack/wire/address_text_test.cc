// SPDX-License-Identifier: Apache-2.0
#include "stack/wire/address_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace xtreme::wire {
namespace {

using ::testing::HasSubstr;

TEST(AddressText, EveryKindSurvivesARoundTrip) {
  for (const char* text : {"0.0.0.0", "192.0.2.1", "255.255.255.255", "1.20.200.0"}) {
    ASSERT_TRUE(ParseIpv4Address(text).ok()) << text;
    EXPECT_EQ(ToString(*ParseIpv4Address(text)), text);
  }
  for (const char* text : {"00:00:00:00:00:00", "01:00:5e:7f:ff:fa", "ff:ff:ff:ff:ff:ff"}) {
    ASSERT_TRUE(ParseMacAddress(text).ok()) << text;
    EXPECT_EQ(ToString(*ParseMacAddress(text)), text);
  }
  for (const char* text : {"0.0.0.0:0", "233.54.12.111:26477", "10.0.0.1:65535"}) {
    ASSERT_TRUE(ParseEndpoint(text).ok()) << text;
    EXPECT_EQ(ToString(*ParseEndpoint(text)), text);
  }
  for (const char* text : {"0.0.0.0/0", "10.1.0.0/16", "10.0.0.1/32"}) {
    ASSERT_TRUE(ParseIpv4Prefix(text).ok()) << text;
    EXPECT_EQ(ToString(*ParseIpv4Prefix(text)), text);
  }
}

TEST(AddressText, FieldsGoToTheirPlaces) {
  EXPECT_EQ(*ParseIpv4Address("192.0.2.1"), Ipv4Address(192, 0, 2, 1));
  EXPECT_EQ(*ParseMacAddress("01:23:45:67:89:aB"),
            MacAddress({0x01, 0x23, 0x45, 0x67, 0x89, 0xAB}));
  EXPECT_EQ(ParseEndpoint("192.0.2.1:4242")->port, 4242);
  EXPECT_EQ(ParseIpv4Prefix("192.0.2.0/24")->length, 24);
}

TEST(AddressText, MalformedTextIsRefusedWithTheTextAndTheReason) {
  struct Row {
    const char* text;
    const char* reason;
  };
  for (const Row& row : {
           Row{"", "four fields"},
           Row{"1.2.3", "four fields"},
           Row{"1.2.3.", "0 to 255"},
           Row{"1.2.3.4.5", "0 to 255"},
           Row{"1.2.3.256", "0 to 255"},
           Row{"1.2.3.-4", "0 to 255"},
           Row{"1.2.3.+4", "0 to 255"},
           Row{"1.2.3.04", "0 to 255"},
           Row{"1..3.4", "0 to 255"},
           Row{" 1.2.3.4", "0 to 255"},
           Row{"1.2.3.4 ", "0 to 255"},
           Row{"1.2.3.4294967297", "0 to 255"},
           Row{"1.2.3.0x4", "0 to 255"},
       }) {
    SCOPED_TRACE(row.text);
    const std::string message(ParseIpv4Address(row.text).status().message());
    EXPECT_THAT(message, HasSubstr("'" + std::string(row.text) + "'"));
    EXPECT_THAT(message, HasSubstr(row.reason));
  }
  for (const Row& row : {
           Row{"01:23:45:67:89", "six"},
           Row{"01:23:45:67:89:ab:cd", "six"},
           Row{"01-23-45-67-89-ab", "':'"},
           Row{"01:23:45:67:89:ag", "hexadecimal"},
           Row{"01:23:45:67:89: b", "hexadecimal"},
           Row{"01:23:45:67:89:-b", "hexadecimal"},
       }) {
    SCOPED_TRACE(row.text);
    EXPECT_THAT(std::string(ParseMacAddress(row.text).status().message()), HasSubstr(row.reason));
  }
  for (const Row& row : {
           Row{"1.2.3.4", "':'"},
           Row{"1.2.3:4", "four fields"},
           Row{"1.2.3.4:", "65535"},
           Row{"1.2.3.4:65536", "65535"},
           Row{"1.2.3.4:01", "65535"},
       }) {
    SCOPED_TRACE(row.text);
    EXPECT_THAT(std::string(ParseEndpoint(row.text).status().message()), HasSubstr(row.reason));
  }
  for (const Row& row : {
           Row{"1.2.3.4", "'/'"},
           Row{"1.2.3/4", "four fields"},
           Row{"1.2.3.4/33", "0 to 32"},
           Row{"1.2.3.4/", "0 to 32"},
       }) {
    SCOPED_TRACE(row.text);
    EXPECT_THAT(std::string(ParseIpv4Prefix(row.text).status().message()), HasSubstr(row.reason));
  }
}

}  // namespace
}  // namespace xtreme::wire
