// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/uverbs/sysfs.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "gtest/gtest.h"

namespace xtreme::connectx {
namespace {

std::string Read(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

bool Exists(const std::string& path) {
  struct stat status;
  return ::stat(path.c_str(), &status) == 0;
}

DeviceIdentity Device(std::string name, std::string interface) {
  return {.name = std::move(name),
          .interface = std::move(interface),
          .interface_index = 7,
          .node_guid = 0x0200'5e00'0012'3456,
          .gids = {Gid{0xfe, 0x80}, Gid{0xfe, 0x80}}};
}

TEST(SysfsTreeTest, NamesTheCharacterDeviceAndThePciIdThatSelectLibmlx5) {
  const DeviceIdentity device = Device("mlx5_3", "");
  auto tree = SysfsTree::Create({&device, 1});
  ASSERT_TRUE(tree.ok()) << tree.status();
  const std::string verbs = (*tree)->root() + "/class/infiniband_verbs/";
  EXPECT_EQ(Read(verbs + "abi_version"), "6");
  EXPECT_EQ(Read(verbs + "uverbs0/ibdev"), "mlx5_3");
  EXPECT_EQ(Read(verbs + "uverbs0/dev"), "1:3");
  const std::string ib = (*tree)->root() + "/class/infiniband/mlx5_3/";
  EXPECT_EQ(Read(ib + "node_guid"), "0200:5e00:0012:3456");
  EXPECT_EQ(Read(ib + "device/modalias").substr(0, 32), "pci:v000015B3d00001017sv000015B3");
  EXPECT_EQ(Read(ib + "ports/1/gids/0"), "fe80:0000:0000:0000:0000:0000:0000:0000");
}

TEST(SysfsTreeTest, ShowsTheInterfaceUnderTheDeviceAndInTheGidTable) {
  const DeviceIdentity device = Device("mlx5_0", "lo");
  auto tree = SysfsTree::Create({&device, 1});
  ASSERT_TRUE(tree.ok()) << tree.status();
  const std::string ib = (*tree)->root() + "/class/infiniband/mlx5_0/";
  EXPECT_EQ(Read(ib + "device/net/lo/ifindex"), "7");
  EXPECT_EQ(Read(ib + "ports/1/gid_attrs/ndevs/1"), "lo");
  EXPECT_EQ(Read(ib + "ports/1/gid_attrs/types/1"), "RoCE v2");
}

// What DPDK's PCI bus scans, and how its mlx5 driver finds the verbs device of a function.
TEST(SysfsTreeTest, TheDeviceIsAPciFunctionThatAScanFinds) {
  ::unsetenv("SYSFS_PCI_DEVICES");
  const DeviceIdentity devices[] = {Device("mlx5_0", "lo"), Device("mlx5_1", "")};
  auto tree = SysfsTree::Create(devices);
  ASSERT_TRUE(tree.ok()) << tree.status();
  ASSERT_NE(std::getenv("SYSFS_PCI_DEVICES"), nullptr);
  const std::string second = std::string(std::getenv("SYSFS_PCI_DEVICES")) + "/c07e:00:00.1/";
  EXPECT_EQ(Read(second + "vendor"), "0x15b3");
  EXPECT_EQ(Read(second + "device"), "0x1017");
  EXPECT_EQ(Read(second + "class"), "0x020000");
  std::ifstream resource(second + "resource");
  int resources = 0;
  for (std::string line; std::getline(resource, line);) ++resources;
  EXPECT_EQ(resources, 6);
  EXPECT_EQ(std::filesystem::read_symlink(second + "driver").filename(), "mlx5_core");
  std::ifstream uevent((*tree)->root() + "/class/infiniband/mlx5_1/device/uevent");
  std::stringstream text;
  text << uevent.rdbuf();
  EXPECT_NE(text.str().find("PCI_SLOT_NAME=c07e:00:00.1\n"), std::string::npos) << text.str();
}

TEST(SysfsTreeTest, AProgramsOwnChoiceOfPciDevicesStands) {
  ::setenv("SYSFS_PCI_DEVICES", "/elsewhere", 1);
  auto tree = SysfsTree::Create({});
  ASSERT_TRUE(tree.ok()) << tree.status();
  EXPECT_EQ(std::string(std::getenv("SYSFS_PCI_DEVICES")), "/elsewhere");
  ::unsetenv("SYSFS_PCI_DEVICES");
}

TEST(SysfsTreeTest, KeepsOneNameForTheProcessAndNothingAfterTheTreeIsGone) {
  std::string first;
  {
    auto tree = SysfsTree::Create({});
    ASSERT_TRUE(tree.ok()) << tree.status();
    first = (*tree)->root();
    EXPECT_EQ(std::string(std::getenv("SYSFS_PATH")), first);
  }
  EXPECT_FALSE(Exists(first));
  auto again = SysfsTree::Create({});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*again)->root(), first);
}

TEST(SysfsTreeTest, OneTreeAtATime) {
  auto tree = SysfsTree::Create({});
  ASSERT_TRUE(tree.ok()) << tree.status();
  EXPECT_FALSE(SysfsTree::Create({}).ok());
}

TEST(SysfsTreeTest, CountersAreRewrittenInPlace) {
  const DeviceIdentity device = Device("mlx5_0", "");
  auto tree = SysfsTree::Create({&device, 1});
  ASSERT_TRUE(tree.ok()) << tree.status();
  ASSERT_TRUE((*tree)->WriteCounter("mlx5_0", "hw_counters/out_of_buffer", 0).ok());
  ASSERT_TRUE((*tree)->WriteCounter("mlx5_0", "hw_counters/out_of_buffer", 1234567).ok());
  const std::string ports = (*tree)->root() + "/class/infiniband/mlx5_0/ports/1/";
  EXPECT_EQ(Read(ports + "hw_counters/out_of_buffer"), "1234567");
}

}  // namespace
}  // namespace xtreme::connectx
