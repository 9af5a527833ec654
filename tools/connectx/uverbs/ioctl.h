// SPDX-License-Identifier: Apache-2.0
//
// One call of the verbs ioctl as its caller laid it out: a header, then attributes of 16 bytes,
// each a value, a handle, or a pointer to a payload of the caller's.
//
// Invariant: nothing outside the `length` bytes that the header claims is read as header or
// attribute, and no payload is touched beyond the length its attribute gives.
// Legacy commands come wrapped in DEVICE/INVOKE_WRITE: their structures are the payloads CORE_IN
// and CORE_OUT of this same form, so every command is read in one way.
// Units: host byte order, as in <rdma/*.h>. Thread: one, the caller of the ioctl.
// Spec: <rdma/rdma_user_ioctl_cmds.h>, <rdma/ib_user_ioctl_cmds.h>.

#ifndef XTREME_TOOLS_CONNECTX_UVERBS_IOCTL_H_
#define XTREME_TOOLS_CONNECTX_UVERBS_IOCTL_H_

#include <rdma/rdma_user_ioctl_cmds.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>

namespace xtreme::connectx {

class VerbsCall {
 public:
  // Reads the header and finds the attributes. `buffer` is the caller's and is written to when
  // handles are answered; it must outlive the call. Empty: shorter than its own header says, or
  // counts do not agree.
  static std::optional<VerbsCall> Parse(std::span<std::byte> buffer);
  // The same for the argument of an ioctl, whose header says how long it is.
  static std::optional<VerbsCall> ParseArgument(void* argument);

  uint16_t object() const { return object_; }
  uint16_t method() const { return method_; }

  bool Has(uint16_t attribute) const { return Find(attribute) != nullptr; }

  // The bytes handed in under `attribute`; empty when it is absent.
  std::span<const std::byte> Input(uint16_t attribute) const;
  // Where the caller wants `attribute` answered; empty when it does not.
  std::span<std::byte> Output(uint16_t attribute) const;

  // `attribute` as a T: empty when it is absent or shorter than T.
  template <typename T>
  std::optional<T> Get(uint16_t attribute) const {
    const std::span<const std::byte> bytes = Input(attribute);
    if (bytes.size() < sizeof(T)) return std::nullopt;
    return Prefix<T>(bytes);
  }
  // The same for a command's structure. False: as empty above.
  template <typename T>
  bool Read(uint16_t attribute, T* structure) const {
    const std::span<const std::byte> bytes = Input(attribute);
    if (bytes.size() < sizeof(T)) return false;
    std::memcpy(structure, bytes.data(), sizeof(T));
    return true;
  }
  // The same for a structure that grew over the years: what an older caller left out is zero.
  template <typename T>
  T GetPrefix(uint16_t attribute) const {
    return Prefix<T>(Input(attribute));
  }
  // A handle or a file descriptor handed in.
  std::optional<uint32_t> Handle(uint16_t attribute) const;

  // Answers as much of `value` as the caller has room for, as the kernel does.
  template <typename T>
  void Answer(uint16_t attribute, const T& value) const {
    AnswerBytes(attribute, std::as_bytes(std::span(&value, 1)));
  }
  void AnswerBytes(uint16_t attribute, std::span<const std::byte> bytes) const;
  // Answers a new object's handle, or a file descriptor.
  void AnswerHandle(uint16_t attribute, uint32_t handle) const;

 private:
  VerbsCall(const ib_uverbs_ioctl_hdr& header, std::span<std::byte> attributes)
      : object_(header.object_id), method_(header.method_id), attributes_(attributes) {}

  template <typename T>
  static T Prefix(std::span<const std::byte> bytes) {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), std::min(sizeof(T), bytes.size()));
    return value;
  }

  ib_uverbs_attr* Find(uint16_t attribute) const;

  uint16_t object_;
  uint16_t method_;
  std::span<std::byte> attributes_;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_UVERBS_IOCTL_H_
