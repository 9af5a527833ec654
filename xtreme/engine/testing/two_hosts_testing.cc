// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/testing/two_hosts_testing.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "xtreme/engine/host_kernel.h"

namespace xtreme::engine::testing {

using net::Namespace;

absl::StatusOr<std::unique_ptr<Engine>> MakeEngineBesideKernel(MemoryNic** nic) {
  auto kernel = HostKernel::Create();
  if (!kernel.ok()) return kernel.status();
  Engine::Options options;
  options.kernel = *std::move(kernel);
  options.open_nic = [nic](const std::string&) -> absl::StatusOr<std::unique_ptr<nic::Nic>> {
    auto made = std::make_unique<MemoryNic>(MemoryNic::Options{});
    if (nic != nullptr) *nic = made.get();
    return made;
  };
  return Engine::Create(std::move(options));
}

void TwoHostsTest::SetUp() {
  auto ours = Namespace::Create();
  auto theirs = Namespace::Create();
  ASSERT_TRUE(ours.ok()) << ours.status();
  ASSERT_TRUE(theirs.ok()) << theirs.status();
  ours_ = *std::move(ours);
  theirs_ = *std::move(theirs);
  ASSERT_TRUE(ConnectByVeth(*ours_, "xt0", *theirs_, "peer").ok());
  ASSERT_TRUE(ours_->AddAddress("xt0", "10.0.0.1/24").ok());
  ASSERT_TRUE(theirs_->AddAddress("peer", "10.0.0.2/24").ok());
  inside_ = std::make_unique<Namespace::Inside>(*ours_);
}

void TwoHostsTest::TearDown() { inside_.reset(); }

int TwoHostsTest::BindError(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_DGRAM, 0);
  const sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(port)};
  const int bound = bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const int error = bound == 0 ? 0 : errno;
  close(fd);
  return error;
}

bool TwoHostsTest::KernelIsMember() {
  std::ifstream file("/proc/thread-self/net/igmp");
  std::stringstream all;
  all << file.rdbuf();
  return all.str().find("030201EF") != std::string::npos;  // The kernel's way to write it.
}

}  // namespace xtreme::engine::testing
