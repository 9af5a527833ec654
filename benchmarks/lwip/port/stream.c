// SPDX-License-Identifier: Apache-2.0

#include "stream.h"

#include "instance.h"
#include "lwip/priv/tcp_priv.h"
#include "lwip/tcp.h"

#define EXPORT __attribute__((visibility("default")))

static struct tcp_pcb* stream;
static struct XtremeLwipCounts counts;
static int echoes;

static err_t OnReceived(void* unused, struct tcp_pcb* pcb, struct pbuf* p, err_t error) {
  (void)unused;
  (void)error;
  if (p == NULL) {
    ++counts.ended;
    if (pcb == stream) stream = NULL;
    return tcp_close(pcb);  // Of one that was closed by us lwIP tells nothing more.
  }
  counts.bytes += p->tot_len;
  tcp_recved(pcb, p->tot_len);
  // The segment's own bytes, copied: what they are does not matter, how many does.
  if (echoes) tcp_write(pcb, p->payload, p->len, TCP_WRITE_FLAG_COPY);
  pbuf_free(p);
  return ERR_OK;
}

static void Take(struct tcp_pcb* pcb) {
  ++counts.established;
  tcp_nagle_disable(pcb);
  tcp_recv(pcb, OnReceived);
}

static err_t OnAccepted(void* unused, struct tcp_pcb* pcb, err_t error) {
  (void)unused;
  if (error != ERR_OK || pcb == NULL) return ERR_VAL;
  Take(pcb);
  return ERR_OK;
}

static err_t OnConnected(void* unused, struct tcp_pcb* pcb, err_t error) {
  (void)unused;
  (void)error;
  Take(pcb);
  return ERR_OK;
}

EXPORT int XtremeLwipListenStream(int echo) {
  echoes = echo;
  struct tcp_pcb* pcb = tcp_new();
  if (pcb == NULL || tcp_bind(pcb, &instance.us, instance.our_port) != ERR_OK) return -1;
  pcb = tcp_listen(pcb);
  if (pcb == NULL) return -1;
  tcp_accept(pcb, OnAccepted);
  return 0;
}

EXPORT int XtremeLwipConnectStream(void) {
  stream = tcp_new();
  if (stream == NULL) return -1;
  return tcp_connect(stream, &instance.peer, instance.peer_port, OnConnected) == ERR_OK ? 0 : -1;
}

EXPORT int XtremeLwipWriteStream(const void* bytes, uint16_t length) {
  if (tcp_write(stream, bytes, length, TCP_WRITE_FLAG_COPY) != ERR_OK) return -1;
  return tcp_output(stream) == ERR_OK ? 0 : -1;
}

EXPORT void XtremeLwipCloseStream(void) {
  if (stream != NULL) tcp_close(stream);
  stream = NULL;
}

EXPORT void XtremeLwipTickStream(void) {
  tcp_tmr();
  tcp_tmr();
}

EXPORT struct XtremeLwipCounts XtremeLwipCountStreams(void) { return counts; }
