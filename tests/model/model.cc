// SPDX-License-Identifier: Apache-2.0

#include "tests/model/model.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "stack/wire/checksum.h"
#include "tests/model/pattern.h"

namespace xtreme::model {
namespace {

constexpr uint32_t kKeyBytes = 8;

const char* NameOf(int kind) {
  static constexpr std::array<const char*, 17> kNames = {
      "NONE",   "PACKET",   "ACCEPTED", "ESTABLISHED", "PEER_CLOSED", "TX_SPACE",
      "TX_WIRE", "TX_DONE", "OP_DONE",  "TIMER",       "POSTED",      "FD_EVENT",
      "RING",   "ERROR",    "TERMINATED", "DEPARTED",  "ARRIVED"};
  return kind < 17 ? kNames[static_cast<size_t>(kind)] : "?";
}

xtreme_address SourceOf(const xtreme_completion& completion) {
  xtreme_address address = {};
  memcpy(address.ip, completion.source_ip, sizeof address.ip);
  address.port = completion.source_port;
  return address;
}
xtreme_address DestinationOf(const xtreme_completion& completion) {
  xtreme_address address = {};
  memcpy(address.ip, completion.destination_ip, sizeof address.ip);
  address.port = completion.destination_port;
  return address;
}

std::vector<uint8_t> BytesOf(const xtreme_completion& packet) {
  std::vector<uint8_t> bytes(packet.length);
  bytes.resize(xtreme_copy_out(&packet, bytes.data(), bytes.size()));
  return bytes;
}

}  // namespace

uint32_t Ipv4Of(const xtreme_address& address) {
  uint32_t value = 0;
  for (int i = 12; i < 16; ++i) value = value << 8 | address.ip[i];
  return value;
}

bool SameAddress(const xtreme_address& a, const xtreme_address& b) {
  return memcmp(a.ip, b.ip, sizeof a.ip) == 0 && a.port == b.port;
}

std::string Describe(const xtreme_completion& completion) {
  std::string text = NameOf(completion.kind);
  text += " of " + std::to_string(completion.socket.value) + " status " +
          std::to_string(completion.status) + " cookie " + std::to_string(completion.cookie) +
          " length " + std::to_string(completion.length);
  if (completion.kind == XTREME_RING) {
    text += " event " + std::to_string(completion.event) + " of interface " +
            std::to_string(completion.interface_index);
  }
  const bool has_text = completion.kind == XTREME_OP_DONE || completion.kind == XTREME_RING ||
                        completion.kind == XTREME_TERMINATED;
  if (has_text && completion.text != nullptr) text += std::string(" \"") + completion.text + "\"";
  return text;
}

Socket& Model::Add(Socket socket) {
  const auto [at, added] = sockets_.emplace(socket.handle.value, std::move(socket));
  if (!added) Fail("a handle came twice: " + std::to_string(at->first));
  // TX_WIRE is of what left: while the next hop does not answer nothing does.
  if (upset) at->second.wire_may_miss = at->second.wire_unordered = true;
  return at->second;
}

Socket* Model::Find(uint64_t handle) {
  const auto found = sockets_.find(handle);
  return found == sockets_.end() ? nullptr : &found->second;
}

Socket* Model::FindLast(uint64_t handle) {
  Socket* socket = Find(handle);
  while (socket != nullptr && socket->successor != nullptr) socket = socket->successor;
  return socket;
}

uint64_t Model::AddDatagram(const Datagram& datagram) {
  const uint64_t key = NewKey();
  datagrams_[key] = datagram;
  datagrams_[key].time = Tick();
  return key;
}

void Model::Fail(const std::string& what) {
  if (failure_.empty()) failure_ = what;
}

void Model::Take(int ring, const xtreme_completion& completion) {
  ++kinds[completion.kind];
  if (TakeFired(completion)) return;
  if (completion.socket.value == 0) return TakeOfRing(ring, completion);
  if (completion.kind == XTREME_ARRIVED) return TakeArrived(ring, completion);
  if (completion.kind == XTREME_ACCEPTED) return TakeAccepted(ring, completion);
  Socket* const socket = Find(completion.socket.value);
  if (socket == nullptr) return Fail("of no socket: " + Describe(completion));
  if (socket->ring != ring) return Fail("by another ring: " + Describe(completion));
  if (!MayCome(*socket, completion)) return;
  if (completion.user_data != socket->user_data) Fail("user data: " + Describe(completion));
  switch (completion.kind) {
    case XTREME_PACKET: return TakePacket(*socket, completion);
    case XTREME_ESTABLISHED:
      if (socket->established) Fail("again: " + Describe(completion));
      socket->established = true;
      return;
    case XTREME_PEER_CLOSED:
      if (socket->peer_closed) Fail("again: " + Describe(completion));
      socket->peer_closed = true;
      if (socket->peer == nullptr) return;
      if (!socket->peer->shut) Fail("the peer sends on: " + Describe(completion));
      // What the old ring has yet to tell comes before.
      if (socket->origin != nullptr && !socket->origin->ended) return;
      if (socket->peer->sent != socket->received) {
        Fail("not all had come, " + std::to_string(socket->received) + " of " +
             std::to_string(socket->peer->sent) + ": " + Describe(completion));
      }
      return;
    case XTREME_TX_SPACE: return TakeSpace(*socket);
    case XTREME_TX_DONE: return TakeWanted(*socket, socket->done, completion);
    case XTREME_TX_WIRE: return TakeWanted(*socket, socket->wire, completion);
    case XTREME_OP_DONE: {
      const auto due = socket->operations.find(completion.cookie);
      if (due == socket->operations.end()) return Fail("not due: " + Describe(completion));
      socket->operations.erase(due);
      return;
    }
    case XTREME_ERROR: return;
    case XTREME_DEPARTED: return TakeDeparted(*socket);
    case XTREME_TERMINATED: return TakeTerminated(*socket, completion);
    default: return Fail("unexpected: " + Describe(completion));
  }
}

bool Model::MayCome(const Socket& socket, const xtreme_completion& completion) {
  const int kind = completion.kind;
  const bool last = kind == XTREME_TX_DONE || kind == XTREME_TERMINATED;
  if (socket.ended) Fail("after the last: " + Describe(completion));
  if (socket.silent) Fail("after detach: " + Describe(completion));
  if (socket.closed && !last) Fail("after close: " + Describe(completion));
  const bool early = kind == XTREME_ESTABLISHED || kind == XTREME_TERMINATED ||
                     kind == XTREME_TX_SPACE || kind == XTREME_OP_DONE || kind == XTREME_TX_DONE;
  if (socket.type == Type::kConnection && !socket.established && !early) {
    Fail("before it is established: " + Describe(completion));
  }
  return !failed();
}

void Model::TakePacket(Socket& socket, const xtreme_completion& packet) {
  uint32_t length = 0, links = 0;
  for (const xtreme_buffer* link = packet.buffer; link != nullptr;
       link = xtreme_buffer_next(link)) {
    length += xtreme_buffer_length(link);
    ++links;
  }
  if (links != packet.count) Fail("links: " + Describe(packet));
  if ((links > 1) != ((packet.flags & XTREME_CHAINED) != 0)) Fail("CHAINED: " + Describe(packet));
  if (length != packet.length) {
    Fail("its links have " + std::to_string(length) + " bytes: " + Describe(packet));
  }
  if (packet.data != xtreme_buffer_data(packet.buffer)) Fail("its data: " + Describe(packet));
  socket.type == Type::kUdp ? TakeDatagram(socket, packet) : TakeStream(socket, packet);
}

void Model::TakeStream(Socket& socket, const xtreme_completion& packet) {
  if (socket.peer_closed) return Fail("behind PEER_CLOSED: " + Describe(packet));
  if (packet.length == 0) Fail("no bytes: " + Describe(packet));
  const std::vector<uint8_t> bytes = BytesOf(packet);
  socket.held += bytes.size();
  socket.uncredited += bytes.size();
  bytes_received += bytes.size();
  // What the old ring has yet to tell comes before it.
  const bool too_soon = socket.origin != nullptr && !socket.origin->ended;
  if (!too_soon) return CheckBytes(socket, bytes);
  socket.stash.insert(socket.stash.end(), bytes.begin(), bytes.end());
}

void Model::CheckBytes(Socket& socket, const std::vector<uint8_t>& bytes) {
  const uint64_t at = socket.received;
  socket.received += bytes.size();
  if (socket.peer == nullptr) return;
  const std::string of = " of " + std::to_string(socket.handle.value);
  const size_t same = FindDifference(socket.peer->key, at, bytes.data(), bytes.size());
  if (same != bytes.size()) {
    Fail("byte " + std::to_string(at + same) + " differs, is " + std::to_string(bytes[same]) + of +
         ", peer " + std::to_string(socket.peer->handle.value));
  }
  if (socket.received > socket.peer->sent) Fail("more than was sent" + of);
}

void Model::TakeDeparted(Socket& socket) {
  if (!socket.moved) return Fail("DEPARTED of what did not move");
  if (!socket.operations.empty()) return Fail("DEPARTED before its OP_DONE");
  socket.ended = true;
  Socket* const successor = socket.successor;
  if (successor == nullptr) return;
  successor->received = socket.received;
  CheckBytes(*successor, std::exchange(successor->stash, {}));
}

void Model::TakeArrived(int ring, const xtreme_completion& arrived) {
  const auto move = moves.find(arrived.cookie);
  if (move == moves.end()) return Fail("no move: " + Describe(arrived));
  Socket& origin = *move->second;
  moves.erase(move);
  Socket socket = origin;
  socket.handle = arrived.socket;
  socket.ring = ring;
  socket.moved = socket.ended = false;
  socket.established = true;  // Though the ring that it left may not have told yet.
  socket.held = socket.uncredited = 0;
  socket.stash.clear();  // Of the origin, which has it checked.
  socket.origin = &origin;
  socket.operations.clear();  // The ring that it left tells of them.
  socket.done.clear();
  socket.wire.clear();
  if (arrived.user_data != origin.user_data) Fail("user data: " + Describe(arrived));
  Socket& added = Add(socket);
  origin.successor = &added;
  if (added.peer != nullptr) added.peer->peer = &added;
}

void Model::TakeTimer(const xtreme_completion& timer) {
  const auto due = timers.find(timer.cookie);
  if (due == timers.end() && forget_timers) return;
  if (due == timers.end()) return Fail("not due: " + Describe(timer));
  if (due->second != timer.deadline_ns) Fail("its deadline: " + Describe(timer));
  timers.erase(due);
}

void Model::TakePosted(const xtreme_completion& told) {
  const auto lane = posted.find(told.value >> 32);
  if (lane == posted.end()) return Fail("of no lane: " + Describe(told));
  if (lane->second.empty() || lane->second.front() != told.value) {
    return Fail("not what was posted next: " + Describe(told));
  }
  lane->second.pop_front();
}

void Model::TakeNews(int ring, const xtreme_completion& news) {
  if (news.event != XTREME_LINK_DOWN && news.event != XTREME_LINK_UP) return;
  const bool up = news.event == XTREME_LINK_UP;
  const auto [link, first] = links.emplace(std::pair(ring, news.interface_index), up);
  if (!first && link->second == up) Fail("again: " + Describe(news));
  link->second = up;
}

// Of a connection that could not be taken; the send may be of before an earlier move.
bool Model::TakeCancelled(Socket* origin, uint64_t cookie) {
  for (; origin != nullptr; origin = origin->origin) {
    const auto due =
        std::find_if(origin->done.begin(), origin->done.end(),
                     [cookie](const Wanted& wanted) { return wanted.cookie == cookie; });
    if (due == origin->done.end()) continue;
    origin->done.erase(due);
    return true;
  }
  return false;
}

void Model::TakeOfRing(int ring, const xtreme_completion& told) {
  switch (told.kind) {
    case XTREME_TIMER: return TakeTimer(told);
    case XTREME_POSTED: return TakePosted(told);
    case XTREME_RING: return TakeNews(ring, told);
    case XTREME_OP_DONE: {
      const auto due = ring_operations.find(told.cookie);
      if (due == ring_operations.end()) return Fail("not due: " + Describe(told));
      if (due->second != ring) Fail("by another ring: " + Describe(told));
      ring_operations.erase(due);
      return;
    }
    case XTREME_TX_DONE:
      for (const auto& [cookie, origin] : moves) {
        if (TakeCancelled(origin, told.cookie)) return;
      }
      return Fail("not due: " + Describe(told));
    case XTREME_TERMINATED:
      // By a ring that could not take a connection after all.
      if (moves.erase(told.cookie) == 0) Fail("no move: " + Describe(told));
      return;
    default: return Fail("of no socket: " + Describe(told));
  }
}

// What is told of a prepared send that a lane fired, of its socket or, when that is gone, of none.
bool Model::TakeFired(const xtreme_completion& told) {
  if (told.kind != XTREME_ERROR && told.kind != XTREME_TX_DONE && told.kind != XTREME_TX_WIRE) {
    return false;
  }
  const auto found = told.cookie == 0 ? fires.end() : fires.find(told.cookie);
  if (found == fires.end()) return false;
  LaneFire& fire = found->second;
  const Socket* const socket = Find(told.socket.value);
  if (told.socket.value != 0 && socket == nullptr) Fail("of no socket: " + Describe(told));
  if (socket != nullptr && socket->ended) Fail("after the last: " + Describe(told));
  if (socket != nullptr && told.user_data != socket->user_data) {
    Fail("user data: " + Describe(told));
  }
  if (told.kind == XTREME_ERROR) {
    if (fire.error != 0 || told.status == 0) Fail("again, or without an error: " + Describe(told));
    fire.error = told.status;
  } else if (told.kind == XTREME_TX_DONE) {
    if (!fire.wants_done || fire.done) Fail("not due: " + Describe(told));
    fire.done = true;
  } else if (!std::exchange(fire.wants_wire, false)) {
    Fail("not due: " + Describe(told));
  }
  return true;
}

void Model::NoteAdmitted(Socket& socket) {
  const uint64_t now = Tick();
  for (const auto& [group, sources] : socket.groups) {
    // Of either side, and of the backup's port.
    for (const uint32_t host : {0x0001u, 0x0003u, 0x0101u}) {
      const uint32_t source = 10u << 24 | host;
      if (sources.Admits(source)) socket.admitted[{group, source}] = now;
    }
  }
}

// What is handed out was admitted at some time since it was sent.
void Model::CheckMember(const Socket& socket, const Datagram& sent,
                        const xtreme_completion& packet) {
  const uint32_t group = Ipv4Of(sent.destination);
  const uint32_t source = Ipv4Of(SourceOf(packet));
  const auto member = socket.groups.find(group);
  if (member != socket.groups.end() && member->second.Admits(source)) return;
  const auto last = socket.admitted.find({group, source});
  if (last != socket.admitted.end() && last->second >= sent.time) return;
  Fail("of a source or group that was not joined: " + Describe(packet));
}

// Two wrong bits of one column, one set and one cleared, are seen by no checksum.
bool Model::HasSameChecksum(uint64_t key, const std::vector<uint8_t>& bytes) {
  std::vector<uint8_t> sent(bytes.begin(), bytes.begin() + kKeyBytes);
  sent.resize(bytes.size());
  WritePattern(key, kKeyBytes, sent.data() + kKeyBytes, sent.size() - kKeyBytes);
  return wire::Checksum(sent) == wire::Checksum(bytes);
}

void Model::TakeDatagram(Socket& socket, const xtreme_completion& packet) {
  ++datagrams_received;
  if (packet.destination_port != socket.local.port) Fail("another's port: " + Describe(packet));
  socket.held += packet.count;
  if (socket.max_held != 0 && socket.held > socket.max_held) {
    Fail("more than max_held, " + std::to_string(socket.held) + ": " + Describe(packet));
  }
  const std::vector<uint8_t> bytes = BytesOf(packet);
  if (bytes.size() < kKeyBytes) return;
  uint64_t key = 0;
  memcpy(&key, bytes.data(), kKeyBytes);
  const auto found = datagrams_.find(key);
  if (found == datagrams_.end()) return Fail("nobody sent it: " + Describe(packet));
  const Datagram& sent = found->second;
  if (sent.length != packet.length) Fail("its length: " + Describe(packet));
  const bool its = SameAddress(sent.source, SourceOf(packet));
  if (!its && !many_sources) Fail("its source: " + Describe(packet));
  const bool there = SameAddress(sent.destination, DestinationOf(packet));
  if (!there) Fail("its address: " + Describe(packet));
  const bool group = (Ipv4Of(sent.destination) >> 28) == 14;
  if (group != ((packet.flags & XTREME_MULTICAST) != 0)) Fail("MULTICAST: " + Describe(packet));
  if (group) CheckMember(socket, sent, packet);
  const size_t rest = bytes.size() - kKeyBytes;
  if (FindDifference(key, kKeyBytes, bytes.data() + kKeyBytes, rest) != rest &&
      !(corruption && HasSameChecksum(key, bytes))) {
    Fail("its bytes: " + Describe(packet));
  }
  const bool first = delivered_.emplace(key, socket.handle.value).second;
  if (!first && !duplicates) Fail("delivered twice: " + Describe(packet));
}

Socket* Model::ClientAt(const xtreme_address& local, const xtreme_address& remote) {
  Socket* latest = nullptr;
  for (auto& [handle, socket] : sockets_) {
    if (socket.type != Type::kConnection || socket.peer != nullptr || socket.key % 2 == 0) continue;
    if (socket.successor != nullptr) continue;
    if (!SameAddress(socket.local, local) || !SameAddress(socket.remote, remote)) continue;
    if (latest == nullptr || latest->key < socket.key) latest = &socket;
  }
  return latest;
}

void Model::TakeAccepted(int ring, const xtreme_completion& accepted) {
  Socket* const listener = Find(accepted.cookie);
  if (listener == nullptr || listener->type != Type::kListener) {
    return Fail("no listener: " + Describe(accepted));
  }
  if (listener->ring != ring) Fail("by another ring: " + Describe(accepted));
  if (!listener->open()) Fail("of a closed listener: " + Describe(accepted));
  Socket socket;
  socket.handle = accepted.socket;
  socket.ring = ring;
  socket.type = Type::kConnection;
  socket.local = DestinationOf(accepted);
  socket.remote = SourceOf(accepted);
  socket.established = true;
  socket.manual = listener->manual;
  socket.user_data = listener->user_data;
  Socket* const client = ClientAt(socket.remote, socket.local);
  if (client == nullptr) return Fail("nobody connected: " + Describe(accepted));
  socket.key = client->key + 1;
  Socket& added = Add(socket);
  added.peer = client;
  client->peer = &added;
}

void Model::TakeWanted(Socket& socket, std::deque<Wanted>& due, const xtreme_completion& told) {
  const bool wire = told.kind == XTREME_TX_WIRE;
  const auto found = std::find_if(due.begin(), due.end(), [&told](const Wanted& wanted) {
    return wanted.cookie == told.cookie;
  });
  if (found == due.end() && socket.origin != nullptr) {
    // Two rings tell in no order: what the one that it left has yet to tell is not looked at.
    Socket& origin = *socket.origin;
    const bool unordered = std::exchange(origin.wire_unordered, true);
    TakeWanted(origin, wire ? origin.wire : origin.done, told);
    origin.wire_unordered = unordered;
    return;
  }
  if (found == due.end()) return Fail("not due: " + Describe(told));
  if (wire && socket.wire_unordered) return static_cast<void>(due.erase(found));
  const bool in_turn = !wire || socket.wire_may_miss || found == due.begin();
  if (!in_turn) Fail("due is " + std::to_string(due.front().cookie) + ": " + Describe(told));
  due.erase(wire ? due.begin() : found, found + 1);
}

void Model::TakeSpace(Socket& socket) {
  if (!socket.wants_space && !socket.may_want_again) return Fail("TX_SPACE that is not due");
  if (!socket.wants_space) socket.may_want_again = false;
  socket.wants_space = false;
}

void Model::TakeTerminated(Socket& socket, const xtreme_completion& end) {
  socket.ended = true;
  if (!socket.done.empty()) {
    Fail("TX_DONE of " + std::to_string(socket.done.front().cookie) + " is due: " + Describe(end));
  }
  if (socket.type != Type::kConnection) {
    if (!socket.closed) Fail("nobody closed it: " + Describe(end));
    return;
  }
  const Socket* const peer = socket.peer;
  const bool peer_stays =
      peer != nullptr && peer->open();  // Not one on its way to a ring that may not take it.
  // The peer's reset may have come before, and waited to be told.
  const bool was_reset = end.status == ECONNRESET && !peer_stays;
  // Nor had it been told that it could not be opened, or that both ends had closed it.
  const bool not_opened = !socket.established && end.status != 0;
  const bool had_ended = end.status == 0 && !peer_stays;
  if (socket.aborted && end.status != ECONNABORTED && !was_reset && !not_opened && !had_ended) {
    Fail("was aborted: " + Describe(end));
  }
  if (end.status == 0 && !socket.closed && !socket.peer_closed) {
    Fail("the peer did not close: " + Describe(end));
  }
  if (end.status == 0 && !socket.shut) Fail("this end did not close: " + Describe(end));
  // One that both ends closed is forgotten after the TIME-WAIT, a short one here; that may not be
  // told yet when what was lost comes again.
  const bool may_be_forgotten = peer_stays && peer->shut && socket.shut;
  if (end.status == ECONNRESET && !socket.closed && peer_stays && !may_be_forgotten) {
    Fail("the peer did not reset it: " + Describe(end));
  }
}

}  // namespace xtreme::model
