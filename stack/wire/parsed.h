// SPDX-License-Identifier: Apache-2.0
//
// What parsing a header gives: a view, or the one reason there is none.
#ifndef XTREME_STACK_WIRE_PARSED_H_
#define XTREME_STACK_WIRE_PARSED_H_

namespace xtreme::wire {

// `Error` is an enum whose value kNone (0) says that there is a view. The view is looked at only
// then.
template <typename View, typename Error>
class Parsed {
 public:
  constexpr Parsed(View view) : view_(view) {}
  constexpr Parsed(Error error) : error_(error) {}

  constexpr bool ok() const { return error_ == Error::kNone; }
  constexpr Error error() const { return error_; }
  constexpr const View& operator*() const { return view_; }
  constexpr const View* operator->() const { return &view_; }

 private:
  View view_{};
  Error error_ = Error::kNone;
};

}  // namespace xtreme::wire

#endif  // XTREME_STACK_WIRE_PARSED_H_
