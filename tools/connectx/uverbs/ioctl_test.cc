// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/uverbs/ioctl.h"

#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "tools/connectx/uverbs/mmap_offset.h"

namespace xtreme::connectx {
namespace {

// A call as libibverbs lays it out.
class Layout {
 public:
  Layout& Add(const ib_uverbs_attr& attribute) {
    attributes_.push_back(attribute);
    return *this;
  }

  std::span<std::byte> Bytes() {
    const size_t length = sizeof(ib_uverbs_ioctl_hdr) + attributes_.size() * sizeof(ib_uverbs_attr);
    words_.assign((length + 7) / 8, 0);
    auto* header = reinterpret_cast<ib_uverbs_ioctl_hdr*>(words_.data());
    header->length = static_cast<uint16_t>(length);
    header->object_id = 3;
    header->method_id = 1;
    header->num_attrs = static_cast<uint16_t>(attributes_.size());
    std::memcpy(words_.data() + 3, attributes_.data(), attributes_.size() * sizeof(ib_uverbs_attr));
    return std::as_writable_bytes(std::span(words_)).first(length);
  }

  const ib_uverbs_attr& Attribute(size_t index) const {
    return reinterpret_cast<const ib_uverbs_attr*>(words_.data() + 3)[index];
  }

 private:
  std::vector<ib_uverbs_attr> attributes_;
  std::vector<uint64_t> words_;
};

TEST(VerbsCallTest, SmallInputsStandInTheAttributeAndLargeOnesBehindAPointer) {
  const uint64_t large[2] = {7, 8};
  Layout layout;
  layout.Add({.attr_id = 1, .len = 4, .data = 42});
  layout.Add({.attr_id = 2, .len = 16, .data = reinterpret_cast<uint64_t>(large)});
  const auto call = VerbsCall::Parse(layout.Bytes());
  ASSERT_TRUE(call);
  EXPECT_EQ(call->object(), 3);
  EXPECT_EQ(call->method(), 1);
  EXPECT_EQ(call->Get<uint32_t>(1), 42u);
  EXPECT_EQ(call->Input(2).size(), 16u);
  EXPECT_EQ(call->Get<uint64_t>(2), 7u);
  EXPECT_FALSE(call->Has(3));
}

TEST(VerbsCallTest, InputShorterThanAskedForIsNoInput) {
  Layout layout;
  layout.Add({.attr_id = 1, .len = 4, .data = 42});
  const auto call = VerbsCall::Parse(layout.Bytes());
  ASSERT_TRUE(call);
  EXPECT_FALSE(call->Get<uint64_t>(1));
  EXPECT_EQ(call->GetPrefix<uint64_t>(1), 42u);
}

TEST(VerbsCallTest, AnswerFillsTheCallersRoomAndNoMore) {
  uint32_t room[3] = {0xa5a5a5a5, 0xa5a5a5a5, 0xa5a5a5a5};
  Layout layout;
  layout.Add({.attr_id = 1, .len = 8, .data = reinterpret_cast<uint64_t>(room)});
  const auto call = VerbsCall::Parse(layout.Bytes());
  ASSERT_TRUE(call);
  call->Answer(1, uint32_t{9});
  EXPECT_EQ(room[0], 9u);
  EXPECT_EQ(room[1], 0u);
  EXPECT_EQ(room[2], 0xa5a5a5a5u);
  EXPECT_NE(layout.Attribute(0).flags & UVERBS_ATTR_F_VALID_OUTPUT, 0);
  const uint64_t longer[2] = {1, 2};
  call->Answer(1, longer);
  EXPECT_EQ(room[2], 0xa5a5a5a5u);
}

TEST(VerbsCallTest, HandleIsAnsweredInTheCallersAttribute) {
  Layout layout;
  layout.Add({.attr_id = 1});
  const auto call = VerbsCall::Parse(layout.Bytes());
  ASSERT_TRUE(call);
  call->AnswerHandle(1, 77);
  EXPECT_EQ(layout.Attribute(0).data, 77u);
}

TEST(VerbsCallTest, LengthsThatDoNotAgreeAreRefused) {
  Layout layout;
  layout.Add({.attr_id = 1});
  const std::span<std::byte> whole = layout.Bytes();
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(VerbsCall::Parse(whole.first(length))) << length;
  }
  reinterpret_cast<ib_uverbs_ioctl_hdr*>(whole.data())->num_attrs = 2;
  EXPECT_FALSE(VerbsCall::Parse(whole));
}

TEST(MmapOffsetTest, CommandAndIndexSurviveTheOffset) {
  for (uint32_t index : {0u, 1u, 255u, 256u, 1023u}) {
    const MmapOffset offset{.command = MmapOffset::kUarCommand, .index = index};
    EXPECT_EQ(MmapOffset::Parse(offset.Emit()), offset) << index;
    EXPECT_EQ(offset.Emit() % 4096, 0u);
  }
  EXPECT_EQ(MmapOffset::Parse(0x500 * 4096).command, 5u);
}

}  // namespace
}  // namespace xtreme::connectx
