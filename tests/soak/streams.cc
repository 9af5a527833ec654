// SPDX-License-Identifier: Apache-2.0

#include "tests/soak/streams.h"

#include <cerrno>
#include <utility>

#include "tests/soak/datagrams.h"

namespace xtreme::soak {

std::string Streams::Connect(Ring* ring, int from, int to, uint64_t key) {
  TcpOptions options = Stream::Options(Stream::PatienceOf(key));
  const uint64_t number = next_++;
  options.user_data = kUserData | number;
  options.local = std::string(EndpointAt(from).ip) + ":0";
  auto socket = ring->ConnectTcp(AddressOf(EndpointAt(to).ip, TcpPort(to)), options);
  if (!socket) {
    const bool full = socket.error().code == EMFILE || socket.error().code == EAGAIN;
    return full ? "" : "connect: " + socket.error().message;
  }
  by_handle_[socket->handle().value] = number;
  streams_.emplace(number, Entry{Stream(number, *std::move(socket), key), from});
  return "";
}

Streams::Entry* Streams::Find(const Completion& completion) {
  uint64_t number = completion.user_data & ~kUserData;
  const auto known = by_handle_.find(completion.socket.value);
  if (known != by_handle_.end()) number = known->second;
  else if ((completion.user_data & kUserData) == 0) return nullptr;
  const auto entry = streams_.find(number);
  return entry == streams_.end() ? nullptr : &entry->second;
}

void Streams::Accept(const Completion& completion) {
  const uint64_t number = next_++;
  TcpSocket socket(completion.socket);
  socket.SetUserData(kUserData | number);
  by_handle_[completion.socket.value] = number;
  streams_.emplace(number, Entry{Stream(number, std::move(socket)),
                                 static_cast<int>(completion.user_data)});
}

bool Streams::Take(Completion* completion, std::string* wrong) {
  if (completion->kind() == kAccepted) {
    Accept(*completion);
    return true;
  }
  Entry* const entry = Find(*completion);
  if (entry == nullptr) return false;
  const bool early = entry->departing && completion->kind() != kArrived &&
                     by_handle_.count(completion->socket.value) == 0;
  if (early) {
    entry->meanwhile.push_back(*completion);
    completion->buffer = nullptr;
    return true;
  }
  *wrong = TakeOne(entry, completion);
  return true;
}

std::string Streams::TakeOne(Entry* entry, Completion* completion) {
  Stream& stream = entry->stream;
  switch (completion->kind()) {
    case kPacket: return stream.OnPacket(*completion);
    case kPeerClosed: return stream.OnPeerClosed();
    case kEstablished: stream.OnEstablished(); return "";
    case kTxSpace: stream.OnSpace(); return "";
    case kArrived:
      entry->arrived = completion->socket;
      return entry->departing ? "" : Settle(entry);
    case kDeparted:
      by_handle_.erase(completion->socket.value);
      entry->departing = false;
      return entry->arrived.value == 0 && entry->meanwhile.empty() ? "" : Settle(entry);
    case kTerminated: return End(entry, *completion);
    default: return "an unexpected completion of a stream: " + std::to_string(completion->kind());
  }
}

// It is on the other ring, or ended there, and has told all on the first.
std::string Streams::Settle(Entry* entry) {
  if (entry->arrived.value != 0) {
    by_handle_[entry->arrived.value] = entry->stream.number();
    entry->stream.socket() = TcpSocket(std::exchange(entry->arrived, {}));
    entry->at = entry->to;
  }
  std::vector<Completion> meanwhile = std::move(entry->meanwhile);
  entry->meanwhile.clear();
  std::string wrong;
  for (Completion& completion : meanwhile) {
    const bool last = completion.kind() == kTerminated;
    if (wrong.empty()) wrong = TakeOne(entry, &completion);
    xtreme_release(&completion, 1, sizeof completion);
    if (last) break;
  }
  return wrong;
}

std::string Streams::End(Entry* entry, const Completion& completion) {
  std::string wrong = entry->stream.OnTerminated(completion.status);
  ++ended_[completion.status];
  by_handle_.erase(completion.socket.value);
  entry->stream.socket().Release();
  streams_.erase(entry->stream.number());
  return wrong;
}

std::string Streams::Push(const std::map<int, Sender*>& senders, Dice* dice) {
  for (auto& [number, entry] : streams_) {
    if (entry.departing || !entry.stream.socket().is_open()) continue;
    std::string wrong = entry.stream.Push(senders.at(entry.at), dice);
    if (!wrong.empty()) return wrong;
  }
  return "";
}

void Streams::Move(int from, int to, xtreme_ring ring, Dice* dice) {
  for (auto& [number, entry] : streams_) {
    const bool may = entry.at == from && !entry.departing && entry.stream.may_move();
    if (!may || !dice->OneIn(2)) continue;
    const uint64_t handle = entry.stream.socket().handle().value;
    if (!entry.stream.socket().MoveTo(ring)) continue;
    by_handle_[handle] = number;
    entry.stream.OnMove();
    entry.departing = true;
    entry.to = to;
    return;
  }
}

int Streams::clients(int at) const {
  int count = 0;
  for (const auto& [number, entry] : streams_) {
    if (entry.stream.client() && entry.at == at) ++count;
  }
  return count;
}

int Streams::awaited() const {
  int count = 0;
  for (const auto& [number, entry] : streams_) {
    if (entry.stream.client() && entry.stream.of_quiet()) ++count;
  }
  return count;
}

bool Streams::KeepsLong(const Completion& packet) const {
  const auto known = by_handle_.find(packet.socket.value);
  return known != by_handle_.end() && streams_.at(known->second).stream.plan().slow;
}

std::string Streams::Describe() const {
  std::string text;
  for (const auto& [number, entry] : streams_) {
    text += "\n    ring " + std::to_string(entry.at) + (entry.departing ? " departing " : " ") +
            entry.stream.Describe();
  }
  return text;
}

}  // namespace xtreme::soak
