// SPDX-License-Identifier: Apache-2.0
//
// PortStock: ports leased ahead of use, so that opening a socket on "any port" makes no system
// call. Refilled by the control thread when it runs low.
//
// Threads: the ring's owner.

#ifndef XTREME_XTREME_ENGINE_PORT_STOCK_H_
#define XTREME_XTREME_ENGINE_PORT_STOCK_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "xtreme/engine/kernel.h"

namespace xtreme::engine {

class PortStock {
 public:
  static constexpr size_t kFull = 8;
  static constexpr size_t kLow = 4;

  void Add(std::unique_ptr<KernelPort> port) { ports_.push_back(std::move(port)); }
  // Null when none is left.
  std::unique_ptr<KernelPort> Take() {
    if (ports_.empty()) return nullptr;
    std::unique_ptr<KernelPort> port = std::move(ports_.back());
    ports_.pop_back();
    return port;
  }
  // How many to lease now, 0 while there are enough or some are on their way.
  size_t Wanted() {
    if (ports_.size() + ordered_ > kLow) return 0;
    const size_t wanted = kFull - ports_.size() - ordered_;
    ordered_ += wanted;
    return wanted;
  }
  void Delivered(size_t count) { ordered_ -= count; }
  std::vector<std::unique_ptr<KernelPort>> TakeAll() { return std::move(ports_); }

 private:
  std::vector<std::unique_ptr<KernelPort>> ports_;
  size_t ordered_ = 0;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_PORT_STOCK_H_
