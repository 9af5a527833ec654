// SPDX-License-Identifier: Apache-2.0
//
// A program that a test runs: started in the calling thread's network namespace, its standard
// output read line by line.
//
// Invariant: the program does not outlive its object. Threads: one.

#ifndef XTREME_TESTS_SAMPLES_PROGRAM_H_
#define XTREME_TESTS_SAMPLES_PROGRAM_H_

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace xtreme::samples {

class Program {
 public:
  // `command`: the file to run and its arguments. Starting it cannot fail; the program then ends
  // with code 127.
  explicit Program(const std::vector<std::string>& command);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program();

  // Reads until a line is `line`; false when the output ends before.
  bool ReadUntil(std::string_view line);
  // Reads the rest of the output and waits for the end; the exit code, 128 + N after signal N.
  int Wait();

  // All that was read.
  const std::string& output() const { return output_; }

 private:
  bool ReadSome();

  pid_t pid_ = -1;
  int output_fd_ = -1;
  std::string output_;
};

}  // namespace xtreme::samples

#endif  // XTREME_TESTS_SAMPLES_PROGRAM_H_
