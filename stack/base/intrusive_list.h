// SPDX-License-Identifier: Apache-2.0
//
// A doubly linked list whose links lie in the elements: nothing is allocated, and an element leaves
// its list in O(1) without knowing which list that is.
//
//   struct Timer { ListHook hook; ... };
//   IntrusiveList<Timer, &Timer::hook> due;
//
// The invariant: a hook is in at most one list; a hook that is destroyed leaves its list by itself.
// The list owns no element. Neither lists nor hooks move or copy. One thread.
#ifndef XTREME_STACK_BASE_INTRUSIVE_LIST_H_
#define XTREME_STACK_BASE_INTRUSIVE_LIST_H_

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace xtreme::base {

class ListHook {
 public:
  ListHook() = default;
  ~ListHook() { Unlink(); }
  ListHook(const ListHook&) = delete;
  ListHook& operator=(const ListHook&) = delete;

  bool linked() const { return next_ != this; }

  // Leaves the list it is in; nothing happens when it is in none.
  void Unlink() {
    previous_->next_ = next_;
    next_->previous_ = previous_;
    next_ = previous_ = this;
  }

 private:
  template <typename T, ListHook T::*kHook>
  friend class IntrusiveList;

  // Enters the list of `position`, before it. This hook is not linked.
  void LinkBefore(ListHook* position) {
    next_ = position;
    previous_ = position->previous_;
    previous_->next_ = this;
    position->previous_ = this;
  }

  // A circle: a hook in no list is alone in its own.
  ListHook* next_ = this;
  ListHook* previous_ = this;
};

template <typename T, ListHook T::*kHook>
class IntrusiveList {
 public:
  class Iterator {
   public:
    using iterator_category = std::bidirectional_iterator_tag;
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using pointer = T*;
    using reference = T&;

    Iterator() = default;
    T& operator*() const { return *Owner(hook_); }
    T* operator->() const { return Owner(hook_); }
    Iterator& operator++() {
      hook_ = hook_->next_;
      return *this;
    }
    Iterator operator++(int) {
      Iterator before = *this;
      ++*this;
      return before;
    }
    Iterator& operator--() {
      hook_ = hook_->previous_;
      return *this;
    }
    Iterator operator--(int) {
      Iterator before = *this;
      --*this;
      return before;
    }
    friend bool operator==(Iterator, Iterator) = default;

   private:
    friend class IntrusiveList;
    explicit Iterator(ListHook* hook) : hook_(hook) {}
    ListHook* hook_ = nullptr;
  };

  IntrusiveList() = default;
  // The elements stay, each in no list.
  ~IntrusiveList() { Clear(); }
  IntrusiveList(const IntrusiveList&) = delete;
  IntrusiveList& operator=(const IntrusiveList&) = delete;

  bool empty() const { return !head_.linked(); }

  // The element must be in no list through this hook.
  void PushBack(T& element) { (element.*kHook).LinkBefore(&head_); }
  void PushFront(T& element) { (element.*kHook).LinkBefore(head_.next_); }
  void InsertBefore(Iterator position, T& element) { (element.*kHook).LinkBefore(position.hook_); }

  // The list must not be empty.
  T& front() { return *Owner(head_.next_); }
  T& back() { return *Owner(head_.previous_); }

  // Takes the first element out and returns it; null when the list is empty.
  T* PopFront() {
    if (empty()) return nullptr;
    T* first = &front();
    (first->*kHook).Unlink();
    return first;
  }

  // Takes `element` out of whatever list it is in.
  static void Remove(T& element) { (element.*kHook).Unlink(); }

  // Takes every element out: O(n), because each must know that it is in no list.
  void Clear() {
    while (!empty()) head_.next_->Unlink();
  }

  // An iterator stays valid until its own element leaves the list.
  Iterator begin() { return Iterator(head_.next_); }
  Iterator end() { return Iterator(&head_); }

 private:
  static T* Owner(ListHook* hook) {
    // The offset of a member that is known only by its pointer: the compiler folds it. The address
    // is an arbitrary aligned one, because null would be undefined to look into.
    constexpr uintptr_t kAnywhere = 0x10000;
    const uintptr_t member =
        reinterpret_cast<uintptr_t>(&(reinterpret_cast<T*>(kAnywhere)->*kHook));
    return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(hook) - (member - kAnywhere));
  }

  ListHook head_;
};

}  // namespace xtreme::base

#endif  // XTREME_STACK_BASE_INTRUSIVE_LIST_H_
