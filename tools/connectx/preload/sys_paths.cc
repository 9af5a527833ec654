// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/preload/sys_paths.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <atomic>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string_view>

namespace xtreme::connectx {
namespace {

constexpr std::string_view kSys = "/sys/";
constexpr std::string_view kClass = "/sys/class/infiniband";
constexpr std::string_view kVerbs = "_verbs";

// Never freed: a thread may be reading it.
std::atomic<const char*> g_root = nullptr;

bool IsOurs(std::string_view path) {
  if (!path.starts_with(kClass)) return false;
  path.remove_prefix(kClass.size());
  if (path.starts_with(kVerbs)) path.remove_prefix(kVerbs.size());
  return path.empty() || path.front() == '/';
}

// Where a path of the program leads.
class Path {
 public:
  explicit Path(const char* path) : path_(path) {
    const char* const root = g_root.load(std::memory_order_acquire);
    if (root == nullptr || path == nullptr || !IsOurs(path)) return;
    const int length = std::snprintf(ours_, sizeof(ours_), "%s/%s", root, path + kSys.size());
    if (length > 0 && length < static_cast<int>(sizeof(ours_))) path_ = ours_;
  }
  operator const char*() const { return path_; }  // NOLINT: it stands for one.

 private:
  const char* path_;
  char ours_[PATH_MAX];
};

// What would have been called without us.
template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

using OpenFunction = int(const char*, int, ...);
using OpenAtFunction = int(int, const char*, int, ...);

// The argument that is there only where a file may be made.
mode_t ModeOf(int flags, va_list& arguments) {
  const bool makes = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  return makes ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

void ShowSysfs(const std::string& root) {
  g_root.store(::strdup(root.c_str()), std::memory_order_release);
}

// The C library's functions, under names of our own: its headers may have bodies for theirs.
extern "C" {

int ProgramsOpen(const char* path, int flags, ...) __asm__("open");
int ProgramsOpen(const char* path, int flags, ...) {
  static OpenFunction* const next = Next<OpenFunction>("open");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeOf(flags, arguments);
  va_end(arguments);
  return next(Path(path), flags, mode);
}

int ProgramsOpenAt(int at, const char* path, int flags, ...) __asm__("openat");
int ProgramsOpenAt(int at, const char* path, int flags, ...) {
  static OpenAtFunction* const next = Next<OpenAtFunction>("openat");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeOf(flags, arguments);
  va_end(arguments);
  return next(at, Path(path), flags, mode);
}

// What the headers make of an open() without a mode.
int ProgramsCheckedOpen(const char* path, int flags) __asm__("__open_2");
int ProgramsCheckedOpen(const char* path, int flags) {
  static auto* const next = Next<decltype(ProgramsCheckedOpen)>("__open_2");
  return next(Path(path), flags);
}

FILE* ProgramsFopen(const char* path, const char* mode) __asm__("fopen");
FILE* ProgramsFopen(const char* path, const char* mode) {
  static auto* const next = Next<decltype(ProgramsFopen)>("fopen");
  return next(Path(path), mode);
}

DIR* ProgramsOpendir(const char* path) __asm__("opendir");
DIR* ProgramsOpendir(const char* path) {
  static auto* const next = Next<decltype(ProgramsOpendir)>("opendir");
  return next(Path(path));
}

using DirectoryFilter = int (*)(const dirent*);
using DirectoryOrder = int (*)(const dirent**, const dirent**);
int ProgramsScandir(const char* path, dirent*** names, DirectoryFilter filter,
                    DirectoryOrder order) __asm__("scandir");
int ProgramsScandir(const char* path, dirent*** names, DirectoryFilter filter,
                    DirectoryOrder order) {
  static auto* const next = Next<decltype(ProgramsScandir)>("scandir");
  return next(Path(path), names, filter, order);
}

int ProgramsStat(const char* path, struct stat* out) __asm__("stat");
int ProgramsStat(const char* path, struct stat* out) {
  static auto* const next = Next<decltype(ProgramsStat)>("stat");
  return next(Path(path), out);
}

int ProgramsLstat(const char* path, struct stat* out) __asm__("lstat");
int ProgramsLstat(const char* path, struct stat* out) {
  static auto* const next = Next<decltype(ProgramsLstat)>("lstat");
  return next(Path(path), out);
}

int ProgramsStatAt(int at, const char* path, struct stat* out, int flags) __asm__("fstatat");
int ProgramsStatAt(int at, const char* path, struct stat* out, int flags) {
  static auto* const next = Next<decltype(ProgramsStatAt)>("fstatat");
  return next(at, Path(path), out, flags);
}

int ProgramsStatx(int at, const char* path, int flags, unsigned mask, struct statx* out)
    __asm__("statx");
int ProgramsStatx(int at, const char* path, int flags, unsigned mask, struct statx* out) {
  static auto* const next = Next<decltype(ProgramsStatx)>("statx");
  return next(at, Path(path), flags, mask, out);
}

int ProgramsAccess(const char* path, int mode) __asm__("access");
int ProgramsAccess(const char* path, int mode) {
  static auto* const next = Next<decltype(ProgramsAccess)>("access");
  return next(Path(path), mode);
}

int ProgramsEffectiveAccess(const char* path, int mode) __asm__("euidaccess");
int ProgramsEffectiveAccess(const char* path, int mode) {
  static auto* const next = Next<decltype(ProgramsEffectiveAccess)>("euidaccess");
  return next(Path(path), mode);
}

int ProgramsAccessAt(int at, const char* path, int mode, int flags) __asm__("faccessat");
int ProgramsAccessAt(int at, const char* path, int mode, int flags) {
  static auto* const next = Next<decltype(ProgramsAccessAt)>("faccessat");
  return next(at, Path(path), mode, flags);
}

ssize_t ProgramsReadlink(const char* path, char* out, size_t room) __asm__("readlink");
ssize_t ProgramsReadlink(const char* path, char* out, size_t room) {
  static auto* const next = Next<decltype(ProgramsReadlink)>("readlink");
  return next(Path(path), out, room);
}

ssize_t ProgramsReadlinkAt(int at, const char* path, char* out, size_t room) __asm__("readlinkat");
ssize_t ProgramsReadlinkAt(int at, const char* path, char* out, size_t room) {
  static auto* const next = Next<decltype(ProgramsReadlinkAt)>("readlinkat");
  return next(at, Path(path), out, room);
}

char* ProgramsRealpath(const char* path, char* out) __asm__("realpath");
char* ProgramsRealpath(const char* path, char* out) {
  static auto* const next = Next<decltype(ProgramsRealpath)>("realpath");
  return next(Path(path), out);
}

ssize_t ProgramsGetxattr(const char* path, const char* name, void* out, size_t room)
    __asm__("getxattr");
ssize_t ProgramsGetxattr(const char* path, const char* name, void* out, size_t room) {
  static auto* const next = Next<decltype(ProgramsGetxattr)>("getxattr");
  return next(Path(path), name, out, room);
}

ssize_t ProgramsLgetxattr(const char* path, const char* name, void* out, size_t room)
    __asm__("lgetxattr");
ssize_t ProgramsLgetxattr(const char* path, const char* name, void* out, size_t room) {
  static auto* const next = Next<decltype(ProgramsLgetxattr)>("lgetxattr");
  return next(Path(path), name, out, room);
}

}  // extern "C"

// Of other names for the same.
__asm__(
    ".globl open64\n.type open64, @function\n.set open64, open\n"
    ".globl openat64\n.type openat64, @function\n.set openat64, openat\n"
    ".globl __open64_2\n.type __open64_2, @function\n.set __open64_2, __open_2\n"
    ".globl fopen64\n.type fopen64, @function\n.set fopen64, fopen\n"
    ".globl stat64\n.type stat64, @function\n.set stat64, stat\n"
    ".globl lstat64\n.type lstat64, @function\n.set lstat64, lstat\n"
    ".globl fstatat64\n.type fstatat64, @function\n.set fstatat64, fstatat\n"
    ".globl eaccess\n.type eaccess, @function\n.set eaccess, euidaccess\n");

}  // namespace xtreme::connectx
