// SPDX-License-Identifier: Apache-2.0

#include "peer.h"

#include <string.h>

#include "instance.h"
#include "lwip/etharp.h"
#include "lwip/init.h"
#include "lwip/netif.h"
#include "lwip/pbuf.h"
#include "lwip/udp.h"
#include "netif/ethernet.h"

#define EXPORT __attribute__((visibility("default")))
#define MAX_FRAME 1514  // Of this interface; PBUF_POOL_BUFSIZE is longer.
#define MAX_WAITING 64  // Frames; a power of two.

static struct netif interface;
static struct udp_pcb* socket;
static XtremeLwipWire transmit;
static int echoes;
static uint64_t received;
static uint8_t frame[MAX_FRAME];

// Frames that wait for XtremeLwipNextFrame, by free-running indices.
static uint8_t waiting[MAX_WAITING][MAX_FRAME];
static uint16_t lengths[MAX_WAITING];
static uint32_t first_waiting, end_waiting;

struct Instance instance;

u32_t sys_now(void) { return 0; }

static ip4_addr_t Address(uint32_t host_order) {
  ip4_addr_t address;
  address.addr = lwip_htonl(host_order);
  return address;
}

// The driver's transmit: one copy, as ours copies into the WQE.
static err_t Output(struct netif* netif, struct pbuf* p) {
  (void)netif;
  const uint16_t length = p->tot_len;
  if (transmit == NULL && end_waiting - first_waiting == MAX_WAITING) return ERR_MEM;
  uint8_t* to = transmit == NULL ? waiting[end_waiting % MAX_WAITING] : frame;
  if (p->len == length) {
    memcpy(to, p->payload, length);
  } else {
    pbuf_copy_partial(p, to, length, 0);
  }
  if (transmit == NULL) {
    lengths[end_waiting++ % MAX_WAITING] = length;
  } else {
    transmit(to, length);
  }
  return ERR_OK;
}

EXPORT const uint8_t* XtremeLwipNextFrame(uint16_t* length) {
  if (first_waiting == end_waiting) return NULL;
  *length = lengths[first_waiting % MAX_WAITING];
  return waiting[first_waiting++ % MAX_WAITING];
}

static err_t Initialise(struct netif* netif) {
  netif->name[0] = 'x';
  netif->name[1] = 't';
  netif->output = etharp_output;
  netif->linkoutput = Output;
  netif->mtu = 1500;
  netif->hwaddr_len = ETH_HWADDR_LEN;
  netif->flags = NETIF_FLAG_BROADCAST | NETIF_FLAG_ETHARP | NETIF_FLAG_LINK_UP;
  return ERR_OK;
}

static void OnDatagram(void* unused, struct udp_pcb* pcb, struct pbuf* p, const ip_addr_t* from,
                       u16_t port) {
  (void)unused;
  (void)from;
  (void)port;
  ++received;
  if (echoes) udp_send(pcb, p);
  pbuf_free(p);
}

EXPORT void XtremeLwipReceiveFrame(const uint8_t* bytes, uint16_t length) {
  struct pbuf* p = pbuf_alloc(PBUF_RAW, length, PBUF_POOL);
  if (p == NULL) return;
  memcpy(p->payload, bytes, length);  // A pool buffer holds a frame.
  if (interface.input(p, &interface) != ERR_OK) pbuf_free(p);
}

EXPORT int XtremeLwipOpenHost(const struct XtremeLwipHost* us, const struct XtremeLwipHost* peer,
                              int echo, XtremeLwipWire wire) {
  lwip_init();
  transmit = wire;
  echoes = echo;
  const ip4_addr_t address = Address(us->address);
  const ip4_addr_t mask = Address(0xffffff00);
  const ip4_addr_t gateway = Address(0);
  const ip4_addr_t other = Address(peer->address);
  const struct Instance who = {address, other, us->port, peer->port};
  instance = who;
  if (netif_add(&interface, &address, &mask, &gateway, NULL, Initialise, ethernet_input) == NULL) {
    return -1;
  }
  memcpy(interface.hwaddr, us->mac, ETH_HWADDR_LEN);
  netif_set_default(&interface);
  netif_set_up(&interface);
  struct eth_addr mac;
  memcpy(mac.addr, peer->mac, ETH_HWADDR_LEN);
  socket = udp_new();
  if (socket == NULL || etharp_add_static_entry(&other, &mac) != ERR_OK) return -1;
  udp_recv(socket, OnDatagram, NULL);
  if (udp_bind(socket, &address, us->port) != ERR_OK) return -1;
  return udp_connect(socket, &other, peer->port) == ERR_OK ? 0 : -1;
}

EXPORT int XtremeLwipSendDatagram(const void* payload, uint16_t length) {
  struct pbuf* p = pbuf_alloc(PBUF_TRANSPORT, length, PBUF_RAM);
  if (p == NULL) return -1;
  memcpy(p->payload, payload, length);
  const err_t error = udp_send(socket, p);
  pbuf_free(p);
  return error == ERR_OK ? 0 : -1;
}

EXPORT uint64_t XtremeLwipReceivedDatagrams(void) { return received; }
