// SPDX-License-Identifier: Apache-2.0

#include "tests/e2e/stream_programs.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <utility>

namespace xtreme::e2e {
namespace {

constexpr int64_t kTurnNs = 20'000'000;
constexpr int kTurnMs = 20;

int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

}  // namespace

// --- On a ring ----------------------------------------------------------------------------------

bool RingProgram::Listen(uint16_t port, const TcpOptions& options) {
  TcpOptions here = options;
  here.local = ":" + std::to_string(port);
  auto listener = ring_->ListenTcp(here);
  if (!listener) return false;
  listener_ = *std::move(listener);
  const int64_t end_ns = NowNs() + kProgramNs;
  while (!listening_ && NowNs() < end_ns) {
    for (Completion& completion : ring_->Wait(kTurnNs)) On(completion);
  }
  return listening_;
}

void RingProgram::Connect(const xtreme_address& to, int connections, const TcpOptions& options) {
  for (int i = 0; i < connections; ++i) {
    auto socket = ring_->ConnectTcp(to, options);
    if (!socket) return;  // Its verdict will be missing.
    const uint64_t handle = socket->handle().value;
    streams_[handle].socket = *std::move(socket);
  }
}

Verdicts RingProgram::Run(int connections) {
  const int64_t end_ns = NowNs() + kProgramNs;
  while (terminated_ < connections && NowNs() < end_ns) {
    for (Completion& completion : ring_->Wait(kTurnNs)) On(completion);
  }
  Verdicts verdicts;
  for (auto& [handle, stream] : streams_) {
    verdicts.push_back(stream.terminated ? stream.verdict : WhyNotTerminated(stream));
  }
  verdicts.resize(std::max(verdicts.size(), static_cast<size_t>(connections)), "no connection");
  return verdicts;
}

std::string RingProgram::VerdictOf(const Stream& stream) {
  return stream.end == nullptr ? "not connected" : stream.end->Verdict();
}

std::string RingProgram::WhyNotTerminated(const Stream& stream) {
  std::string all = "not terminated: " + VerdictOf(stream);
  const auto info = stream.socket.GetInfo();
  if (!info) return all + ", and nothing is known of it";
  for (const auto& [name, value] :
       {std::pair<const char*, int64_t>{"state", info->state}, {"rto_ns", info->rto_ns},
        {"oldest_ns", info->oldest_ns}, {"in_flight", info->in_flight},
        {"unsent", info->unsent}, {"send_window", info->send_window},
        {"retransmits", info->retransmits}}) {
    all += std::string(" ") + name + "=" + std::to_string(value);
  }
  return all;
}

void RingProgram::On(Completion& completion) {
  if (completion.kind() == kOpDone) listening_ = completion.status == 0;
  if (completion.kind() == kAccepted) {
    streams_[completion.socket.value] = {
        .socket = TcpSocket(completion.socket),
        .end = std::make_unique<StreamEnd>(plan_, true, completion.source_port)};
  }
  const auto found = streams_.find(completion.socket.value);
  if (found == streams_.end()) return;
  Stream& stream = found->second;
  switch (completion.kind()) {
    case kEstablished:
      stream.end = std::make_unique<StreamEnd>(plan_, true, stream.socket.Local()->port);
      break;
    case kPacket: OnPacket(completion, &stream); break;
    case kPeerClosed: stream.end->OnEnd(); break;
    case kTxSpace: stream.blocked = false; break;
    case kTerminated:
      stream.terminated = true;
      stream.verdict = completion.status == 0 ? VerdictOf(stream) : strerror(completion.status);
      ++terminated_;
      return;
    default: break;
  }
  Send(&stream);
}

void RingProgram::OnPacket(Completion& packet, Stream* stream) {
  std::span<uint8_t> piece = packet.bytes();
  stream->end->Received(piece);
  for (xtreme_buffer* link = xtreme_buffer_next(packet.buffer);
       packet.has(XTREME_CHAINED) && link != nullptr; link = xtreme_buffer_next(link)) {
    stream->end->Received({xtreme_buffer_data(link), xtreme_buffer_length(link)});
  }
}

void RingProgram::Send(Stream* stream) {
  if (stream->end == nullptr) return;
  while (!stream->blocked) {
    const auto bytes = stream->end->ToSend();
    if (bytes.empty()) break;
    xtreme_send_result result;
    const size_t taken = stream->socket.SendSome(bytes, &result);
    stream->end->Sent(taken);
    stream->blocked = result < 0;
  }
  if (stream->end->TakeShutdown()) stream->socket.Shutdown().ok();
  if (stream->end->Done()) stream->socket.Close();
}

// --- On kernel sockets --------------------------------------------------------------------------

void KernelProgram::Add(net::KernelTcp connection, bool is_client) {
  sockaddr_in client = {};
  socklen_t size = sizeof client;
  auto* const address = reinterpret_cast<sockaddr*>(&client);
  is_client ? getsockname(connection.fd(), address, &size)
            : getpeername(connection.fd(), address, &size);
  streams_.push_back({.socket = std::move(connection),
                      .end = std::make_unique<StreamEnd>(plan_, false, ntohs(client.sin_port)),
                      .connected = !is_client,
                      .broken = ""});
}

Verdicts KernelProgram::Run(int connections) {
  const int64_t end_ns = NowNs() + kProgramNs;
  const auto left = [this] {
    return std::count_if(streams_.begin(), streams_.end(),
                         [](const Stream& stream) { return !Over(stream); });
  };
  while (NowNs() < end_ns &&
         (left() > 0 || streams_.size() < static_cast<size_t>(connections))) {
    Await(connections);
  }
  Verdicts verdicts;
  for (Stream& stream : streams_) {
    verdicts.push_back(stream.broken.empty() ? stream.end->Verdict() : stream.broken);
    stream.socket.Close();
  }
  verdicts.resize(std::max(verdicts.size(), static_cast<size_t>(connections)), "no connection");
  return verdicts;
}

void KernelProgram::Await(int connections) {
  const bool accepting =
      listener_.is_open() && streams_.size() < static_cast<size_t>(connections);
  std::vector<pollfd> waiting(streams_.size() + 1);
  waiting[0] = {.fd = accepting ? listener_.fd() : -1, .events = POLLIN, .revents = 0};
  for (size_t i = 0; i < streams_.size(); ++i) {
    Stream& stream = streams_[i];
    pollfd& entry = waiting[i + 1];
    entry.fd = Over(stream) ? -1 : stream.socket.fd();
    if (!stream.end->ended()) entry.events |= POLLIN;
    if (!stream.connected || !stream.end->ToSend().empty()) entry.events |= POLLOUT;
  }
  poll(waiting.data(), waiting.size(), kTurnMs);
  for (size_t i = 0; i < streams_.size(); ++i) {
    if (waiting[i + 1].fd < 0) continue;
    const int16_t events = waiting[i + 1].revents;
    if (events & (POLLIN | POLLHUP | POLLERR)) Receive(&streams_[i]);
    // The kernel ends a connection that is shut down before it is established.
    if (events & POLLOUT) streams_[i].connected = true;
    if (streams_[i].connected) Send(&streams_[i]);
  }
  if (waiting[0].revents & POLLIN) Add(listener_.Accept(), false);
}

void KernelProgram::Receive(Stream* stream) {
  std::array<uint8_t, 64 * 1024> piece;
  const ssize_t code = recv(stream->socket.fd(), piece.data(), piece.size(), 0);
  if (code > 0) stream->end->Received(std::span(piece).first(static_cast<size_t>(code)));
  if (code == 0) stream->end->OnEnd();
  if (code < 0 && errno != EAGAIN) stream->broken = strerror(errno);
}

void KernelProgram::Send(Stream* stream) {
  const auto bytes = stream->end->ToSend();
  if (!bytes.empty()) {
    const ssize_t code = send(stream->socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (code > 0) stream->end->Sent(static_cast<size_t>(code));
    if (code < 0 && errno != EAGAIN) stream->broken = strerror(errno);
  }
  if (stream->end->TakeShutdown()) stream->socket.ShutDown();
}

}  // namespace xtreme::e2e
