// SPDX-License-Identifier: Apache-2.0

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "xtreme/stats/histogram.h"
#include "xtreme/stats/parent_testing.h"
#include "xtreme/stats/publisher.h"
#include "xtreme/stats/reader.h"

namespace xtreme::stats {
namespace {

class StatsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/dev/shm/xtreme_stats_test.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override {
    for (const std::string& path : ListSegments(directory_)) unlink(path.c_str());
    EXPECT_EQ(rmdir(directory_.c_str()), 0);
  }

  Publisher::Options OptionsOf(uint32_t ring) const {
    return {.directory = directory_,
            .ring = ring,
            .interface = "eth2",
            .program = "handler",
            .ring_counters = {{"ring", "packets", "packets received"},
                              {"drop", "late", "too late"}},
            .socket_counters = {{"udp", "sent", "datagrams sent"}},
            .socket_slots = 2,
            .group_slots = 2};
  }
  std::unique_ptr<Publisher> Open(const Publisher::Options& options) {
    auto publisher = Publisher::Create(options);
    EXPECT_TRUE(publisher.ok()) << publisher.status();
    return publisher.ok() ? *std::move(publisher) : nullptr;
  }
  std::unique_ptr<Publisher> Open() { return Open(OptionsOf(3)); }

  static void Publish(Publisher* publisher, uint64_t packets, int sockets) {
    publisher->Begin();
    publisher->Put(packets);
    publisher->Put(7);
    for (int i = 0; i < sockets; ++i) {
      SocketHeader socket = {};
      socket.handle = 100 + static_cast<uint64_t>(i);
      socket.local_port = 9000;
      if (publisher->BeginSocket(socket)) publisher->PutOfSocket(packets * 10);
    }
    for (int i = 0; i < sockets; ++i) {
      publisher->PutGroup({.socket = 100 + static_cast<uint64_t>(i), .port = 9000});
    }
    publisher->Describe("mlx5_0 port 1");
    publisher->End(1234, false);
  }
  static std::vector<uint8_t> BytesOf(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void Overwrite(const std::string& path, size_t place, uint32_t value) {
    const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_EQ(pwrite(fd, &value, sizeof value, static_cast<off_t>(place)), 4);
    close(fd);
  }
  // A process that publishes once and is killed.
  void LeaveBehind() {
    const pid_t child = fork();
    if (child == 0) {
      auto publisher = Publisher::Create(OptionsOf(9));
      if (publisher.ok()) Publish(publisher->get(), 42, 1);
      raise(SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
  }

  std::string directory_;
};

TEST_F(StatsTest, WhatWasPublishedIsReadWithItsNamesAndMeanings) {
  const auto publisher = Open();
  Publish(publisher.get(), 5, 1);
  const auto segment = ReadSegment(publisher->path());
  ASSERT_TRUE(segment.ok()) << segment.status();
  EXPECT_EQ(segment->pid, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(segment->ring, 3u);
  EXPECT_EQ(segment->interface, "eth2");
  EXPECT_EQ(segment->program, "handler");
  EXPECT_EQ(segment->description, "mlx5_0 port 1");
  EXPECT_EQ(segment->published_ns, 1234);
  EXPECT_TRUE(segment->alive);
  EXPECT_FALSE(segment->torn);
  EXPECT_FALSE(segment->closed);
  ASSERT_EQ(segment->counters.size(), 2u);
  EXPECT_EQ(segment->counters[0].scope, "ring");
  EXPECT_EQ(segment->counters[0].name, "packets");
  EXPECT_EQ(segment->counters[0].meaning, "packets received");
  EXPECT_EQ(segment->counters[0].value, 5u);
  EXPECT_EQ(segment->counters[1].value, 7u);
  ASSERT_EQ(segment->sockets.size(), 1u);
  EXPECT_EQ(segment->sockets[0].handle, 100u);
  EXPECT_EQ(segment->sockets[0].local_port, 9000);
  EXPECT_EQ(segment->sockets[0].values, std::vector<uint64_t>{50});
  EXPECT_EQ(segment->socket_names[0].name, "sent");
  ASSERT_EQ(segment->groups.size(), 1u);
  EXPECT_EQ(segment->groups[0].socket, 100u);
  EXPECT_EQ(segment->groups[0].port, 9000);
}

TEST_F(StatsTest, SocketsBeyondTheSlotsAreCounted) {
  const auto publisher = Open();
  Publish(publisher.get(), 1, 5);
  const auto segment = ReadSegment(publisher->path());
  ASSERT_TRUE(segment.ok()) << segment.status();
  EXPECT_EQ(segment->sockets.size(), 2u);
  EXPECT_EQ(segment->sockets_left_out, 3u);
  EXPECT_EQ(segment->groups.size(), 2u);
  EXPECT_EQ(segment->groups_left_out, 3u);
}

TEST_F(StatsTest, ValuesOfASlotsFormerSocketAreGone) {
  const auto publisher = Open();
  Publish(publisher.get(), 5, 1);
  publisher->Begin();
  ASSERT_TRUE(publisher->BeginSocket({}));
  publisher->End(1235, false);
  const auto segment = ReadSegment(publisher->path());
  ASSERT_TRUE(segment.ok()) << segment.status();
  ASSERT_EQ(segment->sockets.size(), 1u);
  EXPECT_EQ(segment->sockets[0].values, std::vector<uint64_t>{0});
}

TEST_F(StatsTest, ASocketThatIsGoneIsNotInTheNextPublication) {
  const auto publisher = Open();
  Publish(publisher.get(), 1, 2);
  Publish(publisher.get(), 2, 0);
  const auto segment = ReadSegment(publisher->path());
  ASSERT_TRUE(segment.ok()) << segment.status();
  EXPECT_TRUE(segment->sockets.empty());
  EXPECT_EQ(segment->counters[0].value, 2u);
}

TEST_F(StatsTest, AWriterCaughtInTheMiddleIsSaidToBe) {
  const auto publisher = Open();
  Publish(publisher.get(), 1, 0);
  publisher->Begin();
  publisher->Put(2);
  const auto segment = ReadSegment(publisher->path());
  ASSERT_TRUE(segment.ok()) << segment.status();
  EXPECT_TRUE(segment->torn);
}

TEST_F(StatsTest, AccessIsWhatWasAskedFor) {
  const mode_t old = umask(077);
  for (const auto& [access, mode] : {std::pair(Access::kUser, 0600u), {Access::kGroup, 0640u},
                                     {Access::kAll, 0644u}}) {
    Publisher::Options options = OptionsOf(3);
    options.access = access;
    const auto publisher = Open(options);
    struct stat status = {};
    ASSERT_EQ(stat(publisher->path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, mode);
  }
  umask(old);
}

TEST_F(StatsTest, AClosedPublisherLeavesNothing) {
  Open();
  EXPECT_TRUE(ListSegments(directory_).empty());
}

TEST_F(StatsTest, TheCountersOfAKilledProcessAreReadUntilTheNextOneStarts) {
  LeaveBehind();
  const auto left = ListSegments(directory_);
  ASSERT_EQ(left.size(), 1u);
  const auto segment = ReadSegment(left[0]);
  ASSERT_TRUE(segment.ok()) << segment.status();
  EXPECT_FALSE(segment->alive);
  EXPECT_EQ(segment->counters[0].value, 42u);
  const auto publisher = Open();
  EXPECT_EQ(ListSegments(directory_), std::vector<std::string>{publisher->path()});
}

// What says that it lives is neither a child's nor a descriptor.
TEST_F(StatsTest, AProcessIsDeadThoughAChildOfItLivesAndAliveThoughItClosesAllFiles) {
  testing::ParentWriter writer([this] {
    auto publisher = Open();
    Publish(publisher.get(), 42, 1);
    return publisher;
  });
  ASSERT_TRUE(writer.started());
  const std::string path = ListSegments(directory_).at(0);
  EXPECT_TRUE(ReadSegment(path)->alive);
  writer.Kill();
  EXPECT_FALSE(ReadSegment(path)->alive);
  EXPECT_EQ(RemoveStale(directory_), 1);
}

// Of another PID namespace, or what a killed program of another user left.
TEST_F(StatsTest, AProcessWithTheNumberOfAnotherPublishesBesideIt) {
  const auto first = Open();
  const auto second = Open();
  ASSERT_NE(second, nullptr);
  Publish(first.get(), 41, 0);
  Publish(second.get(), 42, 0);
  EXPECT_EQ(second->path(), first->path() + ".2");
  EXPECT_EQ(ListSegments(directory_), (std::vector<std::string>{first->path(), second->path()}));
  EXPECT_EQ(ReadSegment(second->path())->counters[0].value, 42u);
}

TEST_F(StatsTest, OnlyWhatIsStaleIsRemoved) {
  const auto publisher = Open();
  LeaveBehind();
  std::ofstream(directory_ + "/xtreme.notes") << "somebody else's";
  EXPECT_EQ(RemoveStale(directory_), 1);
  EXPECT_EQ(ListSegments(directory_),
            (std::vector<std::string>{publisher->path(), directory_ + "/xtreme.notes"}));
}

// Of an older or a newer library; that of a running program stays.
TEST_F(StatsTest, WhatIsStaleIsRemovedWhateverItsLayout) {
  const auto publisher = Open();
  LeaveBehind();
  for (const std::string& path : ListSegments(directory_)) {
    Overwrite(path, offsetof(SegmentHeader, version), kVersion + 1);
  }
  EXPECT_EQ(RemoveStale(directory_), 1);
  EXPECT_EQ(ListSegments(directory_), std::vector<std::string>{publisher->path()});
}

TEST_F(StatsTest, ADirectoryThatIsNotThereIsNamed) {
  Publisher::Options options = OptionsOf(3);
  options.directory = "/dev/shm/xtreme_absent";
  const auto refused = Publisher::Create(options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().message(),
            "publish counters: make a file in /dev/shm/xtreme_absent: No such file or directory");
}

TEST_F(StatsTest, EveryTruncationIsRefused) {
  const auto publisher = Open();
  Publish(publisher.get(), 5, 2);
  const std::vector<uint8_t> whole = BytesOf(publisher->path());
  ASSERT_TRUE(ParseSegment(whole).ok());
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(ParseSegment({whole.data(), length}).ok()) << length;
  }
}

TEST_F(StatsTest, AHostileHeaderIsRefusedForWhatIsWrong) {
  struct Row {
    size_t place;
    uint32_t value;
    const char* message;
  };
  const Row rows[] = {
      {0, 0, "read counters: this is not a segment of counters"},
      {offsetof(SegmentHeader, version), 3, "read counters: layout 3, 2 is known"},
      {offsetof(SegmentHeader, ring_counters), 0xFFFFFFFF,
       "read counters: 4294967295 and 1 counters for 2 sockets and 2 groups, at most "
       "1024 for 1024 and 1024"},
      {offsetof(SegmentHeader, ring_counters), 3,
       "read counters: 2016 bytes, its header says 2216"},
      {offsetof(SegmentHeader, sockets), 3, "read counters: 3 sockets in 2 slots"},
      {offsetof(SegmentHeader, groups), 3, "read counters: 3 groups in 2 slots"},
  };
  for (const Row& row : rows) {
    const auto publisher = Open();
    Publish(publisher.get(), 5, 2);
    Overwrite(publisher->path(), row.place, row.value);
    const auto refused = ReadSegment(publisher->path());
    ASSERT_FALSE(refused.ok()) << row.message;
    EXPECT_EQ(std::string(refused.status().message()), row.message);
  }
}

TEST_F(StatsTest, ANameThatIsNotTextIsMadePrintable) {
  const auto publisher = Open();
  Publish(publisher.get(), 5, 0);
  Overwrite(publisher->path(), sizeof(SegmentHeader), 0x1B5B1B5B);
  const auto segment = ReadSegment(publisher->path());
  ASSERT_TRUE(segment.ok()) << segment.status();
  EXPECT_EQ(segment->counters[0].scope, "[?[?");
}

TEST_F(StatsTest, APipeUnderTheNameDoesNotBlockTheReader) {
  const std::string path = directory_ + "/xtreme.1.1";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(ReadSegment(path).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Histogram, ATimeIsCountedInTheFirstBucketWhoseBoundIsAboveIt) {
  Histogram histogram;
  for (const uint64_t value : {uint64_t{0}, uint64_t{7}, uint64_t{8}, uint64_t{1} << 40}) {
    histogram.Count(value);
  }
  std::map<std::string, uint64_t> counted;
  histogram.Visit([&counted](std::string_view name, std::string_view, uint64_t value) {
    if (value != 0) counted[std::string(name)] = value;
  });
  EXPECT_EQ(counted, (std::map<std::string, uint64_t>{{"below_1", 1},
                                                      {"below_8", 1},
                                                      {"below_16", 1},
                                                      {"more", 1},
                                                      {"sum", 15 + (uint64_t{1} << 40)},
                                                      {"max", uint64_t{1} << 40}}));
}

}  // namespace
}  // namespace xtreme::stats
