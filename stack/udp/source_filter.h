// SPDX-License-Identifier: Apache-2.0
//
// From whom a socket wants a group: INCLUDE {sources}, or EXCLUDE {sources}. RFC 3376 section 3.1.
//
// EXCLUDE of nobody, the default, is an ordinary join; INCLUDE of nobody admits nobody. Changing a
// filter allocates; asking it does not.
#ifndef XTREME_STACK_UDP_SOURCE_FILTER_H_
#define XTREME_STACK_UDP_SOURCE_FILTER_H_

#include <algorithm>
#include <span>
#include <vector>

#include "stack/wire/address.h"

namespace xtreme::udp {

class SourceFilter {
 public:
  enum class Mode : uint8_t { kInclude, kExclude };

  // Admits everybody.
  SourceFilter() = default;
  SourceFilter(Mode mode, std::span<const wire::Ipv4Address> sources)
      : mode_(mode), sources_(sources.begin(), sources.end()) {
    std::sort(sources_.begin(), sources_.end());
    sources_.erase(std::unique(sources_.begin(), sources_.end()), sources_.end());
  }

  Mode mode() const { return mode_; }
  // In ascending order, each once.
  std::span<const wire::Ipv4Address> sources() const { return sources_; }

  bool AdmitsEverybody() const { return mode_ == Mode::kExclude && sources_.empty(); }

  bool Admits(wire::Ipv4Address source) const {
    return std::binary_search(sources_.begin(), sources_.end(), source) ==
           (mode_ == Mode::kInclude);
  }

  // Adds `source` to the list; false when it is there already.
  bool Add(wire::Ipv4Address source) {
    const auto at = std::lower_bound(sources_.begin(), sources_.end(), source);
    if (at != sources_.end() && *at == source) return false;
    sources_.insert(at, source);
    return true;
  }

  // Takes `source` off the list; false when it is not there.
  bool Remove(wire::Ipv4Address source) {
    const auto at = std::lower_bound(sources_.begin(), sources_.end(), source);
    if (at == sources_.end() || *at != source) return false;
    sources_.erase(at);
    return true;
  }

  friend bool operator==(const SourceFilter&, const SourceFilter&) = default;

 private:
  Mode mode_ = Mode::kExclude;
  std::vector<wire::Ipv4Address> sources_;
};

}  // namespace xtreme::udp

#endif  // XTREME_STACK_UDP_SOURCE_FILTER_H_
