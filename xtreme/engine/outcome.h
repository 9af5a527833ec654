// SPDX-License-Identifier: Apache-2.0
//
// Outcome: how a control call ended: 0 or a positive errno, and one sentence when it failed.

#ifndef XTREME_XTREME_ENGINE_OUTCOME_H_
#define XTREME_XTREME_ENGINE_OUTCOME_H_

#include <cerrno>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace xtreme::engine {

struct Outcome {
  int error = 0;
  std::string text;  // Action, asked, offered. When error is 0 empty, or what to know of it.

  Outcome() = default;
  Outcome(int error, std::string text) : error(error), text(std::move(text)) {}
  bool ok() const { return error == 0; }
};

// The errno nearest to a status' code.
inline int ErrnoOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk: return 0;
    case absl::StatusCode::kInvalidArgument: return EINVAL;
    case absl::StatusCode::kNotFound: return ENODEV;
    case absl::StatusCode::kAlreadyExists: return EADDRINUSE;
    case absl::StatusCode::kPermissionDenied: return EPERM;
    case absl::StatusCode::kResourceExhausted: return ENOSPC;
    case absl::StatusCode::kFailedPrecondition: return EADDRNOTAVAIL;
    case absl::StatusCode::kUnimplemented: return EOPNOTSUPP;
    case absl::StatusCode::kUnavailable: return EAGAIN;
    default: return EIO;
  }
}

inline Outcome OutcomeOf(const absl::Status& status) {
  return status.ok() ? Outcome() : Outcome(ErrnoOf(status), std::string(status.message()));
}

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_OUTCOME_H_
