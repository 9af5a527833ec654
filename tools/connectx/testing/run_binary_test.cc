// SPDX-License-Identifier: Apache-2.0

#include <sys/types.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "gtest/gtest.h"

namespace {

struct Outcome {
  int status = -1;  // As a shell has it: 128 and the number of a signal.
  std::string output;
};

Outcome Execute(const std::string& arguments, const std::string& starter = "") {
  const std::string command =
      starter + " tools/connectx/testing/run_binary " + arguments + " 2>&1";
  FILE* const pipe = ::popen(command.c_str(), "r");
  std::string output;
  char part[4096];
  while (size_t length = std::fread(part, 1, sizeof(part), pipe)) output.append(part, length);
  const int status = ::pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), output};
}

std::string OwnNetwork() { return std::filesystem::read_symlink("/proc/self/ns/net").string(); }

constexpr char kNetwork[] = "-- readlink /proc/self/ns/net";
const std::string kDevice = "--device=eth2=10.0.0.1/24+10.0.0.9/24 ";
// Any that does nothing by itself.
const std::string kLibrary = "tools/connectx/preload/libconnectx.so";

TEST(RunBinaryTest, NetworkIsNeitherTheMachinesNorThatOfAnotherRun) {
  const std::string one = Execute(kNetwork).output;
  const std::string other = Execute("-- sh -c 'readlink /proc/self/ns/net; " +
                                std::string("exec tools/connectx/testing/run_binary ") +
                                kNetwork + "'").output;
  EXPECT_EQ(one.find(OwnNetwork()), std::string::npos) << one;
  EXPECT_EQ(one.substr(0, 5), "net:[");
  const size_t second = other.find("net:[", 1);
  ASSERT_NE(second, std::string::npos) << other;
  EXPECT_NE(other.substr(0, second), other.substr(second));
}

TEST(RunBinaryTest, NeedsNoPrivilege) {
  for (const char* starter : {
           // Root may be mapped by who may set capabilities of files, and nothing else.
           "setpriv --bounding-set=-all,+setfcap --inh-caps=-all",
           // Root of users that do not own the network.
           "unshare --user --map-root-user"}) {
    const Outcome outcome = Execute(kDevice + "-- ip -brief -4 address show eth2", starter);
    EXPECT_EQ(outcome.status, 0) << starter << "\n" << outcome.output;
    EXPECT_NE(outcome.output.find("10.0.0.1/24"), std::string::npos) << outcome.output;
  }
}

TEST(RunBinaryTest, LoopbackAloneIsThereAndUp) {
  const Outcome outcome = Execute("-- sh -c 'tail -n +3 /proc/net/dev | cut -d : -f 1; "
                              "ip -brief address show up'");
  EXPECT_EQ(outcome.output.substr(0, outcome.output.find('\n')), "    lo") << outcome.output;
  EXPECT_NE(outcome.output.find("127.0.0.1/8"), std::string::npos) << outcome.output;
  EXPECT_EQ(outcome.output.find("eth"), std::string::npos) << outcome.output;
}

TEST(RunBinaryTest, EndsAsTheProgramDoes) {
  EXPECT_EQ(Execute("-- sh -c 'exit 23'").status, 23);
  EXPECT_EQ(Execute("-- sh -c 'kill -TERM $$'").status, 128 + SIGTERM);
  const Outcome absent = Execute("-- ./no-such-program");
  EXPECT_NE(absent.status, 0);
  EXPECT_NE(absent.output.find("no-such-program"), std::string::npos) << absent.output;
}

TEST(RunBinaryTest, InterfaceHasItsAddressAndTheGroups) {
  const Outcome outcome =
      Execute(kDevice + "-- sh -c 'ip -brief -4 address show eth2; ip route'");
  for (const char* each : {"10.0.0.1/24", "224.0.0.0/4 dev eth2"}) {
    EXPECT_NE(outcome.output.find(each), std::string::npos) << each << "\n" << outcome.output;
  }
}

TEST(RunBinaryTest, EachInterfaceHasAnAddressAndTheMtuAndTheFirstTheGroups) {
  const Outcome outcome = Execute(kDevice +
                                  "--device=eth3=10.1.0.1/24+10.1.0.9/24 --mtu=9000 -- sh -c 'ip "
                                  "route; ip link show eth2; ip link show eth3'");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  for (const char* each :
       {"10.0.0.0/24 dev eth2", "10.1.0.0/24 dev eth3", "224.0.0.0/4 dev eth2"}) {
    EXPECT_NE(outcome.output.find(each), std::string::npos) << each << "\n" << outcome.output;
  }
  const size_t first = outcome.output.find(" mtu 9000 ");
  ASSERT_NE(first, std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find(" mtu 9000 ", first + 1), std::string::npos) << outcome.output;
}

// Both ends of the wire: what is as long arrives whole.
TEST(RunBinaryTest, InterfaceAndTheHostsHaveTheMtuThatIsAsked) {
  const Outcome outcome =
      Execute(kDevice + "--mtu=9000 -- sh -c 'ip link show eth2; exec ping -c 1 -W 9 -M do -s 8972 "
                        "10.0.0.9'");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_NE(outcome.output.find(" mtu 9000 "), std::string::npos) << outcome.output;
}

// It is on the other network meanwhile, and has none of what is preloaded into the program.
TEST(RunBinaryTest, HostsProgramIsGoneWhenTheProgramHasEnded) {
  const std::string told = std::string(std::getenv("TEST_TMPDIR")) + "/told";
  const std::string library = "--preload=" + kLibrary + " ";
  const Outcome outcome = Execute(
      kDevice + library + "--host=sh --host-arg=-c --host-arg='(echo $$; ip -brief -4 address; "
      "echo \"[$LD_PRELOAD]\") > " + told + ".new; mv " + told + ".new " + told +
      "; exec sleep 600' -- sh -c 'until test -e " + told + "; do :; done; echo $LD_PRELOAD'");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.output, std::filesystem::absolute(kLibrary).string() + ":\n");
  std::ifstream file(told);
  pid_t host = 0;
  file >> host;
  const std::string text(std::istreambuf_iterator<char>(file), {});
  for (const char* each : {"10.0.0.9/24", "[]"}) {
    EXPECT_NE(text.find(each), std::string::npos) << each << "\n" << text;
  }
  EXPECT_EQ(::kill(host, 0), -1);
}

TEST(RunBinaryTest, HostsProgramThatFailsFailsTheTest) {
  const Outcome outcome = Execute(
      kDevice + "--host=sh --host-arg=-c --host-arg='exit 3' -- sleep 600");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.output.find("the host's program ended with status 3"), std::string::npos)
      << outcome.output;
}

TEST(RunBinaryTest, WrongDeviceIsAnErrorThatNamesIt) {
  const Outcome outcome = Execute("--device=eth2=10.0.0.300/24 -- true");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.output.find("10.0.0.300/24"), std::string::npos) << outcome.output;
}

TEST(RunBinaryTest, OptionThatIsNoneIsAUsageError) {
  for (const char* wrong : {"--colour=red -- true", "true", "--device -- true", "--",
                            "--mtu=0 -- true", "--mtu=9000x -- true", "--mtu= -- true"}) {
    EXPECT_EQ(Execute(wrong).status, 2) << wrong;
  }
}

}  // namespace
