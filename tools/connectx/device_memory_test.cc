// SPDX-License-Identifier: Apache-2.0
//
// On-device memory through plain verbs: allocated, copied to, registered, sent from.

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tools/connectx/connectx.h"
#include "tools/connectx/connectx_rig.h"
#include "tools/connectx/verbs_endpoint.h"

namespace xtreme::connectx {
namespace {

constexpr int kZeroBased = IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE;

// libmlx5 copies the inline header by CPU from the segment's address, which on-device memory does
// not have: it is sent from only where no header has to be inline.
Device::Options NoInline(uint64_t bytes = 131'072) {
  Device::Options options;
  options.eth_min_inline = Device::MinInline::kNone;
  options.limits.device_memory_bytes = bytes;
  return options;
}

ibv_dm* Alloc(ibv_context* context, size_t bytes) {
  ibv_alloc_dm_attr attributes{.length = bytes};
  return ibv_alloc_dm(context, &attributes);
}

int SendFrom(Endpoint& from, const ibv_mr* region, uint64_t offset, uint32_t bytes) {
  ibv_sge element{.addr = offset, .length = bytes, .lkey = region->lkey};
  ibv_send_wr request{.wr_id = 7,
                      .sg_list = &element,
                      .num_sge = 1,
                      .opcode = IBV_WR_SEND,
                      .send_flags = IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM};
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(from.qp(), &request, &bad);
}

class DeviceMemoryVerbsTest : public testing::Test {
 protected:
  ConnectXRig connectx_{SoftwareConnectX::Mode::kStep, {}, NoInline()};
};

TEST_F(DeviceMemoryVerbsTest, FrameCopiedIntoItIsSentFromIt) {
  {
    Endpoint a("mlx5_0");
    Endpoint b("mlx5_1");
    ibv_flow* flow = b.Listen(5000, 1);
    ASSERT_NE(flow, nullptr);
    b.PostReceive(0);
    ibv_dm* dm = Alloc(a.context(), 4096);
    ASSERT_NE(dm, nullptr);
    std::vector<uint8_t> frame = UdpFrame(5000, std::string(1022, 'd'));
    ASSERT_EQ(frame.size() % 4, 0u);
    EXPECT_EQ(ibv_memcpy_to_dm(dm, 64, frame.data(), frame.size()), 0);
    // The region starts 64 bytes into the memory, and its addresses at 0.
    ibv_mr* region = ibv_reg_dm_mr(a.pd(), dm, 64, 2048, kZeroBased);
    ASSERT_NE(region, nullptr);
    ASSERT_EQ(SendFrom(a, region, 0, static_cast<uint32_t>(frame.size())), 0);
    connectx_->Step(1000);
    EXPECT_EQ(Endpoint::Poll(a.send_cq()).status, IBV_WC_SUCCESS);
    const ibv_wc received = Endpoint::Poll(b.receive_cq());
    ASSERT_EQ(received.status, IBV_WC_SUCCESS);
    ASSERT_EQ(received.byte_len, frame.size());
    EXPECT_EQ(b.received(0, frame.size()).back(), 'd');
    EXPECT_EQ(ibv_dereg_mr(region), 0);
    EXPECT_EQ(ibv_free_dm(dm), 0);
    EXPECT_EQ(ibv_destroy_flow(flow), 0);
  }
  connectx_.ExpectClean();
}

TEST_F(DeviceMemoryVerbsTest, CopiesTakeWordsAtWordsWithinTheAllocation) {
  Endpoint a("mlx5_0");
  ibv_dm* dm = Alloc(a.context(), 1024);
  ASSERT_NE(dm, nullptr);
  std::vector<uint8_t> out(1024, 0x5a);
  std::vector<uint8_t> in(1024);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 0, out.data(), 1024), 0);
  EXPECT_EQ(ibv_memcpy_from_dm(in.data(), dm, 0, 1024), 0);
  EXPECT_EQ(in, out);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 2, out.data(), 4), EINVAL);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 0, out.data(), 6), EINVAL);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 4, out.data(), 1024), EFAULT);
  EXPECT_EQ(ibv_free_dm(dm), 0);
}

TEST_F(DeviceMemoryVerbsTest, WhatTheProgramsHoldTogetherIsTheLimit) {
  ibv_context* first = OpenDevice("mlx5_0");
  ibv_context* second = OpenDevice("mlx5_0");
  ibv_device_attr_ex attributes{};
  ASSERT_EQ(ibv_query_device_ex(first, nullptr, &attributes), 0);
  ASSERT_EQ(attributes.max_dm_size, 131'072u);
  ibv_dm* most = Alloc(first, 131'072 - 4096);
  ASSERT_NE(most, nullptr);
  EXPECT_EQ(Alloc(second, 8192), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(Alloc(second, 131'073), nullptr);
  EXPECT_EQ(errno, EINVAL) << "more than the device has: libmlx5 refuses it";
  ibv_dm* rest = Alloc(second, 4096);
  EXPECT_NE(rest, nullptr);
  EXPECT_EQ(ibv_free_dm(rest), 0);
  EXPECT_EQ(ibv_free_dm(most), 0);
  EXPECT_EQ(ibv_close_device(second), 0);
  EXPECT_EQ(ibv_close_device(first), 0);
  connectx_.ExpectClean();
}

TEST_F(DeviceMemoryVerbsTest, MemoryWithARegionIsNotFreed) {
  Endpoint a("mlx5_0");
  ibv_dm* dm = Alloc(a.context(), 4096);
  ibv_mr* region = ibv_reg_dm_mr(a.pd(), dm, 0, 4096, kZeroBased);
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(ibv_free_dm(dm), EBUSY);
  EXPECT_EQ(ibv_dereg_mr(region), 0);
  EXPECT_EQ(ibv_free_dm(dm), 0);
}

TEST_F(DeviceMemoryVerbsTest, RegionsAreZeroBasedAndLieInTheAllocation) {
  Endpoint a("mlx5_0");
  ibv_dm* dm = Alloc(a.context(), 1000);
  EXPECT_EQ(ibv_reg_dm_mr(a.pd(), dm, 0, 1000, IBV_ACCESS_LOCAL_WRITE), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_reg_dm_mr(a.pd(), dm, 0, 1001, kZeroBased), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_reg_dm_mr(a.pd(), dm, 1004, 4, kZeroBased), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_free_dm(dm), 0);
}

TEST_F(DeviceMemoryVerbsTest, SendBeyondTheRegionIsAProtectionError) {
  Endpoint a("mlx5_0");
  ibv_dm* dm = Alloc(a.context(), 4096);
  ibv_mr* region = ibv_reg_dm_mr(a.pd(), dm, 0, 256, kZeroBased);
  ASSERT_EQ(SendFrom(a, region, 128, 129), 0);
  connectx_->Step();
  EXPECT_EQ(Endpoint::Poll(a.send_cq()).status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(ibv_dereg_mr(region), 0);
  EXPECT_EQ(ibv_free_dm(dm), 0);
}

// The kernel keeps freed memory alive while it is mapped; libmlx5 unmaps it itself.
TEST_F(DeviceMemoryVerbsTest, DirectVerbsShowsWhereItIsMapped) {
  ibv_context* context = OpenDevice("mlx5_0");
  ibv_dm* dm = Alloc(context, 256);
  mlx5dv_dm shown{};
  mlx5dv_obj object{.dm = {.in = dm, .out = &shown}};
  ASSERT_EQ(mlx5dv_init_obj(&object, MLX5DV_OBJ_DM), 0);
  EXPECT_EQ(shown.length, 256u);
  auto* words = static_cast<volatile uint32_t*>(shown.buf);
  words[63] = 0x12345678;
  uint32_t read = 0;
  EXPECT_EQ(ibv_memcpy_from_dm(&read, dm, 252, 4), 0);
  EXPECT_EQ(read, 0x12345678u);
  EXPECT_EQ(ibv_free_dm(dm), 0);
  EXPECT_EQ(ibv_close_device(context), 0);
}

TEST(DeviceWithoutMemory, OffersNoneAndRefusesIt) {
  ConnectXRig connectx(SoftwareConnectX::Mode::kStep, {}, NoInline(0));
  ibv_context* context = OpenDevice("mlx5_0");
  ibv_device_attr_ex attributes{};
  ASSERT_EQ(ibv_query_device_ex(context, nullptr, &attributes), 0);
  EXPECT_EQ(attributes.max_dm_size, 0u);
  EXPECT_EQ(Alloc(context, 64), nullptr);
  EXPECT_EQ(ibv_close_device(context), 0);
}

}  // namespace
}  // namespace xtreme::connectx
