// SPDX-License-Identifier: Apache-2.0
//
// Direct verbs on a stepped software ConnectX: the addresses that a driver takes from libmlx5 to
// write its own work-queue entries, and the clock.

#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "tools/connectx/connectx.h"
#include "tools/connectx/connectx_rig.h"
#include "tools/connectx/verbs_endpoint.h"

namespace xtreme::connectx {
namespace {

class Mlx5dvTest : public testing::Test {
 protected:
  void TearDown() override { connectx_.ExpectClean(); }

  ConnectXRig connectx_{SoftwareConnectX::Mode::kStep};
};

TEST_F(Mlx5dvTest, QueuePairShowsItsRingsItsRecordAndItsBlueFlameRegister) {
  Endpoint a("mlx5_0");
  mlx5dv_qp queue{.comp_mask = MLX5DV_QP_MASK_UAR_MMAP_OFFSET | MLX5DV_QP_MASK_RAW_QP_HANDLES};
  mlx5dv_obj object{.qp = {.in = a.qp(), .out = &queue}};
  ASSERT_EQ(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP), 0);
  EXPECT_NE(queue.sq.buf, nullptr);
  EXPECT_EQ(queue.sq.stride, 64u);
  EXPECT_EQ(queue.rq.wqe_cnt, 16u);
  EXPECT_EQ(queue.rq.stride, 16u);
  EXPECT_NE(queue.dbrec, nullptr);
  EXPECT_EQ(queue.bf.size, 256u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(queue.bf.reg) % 4096, 0x800u);
  EXPECT_NE(queue.uar_mmap_offset, 0u);
  EXPECT_NE(queue.sqn, 0u);
}

TEST_F(Mlx5dvTest, CompletionQueueShowsItsRingAndItsNumber) {
  Endpoint a("mlx5_0");
  mlx5dv_cq queue{};
  mlx5dv_obj object{.cq = {.in = a.receive_cq(), .out = &queue}};
  ASSERT_EQ(mlx5dv_init_obj(&object, MLX5DV_OBJ_CQ), 0);
  EXPECT_EQ(queue.cqe_size, 64u);
  EXPECT_EQ(queue.cqe_cnt, 32u);  // 16 entries and one more, to a power of two.
  EXPECT_NE(queue.cq_uar, nullptr);
  const auto* first = static_cast<const mlx5_cqe64*>(queue.buf);
  EXPECT_EQ(mlx5dv_get_cqe_opcode(const_cast<mlx5_cqe64*>(first)), MLX5_CQE_INVALID);
}

// The kernel's mlx5_ib_devx_create, of a card without user contexts; programs then go on without.
TEST(DevxTest, DeviceWithoutItRefusesWhoAsksAndOpensForWhoDoesNot) {
  Device::Options options;
  options.features.devx = false;
  ConnectXRig connectx(SoftwareConnectX::Mode::kStep, {}, options);
  ibv_device** const devices = ibv_get_device_list(nullptr);
  ASSERT_NE(devices, nullptr);
  mlx5dv_context_attr attributes{.flags = MLX5DV_CONTEXT_FLAGS_DEVX};
  errno = 0;
  EXPECT_EQ(mlx5dv_open_device(devices[0], &attributes), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_context* const context = ibv_open_device(devices[0]);
  ibv_free_device_list(devices);
  ASSERT_NE(context, nullptr);
  EXPECT_EQ(ibv_close_device(context), 0);
  connectx.ExpectClean();
}

// A NOP written by hand: control segment, doorbell record, then the doorbell.
TEST_F(Mlx5dvTest, HandWrittenNopCompletesOnlyAfterItsDoorbell) {
  Endpoint a("mlx5_0");
  mlx5dv_qp queue{};
  mlx5dv_cq completions{};
  mlx5dv_obj object{.qp = {.in = a.qp(), .out = &queue},
                    .cq = {.in = a.send_cq(), .out = &completions}};
  ASSERT_EQ(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ), 0);
  auto* control = static_cast<mlx5_wqe_ctrl_seg*>(queue.sq.buf);
  mlx5dv_set_ctrl_seg(control, 0, MLX5_OPCODE_NOP, 0, a.qp()->qp_num, MLX5_WQE_CTRL_CQ_UPDATE, 1,
                      0, 0);
  queue.dbrec[MLX5_SND_DBR] = htobe32(1);
  connectx_->Step();
  auto* cqe = static_cast<mlx5_cqe64*>(completions.buf);
  EXPECT_EQ(mlx5dv_get_cqe_opcode(cqe), MLX5_CQE_INVALID);
  uint64_t doorbell;
  std::memcpy(&doorbell, control, sizeof(doorbell));
  *static_cast<volatile uint64_t*>(queue.bf.reg) = doorbell;
  connectx_->Step();
  EXPECT_EQ(mlx5dv_get_cqe_opcode(cqe), MLX5_CQE_REQ);
  EXPECT_EQ(be16toh(cqe->wqe_counter), 0);
}

TEST_F(Mlx5dvTest, EachBlueFlameUarIsAPageOfItsOwn) {
  ibv_context* context = OpenDevice("mlx5_0");
  ASSERT_NE(context, nullptr);
  std::set<uintptr_t> registers;
  std::vector<mlx5dv_devx_uar*> uars;
  for (int i = 0; i < 8; ++i) {
    mlx5dv_devx_uar* uar = mlx5dv_devx_alloc_uar(context, MLX5DV_UAR_ALLOC_TYPE_BF);
    ASSERT_NE(uar, nullptr);
    registers.insert(reinterpret_cast<uintptr_t>(uar->reg_addr));
    uars.push_back(uar);
  }
  EXPECT_EQ(registers.size(), 8u);
  for (mlx5dv_devx_uar* uar : uars) mlx5dv_devx_free_uar(uar);
  EXPECT_EQ(ibv_close_device(context), 0);
}

TEST_F(Mlx5dvTest, ClockReadsTheVirtualTimeAndConvertsToIt) {
  ibv_context* context = OpenDevice("mlx5_0");
  ASSERT_NE(context, nullptr);
  connectx_->Step(5'000'000'123);
  ibv_values_ex values{.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
  ASSERT_EQ(ibv_query_rt_values_ex(context, &values), 0);
  const auto cycles = static_cast<uint64_t>(values.raw_clock.tv_nsec);
  EXPECT_EQ(cycles, connectx_->device(0).HardwareClock());
  mlx5dv_clock_info info{};
  ASSERT_EQ(mlx5dv_get_clock_info(context, &info), 0);
  EXPECT_EQ(mlx5dv_ts_to_ns(&info, cycles), static_cast<uint64_t>(connectx_->clock().Now()));
  EXPECT_EQ(ibv_close_device(context), 0);
}

TEST_F(Mlx5dvTest, DeviceIsAnMlx5OfCqeVersionOne) {
  ibv_context* context = OpenDevice("mlx5_0");
  ASSERT_NE(context, nullptr);
  EXPECT_TRUE(mlx5dv_is_supported(context->device));
  mlx5dv_context attributes{.comp_mask = MLX5DV_CONTEXT_MASK_DYN_BFREGS |
                                         MLX5DV_CONTEXT_MASK_HCA_CORE_CLOCK |
                                         MLX5DV_CONTEXT_MASK_CLOCK_INFO_UPDATE};
  ASSERT_EQ(mlx5dv_query_device(context, &attributes), 0);
  EXPECT_NE(attributes.flags & MLX5DV_CONTEXT_FLAGS_CQE_V1, 0u);
  EXPECT_NE(attributes.max_dynamic_bfregs, 0u);
  EXPECT_NE(attributes.hca_core_clock, nullptr);
  EXPECT_EQ(ibv_close_device(context), 0);
}

}  // namespace
}  // namespace xtreme::connectx
