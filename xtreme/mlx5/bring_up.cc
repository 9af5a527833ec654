// SPDX-License-Identifier: Apache-2.0

#include "xtreme/mlx5/bring_up.h"

#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "xtreme/mlx5/registration.h"
#include "xtreme/mlx5/tapped_queue_pair.h"

namespace xtreme::mlx5 {
namespace {

constexpr uint32_t kEthernetHeaderBytes = 14;
constexpr uint32_t kVlanTagBytes = 4;
// WQEs or WQEBBs of a queue, whose counters have 16 bits.
constexpr uint32_t kMaxQueueEntries = 32'768;
constexpr uint32_t kAcknowledgeEvery = 1024;
// Of on-device memory: less holds no frame worth the while.
constexpr uint32_t kLeastDeviceMemory = 4096;
constexpr uint32_t kMostDeviceMemory = 1 << 20;
constexpr uint32_t kCacheLineLog2 = 6;

uint32_t Log2(uint32_t power_of_two) {
  return static_cast<uint32_t>(std::countr_zero(power_of_two));
}

absl::Status CheckFrames(std::string_view what, uint32_t frames) {
  if (std::has_single_bit(frames) && frames >= 8 && frames <= kMaxQueueEntries) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("create ", std::string(what), ": ", frames,
                                                 " frames asked, powers of two from 8 to ",
                                                 kMaxQueueEntries, " possible"));
}

CompletionQueueMemory MemoryOf(const mlx5dv_cq& cq) {
  return {.cqes = static_cast<uint8_t*>(cq.buf),
          .cqes_log2 = Log2(cq.cqe_cnt),
          .record = reinterpret_cast<uint32_t*>(cq.dbrec),
          .uar = static_cast<uint8_t*>(cq.cq_uar),
          .cqn = cq.cqn};
}

}  // namespace

QueuePairVerbs::~QueuePairVerbs() { AcknowledgeAll(); }

void QueuePairVerbs::AcknowledgeAll() {
  if (receive_events_ != 0) ibv_ack_cq_events(receive_cq.get(), receive_events_);
  if (send_events_ != 0) ibv_ack_cq_events(send_cq.get(), send_events_);
  receive_events_ = send_events_ = 0;
}

QueuePairObjects::Event QueuePairVerbs::TakeEvent() {
  if (channel == nullptr) return Event::kNone;
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  if (ibv_get_cq_event(channel.get(), &cq, &context) != 0) return Event::kNone;
  const bool receive = cq == receive_cq.get();
  ++(receive ? receive_events_ : send_events_);
  // Acknowledging takes a mutex: in batches.
  if (receive_events_ + send_events_ >= kAcknowledgeEvery) AcknowledgeAll();
  return receive ? Event::kReceive : Event::kSend;
}

BringUp::BringUp(const Device& device, const nic::QueuePairOptions& options, uint32_t mtu,
                 packet::BufferPool* pool)
    : device_(device),
      options_(options),
      mtu_(mtu),
      pool_(pool),
      timed_(options.timestamps && device.limits.timestamp_mask != 0),
      verbs_(std::make_unique<QueuePairVerbs>()) {}

absl::StatusOr<std::unique_ptr<QueuePair>> BringUp::Run() {
  for (auto step : {&BringUp::CheckOptions, &BringUp::FitToDevice, &BringUp::RegisterPool,
                    &BringUp::OwnDoorbellRegister, &BringUp::OpenChannel,
                    &BringUp::CreateCompletionQueues, &BringUp::CreateQueues,
                    &BringUp::LocateRings, &BringUp::TakeDeviceMemory, &BringUp::BringToSend}) {
    if (absl::Status status = (this->*step)(); !status.ok()) return status;
  }
  return Compose();
}

uint32_t BringUp::max_frame_bytes() const {
  return mtu_ + kEthernetHeaderBytes + kVlanTagBytes;
}

absl::Status BringUp::CheckOptions() {
  if (absl::Status s = CheckFrames("send queue", options_.send_queue_frames); !s.ok()) return s;
  if (absl::Status s = CheckFrames("receive queue", options_.receive_queue_frames); !s.ok()) {
    return s;
  }
  if (options_.signal_every == 0) {
    return absl::InvalidArgumentError("create send queue: a signal every 0 frames asked");
  }
  if (pool_->payload_bytes() < max_frame_bytes()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "create receive queue: buffers of ", pool_->payload_bytes(), " bytes asked, MTU ", mtu_,
        " needs ", max_frame_bytes(), " with Ethernet header and VLAN tag"));
  }
  return absl::OkStatus();
}

// What the device cannot give is taken smaller, and said.
absl::Status BringUp::FitToDevice() {
  const DeviceLimits& limits = device_.limits;
  const uint32_t wqebbs = std::min(limits.wqebbs, kMaxQueueEntries);
  const uint32_t most_send = std::bit_floor(std::min(wqebbs / kMaxWqebbs, limits.cqes));
  const uint32_t most_receive = std::bit_floor(std::min(limits.receive_wqes, limits.cqes));
  if (most_send < 8 || most_receive < 8) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "create queue pair on ", device_.name, ": the device offers ", limits.wqebbs,
        " WQEBBs and ", limits.cqes, " CQEs a queue"));
  }
  if (options_.send_queue_frames > most_send) {
    Lack(absl::StrCat("send queue of ", options_.send_queue_frames, " frames, there are ", wqebbs,
                      " WQEBBs"));
    options_.send_queue_frames = most_send;
  }
  if (options_.receive_queue_frames > most_receive) {
    Lack(absl::StrCat("receive queue of ", options_.receive_queue_frames,
                      " frames, the device has ", limits.receive_wqes));
    options_.receive_queue_frames = most_receive;
  }
  // A full queue must have a signal on its way, or it stays full.
  options_.signal_every = std::min(options_.signal_every, options_.send_queue_frames / 4);
  if (!limits.checksums) Lack("checksum offload: not in the device");
  if (options_.timestamps && limits.timestamp_mask == 0) Lack("timestamps: not in the device");
  return absl::OkStatus();
}

absl::Status BringUp::RegisterPool() {
  absl::StatusOr<VerbsHandle<ibv_mr>> region =
      RegisterMemory(device_.pd.get(), pool_->region(), pool_->region_bytes());
  if (!region.ok()) return region.status();
  verbs_->region = *std::move(region);
  memory_.receive.key = verbs_->region->lkey;
  return absl::OkStatus();
}

// libmlx5 gives each thread domain a register of its own. When the device has none left, that is
// the end of it: two rings on one register would hold each other up unseen. A device that has no
// registers to give away (a VM's) has one that all share: 8-byte doorbells stay whole there,
// BlueFlame would not.
absl::Status BringUp::OwnDoorbellRegister() {
  ibv_td_init_attr td_attributes{};
  errno = 0;
  verbs_->thread_domain.reset(ibv_alloc_td(device_.context.get(), &td_attributes));
  if (verbs_->thread_domain == nullptr && (errno == ENOMEM || errno == ENOSPC)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "allocate a doorbell register (UAR) on ", device_.name,
        ": one asked for this ring, none is left on the device (errno ", errno,
        "); close rings or other programs on it"));
  }
  if (verbs_->thread_domain == nullptr) {
    Lack(absl::StrCat("a doorbell register of its own, and BlueFlame: ",
                      VerbsError(errno, "allocate").message()));
    return absl::OkStatus();
  }
  ibv_parent_domain_init_attr attributes{.pd = device_.pd.get(),
                                         .td = verbs_->thread_domain.get()};
  errno = 0;
  verbs_->parent_domain.reset(ibv_alloc_parent_domain(device_.context.get(), &attributes));
  if (verbs_->parent_domain != nullptr) return absl::OkStatus();
  return VerbsError(errno, "allocate a parent domain for one thread domain");
}

absl::Status BringUp::OpenChannel() {
  if (!options_.interrupts) return absl::OkStatus();
  errno = 0;
  verbs_->channel.reset(ibv_create_comp_channel(device_.context.get()));
  if (verbs_->channel == nullptr) return VerbsError(errno, "create a completion channel");
  const int flags = fcntl(verbs_->channel->fd, F_GETFL);
  if (flags >= 0 && fcntl(verbs_->channel->fd, F_SETFL, flags | O_NONBLOCK) == 0) {
    return absl::OkStatus();
  }
  return VerbsError(errno, "make the completion channel non-blocking");
}

absl::Status BringUp::CreateCompletionQueue(std::string_view what, uint32_t cqes,
                                            VerbsHandle<ibv_cq>* cq) {
  // The ring has one entry more than is asked for, rounded up to a power of two. Asking for
  // timestamps keeps them free-running, where a device could also write wall-clock time.
  constexpr uint64_t kTimes = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
  ibv_cq_init_attr_ex attributes{
      .cqe = cqes - 1,
      .cq_context = verbs_.get(),
      .channel = verbs_->channel.get(),
      .wc_flags = timed_ ? kTimes : 0};
  mlx5dv_cq_init_attr direct{.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE,
                             .cqe_size = kCqeBytes};
  errno = 0;
  ibv_cq_ex* created = mlx5dv_create_cq(device_.context.get(), &attributes, &direct);
  if (created == nullptr) {
    const int error = errno;
    return VerbsError(error, absl::StrCat("create ", std::string(what), " CQ: ", cqes,
                                          " CQEs asked, device max ", device_.limits.cqes,
                                          LockedMemoryHint(error)));
  }
  cq->reset(ibv_cq_ex_to_cq(created));
  return absl::OkStatus();
}

absl::Status BringUp::CreateCompletionQueues() {
  absl::Status status =
      CreateCompletionQueue("receive", options_.receive_queue_frames, &verbs_->receive_cq);
  if (!status.ok()) return status;
  return CreateCompletionQueue("send", options_.send_queue_frames, &verbs_->send_cq);
}

absl::Status BringUp::CreateQueues() {
  const uint32_t wqebbs = options_.send_queue_frames * kMaxWqebbs;
  ibv_pd* pd = verbs_->parent_domain != nullptr ? verbs_->parent_domain.get() : device_.pd.get();
  // One gather and nothing inline is one WQEBB in libmlx5's count: so max_send_wr is WQEBBs.
  ibv_qp_init_attr_ex attributes{
      .qp_context = verbs_.get(),
      .send_cq = verbs_->send_cq.get(),
      .recv_cq = verbs_->receive_cq.get(),
      .cap = {.max_send_wr = wqebbs,
              .max_recv_wr = options_.receive_queue_frames,
              .max_send_sge = 1,
              .max_recv_sge = 1},
      .qp_type = IBV_QPT_RAW_PACKET,
      .comp_mask = IBV_QP_INIT_ATTR_PD,
      .pd = pd};
  errno = 0;
  verbs_->qp.reset(ibv_create_qp_ex(device_.context.get(), &attributes));
  if (verbs_->qp != nullptr) return absl::OkStatus();
  const int error = errno;
  if (error == EOPNOTSUPP && timed_) return CreateQueuesWithoutTimes();
  return VerbsError(error, absl::StrCat("create QP: ", wqebbs, " WQEBBs and ",
                                        options_.receive_queue_frames,
                                        " receive WQEs asked, device max ",
                                        device_.limits.wqebbs, LockedMemoryHint(error),
                                        error == EPERM ? ", needs CAP_NET_RAW" : ""));
}

// A card whose firmware is set to real time writes wall-clock time into CQEs, and the kernel
// refuses queues whose CQs ask for free-running time: no times then, rather than no queues.
absl::Status BringUp::CreateQueuesWithoutTimes() {
  timed_ = false;
  verbs_->send_cq.reset();
  verbs_->receive_cq.reset();
  if (absl::Status status = CreateCompletionQueues(); !status.ok()) return status;
  if (absl::Status status = CreateQueues(); !status.ok()) return status;
  Lack("timestamps: the device has no free-running ones (REAL_TIME_CLOCK_ENABLE)");
  return absl::OkStatus();
}

absl::Status BringUp::LocateRings() {
  mlx5dv_qp qp{};
  mlx5dv_cq receive_cq{};
  mlx5dv_cq send_cq{};
  mlx5dv_obj first{.qp = {verbs_->qp.get(), &qp}, .cq = {verbs_->receive_cq.get(), &receive_cq}};
  mlx5dv_obj second{.cq = {verbs_->send_cq.get(), &send_cq}};
  int error = mlx5dv_init_obj(&first, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ);
  if (error == 0) error = mlx5dv_init_obj(&second, MLX5DV_OBJ_CQ);
  if (error != 0) return VerbsError(error, "locate the rings of the queue pair");
  if (qp.rq.stride != sizeof(mlx5_wqe_data_seg) || receive_cq.cqe_size != kCqeBytes ||
      send_cq.cqe_size != kCqeBytes) {
    return absl::UnimplementedError(absl::StrCat(
        "locate the rings: receive WQEs of ", qp.rq.stride, " bytes and CQEs of ",
        receive_cq.cqe_size, " offered, 16 and 64 asked"));
  }
  const bool own_register = verbs_->thread_domain != nullptr;
  SendQueueMemory& send = memory_.send;
  send.wqebbs = static_cast<uint8_t*>(qp.sq.buf);
  send.wqebbs_log2 = Log2(qp.sq.wqe_cnt);
  send.record = reinterpret_cast<uint32_t*>(&qp.dbrec[MLX5_SND_DBR]);
  send.doorbell_register = static_cast<uint8_t*>(qp.bf.reg);
  send.blueflame_bytes = options_.blueflame && own_register ? qp.bf.size : 0;
  send.qpn = verbs_->qp->qp_num;
  send.completions = MemoryOf(send_cq);
  memory_.receive.wqes = static_cast<uint8_t*>(qp.rq.buf);
  memory_.receive.wqes_log2 = Log2(qp.rq.wqe_cnt);
  memory_.receive.record = reinterpret_cast<uint32_t*>(&qp.dbrec[MLX5_RCV_DBR]);
  memory_.receive.completions = MemoryOf(receive_cq);
  if (options_.blueflame && own_register && qp.bf.size == 0) Lack("BlueFlame: not in the device");
  PrepareCqes(send.completions);
  PrepareCqes(memory_.receive.completions);
  return absl::OkStatus();
}

// On-device memory is an offer: without it, or without BlueFlame, which alone makes it worth while,
// frames are gathered. Programs share what the device has, so less is taken where it runs short.
absl::Status BringUp::TakeDeviceMemory() {
  const uint32_t asked = options_.device_memory_bytes;
  if (asked == 0) return absl::OkStatus();
  if (memory_.send.blueflame_bytes == 0) {
    Lack("on-device memory: not used without BlueFlame");
    return absl::OkStatus();
  }
  if (!AllocateDeviceMemory()) {
    Lack(absl::StrCat("on-device memory: ", asked, " bytes asked, ",
                      device_.limits.device_memory_bytes == 0
                          ? std::string("not in the device")
                          : absl::StrCat("none left of ", device_.limits.device_memory_bytes)));
    return absl::OkStatus();
  }
  const auto bytes = uint32_t{1} << memory_.send.device_memory.bytes_log2;
  if (bytes < std::bit_floor(asked)) {
    Lack(absl::StrCat("on-device memory: ", asked, " bytes asked, the device gave ", bytes,
                      " of ", device_.limits.device_memory_bytes));
  }
  const absl::Status registered = RegisterDeviceMemory(bytes);
  if (registered.ok()) return absl::OkStatus();
  Lack(absl::StrCat("on-device memory: ", registered.message()));
  verbs_->device_memory.reset();
  memory_.send.device_memory = {};
  return absl::OkStatus();
}

absl::Status BringUp::RegisterDeviceMemory(uint32_t bytes) {
  mlx5dv_dm direct{};
  mlx5dv_obj object{.dm = {verbs_->device_memory.get(), &direct}};
  if (int error = mlx5dv_init_obj(&object, MLX5DV_OBJ_DM)) return VerbsError(error, "locate it");
  memory_.send.device_memory.bytes = static_cast<uint8_t*>(direct.buf);
  errno = 0;
  // An int, because the macro would mix enumerations.
  constexpr int kAccess = IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE;
  verbs_->device_region.reset(
      ibv_reg_dm_mr(device_.pd.get(), verbs_->device_memory.get(), 0, bytes, kAccess));
  if (verbs_->device_region == nullptr) {
    return VerbsError(errno, absl::StrCat("register ", bytes, " bytes"));
  }
  memory_.send.device_memory.key = verbs_->device_region->lkey;
  return absl::OkStatus();
}

bool BringUp::AllocateDeviceMemory() {
  const uint64_t most =
      std::min<uint64_t>({options_.device_memory_bytes, device_.limits.device_memory_bytes,
                          kMostDeviceMemory});
  for (uint64_t bytes = std::bit_floor(most); bytes >= kLeastDeviceMemory; bytes /= 2) {
    ibv_alloc_dm_attr attributes{.length = bytes, .log_align_req = kCacheLineLog2};
    verbs_->device_memory.reset(ibv_alloc_dm(device_.context.get(), &attributes));
    if (verbs_->device_memory == nullptr) continue;
    memory_.send.device_memory.bytes_log2 = Log2(static_cast<uint32_t>(bytes));
    return true;
  }
  return false;
}

// Nothing is posted before this: the receive queue of a raw QP takes frames from INIT on as soon as
// its record shows a WQE.
absl::Status BringUp::BringToSend() {
  constexpr std::pair<ibv_qp_state, const char*> kStates[] = {
      {IBV_QPS_INIT, "INIT"}, {IBV_QPS_RTR, "RTR"}, {IBV_QPS_RTS, "RTS"}};
  for (const auto& [state, name] : kStates) {
    ibv_qp_attr attributes{.qp_state = state, .port_num = device_.port};
    const int mask = IBV_QP_STATE | (state == IBV_QPS_INIT ? IBV_QP_PORT : 0);
    if (int error = ibv_modify_qp(verbs_->qp.get(), &attributes, mask)) {
      return VerbsError(error, absl::StrCat("bring QP to ", name, " on ", device_.name, " port ",
                                            device_.port));
    }
  }
  return absl::OkStatus();
}

std::unique_ptr<QueuePair> BringUp::Compose() {
  const DeviceLimits& limits = device_.limits;
  nic::Capabilities& got = capabilities_;
  got.blueflame_bytes = memory_.send.blueflame_bytes;
  got.blueflame = got.blueflame_bytes != 0;
  got.max_inline_bytes = kMaxInlineFrameBytes;
  got.transmit_checksum = got.receive_checksum = limits.checksums;
  got.transmit_timestamp = got.receive_timestamp = timed_;
  // CQEs are what a queue pair of verbs has. The PRM calls their time that of the completion.
  got.transmit_time = got.receive_time =
      timed_ ? nic::TimeSource::kCompletion : nic::TimeSource::kNone;
  got.min_inline_header_bytes = kMinInlineBytes;
  got.send_queue_frames = (1u << memory_.send.wqebbs_log2) / kMaxWqebbs;
  got.receive_queue_frames = 1u << memory_.receive.wqes_log2;
  got.device_memory_bytes =
      verbs_->device_memory == nullptr ? 0 : 1u << memory_.send.device_memory.bytes_log2;
  // The device sums the segments it cuts.
  got.max_segmented_bytes = limits.checksums ? limits.segmented_bytes : 0;
  got.rate_limit = limits.most_rate_kbps != 0;
  got.mtu = mtu_;
  got.link_bits_per_second = limits.link_bits_per_second;
  got.device = absl::StrCat(device_.name, " port ", device_.port);
  const SendQueue::Options send{.signal_every = options_.signal_every,
                                .max_frame_bytes = max_frame_bytes(),
                                .timestamps = timed_,
                                .checksums = limits.checksums,
                                .max_segmented_bytes = got.max_segmented_bytes};
  const ReceiveQueue::Options receive{.buffer_bytes = pool_->payload_bytes(),
                                      .checksums = limits.checksums,
                                      .timestamps = timed_};
  if (options_.tap != nullptr) {
    return std::make_unique<TappedQueuePair>(options_.tap, memory_, send, receive, capabilities_,
                                             pool_, std::move(verbs_));
  }
  return std::make_unique<PlainQueuePair>(memory_, send, receive, capabilities_, pool_,
                                          std::move(verbs_));
}

}  // namespace xtreme::mlx5
