// SPDX-License-Identifier: Apache-2.0
//
// Inbox: what other threads (the control thread above all) have to tell a ring.
//
// Invariant: a notice belongs to its sender until Push(), to the inbox until TakeAll(), then to the
// owner. Notices of one sender come out in the order they went in. Looking whether there is
// anything is one load; taking is the only locked instruction, and only when there is something.
// Threads: Push any, the rest the ring's owner.

#ifndef XTREME_XTREME_ENGINE_INBOX_H_
#define XTREME_XTREME_ENGINE_INBOX_H_

#include <atomic>
#include <memory>

namespace xtreme::engine {

// One thing to tell. Derive from it; the receiver knows what it gets by its own tag.
struct Notice {
  virtual ~Notice() = default;
  Notice* next = nullptr;  // The inbox's.
};

// Notices that were taken out, in order; linked, so that keeping one costs nothing.
class NoticeList {
 public:
  NoticeList() = default;
  NoticeList(const NoticeList&) = delete;
  NoticeList& operator=(const NoticeList&) = delete;
  ~NoticeList() { Clear(); }

  bool empty() const { return first_ == nullptr; }
  void Add(std::unique_ptr<Notice> notice) {
    notice->next = nullptr;
    Notice** const end = first_ == nullptr ? &first_ : &last_->next;
    *end = last_ = notice.release();
  }
  // Not when it is empty.
  std::unique_ptr<Notice> TakeFirst() {
    std::unique_ptr<Notice> notice(first_);
    first_ = notice->next;
    return notice;
  }
  void Clear() {
    while (!empty()) TakeFirst();
  }

 private:
  Notice* first_ = nullptr;
  Notice* last_ = nullptr;  // Where there is a first.
};

class Inbox {
 public:
  Inbox() = default;
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;
  ~Inbox() {
    TakeAll([](std::unique_ptr<Notice>) {});
  }

  void Push(std::unique_ptr<Notice> notice) {
    Notice* added = notice.release();
    Notice* head = head_.load(std::memory_order_relaxed);
    do {
      added->next = head;
    } while (!head_.compare_exchange_weak(head, added, std::memory_order_release,
                                          std::memory_order_relaxed));
  }

  bool HasAny() const { return head_.load(std::memory_order_relaxed) != nullptr; }

  // Calls `take(std::unique_ptr<Notice>)` for each, oldest first.
  template <typename Take>
  void TakeAll(Take&& take) {
    if (!HasAny()) return;
    Notice* newest = head_.exchange(nullptr, std::memory_order_acquire);
    Notice* oldest = nullptr;
    while (newest != nullptr) {
      Notice* next = newest->next;
      newest->next = oldest;
      oldest = newest;
      newest = next;
    }
    while (oldest != nullptr) {
      Notice* next = oldest->next;
      take(std::unique_ptr<Notice>(oldest));
      oldest = next;
    }
  }

 private:
  std::atomic<Notice*> head_{nullptr};
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_INBOX_H_
