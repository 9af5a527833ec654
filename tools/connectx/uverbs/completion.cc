// SPDX-License-Identifier: Apache-2.0
//
// Completion channels and completion queues.

#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include <cerrno>
#include <utility>

#include "tools/connectx/uverbs/context.h"
#include "tools/connectx/uverbs/pinned_memory.h"

namespace xtreme::connectx {
namespace {

// The channel that the call names: null and 0 when it names none, else an errno for a descriptor
// that is not a channel of this context.
int FindChannel(const Context& context, const VerbsCall& call,
                std::shared_ptr<EventChannel>* channel) {
  const auto fd = call.Handle(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL);
  if (!fd) return 0;
  const auto found = context.completion_channels.find(static_cast<int>(*fd));
  if (found == context.completion_channels.end()) return EBADF;
  *channel = found->second;
  return 0;
}

int PinRing(Context& context, const mlx5_ib_create_cq& driver, uint32_t entries,
            PinnedQueue* pinned) {
  const int error = pinned->receive.Pin(context.pinned_pages, driver.buf_addr,
                                        uint64_t{entries} * driver.cqe_size);
  if (error != 0) return error;
  return context.record_pages->Pin(context.pinned_pages, driver.db_addr, &pinned->record);
}

}  // namespace

int CreateCompletionChannel(Context& context, const VerbsCall& call) {
  auto channel = EventChannel::Create(sizeof(ib_uverbs_comp_event_desc));
  if (channel == nullptr) return EMFILE;
  const int fd = channel->program_fd();
  if (context.port_events != nullptr) context.port_events->Add(channel);
  context.completion_channels[fd] = std::move(channel);
  call.Answer(UVERBS_ATTR_CORE_OUT,
              ib_uverbs_create_comp_channel_resp{.fd = static_cast<uint32_t>(fd)});
  return 0;
}

int CreateCq(Context& context, const VerbsCall& call) {
  const auto cqe = call.Get<uint32_t>(UVERBS_ATTR_CREATE_CQ_CQE);
  const auto user_handle = call.Get<uint64_t>(UVERBS_ATTR_CREATE_CQ_USER_HANDLE);
  const auto driver = call.GetPrefix<mlx5_ib_create_cq>(UVERBS_ATTR_UHW_IN);
  if (!cqe || !user_handle || driver.buf_addr == 0 || driver.db_addr == 0) return EINVAL;
  if (*cqe >= context.device->options().limits.cqes) return EINVAL;
  const auto vector = call.GetPrefix<uint32_t>(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR);
  if (vector >= kCompletionVectors) return EINVAL;
  // Compressed CQEs and padding are capabilities that were not offered; real time may have been.
  if (driver.cqe_comp_en != 0) return EOPNOTSUPP;
  const bool has_real_time = context.device->options().features.real_time_clock;
  const uint32_t offered = MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX |
                           (has_real_time ? uint32_t{MLX5_IB_CREATE_CQ_FLAGS_REAL_TIME_TS} : 0u);
  if ((driver.flags & ~offered) != 0) return EOPNOTSUPP;

  const auto flags = call.GetPrefix<uint32_t>(UVERBS_ATTR_CREATE_CQ_FLAGS);
  constexpr uint32_t kKnownFlags =
      IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION | IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN;
  if ((flags & ~kKnownFlags) != 0) return EOPNOTSUPP;

  std::shared_ptr<EventChannel> channel;
  if (const int error = FindChannel(context, call, &channel); error != 0) return error;
  CqObject cq{.user_handle = *user_handle,
              .events = std::make_unique<CqEvents>(std::move(channel), context.async_events),
              .pinned = std::make_shared<PinnedQueue>()};
  if (driver.cqe_size != 64 && driver.cqe_size != 128) return EINVAL;
  if (const int refused = PinRing(context, driver, *cqe + 1, cq.pinned.get()); refused != 0) {
    return refused;
  }
  const int error = context.device->CreateCq(
      {.ring = reinterpret_cast<uint8_t*>(driver.buf_addr),
       .entries = *cqe + 1,
       .cqe_size = driver.cqe_size,
       .doorbell_record = reinterpret_cast<uint32_t*>(driver.db_addr),
       .uar = driver.uar_page_index,
       .completions = cq.events->has_channel() ? cq.events.get() : nullptr,
       .async = cq.events.get(),
       .user_handle = *user_handle,
       .timed = (flags & IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION) != 0,
       .real_time = (driver.flags & MLX5_IB_CREATE_CQ_FLAGS_REAL_TIME_TS) != 0,
       .ignore_overrun = (flags & IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN) != 0},
      &cq.cqn);
  if (error != 0) return error;
  call.Answer(UVERBS_ATTR_CREATE_CQ_RESP_CQE, *cqe);
  call.Answer(UVERBS_ATTR_UHW_OUT, mlx5_ib_create_cq_resp{.cqn = cq.cqn});
  call.AnswerHandle(UVERBS_ATTR_CREATE_CQ_HANDLE, context.cqs.Add(std::move(cq)));
  return 0;
}

int ModifyCq(Context& context, const VerbsCall& call) {
  ib_uverbs_ex_modify_cq request;
  if (!call.Read(UVERBS_ATTR_CORE_IN, &request)) return EINVAL;
  if (request.attr_mask == 0) return EINVAL;
  if (request.attr_mask != IBV_CQ_ATTR_MODERATE) return EOPNOTSUPP;
  if (request.attr.cq_period > kMaxModerationPeriod) return EINVAL;
  const CqObject* cq = context.cqs.Find(request.cq_handle);
  if (cq == nullptr) return EINVAL;
  return context.device->ModerateCq(cq->cqn, request.attr.cq_count, request.attr.cq_period);
}

int DestroyCq(Context& context, const VerbsCall& call) {
  const auto handle = call.Handle(UVERBS_ATTR_DESTROY_CQ_HANDLE);
  CqObject* cq = context.cqs.Find(handle);
  if (cq == nullptr) return ENOENT;
  if (const int error = context.device->DestroyCq(cq->cqn, nullptr); error != 0) return error;
  // The device is done with it, so the counts are final. libibverbs waits until the program has
  // acknowledged as many.
  call.Answer(UVERBS_ATTR_DESTROY_CQ_RESP,
              ib_uverbs_destroy_cq_resp{
                  .comp_events_reported = cq->events->SettleCompletions(cq->user_handle),
                  .async_events_reported = cq->events->Settle(cq->user_handle)});
  context.cqs.Remove(*handle);
  return 0;
}

}  // namespace xtreme::connectx
