// SPDX-License-Identifier: Apache-2.0
#include "stack/base/intrusive_list.h"

#include <gtest/gtest.h>

#include <vector>

namespace xtreme::base {
namespace {

struct Element {
  explicit Element(int number) : value(number) {}
  int value;
  ListHook hook;
  ListHook other;
};

using List = IntrusiveList<Element, &Element::hook>;
using OtherList = IntrusiveList<Element, &Element::other>;

std::vector<int> Values(List& list) {
  std::vector<int> values;
  for (Element& element : list) values.push_back(element.value);
  return values;
}

TEST(IntrusiveList, KeepsTheOrderOfPushing) {
  Element a(1), b(2), c(3);
  List list;
  EXPECT_TRUE(list.empty());
  list.PushBack(a);
  list.PushBack(b);
  list.PushFront(c);
  EXPECT_EQ(Values(list), (std::vector<int>{3, 1, 2}));
  EXPECT_EQ(list.front().value, 3);
  EXPECT_EQ(list.back().value, 2);
}

TEST(IntrusiveList, AnElementLeavesWithoutKnowingItsList) {
  Element a(1), b(2), c(3);
  List list;
  for (Element* element : {&a, &b, &c}) list.PushBack(*element);
  b.hook.Unlink();
  EXPECT_FALSE(b.hook.linked());
  EXPECT_EQ(Values(list), (std::vector<int>{1, 3}));
  b.hook.Unlink();
  EXPECT_EQ(Values(list), (std::vector<int>{1, 3}));
}

TEST(IntrusiveList, AnElementThatDiesLeavesItsList) {
  Element a(1);
  List list;
  list.PushBack(a);
  {
    Element b(2);
    list.PushBack(b);
  }
  EXPECT_EQ(Values(list), (std::vector<int>{1}));
}

TEST(IntrusiveList, AListThatDiesLeavesItsElementsUnlinked) {
  Element a(1);
  {
    List list;
    list.PushBack(a);
  }
  EXPECT_FALSE(a.hook.linked());
}

TEST(IntrusiveList, TwoHooksAreInTwoListsAtOnce) {
  Element a(1), b(2);
  List list;
  OtherList other;
  list.PushBack(a);
  list.PushBack(b);
  other.PushBack(b);
  other.PushBack(a);
  EXPECT_EQ(&other.front(), &b);
  OtherList::Remove(b);
  EXPECT_EQ(Values(list), (std::vector<int>{1, 2}));
  EXPECT_EQ(&other.front(), &a);
}

TEST(IntrusiveList, PopFrontEmptiesInOrder) {
  Element a(1), b(2);
  List list;
  list.PushBack(a);
  list.PushBack(b);
  EXPECT_EQ(list.PopFront(), &a);
  EXPECT_EQ(list.PopFront(), &b);
  EXPECT_EQ(list.PopFront(), nullptr);
}

TEST(IntrusiveList, InsertsBeforeAPositionAndWalksBackwards) {
  Element a(1), b(2), c(3);
  List list;
  list.PushBack(a);
  list.PushBack(c);
  list.InsertBefore(--list.end(), b);
  EXPECT_EQ(Values(list), (std::vector<int>{1, 2, 3}));
}

TEST(IntrusiveList, TheCurrentElementMayLeaveOnceTheIteratorWentOn) {
  Element a(1), b(2), c(3);
  List list;
  for (Element* element : {&a, &b, &c}) list.PushBack(*element);
  for (auto i = list.begin(); i != list.end();) (i++)->hook.Unlink();
  EXPECT_TRUE(list.empty());
}

}  // namespace
}  // namespace xtreme::base
