// SPDX-License-Identifier: Apache-2.0

#include "xtreme/mlx5/nic.h"

#include <fcntl.h>
#include <infiniband/mlx5dv.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "xtreme/mlx5/bring_up.h"
#include "xtreme/mlx5/port_counters.h"
#include "xtreme/mlx5/registration.h"
#include "xtreme/mlx5/rule.h"

namespace xtreme::mlx5 {
namespace {

// The most is what the kernel's mlx5 gives an interface: a card's frames have 10,000 bytes, 22 of
// them Ethernet's header, a tag and the check sequence.
constexpr uint32_t kMinMtu = 576;
constexpr uint32_t kMaxMtu = 9978;

class VerbsRegistration final : public nic::Registration {
 public:
  explicit VerbsRegistration(VerbsHandle<ibv_mr> region) : region_(std::move(region)) {}
  uint32_t key() const override { return region_->lkey; }

 private:
  VerbsHandle<ibv_mr> region_;
};

std::optional<nic::PortEvent> Translate(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_PORT_ACTIVE:
      return nic::PortEvent::kLinkUp;
    case IBV_EVENT_PORT_ERR:
      return nic::PortEvent::kLinkDown;
    case IBV_EVENT_DEVICE_FATAL:
      return nic::PortEvent::kDeviceRemoved;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_WQ_FATAL:
    case IBV_EVENT_CQ_ERR:
      return nic::PortEvent::kQueueError;
    default:
      return std::nullopt;
  }
}

// What stopped learns of it: there may be no completion that tells.
void NoteStopped(const ibv_async_event& event) {
  switch (event.event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
      return QueuePairVerbs::OnStopped(event.element.qp->qp_context);
    case IBV_EVENT_CQ_ERR:
      return QueuePairVerbs::OnStopped(event.element.cq->cq_context);
    default:
      return;
  }
}

nic::Capabilities CapabilitiesOf(const Device& device, uint32_t mtu) {
  const bool timestamps = device.limits.timestamp_mask != 0;
  nic::Capabilities most;
  most.max_inline_bytes = kMaxInlineFrameBytes;
  most.transmit_checksum = most.receive_checksum = device.limits.checksums;
  most.transmit_timestamp = most.receive_timestamp = timestamps;
  most.min_inline_header_bytes = kMinInlineBytes;
  most.send_queue_frames = device.limits.wqebbs / kMaxWqebbs;
  most.receive_queue_frames = device.limits.receive_wqes;
  most.max_segmented_bytes = device.limits.checksums ? device.limits.segmented_bytes : 0;
  most.rate_limit = device.limits.most_rate_kbps != 0;
  most.mtu = mtu;
  most.link_bits_per_second = device.limits.link_bits_per_second;
  most.device = absl::StrCat(device.name, " port ", device.port);
  return most;
}

}  // namespace

Nic::Nic(const Options& options, Device device)
    : options_(options),
      device_(std::move(device)),
      capabilities_(CapabilitiesOf(device_, options.mtu)),
      clock_(device_.limits.clock_khz,
             device_.limits.timestamp_mask == 0 ? ~uint64_t{0} : device_.limits.timestamp_mask) {}

absl::StatusOr<std::unique_ptr<Nic>> Nic::Open(const Options& options) {
  if (options.mtu < kMinMtu || options.mtu > kMaxMtu) {
    return absl::InvalidArgumentError(absl::StrCat("open ", options.port.device, ": MTU ",
                                                   options.mtu, " asked, ", kMinMtu, " to ",
                                                   kMaxMtu, " possible"));
  }
  absl::StatusOr<Device> device = OpenDevice(options.port);
  if (!device.ok()) return device.status();
  const int fd = (*device).context->async_fd;
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return VerbsError(errno, "make the device's event channel non-blocking");
  }
  return std::unique_ptr<Nic>(new Nic(options, *std::move(device)));
}

absl::StatusOr<std::unique_ptr<nic::Registration>> Nic::Register(void* start, size_t bytes) {
  absl::StatusOr<VerbsHandle<ibv_mr>> region = RegisterMemory(device_.pd.get(), start, bytes);
  if (!region.ok()) return region.status();
  return std::make_unique<VerbsRegistration>(*std::move(region));
}

absl::StatusOr<std::unique_ptr<nic::QueuePair>> Nic::CreateQueuePair(
    const nic::QueuePairOptions& options, packet::BufferPool* pool) {
  return BringUp(device_, options, options_.mtu, pool).Run();
}

// Rates are in thousands of bits a second: rounded up, for 0 would be no limit.
absl::Status Nic::SetRate(nic::QueuePair* queue_pair, const nic::RateLimit& rate) {
  const DeviceLimits& limits = device_.limits;
  const uint64_t kbps = rate.bytes_per_second / 125 + (rate.bytes_per_second % 125 != 0);
  const std::string action =
      absl::StrCat("limit sends to ", rate.bytes_per_second, " bytes a second");
  if (limits.most_rate_kbps == 0) {
    return absl::UnimplementedError(absl::StrCat(action, ": ", device_.name, " has no rates"));
  }
  if (kbps != 0 && (kbps < limits.least_rate_kbps || kbps > limits.most_rate_kbps)) {
    return absl::InvalidArgumentError(
        absl::StrCat(action, ": ", device_.name, " offers ", limits.least_rate_kbps * 125ull,
                     " to ", limits.most_rate_kbps * 125ull));
  }
  ibv_qp_rate_limit_attr attributes{.rate_limit = static_cast<uint32_t>(kbps),
                                    .max_burst_sz = rate.burst_bytes,
                                    .typical_pkt_sz =
                                        static_cast<uint16_t>(rate.typical_packet_bytes)};
  // Queue pairs come from CreateQueuePair: there is no other kind.
  ibv_qp* qp = static_cast<QueuePair*>(queue_pair)->verbs_qp();
  const int error = qp == nullptr ? EINVAL : ibv_modify_qp_rate_limit(qp, &attributes);
  if (error == 0) return absl::OkStatus();
  if (error == ENOSPC) {
    return VerbsError(ENOMEM, absl::StrCat(action, ": the table of rates is full"));
  }
  // libmlx5 knows whether the device takes them, and has no call that says it.
  const bool shaped = rate.burst_bytes != 0 || rate.typical_packet_bytes != 0;
  if (error != EINVAL || !shaped) return VerbsError(error, action);
  return VerbsError(error, absl::StrCat(action, " in bursts of ", rate.burst_bytes,
                                        ", packets of ", rate.typical_packet_bytes, ": ",
                                        device_.name, " may take neither of the two"));
}

absl::Status Nic::SetModeration(nic::QueuePair* queue_pair, const nic::Moderation& moderation) {
  const DeviceLimits& limits = device_.limits;
  const std::string action = absl::StrCat("interrupt once ", moderation.completions,
                                          " completions or ", moderation.microseconds, " us wait");
  if (limits.most_moderated_cqes == 0 || limits.most_moderated_us == 0) {
    return absl::UnimplementedError(absl::StrCat(action, ": ", device_.name, " cannot"));
  }
  const bool half = (moderation.completions == 0) != (moderation.microseconds == 0);
  if (half || moderation.completions > limits.most_moderated_cqes ||
      moderation.microseconds > limits.most_moderated_us) {
    return absl::InvalidArgumentError(
        absl::StrCat(action, ": ", device_.name, " offers 0 and 0, or 1 to ",
                     limits.most_moderated_cqes, " and 1 to ", limits.most_moderated_us));
  }
  ibv_modify_cq_attr attributes{.attr_mask = IBV_CQ_ATTR_MODERATE,
                                .moderate = {.cq_count = moderation.completions,
                                             .cq_period = moderation.microseconds}};
  // Queue pairs come from CreateQueuePair: there is no other kind.
  for (ibv_cq* cq : static_cast<QueuePair*>(queue_pair)->verbs_cqs()) {
    const int error = cq == nullptr ? EINVAL : ibv_modify_cq(cq, &attributes);
    if (error != 0) return VerbsError(error, action);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<nic::Rule>> Nic::AddRule(const nic::FlowRule& rule,
                                                        nic::QueuePair* queue_pair) {
  // Queue pairs come from CreateQueuePair: there is no other kind.
  ibv_qp* qp = static_cast<QueuePair*>(queue_pair)->verbs_qp();
  if (qp == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("add rule ", DescribeRule(rule), ": the queue pair is on no device"));
  }
  return CreateRule(rule, device_.port, qp);
}

std::optional<uint64_t> Nic::ReadRawClock() const {
  ibv_values_ex values{.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
  if (ibv_query_rt_values_ex(device_.context.get(), &values) != 0) return std::nullopt;
  // libmlx5 puts the ticks into the nanoseconds.
  return static_cast<uint64_t>(values.raw_clock.tv_nsec);
}

// By what the kernel publishes of the device's PTP clock, if it does.
std::optional<nic::ClockConversion> Nic::SamplePtpClock() {
  mlx5dv_clock_info published{};
  if (mlx5dv_get_clock_info(device_.context.get(), &published) != 0 || published.mult == 0) {
    return ptp_clock_.last();
  }
  const std::optional<uint64_t> raw = ReadRawClock();
  if (!raw.has_value()) return ptp_clock_.last();
  return ptp_clock_.Add({.base_raw = published.last_cycles,
                         .base_ns = static_cast<int64_t>(published.nsec),
                         .mask = published.mask,
                         .multiplier = published.mult,
                         .shift = published.shift},
                        *raw);
}

nic::DeviceClock Nic::SampleClock(const std::function<int64_t()>& host_now_ns) {
  const auto sample = ReadClocks([this] { return ReadRawClock(); }, host_now_ns);
  return {.host = sample.has_value() ? clock_.Add(*sample) : clock_.conversion(),
          .ptp = SamplePtpClock()};
}

absl::StatusOr<nic::PortCounters> Nic::ReadPortCounters() {
  return mlx5::ReadPortCounters(device_.sysfs_path, device_.port);
}

std::optional<nic::PortEvent> Nic::PollEvent() {
  ibv_async_event event{};
  while (ibv_get_async_event(device_.context.get(), &event) == 0) {
    const std::optional<nic::PortEvent> told = Translate(event.event_type);
    const bool of_port = event.event_type == IBV_EVENT_PORT_ACTIVE ||
                         event.event_type == IBV_EVENT_PORT_ERR;
    // A device of several ports tells of them all.
    const bool ours = !of_port || event.element.port_num == device_.port;
    NoteStopped(event);
    ibv_ack_async_event(&event);
    if (ours && told.has_value()) return told;
  }
  return std::nullopt;
}

}  // namespace xtreme::mlx5
