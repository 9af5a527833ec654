// SPDX-License-Identifier: Apache-2.0
//
// Histogram: how often a time was how long, in buckets that double.
//
// Bucket i counts values below 2^i that the buckets before it do not; the last one all others.
// Published as counters of one scope, whose names say the bounds: "below_1", "below_2" ... "more",
// then "sum" and "max".
// Units: nanoseconds. Threads: one.

#ifndef XTREME_XTREME_STATS_HISTOGRAM_H_
#define XTREME_XTREME_STATS_HISTOGRAM_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace xtreme::stats {

inline constexpr std::string_view kBucketPrefix = "below_";
inline constexpr std::string_view kLastBucket = "more";
inline constexpr std::string_view kSumName = "sum";
inline constexpr std::string_view kMaxName = "max";

namespace histogram_internal {

struct Name {
  std::array<char, 24> characters{};
  size_t length = 0;
  constexpr std::string_view text() const { return {characters.data(), length}; }
};

constexpr Name NameOf(uint64_t bound) {
  Name name;
  for (char c : kBucketPrefix) name.characters[name.length++] = c;
  const size_t first = name.length;
  for (; bound != 0; bound /= 10) {
    name.characters[name.length++] = static_cast<char>('0' + bound % 10);
  }
  std::reverse(name.characters.begin() + first, name.characters.begin() + name.length);
  return name;
}

// Up to 2^32 ns, which is 4.3 s.
inline constexpr std::array<Name, 33> kNames = [] {
  std::array<Name, 33> names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = NameOf(uint64_t{1} << i);
  return names;
}();

}  // namespace histogram_internal

class Histogram {
 public:
  static constexpr size_t kBuckets = histogram_internal::kNames.size() + 1;

  void Count(uint64_t value_ns) {
    ++buckets_[std::min<size_t>(std::bit_width(value_ns), kBuckets - 1)];
    sum_ns_ += value_ns;
    max_ns_ = std::max(max_ns_, value_ns);
  }

  // Calls `visit(name, meaning, value)` for each bucket, the sum and the greatest. Static strings.
  template <typename Visitor>
  void Visit(Visitor&& visit) const {
    for (size_t i = 0; i + 1 < kBuckets; ++i) {
      visit(histogram_internal::kNames[i].text(), "below so many ns, and not below the half",
            buckets_[i]);
    }
    visit(kLastBucket, "as long as the last bound, or longer", buckets_[kBuckets - 1]);
    visit(kSumName, "ns in all", sum_ns_);
    visit(kMaxName, "longest, in ns", max_ns_);
  }

 private:
  std::array<uint64_t, kBuckets> buckets_{};
  uint64_t sum_ns_ = 0;
  uint64_t max_ns_ = 0;
};

}  // namespace xtreme::stats

#endif  // XTREME_XTREME_STATS_HISTOGRAM_H_
