// SPDX-License-Identifier: Apache-2.0
//
// Decides on arrival which frames of a network interface are the software ConnectX's: an nftables
// table of its own, at the interface's ingress hook, before anything of the kernel sees a frame.
//
// How: for every shape of rules (which fields, which masks) there is one set, and a rule is an
// element of it. A frame found there is sent (`dup`) to the private veth; unless the rule is
// DONT_TRAP it also gets a mark, and a chain that runs after the deciders of all processes drops
// the marked. So each process with an equal rule gets one copy, and processes need to know nothing
// of each other. What another process's device sends is looked up too when it leaves: functions of
// one card reach each other through it. Invariant: a frame is judged once, against one generation
// of the rules: it goes to the device, to the kernel, or to both under DONT_TRAP, never to neither
// and never twice. The table belongs to our netlink socket: it goes when the process dies, however
// it dies. Thread: any; a lock inside. Spec: nft(8), netdev family; CONNECTX section 0.

#ifndef XTREME_TOOLS_CONNECTX_WIRE_DECIDER_H_
#define XTREME_TOOLS_CONNECTX_WIRE_DECIDER_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/connectx/wire/rule_text.h"
#include "tools/connectx/wire/wire.h"

struct nft_ctx;

namespace xtreme::connectx {

// Marks (SO_MARK) of frames that devices send, so that the deciders of other processes on the
// interface can tell them from the kernel's and from their own: the low half says whose.
inline constexpr uint32_t kSentMark = 0x43590000;
inline constexpr uint32_t kSentMask = 0xffff0000;
constexpr uint32_t SentMark(int inlet_index) {
  return kSentMark | (static_cast<uint32_t>(inlet_index) & ~kSentMask);
}

class Decider {
 public:
  struct Options {
    std::string interface;  // Whose frames are decided.
    std::string owner;      // Makes the table's name: letters and digits.
    int inlet_index = 0;    // The interface that matching frames are sent to.
    std::string outlet;     // The far end of that one, where frames end.
  };

  // Makes the table, without rules, in the calling thread's network namespace.
  // Errors: Internal with what nftables said (no permission, no such interface, no netdev family).
  static absl::StatusOr<std::unique_ptr<Decider>> Create(Options options);
  ~Decider();

  Decider(const Decider&) = delete;
  Decider& operator=(const Decider&) = delete;

  // As Wire::AddRule and Wire::RemoveRule.
  absl::Status AddRule(const WireRule& rule);
  absl::Status RemoveRule(const WireRule& rule);

  // Removes the table of a dead owner, if it is there: kernels before 5.12 do not do that
  // themselves.
  static void RemoveTableOf(const std::string& owner);

 private:
  struct FreeContext {
    void operator()(nft_ctx* context) const;
  };
  using Context = std::unique_ptr<nft_ctx, FreeContext>;

  // A rule that is in force, and how often it was asked for.
  struct Held {
    WireRule rule;
    int count;
  };

  // Where the rules of one shape are.
  struct Shape {
    std::string name;
    std::string set;
    bool is_new;
  };

  explicit Decider(Options options, Context context);
  static Context OpenContext();
  static absl::Status Run(nft_ctx& context, const std::string& commands);
  absl::Status CreateTable();
  std::vector<Held>::iterator Find(const WireRule& rule);
  Shape FindShape(const RuleText& text, bool dont_trap) const;
  // The commands that make the set of a new shape and the one rule that looks frames up in it.
  std::string NewShape(const RuleText& text, bool dont_trap, const std::string& set) const;

  const Options options_;
  const std::string table_;

  std::mutex mutex_;  // Guards what follows.
  Context context_;
  std::vector<Held> held_;
  std::vector<std::string> shapes_;  // Names; set number i holds the rules of shape i.
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_WIRE_DECIDER_H_
