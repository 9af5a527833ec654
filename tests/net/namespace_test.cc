// SPDX-License-Identifier: Apache-2.0

#include "tests/net/namespace.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

namespace xtreme::net {
namespace {

ino_t OwnNamespace() {
  struct stat st {};
  stat("/proc/thread-self/ns/net", &st);
  return st.st_ino;
}

sockaddr_in At(const char* address, uint16_t port) {
  sockaddr_in at{.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {}, .sin_zero = {}};
  inet_pton(AF_INET, address, &at.sin_addr);
  return at;
}

class NamespaceTest : public testing::Test {
 protected:
  void SetUp() override {
    for (auto* space : {&a_, &b_}) {
      auto made = Namespace::Create();
      ASSERT_TRUE(made.ok()) << made.status();
      *space = std::move(*made);
    }
  }

  std::unique_ptr<Namespace> a_;
  std::unique_ptr<Namespace> b_;
};

TEST_F(NamespaceTest, InsideMovesThisThreadOnlyAndBack) {
  const ino_t outside = OwnNamespace();
  {
    Namespace::Inside inside(*a_);
    EXPECT_NE(OwnNamespace(), outside);
    const ino_t in_a = OwnNamespace();
    Namespace::Inside deeper(*b_);
    EXPECT_NE(OwnNamespace(), in_a);
  }
  EXPECT_EQ(OwnNamespace(), outside);
}

TEST_F(NamespaceTest, VethCarriesADatagramBetweenTwoNamespaces) {
  ASSERT_EQ(ConnectByVeth(*a_, "left", *b_, "right"), absl::OkStatus());
  ASSERT_EQ(a_->AddAddress("left", "10.1.0.1/24"), absl::OkStatus());
  ASSERT_EQ(b_->AddAddress("right", "10.1.0.2/24"), absl::OkStatus());
  int from = -1;
  int to = -1;
  {
    Namespace::Inside inside(*a_);
    from = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  }
  {
    Namespace::Inside inside(*b_);
    to = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  }
  const sockaddr_in at = At("10.1.0.2", 5000);
  ASSERT_EQ(bind(to, reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
  ASSERT_EQ(sendto(from, "hello", 5, 0, reinterpret_cast<const sockaddr*>(&at), sizeof at), 5);
  char text[8];
  EXPECT_EQ(recv(to, text, sizeof text, 0), 5);
  close(from);
  close(to);
}

TEST_F(NamespaceTest, PropertiesAreSetAndRead) {
  ASSERT_EQ(ConnectByVeth(*a_, "left", *a_, "right"), absl::OkStatus());
  const MacAddress mac{2, 0, 0, 0, 0, 7};
  EXPECT_EQ(a_->SetMac("left", mac), absl::OkStatus());
  EXPECT_EQ(a_->SetMtu("left", 9000), absl::OkStatus());
  EXPECT_EQ(a_->AddAddress("left", "10.1.0.1/24"), absl::OkStatus());
  EXPECT_EQ(a_->AddRoute("224.0.0.0/4", "left"), absl::OkStatus());
  EXPECT_EQ(a_->AddRoute("default", "left", "10.1.0.254"), absl::OkStatus());
  EXPECT_EQ(a_->AddNeighbour("left", "10.1.0.9", mac), absl::OkStatus());
  EXPECT_EQ(a_->RemoveAddress("left", "10.1.0.1/24"), absl::OkStatus());
  EXPECT_EQ(a_->SetSysctl("net.ipv4.igmp_max_memberships", "99"), absl::OkStatus());
  EXPECT_EQ(a_->MacOf("left").value_or(MacAddress{}), mac);
  Namespace::Inside inside(*a_);
  EXPECT_EQ(static_cast<int>(if_nametoindex("left")), a_->IndexOf("left").value_or(-1));
}

TEST_F(NamespaceTest, MissingInterfaceIsNamed) {
  const absl::Status status = a_->SetMtu("nowhere", 1500);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(std::string(status.message()).find("nowhere"), std::string::npos);
}

TEST_F(NamespaceTest, EndOfOneNamespaceTakesTheVethFromTheOther) {
  ASSERT_EQ(ConnectByVeth(*a_, "left", *b_, "right"), absl::OkStatus());
  ASSERT_TRUE(a_->HasInterfaceNamed("lef").value_or(false));
  b_.reset();
  // The kernel takes a namespace down in the background.
  for (int i = 0; i < 5000 && a_->HasInterfaceNamed("lef").value_or(false); ++i) usleep(1000);
  EXPECT_FALSE(a_->HasInterfaceNamed("lef").value_or(true));
}

}  // namespace
}  // namespace xtreme::net
