// SPDX-License-Identifier: Apache-2.0

#include "xtreme/host/file_descriptor.h"

#include <string_view>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace xtreme::host {

absl::Status ErrnoStatus(int error, std::string_view what) {
  return absl::Status(absl::ErrnoToStatusCode(error),
                      absl::StrCat(absl::string_view(what.data(), what.size()), ": ",
                                   std::generic_category().message(error), " (errno ", error, ")"));
}

}  // namespace xtreme::host
