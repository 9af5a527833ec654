// SPDX-License-Identifier: Apache-2.0
//
// Objects of one kind in one context, by the handle that user space has for them.
//
// Invariant: a handle is not given out again while its object lives.
// Thread: none of its own; the boundary's lock covers it.

#ifndef XTREME_TOOLS_CONNECTX_UVERBS_HANDLE_TABLE_H_
#define XTREME_TOOLS_CONNECTX_UVERBS_HANDLE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

namespace xtreme::connectx {

template <typename T>
class HandleTable {
 public:
  uint32_t Add(T object) {
    while (objects_.contains(next_)) ++next_;
    objects_.emplace(next_, std::move(object));
    return next_++;
  }

  // Null: no such object. Valid until it is removed.
  T* Find(std::optional<uint32_t> handle) {
    if (!handle) return nullptr;
    const auto found = objects_.find(*handle);
    return found == objects_.end() ? nullptr : &found->second;
  }

  void Remove(uint32_t handle) { objects_.erase(handle); }
  void Clear() { objects_.clear(); }
  size_t size() const { return objects_.size(); }

  auto begin() const { return objects_.begin(); }
  auto end() const { return objects_.end(); }

 private:
  std::map<uint32_t, T> objects_;
  uint32_t next_ = 1;  // As the kernel's: 0 is never a handle, so a forgotten one is noticed.
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_UVERBS_HANDLE_TABLE_H_
