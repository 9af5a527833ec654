// SPDX-License-Identifier: Apache-2.0
//
// RingDevice: what a program may do with the device of a ring itself: moderate and arm it, have
// memory of its own registered, and take the queues of an external ring (RingProfile).
//
// Results are 0 or -errno. Threads: inside the ring's door.

#ifndef XTREME_API_SOCKETS_RING_DEVICE_H_
#define XTREME_API_SOCKETS_RING_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "xtreme/nic/queue_pair.h"

namespace xtreme::nic {
class Registration;
}

namespace xtreme::sockets {

class RingDoor;

class RingDevice {
 public:
  RingDevice(RingDoor* door, bool external);
  ~RingDevice();

  // When the device interrupts, as nic::Moderation. -EINVAL: beyond its range. -EOPNOTSUPP.
  int Moderate(uint32_t completions, uint32_t microseconds);

  // Memory that the device may read and write from here on, under `key`. -EEXIST: it is registered.
  // -EINVAL, -ENOMEM: as nic::Nic::Register.
  int Register(void* start, size_t bytes, uint32_t* key);
  // -ENOENT: no such memory.
  int Deregister(void* start, size_t bytes);

  // The queues of an external ring, whose producers and consumers the program counts on from here
  // on; asked again, the same. Null: `error` says why: -EOPNOTSUPP, the ring is a common one;
  // -ETIMEDOUT, its sends do not end.
  nic::QueueAddresses* Queues(int* error);

  struct Identity {
    uint32_t vendor = 0;
    uint32_t part = 0;
    uint32_t capabilities = 0;  // The low 32 of ibv_device_attr::device_cap_flags.
  };
  // Nothing: the device does not say.
  std::optional<Identity> Identify() const;

 private:
  RingDoor* const door_;
  const bool external_;
  std::map<std::pair<void*, size_t>, std::unique_ptr<nic::Registration>> memory_;
  std::optional<nic::QueueAddresses> queues_;
};

}  // namespace xtreme::sockets

#endif  // XTREME_API_SOCKETS_RING_DEVICE_H_
