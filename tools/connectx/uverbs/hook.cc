// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/uverbs/hook.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <span>
#include <string_view>

namespace xtreme::connectx {
namespace {

// Constant-initialised and trivially destroyed: library destructors may still call through it.
std::atomic<Boundary*> g_boundary{nullptr};

// The kernel's -errno as the C library shows it.
int AsLibc(int result) {
  if (result >= 0) return result;
  errno = -result;
  return -1;
}

int HookedOpen(const char* path, int flags, ...) {
  if (Boundary* boundary = CurrentBoundary()) {
    if (std::optional<int> fd = boundary->Open(path, flags)) return AsLibc(*fd);
  }
  va_list arguments;
  va_start(arguments, flags);
  const bool creates = (flags & (O_CREAT | __O_TMPFILE)) != 0;
  const mode_t mode = creates ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return ::open(path, flags, mode);
}

int HookedStat(const char* path, struct stat* out) {
  if (Boundary* boundary = CurrentBoundary()) {
    if (std::optional<int> result = boundary->Stat(path, out)) return AsLibc(*result);
  }
  return ::stat(path, out);
}

int HookedIoctl(int fd, unsigned long request, ...) {
  va_list arguments;
  va_start(arguments, request);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  if (Boundary* boundary = CurrentBoundary()) {
    if (std::optional<int> result = boundary->Ioctl(fd, request, argument)) return AsLibc(*result);
  }
  return ::ioctl(fd, request, argument);
}

void* HookedMmap(void* address, size_t length, int protection, int flags, int fd, off_t offset) {
  Boundary* boundary = fd >= 0 ? CurrentBoundary() : nullptr;
  if (boundary == nullptr) return ::mmap(address, length, protection, flags, fd, offset);
  const auto mapped = boundary->Mmap(address, length, protection, flags, fd, offset);
  if (!mapped) return ::mmap(address, length, protection, flags, fd, offset);
  if (*mapped > -4096 && *mapped < 0) {
    errno = static_cast<int>(-*mapped);
    return MAP_FAILED;
  }
  return reinterpret_cast<void*>(*mapped);
}

int HookedSocket(int domain, int type, int protocol) {
  if (Boundary* boundary = CurrentBoundary()) {
    const auto result = boundary->Socket(domain, type, protocol);
    if (result) return AsLibc(*result);
  }
  return ::socket(domain, type, protocol);
}

int HookedClose(int fd) {
  if (Boundary* boundary = CurrentBoundary()) boundary->Close(fd);
  return ::close(fd);
}

// The replacement for calls of `symbol`; null: left alone. Not a table: a preloaded library needs
// it before dynamic initialisation. open64 and mmap64 are the same calls where off_t has 64 bits.
void* Replacement(std::string_view symbol) {
  if (symbol == "open" || symbol == "open64") return reinterpret_cast<void*>(&HookedOpen);
  if (symbol == "stat" || symbol == "stat64") return reinterpret_cast<void*>(&HookedStat);
  if (symbol == "ioctl") return reinterpret_cast<void*>(&HookedIoctl);
  if (symbol == "mmap" || symbol == "mmap64") return reinterpret_cast<void*>(&HookedMmap);
  if (symbol == "socket") return reinterpret_cast<void*>(&HookedSocket);
  if (symbol == "close") return reinterpret_cast<void*>(&HookedClose);
  return nullptr;
}

// The verbs libraries, and libnl because libibverbs opens its NETLINK_RDMA socket through it.
bool IsHookedLibrary(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  for (std::string_view library : {"libibverbs.so", "libmlx5", "librdmacm.so", "libnl-3.so"}) {
    if (name.starts_with(library)) return true;
  }
  return false;
}

// What PT_DYNAMIC of one loaded object says. The loader has made its pointers absolute.
struct DynamicSection {
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  std::span<const ElfW(Rela)> call_slots;  // DT_JMPREL
  std::span<const ElfW(Rela)> data_slots;  // DT_RELA
};

DynamicSection ReadDynamicSection(const ElfW(Dyn) * entry) {
  DynamicSection section;
  const ElfW(Rela)* jump = nullptr;
  const ElfW(Rela)* data = nullptr;
  size_t jump_bytes = 0;
  size_t data_bytes = 0;
  for (; entry->d_tag != DT_NULL; ++entry) {
    const auto pointer = entry->d_un.d_ptr;
    switch (entry->d_tag) {
      case DT_SYMTAB: section.symbols = reinterpret_cast<const ElfW(Sym)*>(pointer); break;
      case DT_STRTAB: section.strings = reinterpret_cast<const char*>(pointer); break;
      case DT_JMPREL: jump = reinterpret_cast<const ElfW(Rela)*>(pointer); break;
      case DT_PLTRELSZ: jump_bytes = entry->d_un.d_val; break;
      case DT_RELA: data = reinterpret_cast<const ElfW(Rela)*>(pointer); break;
      case DT_RELASZ: data_bytes = entry->d_un.d_val; break;
      default: break;
    }
  }
  if (jump != nullptr) section.call_slots = {jump, jump_bytes / sizeof(*jump)};
  if (data != nullptr) section.data_slots = {data, data_bytes / sizeof(*data)};
  return section;
}

// Whole pages of the object that the loader made read-only after relocating it (RELRO). A page that
// RELRO covers in part stayed writable.
struct ReadOnlyRange {
  uintptr_t begin = 0;
  uintptr_t end = 0;
};

uintptr_t PageOf(uintptr_t address) {
  return address & ~(static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE)) - 1);
}

void WriteSlot(void** slot, void* target, ReadOnlyRange relro) {
  if (*slot == target) return;
  const auto page_bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(slot);
  void* const page = reinterpret_cast<void*>(PageOf(address));
  const bool read_only = address >= relro.begin && address < relro.end;
  if (read_only && ::mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0) return;
  // Another thread may be calling through the slot.
  std::atomic_ref<void*>(*slot).store(target, std::memory_order_release);
  if (read_only) ::mprotect(page, page_bytes, PROT_READ);
}

int PatchSlots(const DynamicSection& section, std::span<const ElfW(Rela)> relocations,
               ElfW(Addr) base, ReadOnlyRange relro) {
  int patched = 0;
  for (const ElfW(Rela) & relocation : relocations) {
    const auto type = ELF64_R_TYPE(relocation.r_info);
    if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) continue;
    const auto& symbol = section.symbols[ELF64_R_SYM(relocation.r_info)];
    void* const target = Replacement(section.strings + symbol.st_name);
    if (target == nullptr) continue;
    WriteSlot(reinterpret_cast<void**>(base + relocation.r_offset), target, relro);
    ++patched;
  }
  return patched;
}

int PatchObject(dl_phdr_info* object, size_t, void* total) {
  if (object->dlpi_name == nullptr || !IsHookedLibrary(object->dlpi_name)) return 0;
  const ElfW(Dyn)* dynamic = nullptr;
  ReadOnlyRange relro;
  for (const ElfW(Phdr) & header : std::span(object->dlpi_phdr, object->dlpi_phnum)) {
    const uintptr_t begin = object->dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_DYNAMIC) dynamic = reinterpret_cast<const ElfW(Dyn)*>(begin);
    if (header.p_type == PT_GNU_RELRO) relro = {PageOf(begin), PageOf(begin + header.p_memsz)};
  }
  if (dynamic == nullptr) return 0;
  const DynamicSection section = ReadDynamicSection(dynamic);
  if (section.symbols == nullptr || section.strings == nullptr) return 0;
  int& patched = *static_cast<int*>(total);
  patched += PatchSlots(section, section.call_slots, object->dlpi_addr, relro);
  patched += PatchSlots(section, section.data_slots, object->dlpi_addr, relro);
  return 0;
}

}  // namespace

int PatchCallSlots() {
  int patched = 0;
  ::dl_iterate_phdr(&PatchObject, &patched);
  return patched;
}

Boundary* CurrentBoundary() { return g_boundary.load(std::memory_order_acquire); }

void SetBoundary(Boundary* boundary) { g_boundary.store(boundary, std::memory_order_release); }

}  // namespace xtreme::connectx
