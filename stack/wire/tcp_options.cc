// SPDX-License-Identifier: Apache-2.0
#include "stack/wire/tcp_options.h"

#include <algorithm>

namespace xtreme::wire {
namespace {

// Lengths with kind and length bytes. RFC 9293 section 3.2, RFC 7323 sections 2.2 and 3.2, RFC 2018
// sections 2 and 3.
constexpr size_t kMssBytes = 4;
constexpr size_t kWindowScaleBytes = 3;
constexpr size_t kSackPermittedBytes = 2;
constexpr size_t kTimestampsBytes = 10;
constexpr size_t kSackHeadBytes = 2;
constexpr size_t kSackBlockBytes = 8;

// How the options of a SYN that has all are laid out by most, and by Emit().
constexpr size_t kUsualSynBytes = 20;
constexpr uint16_t kMssHead = 0x0204;
constexpr uint32_t kPermissionAndTimestampsHead = 0x0402080A;
constexpr uint32_t kNopAndScaleHead = 0x010303;

constexpr uint8_t kNop = static_cast<uint8_t>(TcpOptionKind::kNop);

void EmitHead(uint8_t* to, TcpOptionKind kind, size_t bytes) {
  to[0] = static_cast<uint8_t>(kind);
  to[1] = static_cast<uint8_t>(bytes);
}

}  // namespace

void TcpOptions::SetSack(std::span<const SackBlock> blocks) {
  sack_count = static_cast<uint8_t>(std::min(blocks.size(), kTcpMaxSackBlocks));
  std::copy_n(blocks.begin(), sack_count, sack_blocks.begin());
}

bool operator==(const TcpOptions& a, const TcpOptions& b) {
  return a.mss == b.mss && a.window_scale == b.window_scale &&
         a.sack_permitted == b.sack_permitted && a.timestamps == b.timestamps &&
         std::ranges::equal(a.sack(), b.sack());
}

// MSS, permission, timestamps, NOP, scale.
bool TcpOptions::TakeUsualSyn(std::span<const uint8_t> bytes) {
  const uint8_t* const at = bytes.data();
  const bool usual = bytes.size() == kUsualSynBytes && base::LoadBe16(at) == kMssHead &&
                     base::LoadBe32(at + 4) == kPermissionAndTimestampsHead &&
                     base::LoadBe32(at + 16) >> 8 == kNopAndScaleHead;
  if (!usual) return false;
  mss = base::LoadBe16(at + 2);
  window_scale = at[19];
  sack_permitted = true;
  sack_count = 0;
  timestamps = {base::LoadBe32(at + 8), base::LoadBe32(at + 12)};
  return true;
}

TcpOptionsError TcpOptions::Parse(std::span<const uint8_t> bytes) {
  if (TakeUsualSyn(bytes)) return TcpOptionsError::kNone;
  *this = TcpOptions();
  bytes = bytes.first(std::min(bytes.size(), kTcpMaxOptionsBytes));
  TcpOptionsError first = TcpOptionsError::kNone;
  while (!bytes.empty()) {
    const auto kind = static_cast<TcpOptionKind>(bytes[0]);
    if (kind == TcpOptionKind::kEnd) break;
    if (kind == TcpOptionKind::kNop) {
      bytes = bytes.subspan(1);
      continue;
    }
    const size_t length = bytes.size() > 1 ? bytes[1] : 0;
    const bool readable = length >= 2 && length <= bytes.size();
    const TcpOptionsError error =
        readable ? Take(kind, bytes.subspan(2, length - 2)) : TcpOptionsError::kLength;
    if (first == TcpOptionsError::kNone) first = error;
    if (!readable) break;
    bytes = bytes.subspan(length);
  }
  return first;
}

TcpOptionsError TcpOptions::Take(TcpOptionKind kind, std::span<const uint8_t> value) {
  const size_t bytes = value.size() + 2;
  switch (kind) {
    case TcpOptionKind::kMss:
      if (bytes != kMssBytes) return TcpOptionsError::kMssLength;
      mss = base::LoadBe16(&value[0]);
      break;
    case TcpOptionKind::kWindowScale:
      if (bytes != kWindowScaleBytes) return TcpOptionsError::kWindowScaleLength;
      window_scale = value[0];
      break;
    case TcpOptionKind::kSackPermitted:
      if (bytes != kSackPermittedBytes) return TcpOptionsError::kSackPermittedLength;
      sack_permitted = true;
      break;
    case TcpOptionKind::kSack:
      if (value.empty() || value.size() % kSackBlockBytes != 0) return TcpOptionsError::kSackLength;
      sack_count = static_cast<uint8_t>(value.size() / kSackBlockBytes);
      for (size_t i = 0; i < sack_count; ++i) {
        const uint8_t* block = &value[i * kSackBlockBytes];
        sack_blocks[i] = {base::LoadBe32(block), base::LoadBe32(block + 4)};
      }
      break;
    case TcpOptionKind::kTimestamps:
      if (bytes != kTimestampsBytes) return TcpOptionsError::kTimestampsLength;
      timestamps = {base::LoadBe32(&value[0]), base::LoadBe32(&value[4])};
      break;
    case TcpOptionKind::kEnd:
    case TcpOptionKind::kNop:
      break;
  }
  return TcpOptionsError::kNone;
}

size_t TcpOptions::BytesWithoutSack() const {
  size_t bytes = mss ? kMssBytes : 0;
  // Permission takes the place of the two NOPs before the timestamps.
  if (timestamps) bytes += kTcpTimestampsBytes;
  if (sack_permitted && !timestamps) bytes += 4;
  if (window_scale) bytes += 4;
  return bytes;
}

size_t TcpOptions::EmittedSackBlocks() const {
  // Two NOPs before the option keep the blocks aligned.
  const size_t room = kTcpMaxOptionsBytes - BytesWithoutSack();
  if (room < 2 + kSackHeadBytes + kSackBlockBytes) return 0;
  return std::min<size_t>(sack_count, (room - 2 - kSackHeadBytes) / kSackBlockBytes);
}

size_t TcpOptions::emitted_bytes() const {
  const size_t blocks = EmittedSackBlocks();
  const size_t sack_bytes = blocks == 0 ? 0 : 2 + kSackHeadBytes + blocks * kSackBlockBytes;
  return BytesWithoutSack() + sack_bytes;
}

size_t TcpOptions::Emit(std::span<uint8_t> to) const {
  const bool usual_syn = mss && window_scale && sack_permitted && sack_count == 0 && timestamps;
  if (usual_syn && to.size() >= kUsualSynBytes) {
    uint8_t* const syn = to.data();
    base::StoreBe32(syn, uint32_t{kMssHead} << 16 | *mss);
    base::StoreBe32(syn + 4, kPermissionAndTimestampsHead);
    base::StoreBe32(syn + 8, timestamps->value);
    base::StoreBe32(syn + 12, timestamps->echo);
    base::StoreBe32(syn + 16, kNopAndScaleHead << 8 | *window_scale);
    return kUsualSynBytes;
  }
  if (to.size() < emitted_bytes()) return 0;
  uint8_t* at = to.data();
  if (mss) {
    EmitHead(at, TcpOptionKind::kMss, kMssBytes);
    base::StoreBe16(at + 2, *mss);
    at += kMssBytes;
  }
  if (timestamps) {
    EmitTimestamps(at, *timestamps);
    if (sack_permitted) EmitHead(at, TcpOptionKind::kSackPermitted, kSackPermittedBytes);
    at += kTcpTimestampsBytes;
  } else if (sack_permitted) {
    at[0] = at[1] = kNop;
    EmitHead(at + 2, TcpOptionKind::kSackPermitted, kSackPermittedBytes);
    at += 4;
  }
  if (window_scale) {
    at[0] = kNop;
    EmitHead(at + 1, TcpOptionKind::kWindowScale, kWindowScaleBytes);
    at[3] = *window_scale;
    at += 4;
  }
  const size_t blocks = EmittedSackBlocks();
  if (blocks > 0) {
    at[0] = at[1] = kNop;
    EmitHead(at + 2, TcpOptionKind::kSack, kSackHeadBytes + blocks * kSackBlockBytes);
    at += 4;
  }
  for (size_t i = 0; i < blocks; ++i, at += kSackBlockBytes) {
    base::StoreBe32(at, sack_blocks[i].left);
    base::StoreBe32(at + 4, sack_blocks[i].right);
  }
  return static_cast<size_t>(at - to.data());
}

base::CounterName DescribeReason(TcpOptionsError error) {
  static constexpr auto kNames = std::to_array<base::CounterName>({
      {"well_formed", "segments whose options were well-formed"},
      {"length", "segments with an option of length 0 or 1, or past the header's end"},
      {"mss_length", "segments with a maximum segment size of a wrong length"},
      {"window_scale_length", "segments with a window scale of a wrong length"},
      {"sack_permitted_length", "segments with a SACK-permitted of a wrong length"},
      {"sack_length", "segments with a SACK of a wrong length"},
      {"timestamps_length", "segments with timestamps of a wrong length"},
  });
  static_assert(kNames.size() == static_cast<size_t>(TcpOptionsError::kCount));
  return kNames[static_cast<size_t>(error)];
}

}  // namespace xtreme::wire
