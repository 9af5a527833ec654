// SPDX-License-Identifier: Apache-2.0

#include "tests/soak/member.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "tests/soak/network.h"

namespace xtreme::soak {
namespace {

constexpr int64_t kMillisecond = 1'000'000;
constexpr int kClients = 4;            // Of a ring, at a time.
constexpr int kQuietDatagrams = 200;
constexpr uint32_t kOneFrame = 500;    // At any MTU.
constexpr uint32_t kLongest = 4'000;

void Nap(int fd) {
  pollfd waited = {.fd = fd, .events = POLLIN, .revents = 0};
  poll(&waited, 1, 1);
}

}  // namespace

Member::Member(Board* board, int member, uint64_t seed)
    : board_(board), member_(member), dice_(seed), trouble_(&wires_, model::Mix(seed)) {}

void Member::Check(const std::string& wrong) {
  if (wrong.empty()) return;
  board_->Fail("member " + std::to_string(member_) + " in " + NameOf(board_->phase) + ": " +
               wrong);
}

Member::Station* Member::StationAt(int at) {
  for (const auto& station : stations_) {
    if (station->at == at) return station.get();
  }
  return nullptr;
}

bool Member::Run(const std::string& segment) {
  if (!Open(segment)) return false;
  page().reached = Phase::kNoise;
  while (!board_->failed) {
    const Phase phase = board_->phase;
    if (phase == Phase::kEnd) return End();
    if (trouble_.IsDeaf(now())) {
      Nap(-1);
      continue;
    }
    Poll();
    if (now() < next_act_ns_) continue;
    next_act_ns_ = now() + kMillisecond / 4;
    Act(phase);
    Publish(/*now=*/false);
  }
  return false;
}

void Member::Poll() {
  if (!group_) {
    for (Completion& completion : stations_[0]->ring.Wait(kMillisecond)) Take(&completion);
    return;
  }
  Batch batch = group_->Poll();
  for (Completion& completion : batch) Take(&completion);
  if (batch.empty() && group_->Arm()) Nap(group_->fd());
}

void Member::Take(Completion* completion) {
  if (completion->kind() == kTxDone) return TakeDone(*completion);
  std::string wrong;
  const bool of_stream = streams_.Take(completion, &wrong);
  Check(wrong);
  const int at = static_cast<int>(completion->user_data);
  Station* const station =
      of_stream ? stations_.front().get() : StationAt(at);
  if (station == nullptr) return Check("a completion of nobody");
  if (completion->kind() == kPacket) return TakePacket(station, completion, of_stream);
  if (of_stream) return;
  switch (completion->kind()) {
    case kOpDone:
      --station->operations;
      if (completion->cookie == kReset) station->resetting = false;
      if (completion->status == 0) return;
      if (completion->cookie == kReset && !calm_) return Reset(station);
      return Check("an operation ended with " + std::to_string(completion->status) + ": " +
                   (completion->text == nullptr ? "" : completion->text));
    case kRing: return TakeNews(station, *completion);
    case kTerminated: --station->open_sockets; return;
    default: return;  // An ERROR, of a datagram that a router or peer did not want.
  }
}

void Member::TakePacket(Station* station, Completion* packet, bool of_stream) {
  if (packet->buffer == nullptr && of_stream) return;  // It waits for DEPARTED.
  if (!of_stream) Check(station->datagrams->OnPacket(*packet));
  const bool slow = of_stream && streams_.KeepsLong(*packet);
  if (calm_ || packet->buffer == nullptr || station->shelf.full()) return;
  if (!slow && !dice_.OneIn(16)) return;
  const uint32_t most_ms = slow ? 400 : 60;
  station->shelf.Keep(packet, now() + int64_t{dice_.Between(1, most_ms)} * kMillisecond);
}

void Member::TakeDone(const Completion& done) {
  const auto sender = senders_.find(Sender::OwnerOf(done.cookie));
  if (sender == senders_.end()) return Check("a TX_DONE of nobody");
  Check(sender->second->OnDone(done.cookie, done.status));
}

void Member::TakeNews(Station* station, const Completion& news) {
  switch (news.event) {
    case XTREME_BROKEN:
    case XTREME_REMOVED:
      return Check("ring " + std::to_string(station->at) + " broke: " +
                   (news.text == nullptr ? "" : news.text));
    case XTREME_MOVED:
      if (news.status != 0) Reset(station);
      page().at_backup = news.interface_index != home_;
      return;
    default: return;
  }
}

void Member::Reset(Station* station) {
  if (station->resetting || !station->ring.Reset(kReset)) return;
  station->resetting = true;
  ++station->operations;
}

void Member::Act(Phase phase) {
  const int64_t now_ns = now();
  for (const auto& station : stations_) {
    if (!station->shelf.Release(now_ns)) Check("a packet that was kept has changed");
  }
  if (phase == Phase::kNoise) MakeNoise();
  if (phase >= Phase::kCalm && !std::exchange(calm_, true)) BeginCalm();
  if (phase == Phase::kQuiet && !std::exchange(quiet_, true)) BeginQuiet();
  for (const auto& station : stations_) {
    if (phase == Phase::kNoise || phase == Phase::kQuiet) SendDatagrams(station.get(), quiet_);
  }
  Check(streams_.Push(senders_, &dice_));
  for (const auto& station : stations_) station->ring.Flush();
  if (page().reached != phase && IsDone(phase)) {
    Publish(/*now=*/true);
    // Nobody sends in the quiet before all have reached the calm.
    if (phase == Phase::kCalm) page().tally_in_noise.Set(page().tally);
    page().reached = phase;
  }
}

bool Member::IsDone(Phase phase) const {
  const auto sent = [](const auto& station) { return station->quiet_datagrams == 0; };
  switch (phase) {
    case Phase::kCalm: return IsCalm();
    case Phase::kQuiet:
      return streams_.awaited() == 0 && std::all_of(stations_.begin(), stations_.end(), sent);
    case Phase::kDrain: return streams_.size() == 0;
    default: return true;
  }
}

// Nothing is held on the wires, and the rings are where they belong.
bool Member::IsCalm() const {
  const auto still = [](const auto& station) { return !station->resetting; };
  return wires_.Held() == 0 && std::all_of(stations_.begin(), stations_.end(), still) &&
         !board_->member(member_).at_backup;
}

void Member::MakeNoise() {
  const int64_t now_ns = now();
  if (trouble_.Step(now_ns)) {
    Reset(stations_[dice_.Below(static_cast<uint32_t>(stations_.size()))].get());
  }
  for (const auto& station : stations_) {
    if (streams_.clients(station->at) >= kClients || !dice_.OneIn(8)) continue;
    const int to = static_cast<int>(dice_.Below(kRings));
    if (EndpointAt(to).member == member_) continue;
    Check(streams_.Connect(&station->ring, station->at, to, dice_.Next() & ~uint64_t{1}));
  }
  if (member_ != 1 || !dice_.OneIn(20)) return;
  const size_t from = dice_.Below(2);
  streams_.Move(stations_[from]->at, stations_[1 - from]->at,
                stations_[1 - from]->ring.handle(), &dice_);
}

// Whoever connects in the quiet finds listeners that are ready for it.
void Member::BeginCalm() {
  trouble_.End();
  for (const auto& station : stations_) {
    const Status set = station->listener.SetOptions(Stream::Options(Stream::Patience::kLong));
    if (!set) Check("listener: " + set.error().message);
  }
}

// What is sent from here on has to arrive, and to end well.
void Member::BeginQuiet() {
  for (const auto& station : stations_) {
    station->quiet_datagrams = kQuietDatagrams;
    for (int to = 0; to < kRings; ++to) {
      if (EndpointAt(to).member == member_) continue;
      Check(streams_.Connect(&station->ring, station->at, to, dice_.Next() | 1));
    }
  }
}

void Member::SendDatagrams(Station* station, bool quiet) {
  if (now() < station->next_datagram_ns) return;
  station->next_datagram_ns = now() + kMillisecond;
  const uint32_t most = quiet ? 1'000 : trouble_.spoils() ? kOneFrame : kLongest;
  for (int i = 0; i < 4; ++i) {
    if (quiet && station->quiet_datagrams == 0) return;
    station->datagrams->SendAny(quiet, most, &station->sender, &dice_);
    if (quiet) --station->quiet_datagrams;
  }
}

void Member::PublishTally() {
  uint64_t of_sent = wires_.LostOfSent();
  uint64_t of_received = wires_.LostOfReceived();
  uint64_t moves = 0;
  for (const auto& station : stations_) {
    of_sent += station->sender.cancelled();
    of_received += station->LostOfReceived();
    moves += station->Count("ring", "moves");
  }
  Tally& tally = page().tally;
  tally.of_sent = of_sent;
  tally.of_received = of_received;
  tally.unwanted = wires_.Unwanted();
  tally.misdirected = wires_.Misdirected();
  tally.moves = moves;
  tally.repeated_of_sent = wires_.RepeatedOfSent();
  tally.repeated_of_received = wires_.RepeatedOfReceived();
}

// For the others, and for people.
void Member::Publish(bool now_too) {
  if (now() < next_report_ns_ && !now_too) return;
  next_report_ns_ = now() + 20 * kMillisecond;
  PublishTally();
  std::string status = std::to_string(streams_.size()) + " streams";
  for (const auto& [error, count] : streams_.ended()) {
    status += ", " + std::to_string(count) + " ended with " + std::to_string(error);
  }
  Board::Write(&page().status, status + streams_.Describe());
}

}  // namespace xtreme::soak
