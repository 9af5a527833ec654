// SPDX-License-Identifier: Apache-2.0
//
// What a fuzz run promises: inputs that can be made again, that differ, and that reach edges.
#include "tests/fuzz/input.h"

#include <algorithm>
#include <set>

#include "gtest/gtest.h"

namespace xtreme::fuzz {
namespace {

TEST(InputsTest, InputIsAFunctionOfSeedAndIndexAlone) {
  const Inputs inputs({{1, 2, 3, 4}}, 7, 100);
  const Bytes ninth = inputs.At(9);
  for (int i = 0; i < 20; ++i) inputs.At(i);
  EXPECT_EQ(inputs.At(9), ninth);
  EXPECT_EQ(Inputs({{1, 2, 3, 4}}, 7, 100).At(9), ninth);
}

TEST(InputsTest, AnotherSeedMakesOtherInputs) {
  const Inputs a({}, 1, 100);
  const Inputs b({}, 2, 100);
  int different = 0;
  for (int i = 0; i < 100; ++i) different += a.At(i) != b.At(i);
  EXPECT_GT(different, 90);
}

TEST(InputsTest, SeedsComeFirstAndUnchanged) {
  const Inputs inputs({{1, 2}, {3}}, 7, 100);
  EXPECT_EQ(inputs.At(0), (Bytes{1, 2}));
  EXPECT_EQ(inputs.At(1), (Bytes{3}));
}

TEST(InputsTest, NoInputIsLongerThanTheMaximum) {
  const Inputs inputs({Bytes(64, 0xAB)}, 7, 20);
  for (int i = 0; i < 5000; ++i) ASSERT_LE(inputs.At(i).size(), 20u) << "input " << i;
}

TEST(InputsTest, SeedsAreMutatedIntoManyShapes) {
  const Bytes seed(40, 0xAB);
  const Inputs inputs({seed}, 7, 200);
  std::set<size_t> lengths;
  int near = 0;
  for (int i = 1; i < 2000; ++i) {
    const Bytes input = inputs.At(i);
    lengths.insert(input.size());
    near += std::count(input.begin(), input.end(), 0xAB) > 20;
  }
  EXPECT_TRUE(lengths.contains(0));
  EXPECT_GT(lengths.size(), 60u);
  EXPECT_GT(near, 500) << "too few inputs look like the seed to pass a parser's first checks";
}

}  // namespace
}  // namespace xtreme::fuzz
