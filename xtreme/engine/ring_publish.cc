// SPDX-License-Identifier: Apache-2.0
//
// The counters of a ring and its sockets, published for other programs: a few hundred stores, once
// a second, and nothing per packet.

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "xtreme/engine/ip_bytes.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/socket_table.h"
#include "xtreme/engine/udp.h"
#include "xtreme/stats/publisher.h"

namespace xtreme::engine {
namespace {

using Names = std::vector<stats::Publisher::Name>;

Names SocketNames() {
  Names names;
  const auto add = [&names](std::string_view name, std::string_view meaning, const uint64_t&) {
    names.push_back({"udp", name, meaning});
  };
  base::VisitCounters(udp::EndpointCounters(), add);
  base::VisitCounters(UdpCounters(), add);
  return names;
}

stats::SocketHeader HeaderOf(const UdpSocket& socket) {
  stats::SocketHeader header = {};
  header.handle = socket.handle;
  StoreIp(socket.local().address, &header.local_ip);
  header.local_port = socket.local().port;
  return header;
}

}  // namespace

// Who publishes is part of what the ring got; a ring without is a ring all the same.
void Ring::OpenPublisher() {
  if (core_->options.counters_directory.empty()) return;
  Names names;
  VisitCounters([&names](std::string_view scope, std::string_view name, std::string_view meaning,
                         uint64_t) { names.push_back({scope, name, meaning}); });
  auto publisher = stats::Publisher::Create(
      {.directory = core_->options.counters_directory,
       .access = core_->options.counters_access,
       .ring = core_->options.number,
       .interface = core_->options.interface_name,
       .ring_counters = std::move(names),
       .socket_counters = SocketNames(),
       .socket_slots = std::min(core_->options.max_sockets, stats::kMaxSocketSlots)});
  if (!publisher.ok()) {
    absl::StrAppend(&description_, "; ", publisher.status().message());
    return;
  }
  publisher_ = *std::move(publisher);
  absl::StrAppend(&description_, "; counters in ", publisher_->path());
  Publish();
}

void Ring::Publish() { PublishAs(/*closed=*/false); }

void Ring::PublishAs(bool closed) {
  if (publisher_ == nullptr) return;
  stats::Publisher& to = *publisher_;
  to.Begin();
  VisitCounters([&to](std::string_view, std::string_view, std::string_view, uint64_t value) {
    to.Put(value);
  });
  const auto put = [&to](std::string_view, std::string_view, const uint64_t& value) {
    to.PutOfSocket(value);
  };
  udp_->sockets().ForEach([&](const UdpSocket& socket) {
    if (!to.BeginSocket(HeaderOf(socket))) return;
    base::VisitCounters(socket.counters(), put);
    base::VisitCounters(socket.sends, put);
  });
  to.End(Now().count(), closed);
}

}  // namespace xtreme::engine
