/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Xtreme: a completion-driven network engine. This header is its manual.
 *
 * An application opens rings, opens sockets on them and polls the rings for completions: packets,
 * connections, finished operations, timers, news of the port. A packet's completion carries
 * reference-counted buffers that the NIC wrote. One thread owns a ring; what other threads may call
 * is said per call.
 * Units: bytes, nanoseconds; ports and flags in host order, addresses as on the wire.
 * The interface is stable: later versions add calls, and fields at the end of structures.
 *
 * Calls return 0 (or a count) on success and -errno on failure; xtreme_error() then has a sentence.
 * Whatever takes a handle fails with -EBADF when the handle's object is gone, and in debug builds
 * with -EBUSY when another thread owns its ring; elsewhere that is undefined. A send by such a
 * handle is XTREME_REFUSED_STATE.
 * No call blocks, except opening, starting and adopting a ring (bring-up), closing the last one of
 * the process, and xtreme_ring_wait().
 * This is C11, or C++.
 */
#ifndef XTREME_API_XTREME_H_
#define XTREME_API_XTREME_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define XTREME_API __attribute__((visibility("default")))

/* ---- Version and errors --------------------------------------------------------------------- */

/* "0.1.0". */
XTREME_API const char* xtreme_version(void);

/* What the last failed call of this thread was doing: action, asked, offered, errno. Never null;
 * valid until the thread's next failed call. */
XTREME_API const char* xtreme_error(void);

/*
 * Structures that begin with `size` may grow: a program fills in its own sizeof. Fields that a
 * program compiled earlier does not have yet are 0, which means the default. -EINVAL: smaller than
 * the first version; -E2BIG: fields that this library does not know, or reserved ones, are not 0.
 */

/* ---- Handles and addresses ------------------------------------------------------------------- */

/* Handles carry a generation: one whose object is gone is -EBADF, not somebody else's object, until
 * 16 million others have stood in its place, or 65,535 rings, groups or lanes been opened since.
 * A socket is gone with the poll that hands out its TERMINATED, also for whoever handles what
 * stands before that in the same batch. */
typedef struct xtreme_ring { uint64_t value; } xtreme_ring;
typedef struct xtreme_socket { uint64_t value; } xtreme_socket;
typedef struct xtreme_group { uint64_t value; } xtreme_group;
typedef struct xtreme_timer { uint64_t value; } xtreme_timer;
typedef struct xtreme_lane { uint64_t value; } xtreme_lane;

/* A link of a packet: see "Buffers" below. */
typedef struct xtreme_buffer xtreme_buffer;

/* An IP address and port. IPv4 stands in the last four bytes of `ip` behind ::ffff:0:0/96
 * (RFC 4291 2.5.5.2). IPv6 proper is refused with -EAFNOSUPPORT so far. */
typedef struct xtreme_address {
  uint8_t ip[16];
  uint16_t port; /* Host order. */
} xtreme_address;

/* Parses "233.54.12.111:26477", "10.0.0.1" (port 0), ":9000" or "*:9000" (any address).
 * -EINVAL: not of that form. -EAFNOSUPPORT: IPv6. */
XTREME_API int xtreme_address_parse(const char* text, xtreme_address* address);
/* Writes "a.b.c.d:port" and a zero; the number of characters it needs, zero not included. */
XTREME_API int xtreme_address_format(const xtreme_address* address, char* text, size_t size);

/* ---- Completions ----------------------------------------------------------------------------- */

enum xtreme_kind {
  XTREME_NONE = 0,
  XTREME_PACKET = 1,      /* A datagram, or in-order bytes of a stream. */
  XTREME_ACCEPTED = 2,    /* Streams: `socket` is new, `cookie` the value of its listener's. */
  XTREME_ESTABLISHED = 3, /* Streams: our connect succeeded. */
  XTREME_PEER_CLOSED = 4, /* Streams: after the last PACKET. */
  XTREME_TX_SPACE = 5,    /* Streams: once after a refused send, it would be accepted now. */
  XTREME_TX_WIRE = 6,     /* Asked for: the bytes with `cookie` left the NIC, at hw_time_ns. */
  XTREME_TX_DONE = 7,     /* Asked for: the bytes with `cookie` are no longer needed; of a stream,
                             because the peer has them. `status` ECANCELED: perhaps it has not. */
  XTREME_OP_DONE = 8,     /* A started operation ended: `cookie`, `status`, `text`. */
  XTREME_TIMER = 9,       /* `cookie`, `deadline_ns`, `late_ns`. */
  XTREME_POSTED = 10,     /* Another thread posted `value`. In order per lane. */
  XTREME_FD_EVENT = 11,   /* A watched fd is ready: `fd`, `events` (EPOLLIN...). */
  XTREME_RING = 12,       /* Of the ring or port: `event`, `count`, `layer`, `text`. */
  XTREME_ERROR = 13,      /* Non-fatal, of a socket: `status`, the offending destination. */
  XTREME_TERMINATED = 14, /* The last one a handle ever produces: `status` says why. */
  XTREME_DEPARTED = 15,   /* Streams, in its place: the connection is on another ring. */
  XTREME_ARRIVED = 16     /* Streams: one came from another ring; `socket` is new, `cookie` that of
                             xtreme_socket_move(). */
};

enum xtreme_flag {
  XTREME_CHAINED = 1 << 0,      /* More than one buffer: see xtreme_buffer_next(). */
  XTREME_SHARED = 1 << 1,       /* Another socket got the same buffer: do not write to it. */
  XTREME_LOOPBACK = 1 << 2,     /* Sent by this process and looped back in software. */
  XTREME_SLOW_PATH = 1 << 3,    /* Came through the kernel (a reassembled datagram). */
  XTREME_AFTER_DROP = 1 << 4,   /* Something was lost on this ring before it. */
  XTREME_CLOCK_SYNCED = 1 << 5, /* hw_time_ns is within the clock's error bound. */
  XTREME_MULTICAST = 1 << 6,    /* The destination is a group. */
  XTREME_BROADCAST = 1 << 7,    /* The destination is a broadcast address. */
  XTREME_PORT_TIME = 1 << 8,    /* TX_WIRE: hw_time_ns was taken at the port; without it, when the
                                   NIC completed the send, which is later. */
  XTREME_PTP_TIME = 1 << 9      /* hw_time_ns is on the NIC's PTP clock; without it, on
                                   CLOCK_MONOTONIC. */
};

/* `event` of XTREME_RING. */
enum xtreme_ring_event {
  XTREME_LINK_DOWN = 1,
  XTREME_LINK_UP = 2,
  XTREME_DROPPED = 3,        /* `count` packets lost at `layer` since the last one. */
  XTREME_BROKEN = 4,         /* A queue stopped: `status` is the device's syndrome, `text` says it;
                                nothing more is received or sent before xtreme_ring_reset(). */
  XTREME_REMOVED = 5,        /* The device or interface is gone; the ring has `count` left. What a
                                device was to send then is cancelled and connections end with
                                ENETDOWN, unless the ring moves to its backup. 0 are left: close
                                it. */
  XTREME_CLOCK_LOST = 6,
  XTREME_CLOCK_SYNCED_EVENT = 7,
  XTREME_RULE_FALLBACK = 8,  /* The card's table is full: a shared rule and software sort
                                datagrams out, or the ring that a connection moved from passes on
                                what comes. `status` not 0: it failed at the rule otherwise
                                (`text`). */
  XTREME_NEIGHBOUR_LOST = 9, /* A next hop stopped answering. */
  XTREME_POOL_LOW = 10,      /* `count` buffers are free: release what you hold. While less than an
                                eighth can be received into, streams take no payload. */
  XTREME_POOL_OK = 11,
  XTREME_MTU_CHANGED = 12,   /* The interface's MTU is `count` now. Sends follow it down; above what
                                it was when the ring was opened, open the ring again. */
  XTREME_MOVED = 13          /* The ring is on `interface_index` now, with its sockets, memberships
                                and addresses: on its backup, or back. `status` not 0: something did
                                not follow (`text`); xtreme_ring_reset() tries again. */
};

/* `layer` of XTREME_DROPPED. */
enum xtreme_layer {
  XTREME_LAYER_PORT = 1,   /* The card's port-wide counters: everybody's losses on the port. */
  XTREME_LAYER_QUEUE = 2,  /* The receive queue was seen empty: `count` times. */
  XTREME_LAYER_LIBRARY = 3 /* Counted by name in the ring's counters. */
};

/*
 * 128 bytes; the first 64 are enough to tell what to do with it. Every field is written: what a
 * kind does not use is 0. `buffer` holds one reference, now the caller's (see xtreme_release()).
 */
typedef struct xtreme_completion {
  uint8_t kind;          /* enum xtreme_kind. */
  uint8_t event;         /* RING. */
  uint16_t flags;        /* enum xtreme_flag. */
  int32_t status;        /* 0 or a positive errno. */
  xtreme_socket socket;  /* Value 0 for what is not about a socket. */
  uint64_t user_data;    /* The socket's (the ring's for what is not), read when handed out. */
  xtreme_buffer* buffer; /* PACKET: first link. */
  uint8_t* data;         /* PACKET: first payload byte. */
  uint32_t length;       /* PACKET: payload bytes over all links. */
  uint32_t count;        /* PACKET: links. RING: how many. */
  int64_t hw_time_ns;    /* PACKET, TX_WIRE: hardware time; 0 when there is none. */
  uint64_t poll_tsc;     /* The TSC when the poll saw it; of what a call told, that before. */

  /* PACKET: as in the packet. Of streams, the peer and our end, also of their other kinds. ERROR:
   * the offending destination. NEIGHBOUR_LOST: the next hop is the destination. */
  uint8_t source_ip[16];
  uint8_t destination_ip[16];
  uint16_t source_port;
  uint16_t destination_port;
  uint32_t interface_index; /* The ring's, also of what came by others; RING: what it is about. */
  union {
    uint64_t hw_clock;   /* PACKET, TX_WIRE: the device's raw clock. */
    int64_t deadline_ns; /* TIMER: as asked for, CLOCK_MONOTONIC. */
    const char* text;    /* OP_DONE, RING: one sentence or null; until the next poll. */
    uint64_t events;     /* FD_EVENT. */
  };
  union {
    uint64_t cookie;     /* TX_*, OP_DONE, TIMER, ACCEPTED, ARRIVED, ERROR of a lane's fire. */
    uint64_t value;      /* POSTED. */
    int64_t fd;          /* FD_EVENT. */
  };
  union {
    uint64_t vlan;       /* PACKET: tag control information, 0 when untagged. */
    uint64_t late_ns;    /* TIMER: how long after its deadline. */
    uint64_t layer;      /* RING: enum xtreme_layer. */
    uint64_t error_ns;   /* TX_WIRE: how far off hw_time_ns may be, with XTREME_CLOCK_SYNCED. */
  };
} xtreme_completion;

/* ---- Rings ----------------------------------------------------------------------------------- */

/*
 * What a ring is made of. Fill it with xtreme_ring_options_init(), then change fields, or set them
 * by name; the names and their meanings are in docs/settings.md.
 */
typedef struct xtreme_ring_options {
  size_t size;                   /* sizeof(xtreme_ring_options). */
  const char* interface_name;    /* "eth2": an interface of a ConnectX, up and with an address. */
  uint64_t user_data;
  uint32_t rx_burst_us;          /* Longest burst at link rate that must be absorbed. */
  uint32_t rx_frame_bytes;       /* Typical frame of such a burst: sizes the pool. */
  uint32_t rx_buffers;           /* 0: computed from the burst. */
  uint32_t rx_queue_frames;      /* Receive queue, power of two, 64 .. 32,768. */
  uint32_t tx_queue_frames;      /* Send queue, power of two, 64 .. 32,768. */
  uint32_t completions;          /* Completion FIFO, power of two, 64 .. 65,536. */
  uint32_t poll_batch;           /* Most CQEs a poll takes, 1 .. 256. */
  uint32_t signal_every;         /* One send completion for this many sends; long ones are two. */
  uint32_t max_sockets;
  uint32_t max_groups;           /* Memberships of all sockets together. */
  uint32_t neighbour_queue;      /* Sends that wait for one neighbour; above: REFUSED. */
  uint32_t reassembly_datagrams; /* Most datagrams in reassembly, when fragments is OWN. */
  uint8_t fragments;             /* 0 kernel: unicast fragments come by the kernel. 1 own. */
  uint8_t hugepages;             /* 0 never, 1 try, else merge pages, 2 require. */
  uint8_t wait;                  /* enum xtreme_wait. */
  uint8_t blueflame;             /* 0 off, 1 when the device has it. */
  uint32_t spin_us;              /* Hybrid wait: spin this long, then sleep. */
  uint64_t link_bits_per_second; /* 0: what the port says. */
  const char* counters_directory; /* Where the counters are published; null: /dev/shm; "": not. */
  uint8_t counters_access;       /* Who may read them: 0 the user, 1 its group, 2 everybody. */
  uint8_t histograms;            /* 1: times between polls, and from the wire to a poll. */
  uint16_t dump_snap_bytes;      /* Of each frame that is kept for xtreme_dump; 0: 96. */
  uint32_t device_memory;        /* Bytes in the NIC that long frames are sent from; 0: none. */
  const char* control_cpus;      /* CPUs of the library's own thread, "0-3,8"; null or "": those of
                                    the process, but those that owners are bound to. */
  uint32_t dump_frames;          /* Frames kept for xtreme_dump: the last so many; 0: none. */
  uint32_t max_connections;      /* TCP connections and listeners; 0: the ring has no TCP. */
  uint32_t tcp_time_wait_ms;     /* How long a closed connection's addresses rest: 2 MSL. */
  uint8_t tcp_ports_log2;        /* Local ports of connects, 0 .. 12: leased with the first one. */
  uint8_t reserved[3];           /* 0. */
  const char* backup_interface;  /* Of another port or NIC, in the same networks: the ring goes over
                                    to it when its own goes down. Null or "": none. */
  uint8_t backup_stays;          /* 1: until that one goes down too; 0: till the own is up again. */
  uint8_t hw_time;               /* enum xtreme_hw_time. */
  uint8_t reserved_too[6];       /* 0. */
  /* Where the buffers' memory comes from; both or neither, null: the kernel. `hugepages` is not of
   * it. Allocate: at least `bytes` bytes that can be written, of any alignment; null: there are
   * none, -ENOMEM of xtreme_ring_open(). Release: what that gave, once the ring is closed and no
   * buffer is held. Either on any thread; neither may call this library. */
  void* (*memory_allocate)(void* context, size_t bytes);
  void (*memory_release)(void* context, void* memory);
  void* memory_context;
} xtreme_ring_options;

enum xtreme_hw_time {
  XTREME_HW_TIME_MONOTONIC = 0, /* hw_time_ns is on CLOCK_MONOTONIC. */
  /* It is on the NIC's PTP clock, which ptp4l steers: seconds of TAI since 1970, as a rule. Where
   * the system publishes none, as above: see XTREME_PTP_TIME. */
  XTREME_HW_TIME_PTP = 1
};

enum xtreme_wait {
  XTREME_WAIT_BUSY = 0,  /* xtreme_ring_wait() polls until there is something. */
  XTREME_WAIT_SLEEP = 1, /* It arms and sleeps in the kernel. */
  XTREME_WAIT_HYBRID = 2 /* It polls for spin_us, then sleeps. */
};

/* Fills `options`, which has `size` bytes (sizeof(xtreme_ring_options)), for a profile: "latency",
 * "feed", "throughput" or "dev". -EINVAL: another name, or a size that never was. */
XTREME_API int xtreme_ring_options_init(xtreme_ring_options* options, size_t size,
                                        const char* profile);
/* Sets one field by its name in the table of settings ("rx_burst_us", "10000"). A text is kept by
 * reference. -EINVAL: no such name, or a value of the wrong form or range; xtreme_error() names
 * it. */
XTREME_API int xtreme_ring_options_set(xtreme_ring_options* options, const char* name,
                                       const char* value);
/* Applies every XTREME_* variable of `environment` (the program's `environ`, which may be null).
 * -EINVAL: as above; an unknown XTREME_ variable is an error that names it. Those of libxtreme.so
 * alone are passed over. */
XTREME_API int xtreme_ring_options_from_environment(xtreme_ring_options* options,
                                                    char** environment);
/* Writes "name = value" lines of the effective settings; the number of characters needed. */
XTREME_API int xtreme_ring_options_print(const xtreme_ring_options* options, char* text,
                                         size_t size);

/*
 * Brings a ring up: device, queues, pool, stack. The calling thread owns it until another adopts
 * it.
 * -EINVAL, -E2BIG: options. -ENODEV: no such interface, no ConnectX behind it, or it is unusable.
 * -EPERM: CAP_NET_RAW is missing. -ENOMEM, -ENOSPC: memory or a table of the device is exhausted.
 * -EIO, -EAGAIN, -EOPNOTSUPP: what else the device or the kernel say, which is in xtreme_error().
 */
XTREME_API int xtreme_ring_open(const xtreme_ring_options* options, xtreme_ring* ring);
/* Posts buffers, touches and warms everything the first packet needs. To be called once, after the
 * sockets that matter are open and joined; packets are received from here on. -EALREADY: it was
 * called before. */
XTREME_API int xtreme_ring_start(xtreme_ring ring);
/* Aborts its sockets and releases it; waits for nothing, except the last ring of the process: for
 * what the closed ones have posted to leave (50 ms each at most), and for the library's thread.
 * Held buffers stay readable. -EBUSY: it is in a group, which is to be closed first.
 * Of rings that are open when the process ends by exit(), or by returning from main(), the peers of
 * connections are reset: at once where the thread that exits owns the ring, else by the owner's
 * next poll or wait, for which 50 ms are waited in all. A child's exit after fork() is its own; it
 * may open rings, whatever its parent's threads were doing, not call its parent's: those are -EBADF
 * there.
 * _exit() and signals send nothing: the kernel resets a peer when it sends next. */
XTREME_API int xtreme_ring_close(xtreme_ring ring);
/*
 * Gives the ring new queues, after BROKEN or at any time; its sockets, memberships and prepared
 * sends stay. Meanwhile nothing is sent, and what comes is handed out afterwards; a datagram that
 * comes while its rule goes from queue to queue comes as SLOW_PATH, or is lost if its socket has
 * none. TX_DONE says ECANCELED of what may not have left. Started: OP_DONE with `cookie`; when it
 * failed, it may be tried again. -EALREADY: a reset is under way.
 */
XTREME_API int xtreme_ring_reset(xtreme_ring ring, uint64_t cookie);
/*
 * For a ring that sleeps: an interrupt comes once `completions` wait, or the first has waited for
 * `microseconds`; 0 and 0, as a ring is opened: at once. Polling finds everything at once anyway.
 * Started: OP_DONE with `cookie`: EINVAL, the text has what the device can; EOPNOTSUPP, it cannot.
 * -EALREADY: a reset is under way. -EOPNOTSUPP: no device is behind the ring.
 */
XTREME_API int xtreme_ring_moderate(xtreme_ring ring, uint16_t completions, uint16_t microseconds,
                                    uint64_t cookie);

/*
 * Where the queues of a ring lie, for a program that writes WQEs and reads CQEs itself as the
 * ConnectX's programming manual (PRM) has them. Records are 32-bit words in big endian. Counts are
 * powers of two; producers and consumers run free, as they are when the queues are taken.
 */
typedef struct xtreme_completion_queue {
  uint8_t* cqes;              /* Of 64 bytes. New: owner bit unequal to bit log2(count) of index. */
  uint32_t* record;           /* Consumer index, 24 bits. */
  uint32_t count;
  uint32_t consumer;
  uint32_t number;
  uint32_t reserved;          /* 0. */
} xtreme_completion_queue;
typedef struct xtreme_queues {
  size_t size;                /* sizeof(xtreme_queues). */
  uint8_t* sq;                /* WQEBBs of 64 bytes. */
  uint32_t* sq_record;        /* The low 16 bits of the producer. */
  uint8_t* sq_register;       /* Due next: for 8 bytes, or with BlueFlame a whole WQE. */
  uint32_t sq_wqebbs;
  uint32_t sq_producer;       /* In WQEBBs: the index of the next WQE. */
  uint32_t blueflame_bytes;   /* Of half a register: write them in turn, the other half is at the
                                 address ^ this. 0: doorbells of 8 bytes only. */
  uint32_t qpn;
  uint8_t* rq;                /* Data segments of 16 bytes; those posted hold buffers. */
  uint32_t* rq_record;        /* The low 16 bits of the producer. */
  uint32_t rq_segments;
  uint32_t rq_producer;
  uint32_t pool_key;          /* Key of the ring's buffers. */
  uint32_t reserved;          /* 0. */
  xtreme_completion_queue send_cq;
  xtreme_completion_queue receive_cq;
} xtreme_queues;
/*
 * Hands the ring's queues over. From here on the program alone writes WQEs, rings, and reads CQEs,
 * on one thread at a time; the ring sends (XTREME_REFUSED_STATE) and receives nothing until
 * xtreme_ring_reset() has made it new queues, which ends these: the addresses are good until that
 * call or xtreme_ring_close(). Rules and memberships go on steering to them; the ring does not go
 * over to a backup meanwhile. Buffers that are posted stay the queue's: post the same segments
 * again, or none. What the program posts must lie in acquired buffers, or inline. The ring neither
 * counts nor shows what is sent and received by hand.
 * -EAGAIN: sends are under way: poll, then call again. -EALREADY: taken, or a reset is under way.
 * -ENETDOWN: they have stopped, or a reset could not make them. -EOPNOTSUPP: no device is behind
 * the ring. -EINVAL: a size that never was.
 */
XTREME_API int xtreme_ring_take_queues(xtreme_ring ring, xtreme_queues* queues);
/* Makes the calling thread the owner. The old owner must have made its last call before. */
XTREME_API int xtreme_ring_adopt(xtreme_ring ring);

/*
 * Takes up to `max` completions into an array of elements of `completion_size` bytes
 * (sizeof(xtreme_completion) as the program was compiled). Returns how many; 0: nothing now.
 * -EINVAL: max < 1 or a size below 64.
 */
XTREME_API int xtreme_ring_poll(xtreme_ring ring, xtreme_completion* completions, int max,
                                size_t completion_size);
/* Whether the last poll left something that is known to wait: 1 or 0. */
XTREME_API int xtreme_ring_more(xtreme_ring ring);
/* Makes the ring's fd readable at the next completion or deadline and returns 0; returns 1, without
 * arming, when something waits already. */
XTREME_API int xtreme_ring_arm(xtreme_ring ring);
/* Polls as xtreme_ring_poll does, by the ring's waiting policy, for at most `timeout_ns` (-1: no
 * limit). The one call that sleeps, because it was asked to. 0: the time is over. -EINTR: a
 * signal's handler ran while it slept; one that runs while it polls is not noticed: whoever ends by
 * a flag gives a time. */
XTREME_API int xtreme_ring_wait(xtreme_ring ring, xtreme_completion* completions, int max,
                                size_t completion_size, int64_t timeout_ns);
/* An fd for poll, select or epoll: readable when armed and something came. Not to be read. */
XTREME_API int xtreme_ring_fd(xtreme_ring ring);
/* As xtreme_ring_poll, for whoever has only the fd. -EBADF: not the fd of a ring or group. */
XTREME_API int xtreme_poll_fd(int fd, xtreme_completion* completions, int max,
                              size_t completion_size);
/* Rings the doorbell for sends with XTREME_NO_DOORBELL. */
XTREME_API int xtreme_ring_flush(xtreme_ring ring);
/* 1: no stream, those that were closed or detached included, waits for its peer any more; the
 * process may end and no connection is reset by it. 0: keep polling. */
XTREME_API int xtreme_ring_quiescent(xtreme_ring ring);
/* The ring's clock: CLOCK_MONOTONIC in nanoseconds, without a system call. */
XTREME_API int64_t xtreme_ring_now(xtreme_ring ring);
/* How far hw_time_ns may be off on its clock, ns; INT64_MAX while that is not in sync: the NIC's
 * ticks with CLOCK_MONOTONIC, or a PTP clock that was set, or that nobody steered for 10 s. */
XTREME_API int64_t xtreme_ring_clock_error(xtreme_ring ring);
/* One line: what the ring got from the device, and why not more. Characters needed. */
XTREME_API int xtreme_ring_describe(xtreme_ring ring, char* text, size_t size);

/* ---- Ring groups ----------------------------------------------------------------------------- */

/* Several rings behind one fd, polled round robin; all owned by the calling thread. A ring is in
 * one group at most. Order is promised per ring only. -EINVAL: count < 1. -EBUSY: already in a
 * group, or named twice. -ENOMEM, -EMFILE: no descriptor or no place is left. */
XTREME_API int xtreme_group_open(const xtreme_ring* rings, int count, xtreme_group* group);
/* Leaves the rings as they are. */
XTREME_API int xtreme_group_close(xtreme_group group);
enum xtreme_group_order {
  XTREME_GROUP_FAIR = 0,         /* Ring by ring, each its share, another one first each time. */
  /* The packets of one poll by hw_time_ns, for the lines of a feed; what has none stays behind what
   * came before it on its ring. Nobody waits for what is late: it is of the next poll. Of a ring
   * that used its share, or its poll_batch, older ones may be left for that too: let both be more
   * than comes at once. Two devices need clocks that agree (XTREME_CLOCK_SYNCED), and rings with
   * the same hw_time. */
  XTREME_GROUP_HARDWARE_TIME = 1
};
/* -EINVAL: another order. May allocate, polls of up to 1,024 completions then do not. */
XTREME_API int xtreme_group_set_order(xtreme_group group, int order);
XTREME_API int xtreme_group_poll(xtreme_group group, xtreme_completion* completions, int max,
                                 size_t completion_size);
XTREME_API int xtreme_group_arm(xtreme_group group);
XTREME_API int xtreme_group_fd(xtreme_group group);

/* ---- UDP sockets ----------------------------------------------------------------------------- */

typedef struct xtreme_udp_options {
  size_t size;             /* sizeof(xtreme_udp_options). */
  xtreme_address local;    /* Any address: the interface's, though the port is taken on all. A
                              group: only datagrams of groups that it joins, that one too. Port 0:
                              one is leased. */
  uint64_t user_data;
  uint8_t reuse;           /* Others, here or in other processes, may bind the same. */
  uint8_t multicast_loop;  /* Own multicast is given to this process's listeners. */
  uint8_t multicast_ttl;   /* 0: 1. */
  uint8_t ttl;             /* 0: 64. */
  uint8_t tos;
  uint8_t broadcast;       /* Broadcasts may be sent, and are received. */
  uint32_t max_held;       /* Buffers the application may hold of this socket; 0: no limit. Above:
                              dropped and counted. */
  uint32_t unused;         /* Anything: the first version ended here. */
  uint32_t flow_tag;       /* Up to 2^24 - 1; 0: the ring's own. In the CQEs of what its rules take,
                              memberships' too, for who took the ring's queues; a rule that somebody
                              has already, with another tag, is joined as it is. */
  uint32_t reserved;       /* 0. */
} xtreme_udp_options;

/* Opens a socket; its rules are started, and OP_DONE with cookie 0 tells how that ended:
 * EADDRINUSE, another ring or program has the port.
 * -EINVAL, -E2BIG: options. -EADDRINUSE, -EADDRNOTAVAIL, -EAFNOSUPPORT, -EMFILE (max_sockets).
 * -EAGAIN: port 0, and of those that are leased ahead, eight, none is left: poll, then call again.
 * -ENOBUFS: as many sockets have that port as `completions` has room for. */
XTREME_API int xtreme_udp_open(xtreme_ring ring, const xtreme_udp_options* options,
                               xtreme_socket* socket);
/* Sets the default destination and receives from it only. Started: OP_DONE with `cookie` when the
 * next hop is known; or EHOSTUNREACH, it did not answer within three seconds; ENETUNREACH;
 * ENOBUFS, too many are being asked for. -EINVAL: no port or no address. -EAFNOSUPPORT. */
XTREME_API int xtreme_udp_connect(xtreme_socket socket, const xtreme_address* peer,
                                  uint64_t cookie);

enum xtreme_join_flag {
  XTREME_SHARE_WITH_KERNEL = 1 << 0, /* The kernel's own listeners get the group too. Where the
                                        device does not share, OP_DONE's `text` says so. */
  XTREME_EXCLUDE_SOURCE = 1 << 1     /* `source` is the one not wanted. */
};
/* Joins a group (from `source` only, unless null). May be called for several sources of one group.
 * A socket that is bound to an address of a host, or connected, gets that address's datagrams only.
 * Started: OP_DONE with `cookie`: EADDRINUSE, the ring has the group's datagrams already, with
 * XTREME_SHARE_WITH_KERNEL otherwise; ENOSPC, the card or the kernel takes no more; else what they
 * say. -EINVAL: not a group, not the port that the socket is bound to, wanted and unwanted sources
 * of one group, none that is not wanted, an unknown flag. -ENOBUFS: max_groups. -EAFNOSUPPORT. */
XTREME_API int xtreme_join(xtreme_socket socket, const xtreme_address* group,
                           const xtreme_address* source, uint32_t flags, uint64_t cookie);
/* Leaves what was joined with the same arguments; of an unwanted source: it is wanted again, and
 * without one the group is left. Started: OP_DONE with `cookie`. -EADDRNOTAVAIL: not joined.
 * -EAFNOSUPPORT. */
XTREME_API int xtreme_leave(xtreme_socket socket, const xtreme_address* group,
                            const xtreme_address* source, uint64_t cookie);

/* ---- TCP ------------------------------------------------------------------------------------- */

/*
 * A listener tells of each connection by ACCEPTED, a connect ends in exactly one of ESTABLISHED and
 * TERMINATED. Then in-order bytes come as PACKETs, PEER_CLOSED after the last of them, TERMINATED
 * last: 0 when both ends closed in order, else ECONNRESET, ETIMEDOUT, ECONNREFUSED, EHOSTUNREACH,
 * ENETUNREACH, ECONNABORTED (xtreme_abort()), ECANCELED (closed before it was established),
 * ENETDOWN (the ring's queues stopped, or its device is gone), ENOBUFS (no memory for its SYN, or
 * for what was to follow it), what opening its port said (EADDRINUSE, ENOSPC), or a router.
 * What routers say by ICMP counts only if it quotes a byte that is outstanding: an MTU makes the
 * segments shorter, a hard error ends a connect, any other is why a connection that times out says
 * EHOSTUNREACH or so instead of ETIMEDOUT.
 * The window that the peer may fill is what is not in the application's hands: bytes are credited
 * when their buffers are released, or by xtreme_credit(). There is no recv() and no accept().
 */

/* Where the values of an options structure's zeros come from. */
enum xtreme_tcp_preset {
  XTREME_TCP_DEFAULT = 0,
  /* An order session: what does not get through is told soon. A silent peer is probed every second
   * and given up after three, unacknowledged bytes end the connection after three seconds, a
   * handshake after three, and so long a closed one lingers; every segment is acknowledged at once,
   * and what is not goes again 50 ms beyond the round trip. */
  XTREME_TCP_FAIL_FAST = 1,
  XTREME_TCP_BULK = 2 /* Throughput before latency: Nagle, 4 MB of window and of send queue. */
};
enum xtreme_choice { XTREME_PRESET = 0, XTREME_ON = 1, XTREME_OFF = 2 };
enum xtreme_tcp_congestion {
  XTREME_TCP_PRESET = 0,
  XTREME_TCP_CUBIC = 1,
  XTREME_TCP_NEW_RENO = 2,
  XTREME_TCP_NO_CONGESTION_CONTROL = 3 /* For a link of one's own. */
};
#define XTREME_NEVER_NS (-1)

/* Of a listener: its connections', too. 0 is the preset's value in every field, XTREME_NEVER_NS no
 * limit in a time. In brackets what XTREME_TCP_DEFAULT has. */
typedef struct xtreme_tcp_options {
  size_t size;                   /* sizeof(xtreme_tcp_options). */
  xtreme_address local;          /* Any address: the interface's, though the port is taken on all.
                                    Port 0: of a connect, one of the ring's ports; a listener needs
                                    one. */
  uint64_t user_data;            /* Of a listener: inherited until set. */
  uint32_t backlog;              /* Listener: connections not yet handed out [128]. */
  uint8_t preset;                /* enum xtreme_tcp_preset. */
  uint8_t congestion;            /* enum xtreme_tcp_congestion [cubic]. At opening only. */
  uint8_t nodelay;               /* enum xtreme_choice [on]: no Nagle, small sends leave at once. */
  uint8_t quick_ack;             /* enum xtreme_choice [off]: every segment is acknowledged. */
  uint8_t manual_credit;         /* enum xtreme_choice [off]: only xtreme_credit() credits. At
                                    opening only, as what was handed out says who credits it. */
  uint8_t timestamps;            /* enum xtreme_choice [on]. At opening only. */
  uint8_t sack;                  /* enum xtreme_choice [on]. At opening only. */
  uint8_t ttl;                   /* [64] Of connections: a listener's SYN-ACK has 64. */
  uint8_t tos;                   /* [0] The same: it has 0. */
  uint8_t keepalive_probes;      /* [9] Unanswered ones end the connection. */
  uint8_t retransmissions;       /* [15] Of one segment, then ETIMEDOUT. */
  uint8_t reserved;              /* 0. */
  uint16_t mss;                  /* Most payload of a received segment [the MTU's]. At opening. */
  uint16_t reserved_too;         /* 0. */
  uint32_t receive_window;       /* [262,144] 2,048 .. 2^30. At opening only. */
  uint32_t send_queue;           /* [1,048,576] Bytes that wait or are not acknowledged. */
  int64_t keepalive_idle_ns;     /* [never] Of silence, then the peer is probed. */
  int64_t keepalive_interval_ns; /* [75 s] Between probes. */
  int64_t user_timeout_ns;       /* [never] Unacknowledged bytes end the connection: RFC 5482. */
  int64_t min_rto_ns;            /* [200 ms] 100 us .. 60 s: least time beyond the round trip, then
                                    what is not acknowledged goes again, after 60 s at most. */
  int64_t delayed_ack_ns;        /* [40 ms] Up to 500 ms. */
  int64_t connect_timeout_ns;    /* [60 s] */
  int64_t linger_ns;             /* [60 s] What a closed connection waits for acknowledgements,
                                    then it is reset, ETIMEDOUT; and for FIN, then it ends, 0. */
} xtreme_tcp_options;

/* Listens at `options->local`. Started: OP_DONE with cookie 0; when its status is not 0, close the
 * listener: ENOSPC, the card's table of rules is full, and no rule of TCP is shared with the
 * kernel, which would reset the connections. -EINVAL: no port, a setting out of range. -E2BIG.
 * -EADDRNOTAVAIL: not an address of the interface. -EADDRINUSE: a listener of the ring has it;
 * another ring's or program's comes as OP_DONE. -EMFILE: max_connections. -EOPNOTSUPP: the ring has
 * no TCP. -EAFNOSUPPORT. */
XTREME_API int xtreme_tcp_listen(xtreme_ring ring, const xtreme_tcp_options* options,
                                 xtreme_socket* socket);
/* Starts a connection to `peer`; `options` may be null. Sends are QUEUED until ESTABLISHED; refused
 * (STATE) is what may not wait, and, while the way to the peer is looked for, what does not fit.
 * -EINVAL: no unicast address or no port, a setting out of range. -ENETUNREACH: the route leads
 * elsewhere. Else as xtreme_tcp_listen(). */
XTREME_API int xtreme_tcp_connect(xtreme_ring ring, const xtreme_address* peer,
                                  const xtreme_tcp_options* options, xtreme_socket* socket);
/* Changes what may change after opening; the rest is not looked at. 0 leaves a field as it is,
 * unless `preset` is one. Of a listener: of later connections. -EINVAL, -E2BIG: options. */
XTREME_API int xtreme_tcp_set_options(xtreme_socket socket, const xtreme_tcp_options* options);
/* Credits `bytes` that were handed out: the peer may send as much again, though the buffers are
 * kept; releasing them credits these bytes no more. -EINVAL: more than are owed. */
XTREME_API int xtreme_credit(xtreme_socket socket, uint32_t bytes);
/* FIN behind what is queued; receiving goes on. -ENOTCONN: not connected. */
XTREME_API int xtreme_shutdown(xtreme_socket socket);
/* RST at once; TERMINATED with ECONNABORTED. Of a listener: xtreme_socket_close(). */
XTREME_API int xtreme_abort(xtreme_socket socket);

enum xtreme_tcp_state { /* RFC 9293 section 3.3.2. */
  XTREME_TCP_CLOSED = 0,
  XTREME_TCP_LISTEN = 1,
  XTREME_TCP_SYN_SENT = 2, /* Also while route, next hop or port are looked for. */
  XTREME_TCP_SYN_RECEIVED = 3,
  XTREME_TCP_ESTABLISHED = 4,
  XTREME_TCP_FIN_WAIT_1 = 5,
  XTREME_TCP_FIN_WAIT_2 = 6,
  XTREME_TCP_CLOSE_WAIT = 7,
  XTREME_TCP_CLOSING = 8,
  XTREME_TCP_LAST_ACK = 9,
  XTREME_TCP_TIME_WAIT = 10
};
typedef struct xtreme_tcp_info {
  size_t size;                   /* sizeof(xtreme_tcp_info). */
  xtreme_address local;
  xtreme_address peer;
  uint8_t state;                 /* enum xtreme_tcp_state. */
  uint8_t in_recovery;           /* 1: losses are being repaired. */
  uint16_t reserved;
  int64_t srtt_ns;               /* 0: not measured yet. */
  int64_t rttvar_ns;
  int64_t rto_ns;
  int64_t oldest_ns;             /* Age of the oldest unacknowledged byte; 0: there is none. */
  uint32_t mss;                  /* Most payload of a segment sent. */
  uint32_t congestion_window;    /* Bytes, as all that follow but the last. */
  uint32_t slow_start_threshold;
  uint32_t send_window;          /* The peer's. */
  uint32_t receive_window;       /* Ours, as offered. */
  uint32_t in_flight;            /* Sent and not acknowledged, sacked and lost ones too. */
  uint32_t unsent;
  uint32_t owed_credit;          /* Handed out, or waiting to be, and not credited. */
  uint32_t retransmits;          /* Segments. */
  uint32_t reserved_too;
} xtreme_tcp_info;
/* Fills `info`, of info->size bytes, without a system call. -EINVAL: a size that never was. */
XTREME_API int xtreme_tcp_get_info(xtreme_socket socket, xtreme_tcp_info* info);

/* ---- Sending --------------------------------------------------------------------------------- */

enum xtreme_send_flag {
  XTREME_NOW_OR_FAIL = 1 << 0, /* Never QUEUED: a stale order is worse than a refused one. */
  XTREME_NO_DOORBELL = 1 << 1, /* xtreme_ring_flush() or the next poll rings. */
  XTREME_WANT_DONE = 1 << 2,   /* A TX_DONE with the cookie. */
  XTREME_WANT_WIRE = 1 << 3,   /* A TX_WIRE with the cookie. */
  XTREME_WARM = 1 << 4         /* Runs the path, reaches no wire: no TX_WIRE, and not counted as
                                  sent. Of a stream's nothing is told. */
};
typedef struct xtreme_send_options {
  uint32_t flags; /* enum xtreme_send_flag; other bits are not looked at. */
  uint32_t reserved; /* 0. */
  uint64_t cookie;
} xtreme_send_options;

/* What became of a send. All or nothing; every refusal is counted by its reason. */
enum xtreme_send_result {
  XTREME_SENT = 0,
  XTREME_QUEUED = 1,            /* Waits for a neighbour (of streams: for the peer's window, the
                                   congestion window, the handshake). Sent or reported later. */
  XTREME_REFUSED_NEIGHBOUR = -1, /* Next hop unknown and NOW_OR_FAIL, or its queue is full. */
  XTREME_REFUSED_SQ_FULL = -2,
  XTREME_REFUSED_BUFFERS = -3,   /* The pool has no buffer for what does not fit inline; of streams:
                                    or what waits for the peers has three quarters of it. */
  XTREME_REFUSED_STATE = -4,     /* Closed, stale, not connected, ring not started, port broken, or
                                    a call for the other kind of socket. */
  XTREME_REFUSED_SIZE = -5,      /* Longer than a datagram can be. */
  XTREME_REFUSED_ROUTE = -6,     /* No route, another interface's, broadcast not allowed, IPv6. */
  /* Of streams. TX_SPACE follows one of these, SQ_FULL and BUFFERS, when it would be SENT; with
   * NOW_OR_FAIL, and longer than a segment, that may be never while nothing else is sent. */
  XTREME_REFUSED_WINDOW = -7,    /* The peer's window, or the send queue, is full. */
  XTREME_REFUSED_CONGESTION = -8, /* NOW_OR_FAIL: the congestion window is full, */
  XTREME_REFUSED_RECOVERY = -9    /* or losses are being repaired. */
};

/* Sends a datagram to the default destination, or bytes of a stream. `data` may be reused at once.
 * `options` may be null. No bytes of a stream are SENT, or refused (STATE) where none are taken any
 * more, and nothing is told of them. */
XTREME_API int xtreme_send(xtreme_socket socket, const void* data, size_t length,
                           const xtreme_send_options* options);
/* Sends a datagram to `peer`. The last few destinations of a socket are remembered. */
XTREME_API int xtreme_send_to(xtreme_socket socket, const xtreme_address* peer, const void* data,
                              size_t length, const xtreme_send_options* options);
/* Sends `length` bytes at `data`, which lie in `buffer` (acquired, received or registered), without
 * a copy. Takes over one reference when SENT or QUEUED, none when refused. The bytes must not
 * change until TX_DONE. `peer` null: the default destination, the only one of a stream. What does
 * not lie in a buffer of the socket's ring, as what another ring received, is copied. */
XTREME_API int xtreme_send_buffer(xtreme_socket socket, const xtreme_address* peer,
                                  xtreme_buffer* buffer, const void* data, size_t length,
                                  const xtreme_send_options* options);
/* What a send of `length` bytes to the default destination, with NOW_OR_FAIL on a stream, would
 * return now. */
XTREME_API int xtreme_would_send(xtreme_socket socket, size_t length);
/* Sends as many bytes of a stream as are taken, and says in `taken` how many: 0 of a warm one. The
 * result is that of these, a refusal (and then a TX_SPACE) when there are none. What was asked for
 * is of the last. */
XTREME_API int xtreme_send_some(xtreme_socket socket, const void* data, size_t length,
                                const xtreme_send_options* options, size_t* taken);

typedef struct xtreme_bytes {
  const void* data;
  uint32_t length;
  uint32_t reserved; /* 0. */
} xtreme_bytes;
/* Sends `count` datagrams to the default destination, in order, with one doorbell; stops at the
 * first that is refused, whose result is put into `last` (else that of the last one). Returns how
 * many were sent or queued. `flags`: XTREME_NOW_OR_FAIL, XTREME_NO_DOORBELL. -EINVAL: another flag,
 * and `last` is not written. */
XTREME_API int xtreme_send_many(xtreme_socket socket, const xtreme_bytes* datagrams, int count,
                                uint32_t flags, int* last);

/* ---- Prepared sends -------------------------------------------------------------------------- */

/*
 * A datagram, or a stream's next bytes, built ahead: headers, payload and what the NIC is told.
 * Firing it is little more than a store to the NIC. It is fired at most once until it is armed
 * again, so that an order cannot leave twice. It goes when it is discarded or its socket is closed.
 */
typedef struct xtreme_prepared { uint64_t value; } xtreme_prepared;

/* Prepares a datagram to the socket's default destination, or bytes of a stream, which need not be
 * established yet, and arms it; `data` is copied. Fired, a stream's leave behind all that was sent
 * before, or are refused as by XTREME_NOW_OR_FAIL; armed, it takes a buffer of the ring, which
 * keeps them until they are acknowledged. -ENOTCONN: no default destination; a listener. -EMSGSIZE:
 * longer than a datagram, or than the stream's send queue. -EINVAL: a stream's, and no bytes.
 * -ENOBUFS: 4,096 are prepared. */
XTREME_API int xtreme_prepare(xtreme_socket socket, const void* data, size_t length,
                              xtreme_prepared* prepared);
/* Changes `length` bytes of its payload from `offset` on, armed or not. -EINVAL: beyond its end. */
XTREME_API int xtreme_patch(xtreme_prepared prepared, size_t offset, const void* data,
                            size_t length);
/* Sends it now: enum xtreme_send_result, never QUEUED. SENT disarms it; refused, it may be fired
 * again. REFUSED_STATE: not armed, or gone. `options` may be null; XTREME_WARM runs the path and
 * leaves it armed. */
XTREME_API int xtreme_fire(xtreme_prepared prepared, const xtreme_send_options* options);
/* Disarms it; xtreme_rearm() arms it, fired or cancelled. */
XTREME_API int xtreme_cancel(xtreme_prepared prepared);
XTREME_API int xtreme_rearm(xtreme_prepared prepared);
XTREME_API int xtreme_discard(xtreme_prepared prepared);
/* Has the ring's owner fire it at its next poll: for another thread, by its lane on that ring. A
 * refusal comes as ERROR with the cookie and an errno as `status` (ECANCELED: not armed; EBADF: it
 * is gone), and a TX_DONE that was wanted as ECANCELED. -EAGAIN: the lane is full. -EPIPE: the ring
 * is closed. -EBADF: no such lane, or the prepared send is another ring's. */
XTREME_API int xtreme_lane_fire(xtreme_lane lane, xtreme_prepared prepared,
                                const xtreme_send_options* options);

/* ---- Sockets --------------------------------------------------------------------------------- */

enum xtreme_close_flag {
  XTREME_DETACH = 1 << 0 /* No completions any more, TERMINATED included. */
};
/* Ends a socket. After it only its TX_DONEs and TERMINATED come. A stream goes on, for at most its
 * linger_ns, until the peer has all and closed too; with bytes that came and were not handed out it
 * is reset, as by bytes that come later: TERMINATED with ECONNRESET. See also xtreme_abort(). What
 * a listener had handed out goes on without it. -EINVAL: an unknown flag. */
XTREME_API int xtreme_socket_close(xtreme_socket socket, uint32_t flags);
XTREME_API int xtreme_socket_set_user_data(xtreme_socket socket, uint64_t user_data);
XTREME_API int xtreme_socket_local(xtreme_socket socket, xtreme_address* local);
/*
 * Has the device send the frames of a UDP socket or connection at `bytes_per_second` of them and
 * never more than `burst_bytes` ahead of that; 0 bytes a second: no more a rate. A burst of 0 is
 * the device's own; `packet_bytes`, typical, helps it to keep the burst, 0: not said. Sockets of
 * the ring with the same three numbers share one send queue, and the rate; it is beside the ring's
 * own, so that nothing else waits for it. A send is still SENT when it is posted, and SQ_FULL when
 * tx_queue_frames are. What was posted before the rate changes may leave after what is posted then.
 * A queue that stops is BROKEN's; a reset, or a move to the backup, makes them again, and says in
 * its OP_DONE or MOVED when it cannot: sends are refused (STATE) then.
 * Started: OP_DONE with `cookie`, from which on it holds: EINVAL, the text has the device's range,
 * or says that it may take no burst and no packet size; ENOSPC, its table of rates is full.
 * -EOPNOTSUPP: the device paces nothing. -EINVAL: packets of more than 65,535 bytes. -ENOTCONN: a
 * listener. -EAGAIN: 255 of this connection are not done yet.
 */
XTREME_API int xtreme_socket_set_rate(xtreme_socket socket, uint64_t bytes_per_second,
                                      uint32_t burst_bytes, uint32_t packet_bytes,
                                      uint64_t cookie);

/*
 * Hands an established connection over to another ring of the process on the same interface; the
 * calling thread owns the ring that it is on. The peer does not notice. All or nothing:
 * From here on the handle is stale (-EBADF), though completions still come by it: what had been
 * received and told by then, TX_DONE of what the peer has acknowledged, TX_WIRE of what has left,
 * and DEPARTED last, in place of TERMINATED. On the other ring comes ARRIVED, with a new handle,
 * the user data and `cookie`, then everything else in order: bytes received from then on, and
 * TX_DONE, TX_WIRE and TX_SPACE that were still due. If that ring cannot take it after all, each
 * TX_DONE still due (ECANCELED) and TERMINATED come there instead, with `socket` 0, the user data
 * and the send's, or the move's, `cookie` (ENOBUFS: no buffer or segment for what is not
 * acknowledged; EMFILE; ENETDOWN), and the peer is reset; so it is, without a word, when that ring
 * is closed first. What the peer said before the move (PEER_CLOSED) is not said
 * again. Buffers that were handed out stay readable, and credit their bytes as before. The ring
 * that it leaves goes on being polled, for it passes on what still comes there, and that which
 * listened or connected, where the local port stays, is not closed before the connection has ended.
 * -EBADF: a stale handle, or no such ring. -EINVAL: it is on that ring. -EPIPE: that is closed.
 * -EOPNOTSUPP: it has no TCP. -EXDEV: it is on another interface. -ENETDOWN: this ring is not
 * started, or broken. -ENOTCONN: not established, or closing both ways. -EBUSY: sends of it are
 * prepared, it has a rate or OP_DONE of one is due, or what it sent of registered memory is not
 * acknowledged yet. -EMFILE: max_connections are open there.
 */
XTREME_API int xtreme_socket_move(xtreme_socket socket, xtreme_ring to, uint64_t cookie);

/* ---- Buffers --------------------------------------------------------------------------------- */

/* Every link has a count of its own. Any thread may call, except acquire. */
XTREME_API void xtreme_buffer_ref(xtreme_buffer* buffer);
/* Drops one reference of this link: 1 if it was certainly the last, else 0. */
XTREME_API int xtreme_buffer_release(xtreme_buffer* buffer);
XTREME_API xtreme_buffer* xtreme_buffer_next(const xtreme_buffer* buffer);
XTREME_API uint8_t* xtreme_buffer_data(const xtreme_buffer* buffer);
XTREME_API uint32_t xtreme_buffer_length(const xtreme_buffer* buffer);
/* Copies up to `size` bytes of a completion's payload, over all links, to `to`; bytes copied. */
XTREME_API size_t xtreme_copy_out(const xtreme_completion* completion, void* to, size_t size);
/* Releases all links of every PACKET among `count` completions; the others are passed over. */
XTREME_API void xtreme_release(const xtreme_completion* completions, int count,
                               size_t completion_size);
/* A buffer to build a datagram in: `data` has room for `capacity` bytes. Owner thread.
 * -ENOBUFS: none is free. */
XTREME_API int xtreme_buffer_acquire(xtreme_ring ring, xtreme_buffer** buffer, uint8_t** data,
                                     uint32_t* capacity);

/* Memory of the program that is sent from where it stands. */
typedef struct xtreme_memory {
  void* start;
  size_t length; /* 1 .. 2^31 bytes, which can be read and written. */
  /* Called once, when no reference is left and the NIC reads there no more: by a poll of the ring,
   * or on any thread once the ring is closed. Until then the memory stays. It may not call this
   * library. May be null. */
  void (*released)(void* context, void* start);
  void* context;
  uint64_t cookie;
} xtreme_memory;
/* Makes it one buffer of `ring` with one reference, of which xtreme_send_buffer() sends any part to
 * any socket of the ring; who sends it more than once takes a reference for each (buffer_ref). The
 * last release gives the memory back. The NIC pins it, which counts against RLIMIT_MEMLOCK. Owner
 * thread. Started: OP_DONE with `cookie`, from which on nothing of it is copied; with a status it
 * is copied on (ENOSPC: memlock, or no memory; EPERM; EINVAL: not mapped). -EINVAL: no bytes, or
 * too many. -ENOBUFS: 64 are registered. */
XTREME_API int xtreme_buffer_register(xtreme_ring ring, const xtreme_memory* memory,
                                      xtreme_buffer** buffer);

/* ---- Timers, other threads, other fds -------------------------------------------------------- */

/* Fires once, at or after `deadline_ns` of CLOCK_MONOTONIC and after the packets that came before.
 * -ENOBUFS: too many. */
XTREME_API int xtreme_timer_start(xtreme_ring ring, int64_t deadline_ns, uint64_t cookie,
                                  xtreme_timer* timer);
/* -EBADF: it fired or was cancelled already, or is another ring's. */
XTREME_API int xtreme_timer_cancel(xtreme_ring ring, xtreme_timer timer);

/* A lane is one thread's way into a ring it does not own; opened by the ring's owner, closed when
 * its poster has stopped. -ENOBUFS: 64 are open. -EMFILE: 65,535 are, of all rings. */
XTREME_API int xtreme_lane_open(xtreme_ring ring, xtreme_lane* lane);
XTREME_API int xtreme_lane_close(xtreme_lane lane);
/* Delivers `value` as POSTED. One thread at a time per lane. -EAGAIN: the lane is full (4,096,
 * or one less until something behind the first was taken). -EPIPE: the ring is closed. */
XTREME_API int xtreme_lane_post(xtreme_lane lane, uint64_t value);
/* Makes a ring that sleeps look again. Any thread. */
XTREME_API int xtreme_ring_wake(xtreme_ring ring);

/* Reports `events` (EPOLLIN, EPOLLOUT) of a kernel fd as FD_EVENT, once; again after another call.
 * Several rings may watch one. `events` 0 ends it. -EBADF: a negative fd; what the kernel refuses
 * comes as FD_EVENT with its errno as `status`. */
XTREME_API int xtreme_ring_watch(xtreme_ring ring, int fd, uint32_t events);

/* ---- Counters -------------------------------------------------------------------------------- */

/*
 * They are also published once a second, and when a ring starts and closes, in a file of
 * `counters_directory` that other programs read (xtreme/stats/layout.h). A process that is killed
 * leaves it, to be read until the next ring of that directory is opened.
 */
typedef struct xtreme_counter {
  const char* scope;   /* "ring", "queue", "pool", "port", "drop", "neighbour", "udp", "tcp"... */
  const char* name;
  const char* meaning;
  uint64_t value;
} xtreme_counter;

/* Fills up to `max` counters of a ring, or of a socket; the number there are. Owner thread. Strings
 * are static. */
XTREME_API int xtreme_ring_counters(xtreme_ring ring, xtreme_counter* counters, int max);
XTREME_API int xtreme_socket_counters(xtreme_socket socket, xtreme_counter* counters, int max);

#ifdef __cplusplus
}  /* extern "C" */
#endif

#endif /* XTREME_API_XTREME_H_ */
