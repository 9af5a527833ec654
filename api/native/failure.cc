// SPDX-License-Identifier: Apache-2.0

#include "api/native/failure.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace xtreme::api {
namespace {

// Without a destructor, so that it is there as long as the thread: objects of static duration are
// destroyed after those of the thread, and close what they own.
thread_local bool sentence_is_gone = false;

struct Sentence {
  ~Sentence() { sentence_is_gone = true; }
  std::string text;
};

// Null: the thread's objects have been destroyed.
std::string* LastSentence() {
  if (sentence_is_gone) return nullptr;
  static thread_local Sentence sentence;
  return &sentence.text;
}

int ErrnoOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument: return EINVAL;
    case absl::StatusCode::kNotFound: return ENODEV;
    case absl::StatusCode::kPermissionDenied: return EPERM;
    case absl::StatusCode::kResourceExhausted: return ENOMEM;
    case absl::StatusCode::kOutOfRange: return ENOSPC;
    case absl::StatusCode::kAlreadyExists: return EADDRINUSE;
    case absl::StatusCode::kFailedPrecondition: return ENODEV;
    case absl::StatusCode::kUnimplemented: return EOPNOTSUPP;
    case absl::StatusCode::kUnavailable: return EAGAIN;
    default: return EIO;
  }
}

}  // namespace

int Fail(int error, std::string text) {
  if (std::string* last = LastSentence()) *last = std::move(text);
  return -error;
}

int Fail(const absl::Status& status) {
  return Fail(ErrnoOf(status.code()), std::string(status.message()));
}

const char* LastFailure() {
  const std::string* last = LastSentence();
  return last == nullptr ? "" : last->c_str();
}

int CopyText(const std::string& text, char* to, size_t size) {
  if (size > 0) {
    const size_t copied = std::min(text.size(), size - 1);
    memcpy(to, text.data(), copied);
    to[copied] = 0;
  }
  return static_cast<int>(text.size());
}

}  // namespace xtreme::api
