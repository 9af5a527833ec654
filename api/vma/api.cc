// SPDX-License-Identifier: Apache-2.0

#include "api/vma/api.h"

#include "api/sockets/faces.h"

namespace xtreme::vma {
namespace {

constexpr uint64_t kOffered =
    VMA_EXTRA_API_REGISTER_RECV_CALLBACK | VMA_EXTRA_API_RECVFROM_ZCOPY |
    VMA_EXTRA_API_FREE_PACKETS | VMA_EXTRA_API_ADD_CONF_RULE | VMA_EXTRA_API_THREAD_OFFLOAD |
    VMA_EXTRA_API_DUMP_FD_STATS | VMA_EXTRA_API_SOCKETXTREME_POLL |
    VMA_EXTRA_API_SOCKETXTREME_FREE_VMA_PACKETS | VMA_EXTRA_API_SOCKETXTREME_REF_VMA_BUFF |
    VMA_EXTRA_API_SOCKETXTREME_FREE_VMA_BUFF | VMA_EXTRA_API_GET_SOCKET_RINGS_NUM |
    VMA_EXTRA_API_GET_SOCKET_RINGS_FDS | VMA_EXTRA_API_GET_SOCKET_TX_RING_FD |
    VMA_EXTRA_API_GET_SOCKET_NETWORK_HEADER | VMA_EXTRA_API_GET_RING_DIRECT_DESCRIPTORS |
    VMA_EXTRA_API_ADD_RING_PROFILE | VMA_EXTRA_API_REGISTER_MEMORY_ON_RING |
    VMA_EXTRA_API_DEREGISTER_MEMORY_ON_RING | VMA_EXTRA_API_MODIFY_RING |
    VMA_EXTRA_API_IOCTL;

}  // namespace

vma_api_t* Api() {
  const bool alone = sockets::Faces::The().settings().single_thread;
  static vma_api_t api = {
      .register_recv_callback = RegisterRecvCallback,
      .recvfrom_zcopy = RecvfromZcopy,
      .free_packets = FreePackets,
      .add_conf_rule = AddConfRule,
      .thread_offload = ThreadOffload,
      .socketxtreme_poll = SocketxtremePoll,
      .get_socket_rings_num = GetSocketRingsNum,
      .get_socket_rings_fds = GetSocketRingsFds,
      .get_socket_tx_ring_fd = GetSocketTxRingFd,
      .socketxtreme_free_vma_packets = alone ? FreeVmaPacketsAlone : FreeVmaPackets,
      .socketxtreme_ref_vma_buff = RefVmaBuff,
      .socketxtreme_free_vma_buff = FreeVmaBuff,
      .dump_fd_stats = DumpFdStats,
      .vma_add_ring_profile = AddRingProfile,
      .get_socket_network_header = GetNetworkHeader,
      .get_ring_direct_descriptors = GetDirectDescriptors,
      .register_memory_on_ring = RegisterMemory,
      .deregister_memory_on_ring = DeregisterMemory,
      .vma_modify_ring = ModifyRing,
      .vma_extra_supported_mask = kOffered,
      .ioctl = Ioctl,
  };
  return &api;
}

}  // namespace xtreme::vma
