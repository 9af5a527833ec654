// SPDX-License-Identifier: Apache-2.0
#include "stack/tcp/prr.h"

#include <gtest/gtest.h>

namespace xtreme::tcp {
namespace {

constexpr uint32_t kSmss = 1000;

// A recovery of `segments` in flight of which `lost` are lost, every delivery of one segment.
class Recovery {
 public:
  Recovery(uint32_t segments, uint32_t lost, uint32_t ssthresh_segments)
      : ssthresh_(ssthresh_segments * kSmss), in_flight_((segments - lost) * kSmss) {
    prr_.Begin(segments * kSmss, kSmss, kSmss, 0);
  }

  // A segment arrives; returns how many are sent on its acknowledgement.
  uint32_t Deliver(bool safe = false) {
    in_flight_ -= kSmss;
    const uint32_t window = prr_.OnAck({.delivered = kSmss,
                                        .in_flight = in_flight_,
                                        .ssthresh = ssthresh_,
                                        .smss = kSmss,
                                        .safe = safe});
    const uint32_t sent = window > in_flight_ ? (window - in_flight_) / kSmss : 0;
    in_flight_ += sent * kSmss;
    prr_.OnSent(sent * kSmss);
    return sent;
  }

  uint32_t in_flight() const { return in_flight_ / kSmss; }

 private:
  ProportionalRateReduction prr_;
  uint32_t ssthresh_;
  uint32_t in_flight_;
};

TEST(Prr, SendsInProportionUntilTheTarget) {
  // 20 in flight, one lost, half of it the target: about every second delivery lets one out.
  Recovery recovery(20, 1, 10);
  uint32_t sent = 0;
  for (int i = 0; i < 18; ++i) sent += recovery.Deliver();
  EXPECT_EQ(recovery.in_flight(), 10u);
  EXPECT_EQ(sent, 9u);
}

TEST(Prr, TheFastRetransmitIsAlwaysLetOut) {
  Recovery deep(20, 1, 2);
  EXPECT_EQ(deep.Deliver(), 1u);
  // Nothing would be due by proportion, for nothing was delivered yet.
  ProportionalRateReduction prr;
  prr.Begin(20 * kSmss, 0, 0, 0);
  EXPECT_EQ(prr.OnAck({.in_flight = 19 * kSmss, .ssthresh = 10 * kSmss, .smss = kSmss}),
            20 * kSmss);
}

TEST(Prr, BelowTheTargetSendsWhatWasDelivered) {
  // 20 in flight and 16 lost: far below the target of 10 at once.
  Recovery recovery(20, 16, 10);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(recovery.Deliver(), 1u) << i;
  EXPECT_EQ(recovery.in_flight(), 4u);
}

TEST(Prr, InGoodProgressGrowsBackToTheTargetAndNotBeyond) {
  Recovery recovery(20, 16, 10);
  recovery.Deliver();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(recovery.Deliver(true), 2u) << i;
  for (int i = 0; i < 20; ++i) recovery.Deliver(true);
  EXPECT_EQ(recovery.in_flight(), 10u);
}

TEST(Prr, WhatWasSackedBeforeIsNotDeliveredAgain) {
  // 20 outstanding, 10 sacked long before: RecoverFS is 10, so half of 10 means every second.
  ProportionalRateReduction prr;
  prr.Begin(20 * kSmss, 10 * kSmss, 0, 0);
  const uint32_t window = prr.OnAck(
      {.delivered = 4 * kSmss, .in_flight = 6 * kSmss, .ssthresh = 5 * kSmss, .smss = kSmss});
  EXPECT_EQ(window, 8 * kSmss);
}

}  // namespace
}  // namespace xtreme::tcp
