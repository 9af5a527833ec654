// SPDX-License-Identifier: Apache-2.0
//
// xtreme.h: rings that cannot be opened. Each says why, and leaves nothing behind.

#include <dirent.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include "tests/api/api_fixture.h"

namespace xtreme::api_test {
namespace {

// A sanitizer's mlock() does nothing and is never refused.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMlockLocks = false;
#else
constexpr bool kMlockLocks = true;
#endif

// What xtreme_ring_open said, in the words of xtreme_error() (of the ring, when it opened).
struct Answer {
  int code = 0;
  std::string text;
  bool Says(std::string_view words) const { return text.find(words) != std::string::npos; }
};

class BringUpTest : public ApiTest {
 protected:
  static constexpr rlim_t kPoolBytes = 1024 * 1536;  // Of Options().
  // More than its queues take: rings of WQEs and CQEs are pinned too.
  static constexpr rlim_t kQueueBytes = 320 << 10;

  // Opens and starts a ring and closes it.
  static Answer Try(const xtreme_ring_options& options) {
    xtreme_ring ring = {};
    Answer answer{.code = xtreme_ring_open(&options, &ring)};
    if (answer.code != 0) return {answer.code, xtreme_error()};
    answer.code = xtreme_ring_start(ring);
    answer.text.resize(4'096);
    answer.text.resize(static_cast<size_t>(
        xtreme_ring_describe(ring, answer.text.data(), answer.text.size())));
    EXPECT_EQ(xtreme_ring_close(ring), 0);
    return answer;
  }
  static Answer Try() { return Try(Options("xt0")); }

  // Tries in a child that was prepared by `prepare`.
  static Answer TryAfter(const std::function<void()>& prepare,
                         const xtreme_ring_options& options = Options("xt0")) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      prepare();
      const Answer answer = Try(options);
      const std::string all = std::to_string(answer.code) + " " + answer.text;
      _exit(write(ends[1], all.data(), all.size()) == static_cast<ssize_t>(all.size()) ? 0 : 1);
    }
    close(ends[1]);
    std::string all(8'192, 0);
    all.resize(static_cast<size_t>(std::max<ssize_t>(read(ends[0], all.data(), all.size()), 0)));
    close(ends[0]);
    waitpid(child, nullptr, 0);
    if (all.empty()) return {1, "the child said nothing"};
    return {std::stoi(all), all.substr(all.find(' ') + 1)};
  }

  static void DropCapabilities(std::initializer_list<int> dropped) {
    __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    __user_cap_data_struct sets[2];
    syscall(SYS_capget, &header, sets);
    for (const int capability : dropped) {
      const uint32_t bit = 1u << (capability % 32);
      sets[capability / 32].effective &= ~bit;
      sets[capability / 32].permitted &= ~bit;
    }
    syscall(SYS_capset, &header, sets);
  }

  static void LimitLockedMemory(rlim_t bytes) {
    const rlimit limit{.rlim_cur = bytes, .rlim_max = bytes};
    setrlimit(RLIMIT_MEMLOCK, &limit);
    DropCapabilities({CAP_IPC_LOCK});
  }

  static std::set<std::string> OpenFds() {
    std::set<std::string> fds;
    DIR* directory = opendir("/proc/self/fd");
    while (const dirent* entry = readdir(directory)) fds.insert(entry->d_name);
    for (const std::string& own : {std::to_string(dirfd(directory)), std::string(".."),
                                   std::string(".")}) {
      fds.erase(own);
    }
    closedir(directory);
    return fds;
  }

  // Memory that is shared with a device, a file or a kernel ring.
  static size_t SharedMappings() {
    std::ifstream maps("/proc/self/maps");
    size_t count = 0;
    for (std::string line; std::getline(maps, line);) count += line[line.find(' ') + 4] == 's';
    return count;
  }
};

TEST_F(BringUpTest, AnInterfaceThatIsDownIsNodevAndNamed) {
  ASSERT_TRUE(space_->SetUp("xt0", false).ok());
  const Answer down = Try();
  EXPECT_EQ(down.code, -ENODEV);
  EXPECT_EQ(down.text, "open ring: interface xt0 is down");
  ASSERT_TRUE(space_->SetUp("xt0", true).ok());
  EXPECT_EQ(Try().code, 0);
}

TEST_F(BringUpTest, AnInterfaceWithoutAnAddressIsNodevAndNamed) {
  ASSERT_TRUE(space_->RemoveAddress("xt0", "10.1.0.1/24").ok());
  const Answer bare = Try();
  EXPECT_EQ(bare.code, -ENODEV);
  EXPECT_EQ(bare.text, "open ring: interface xt0 has no IPv4 address");
}

TEST_F(BringUpTest, WithoutCapNetRawItIsPerm) {
  const Answer refused = TryAfter([] { DropCapabilities({CAP_NET_RAW}); });
  EXPECT_EQ(refused.code, -EPERM) << refused.text;
  EXPECT_TRUE(refused.Says("errno 1")) << refused.text;
}

TEST_F(BringUpTest, CapNetRawIsAllItNeeds) {
  const Answer got = TryAfter([] {
    std::vector<int> others;
    for (int capability = 0; capability <= CAP_LAST_CAP; ++capability) {
      if (capability != CAP_NET_RAW) DropCapabilities({capability});
    }
  });
  EXPECT_EQ(got.code, 0) << got.text;
}

TEST_F(BringUpTest, MemoryThatTheDeviceMayNotPinIsNomemWithTheLimit) {
  ASSERT_TRUE(connectx_->FailNext("REG_MR", ENOMEM));
  const Answer refused = Try();
  EXPECT_EQ(refused.code, -ENOMEM);
  EXPECT_TRUE(refused.Says("RLIMIT_MEMLOCK is")) << refused.text;
}

TEST_F(BringUpTest, MoreThanMayBePinnedIsNomemWithTheLimitAndWhatRaisesIt) {
  const Answer refused = TryAfter([] { LimitLockedMemory(kPoolBytes / 2); });
  EXPECT_EQ(refused.code, -ENOMEM) << refused.text;
  EXPECT_TRUE(refused.Says("RLIMIT_MEMLOCK is 786432 bytes (ulimit -l")) << refused.text;
}

TEST_F(BringUpTest, RoomForThePoolAndNotForTheQueuesIsNomemWithTheLimit) {
  const Answer refused = TryAfter([] { LimitLockedMemory(kPoolBytes + (16 << 10)); });
  EXPECT_EQ(refused.code, -ENOMEM) << refused.text;
  EXPECT_TRUE(refused.Says("create receive CQ")) << refused.text;
  EXPECT_TRUE(refused.Says("RLIMIT_MEMLOCK is 1589248 bytes")) << refused.text;
}

TEST_F(BringUpTest, AClosedRingPinsNothingMore) {
  const Answer third = TryAfter([] {
    LimitLockedMemory(kPoolBytes + kQueueBytes);
    Try();
    Try();
  });
  EXPECT_EQ(third.code, 0) << third.text;
}

TEST_F(BringUpTest, HugepagesThatAreRequiredAndNotThereAreNomem) {
  xtreme_ring_options options = Options("xt0");
  options.hugepages = 2;
  options.rx_buffers = 1 << 22;  // More than there will be: 6 GB.
  const Answer refused = Try(options);
  EXPECT_EQ(refused.code, -ENOMEM);
  EXPECT_TRUE(refused.Says("hugepage")) << refused.text;
}

TEST_F(BringUpTest, WhatMayNotBeLockedIsNoErrorAndInTheLineOfTheRing) {
  // Short queues: what the device pins fits, and what is locked besides does not.
  xtreme_ring_options options = Options("xt0");
  options.rx_queue_frames = 64;
  options.tx_queue_frames = 64;
  const Answer got = TryAfter([] { LimitLockedMemory(kPoolBytes + (48 << 10)); }, options);
  EXPECT_EQ(got.code, 0) << got.text;
  EXPECT_EQ(got.Says("touched but not locked"), kMlockLocks) << got.text;
  EXPECT_EQ(got.Says("RLIMIT_MEMLOCK 2 MB"), kMlockLocks) << got.text;
}

TEST_F(BringUpTest, EachCallOfTheDeviceMayFailAndLeavesNothing) {
  ASSERT_EQ(Try().code, 0);
  const auto fds = OpenFds();
  const size_t mappings = SharedMappings();
  const uint64_t before = connectx_->calls();
  const xtreme_ring ring = OpenRing();
  // Not those of closing it: what libmlx5 keeps of an object whose destroy is refused is not ours.
  const uint64_t calls = connectx_->calls() - before;
  ASSERT_EQ(xtreme_ring_close(ring), 0);
  EXPECT_GT(calls, 10u);
  uint64_t refused = 0;
  for (uint64_t i = 0; i < calls; ++i) {
    connectx_->FailAfter(i, EIO);
    const Answer answer = Try();
    refused += answer.code != 0;
    EXPECT_TRUE(answer.code == 0 || answer.Says("errno ") || answer.code == -ENODEV)
        << "call " << i << ": " << answer.code << " " << answer.text;
    EXPECT_EQ(connectx_->live_objects(), connectx::LiveObjects{}) << "call " << i;
    EXPECT_EQ(OpenFds(), fds) << "call " << i << ": " << answer.text;
    EXPECT_EQ(SharedMappings(), mappings) << "call " << i << ": " << answer.text;
  }
  EXPECT_GT(refused, 8u);
}

TEST_F(BringUpTest, EachDescriptorMayBeMissingAndNothingIsLeft) {
  ASSERT_EQ(Try().code, 0);
  const auto fds = OpenFds();
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  int refused = 0;
  Answer answer{.code = -1};
  for (rlim_t limit = fds.size(); answer.code != 0; ++limit) {
    const rlimit fewer{.rlim_cur = limit, .rlim_max = before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &fewer), 0);
    answer = Try();
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    refused += answer.code != 0;
    EXPECT_TRUE(answer.code == 0 || answer.text.size() > 16) << answer.code << answer.text;
    EXPECT_EQ(OpenFds(), fds) << answer.text;
    EXPECT_EQ(connectx_->live_objects(), connectx::LiveObjects{}) << answer.text;
    ASSERT_LT(refused, 200);
  }
  EXPECT_GT(refused, 8);
}

}  // namespace
}  // namespace xtreme::api_test
