// SPDX-License-Identifier: Apache-2.0
//
// LinkFlows: KnownFlows for who polls in VMA's form: each flow with the LinkCompletion of its
// datagrams, instead of the one that is ours.
//
// Invariant: as KnownFlows'; every flow that stands here stands there too, and its socket's user
// wants its packets as they come, each as a completion. Times are told within one second of the
// clock at a time: a datagram of another one is left to who asks the clock anew.
// Units: nanoseconds, ticks of the ring's clock. Threads: the ring's owner. Never allocates.

#ifndef XTREME_XTREME_COMPLETION_LINK_FLOWS_H_
#define XTREME_XTREME_COMPLETION_LINK_FLOWS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "xtreme/completion/completion.h"
#include "xtreme/completion/known_flows.h"
#include "xtreme/completion/link_completion.h"

namespace xtreme::completion {

class LinkFlows {
 public:
  using Out = LinkCompletion;

  // Who polls.
  struct Taker {
    // Whether packets of a flow whose completions are of `form` are written here, and of what form.
    bool (*admit)(void* context, const Completion& form, LinkCompletion* link) = nullptr;
    // Tells the time of now by SetTime().
    void (*tell_time)(void* context) = nullptr;
    void* context = nullptr;
  };

  // `changes`: as of KnownFlows::Watch().
  LinkFlows(const Taker& taker, const uint64_t* changes) : taker_(taker), changes_(changes) {
    Forget();
  }
  LinkFlows(const LinkFlows&) = delete;
  LinkFlows& operator=(const LinkFlows&) = delete;

  void Forget();
  bool any() const { return any_; }
  // Before each use, once a poll; `ticks`: of now.
  void Follow(uint64_t ticks) {
    if (*changes_ != followed_) [[unlikely]] Forget();
    if (ticks - told_ticks_ >= good_for_ticks_) [[unlikely]] taker_.tell_time(taker_.context);
  }
  // As KnownFlows::Learn(), if it is admitted.
  void Learn(const uint8_t* frame, const Completion& form, udp::Endpoint* endpoint);

  // How the device's clock relates to the ring's.
  void SetScale(const ClockScale& scale);
  // Told at `ticks`, and good for so many: datagrams of nanosecond `-into_second` of the ring's
  // clock and of a second behind it are of `second` of the program's.
  struct Time {
    uint64_t ticks = 0;
    uint64_t good_for_ticks = 0;
    int64_t second = 0;
    int64_t into_second = 0;
  };
  void SetTime(const Time& time);

  // As KnownFlows::Write(). False also of another second. Inlined (link_flows_write.h).
  bool Write(packet::Buffer* buffer, uint8_t* frame, uint32_t length, uint64_t hw_clock,
             LinkCompletion* out) const;
  // Nobody else is asked: what has no place here is the ring's next poll's.
  static constexpr KnownFlows::Taken AskOthers(packet::Buffer*, uint8_t*, uint32_t, uint64_t,
                                               LinkCompletion*) {
    return KnownFlows::Taken::kNot;
  }

 private:
  static constexpr uint64_t kSecond = 1'000'000'000;

  struct alignas(128) Entry {
    std::array<uint8_t, 32> header;  // As KnownFlows'.
    LinkCompletion form;
    udp::Endpoint* endpoint;
  };
  static_assert(sizeof(Entry) == 128);

  void Rescale();
  // What stands in the forms.
  void SetSeconds(int64_t seconds);

  std::array<Entry, KnownFlows::kEntries> entries_;
  ClockScale scale_;  // From the device's clock into the second.
  bool any_ = false;
  uint64_t told_ticks_ = 0;
  uint64_t good_for_ticks_ = 0;
  const Taker taker_;
  ClockScale device_;  // To the ring's clock.
  int64_t second_ = 0;
  int64_t into_second_ = 0;
  int64_t seconds_ = 0;  // As forms have it.
  uint64_t followed_ = 0;
  const uint64_t* const changes_;
};

}  // namespace xtreme::completion

#endif  // XTREME_XTREME_COMPLETION_LINK_FLOWS_H_
