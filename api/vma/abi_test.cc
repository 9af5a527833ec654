// SPDX-License-Identifier: Apache-2.0
//
// Where every member of VMA's structures stands, as programs compiled against VMA 9.8 have it.

#include <mellanox/vma_extra.h>
#ifdef _SYS_UIO_H
#error "the header declares readv() and writev(), which sockperf has macros for when it includes it"
#endif

#include <array>
#include <cstddef>

#include "gtest/gtest.h"

namespace xtreme::vma {
namespace {

// offsetof of a packed structure's flexible array member included.
#define AT(type, member, offset) static_assert(offsetof(type, member) == (offset))

AT(vma_buff_t, next, 0);
AT(vma_buff_t, payload, 8);
AT(vma_buff_t, len, 16);
static_assert(sizeof(vma_buff_t) == 24);

AT(vma_packet_desc_t, num_bufs, 0);
AT(vma_packet_desc_t, total_len, 8);
AT(vma_packet_desc_t, buff_lst, 16);
AT(vma_packet_desc_t, hw_timestamp, 24);
static_assert(sizeof(vma_packet_desc_t) == 40);

AT(vma_completion_t, packet, 0);
AT(vma_completion_t, events, 40);
AT(vma_completion_t, user_data, 48);
AT(vma_completion_t, src, 56);
AT(vma_completion_t, listen_fd, 72);
static_assert(sizeof(vma_completion_t) == 80);

AT(vma_packet_t, packet_id, 0);
AT(vma_packet_t, sz_iov, 8);
static_assert(sizeof(vma_packet_t) == 16);
static_assert(sizeof(vma_packets_t) == 8);

AT(vma_info_t, struct_sz, 0);
AT(vma_info_t, packet_id, 8);
AT(vma_info_t, src, 16);
AT(vma_info_t, dst, 24);
AT(vma_info_t, payload_sz, 32);
AT(vma_info_t, socket_ready_packets, 40);
AT(vma_info_t, socket_ready_bytes, 44);
AT(vma_info_t, hw_timestamp, 48);
AT(vma_info_t, sw_timestamp, 64);
static_assert(sizeof(vma_info_t) == 80);

AT(vma_rate_limit_t, rate, 0);
AT(vma_rate_limit_t, max_burst_sz, 4);
AT(vma_rate_limit_t, typical_pkt_sz, 8);
static_assert(sizeof(vma_rate_limit_t) == 12);

AT(vma_ring_alloc_logic_attr, comp_mask, 0);
AT(vma_ring_alloc_logic_attr, ring_alloc_logic, 4);
AT(vma_ring_alloc_logic_attr, ring_profile_key, 8);
AT(vma_ring_alloc_logic_attr, user_id, 12);
static_assert(sizeof(vma_ring_alloc_logic_attr) == 20);

AT(vma_modify_ring_attr, comp_bit_mask, 0);
AT(vma_modify_ring_attr, ring_fd, 4);
AT(vma_modify_ring_attr, cq_moderation, 8);
static_assert(sizeof(vma_modify_ring_attr) == 16);

AT(vma_ring_type_attr, comp_mask, 0);
AT(vma_ring_type_attr, ring_type, 4);
AT(vma_ring_type_attr, ring_pktq, 8);
static_assert(sizeof(vma_ring_type_attr) == 12);

AT(hw_cq_data, buf, 0);
AT(hw_cq_data, dbrec, 8);
AT(hw_cq_data, cq_size, 16);
AT(hw_cq_data, cqe_size, 20);
AT(hw_cq_data, cqn, 24);
AT(hw_cq_data, uar, 32);
AT(hw_cq_data, cons_idx, 40);
static_assert(sizeof(hw_cq_data) == 48);
AT(hw_wq_data, buf, 0);
AT(hw_wq_data, wqe_cnt, 8);
AT(hw_wq_data, stride, 12);
AT(hw_wq_data, dbrec, 16);
AT(hw_wq_data, cq_data, 24);
static_assert(sizeof(hw_wq_data) == 72);
AT(hw_sq_data, sq_num, 72);
AT(hw_sq_data, bf, 80);
static_assert(sizeof(hw_sq_data) == 96);
AT(hw_rq_data, head, 72);
AT(hw_rq_data, tail, 80);
static_assert(sizeof(hw_rq_data) == 88);
AT(vma_mlx_hw_device_data, dev_data, 4);
AT(vma_mlx_hw_device_data, sq_data, 16);
AT(vma_mlx_hw_device_data, rq_data, 112);
static_assert(sizeof(vma_mlx_hw_device_data) == 200);

AT(vma_cmsg_ioctl_user_alloc_t, memalloc, 1);
AT(vma_cmsg_ioctl_user_alloc_t, memfree, 9);
static_assert(sizeof(vma_cmsg_ioctl_user_alloc_t) == 17);

AT(vma_api_t, register_recv_callback, 0);
AT(vma_api_t, recvfrom_zcopy, 8);
AT(vma_api_t, free_packets, 16);
AT(vma_api_t, add_conf_rule, 24);
AT(vma_api_t, thread_offload, 32);
AT(vma_api_t, socketxtreme_poll, 40);
AT(vma_api_t, get_socket_rings_num, 48);
AT(vma_api_t, get_socket_rings_fds, 56);
AT(vma_api_t, get_socket_tx_ring_fd, 64);
AT(vma_api_t, socketxtreme_free_vma_packets, 72);
AT(vma_api_t, socketxtreme_ref_vma_buff, 80);
AT(vma_api_t, socketxtreme_free_vma_buff, 88);
AT(vma_api_t, dump_fd_stats, 96);
AT(vma_api_t, vma_add_ring_profile, 104);
AT(vma_api_t, get_socket_network_header, 112);
AT(vma_api_t, get_ring_direct_descriptors, 120);
AT(vma_api_t, register_memory_on_ring, 128);
AT(vma_api_t, deregister_memory_on_ring, 136);
AT(vma_api_t, vma_modify_ring, 144);
AT(vma_api_t, vma_extra_supported_mask, 152);
AT(vma_api_t, ioctl, 160);
static_assert(sizeof(vma_api_t) == 168);

#undef AT

TEST(AbiTest, ConstantsAreThoseThatProgramsWereCompiledWith) {
  constexpr std::array kOptions = {SO_VMA_GET_API,          SO_VMA_USER_DATA,
                                   SO_VMA_RING_ALLOC_LOGIC, SO_VMA_RING_USER_MEMORY,
                                   SO_VMA_FLOW_TAG,         SO_VMA_SHUTDOWN_RX};
  EXPECT_EQ(kOptions, (std::array{2800, 2801, 2810, 2811, 2820, 2821}));
  EXPECT_EQ(VMA_SOCKETXTREME_PACKET, uint64_t{1} << 32);
  EXPECT_EQ(VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED, uint64_t{1} << 33);
  EXPECT_EQ(MSG_VMA_ZCOPY_FORCE, 0x01000000);
  EXPECT_EQ(MSG_VMA_ZCOPY, 0x00040000);
  EXPECT_EQ(VMA_SND_FLAGS_DUMMY, int{MSG_SYN});
  EXPECT_EQ((std::array{VMA_PACKET_DROP, VMA_PACKET_RECV, VMA_PACKET_HOLD}),
            (std::array{vma_recv_callback_retval_t(0), vma_recv_callback_retval_t(1),
                        vma_recv_callback_retval_t(2)}));
}

TEST(AbiTest, BitfieldsOfTheAllocationLogicStandInTheFifthWord) {
  vma_ring_alloc_logic_attr attributes{};
  attributes.ingress = 1;
  EXPECT_EQ(reinterpret_cast<const uint32_t*>(&attributes)[4], 1u);
  attributes.engress = 1;
  EXPECT_EQ(reinterpret_cast<const uint32_t*>(&attributes)[4], 3u);
}

TEST(AbiTest, AMaskOfAllThereIsIsTheNewestVersions) {
  EXPECT_EQ(VMA_EXTRA_API_IOCTL | VMA_EXTRA_API_MODIFY_RING |
                (VMA_EXTRA_API_DEREGISTER_MEMORY_ON_RING * 2 - 1 -
                 (1 << 15)),  // Bit 15 was a ring type that is gone.
            0x377fff);
}

// Nobody offers it in this process: the kernel refuses the option.
TEST(AbiTest, WithoutALibraryThatOffersItThereIsNoApi) { EXPECT_EQ(vma_get_api(), nullptr); }

}  // namespace
}  // namespace xtreme::vma
