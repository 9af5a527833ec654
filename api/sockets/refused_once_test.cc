// SPDX-License-Identifier: Apache-2.0

#include "api/sockets/refused_once.h"
#include "gtest/gtest.h"
#include "xtreme/engine/completion.h"

namespace xtreme::sockets {
namespace {

using engine::SendResult;

// A ring that counts what it refuses.
class RefusedOnceTest : public testing::Test {
 public:
  struct Sender {};
  void Uncount(Sender&, SendResult reason) { --Count(reason); }

 protected:
  void Refuse(SendResult reason = SendResult::kRefusedSqFull) {
    ++Count(reason);
    call_.Refused(*this, sender_, reason);
  }
  void Take() { call_.Taken(*this, sender_); }
  int& Count(SendResult reason) {
    return reason == SendResult::kRefusedSqFull ? full_ : without_buffer_;
  }

  RefusedOnce call_;
  Sender sender_;
  int full_ = 0;
  int without_buffer_ = 0;
};

TEST_F(RefusedOnceTest, WhatIsTakenAtOnceIsNot) {
  Take();
  EXPECT_EQ(full_, 0);
}

TEST_F(RefusedOnceTest, CallThatFailsIsHoweverOftenItTries) {
  Refuse();
  Refuse();
  Refuse(SendResult::kRefusedBuffers);
  EXPECT_EQ(full_, 1);
  EXPECT_EQ(without_buffer_, 0);
}

TEST_F(RefusedOnceTest, WhatIsTakenAtTheSecondLookIsNot) {
  Refuse(SendResult::kRefusedBuffers);
  Take();
  EXPECT_EQ(without_buffer_, 0);
  Take();
  EXPECT_EQ(without_buffer_, 0);
}

TEST_F(RefusedOnceTest, CallThatWaitedIs) {
  Refuse();
  Refuse();
  Take();
  EXPECT_EQ(full_, 1);
}

// A connection's: part of it at the second look, and the rest not.
TEST_F(RefusedOnceTest, RestThatIsRefusedIs) {
  Refuse();
  Take();
  Refuse();
  EXPECT_EQ(full_, 1);
  Take();
  EXPECT_EQ(full_, 1);
}

}  // namespace
}  // namespace xtreme::sockets
