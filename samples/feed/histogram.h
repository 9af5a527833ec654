// SPDX-License-Identifier: Apache-2.0
//
// Histogram: latencies in buckets whose width grows with the value, at most 1.6 % of it.
//
// Values below 64 have a bucket each; above, every power of two is cut into 64. Recording is a
// shift and an increment, and nothing is allocated after construction.
// Units: whatever is recorded, nanoseconds by convention. Threads: one; Merge() to combine.

#ifndef XTREME_SAMPLES_FEED_HISTOGRAM_H_
#define XTREME_SAMPLES_FEED_HISTOGRAM_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace feed {

class Histogram {
 public:
  Histogram() : buckets_(kBuckets) {}

  void Record(uint64_t value) {
    ++buckets_[BucketOf(value)];
    ++count_;
    sum_ += value;
    least_ = std::min(least_, value);
    most_ = std::max(most_, value);
  }

  void Merge(const Histogram& other) {
    for (size_t i = 0; i < kBuckets; ++i) buckets_[i] += other.buckets_[i];
    count_ += other.count_;
    sum_ += other.sum_;
    least_ = std::min(least_, other.least_);
    most_ = std::max(most_, other.most_);
  }

  uint64_t count() const { return count_; }
  uint64_t least() const { return count_ == 0 ? 0 : least_; }
  uint64_t most() const { return most_; }
  uint64_t mean() const { return count_ == 0 ? 0 : sum_ / count_; }

  // The upper end of the bucket below or in which `fraction` (0 .. 1) of the values lie, never more
  // than the greatest value; 0 when nothing was recorded.
  uint64_t Quantile(double fraction) const {
    if (count_ == 0) return 0;
    const double clamped = std::clamp(fraction, 0.0, 1.0);
    const auto rank = std::max<uint64_t>(1, static_cast<uint64_t>(clamped * count_ + 0.5));
    uint64_t seen = 0;
    for (size_t i = 0; i < kBuckets; ++i) {
      seen += buckets_[i];
      if (seen >= rank) return std::min(UpperEnd(i), most_);
    }
    return most_;
  }

 private:
  static constexpr int kSubBits = 6;
  static constexpr size_t kSub = size_t{1} << kSubBits;
  static constexpr size_t kBuckets = kSub * (64 - kSubBits + 1);

  static size_t BucketOf(uint64_t value) {
    if (value < kSub) return value;
    const int shift = std::bit_width(value) - 1 - kSubBits;
    return kSub * (shift + 1) + ((value >> shift) - kSub);
  }
  static uint64_t UpperEnd(size_t bucket) {
    if (bucket < kSub) return bucket;
    const size_t shift = bucket / kSub - 1;
    return ((kSub + bucket % kSub + 1) << shift) - 1;
  }

  std::vector<uint64_t> buckets_;
  uint64_t count_ = 0;
  uint64_t sum_ = 0;
  uint64_t least_ = ~uint64_t{0};
  uint64_t most_ = 0;
};

}  // namespace feed

#endif  // XTREME_SAMPLES_FEED_HISTOGRAM_H_
