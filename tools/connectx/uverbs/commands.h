// SPDX-License-Identifier: Apache-2.0
//
// The verbs commands by name, one table: which message each is and which function answers it.
//
// What is not in the table (SRQs, RC, objects of DevX...) is EOPNOTSUPP.
// Spec: <rdma/ib_user_ioctl_cmds.h>, <rdma/ib_user_verbs.h>, <rdma/mlx5_user_ioctl_cmds.h>.

#ifndef XTREME_TOOLS_CONNECTX_UVERBS_COMMANDS_H_
#define XTREME_TOOLS_CONNECTX_UVERBS_COMMANDS_H_

#include <span>
#include <string_view>

#include "tools/connectx/uverbs/context.h"
#include "tools/connectx/uverbs/ioctl.h"

namespace xtreme::connectx {

struct Command {
  std::string_view name;  // As fault injection knows it: "CREATE_QP".
  int (*answer)(Context& context, const VerbsCall& call);
};

// The command that `call` asks for, or null; `*error` then says what to answer.
const Command* FindCommand(const VerbsCall& call, int* error);

// Every name, in the order of the table.
std::span<const std::string_view> CommandNames();

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_UVERBS_COMMANDS_H_
