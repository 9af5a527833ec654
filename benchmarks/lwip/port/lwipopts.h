// SPDX-License-Identifier: Apache-2.0
//
// lwIP's settings as a peer: its leanest UDP and TCP over Ethernet, one thread, no system, no
// checksums (ours are the NIC's); of TCP's options MSS alone, as it comes.
//
// Spec: lwIP's doxygen, "Configuration options".

#ifndef XTREME_BENCHMARKS_LWIP_PORT_LWIPOPTS_H_
#define XTREME_BENCHMARKS_LWIP_PORT_LWIPOPTS_H_

#define NO_SYS 1
#define SYS_LIGHTWEIGHT_PROT 0
#define LWIP_NETCONN 0
#define LWIP_SOCKET 0
#define LWIP_TCP 1
#define LWIP_UDP 1
#define LWIP_ICMP 1
#define LWIP_RAW 0
#define LWIP_STATS 0
#define LWIP_NOASSERT
#define LWIP_SINGLE_NETIF 1
#define LWIP_IGMP 0
#define LWIP_DHCP 0
#define LWIP_AUTOIP 0
#define IP_REASSEMBLY 0
#define IP_FRAG 0
#define ETHARP_SUPPORT_STATIC_ENTRIES 1

#define CHECKSUM_GEN_IP 0
#define CHECKSUM_GEN_UDP 0
#define CHECKSUM_GEN_TCP 0
#define CHECKSUM_GEN_ICMP 0
#define CHECKSUM_CHECK_IP 0
#define CHECKSUM_CHECK_UDP 0
#define CHECKSUM_CHECK_TCP 0
#define CHECKSUM_CHECK_ICMP 0

#define TCP_MSS 1460
#define TCP_WND (44 * TCP_MSS)
#define TCP_SND_BUF (44 * TCP_MSS)
#define TCP_SND_QUEUELEN 128
#define MEMP_NUM_TCP_SEG 256
#define MEMP_NUM_TCP_PCB 64

#define MEM_ALIGNMENT 8
#define MEM_SIZE (256 * 1024)
#define PBUF_POOL_SIZE 64
#define PBUF_POOL_BUFSIZE 1536
#define MEMP_NUM_PBUF 64

#endif  // XTREME_BENCHMARKS_LWIP_PORT_LWIPOPTS_H_
