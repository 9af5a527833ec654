// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/wire/decider.h"

#include <fcntl.h>
#include <linux/netlink.h>
#include <nftables/libnftables.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"

namespace xtreme::connectx {
namespace {

// Before any chain of a firewall: what a card steers past the kernel no firewall sees.
constexpr int kDecidePriority = -2000;
constexpr int kDropPriority = kDecidePriority + 1;

// "CX4X": on frames that a device took and that only the drop chain will see again.
constexpr char kTakenMark[] = "0x43583458";

std::string TableName(const std::string& owner) {
  return absl::StrCat("netdev xtreme_connectx_", owner);
}

// libnftables keeps its cache of interfaces in variables of its own, so that no two of its contexts
// may run at once, whichever decider they belong to.
std::mutex& LibraryMutex() {
  static std::mutex mutex;
  return mutex;
}

bool IsNetfilterSocket(int fd) {
  int domain = 0, protocol = 0;
  socklen_t size = sizeof domain;
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_NETLINK &&
         getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 &&
         protocol == NETLINK_NETFILTER;
}

// A table lives as long as its owner's socket. libnftables keeps that open when a program replaces
// itself, and does not say which it is: in the next program nobody could remove the table.
void CloseNetfilterSocketsOnExec() {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const int fd = std::atoi(entry.path().filename().c_str());
    if (IsNetfilterSocket(fd)) fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
}

}  // namespace

void Decider::FreeContext::operator()(nft_ctx* context) const {
  const std::lock_guard lock(LibraryMutex());
  nft_ctx_free(context);
}

Decider::Context Decider::OpenContext() {
  const std::lock_guard lock(LibraryMutex());
  Context context(nft_ctx_new(NFT_CTX_DEFAULT));
  if (context != nullptr) {
    CloseNetfilterSocketsOnExec();
    nft_ctx_buffer_output(context.get());
    nft_ctx_buffer_error(context.get());
  }
  return context;
}

absl::Status Decider::Run(nft_ctx& context, const std::string& commands) {
  const std::lock_guard lock(LibraryMutex());
  if (nft_run_cmd_from_buffer(&context, commands.c_str()) == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("nftables: ", nft_ctx_get_error_buffer(&context)));
}

absl::StatusOr<std::unique_ptr<Decider>> Decider::Create(Options options) {
  Context context = OpenContext();
  if (context == nullptr) return absl::InternalError("open a context of libnftables");
  std::unique_ptr<Decider> decider(new Decider(std::move(options), std::move(context)));
  if (absl::Status status = decider->CreateTable(); !status.ok()) return status;
  return decider;
}

Decider::Decider(Options options, Context context)
    : options_(std::move(options)),
      table_(TableName(options_.owner)),
      context_(std::move(context)) {}

Decider::~Decider() { (void)Run(*context_, absl::StrCat("delete table ", table_)); }

absl::Status Decider::CreateTable() {
  const auto hook = [](const char* side, const std::string& device, int priority) {
    return absl::StrCat("type filter hook ", side, " device \"", device, "\" priority ", priority,
                        ";");
  };
  const std::string& interface = options_.interface;
  // `taken` stands before `copied`: a frame that rules of both kinds match is not the kernel's.
  const std::string arrival =
      absl::StrCat("chain taken {}\nchain copied {}\nchain looped {}\n",            //
                   "chain decide { ", hook("ingress", interface, kDecidePriority),   //
                   " jump taken; jump copied; }\n",                                  //
                   "chain drop_taken { ", hook("ingress", interface, kDropPriority), //
                   " meta mark ", kTakenMark, " drop; }\n",                          //
                   "chain drop_outlet { ", hook("ingress", options_.outlet, 0),      //
                   " policy drop; }\n");
  // The mark has done its work when the chains of all processes have seen it.
  const std::string of_devices = absl::StrCat("meta mark & ", kSentMask, " == ", kSentMark);
  const std::string departure =
      absl::StrCat("chain loop { ", hook("egress", interface, kDecidePriority),          //
                   " meta mark != ", SentMark(options_.inlet_index), " ", of_devices,    //
                   " jump looped; }\n",                                                  //
                   "chain unmark { ", hook("egress", interface, kDropPriority), " ",     //
                   of_devices, " meta mark set 0; }\n");
  absl::Status made = absl::InternalError("");
  // A kernel before 5.12 knows no owner; RemoveTableOf then cleans up after the dead. One before
  // 5.16 has no egress hook; processes on one interface then do not see each other's frames.
  for (const char* flags : {"flags owner; ", ""}) {
    for (const std::string& chains : {arrival + departure, arrival}) {
      made = Run(*context_, absl::StrCat("table ", table_, " { ", flags, chains, "}"));
      if (made.ok()) return made;
    }
  }
  return made;
}

absl::Status Decider::AddRule(const WireRule& rule) {
  absl::StatusOr<WireRule> wanted = Normalise(rule);
  if (!wanted.ok()) return wanted.status();
  const std::lock_guard lock(mutex_);
  if (const auto held = Find(*wanted); held != held_.end()) {
    ++held->count;
    return absl::OkStatus();
  }
  // One transaction: the kernel's answer comes when the rule is in force, or nothing of it is.
  const RuleText text = ToText(*wanted);
  const Shape shape = FindShape(text, wanted->dont_trap);
  std::string commands = shape.is_new ? NewShape(text, wanted->dont_trap, shape.set) : "";
  absl::StrAppend(&commands, "add element ", table_, " ", shape.set, " { ", text.element, " }\n");
  if (absl::Status status = Run(*context_, commands); !status.ok()) return status;
  if (shape.is_new) shapes_.push_back(shape.name);
  held_.push_back({*wanted, 1});
  return absl::OkStatus();
}

absl::Status Decider::RemoveRule(const WireRule& rule) {
  absl::StatusOr<WireRule> wanted = Normalise(rule);
  if (!wanted.ok()) return wanted.status();
  const std::lock_guard lock(mutex_);
  const auto held = Find(*wanted);
  if (held == held_.end()) return absl::NotFoundError("wire rule: no equal one is in force");
  if (held->count > 1) {
    --held->count;
    return absl::OkStatus();
  }
  const RuleText text = ToText(*wanted);
  const Shape shape = FindShape(text, wanted->dont_trap);
  const absl::Status status = Run(*context_, absl::StrCat("delete element ", table_, " ", shape.set,
                                                          " { ", text.element, " }\n"));
  if (status.ok()) held_.erase(held);
  return status;
}

void Decider::RemoveTableOf(const std::string& owner) {
  const Context context = OpenContext();
  if (context == nullptr) return;
  // Adding first makes deleting succeed whether or not the table was there.
  const std::string table = TableName(owner);
  (void)Run(*context, absl::StrCat("add table ", table, "\ndelete table ", table, "\n"));
}

std::vector<Decider::Held>::iterator Decider::Find(const WireRule& rule) {
  return std::find_if(held_.begin(), held_.end(), [&](const Held& h) { return h.rule == rule; });
}

Decider::Shape Decider::FindShape(const RuleText& text, bool dont_trap) const {
  const std::string name =
      absl::StrCat(text.guard, "|", text.key, "|", text.tail, "|", dont_trap ? "copied" : "taken");
  const auto at = std::find(shapes_.begin(), shapes_.end(), name);
  return {name, absl::StrCat("rules", at - shapes_.begin()), at == shapes_.end()};
}

std::string Decider::NewShape(const RuleText& text, bool dont_trap, const std::string& set) const {
  const std::string take = absl::StrCat("meta mark set ", kTakenMark);
  return absl::StrCat("add set ", table_, " ", set, " { type ", text.types, "; }\n",  //
                      "add rule ", table_, dont_trap ? " copied " : " taken ",           //
                      text.guard, " ", text.key, " @", set, " ", text.tail,              //
                      " dup to ", options_.inlet_index, " ", dont_trap ? "" : take, " accept\n",
                      "add rule ", table_, " looped ", text.guard, " ", text.key, " @", set, " ",
                      text.tail, " dup to ", options_.inlet_index, " accept\n");
}

}  // namespace xtreme::connectx
