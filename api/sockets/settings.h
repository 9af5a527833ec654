// SPDX-License-Identifier: Apache-2.0
//
// FaceSettings: how the socket faces behave, from the environment: one table of names, the names
// VMA has for the same, meanings and defaults. What a ring is made of has its own table
// (api/native/settings.h), and its variables are accepted here too.
//
// Invariant: an unknown XTREME_ variable or a malformed value is an error that names it; a VMA_
// variable without a counterpart is told once and has no effect.
// Threads: plain values.

#ifndef XTREME_API_SOCKETS_SETTINGS_H_
#define XTREME_API_SOCKETS_SETTINGS_H_

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "api/sockets/ring_choice.h"
#include "api/xtreme.h"

namespace xtreme::sockets {

struct FaceSettings {
  int64_t rx_poll = 10'000;       // Polls before a receive call sleeps; 0: none; -1: for ever.
  int64_t select_poll_us = 1'000; // The same of poll, select and epoll, in microseconds.
  int64_t select_poll_os_ratio = 10;  // Looks at rings for one at what is the kernel's; 0: none.
  int64_t select_skip_os = 0;     // Calls that rings answer before one looks there too.
  int64_t progress_ms = 10;       // How often rings that nobody polls are polled; 0: never.
  int64_t log_level = 3;
  bool offloaded_sockets = true;  // Of threads that did not say otherwise.
  bool single_thread = false;     // No locks: the program has one thread that uses sockets.
  bool socketxtreme = false;      // Every socket's packets are completions.
  bool nodelay = false;           // TCP_NODELAY of new connections,
  bool quick_ack = false;         // TCP_QUICKACK,
  int64_t mss = 0;                // and TCP_MAXSEG; 0: the interface's MTU says.
  int64_t congestion = 1;         // Theirs without TCP_CONGESTION: 0: NewReno; 1: CUBIC; 2: none.
  int64_t tcp_timestamps = 1;     // RFC 7323's: 0: not offered; 1: offered; 2: as the kernel does.
  int64_t max_syn_rate = 0;       // SYNs that a listener answers in a second; 0: no limit.
  bool multicast_loop = true;     // IP_MULTICAST_LOOP of new sockets.
  int64_t ring_logic_rx = 0;      // RingLogic of sockets that do not say otherwise,
  int64_t ring_logic_tx = 0;      // where the other one is 0: a socket has one ring.
  int64_t ring_limit = 0;         // Most rings of an interface, then they are shared; 0: no limit.
  int64_t moderation_count = 0;   // Completions before a sleeping ring's interrupt,
  int64_t moderation_us = 0;      // and microseconds; both 0: at once.
  std::string log_file;
  std::string config_file = "/etc/libxtreme.conf";
  std::string application_id = "XTREME_DEFAULT_APPLICATION_ID";
  std::string spec;               // Of kSpecs; empty: none.
  xtreme_ring_options ring{};
  std::deque<std::string> kept;   // Texts that `ring` refers to.

  RingLogic ring_logic() const {
    return static_cast<RingLogic>(ring_logic_rx != 0 ? ring_logic_rx : ring_logic_tx);
  }
};

// Reads `environment`, null-terminated; null, as after clearenv(3): an empty one. "" or what is
// wrong; `remarks`: what was not understood and does no harm.
std::string ReadSettings(char** environment, FaceSettings* settings,
                         std::vector<std::string>* remarks);
// The banner's lines: "name value [variable]".
std::vector<std::string> DescribeSettings(const FaceSettings& settings);
// The table as Markdown, for docs/settings.md.
std::string FaceReference();

}  // namespace xtreme::sockets

#endif  // XTREME_API_SOCKETS_SETTINGS_H_
