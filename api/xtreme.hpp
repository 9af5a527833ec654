// SPDX-License-Identifier: Apache-2.0
//
// The C++ face: RAII over xtreme.h, which is the manual. Nothing here adds behaviour; it adds
// types, ownership and ranges. C++20, the standard library only: no exceptions, no callbacks, no
// blocking.
//
// A Ring releases what a poll handed out at the next poll, except what was Keep()t. Handles are
// closed by their destructors, which wait for nothing, but that of the process' last Ring: see
// xtreme_ring_close(). Threads: as in xtreme.h.

#ifndef XTREME_API_XTREME_HPP_
#define XTREME_API_XTREME_HPP_

#include <cassert>
#include <cerrno>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "api/xtreme.h"

namespace xtreme {

// --- Errors -------------------------------------------------------------------------------------

struct Error {
  int code = 0;         // A positive errno.
  std::string message;  // One sentence.
};

// A value, or why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}
  Result(Error error) : state_(std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  // Only when ok(); else only when not.
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

struct Done {};
using Status = Result<Done>;

// The calling thread's last error as a value; `code` is what the C call returned.
inline Error LastError(int code) { return Error{-code, xtreme_error()}; }
inline Status ToStatus(int code) { return code < 0 ? Status(LastError(code)) : Status(Done{}); }

// --- Addresses ----------------------------------------------------------------------------------

inline Result<xtreme_address> ParseAddress(std::string_view text) {
  xtreme_address address = {};
  const int code = xtreme_address_parse(std::string(text).c_str(), &address);
  if (code < 0) return LastError(code);
  return address;
}

inline std::string ToString(const xtreme_address& address) {
  char text[64];
  xtreme_address_format(&address, text, sizeof text);
  return text;
}

// --- Completions --------------------------------------------------------------------------------

enum Kind : uint8_t {
  kPacket = XTREME_PACKET,
  kAccepted = XTREME_ACCEPTED,
  kEstablished = XTREME_ESTABLISHED,
  kPeerClosed = XTREME_PEER_CLOSED,
  kTxSpace = XTREME_TX_SPACE,
  kTxWire = XTREME_TX_WIRE,
  kTxDone = XTREME_TX_DONE,
  kOpDone = XTREME_OP_DONE,
  kTimer = XTREME_TIMER,
  kPosted = XTREME_POSTED,
  kFdEvent = XTREME_FD_EVENT,
  kRing = XTREME_RING,
  kError = XTREME_ERROR,
  kTerminated = XTREME_TERMINATED,
  kDeparted = XTREME_DEPARTED,
  kArrived = XTREME_ARRIVED,
};

// A reference to a received packet that outlives its poll. Any thread.
class Packet {
 public:
  Packet() = default;
  Packet(Packet&& other) noexcept
      : head_(std::exchange(other.head_, nullptr)), bytes_(std::exchange(other.bytes_, {})) {}
  Packet& operator=(Packet&& other) noexcept {
    std::swap(head_, other.head_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Packet() { Release(); }

  explicit operator bool() const { return head_ != nullptr; }
  // The payload in the first link: all of it, unless the packet is chained.
  std::span<uint8_t> bytes() const { return bytes_; }
  xtreme_buffer* head() const { return head_; }

  void Release() {
    bytes_ = {};
    for (xtreme_buffer* link = std::exchange(head_, nullptr); link != nullptr;) {
      xtreme_buffer* next = xtreme_buffer_next(link);
      xtreme_buffer_release(link);
      link = next;
    }
  }

 private:
  friend struct Completion;
  Packet(xtreme_buffer* head, std::span<uint8_t> bytes) : head_(head), bytes_(bytes) {}

  xtreme_buffer* head_ = nullptr;
  std::span<uint8_t> bytes_;
};

// A reference to a buffer that is not received: acquired from a ring, to build a datagram in, or
// registered memory of the program. Given back when it goes out of scope, unless it was sent. Any
// thread.
class Buffer {
 public:
  Buffer() = default;
  // Owns a reference, and knows its room.
  Buffer(xtreme_buffer* buffer, std::span<uint8_t> bytes) : buffer_(buffer), bytes_(bytes) {}
  Buffer(Buffer&& other) noexcept
      : buffer_(std::exchange(other.buffer_, nullptr)), bytes_(std::exchange(other.bytes_, {})) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(buffer_, other.buffer_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Buffer() { Release(); }

  explicit operator bool() const { return buffer_ != nullptr; }
  // All of its room, or of the memory.
  std::span<uint8_t> bytes() const { return bytes_; }
  xtreme_buffer* buffer() const { return buffer_; }

  // Another reference, for who sends it more than once.
  Buffer Share() const {
    if (buffer_ != nullptr) xtreme_buffer_ref(buffer_);
    return Buffer(buffer_, bytes_);
  }
  void Release() {
    if (xtreme_buffer* const last = Take()) xtreme_buffer_release(last);
  }
  // The reference, to be given back by whoever has it now.
  xtreme_buffer* Take() {
    bytes_ = {};
    return std::exchange(buffer_, nullptr);
  }

 private:
  xtreme_buffer* buffer_ = nullptr;
  std::span<uint8_t> bytes_;
};

// A completion with accessors; the fields are xtreme_completion's. Aligned, so that deciding on one
// touches one cache line.
struct alignas(64) Completion : xtreme_completion {
  Kind kind() const { return static_cast<Kind>(xtreme_completion::kind); }
  bool has(xtreme_flag flag) const { return (flags & flag) != 0; }

  // The ring receives and sends nothing any more, and its program had better not wait for it: a
  // queue stopped, and xtreme_ring_reset() may bring it back; or it has lost its interface, and its
  // backup if it had one, and is to be closed.
  bool is_end_of_ring() const {
    return kind() == kRing &&
           (event == XTREME_BROKEN || (event == XTREME_REMOVED && count == 0));
  }

  // The payload, when it is one contiguous buffer; of a chained packet the first link's part, and
  // nothing once it was kept.
  std::span<uint8_t> bytes() const {
    if (!has(XTREME_CHAINED)) return {data, length};
    if (buffer == nullptr) return {};
    const uint8_t* end = xtreme_buffer_data(buffer) + xtreme_buffer_length(buffer);
    return {data, static_cast<size_t>(end - data)};
  }

  // Takes the packet's references over: it is not released with the batch.
  Packet Keep() {
    const std::span<uint8_t> first = bytes();
    return Packet(std::exchange(buffer, nullptr), first);
  }

  xtreme_address source() const { return MakeAddress(source_ip, source_port); }
  xtreme_address destination() const { return MakeAddress(destination_ip, destination_port); }
  template <typename T>
  T* user() const {
    return reinterpret_cast<T*>(user_data);
  }

 private:
  static xtreme_address MakeAddress(const uint8_t (&ip)[16], uint16_t port) {
    xtreme_address address;
    for (int i = 0; i < 16; ++i) address.ip[i] = ip[i];
    address.port = port;
    return address;
  }
};
static_assert(sizeof(Completion) == sizeof(xtreme_completion));

// What one poll handed out. Valid until the next poll of the same ring or group.
class Batch {
 public:
  Batch(Completion* first, int count, const uint64_t* poll)
      : completions_(first, static_cast<size_t>(count)), poll_(poll), made_at_(*poll) {}

  Completion* begin() const { return Checked().data(); }
  Completion* end() const { return Checked().data() + completions_.size(); }
  size_t size() const { return completions_.size(); }
  bool empty() const { return completions_.empty(); }

 private:
  std::span<Completion> Checked() const {
    assert(*poll_ == made_at_ && "a batch was used after the next poll");
    return completions_;
  }
  std::span<Completion> completions_;
  // Only assert reads them.
  [[maybe_unused]] const uint64_t* poll_;
  [[maybe_unused]] uint64_t made_at_;
};

// A poll into no room would find nothing for ever.
inline Error NoBatch() { return Error{EINVAL, "open: a batch of no completions asked"}; }

// The array that polls write; what one of them handed out is released before the next.
class BatchArray {
 public:
  explicit BatchArray(int max) : completions_(static_cast<size_t>(max)) {}
  BatchArray(const BatchArray&) = delete;
  BatchArray& operator=(const BatchArray&) = delete;
  ~BatchArray() { Release(); }

  void Release() {
    if (count_ > 0) xtreme_release(completions_.data(), count_, sizeof(Completion));
    count_ = 0;
    ++polls_;
  }
  Completion* data() { return completions_.data(); }
  int max() const { return static_cast<int>(completions_.size()); }
  // What a poll returned.
  Batch Hand(int count) {
    count_ = count < 0 ? 0 : count;
    return Batch(completions_.data(), count_, &polls_);
  }

 private:
  std::vector<Completion> completions_;
  int count_ = 0;
  uint64_t polls_ = 0;
};

// --- Rings --------------------------------------------------------------------------------------

class RingOptions {
 public:
  static RingOptions Latency(std::string interface) { return Profile("latency", interface); }
  static RingOptions Feed(std::string interface) { return Profile("feed", interface); }
  static RingOptions Throughput(std::string interface) { return Profile("throughput", interface); }
  static RingOptions Dev(std::string interface) { return Profile("dev", interface); }
  // By name. Another name is an error that is kept and returned by Ring::Open().
  static RingOptions Profile(const std::string& profile, std::string interface) {
    RingOptions made;
    made.interface_ = std::move(interface);
    made.Keep(xtreme_ring_options_init(&made.options_, sizeof made.options_, profile.c_str()));
    return made;
  }

  RingOptions& RxBurstMs(uint32_t milliseconds) {
    constexpr uint32_t kMost = UINT32_MAX / 1000;  // More is out of range anyway.
    options_.rx_burst_us = milliseconds > kMost ? UINT32_MAX : milliseconds * 1000;
    return *this;
  }
  RingOptions& UserData(uint64_t user_data) {
    options_.user_data = user_data;
    return *this;
  }
  // By name, as in docs/settings.md. An error is kept and returned by Ring::Open().
  RingOptions& Set(const char* name, const std::string& value) {
    texts_.push_back(std::make_shared<const std::string>(value));
    return Keep(xtreme_ring_options_set(&options_, name, texts_.back()->c_str()));
  }
  // Texts are kept by reference.
  RingOptions& FromEnvironment(char** environment) {
    return Keep(xtreme_ring_options_from_environment(&options_, environment));
  }

  // As the C struct: any field may be changed. `interface_name` null: the one given here.
  xtreme_ring_options& fields() { return options_; }
  std::string Print() const {
    const xtreme_ring_options whole = Whole();
    std::string text(static_cast<size_t>(xtreme_ring_options_print(&whole, nullptr, 0)) + 1, 0);
    xtreme_ring_options_print(&whole, text.data(), text.size());
    text.pop_back();
    return text;
  }

 private:
  friend class Ring;
  // A setting, or fields(), may name another interface than the one given first.
  xtreme_ring_options Whole() const {
    xtreme_ring_options whole = options_;
    if (whole.interface_name == nullptr) whole.interface_name = interface_.c_str();
    return whole;
  }
  RingOptions& Keep(int code) {
    if (code < 0 && error_.code == 0) error_ = LastError(code);
    return *this;
  }

  xtreme_ring_options options_ = {};
  std::string interface_;
  std::vector<std::shared_ptr<const std::string>> texts_;  // That options_ refer to, of copies too.
  Error error_;
};

enum JoinFlag : uint32_t {
  kShareWithKernel = XTREME_SHARE_WITH_KERNEL,
  kExcludeSource = XTREME_EXCLUDE_SOURCE,
};

struct SendOptions {
  uint64_t cookie = 0;
  bool now_or_fail = false;
  bool no_doorbell = false;
  bool want_done = false;
  bool want_wire = false;
  bool warm = false;

  xtreme_send_options ToC() const {
    xtreme_send_options c = {};
    const auto add = [&c](bool wanted, xtreme_send_flag flag) {
      if (wanted) c.flags |= static_cast<uint32_t>(flag);
    };
    add(now_or_fail, XTREME_NOW_OR_FAIL);
    add(no_doorbell, XTREME_NO_DOORBELL);
    add(want_done, XTREME_WANT_DONE);
    add(want_wire, XTREME_WANT_WIRE);
    add(warm, XTREME_WARM);
    c.cookie = cookie;
    return c;
  }
};

struct UdpOptions {
  std::string local;  // "10.0.0.1:9000", ":9000", "233.54.12.111:26477"; empty: any, leased port.
  uint64_t user_data = 0;
  bool reuse = false;
  bool multicast_loop = false;
  bool broadcast = false;
  uint8_t multicast_ttl = 1;
  uint8_t ttl = 64;
  uint8_t tos = 0;
  uint32_t max_held = 0;
  uint32_t flow_tag = 0;
};

// As xtreme_tcp_options: 0, and std::nullopt, is what the preset says. Times in nanoseconds.
struct TcpOptions {
  std::string local;  // "10.0.0.1:9000", ":9000"; empty: any address and one of the ring's ports.
  uint64_t user_data = 0;
  xtreme_tcp_preset preset = XTREME_TCP_DEFAULT;
  xtreme_tcp_congestion congestion = XTREME_TCP_PRESET;
  uint32_t backlog = 0;
  std::optional<bool> nodelay = std::nullopt;
  std::optional<bool> quick_ack = std::nullopt;
  std::optional<bool> manual_credit = std::nullopt;
  std::optional<bool> timestamps = std::nullopt;
  std::optional<bool> sack = std::nullopt;
  uint8_t ttl = 0;
  uint8_t tos = 0;
  uint8_t keepalive_probes = 0;
  uint8_t retransmissions = 0;
  uint16_t mss = 0;
  uint32_t receive_window = 0;
  uint32_t send_queue = 0;
  int64_t keepalive_idle_ns = 0;
  int64_t keepalive_interval_ns = 0;
  int64_t user_timeout_ns = 0;
  int64_t min_rto_ns = 0;
  int64_t delayed_ack_ns = 0;
  int64_t connect_timeout_ns = 0;
  int64_t linger_ns = 0;

  // `local` apart, which is the caller's to parse.
  xtreme_tcp_options ToC() const {
    const auto choice = [](std::optional<bool> wanted) -> uint8_t {
      return wanted ? (*wanted ? XTREME_ON : XTREME_OFF) : XTREME_PRESET;
    };
    xtreme_tcp_options c = {};
    c.size = sizeof c;
    c.user_data = user_data;
    c.preset = static_cast<uint8_t>(preset);
    c.congestion = static_cast<uint8_t>(congestion);
    c.backlog = backlog;
    c.nodelay = choice(nodelay);
    c.quick_ack = choice(quick_ack);
    c.manual_credit = choice(manual_credit);
    c.timestamps = choice(timestamps);
    c.sack = choice(sack);
    c.ttl = ttl;
    c.tos = tos;
    c.keepalive_probes = keepalive_probes;
    c.retransmissions = retransmissions;
    c.mss = mss;
    c.receive_window = receive_window;
    c.send_queue = send_queue;
    c.keepalive_idle_ns = keepalive_idle_ns;
    c.keepalive_interval_ns = keepalive_interval_ns;
    c.user_timeout_ns = user_timeout_ns;
    c.min_rto_ns = min_rto_ns;
    c.delayed_ack_ns = delayed_ack_ns;
    c.connect_timeout_ns = connect_timeout_ns;
    c.linger_ns = linger_ns;
    return c;
  }
};

// Owns a socket of either kind; closes it. Its ring must be alive.
class Socket {
 public:
  Socket() = default;
  Socket(Socket&& other) noexcept : handle_(other.Release()) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Socket() { Close(); }

  xtreme_socket handle() const { return handle_; }
  bool is_open() const { return handle_.value != 0; }

  xtreme_send_result Send(std::span<const uint8_t> bytes) {
    return ToSendResult(xtreme_send(handle_, bytes.data(), bytes.size(), nullptr));
  }
  xtreme_send_result Send(std::span<const uint8_t> bytes, const SendOptions& options) {
    const xtreme_send_options c = options.ToC();
    return ToSendResult(xtreme_send(handle_, bytes.data(), bytes.size(), &c));
  }
  // `bytes`, which lie in `buffer`, without a copy. SENT or QUEUED: its reference is taken over,
  // and it is empty from then on.
  xtreme_send_result SendBuffer(Buffer* buffer, std::span<const uint8_t> bytes,
                                const SendOptions& options = {}) {
    return SendBufferTo(nullptr, buffer, bytes, options);
  }
  xtreme_send_result WouldSend(size_t length) const {
    return ToSendResult(xtreme_would_send(handle_, length));
  }

  xtreme::Result<xtreme_address> Local() const {
    xtreme_address local;
    const int code = xtreme_socket_local(handle_, &local);
    if (code < 0) return LastError(code);
    return local;
  }
  void SetUserData(uint64_t user_data) { xtreme_socket_set_user_data(handle_, user_data); }
  // Started: ends as OP_DONE with `cookie`; 0 bytes a second: no rate any more.
  Status SetRate(uint64_t bytes_per_second, uint32_t burst_bytes = 0, uint32_t packet_bytes = 0,
                 uint64_t cookie = 0) {
    return ToStatus(xtreme_socket_set_rate(handle_, bytes_per_second, burst_bytes, packet_bytes,
                                           cookie));
  }

  // Afterwards only its TX_DONEs and TERMINATED come. With an unknown flag nothing is done.
  void Close(uint32_t flags = 0) {
    if (is_open() && xtreme_socket_close(handle_, flags) != -EINVAL) Release();
  }
  // The handle, to be closed by whoever has it now.
  xtreme_socket Release() { return std::exchange(handle_, {}); }

 protected:
  explicit Socket(xtreme_socket handle) : handle_(handle) {}
  static xtreme_send_result ToSendResult(int code) {
    return static_cast<xtreme_send_result>(code);
  }
  // Null: the default destination.
  xtreme_send_result SendBufferTo(const xtreme_address* peer, Buffer* buffer,
                                  std::span<const uint8_t> bytes, const SendOptions& options) {
    const xtreme_send_options c = options.ToC();
    const int result =
        xtreme_send_buffer(handle_, peer, buffer->buffer(), bytes.data(), bytes.size(), &c);
    if (result == XTREME_SENT || result == XTREME_QUEUED) buffer->Take();
    return ToSendResult(result);
  }

 private:
  xtreme_socket handle_ = {};
};

class UdpSocket : public Socket {
 public:
  UdpSocket() = default;

  // Started: ends as OP_DONE with `cookie`.
  Status Connect(const xtreme_address& peer, uint64_t cookie = 0) {
    return ToStatus(xtreme_udp_connect(handle(), &peer, cookie));
  }
  Status Join(const xtreme_address& group, uint64_t cookie = 0, uint32_t flags = 0) {
    return ToStatus(xtreme_join(handle(), &group, nullptr, flags, cookie));
  }
  Status JoinSource(const xtreme_address& group, const xtreme_address& source,
                    uint64_t cookie = 0, uint32_t flags = 0) {
    return ToStatus(xtreme_join(handle(), &group, &source, flags, cookie));
  }
  Status JoinAll(std::span<const xtreme_address> groups, uint64_t cookie = 0, uint32_t flags = 0) {
    for (const xtreme_address& group : groups) {
      if (Status joined = Join(group, cookie, flags); !joined) return joined;
    }
    return Done{};
  }
  Status Leave(const xtreme_address& group, uint64_t cookie = 0) {
    return ToStatus(xtreme_leave(handle(), &group, nullptr, cookie));
  }
  // What JoinSource() joined.
  Status LeaveSource(const xtreme_address& group, const xtreme_address& source,
                     uint64_t cookie = 0) {
    return ToStatus(xtreme_leave(handle(), &group, &source, cookie));
  }

  xtreme_send_result SendTo(const xtreme_address& peer, std::span<const uint8_t> bytes,
                            const SendOptions& options = {}) {
    const xtreme_send_options c = options.ToC();
    return ToSendResult(xtreme_send_to(handle(), &peer, bytes.data(), bytes.size(), &c));
  }
  // As Socket::SendBuffer().
  xtreme_send_result SendBufferTo(const xtreme_address& peer, Buffer* buffer,
                                  std::span<const uint8_t> bytes, const SendOptions& options = {}) {
    return Socket::SendBufferTo(&peer, buffer, bytes, options);
  }
  // One doorbell for all; how many were sent, or -EINVAL: other flags than XTREME_NOW_OR_FAIL and
  // XTREME_NO_DOORBELL. `last` gets the result of the last one tried.
  int SendMany(std::span<const xtreme_bytes> datagrams, xtreme_send_result* last,
               uint32_t flags = 0) {
    int result = XTREME_SENT;
    const int sent = xtreme_send_many(handle(), datagrams.data(),
                                      static_cast<int>(datagrams.size()), flags, &result);
    *last = ToSendResult(result);
    return sent;
  }

 private:
  friend class Ring;
  explicit UdpSocket(xtreme_socket handle) : Socket(handle) {}
};

// A connection or a listener.
class TcpSocket : public Socket {
 public:
  TcpSocket() = default;
  // Owns a handle: that of an ACCEPTED or ARRIVED, or one that was released.
  explicit TcpSocket(xtreme_socket handle) : Socket(handle) {}

  // As many bytes as are taken; how many. `result` is of these, or says why there are none.
  size_t SendSome(std::span<const uint8_t> bytes, xtreme_send_result* result,
                  const SendOptions& options = {}) {
    const xtreme_send_options c = options.ToC();
    size_t taken = 0;
    *result = ToSendResult(xtreme_send_some(handle(), bytes.data(), bytes.size(), &c, &taken));
    return taken;
  }
  Status Credit(uint32_t bytes) { return ToStatus(xtreme_credit(handle(), bytes)); }
  Status Shutdown() { return ToStatus(xtreme_shutdown(handle())); }
  // To another ring, where ARRIVED brings the new handle: this has none from then on.
  Status MoveTo(xtreme_ring to, uint64_t cookie = 0) {
    const Status moved = ToStatus(xtreme_socket_move(handle(), to, cookie));
    if (moved) Release();
    return moved;
  }
  // RST, instead of Close().
  void Abort() {
    if (is_open()) xtreme_abort(Release());
  }
  Status SetOptions(const TcpOptions& options) {
    const xtreme_tcp_options c = options.ToC();
    return ToStatus(xtreme_tcp_set_options(handle(), &c));
  }
  xtreme::Result<xtreme_tcp_info> GetInfo() const {
    xtreme_tcp_info report = {};
    report.size = sizeof report;
    const int code = xtreme_tcp_get_info(handle(), &report);
    if (code < 0) return LastError(code);
    return report;
  }
};

// A prepared send; discarded when it goes out of scope. See xtreme.h.
class Prepared {
 public:
  Prepared() = default;
  Prepared(Prepared&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Prepared& operator=(Prepared&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Prepared() {
    if (handle_.value != 0) xtreme_discard(handle_);
  }

  static Result<Prepared> Make(const Socket& socket, std::span<const uint8_t> bytes) {
    Prepared prepared;
    const int code =
        xtreme_prepare(socket.handle(), bytes.data(), bytes.size(), &prepared.handle_);
    if (code < 0) return LastError(code);
    return prepared;
  }

  // For another thread's Lane::Fire().
  xtreme_prepared handle() const { return handle_; }
  Status Patch(size_t offset, std::span<const uint8_t> bytes) {
    return ToStatus(xtreme_patch(handle_, offset, bytes.data(), bytes.size()));
  }
  xtreme_send_result Fire() {
    return static_cast<xtreme_send_result>(xtreme_fire(handle_, nullptr));
  }
  xtreme_send_result Fire(const SendOptions& options) {
    const xtreme_send_options c = options.ToC();
    return static_cast<xtreme_send_result>(xtreme_fire(handle_, &c));
  }
  Status Cancel() { return ToStatus(xtreme_cancel(handle_)); }
  Status Rearm() { return ToStatus(xtreme_rearm(handle_)); }

 private:
  xtreme_prepared handle_ = {};
};

// Owns a ring, and the completions of its last poll.
class Ring {
 public:
  static Result<Ring> Open(const RingOptions& options, int max_batch = 64) {
    if (options.error_.code != 0) return options.error_;
    if (max_batch < 1) return NoBatch();
    const xtreme_ring_options fields = options.Whole();
    xtreme_ring handle;
    const int code = xtreme_ring_open(&fields, &handle);
    if (code < 0) return LastError(code);
    return Ring(handle, max_batch);
  }

  // Room for a datagram, in the ring's own buffers.
  Result<Buffer> AcquireBuffer() {
    xtreme_buffer* buffer = nullptr;
    uint8_t* data = nullptr;
    uint32_t capacity = 0;
    const int code = xtreme_buffer_acquire(handle(), &buffer, &data, &capacity);
    if (code < 0) return LastError(code);
    return Buffer(buffer, {data, capacity});
  }
  // Memory of the program as one buffer, which stays until `released` is called with `context` and
  // its start. Started: ends as OP_DONE with `cookie`, from which on nothing of it is copied.
  Result<Buffer> RegisterMemory(std::span<uint8_t> memory,
                                void (*released)(void* context, void* start) = nullptr,
                                void* context = nullptr, uint64_t cookie = 0) {
    const xtreme_memory c = {.start = memory.data(),
                             .length = memory.size(),
                             .released = released,
                             .context = context,
                             .cookie = cookie};
    xtreme_buffer* buffer = nullptr;
    const int code = xtreme_buffer_register(handle(), &c, &buffer);
    if (code < 0) return LastError(code);
    return Buffer(buffer, memory);
  }

  // Its port and rules are started: they end as OP_DONE with cookie 0.
  Result<UdpSocket> OpenUdp(const UdpOptions& options) {
    xtreme_udp_options c = {};
    c.size = sizeof c;
    Result<xtreme_address> local = ParseAddress(options.local.empty() ? "*:0" : options.local);
    if (!local) return local.error();
    c.local = *local;
    c.user_data = options.user_data;
    c.reuse = options.reuse;
    c.multicast_loop = options.multicast_loop;
    c.multicast_ttl = options.multicast_ttl;
    c.ttl = options.ttl;
    c.tos = options.tos;
    c.broadcast = options.broadcast;
    c.max_held = options.max_held;
    c.flow_tag = options.flow_tag;
    xtreme_socket socket;
    const int code = xtreme_udp_open(handle(), &c, &socket);
    if (code < 0) return LastError(code);
    return UdpSocket(socket);
  }

  // Started: ends as OP_DONE. Each connection is an ACCEPTED: TcpSocket(completion.socket).
  Result<TcpSocket> ListenTcp(const TcpOptions& options) {
    return OpenTcp(options, [this](const xtreme_tcp_options& c, xtreme_socket* socket) {
      return xtreme_tcp_listen(handle(), &c, socket);
    });
  }
  // Started: ends in exactly one of ESTABLISHED and TERMINATED.
  Result<TcpSocket> ConnectTcp(const xtreme_address& peer, const TcpOptions& options = {}) {
    return OpenTcp(options, [&](const xtreme_tcp_options& c, xtreme_socket* socket) {
      return xtreme_tcp_connect(handle(), &peer, &c, socket);
    });
  }

  Status Start() { return ToStatus(xtreme_ring_start(handle())); }
  // Started: ends as OP_DONE with `cookie`.
  Status Reset(uint64_t cookie = 0) { return ToStatus(xtreme_ring_reset(handle(), cookie)); }
  Status Moderate(uint16_t completions, uint16_t microseconds, uint64_t cookie = 0) {
    return ToStatus(xtreme_ring_moderate(handle(), completions, microseconds, cookie));
  }
  Result<xtreme_queues> TakeQueues() {
    xtreme_queues queues = {};
    queues.size = sizeof queues;
    const int code = xtreme_ring_take_queues(handle(), &queues);
    if (code < 0) return LastError(code);
    return queues;
  }
  Status Adopt() { return ToStatus(xtreme_ring_adopt(handle())); }

  // Releases the last batch and polls. An error is an empty batch.
  Batch Poll() {
    BatchArray& batch = state_->batch;
    batch.Release();
    return batch.Hand(xtreme_ring_poll(handle(), batch.data(), batch.max(), sizeof(Completion)));
  }
  // The same by the ring's waiting policy, for at most `timeout_ns` (-1: no limit).
  Batch Wait(int64_t timeout_ns) {
    BatchArray& batch = state_->batch;
    batch.Release();
    return batch.Hand(xtreme_ring_wait(handle(), batch.data(), batch.max(), sizeof(Completion),
                                       timeout_ns));
  }
  // True: armed, wait for fd(). False: something waits already.
  bool Arm() { return xtreme_ring_arm(handle()) == 0; }
  int fd() const { return xtreme_ring_fd(handle()); }
  void Flush() { xtreme_ring_flush(handle()); }
  // Whether no stream, closed ones included, waits for its peer any more.
  bool Quiescent() const { return xtreme_ring_quiescent(handle()) == 1; }
  int64_t now_ns() const { return xtreme_ring_now(handle()); }
  // How far a hw_time_ns may be off; INT64_MAX: the clocks are not in sync.
  int64_t clock_error_ns() const { return xtreme_ring_clock_error(handle()); }

  Result<xtreme_timer> StartTimer(int64_t deadline_ns, uint64_t cookie) {
    xtreme_timer timer;
    const int code = xtreme_timer_start(handle(), deadline_ns, cookie, &timer);
    if (code < 0) return LastError(code);
    return timer;
  }
  void CancelTimer(xtreme_timer timer) { xtreme_timer_cancel(handle(), timer); }
  Status Watch(int fd, uint32_t events) {
    return ToStatus(xtreme_ring_watch(handle(), fd, events));
  }

  // Both are empty where the C call fails.
  std::string Describe() const {
    const int length = xtreme_ring_describe(handle(), nullptr, 0);
    if (length < 0) return {};
    std::string text(static_cast<size_t>(length) + 1, 0);
    xtreme_ring_describe(handle(), text.data(), text.size());
    text.pop_back();
    return text;
  }
  std::vector<xtreme_counter> Counters() const {
    const int count = xtreme_ring_counters(handle(), nullptr, 0);
    if (count < 0) return {};
    std::vector<xtreme_counter> counters(static_cast<size_t>(count));
    xtreme_ring_counters(handle(), counters.data(), count);
    return counters;
  }
  xtreme_ring handle() const { return state_->handle; }

 private:
  // On the heap, so that a Batch stays valid when the Ring is moved.
  struct State {
    State(xtreme_ring opened, int max_batch) : handle(opened), batch(max_batch) {}
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State() {
      batch.Release();
      xtreme_ring_close(handle);
    }

    xtreme_ring handle;
    BatchArray batch;
  };

  Ring(xtreme_ring handle, int max_batch)
      : state_(std::make_unique<State>(handle, max_batch)) {}
  template <typename Open>
  static Result<TcpSocket> OpenTcp(const TcpOptions& options, Open open) {
    xtreme_tcp_options c = options.ToC();
    Result<xtreme_address> local = ParseAddress(options.local.empty() ? "*:0" : options.local);
    if (!local) return local.error();
    c.local = *local;
    xtreme_socket socket = {};
    const int code = open(c, &socket);
    if (code < 0) return LastError(code);
    return TcpSocket(socket);
  }
  std::unique_ptr<State> state_;
};

// One thread's way into a ring that it does not own: opened by the ring's owner, and closed when it
// goes out of scope, before which its thread has made its last call. It may outlive the ring.
class Lane {
 public:
  Lane() = default;
  Lane(Lane&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Lane& operator=(Lane&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Lane() {
    if (handle_.value != 0) xtreme_lane_close(handle_);
  }

  static Result<Lane> Open(const Ring& ring) {
    Lane lane;
    const int code = xtreme_lane_open(ring.handle(), &lane.handle_);
    if (code < 0) return LastError(code);
    return lane;
  }

  xtreme_lane handle() const { return handle_; }
  // Comes to the ring's owner as POSTED. 0; -EAGAIN: the lane is full; -EPIPE: the ring is closed.
  int Post(uint64_t value) { return xtreme_lane_post(handle_, value); }
  // Has the ring's owner fire it at its next poll; a refusal comes there as ERROR. 0, or as Post().
  int Fire(xtreme_prepared prepared, const SendOptions& options = {}) {
    const xtreme_send_options c = options.ToC();
    return xtreme_lane_fire(handle_, prepared, &c);
  }

 private:
  xtreme_lane handle_ = {};
};

// Several rings polled as one. They outlive it and are not polled by themselves meanwhile: closes
// with it, and leaves them as they are.
class RingGroup {
 public:
  static Result<RingGroup> Open(std::span<const Ring* const> rings, int max_batch = 64) {
    if (max_batch < 1) return NoBatch();
    std::vector<xtreme_ring> handles;
    for (const Ring* ring : rings) handles.push_back(ring->handle());
    xtreme_group handle;
    const int code =
        xtreme_group_open(handles.data(), static_cast<int>(handles.size()), &handle);
    if (code < 0) return LastError(code);
    return RingGroup(handle, max_batch);
  }

  Status SetOrder(xtreme_group_order order) {
    return ToStatus(xtreme_group_set_order(handle(), order));
  }
  // As Ring::Poll().
  Batch Poll() {
    BatchArray& batch = state_->batch;
    batch.Release();
    return batch.Hand(xtreme_group_poll(handle(), batch.data(), batch.max(), sizeof(Completion)));
  }
  // True: armed, wait for fd(). False: something waits already.
  bool Arm() { return xtreme_group_arm(handle()) == 0; }
  int fd() const { return xtreme_group_fd(handle()); }
  xtreme_group handle() const { return state_->handle; }

 private:
  struct State {
    State(xtreme_group opened, int max_batch) : handle(opened), batch(max_batch) {}
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State() {
      batch.Release();
      xtreme_group_close(handle);
    }

    xtreme_group handle;
    BatchArray batch;
  };
  RingGroup(xtreme_group handle, int max_batch)
      : state_(std::make_unique<State>(handle, max_batch)) {}

  std::unique_ptr<State> state_;
};

}  // namespace xtreme

#endif  // XTREME_API_XTREME_HPP_
