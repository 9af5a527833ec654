// SPDX-License-Identifier: Apache-2.0
// An owned kernel file descriptor, and the Status of a failed system call.
//
// Invariant: a FileDescriptor holds -1 or a descriptor that nobody else closes.
// Threads: like an int; one thread at a time.

#ifndef XTREME_XTREME_HOST_FILE_DESCRIPTOR_H_
#define XTREME_XTREME_HOST_FILE_DESCRIPTOR_H_

#include <unistd.h>

#include <string_view>
#include <utility>

#include "absl/status/status.h"

namespace xtreme::host {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  // Takes ownership of `fd`; -1 is "none".
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) Reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~FileDescriptor() { Reset(-1); }

  // The descriptor, still owned here; -1 when there is none.
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  void Reset(int fd) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

  int fd_ = -1;
};

// The Status of a system call that failed with `error` (an errno): the code absl gives that errno,
// the message `what` (the action and what was asked), the system's words and the number.
absl::Status ErrnoStatus(int error, std::string_view what);

}  // namespace xtreme::host

#endif  // XTREME_XTREME_HOST_FILE_DESCRIPTOR_H_
