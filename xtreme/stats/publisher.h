// SPDX-License-Identifier: Apache-2.0
//
// Publisher: writes the counters of one ring into a segment (layout.h) that other programs read.
//
// Invariant: after Create() nothing enters the kernel or faults: the file's memory is there, mapped
// and locked to nobody but its flock(). The file appears whole, under its name, or not at all, and
// goes with the publisher; a killed process leaves it, without the lock.
// Threads: Create and the destructor any; the rest one at a time.

#ifndef XTREME_XTREME_STATS_PUBLISHER_H_
#define XTREME_XTREME_STATS_PUBLISHER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "xtreme/stats/layout.h"
#include "xtreme/stats/shared_file.h"

namespace xtreme::stats {

class Publisher {
 public:
  struct Name {
    std::string_view scope;
    std::string_view name;
    std::string_view meaning;
  };
  struct Options {
    std::string directory;  // There; on a file system in memory, or writing costs I/O.
    Access access = Access::kUser;
    uint32_t ring = 0;
    std::string interface;
    std::string program;                // Of this process.
    std::vector<Name> ring_counters;    // Up to kMaxCounters.
    std::vector<Name> socket_counters;  // Up to kMaxCounters.
    uint32_t socket_slots = 0;          // Up to kMaxSocketSlots.
    uint32_t group_slots = 0;           // Up to kMaxGroupSlots.
  };

  // Removes what killed processes left in the directory, then makes the file. InvalidArgument: the
  // options. Unavailable: the system refuses; the message says what and why.
  static absl::StatusOr<std::unique_ptr<Publisher>> Create(const Options& options);
  // Removes the file.
  ~Publisher();
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;

  // --- A publication: Begin, every value in the order of the names, End ---

  void Begin();
  // The ring's next value. What is beyond the names is passed over.
  void Put(uint64_t value);
  // The next socket; its values follow by PutOfSocket. False: no slot is left.
  bool BeginSocket(const SocketHeader& socket);
  void PutOfSocket(uint64_t value);
  // One more membership; above the slots it is counted only.
  void PutGroup(const GroupEntry& group);
  // What the ring got; as long as the header has room for.
  void Describe(std::string_view text);
  void End(int64_t now_ns, bool closed);

  const std::string& path() const { return file_.path; }

 private:
  Publisher(const SharedFile& file, const SegmentHeader& shape);
  SegmentHeader& header() { return *reinterpret_cast<SegmentHeader*>(memory_); }
  void Store(size_t place, uint64_t value);
  void StoreWords(size_t place, const void* words, size_t bytes);

  const SharedFile file_;
  uint8_t* const memory_;
  const SegmentHeader shape_;
  const Places places_;

  // Of the publication under way.
  uint32_t next_ = 0;
  uint32_t next_of_socket_ = 0;
  uint32_t sockets_ = 0;
  uint32_t left_out_ = 0;
  uint32_t groups_ = 0;
  uint32_t groups_left_out_ = 0;
};

}  // namespace xtreme::stats

#endif  // XTREME_XTREME_STATS_PUBLISHER_H_
