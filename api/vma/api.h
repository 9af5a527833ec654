// SPDX-License-Identifier: Apache-2.0
//
// What stands behind vma_get_api(): VMA's functions, which translate; the sockets do the work.

#ifndef XTREME_API_VMA_API_H_
#define XTREME_API_VMA_API_H_

#include <mellanox/vma_extra.h>

namespace xtreme::vma {

// The process' own; never null.
vma_api_t* Api();

// The members (ring_calls.cc, packet_calls.cc, control_calls.cc, device_calls.cc).
int SocketxtremePoll(int fd, vma_completion_t* completions, unsigned most, int flags);
int FreeVmaPackets(vma_packet_desc_t* packets, int count);
// In a program that has one thread.
int FreeVmaPacketsAlone(vma_packet_desc_t* packets, int count);
int RefVmaBuff(vma_buff_t* buff);
int FreeVmaBuff(vma_buff_t* buff);
int GetSocketRingsNum(int fd);
int GetSocketRingsFds(int fd, int* fds, int size);
int GetSocketTxRingFd(int fd, sockaddr* to, socklen_t length);
int RegisterRecvCallback(int fd, vma_recv_callback_t callback, void* context);
int RecvfromZcopy(int fd, void* to, size_t size, int* flags, sockaddr* from,
                  socklen_t* from_length);
int FreePackets(int fd, vma_packet_t* packets, size_t count);
int AddConfRule(const char* line);
int ThreadOffload(int offload, pthread_t thread);
int DumpFdStats(int fd, int log_level);
int AddRingProfile(vma_ring_type_attr* profile, vma_ring_profile_key* key);
int GetNetworkHeader(int fd, void* to, uint16_t* length);
int GetDirectDescriptors(int fd, vma_mlx_hw_device_data* descriptors);
int RegisterMemory(int fd, void* start, size_t length, uint32_t* key);
int DeregisterMemory(int fd, void* start, size_t length);
int ModifyRing(vma_modify_ring_attr* change);
int Ioctl(void* message, size_t length);

}  // namespace xtreme::vma

#endif  // XTREME_API_VMA_API_H_
