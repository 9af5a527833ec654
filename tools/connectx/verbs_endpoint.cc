// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/verbs_endpoint.h"

#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace xtreme::connectx {
namespace {

// A test's set-up that fails ends the test, with the verb's name.
void Require(bool made, const char* verb) {
  if (made) return;
  std::perror(verb);
  std::abort();
}

void Put16(uint8_t* at, uint16_t value) {
  at[0] = static_cast<uint8_t>(value >> 8);
  at[1] = static_cast<uint8_t>(value);
}

void Put32(uint8_t* at, uint32_t value) {
  Put16(at, static_cast<uint16_t>(value >> 16));
  Put16(at + 2, static_cast<uint16_t>(value));
}

}  // namespace

ibv_context* OpenDevice(std::string_view name) {
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  ibv_context* context = nullptr;
  for (int i = 0; i < count; ++i) {
    if (name == ibv_get_device_name(devices[i])) context = ibv_open_device(devices[i]);
  }
  if (devices != nullptr) ibv_free_device_list(devices);
  return context;
}

std::vector<uint8_t> UdpFrame(uint16_t destination_port, std::string_view payload) {
  std::vector<uint8_t> frame(kUdpHeadersBytes + payload.size());
  std::copy(kMacB.begin(), kMacB.end(), frame.begin());
  std::copy(kMacA.begin(), kMacA.end(), frame.begin() + 6);
  Put16(&frame[12], 0x0800);
  uint8_t* const ip = &frame[14];
  ip[0] = 0x45;
  Put16(ip + 2, static_cast<uint16_t>(20 + 8 + payload.size()));
  ip[8] = 64;
  ip[9] = IPPROTO_UDP;
  Put32(ip + 12, kIpA);
  Put32(ip + 16, kIpB);
  uint8_t* const udp = ip + 20;
  Put16(udp, 4000);
  Put16(udp + 2, destination_port);
  Put16(udp + 4, static_cast<uint16_t>(8 + payload.size()));
  std::copy(payload.begin(), payload.end(), frame.begin() + kUdpHeadersBytes);
  return frame;
}

Endpoint::Endpoint(std::string_view device, const Options& options)
    : memory_(2 * options.queue_depth * kSlotBytes), depth_(options.queue_depth) {
  context_ = OpenDevice(device);
  Require(context_ != nullptr, "ibv_open_device");
  pd_ = ibv_alloc_pd(context_);
  Require(pd_ != nullptr, "ibv_alloc_pd");
  const int access = IBV_ACCESS_LOCAL_WRITE;  // The macro ibv_reg_mr would mix enumerations.
  region_ = ibv_reg_mr(pd_, memory_.data(), memory_.size(), access);
  Require(region_ != nullptr, "ibv_reg_mr");
  CreateQueues(options);
  MoveToReadyToSend();
}

Endpoint::~Endpoint() {
  Require(ibv_destroy_qp(qp_) == 0, "ibv_destroy_qp");
  Require(ibv_destroy_cq(receive_cq_) == 0, "ibv_destroy_cq");
  Require(ibv_destroy_cq(send_cq_) == 0, "ibv_destroy_cq");
  if (channel_ != nullptr) {
    Require(ibv_destroy_comp_channel(channel_) == 0, "ibv_destroy_comp_channel");
  }
  Require(ibv_dereg_mr(region_) == 0, "ibv_dereg_mr");
  Require(ibv_dealloc_pd(pd_) == 0, "ibv_dealloc_pd");
  Require(ibv_close_device(context_) == 0, "ibv_close_device");
}

void Endpoint::CreateQueues(const Options& options) {
  if (options.completion_channel) {
    channel_ = ibv_create_comp_channel(context_);
    Require(channel_ != nullptr, "ibv_create_comp_channel");
  }
  send_cq_ = ibv_create_cq(context_, options.queue_depth, nullptr, nullptr, 0);
  receive_cq_ = ibv_create_cq(context_, options.queue_depth, nullptr, channel_, 0);
  Require(send_cq_ != nullptr && receive_cq_ != nullptr, "ibv_create_cq");
  ibv_qp_init_attr_ex attributes{.send_cq = send_cq_,
                                 .recv_cq = receive_cq_,
                                 .cap = {.max_send_wr = static_cast<uint32_t>(options.queue_depth),
                                         .max_recv_wr = static_cast<uint32_t>(options.queue_depth),
                                         .max_send_sge = 2,
                                         .max_recv_sge = 1,
                                         .max_inline_data = 128},
                                 .qp_type = IBV_QPT_RAW_PACKET,
                                 .comp_mask = IBV_QP_INIT_ATTR_PD,
                                 .pd = pd_};
  mlx5dv_qp_init_attr vendor{.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
                             .create_flags = options.create_flags};
  qp_ = options.create_flags == 0 ? ibv_create_qp_ex(context_, &attributes)
                                  : mlx5dv_create_qp(context_, &attributes, &vendor);
  Require(qp_ != nullptr, "ibv_create_qp");
}

void Endpoint::MoveToReadyToSend() {
  ibv_qp_attr attributes{.qp_state = IBV_QPS_INIT, .port_num = 1};
  Require(ibv_modify_qp(qp_, &attributes, IBV_QP_STATE | IBV_QP_PORT) == 0, "INIT");
  for (ibv_qp_state state : {IBV_QPS_RTR, IBV_QPS_RTS}) {
    attributes = {.qp_state = state};
    Require(ibv_modify_qp(qp_, &attributes, IBV_QP_STATE) == 0, "RTR, RTS");
  }
}

void Endpoint::PostReceive(int slot) {
  uint8_t* const start = memory_.data() + (depth_ + slot) * kSlotBytes;
  ibv_sge element{.addr = reinterpret_cast<uint64_t>(start),
                  .length = kSlotBytes,
                  .lkey = region_->lkey};
  ibv_recv_wr request{.wr_id = static_cast<uint64_t>(slot), .sg_list = &element, .num_sge = 1};
  ibv_recv_wr* bad = nullptr;
  Require(ibv_post_recv(qp_, &request, &bad) == 0, "ibv_post_recv");
}

int Endpoint::Send(int slot, std::span<const uint8_t> frame, unsigned flags) {
  uint8_t* const start = memory_.data() + slot * kSlotBytes;
  std::copy(frame.begin(), frame.end(), start);
  ibv_sge element{.addr = reinterpret_cast<uint64_t>(start),
                  .length = static_cast<uint32_t>(frame.size()),
                  .lkey = region_->lkey};
  ibv_send_wr request{.wr_id = static_cast<uint64_t>(slot),
                      .sg_list = &element,
                      .num_sge = 1,
                      .opcode = IBV_WR_SEND,
                      .send_flags = IBV_SEND_SIGNALED | flags};
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp_, &request, &bad);
}

ibv_flow* Endpoint::Listen(uint16_t port, uint32_t tag) {
  struct Rule {
    ibv_flow_attr attributes;
    ibv_flow_spec_eth ethernet;
    ibv_flow_spec_ipv4 ip;
    ibv_flow_spec_tcp_udp udp;
    ibv_flow_spec_action_tag tag;
  } rule{};
  rule.attributes.size = sizeof(rule);
  rule.attributes.num_of_specs = 4;
  rule.attributes.port = 1;
  rule.ethernet.type = IBV_FLOW_SPEC_ETH;
  rule.ethernet.size = sizeof(rule.ethernet);
  std::memcpy(rule.ethernet.val.dst_mac, kMacB.data(), kMacB.size());
  std::memset(rule.ethernet.mask.dst_mac, 0xff, kMacB.size());
  rule.ip.type = IBV_FLOW_SPEC_IPV4;
  rule.ip.size = sizeof(rule.ip);
  rule.ip.val.dst_ip = htobe32(kIpB);
  rule.ip.mask.dst_ip = 0xffffffff;
  rule.udp.type = IBV_FLOW_SPEC_UDP;
  rule.udp.size = sizeof(rule.udp);
  rule.udp.val.dst_port = htobe16(port);
  rule.udp.mask.dst_port = 0xffff;
  rule.tag.type = IBV_FLOW_SPEC_ACTION_TAG;
  rule.tag.size = sizeof(rule.tag);
  rule.tag.tag_id = tag;
  return ibv_create_flow(qp_, &rule.attributes);
}

ibv_wc Endpoint::Poll(ibv_cq* cq) {
  ibv_wc completion{};
  if (ibv_poll_cq(cq, 1, &completion) != 1) completion.status = IBV_WC_GENERAL_ERR;
  return completion;
}

std::span<const uint8_t> Endpoint::received(int slot, size_t length) const {
  return std::span(memory_).subspan((depth_ + slot) * kSlotBytes, length);
}

}  // namespace xtreme::connectx
