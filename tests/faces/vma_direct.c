/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring whose queues are the program's: its own WQE sends out of memory that it had registered,
 * the answer is found in the receive queue's CQEs (PRM: SEND WQE, Ethernet segment, CQE).
 */
#include <endian.h>
#include <stdatomic.h>

#include "tests/faces/vma_program.h"

enum { kHeaderBytes = 42, kPayloadBytes = 22, kInlineBytes = 18 };
static const char kText[kPayloadBytes] = "out of my own memory!";
/* Of SO_VMA_FLOW_TAG. */
enum { kTag = 0x123456, kGroupTag = 0xFEDCBA };
static const char kGroup[] = "239.1.2.3";

static void CheckTags(int fd) {
  uint32_t tag = 7;
  socklen_t length = sizeof tag;
  CHECK(getsockopt(fd, SOL_SOCKET, SO_VMA_FLOW_TAG, &tag, &length) == 0 && tag == 0);
  CHECK_FAILS(setsockopt(fd, SOL_SOCKET, SO_VMA_FLOW_TAG, &tag, sizeof tag), EINVAL);
  const uint32_t beyond[] = {(1 << 20) - 1, 1 << 24};
  for (int i = 0; i < 2; ++i) {
    CHECK_FAILS(setsockopt(fd, SOL_SOCKET, SO_VMA_FLOW_TAG, &beyond[i], sizeof tag), EINVAL);
  }
  tag = kTag;
  CHECK_FAILS(setsockopt(fd, SOL_SOCKET, SO_VMA_FLOW_TAG, &tag, 2), EINVAL);
  CHECK_FAILS(setsockopt(fd, SOL_SOCKET, SO_VMA_FLOW_TAG, NULL, sizeof tag), EINVAL);
  CHECK(setsockopt(fd, SOL_SOCKET, SO_VMA_FLOW_TAG, &tag, sizeof tag) == 0);
  tag = 0;
  CHECK(getsockopt(fd, SOL_SOCKET, SO_VMA_FLOW_TAG, &tag, &length) == 0 && tag == kTag);
  length = 2;
  CHECK_FAILS(getsockopt(fd, SOL_SOCKET, SO_VMA_FLOW_TAG, &tag, &length), EINVAL);
}

/* A socket on an external ring of its own, whose frames have kTag, those to kGroup kGroupTag. */
static int External(void) {
  struct vma_ring_type_attr external = {.ring_type = VMA_RING_EXTERNAL_MEM};
  vma_ring_profile_key key = 0;
  CHECK(vma->vma_add_ring_profile(&external, &key) == 0);
  struct vma_ring_alloc_logic_attr attr = {.comp_mask = VMA_RING_ALLOC_MASK_RING_PROFILE_KEY,
                                           .ring_profile_key = (uint32_t)key};
  const int fd = socket(AF_INET, SOCK_DGRAM, 0);
  CHECK(setsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &attr, sizeof attr) == 0);
  CheckTags(fd);
  Connected(Bound(fd, OURS, 5000), kUdpEcho);
  const uint32_t tag = kGroupTag;
  const struct ip_mreq group = {{inet_addr(kGroup)}, {inet_addr(OURS)}};
  CHECK(setsockopt(fd, SOL_SOCKET, SO_VMA_FLOW_TAG, &tag, sizeof tag) == 0);
  CHECK(setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group) == 0);
  return fd;
}

/* A datagram in `memory`, by the flow's own headers. */
static void WriteFrame(int fd, unsigned char* memory) {
  uint16_t length = kHeaderBytes;
  CHECK(vma->get_socket_network_header(fd, memory, &length) == 0 && length == kHeaderBytes);
  const uint16_t ip_bytes = htons(kHeaderBytes - 14 + kPayloadBytes);
  const uint16_t udp_bytes = htons(8 + kPayloadBytes);
  memcpy(memory + 16, &ip_bytes, 2);
  memcpy(memory + 38, &udp_bytes, 2);
  memcpy(memory + kHeaderBytes, kText, kPayloadBytes);
}

/* Its first bytes inline, as cards want it, the rest gathered; checksums by the card; signalled. */
static void Post(struct hw_sq_data* sq, uint32_t producer, const unsigned char* memory,
                 uint32_t key) {
  unsigned char wqe[64] = {0};
  const uint32_t control[] = {htobe32((producer & 0xFFFF) << 8 | 0x0A),
                              htobe32(sq->sq_num << 8 | 4), htobe32(8)};
  memcpy(wqe, control, sizeof control);
  wqe[20] = 0xC0;
  wqe[29] = kInlineBytes;
  memcpy(wqe + 30, memory, kInlineBytes);
  const uint32_t gather[] = {htobe32(kHeaderBytes + kPayloadBytes - kInlineBytes), htobe32(key)};
  const uint64_t address = htobe64((uint64_t)(uintptr_t)(memory + kInlineBytes));
  memcpy(wqe + 48, gather, sizeof gather);
  memcpy(wqe + 56, &address, sizeof address);
  memcpy((char*)sq->wq_data.buf + (producer & (sq->wq_data.wqe_cnt - 1)) * 64, wqe, sizeof wqe);
  atomic_thread_fence(memory_order_release);
  *sq->wq_data.dbrec = htobe32((producer + 1) & 0xFFFF);
  atomic_thread_fence(memory_order_seq_cst);
  uint64_t doorbell;
  memcpy(&doorbell, wqe, sizeof doorbell);
  *(volatile uint64_t*)((char*)sq->bf.reg + sq->bf.offset) = doorbell;
}

/* The next CQE, taken. */
static const unsigned char* Take(struct hw_cq_data* cq) {
  const uint32_t at = *cq->cons_idx;
  const volatile unsigned char* const cqe =
      (unsigned char*)cq->buf + (at & (cq->cq_size - 1)) * cq->cqe_size;
  const unsigned lap = (at & cq->cq_size) != 0;
  const int64_t end = Now() + 5000000000;
  while ((cqe[63] & 1u) != lap || cqe[63] >> 4 == 0xF) CHECK(Now() < end);
  atomic_thread_fence(memory_order_acquire);
  *cq->cons_idx = at + 1;
  *cq->dbrec = htobe32((at + 1) & 0xFFFFFF);
  return (const unsigned char*)cqe;
}

static void CheckDescriptors(const struct vma_mlx_hw_device_data* data) {
  CHECK(data->vma_hw_data_valid_mask == (DATA_VALID_DEV | DATA_VALID_SQ | DATA_VALID_RQ));
  CHECK(data->dev_data.vendor_id == 0x2c9 && data->dev_data.vendor_part_id != 0);
  CHECK(data->sq_data.wq_data.stride == 64 && data->rq_data.wq_data.stride == 16);
  CHECK(data->sq_data.wq_data.cq_data.cqe_size == 64);
  const uint32_t posted = *data->rq_data.head - *data->rq_data.tail;
  CHECK(posted > 0 && posted <= data->rq_data.wq_data.wqe_cnt);
}

static void CheckMemory(int ring, int common) {
  static unsigned char memory[4096];
  uint32_t key = 0;
  CHECK_FAILS(vma->register_memory_on_ring(ring, NULL, 4096, &key), EINVAL);
  CHECK_FAILS(vma->register_memory_on_ring(ring, memory, 0, &key), EINVAL);
  CHECK_FAILS(vma->register_memory_on_ring(0, memory, sizeof memory, &key), EINVAL);
  CHECK_FAILS(vma->deregister_memory_on_ring(ring, memory, sizeof memory), ENOENT);
  /* A common ring registers, too. */
  CHECK(vma->register_memory_on_ring(common, memory, sizeof memory, &key) == 0);
  CHECK_FAILS(vma->register_memory_on_ring(common, memory, sizeof memory, &key), EEXIST);
  CHECK(vma->deregister_memory_on_ring(common, memory, sizeof memory) == 0);
}

/* Sends the frame in `memory`; its answer, whose CQE has `tag`. */
static void Exchange(struct vma_mlx_hw_device_data* data, const unsigned char* memory,
                     uint32_t key, uint32_t tag) {
  /* The producer, in WQEBBs, is what the doorbell record says. */
  Post(&data->sq_data, be32toh(*data->sq_data.wq_data.dbrec), memory, key);
  data->sq_data.bf.offset ^= data->sq_data.bf.size;
  CHECK(Take(&data->sq_data.wq_data.cq_data)[63] >> 4 == 0);
  const struct hw_wq_data* const rq = &data->rq_data.wq_data;
  const unsigned char* const cqe = Take(&data->rq_data.wq_data.cq_data);
  uint32_t flow_tag;
  memcpy(&flow_tag, cqe + 56, sizeof flow_tag);
  CHECK((be32toh(flow_tag) & 0xFFFFFF) == tag);
  uint16_t counter;
  memcpy(&counter, cqe + 60, sizeof counter);
  const unsigned char* const segment =
      (unsigned char*)rq->buf + (be16toh(counter) & (rq->wqe_cnt - 1)) * rq->stride;
  uint64_t address;
  memcpy(&address, segment + 8, sizeof address);
  const unsigned char* const frame = (unsigned char*)(uintptr_t)be64toh(address);
  CHECK(memcmp(frame + kHeaderBytes, memory + kHeaderBytes, kPayloadBytes) == 0);
}

int main(void) {
  vma = vma_get_api();
  CHECK(vma != NULL);
  static unsigned char memory[4096];
  struct vma_mlx_hw_device_data data, again;
  const int common = RingOf(Asking(5001));
  CHECK_FAILS(vma->get_ring_direct_descriptors(common, &data), EOPNOTSUPP);
  CHECK_FAILS(vma->get_ring_direct_descriptors(0, &data), EINVAL);
  const int fd = External();
  const int ring = RingOf(fd);
  CheckMemory(ring, common);
  WriteFrame(fd, memory);
  uint32_t key = 0;
  CHECK(vma->register_memory_on_ring(ring, memory, sizeof memory, &key) == 0);
  CHECK(vma->get_ring_direct_descriptors(ring, &data) == 0);
  CHECK(vma->get_ring_direct_descriptors(ring, &again) == 0);
  CHECK(data.sq_data.wq_data.buf == again.sq_data.wq_data.buf);
  CHECK(data.sq_data.bf.reg == again.sq_data.bf.reg);
  CHECK(data.rq_data.wq_data.buf == again.rq_data.wq_data.buf);
  CheckDescriptors(&data);
  CHECK_FAILS(send(fd, "x", 1, MSG_DONTWAIT), ENETDOWN);
  Exchange(&data, memory, key, kTag);
  memory[kHeaderBytes] = '@';  /* The peer answers to the group. */
  Exchange(&data, memory, key, kGroupTag);
  CHECK(vma->deregister_memory_on_ring(ring, memory, sizeof memory) == 0);
  printf("done\n");
  return 0;
}
