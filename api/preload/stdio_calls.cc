// SPDX-License-Identifier: Apache-2.0
//
// The C library's streams on sockets: it reads, writes and closes them by calls that do not come
// here. So fdopen() of a socket that is, or may come to be, on a ring gives a stream that reads and
// writes by calls that do (fopencookie(3)); its number is the socket's, as of any other. While a
// socket of a ring is 0, 1 or 2, stdin, stdout or stderr is such a one.
//
// Threads: any; a stream is locked by whoever uses it, as the C library does.

#include <pthread.h>
#include <stdio_ext.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <utility>

#include "api/preload/preload.h"

using xtreme::preload::Forget;
using xtreme::preload::Kernel;

namespace xtreme::preload {
namespace {

// Those that fdopen() made and nobody has closed.
struct Streams {
  std::mutex mutex;
  std::set<FILE*> open;
};

// Never destroyed: streams are closed by whatever ends later.
Streams& OpenStreams() {
  static auto* const streams = new Streams();
  return *streams;
}

// Not locked in a child of fork(). Right behind those of the faces, before the program registers
// its own, which may use streams; who writes one locks it before anything of theirs.
[[gnu::constructor(102)]] void HandleForks() {
  pthread_atfork([] { OpenStreams().mutex.lock(); }, [] { OpenStreams().mutex.unlock(); },
                 [] { OpenStreams().mutex.unlock(); });
}

bool Erase(FILE* stream) {
  Streams& streams = OpenStreams();
  const std::lock_guard lock(streams.mutex);
  return streams.open.erase(stream) != 0;
}

int NumberOf(void* cookie) { return static_cast<int>(reinterpret_cast<intptr_t>(cookie)); }

ssize_t ReadCookie(void* cookie, char* to, size_t size) {
  return read(NumberOf(cookie), to, size);
}

// All, or what was written before an error.
ssize_t WriteAll(int fd, const char* from, size_t size) {
  size_t done = 0;
  while (done < size) {
    const ssize_t written = write(fd, from + done, size - done);
    if (written < 0) break;
    done += static_cast<size_t>(written);
  }
  return static_cast<ssize_t>(done);
}

ssize_t WriteCookie(void* cookie, const char* from, size_t size) {
  return WriteAll(NumberOf(cookie), from, size);
}

// Of a socket it fails; of what freopen() puts in its place it may not.
int SeekCookie(void* cookie, off64_t* offset, int whence) {
  const off64_t at = lseek64(NumberOf(cookie), *offset, whence);
  if (at >= 0) *offset = at;
  return at < 0 ? -1 : 0;
}

int CloseCookie(void* cookie) { return close(NumberOf(cookie)); }

FILE* OpenCookie(int fd, const char* mode) {
  void* const cookie = reinterpret_cast<void*>(static_cast<intptr_t>(fd));
  FILE* const stream = fopencookie(
      cookie, mode,
      {.read = ReadCookie, .write = WriteCookie, .seek = SeekCookie, .close = CloseCookie});
  if (stream == nullptr) return nullptr;
  stream->_fileno = fd;  // What fileno() says; nothing is done by it.
  Streams& streams = OpenStreams();
  const std::lock_guard lock(streams.mutex);
  streams.open.insert(stream);
  return stream;
}

// The C library cannot do it of such a stream: the file takes the socket's number. `fopened`: the
// file, null: there is none, and the stream is closed all the same.
FILE* Reopen(FILE* stream, FILE* fopened) {
  constexpr int kRefused = 0x0004 | 0x0008;  // Reading, writing (libio.h of the C library).
  const sockets::ErrnoKept kept;
  std::fflush(stream);
  if (fopened == nullptr) return fclose(stream), nullptr;
  __fpurge(stream);
  dup2(fileno(fopened), fileno(stream));
  clearerr(stream);
  stream->_flags = (stream->_flags & ~kRefused) | (fopened->_flags & kRefused);
  fclose(fopened);
  return stream;
}

bool IsOurs(FILE* stream) {
  Streams& streams = OpenStreams();
  const std::lock_guard lock(streams.mutex);
  return streams.open.contains(stream);
}

// What the C library began with, and the one in its place, which stays: who has it in hand goes on.
struct Standard {
  FILE** const variable;
  const char* const mode;
  FILE* first = nullptr;
  FILE* ours = nullptr;
};

}  // namespace

void FollowStandard(int fd) {
  static Standard standards[] = {{&stdin, "r"}, {&stdout, "w"}, {&stderr, "w"}};
  if (fd < 0 || fd > 2) return;
  Standard& standard = standards[fd];
  const auto socket = Ours(fd);
  const bool on_ring = socket != nullptr && socket->path() == sockets::Path::kOffloaded;
  if (on_ring && (standard.ours == nullptr || *standard.variable != standard.ours)) {
    if (standard.ours == nullptr) standard.ours = OpenCookie(fd, standard.mode);
    if (standard.ours == nullptr) return;
    if (fd == 2) setvbuf(standard.ours, nullptr, _IONBF, 0);
    standard.first = std::exchange(*standard.variable, standard.ours);
  } else if (!on_ring && standard.ours != nullptr && *standard.variable == standard.ours) {
    *standard.variable = standard.first;
  }
}

void FlushStreams() {
  Streams& streams = OpenStreams();
  const std::lock_guard lock(streams.mutex);
  for (FILE* stream : streams.open) {
    // Whoever waits by one has nothing to write.
    if (ftrylockfile(stream) != 0) continue;
    fflush_unlocked(stream);
    funlockfile(stream);
  }
}

}  // namespace xtreme::preload

XTREME_CALL FILE* fdopen(int fd, const char* mode) noexcept {
  const auto ours = xtreme::preload::Ours(fd);
  const bool by_calls = ours != nullptr && ours->path() != xtreme::sockets::Path::kKernel;
  return by_calls ? xtreme::preload::OpenCookie(fd, mode) : Kernel().fdopen(fd, mode);
}

// Those of the C library close the number by a call that does not come here.
XTREME_CALL int fclose(FILE* stream) {
  if (!xtreme::preload::Erase(stream)) Forget(fileno(stream));
  return Kernel().fclose(stream);
}

XTREME_CALL FILE* freopen(const char* path, const char* mode, FILE* stream) {
  if (xtreme::preload::IsOurs(stream)) {
    return xtreme::preload::Reopen(stream, path == nullptr ? nullptr : fopen(path, mode));
  }
  Forget(fileno(stream));
  return Kernel().freopen(path, mode, stream);
}

XTREME_CALL FILE* freopen64(const char* path, const char* mode, FILE* stream) {
  if (xtreme::preload::IsOurs(stream)) return freopen(path, mode, stream);
  Forget(fileno(stream));
  return Kernel().freopen64(path, mode, stream);
}

XTREME_CALL int vdprintf(int fd, const char* format, va_list arguments) {
  if (xtreme::preload::Ours(fd) == nullptr) return Kernel().vdprintf(fd, format, arguments);
  char* text = nullptr;
  const int length = vasprintf(&text, format, arguments);
  if (length < 0) return length;
  const ssize_t written = xtreme::preload::WriteAll(fd, text, static_cast<size_t>(length));
  free(text);
  return written == length ? length : -1;
}

XTREME_CALL int dprintf(int fd, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int length = vdprintf(fd, format, arguments);
  va_end(arguments);
  return length;
}

// What they are with _FORTIFY_SOURCE.
XTREME_CALL int __vdprintf_chk(int fd, int /*flag*/, const char* format, va_list arguments) {
  return vdprintf(fd, format, arguments);
}

XTREME_CALL int __dprintf_chk(int fd, int /*flag*/, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int length = vdprintf(fd, format, arguments);
  va_end(arguments);
  return length;
}
