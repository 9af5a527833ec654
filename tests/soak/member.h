// SPDX-License-Identifier: Apache-2.0
//
// A process of the soak: its devices, its rings, what they send and are sent, and what has to be
// true of them. It follows the phases on the board.
//
// Thread: one.

#ifndef XTREME_TESTS_SOAK_MEMBER_H_
#define XTREME_TESTS_SOAK_MEMBER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/xtreme.hpp"
#include "tests/soak/board.h"
#include "tests/soak/datagrams.h"
#include "tests/soak/sender.h"
#include "tests/soak/shelf.h"
#include "tests/soak/streams.h"
#include "tests/soak/trouble.h"
#include "tests/soak/wires.h"

namespace xtreme::soak {

class Member {
 public:
  Member(Board* board, int member, uint64_t seed);

  // Until the board says that it is the end, or something is wrong, which then stands there.
  bool Run(const std::string& segment);

 private:
  // A ring and what is on it.
  struct Station {
    explicit Station(int number, Ring opened)
        : at(number), ring(std::move(opened)), sender(&ring, number),
          shelf(EndpointAt(number).buffers / 16) {}

    const int at;
    Ring ring;
    Sender sender;
    Shelf shelf;
    std::optional<Datagrams> datagrams;
    TcpSocket listener;
    int operations = 1;     // Whose OP_DONE is due; the first is of the sender's memory.
    int open_sockets = 0;   // Whose TERMINATED is due.
    bool resetting = false;
    uint64_t free_at_start = 0;
    int64_t next_datagram_ns = 0;
    int quiet_datagrams = 0;  // To be sent yet.

    // The ring's counter; without a name, the sum of its scope.
    uint64_t Count(std::string_view scope, std::string_view name) const;
    // Frames and datagrams that it says were lost of what came.
    uint64_t LostOfReceived() const;
  };
  static constexpr uint64_t kReset = 78;  // Its cookie.

  // member_ends.cc
  bool Open(const std::string& segment);
  std::string OpenStation(int at);
  bool End();
  bool EndStation(Station* station);
  // Whether all of a ring's buffers are free or posted, at last.
  bool Balances(const Station& station);
  // Polls until `reached`; false: it was not in a long time, or something is wrong.
  template <typename Reached>
  bool Await(const std::string& what, Reached reached);

  void Poll();
  void Take(Completion* completion);
  void TakePacket(Station* station, Completion* packet, bool of_stream);
  void TakeDone(const Completion& done);
  void TakeNews(Station* station, const Completion& news);
  void Reset(Station* station);
  void Act(Phase phase);
  void MakeNoise();
  void BeginCalm();
  void BeginQuiet();
  bool IsCalm() const;
  bool IsDone(Phase phase) const;
  void SendDatagrams(Station* station, bool quiet);
  void Publish(bool now_too);
  void PublishTally();
  Station* StationAt(int at);
  MemberPage& page() { return board_->member(member_); }
  void Check(const std::string& wrong);
  int64_t now() const { return stations_.front()->ring.now_ns(); }

  Board* const board_;
  const int member_;
  uint32_t home_ = 0;  // The index of its first interface.
  Dice dice_;
  Wires wires_;
  Trouble trouble_;
  std::vector<std::unique_ptr<Station>> stations_;
  std::optional<RingGroup> group_;
  Streams streams_;
  std::map<int, Sender*> senders_;
  bool calm_ = false;
  bool quiet_ = false;
  int64_t next_act_ns_ = 0;
  int64_t next_report_ns_ = 0;
};

}  // namespace xtreme::soak

#endif  // XTREME_TESTS_SOAK_MEMBER_H_
