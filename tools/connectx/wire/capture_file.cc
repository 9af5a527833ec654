// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/wire/capture_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace xtreme::connectx {
namespace {

constexpr size_t kHeldBytes = 64 << 10;

// Block types and option codes of the format.
constexpr uint32_t kSectionHeader = 0x0A0D0D0A;
constexpr uint32_t kInterfaceDescription = 1;
constexpr uint32_t kEnhancedPacket = 6;
constexpr uint32_t kByteOrderMagic = 0x1A2B3C4D;
constexpr uint64_t kUnknownSectionLength = ~uint64_t{0};
constexpr uint16_t kLinkTypeEthernet = 1;
constexpr uint32_t kSnapLength = 65535;
constexpr uint16_t kEndOfOptions = 0;
constexpr uint16_t kComment = 1;
constexpr uint16_t kPacketFlags = 2;
constexpr uint16_t kInterfaceName = 2;
constexpr uint16_t kInterfaceDescriptionText = 3;
constexpr uint16_t kUserApplication = 4;
constexpr uint16_t kTimeResolution = 9;
constexpr uint8_t kNanoseconds = 9;  // Ten to the minus so many seconds.

// Appends one block to a buffer; its length is filled in at the end.
class Block {
 public:
  Block(std::vector<uint8_t>& out, uint32_t type) : out_(out), begin_(out.size()) {
    Put(type);
    Put(uint32_t{0});
  }

  template <typename T>
  void Put(T value) {
    PutBytes(&value, sizeof(value));
  }

  void PutPadded(const void* bytes, size_t length) {
    PutBytes(bytes, length);
    out_.resize((out_.size() + 3) / 4 * 4);
  }

  void PutOption(uint16_t code, const void* bytes, size_t length) {
    Put(code);
    Put(static_cast<uint16_t>(length));
    PutPadded(bytes, length);
  }

  void PutOption(uint16_t code, std::string_view text) {
    if (!text.empty()) PutOption(code, text.data(), text.size());
  }

  void End() {
    Put(kEndOfOptions);
    Put(uint16_t{0});
    const auto length = static_cast<uint32_t>(out_.size() - begin_ + sizeof(uint32_t));
    Put(length);
    std::memcpy(&out_[begin_ + sizeof(uint32_t)], &length, sizeof(length));
  }

 private:
  void PutBytes(const void* bytes, size_t length) {
    const auto* const first = static_cast<const uint8_t*>(bytes);
    out_.insert(out_.end(), first, first + length);
  }

  std::vector<uint8_t>& out_;
  const size_t begin_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<CaptureFile>> CaptureFile::Create(const std::string& path,
                                                                 std::string_view application) {
  std::shared_ptr<CaptureFile> capture = Later(application);
  if (absl::Status status = capture->Begin(path); !status.ok()) return status;
  return capture;
}

std::shared_ptr<CaptureFile> CaptureFile::Later(std::string_view application) {
  return std::shared_ptr<CaptureFile>(new CaptureFile(application));
}

absl::Status CaptureFile::Begin(const std::string& path) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  struct stat status;
  const bool regular = file >= 0 && fstat(file, &status) == 0 && S_ISREG(status.st_mode);
  // Two that write one file leave nothing that can be read. Pipes and devices are for many.
  const bool taken = regular && flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (file >= 0 && !taken && (!regular || ftruncate(file, 0) == 0)) {
    const std::lock_guard lock(mutex_);
    file_ = file;
    return absl::OkStatus();
  }
  const std::string message =
      absl::StrCat("make the capture file ", path, ": ",
                   taken ? "somebody else is writing it" : std::strerror(errno));
  if (file >= 0) close(file);
  return taken ? absl::UnavailableError(message) : absl::InternalError(message);
}

absl::Status CaptureFile::BeginOrBeside(const std::string& path) {
  const absl::Status begun = Begin(path);
  if (!absl::IsUnavailable(begun)) return begun;
  std::filesystem::path beside(path);
  beside.replace_filename(absl::StrCat(beside.stem().string(), ".", getpid(),
                                       beside.extension().string()));
  return Begin(beside.string());
}

absl::StatusOr<std::shared_ptr<CaptureFile>> CaptureFile::CreateOn(int open,
                                                                   std::string_view application) {
  const int file = fcntl(open, F_DUPFD_CLOEXEC, 0);
  if (file < 0) {
    return absl::InternalError(absl::StrCat("write the capture: ", std::strerror(errno)));
  }
  // Where what is appended begins: a block that fails is taken back to there.
  if ((fcntl(file, F_GETFL) & O_APPEND) != 0) (void)lseek(file, 0, SEEK_END);
  std::shared_ptr<CaptureFile> capture = Later(application);
  capture->file_ = file;
  return capture;
}

CaptureFile::CaptureFile(std::string_view application) {
  Block block(held_, kSectionHeader);
  block.Put(kByteOrderMagic);
  block.Put(uint16_t{1});  // Version 1.0.
  block.Put(uint16_t{0});
  block.Put(kUnknownSectionLength);
  block.PutOption(kUserApplication, application);
  block.End();
  KeepDescription(0);
}

CaptureFile::~CaptureFile() {
  Flush();
  if (file_ >= 0) close(file_);
}

uint32_t CaptureFile::AddInterface(std::string_view name, std::string_view description) {
  const std::lock_guard lock(mutex_);
  const size_t begin = held_.size();
  Block block(held_, kInterfaceDescription);
  block.Put(kLinkTypeEthernet);
  block.Put(uint16_t{0});
  block.Put(kSnapLength);
  block.PutOption(kInterfaceName, name);
  block.PutOption(kInterfaceDescriptionText, description);
  block.PutOption(kTimeResolution, &kNanoseconds, sizeof(kNanoseconds));
  block.End();
  KeepDescription(begin);
  return interfaces_++;
}

// The block of `held_` that begins there.
void CaptureFile::KeepDescription(size_t begin) {
  const auto block = held_.begin() + static_cast<ptrdiff_t>(begin);
  held_descriptions_.insert(held_descriptions_.end(), block, held_.end());
}

void CaptureFile::Add(uint32_t interface, Direction direction, std::span<const uint8_t> frame,
                      int64_t time_ns, std::string_view comment, uint32_t wire_bytes) {
  const std::lock_guard lock(mutex_);
  if (file_ < 0) return;
  const auto time = static_cast<uint64_t>(time_ns);
  const auto length = static_cast<uint32_t>(frame.size());
  const auto flags = static_cast<uint32_t>(direction);
  Block block(held_, kEnhancedPacket);
  block.Put(interface);
  block.Put(static_cast<uint32_t>(time >> 32));
  block.Put(static_cast<uint32_t>(time));
  block.Put(length);
  block.Put(wire_bytes == 0 ? length : wire_bytes);
  block.PutPadded(frame.data(), frame.size());
  block.PutOption(kPacketFlags, &flags, sizeof(flags));
  block.PutOption(kComment, comment);
  block.End();
  ++held_frames_;
  if (held_.size() >= kHeldBytes) FlushLocked();
}

void CaptureFile::Flush() {
  const std::lock_guard lock(mutex_);
  FlushLocked();
}

void CaptureFile::FlushLocked() {
  if (file_ < 0) return;
  const off_t whole = lseek(file_, 0, SEEK_CUR);
  size_t written = 0;
  while (written < held_.size()) {
    // Raw: a preloaded socket library under test may have its own write.
    const long n = ::syscall(SYS_write, file_, &held_[written], held_.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    written += static_cast<size_t>(n);
  }
  if (written < held_.size()) {
    dropped_ += held_frames_;
    // Back to the last whole block; a pipe has no way back, and no more to come.
    if (whole >= 0 && ftruncate(file_, whole) == 0) (void)lseek(file_, whole, SEEK_SET);
    held_ = held_descriptions_;
  } else {
    held_.clear();
    held_descriptions_.clear();
  }
  held_frames_ = 0;
}

int CaptureFile::descriptor() const {
  const std::lock_guard lock(mutex_);
  return file_;
}

uint64_t CaptureFile::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

}  // namespace xtreme::connectx
