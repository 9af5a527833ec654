// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/testing/two_hosts_testing.h"

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

}  // namespace xtreme::engine::testing
