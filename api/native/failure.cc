// SPDX-License-Identifier: Apache-2.0

#include "api/native/failure.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace xtreme::api {
namespace {

std::string& Sentence() {
  static thread_local std::string sentence;
  return sentence;
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
  Sentence() = std::move(text);
  return -error;
}

int Fail(const absl::Status& status) {
  return Fail(ErrnoOf(status.code()), std::string(status.message()));
}

const char* LastFailure() { return Sentence().c_str(); }

int CopyText(const std::string& text, char* to, size_t size) {
  if (size > 0) {
    const size_t copied = std::min(text.size(), size - 1);
    memcpy(to, text.data(), copied);
    to[copied] = 0;
  }
  return static_cast<int>(text.size());
}

}  // namespace xtreme::api
