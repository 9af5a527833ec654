/* SPDX-License-Identifier: Apache-2.0 */
/*
 * VMA's extra API, as programs written for it expect it: found at run time by vma_get_api(), not
 * linked against. Binary-compatible with VMA 9.8 (api/vma/abi_test.cc holds every offset).
 *
 * A function whose bit is missing in vma_extra_supported_mask is there, and fails with
 * EOPNOTSUPP.
 * Byte order: socket addresses as everywhere; lengths and counts host order. Threads: any.
 */
#ifndef XTREME_API_VMA_MELLANOX_VMA_EXTRA_H_
#define XTREME_API_VMA_MELLANOX_VMA_EXTRA_H_

#include <netinet/in.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Options of setsockopt() and getsockopt(), level SOL_SOCKET --------------------------- */

#define SO_VMA_GET_API 2800           /* On fd -1: struct vma_api_t*. */
#define SO_VMA_USER_DATA 2801         /* 8 bytes: what completions of the socket carry. */
#define SO_VMA_RING_ALLOC_LOGIC 2810  /* struct vma_ring_alloc_logic_attr. */
#define SO_VMA_RING_USER_MEMORY 2811  /* struct iovec. */
#define SO_VMA_FLOW_TAG 2820          /* uint32_t. */
#define SO_VMA_SHUTDOWN_RX 2821       /* No value. */
#define CMSG_VMA_IOCTL_USER_ALLOC 2900

/* ---- Flags of send and receive calls ------------------------------------------------------ */

#define MSG_VMA_ZCOPY_FORCE 0x01000000 /* recvfrom_zcopy: fail rather than copy. */
#define MSG_VMA_ZCOPY 0x00040000       /* Out of recvfrom_zcopy: what came was not copied. */
#define VMA_SND_FLAGS_DUMMY 0x00000400 /* Send: everything but the frame. */

/* ---- SocketXtreme ------------------------------------------------------------------------- */

/* Events of a completion above the 32 bits of epoll's. */
typedef enum {
  VMA_SOCKETXTREME_PACKET = (1ULL << 32),
  VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED = (1ULL << 33)
} vma_socketxtreme_events_t;

/* A link of a packet; its count of references is its own. The payload may be written to. */
struct vma_buff_t {
  struct vma_buff_t* next;
  void* payload;
  uint16_t len;
};

struct vma_packet_desc_t {
  size_t num_bufs;
  uint16_t total_len; /* Of all links. */
  struct vma_buff_t* buff_lst;
  struct timespec hw_timestamp; /* CLOCK_REALTIME, or the PTP clock that was asked for; 0: none. */
};

struct vma_completion_t {
  struct vma_packet_desc_t packet; /* With VMA_SOCKETXTREME_PACKET, else 0. */
  uint64_t events;
  uint64_t user_data;     /* SO_VMA_USER_DATA; by default the socket's fd. */
  struct sockaddr_in src; /* With both events above. */
  int listen_fd;          /* With VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED. */
};

/* ---- Receive callback --------------------------------------------------------------------- */

typedef enum {
  VMA_PACKET_DROP, /* Done with it. */
  VMA_PACKET_RECV, /* Queue it for recv(). */
  VMA_PACKET_HOLD  /* The application frees it with free_packets(). */
} vma_recv_callback_retval_t;

struct __attribute__((packed)) vma_info_t {
  size_t struct_sz; /* At least what stands here. */
  void* packet_id;  /* For free_packets(), when held. */
  struct sockaddr_in* src;
  struct sockaddr_in* dst;
  size_t payload_sz;
  uint32_t socket_ready_packets; /* Queued before it. */
  uint32_t socket_ready_bytes;
  struct timespec hw_timestamp;
  struct timespec sw_timestamp;
};

/* Called inside receive and wait calls; `iov` and `info` are valid until it returns. */
typedef vma_recv_callback_retval_t (*vma_recv_callback_t)(int fd, size_t sz_iov, struct iovec iov[],
                                                          struct vma_info_t* vma_info,
                                                          void* context);

/* ---- Receive without a copy --------------------------------------------------------------- */

struct __attribute__((packed)) vma_packet_t {
  void* packet_id;
  size_t sz_iov;
  struct iovec iov[]; /* The next packet stands behind the last one. */
};

struct __attribute__((packed)) vma_packets_t {
  size_t n_packet_num;
  struct vma_packet_t pkts[];
};

/* ---- Rings -------------------------------------------------------------------------------- */

typedef enum {
  RING_LOGIC_PER_INTERFACE = 0,
  RING_LOGIC_PER_IP = 1,
  RING_LOGIC_PER_SOCKET = 10,
  RING_LOGIC_PER_USER_ID = 11,
  RING_LOGIC_PER_THREAD = 20,
  RING_LOGIC_PER_CORE = 30,
  RING_LOGIC_PER_CORE_ATTACH_THREADS = 31,
  RING_LOGIC_LAST
} ring_logic_t;

typedef enum {
  VMA_RING_ALLOC_MASK_RING_PROFILE_KEY = (1 << 0),
  VMA_RING_ALLOC_MASK_RING_USER_ID = (1 << 1),
  VMA_RING_ALLOC_MASK_RING_INGRESS = (1 << 2),
  VMA_RING_ALLOC_MASK_RING_ENGRESS = (1 << 3)
} vma_ring_alloc_logic_attr_comp_mask;

struct vma_ring_alloc_logic_attr {
  uint32_t comp_mask;
  ring_logic_t ring_alloc_logic;
  uint32_t ring_profile_key;
  uint32_t user_id;
  uint32_t ingress : 1;
  uint32_t engress : 1;
  uint32_t reserved : 30;
};

typedef int vma_ring_profile_key;
typedef enum { VMA_RING_PACKET = 0, VMA_RING_EXTERNAL_MEM = 1 } vma_ring_type;

struct vma_packet_queue_ring_attr {
  uint32_t comp_mask;
};
struct vma_external_mem_attr {
  uint32_t comp_mask;
};

struct vma_ring_type_attr {
  uint32_t comp_mask;
  vma_ring_type ring_type;
  union {
    struct vma_packet_queue_ring_attr ring_pktq;
    struct vma_external_mem_attr ring_ext;
  };
};

typedef enum {
  VMA_RING_MODIFY_CQ_MODERATION = (1 << 0),
  VMA_RING_MODIFY_CQ_ARM = (1 << 1)
} vma_modify_ring_mask;

struct vma_cq_moderation_attr {
  uint32_t cq_moderation_count;
  uint32_t cq_moderation_period_usec;
};

struct vma_modify_ring_attr {
  uint32_t comp_bit_mask;
  int ring_fd;
  struct vma_cq_moderation_attr cq_moderation;
};

/* With SO_MAX_PACING_RATE, beside the kernel's uint32_t of bytes a second. */
struct vma_rate_limit_t {
  uint32_t rate; /* Kb/s. */
  uint32_t max_burst_sz;
  uint16_t typical_pkt_sz;
};

/* ---- What a ring is made of, for whoever drives it directly ------------------------------- */

enum { DATA_VALID_DEV = (1 << 0), DATA_VALID_SQ = (1 << 1), DATA_VALID_RQ = (1 << 2) };

struct dev_data {
  uint32_t vendor_id;
  uint32_t vendor_part_id;
  uint32_t device_cap;
};

struct hw_cq_data {
  void* buf;
  volatile uint32_t* dbrec;
  uint32_t cq_size;
  uint32_t cqe_size;
  uint32_t cqn;
  void* uar;
  uint32_t* cons_idx;
};

struct hw_wq_data {
  void* buf;
  uint32_t wqe_cnt;
  uint32_t stride;
  volatile uint32_t* dbrec;
  struct hw_cq_data cq_data;
};

struct hw_sq_data {
  struct hw_wq_data wq_data;
  uint32_t sq_num;
  struct {
    void* reg;
    uint32_t size;
    uint32_t offset;
  } bf;
};

struct hw_rq_data {
  struct hw_wq_data wq_data;
  uint32_t* head;
  uint32_t* tail;
};

struct vma_mlx_hw_device_data {
  uint32_t vma_hw_data_valid_mask;
  struct dev_data dev_data;
  struct hw_sq_data sq_data;
  struct hw_rq_data rq_data;
};

/* ---- Memory of the application, by ioctl() ------------------------------------------------ */

/* A ring's buffers are for both: either flag is for all of them. */
enum { VMA_IOCTL_USER_ALLOC_FLAG_TX = (1 << 0), VMA_IOCTL_USER_ALLOC_FLAG_RX = (1 << 1) };

/* `memalloc` is called for each ring with how many bytes it needs: memory that can be written, of
 * any alignment; null: the ring takes memory of its own, and the log says so. `memfree` is called
 * when the ring is gone. Either on any thread; neither may use sockets. */
struct __attribute__((packed)) vma_cmsg_ioctl_user_alloc_t {
  uint8_t flags;
  void* (*memalloc)(size_t);
  void (*memfree)(void*);
};

/* ---- The functions ------------------------------------------------------------------------ */

/* Which members of vma_api_t do what they say. */
enum {
  VMA_EXTRA_API_REGISTER_RECV_CALLBACK = (1 << 0),
  VMA_EXTRA_API_RECVFROM_ZCOPY = (1 << 1),
  VMA_EXTRA_API_FREE_PACKETS = (1 << 2),
  VMA_EXTRA_API_ADD_CONF_RULE = (1 << 3),
  VMA_EXTRA_API_THREAD_OFFLOAD = (1 << 4),
  VMA_EXTRA_API_DUMP_FD_STATS = (1 << 5),
  VMA_EXTRA_API_SOCKETXTREME_POLL = (1 << 6),
  VMA_EXTRA_API_SOCKETXTREME_FREE_VMA_PACKETS = (1 << 7),
  VMA_EXTRA_API_SOCKETXTREME_REF_VMA_BUFF = (1 << 8),
  VMA_EXTRA_API_SOCKETXTREME_FREE_VMA_BUFF = (1 << 9),
  VMA_EXTRA_API_GET_SOCKET_RINGS_NUM = (1 << 10),
  VMA_EXTRA_API_GET_SOCKET_RINGS_FDS = (1 << 11),
  VMA_EXTRA_API_GET_SOCKET_TX_RING_FD = (1 << 12),
  VMA_EXTRA_API_GET_SOCKET_NETWORK_HEADER = (1 << 13),
  VMA_EXTRA_API_GET_RING_DIRECT_DESCRIPTORS = (1 << 14),
  VMA_EXTRA_API_ADD_RING_PROFILE = (1 << 16),
  VMA_EXTRA_API_REGISTER_MEMORY_ON_RING = (1 << 17),
  VMA_EXTRA_API_DEREGISTER_MEMORY_ON_RING = (1 << 18),
  VMA_EXTRA_API_MODIFY_RING = (1 << 20),
  VMA_EXTRA_API_IOCTL = (1 << 21)
};

/* Unless said otherwise: 0 or a count, or -1 with errno. */
struct __attribute__((packed)) vma_api_t {
  /* Null takes the callback off. EINVAL: the socket is not offloaded. */
  int (*register_recv_callback)(int s, vma_recv_callback_t callback, void* context);
  /* As recvfrom(), but `buf` receives a vma_packets_t when *flags comes back with MSG_VMA_ZCOPY.
   * ENOBUFS: `len` has no room for the next packet, which stays. With MSG_PEEK it is copied;
   * EOPNOTSUPP: and MSG_VMA_ZCOPY_FORCE. */
  int (*recvfrom_zcopy)(int s, void* buf, size_t len, int* flags, struct sockaddr* from,
                        socklen_t* fromlen);
  /* EINVAL: no packets, or not an offloaded socket. ENOENT: one is not held. */
  int (*free_packets)(int s, struct vma_packet_t* pkts, size_t count);
  /* One line of the file of rules, which then stands before it. EINVAL. */
  int (*add_conf_rule)(const char* config_line);
  /* Whether sockets that the thread opens from here on are offloaded. */
  int (*thread_offload)(int offload, pthread_t tid);
  /* The fd of a ring, of a socket, or of an epoll set; never blocks. EBADFD: none of these. EINVAL:
   * no room for a completion. */
  int (*socketxtreme_poll)(int fd, struct vma_completion_t* completions, unsigned int ncompletions,
                           int flags);
  int (*get_socket_rings_num)(int fd);
  /* 0: not offloaded, or not yet. EINVAL: no array. */
  int (*get_socket_rings_fds)(int fd, int* ring_fds, int ring_fds_sz);
  /* `to` makes no difference. EINVAL: not offloaded, or not yet. */
  int (*get_socket_tx_ring_fd)(int fd, struct sockaddr* to, socklen_t tolen);
  /* One reference less to each link of each. EINVAL: null. */
  int (*socketxtreme_free_vma_packets)(struct vma_packet_desc_t* packets, int num);
  /* The number of references to this link afterwards. EINVAL: null. */
  int (*socketxtreme_ref_vma_buff)(struct vma_buff_t* buff);
  int (*socketxtreme_free_vma_buff)(struct vma_buff_t* buff);
  int (*dump_fd_stats)(int fd, int log_level);
  int (*vma_add_ring_profile)(struct vma_ring_type_attr* profile, vma_ring_profile_key* key);
  int (*get_socket_network_header)(int fd, void* ptr, uint16_t* len);
  int (*get_ring_direct_descriptors)(int fd, struct vma_mlx_hw_device_data* data);
  int (*register_memory_on_ring)(int fd, void* addr, size_t length, uint32_t* key);
  int (*deregister_memory_on_ring)(int fd, void* addr, size_t length);
  int (*vma_modify_ring)(struct vma_modify_ring_attr* mr_data);
  uint64_t vma_extra_supported_mask;
  /* CMSG_VMA_IOCTL_USER_ALLOC with a vma_cmsg_ioctl_user_alloc_t: of rings that are made from here
   * on. EINVAL: another message, none of the two flags, a null function, or there is a ring. */
  int (*ioctl)(void* cmsg_hdr, size_t cmsg_len);
};

/* Null: nobody under this program offers the API. */
static inline struct vma_api_t* vma_get_api(void) {
  struct vma_api_t* api = NULL;
  socklen_t length = sizeof(api);
  if (getsockopt(-1, SOL_SOCKET, SO_VMA_GET_API, &api, &length) < 0) return NULL;
  return api;
}

#ifdef __cplusplus
}
#endif

#endif /* XTREME_API_VMA_MELLANOX_VMA_EXTRA_H_ */
