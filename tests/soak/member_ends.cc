// SPDX-License-Identifier: Apache-2.0
//
// How a member begins and how it ends.

#include <net/if.h>

#include <utility>

#include "tests/soak/member.h"
#include "tests/soak/network.h"

namespace xtreme::soak {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kLong = 60 * kSecond;  // What takes longer does not come.

}  // namespace

uint64_t Member::Station::Count(std::string_view scope, std::string_view name) const {
  uint64_t sum = 0;
  for (const xtreme_counter& counter : ring.Counters()) {
    if (counter.scope == scope && (name.empty() || counter.name == name)) sum += counter.value;
  }
  return sum;
}

uint64_t Member::Station::LostOfReceived() const {
  uint64_t lost = Count("drop", "");
  for (const char* name : {"overlaps", "malformed", "timed_out", "evicted", "too_large"}) {
    lost += Count("reassembly", name);
  }
  return lost;
}

template <typename Reached>
bool Member::Await(const std::string& what, Reached reached) {
  const int64_t end_ns = now() + kLong;
  while (!board_->failed && !reached()) {
    if (now() >= end_ns) Check("it does not come: " + what);
    Poll();
  }
  return !board_->failed;
}

bool Member::Open(const std::string& segment) {
  const absl::Status made = wires_.Make(member_, segment, dice_.Next());
  if (!made.ok()) Check("devices: " + std::string(made.message()));
  home_ = if_nametoindex(InterfaceAt(0));
  for (int at = 0; at < kRings && !board_->failed; ++at) {
    if (EndpointAt(at).member == member_) Check(OpenStation(at));
  }
  if (board_->failed) return false;
  if (stations_.size() > 1) {
    const Ring* const rings[] = {&stations_[0]->ring, &stations_[1]->ring};
    auto group = RingGroup::Open(rings);
    if (!group) Check("group: " + group.error().message);
    else group_.emplace(*std::move(group));
  }
  return Await("what opening started", [this] {
    for (const auto& station : stations_) {
      if (station->operations > 0) return false;
    }
    return true;
  });
}

std::string Member::OpenStation(int at) {
  const Endpoint& endpoint = EndpointAt(at);
  RingOptions options = RingOptions::Dev(InterfaceAt(0));
  options.UserData(static_cast<uint64_t>(at));
  options.Set("rx_buffers", std::to_string(endpoint.buffers))
      .Set("rx_queue_frames", std::to_string(endpoint.receive_queue))
      .Set("tx_queue_frames", "64")
      // A last FIN that is sent again still finds it, however late.
      .Set("tcp_time_wait_ms", std::to_string(Stream::kLongPatienceNs / 1'000'000))
      .Set("counters_directory", "");
  if (endpoint.has_backup) options.Set("backup_interface", InterfaceAt(1));
  if (endpoint.fragments) options.Set("fragments", "own");
  auto ring = Ring::Open(options);
  if (!ring) return "open ring: " + ring.error().message;
  stations_.push_back(std::make_unique<Station>(at, *std::move(ring)));
  Station& station = *stations_.back();
  senders_[at] = &station.sender;
  station.datagrams.emplace(board_, at);
  if (std::string wrong = station.datagrams->Open(&station.ring); !wrong.empty()) return wrong;
  station.operations += station.datagrams->operations();
  TcpOptions listening = Stream::Options(Stream::Patience::kShort);
  listening.local = std::string(endpoint.ip) + ":" + std::to_string(TcpPort(at));
  listening.user_data = static_cast<uint64_t>(at);
  auto listener = station.ring.ListenTcp(listening);
  if (!listener) return "listen: " + listener.error().message;
  station.listener = *std::move(listener);
  ++station.operations;
  station.open_sockets = station.datagrams->sockets() + 1;
  if (Status started = station.ring.Start(); !started) return started.error().message;
  station.free_at_start = station.Count("pool", "free");
  return "";
}

// Everything is given back: what is not is lost for good.
bool Member::End() {
  for (const auto& station : stations_) {
    station->datagrams->Close();
    station->listener.Close();
    if (!station->shelf.Release(INT64_MAX)) Check("a packet that was kept has changed");
  }
  const bool closed = Await("the end of sockets, sends and operations", [this] {
    for (const auto& station : stations_) {
      const bool ended = station->open_sockets == 0 && station->operations == 0 &&
                         station->sender.due() == 0;
      if (!ended) return false;
    }
    return true;
  });
  if (!closed) return false;
  for (const auto& station : stations_) {
    if (!EndStation(station.get())) return false;
  }
  Check(wires_.Violations());
  return !board_->failed;
}

bool Member::EndStation(Station* station) {
  const std::string name = "ring " + std::to_string(station->at);
  const bool quiescent =
      Await(name + " is quiescent", [&] { return station->ring.Quiescent(); });
  if (!quiescent || !Balances(*station)) return false;
  Reset(station);
  const bool reset = Await(name + "'s last reset", [&] { return !station->resetting; });
  if (!reset || !Balances(*station)) return false;
  if (const uint64_t free = station->Count("pool", "free"); free != station->free_at_start) {
    Check(name + " has " + std::to_string(free) + " free buffers at the end, and had " +
          std::to_string(station->free_at_start));
  }
  station->sender.GiveBack();
  return Await(name + "'s registered memory", [&] { return station->sender.freed(); });
}

bool Member::Balances(const Station& station) {
  const auto sum = [&] {
    return station.Count("pool", "free") + station.Count("queue", "rx_posted");
  };
  const uint64_t buffers = station.Count("pool", "buffers");
  const int64_t end_ns = now() + kLong;
  while (sum() != buffers && now() < end_ns && !board_->failed) Poll();
  if (sum() == buffers) return true;
  Check("ring " + std::to_string(station.at) + " has " + std::to_string(buffers) +
        " buffers, of which " + std::to_string(station.Count("pool", "free")) + " are free and " +
        std::to_string(station.Count("queue", "rx_posted")) + " posted");
  return false;
}

}  // namespace xtreme::soak
