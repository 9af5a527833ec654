// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/uverbs/context.h"

#include <endian.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "tools/connectx/uverbs/pinned_memory.h"

namespace xtreme::connectx {
namespace {

constexpr uint32_t kRawPacket = 1u << IB_UVERBS_QPT_RAW_PACKET;
constexpr uint32_t kMaxSges = 30;
constexpr uint32_t kMellanoxVendorId = 0x02c9;

// The largest InfiniBand MTU that fits below an Ethernet MTU with the RoCE v2 headers (the kernel's
// iboe_get_mtu).
ibv_mtu RoceMtu(uint32_t ethernet_mtu) {
  constexpr uint32_t kRoceV2HeaderBytes = 40 + 8 + 12 + 16 + 4;  // IPv6, UDP, BTH, RETH, ICRC.
  for (int mtu = IBV_MTU_4096; mtu > IBV_MTU_256; --mtu) {
    if ((128u << mtu) + kRoceV2HeaderBytes <= ethernet_mtu) return static_cast<ibv_mtu>(mtu);
  }
  return IBV_MTU_256;
}

uint32_t CapabilityFlags(const Device::Features& features) {
  uint64_t flags = IB_UVERBS_DEVICE_PORT_ACTIVE_EVENT | IB_UVERBS_DEVICE_SYS_IMAGE_GUID |
                   IB_UVERBS_DEVICE_MANAGED_FLOW_STEERING;
  // Without it libmlx5 refuses to offload send checksums and hides the receive verdict.
  if (features.checksum_offload) flags |= IB_UVERBS_DEVICE_RAW_IP_CSUM;
  return static_cast<uint32_t>(flags);
}

ib_uverbs_query_device_resp DeviceAttributes(const Context& context) {
  const Device::Limits& limits = context.device->options().limits;
  const DeviceIdentity& identity = *context.identity;
  return {
      .fw_ver = uint64_t{identity.firmware[0]} << 32 | uint64_t{identity.firmware[1]} << 16 |
                identity.firmware[2],
      .node_guid = htobe64(identity.node_guid),
      .sys_image_guid = htobe64(identity.node_guid),
      .max_mr_size = ~uint64_t{0},
      .page_size_cap = ~uint64_t{0xfff},
      .vendor_id = kMellanoxVendorId,
      .vendor_part_id = identity.pci_device_id,
      .max_qp = limits.qps,
      .max_qp_wr = limits.wqebbs,
      .device_cap_flags = CapabilityFlags(context.device->options().features),
      .max_sge = kMaxSges,
      .max_sge_rd = kMaxSges,
      .max_cq = limits.cqs,
      .max_cqe = limits.cqes - 1,
      .max_mr = limits.memory_regions,
      .max_pd = 1 << 16,
      .max_raw_ethy_qp = limits.qps,
      .max_pkeys = 1,
      .phys_port_cnt = 1,
  };
}

mlx5_ib_query_device_resp VendorAttributes(const Device::Options& options) {
  mlx5_ib_query_device_resp answer{.response_length = sizeof(mlx5_ib_query_device_resp)};
  if (options.limits.tso_bytes != 0) {
    answer.tso_caps = {.max_tso = options.limits.tso_bytes, .supported_qpts = kRawPacket};
  }
  if (options.features.receive_scaling) {
    answer.rss_caps = {.rx_hash_fields_mask = kRxHashFields,
                       .rx_hash_function = MLX5_RX_HASH_FUNC_TOEPLITZ};
  }
  if (options.features.packet_pacing) {
    const uint8_t bursts = options.features.pacing_bursts ? MLX5_IB_PP_SUPPORT_BURST : 0;
    answer.packet_pacing_caps = {.qp_rate_limit_min = options.limits.least_rate_kbps,
                                 .qp_rate_limit_max = kMaxRateKbps,
                                 .supported_qpts = kRawPacket,
                                 .cap_flags = bursts};
  }
  return answer;
}

ib_uverbs_gid_entry GidEntry(const DeviceIdentity& identity, uint32_t index) {
  ib_uverbs_gid_entry entry{.gid_index = index, .port_num = 1};
  std::memcpy(entry.gid, identity.gids[index].data(), sizeof(entry.gid));
  entry.gid_type =
      index % 2 == 0 ? uint32_t{IB_UVERBS_GID_TYPE_ROCE_V1} : uint32_t{IB_UVERBS_GID_TYPE_ROCE_V2};
  entry.netdev_ifindex = identity.interface_index;
  return entry;
}

}  // namespace

Context::Context(Device* context_device, const DeviceIdentity* device_identity, uint64_t* pinned)
    : device(context_device),
      identity(device_identity),
      pinned_pages(pinned),
      id(context_device->OpenContext()),
      record_pages(std::make_unique<RecordPages>()) {}

Context::~Context() {
  if (port_events != nullptr) device->Unsubscribe(port_events.get());
  // Users before what they use; the device refuses anything else with EBUSY.
  for (auto& [handle, flow] : flows) device->DestroyFlow(flow.flow);
  for (auto& [handle, counters] : flow_counters) device->DestroyFlowCounter(counters.number);
  for (auto& [handle, qp] : qps) device->DestroyQp(qp.qpn);
  for (auto& [handle, table] : indirection_tables) device->DestroyIndirectionTable(table.number);
  for (auto& [handle, wq] : wqs) device->DestroyWq(wq.rqn);
  for (auto& [handle, cq] : cqs) device->DestroyCq(cq.cqn, nullptr);
  for (auto& [handle, region] : memory_regions) device->DeregisterMemory(region.lkey);
  for (auto& [handle, dm] : device_memories) device->FreeDeviceMemory(dm.memory.offset);
  for (auto& [handle, uar] : uars) device->FreeUar(uar.uar.page_id);
  for (auto& [handle, rate] : rates) device->FreeRate(rate.index);
  for (auto& [handle, pd] : pds) device->FreePd(pd.pdn);
  device->CloseContext();
}

void Context::CountObjects(LiveObjects& live) const {
  live.contexts += 1;
  live.pds += pds.size();
  live.memory_regions += memory_regions.size();
  live.device_memories += device_memories.size();
  live.uars += uars.size();
  live.channels += completion_channels.size();
  live.cqs += cqs.size();
  live.wqs += wqs.size();
  live.indirection_tables += indirection_tables.size();
  live.qps += qps.size();
  live.flows += flows.size();
  live.flow_counters += flow_counters.size();
  live.rates += rates.size();
}

int GetContext(Context& context, const VerbsCall& call) {
  const Device::Options& options = context.device->options();
  const auto asked = call.GetPrefix<mlx5_ib_alloc_ucontext_req_v2>(UVERBS_ATTR_UHW_IN);
  context.devx = (asked.flags & MLX5_IB_ALLOC_UCTX_DEVX) != 0;
  // The kernel's mlx5_ib_devx_create, of a card without user contexts.
  if (context.devx && !options.features.devx) return EINVAL;
  call.Answer(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, kCompletionVectors);
  call.Answer(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT,
              uint64_t{IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS});
  const bool inlines_nothing = options.eth_min_inline == Device::MinInline::kNone;
  call.Answer(
      UVERBS_ATTR_UHW_OUT,
      mlx5_ib_alloc_ucontext_resp{
          .qp_tab_size = options.limits.qps,
          .bf_reg_size = options.features.blueflame ? 512u : 0u,
          .tot_bfregs = 0,  // UARs are objects of their own, as with every recent kernel.
          .cache_line_size = 64,
          .max_sq_desc_sz = 1008,  // 63 segments of 16 bytes: six bits of the control segment.
          .max_rq_desc_sz = 512,
          .max_send_wqebb = options.limits.wqebbs,
          .max_recv_wr = options.limits.wqebbs,
          // Else libmlx5 would call an SRQ malformed; the command says that there are none.
          .max_srq_recv_wr = options.limits.wqebbs,
          .num_ports = 1,
          .comp_mask = uint32_t{MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_CORE_CLOCK_OFFSET} |
                       (options.features.real_time_clock
                            ? uint32_t{MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_REAL_TIME_TS}
                            : 0u),
          .response_length = sizeof(mlx5_ib_alloc_ucontext_resp),
          .cqe_version = 1,  // CQEs name the queue by user index.
          .cmds_supp_uhw = MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE,
          .eth_min_inline = static_cast<uint8_t>(inlines_nothing ? MLX5_USER_INLINE_MODE_NONE
                                                                 : MLX5_USER_INLINE_MODE_L2),
          .clock_info_versions = static_cast<uint8_t>(
              options.features.clock_info ? 1 << MLX5_IB_CLOCK_INFO_V1 : 0),
          .hca_core_clock_offset = 0,
          .log_uar_size = 12,
          .num_uars_per_page = 1,
          .num_dyn_bfregs = options.limits.uars,
      });
  return 0;
}

int QueryDevice(Context& context, const VerbsCall& call) {
  call.Answer(UVERBS_ATTR_CORE_OUT, DeviceAttributes(context));
  return 0;
}

int QueryDeviceExtended(Context& context, const VerbsCall& call) {
  const Device::Options& options = context.device->options();
  const Device::Features& features = options.features;
  constexpr uint64_t kTimestampMask = ~uint64_t{0} >> 1;  // What libmlx5 strips to.
  const uint32_t raw_packet_caps =
      (features.checksum_offload ? uint32_t{IB_UVERBS_RAW_PACKET_CAP_IP_CSUM} : 0u) |
      (features.vlan_stripping ? uint32_t{IB_UVERBS_RAW_PACKET_CAP_CVLAN_STRIPPING} : 0u);
  ib_uverbs_ex_query_device_resp answer{
      .base = DeviceAttributes(context),
      .response_length = sizeof(ib_uverbs_ex_query_device_resp),
      .timestamp_mask = features.timestamps ? kTimestampMask : 0,
      .hca_core_clock = features.timestamps ? options.hca_core_clock_khz : 0,
      .device_cap_flags_ex = CapabilityFlags(features),
      .raw_packet_caps = raw_packet_caps,
      .cq_moderation_caps = {.max_cq_moderation_count = 0xffff,
                             .max_cq_moderation_period = kMaxModerationPeriod},
      .max_dm_size = options.limits.device_memory_bytes,
  };
  if (!features.cq_moderation) answer.cq_moderation_caps = {};
  if (features.receive_scaling) {
    answer.rss_caps = {.supported_qpts = kRawPacket,
                       .max_rwq_indirection_tables = options.limits.qps,
                       .max_rwq_indirection_table_size = options.limits.indirection_entries};
    answer.max_wq_type_rq = options.limits.qps;
  }
  call.Answer(UVERBS_ATTR_CORE_OUT, answer);
  call.Answer(UVERBS_ATTR_UHW_OUT, VendorAttributes(options));
  return 0;
}

int QueryPort(Context& context, const VerbsCall& call) {
  if (call.Get<uint64_t>(UVERBS_ATTR_QUERY_PORT_PORT_NUM) != 1) return EINVAL;
  const Device::PortState port = context.device->Port();
  ib_uverbs_query_port_resp_ex answer{};
  answer.legacy_resp = {
      .port_cap_flags = IB_UVERBS_PCF_CM_SUP | IB_UVERBS_PCF_IP_BASED_GIDS,
      .max_msg_sz = 1u << 30,
      .gid_tbl_len = static_cast<uint32_t>(context.identity->gids.size()),
      .pkey_tbl_len = 1,
      .state = static_cast<uint8_t>(port.up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN),
      .max_mtu = IBV_MTU_4096,
      .active_mtu = static_cast<uint8_t>(RoceMtu(port.mtu)),
      .max_vl_num = 1,
      .active_width = 2,                                    // 4 lanes
      .active_speed = 32,                                   // EDR, 25 Gb/s each
      .phys_state = static_cast<uint8_t>(port.up ? 5 : 3),  // LinkUp, Disabled
      .link_layer = IBV_LINK_LAYER_ETHERNET,
  };
  call.Answer(UVERBS_ATTR_QUERY_PORT_RESP, answer);
  return 0;
}

int QueryGidEntry(Context& context, const VerbsCall& call) {
  const auto port = call.Get<uint64_t>(UVERBS_ATTR_QUERY_GID_ENTRY_PORT);
  const auto index = call.Get<uint64_t>(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX);
  if (port != 1 || !index) return EINVAL;
  // ENODATA would be an empty entry, which ibv_query_gid(3) calls a GID of zeros.
  if (*index >= context.identity->gids.size()) return EINVAL;
  const ib_uverbs_gid_entry entry = GidEntry(*context.identity, static_cast<uint32_t>(*index));
  call.Answer(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, entry);
  return 0;
}

int QueryGidTable(Context& context, const VerbsCall& call) {
  const auto entry_bytes = call.Get<uint64_t>(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE);
  if (!entry_bytes || *entry_bytes < sizeof(ib_uverbs_gid_entry)) return EINVAL;
  const size_t room =
      call.Output(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES).size() / *entry_bytes;
  const size_t count = context.identity->gids.size();
  if (count > room) return EINVAL;
  std::vector<std::byte> table(count * *entry_bytes);
  for (size_t i = 0; i < count; ++i) {
    const ib_uverbs_gid_entry entry = GidEntry(*context.identity, static_cast<uint32_t>(i));
    std::memcpy(table.data() + i * *entry_bytes, &entry, sizeof(entry));
  }
  call.AnswerBytes(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, table);
  call.Answer(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, uint64_t{count});
  return 0;
}

int AllocAsyncEvents(Context& context, const VerbsCall& call) {
  context.async_events = EventChannel::Create(sizeof(ib_uverbs_async_event_desc));
  if (context.async_events == nullptr) return EMFILE;
  if (context.port_events != nullptr) context.device->Unsubscribe(context.port_events.get());
  context.port_events = std::make_unique<PortEvents>(context.async_events);
  context.device->Subscribe(context.port_events.get());
  call.AnswerHandle(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE,
                    static_cast<uint32_t>(context.async_events->program_fd()));
  return 0;
}

}  // namespace xtreme::connectx
