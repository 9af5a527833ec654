// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "samples/trading/ouch42.h"
#include "samples/trading/soup_bin_tcp.h"
#include "samples/trading/soup_session.h"

namespace trading {
namespace {

using Bytes = std::vector<uint8_t>;
using Received = std::vector<std::pair<uint64_t, std::string>>;

Bytes ToBytes(std::string_view text) { return Bytes(text.begin(), text.end()); }

template <typename Range>
std::string Text(const Range& bytes) {
  return std::string(bytes.begin(), bytes.end());
}

Bytes Packed(soup::Type type, std::string_view payload) {
  const auto header = soup::Header(type, payload.size());
  Bytes packet(header.size() + payload.size());
  std::copy(header.begin(), header.end(), packet.begin());
  std::copy(payload.begin(), payload.end(), packet.begin() + soup::kHeaderBytes);
  return packet;
}

void Add(const Bytes& more, Bytes* stream) {
  stream->insert(stream->end(), more.begin(), more.end());
}

// --- Packets ------------------------------------------------------------------------------------

TEST(SoupBinTcpTest, GoldenBytesOfALoginRequest) {
  const auto packet = soup::Emit(soup::LoginRequest{soup::PadRight<6>("bob"),
                                                    soup::PadRight<10>("secret"),
                                                    soup::MakeSession("DAY1"), 1042});
  EXPECT_EQ(Text(packet), std::string("\0\x2fL", 3) + "bob   " + "secret    " + "      DAY1" +
                              "                1042");
  const auto read = soup::ReadLoginRequest(soup::Next(packet));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->sequence, 1042u);
  EXPECT_EQ(Text(read->user), "bob   ");
}

TEST(SoupBinTcpTest, GoldenBytesOfAnAcceptedLogin) {
  const auto packet = soup::Emit(soup::LoginAccepted{soup::MakeSession("DAY1"), 7});
  EXPECT_EQ(Text(packet), std::string("\0\x1f" "A", 3) + "      DAY1" + "                   7");
  const auto read = soup::ReadLoginAccepted(soup::Next(packet));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->sequence, 7u);
}

TEST(SoupBinTcpTest, SequenceThatIsNoNumberIsRefused) {
  for (const char* number : {"                  -1", "                  1x", "         1 2        ",
                             "                    ", "99999999999999999999"}) {
    const Bytes packet = Packed(soup::Type::kLoginAccepted, std::string("      DAY1") + number);
    EXPECT_FALSE(soup::ReadLoginAccepted(soup::Next(packet))) << number;
  }
}

TEST(SoupBinTcpTest, EveryTruncationIsIncomplete) {
  const Bytes whole = Packed(soup::Type::kUnsequenced, "order");
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_EQ(soup::Next(std::span(whole).first(length)).verdict, soup::Verdict::kIncomplete)
        << length;
  }
  EXPECT_EQ(soup::Next(whole).verdict, soup::Verdict::kPacket);
}

TEST(SoupBinTcpTest, MalformedPacketsAreRefusedForTheirReason) {
  const struct {
    const char* name;
    Bytes bytes;
    soup::Verdict verdict;
  } rows[] = {
      {"no type", {0, 0}, soup::Verdict::kNoType},
      {"unknown type", {0, 1, '?'}, soup::Verdict::kUnknownType},
      {"heartbeat with a payload", {0, 2, 'H'}, soup::Verdict::kWrongLength},
      {"short login", {0, 46, 'L'}, soup::Verdict::kWrongLength},
      {"long rejection", {0, 3, 'J'}, soup::Verdict::kWrongLength},
  };
  for (const auto& row : rows) EXPECT_EQ(soup::Next(row.bytes).verdict, row.verdict) << row.name;
}

TEST(SoupStreamTest, PacketsDoNotDependOnHowTheyArrive) {
  Bytes stream = Packed(soup::Type::kSequenced, "first");
  Add(Packed(soup::Type::kServerHeartbeat, ""), &stream);
  Add(Packed(soup::Type::kSequenced, std::string(300, 'x')), &stream);
  for (size_t chunk = 1; chunk <= stream.size(); ++chunk) {
    soup::Stream cutter;
    std::vector<std::string> payloads;
    for (size_t at = 0; at < stream.size(); at += chunk) {
      const size_t length = std::min(chunk, stream.size() - at);
      cutter.On(std::span(stream).subspan(at, length), [&](const soup::Packet& packet) {
        payloads.push_back(Text(packet.payload));
      });
    }
    EXPECT_EQ(payloads, (std::vector<std::string>{"first", "", std::string(300, 'x')})) << chunk;
  }
}

TEST(SoupStreamTest, NothingIsReadBehindWhatWasRefused) {
  Bytes stream = {0, 1, '?'};
  Add(Packed(soup::Type::kSequenced, "late"), &stream);
  soup::Stream cutter;
  int packets = 0;
  EXPECT_EQ(cutter.On(stream, [&](const soup::Packet&) { ++packets; }),
            soup::Verdict::kUnknownType);
  cutter.On(Packed(soup::Type::kSequenced, "later"), [&](const soup::Packet&) { ++packets; });
  EXPECT_EQ(packets, 0);
}

// --- Sessions -----------------------------------------------------------------------------------

constexpr int64_t kSecond = 1'000'000'000;

// A client and a server with one account, joined by hand.
class SoupSessionTest : public testing::Test {
 protected:
  void Connect(int64_t now_ns = 0) {
    connection_ = soup::ServerConnection();
    connection_.Begin(now_ns);
    ToServer(client_.Connect(now_ns), now_ns);
    ToClient(now_ns);
  }

  template <typename Range>
  void ToServer(const Range& bytes, int64_t now_ns = 0) {
    connection_.On(
        bytes, now_ns,
        [this](const soup::LoginRequest& request) {
          return request.user == soup::PadRight<6>("bob") ? &outbox_ : nullptr;
        },
        [this](std::span<const uint8_t> payload) { orders_.push_back(Text(payload)); });
  }

  // What the server has to send reaches the client; how many bytes.
  size_t ToClient(int64_t now_ns = 0) {
    Bytes out;
    connection_.Pump(now_ns, &out);
    client_.On(out, now_ns, [this](uint64_t sequence, std::span<const uint8_t> payload) {
      received_.emplace_back(sequence, Text(payload));
    });
    return out.size();
  }

  soup::ClientSession client_{"bob", "secret"};
  soup::Outbox outbox_{"DAY1"};
  soup::ServerConnection connection_;
  std::vector<std::string> orders_;
  Received received_;
};

TEST_F(SoupSessionTest, MessagesComeNumberedAfterTheLogin) {
  outbox_.Append(ToBytes("before"));
  Connect();
  EXPECT_EQ(client_.state(), soup::ClientSession::State::kOpen);
  outbox_.Append(ToBytes("after"));
  ToClient();
  EXPECT_EQ(received_, (Received{{1, "before"}, {2, "after"}}));
}

TEST_F(SoupSessionTest, ClientsMessagesReachTheServerOnlyAfterTheLogin) {
  connection_.Begin(0);
  ToServer(Packed(soup::Type::kUnsequenced, "order"));
  EXPECT_TRUE(connection_.over());
  Connect();
  ToServer(Packed(soup::Type::kUnsequenced, "order"));
  EXPECT_EQ(orders_, std::vector<std::string>{"order"});
  EXPECT_FALSE(connection_.over());
}

TEST_F(SoupSessionTest, ReconnectGoesOnWithTheNextMessage) {
  outbox_.Append(ToBytes("one"));
  Connect();
  client_.Disconnect();
  outbox_.Append(ToBytes("two"));  // While nobody is there.
  Connect();
  EXPECT_EQ(received_, (Received{{1, "one"}, {2, "two"}}));
  EXPECT_EQ(client_.next_sequence(), 3u);
}

TEST_F(SoupSessionTest, MessagesThatComeAgainAreDropped) {
  for (const char* text : {"one", "two"}) outbox_.Append(ToBytes(text));
  Connect();
  client_.Disconnect();
  client_.Connect(0);
  // A server that begins earlier than it was asked to.
  Bytes stream;
  const auto accepted = soup::Emit(soup::LoginAccepted{soup::MakeSession("DAY1"), 2});
  Add(Bytes(accepted.begin(), accepted.end()), &stream);
  for (const char* text : {"two", "three"}) Add(Packed(soup::Type::kSequenced, text), &stream);
  client_.On(stream, 0, [this](uint64_t sequence, std::span<const uint8_t> payload) {
    received_.emplace_back(sequence, Text(payload));
  });
  EXPECT_EQ(received_, (Received{{1, "one"}, {2, "two"}, {3, "three"}}));
  EXPECT_EQ(client_.repeated(), 1u);
}

TEST_F(SoupSessionTest, ServerThatSkipsMessagesBreaksTheSession) {
  outbox_.Append(ToBytes("one"));
  Connect();
  client_.Disconnect();
  client_.Connect(0);
  const auto accepted = soup::Emit(soup::LoginAccepted{soup::MakeSession("DAY1"), 5});
  client_.On(accepted, 0, [](uint64_t, std::span<const uint8_t>) {});
  EXPECT_EQ(client_.state(), soup::ClientSession::State::kBroken);
}

TEST_F(SoupSessionTest, AnotherSessionBeginsItsNumbersAnew) {
  for (const char* text : {"one", "two"}) outbox_.Append(ToBytes(text));
  Connect();
  client_.Disconnect();
  client_.Connect(0);
  Bytes stream;
  const auto accepted = soup::Emit(soup::LoginAccepted{soup::MakeSession("DAY2"), 1});
  Add(Bytes(accepted.begin(), accepted.end()), &stream);
  Add(Packed(soup::Type::kSequenced, "new"), &stream);
  client_.On(stream, 0, [this](uint64_t sequence, std::span<const uint8_t> payload) {
    received_.emplace_back(sequence, Text(payload));
  });
  EXPECT_EQ(received_.back(), (std::pair<uint64_t, std::string>(1, "new")));
}

TEST_F(SoupSessionTest, StrangersAndUnknownSessionsAreRejected) {
  client_ = soup::ClientSession("eve", "secret");
  Connect();
  EXPECT_EQ(client_.state(), soup::ClientSession::State::kRejected);
  EXPECT_EQ(client_.reason(), soup::RejectReason::kNotAuthorized);
  EXPECT_TRUE(connection_.over());

  connection_ = soup::ServerConnection();
  ToServer(soup::Emit(soup::LoginRequest{soup::PadRight<6>("bob"), soup::PadRight<10>("secret"),
                                         soup::MakeSession("DAY0"), 1}));
  Bytes out;
  connection_.Pump(0, &out);
  EXPECT_EQ(Text(out), std::string("\0\2JS", 4));
}

TEST_F(SoupSessionTest, SequenceZeroBeginsWithTheNewest) {
  outbox_.Append(ToBytes("old"));
  ToServer(soup::Emit(soup::LoginRequest{soup::PadRight<6>("bob"), soup::PadRight<10>("secret"),
                                         soup::MakeSession(""), 0}));
  outbox_.Append(ToBytes("new"));
  Bytes out;
  connection_.Pump(0, &out);
  const auto accepted = soup::ReadLoginAccepted(soup::Next(out));
  ASSERT_TRUE(accepted);
  EXPECT_EQ(accepted->sequence, 2u);
  EXPECT_EQ(Text(soup::Next(std::span(out).subspan(33)).payload), "new");
}

TEST_F(SoupSessionTest, BothEndsSayThatTheyLiveAfterASecondOfSilence) {
  Connect();
  EXPECT_EQ(ToClient(kSecond - 1), 0u);
  EXPECT_EQ(ToClient(kSecond), soup::kHeaderBytes);
  EXPECT_EQ(client_.Next(kSecond - 1), soup::Silence::Action::kNothing);
  EXPECT_EQ(client_.deadline_ns(), kSecond);
  EXPECT_EQ(client_.Next(kSecond), soup::Silence::Action::kHeartbeat);
  client_.OnSent(kSecond);
  EXPECT_EQ(client_.Next(kSecond), soup::Silence::Action::kNothing);
}

TEST_F(SoupSessionTest, AnEndThatIsSilentForFifteenSecondsIsGone) {
  Connect();
  client_.OnSent(15 * kSecond - 1);
  EXPECT_EQ(client_.Next(15 * kSecond), soup::Silence::Action::kGiveUp);
  ToClient(15 * kSecond);
  EXPECT_TRUE(connection_.over());
}

TEST_F(SoupSessionTest, EndOfSessionIsFinal) {
  Connect();
  client_.On(Packed(soup::Type::kEndOfSession, ""), 0, [](uint64_t, std::span<const uint8_t>) {});
  client_.Disconnect();
  EXPECT_EQ(client_.state(), soup::ClientSession::State::kEnded);
}

TEST_F(SoupSessionTest, LogoutEndsTheConnection) {
  Connect();
  ToServer(soup::Emit(soup::Type::kLogout));
  EXPECT_TRUE(connection_.over());
}

// --- OUCH ---------------------------------------------------------------------------------------

ouch::Message SampleOf(ouch::Type type) {
  ouch::Message message;
  message.type = type;
  const bool terms = type == ouch::Type::kEnterOrder || type == ouch::Type::kAccepted;
  const bool client = ouch::IsFromClient(type);
  if (terms) {
    message.side = 'S';
    message.time_in_force = ouch::kMarketHours;
    message.minimum = 5;
    message.stock = feed::itch::MakeStock("XTRA");
    message.firm = {'X', 'T', 'R', 'M'};
  }
  if (terms || type == ouch::Type::kExecuted) message.price = 1'234'500;
  if (type != ouch::Type::kSystemEvent) message.token = soup::PadRight<14>("T00000000042");
  const bool shares = type != ouch::Type::kSystemEvent && type != ouch::Type::kRejected;
  if (shares) message.shares = 0x01020304;
  if (!client) message.time_ns = 34'200'000'000'001;
  if (!client) message.code = 'L';
  if (type == ouch::Type::kAccepted) message.reference = 0x1122334455667788;
  if (type == ouch::Type::kExecuted) message.match = 0x99aabbccddeeff;
  return message;
}

TEST(Ouch42Test, GoldenBytesOfAnOrder) {
  std::array<uint8_t, ouch::kMostBytes> bytes;
  bytes.fill(0xa5);
  const size_t length = ouch::Emit(SampleOf(ouch::Type::kEnterOrder), bytes);
  EXPECT_EQ(Text(std::span(bytes).first(length)),
            std::string("OT00000000042  S\1\2\3\4XTRA    \0\x12\xd6\x44\0\1\x86\x9e"
                        "XTRMYPN\0\0\0\5NN",
                        49));
}

TEST(Ouch42Test, GoldenBytesOfAnExecution) {
  std::array<uint8_t, ouch::kMostBytes> bytes;
  const size_t length = ouch::Emit(SampleOf(ouch::Type::kExecuted), bytes);
  EXPECT_EQ(Text(std::span(bytes).first(length)),
            std::string("E\0\0\x1f\x1a\xce\xd9\xf0\x01T00000000042  \1\2\3\4\0\x12\xd6\x44L"
                        "\0\x99\xaa\xbb\xcc\xdd\xee\xff",
                        40));
}

TEST(Ouch42Test, EveryMessageIsReadAsItWasWritten) {
  for (const char type : std::string_view("OXSAECJ")) {
    const ouch::Message message = SampleOf(static_cast<ouch::Type>(type));
    std::array<uint8_t, ouch::kMostBytes> bytes, again;
    const size_t length = ouch::Emit(message, bytes);
    EXPECT_EQ(length, ouch::LengthOf(type));
    ouch::Message read;
    ASSERT_EQ(ouch::Parse(std::span(bytes).first(length), &read), ouch::Refusal::kNone) << type;
    ouch::Emit(read, again);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(length),
                           again.begin()))
        << type;
    EXPECT_EQ(read.token, message.token) << type;
    EXPECT_EQ(read.shares, message.shares) << type;
    EXPECT_EQ(read.reference, message.reference) << type;
  }
}

TEST(Ouch42Test, OtherLengthsAndTypesAreRefused) {
  ouch::Message message;
  EXPECT_EQ(ouch::Parse({}, &message), ouch::Refusal::kEmpty);
  EXPECT_EQ(ouch::Parse(ToBytes("?"), &message), ouch::Refusal::kUnknownType);
  for (const char type : std::string_view("OXSAECJ")) {
    Bytes bytes(ouch::LengthOf(type) + 1, static_cast<uint8_t>(type));
    EXPECT_EQ(ouch::Parse(bytes, &message), ouch::Refusal::kWrongLength) << type;
    bytes.resize(bytes.size() - 2);
    EXPECT_EQ(ouch::Parse(bytes, &message), ouch::Refusal::kWrongLength) << type;
  }
}

}  // namespace
}  // namespace trading
