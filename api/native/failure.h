// SPDX-License-Identifier: Apache-2.0
//
// How a call of the C API fails: -errno, and a sentence for xtreme_error() on the same thread.

#ifndef XTREME_API_NATIVE_FAILURE_H_
#define XTREME_API_NATIVE_FAILURE_H_

#include <string>

#include "absl/status/status.h"

namespace xtreme::api {

// Keeps the sentence and returns -error. `error` is a positive errno.
int Fail(int error, std::string text);
// The same for what bring-up says: its code as the errno that xtreme.h names.
int Fail(const absl::Status& status);

// The thread's last sentence.
const char* LastFailure();

// Writes `text` and a zero into `size` bytes at `to`, cut where it does not fit; its whole length.
int CopyText(const std::string& text, char* to, size_t size);

}  // namespace xtreme::api

#endif  // XTREME_API_NATIVE_FAILURE_H_
