// SPDX-License-Identifier: Apache-2.0
//
// TcpProfiles: how the sockets of a ring behave, once for all that behave alike, as most do.
//
// Invariant: a profile does not change while a socket has it; what sets a socket's settings gives
// it another one. One that nobody has stays until another is made in its place.
// Threads: the ring's owner. Allocates only where more different ones are in use than ever before.

#ifndef XTREME_XTREME_ENGINE_TCP_PROFILES_H_
#define XTREME_XTREME_ENGINE_TCP_PROFILES_H_

#include <cstdint>
#include <deque>
#include <utility>

#include "stack/base/intrusive_list.h"
#include "stack/base/small_hash_map.h"
#include "stack/tcp/pcb_options.h"
#include "xtreme/engine/tcp_options.h"
#include "xtreme/engine/tcp_options_of.h"

namespace xtreme::engine {

class TcpProfiles;

struct TcpProfile {
  TcpSettings settings;
  tcp::PcbOptions options;  // The same for the stack.

  // The table's.
  TcpProfiles* table = nullptr;
  uint32_t users = 0;
  base::ListHook unused;
};

// A socket's share in a profile; null: it has none yet.
class TcpProfileUse {
 public:
  TcpProfileUse() = default;
  explicit TcpProfileUse(TcpProfile* profile) : profile_(profile) {
    if (profile_->users++ == 0) profile_->unused.Unlink();
  }
  TcpProfileUse(const TcpProfileUse& other) : profile_(other.profile_) {
    if (profile_ != nullptr) ++profile_->users;
  }
  TcpProfileUse& operator=(TcpProfileUse other) {
    std::swap(profile_, other.profile_);
    return *this;
  }
  ~TcpProfileUse();

  const TcpProfile& operator*() const { return *profile_; }
  const TcpProfile* operator->() const { return profile_; }

 private:
  TcpProfile* profile_ = nullptr;
};

class TcpProfiles {
 public:
  TcpProfiles();
  TcpProfiles(const TcpProfiles&) = delete;
  TcpProfiles& operator=(const TcpProfiles&) = delete;

  // The one of sockets with these settings that take at most `mss` bytes in a segment. Its
  // addresses hold as long as the table.
  TcpProfileUse Hold(const TcpSettings& settings, uint16_t mss) {
    const bool same = last_ != nullptr && last_->options.mss == mss && last_->settings == settings;
    if (!same) [[unlikely]] last_ = FindOrMake({&settings, mss});
    return TcpProfileUse(last_);
  }

 private:
  friend class TcpProfileUse;

  // Of a profile: its own settings.
  struct Key {
    const TcpSettings* settings = nullptr;
    uint16_t mss = 0;

    uint64_t Hash() const;
    friend bool operator==(const Key& a, const Key& b) {
      return a.mss == b.mss && *a.settings == *b.settings;
    }
  };
  static constexpr uint32_t kAtFirst = 16;

  TcpProfile* FindOrMake(const Key& key);
  TcpProfile& Add();

  base::IntrusiveList<TcpProfile, &TcpProfile::unused> unused_;  // The longest unused first.
  std::deque<TcpProfile> profiles_;
  base::SmallHashMap<Key, TcpProfile> by_settings_{kAtFirst};
  TcpProfile* last_ = nullptr;  // That was held.
};

inline TcpProfileUse::~TcpProfileUse() {
  if (profile_ != nullptr && --profile_->users == 0) profile_->table->unused_.PushBack(*profile_);
}

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_TCP_PROFILES_H_
