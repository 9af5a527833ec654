// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/stepper.h"

#include <dlfcn.h>
#include <signal.h>
#include <ucontext.h>
#include <x86intrin.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "benchmarks/instruction.h"

namespace xtreme::benchmarks {
namespace {

constexpr uint64_t kTrapFlag = 0x100;
constexpr uint64_t kLineLog2 = 6;

// A set of cache lines that never allocates: a signal handler fills it.
class LineSet {
 public:
  void Clear() {
    slots_.fill(0);
    size_ = 0;
  }
  // Counts no more once half full.
  void Add(uint64_t line) {
    size_t slot = (line * 0x9e3779b97f4a7c15u) >> (64 - kSlotsLog2);
    while (slots_[slot] != 0 && slots_[slot] != line) slot = (slot + 1) % slots_.size();
    if (slots_[slot] == line || size_ == slots_.size() / 2) return;
    slots_[slot] = line;
    ++size_;
  }
  size_t size() const { return size_; }

 private:
  static constexpr int kSlotsLog2 = 14;
  std::array<uint64_t, 1 << kSlotsLog2> slots_{};
  size_t size_ = 0;
};

// Entries of the allocator, in whatever library they are.
std::vector<uintptr_t> AllocatorEntries() {
  std::vector<uintptr_t> entries;
  for (const char* name : {"malloc", "calloc", "realloc", "free", "aligned_alloc",
                           "posix_memalign", "memalign"}) {
    if (void* entry = dlsym(RTLD_DEFAULT, name)) {
      entries.push_back(reinterpret_cast<uintptr_t>(entry));
    }
  }
  return entries;
}

Registers ReadRegisters(const ucontext_t& context) {
  const auto& saved = context.uc_mcontext.gregs;
  constexpr std::array kOrder = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                 REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                 REG_R12, REG_R13, REG_R14, REG_R15};
  Registers registers;
  for (size_t i = 0; i < kOrder.size(); ++i) {
    registers.general[i] = static_cast<uint64_t>(saved[kOrder[i]]);
  }
  // The thread pointer points to itself.
  registers.fs_base = reinterpret_cast<uint64_t>(__builtin_thread_pointer());
  return registers;
}

}  // namespace

struct Stepper::State {
  Steps steps;
  std::span<const uint8_t> doorbells;
  LineSet code;
  LineSet data;
  std::vector<uintptr_t> allocators = AllocatorEntries();
  struct sigaction before {};
  // Where the measured function, and the device's, return to; 0: not inside.
  uintptr_t measured_return = 0;
  uintptr_t device_return = 0;

  // Before the instruction that `context` stands at.
  void OnStep(const ucontext_t& context);
  void Note(uintptr_t at, const ucontext_t& context);
  bool IsDoorbell(const Touch& touch) const {
    const auto first = reinterpret_cast<uintptr_t>(doorbells.data());
    return touch.bytes != 0 && touch.address - first < doorbells.size();
  }
  void Touched(const Touch& touch) {
    if (touch.bytes == 0) return;
    data.Add(touch.address >> kLineLog2);
    data.Add((touch.address + touch.bytes - 1) >> kLineLog2);
  }
};

thread_local Stepper::State* Stepper::stepping_ = nullptr;

void Stepper::State::OnStep(const ucontext_t& context) {
  const auto at = static_cast<uintptr_t>(context.uc_mcontext.gregs[REG_RIP]);
  const auto return_to = [&context] {
    return *reinterpret_cast<const uintptr_t*>(context.uc_mcontext.gregs[REG_RSP]);
  };
  if (at == reinterpret_cast<uintptr_t>(&xtreme_benchmark_measured)) measured_return = return_to();
  if (at == measured_return) measured_return = 0;
  if (measured_return == 0) return;
  if (at == device_return) device_return = 0;
  if (device_return != 0) return;
  if (at == reinterpret_cast<uintptr_t>(&xtreme_benchmark_device)) {
    device_return = return_to();
    return;
  }
  Note(at, context);
}

void Stepper::State::Note(uintptr_t at, const ucontext_t& context) {
  const Instruction instruction =
      Decode(reinterpret_cast<const uint8_t*>(at), ReadRegisters(context));
  ++steps.instructions;
  steps.locked += instruction.locked;
  steps.system_calls += instruction.system_call;
  steps.unknown += !instruction.known;
  steps.allocations += std::find(allocators.begin(), allocators.end(), at) != allocators.end();
  code.Add(at >> kLineLog2);
  Touched(instruction.operand);
  Touched(instruction.implied);
  if (steps.to_doorbell == 0 && IsDoorbell(instruction.operand)) {
    steps.to_doorbell = steps.instructions;
  }
}

Stepper::Stepper() : state_(std::make_unique<State>()) {
  struct sigaction action {};
  action.sa_sigaction = [](int, siginfo_t*, void* context) {
    if (stepping_ != nullptr) stepping_->OnStep(*static_cast<const ucontext_t*>(context));
  };
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGTRAP, &action, &state_->before);
}

Stepper::~Stepper() { sigaction(SIGTRAP, &state_->before, nullptr); }

Steps Stepper::Step(Scenario& scenario) {
  state_->steps = {};
  state_->code.Clear();
  state_->data.Clear();
  state_->doorbells = scenario.doorbells();
  stepping_ = state_.get();
  __writeeflags(__readeflags() | kTrapFlag);
  xtreme_benchmark_measured(&scenario);
  __writeeflags(__readeflags() & ~kTrapFlag);
  stepping_ = nullptr;
  state_->steps.code_lines = state_->code.size();
  state_->steps.data_lines = state_->data.size();
  return state_->steps;
}

}  // namespace xtreme::benchmarks
