// SPDX-License-Identifier: Apache-2.0
//
// ssh as a client of a ring, and sshd, which forks for each connection and so is left to the kernel
// by a rule. sshd is not installed, for it would be started: tools/install extracts it, and a test
// runs it with keys and a configuration of its own. The accounts it knows are a file that is
// mounted on /etc/passwd where only it sees it.

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "tests/faces/program.h"

namespace xtreme::faces {
namespace {

constexpr const char* kPort = "2222";

class SshTest : public FacesTest {
 protected:
  void SetUp() override {
    ASSERT_EQ(access(sshd().c_str(), X_OK), 0) << sshd() << ": run tools/install";
    FacesTest::SetUp();
    folder_ = std::string(std::getenv("TEST_TMPDIR")) + "/ssh" + std::to_string(getpid());
    ASSERT_EQ(system(("rm -rf " + folder_ + " && mkdir -p " + folder_ + " && cd " + folder_ +
                      " && for key in user host; do ssh-keygen -q -t ed25519 -N '' -f $key; done"
                      " && head -c 20000000 /dev/urandom > many").c_str()),
              0);
    Write("client", std::string("Host *\n Port ") + kPort + "\n IdentityFile " + folder_ +
                        "/user\n IdentitiesOnly yes\n StrictHostKeyChecking no\n"
                        " UserKnownHostsFile /dev/null\n LogLevel ERROR\n");
  }
  // Where tools/install extracts packages to, as tools/test says, or by default.
  static std::string Extracted() {
    if (const char* const folder = std::getenv("EXTRACTED_PACKAGES")) return folder;
    const passwd* const user = getpwuid(getuid());
    return (user == nullptr ? "" : std::string(user->pw_dir)) + "/.cache/xtreme/extracted";
  }
  static std::string sshd() { return Extracted() + "/usr/sbin/sshd"; }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name) << text;
    return folder_ + "/" + name;
  }
  // `account`: the one of /etc/passwd that is added; `as`: words before the program.
  std::string Sshd(const std::string& address, const std::string& account, const std::string& as) {
    const std::string settings = Write(
        "server", "ListenAddress " + address + ":" + kPort + "\nHostKey " + folder_ +
                      "/host\nAuthorizedKeysFile " + folder_ +
                      "/user.pub\nStrictModes no\nUsePAM no\nPidFile none\n"
                      "PasswordAuthentication no\nPermitRootLogin prohibit-password\n");
    const std::string libraries = Extracted();
    return "unshare --mount sh -c '(cat /etc/passwd; echo \"" + account + "\") > " + folder_ +
           "/passwd; mount -t tmpfs tmpfs /run; mkdir -m 755 /run/sshd; mount --bind " + folder_ +
           "/passwd /etc/passwd && exec " + as + " env LD_LIBRARY_PATH=" + libraries +
           "/lib/x86_64-linux-gnu:" + libraries + "/usr/lib/x86_64-linux-gnu " + sshd() +
           " -D -e -f " + settings + "'";
  }
  // Sends 20 MB and gets their hash, and gets them, and compares both.
  std::string MoveBothWays(const std::string& user, const std::string& address) const {
    const std::string ssh = "ssh -F " + folder_ + "/client " + user + "@" + address + " ";
    const std::string many = folder_ + "/many";
    const std::string hash = folder_ + "/hash";
    return "/bin/sh -c '" + ssh + "sha256sum < " + many + " > " + hash + " && sha256sum < " + many +
           " | cmp - " + hash + " && " + ssh + "cat " + many + " | cmp - " + many +
           " && echo equal'";
  }

  std::string folder_;
};

// This sshd is not root, not even in a namespace where everybody is: it would want a user of its
// own.
TEST_F(SshTest, ClientIsOffloadedAndMovesMegabytesBothWays) {
  const auto server = StartOnKernel(Sshd(kTheirs, "tester:x:1000:1000::/:/bin/sh",
                                         "unshare --user --map-user=1000 --map-group=1000"));
  ASSERT_TRUE(server->Says("Server listening")) << server->Output();
  const std::string log = folder_ + "/log";
  const auto client = StartOnXtreme(MoveBothWays("tester", kTheirs),
                                    "XTREME_LOG_LEVEL=debug XTREME_LOG_FILE=" + log + ".%d");
  EXPECT_EQ(client->Wait(), 0) << client->Output() << server->Output();
  EXPECT_EQ(client->Output(), "equal\n") << server->Output();
  EXPECT_EQ(system(("test $(grep -l 'offloaded on ours, connects to' " + log +
                    ".* | wc -l) = 2").c_str()),
            0);
}

TEST_F(SshTest, ServerThatForksIsLeftToTheKernelByARuleAndTheLogSaysSo) {
  const std::string rule = std::string("use os tcp_server ") + kOurs + ":" + kPort;
  const std::string rules = Write("rules", "application-id sshd\n" + rule + "\n");
  const auto server = StartOnXtreme(Sshd(kOurs, "sshd:x:0:0::/run/sshd:/bin/false", ""),
                                    "XTREME_LOG_LEVEL=details XTREME_CONFIG_FILE=" + rules);
  ASSERT_TRUE(server->Says("Server listening")) << server->Output();
  // Where an ordinary user is root it greets, and can let nobody in: it sets groups.
  std::string groups;
  std::getline(std::ifstream("/proc/self/setgroups"), groups);
  const std::string greeted = std::string("bash -c 'read -r line < /dev/tcp/") + kOurs + "/" +
                              kPort + " && [[ $line = SSH-2.0* ]] && echo equal'";
  const auto client =
      StartOnKernel(groups == "deny" ? greeted : MoveBothWays("root", kOurs));
  EXPECT_EQ(client->Wait(), 0) << client->Output() << server->Output();
  EXPECT_EQ(client->Output(), "equal\n") << server->Output();
  EXPECT_NE(server->Output().find("is left to the kernel: rule: " + rule), std::string::npos)
      << server->Output();
}

}  // namespace
}  // namespace xtreme::faces
