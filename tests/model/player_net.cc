// SPDX-License-Identifier: Apache-2.0
//
// What happens to the network: cables, routes, neighbours, MTUs.

#include <string>

#include "tests/model/player.h"
#include "tests/model/world.h"

namespace xtreme::model {

// Frames of a side's rings may be lost, or leave late, and sends may be refused.
void Player::MakeUnsure(int side) {
  model_.faults = true;
  for (int ring = 0; ring < World::kRings; ++ring) {
    if (World::SideOf(ring) != side) continue;
    ++resetting_[static_cast<size_t>(ring)];
    for (auto& [handle, socket] : model_.sockets()) {
      if (socket.ring != ring) continue;
      // What was sent before a move may be told here, too.
      for (Socket* at = &socket; at != nullptr; at = at->origin) {
        at->wire_may_miss = at->wire_unordered = true;
      }
    }
  }
}

void Player::ChangeCable(const Numbers& numbers) {
  const int port = static_cast<int>(numbers[0] % (has_backup_ ? 3 : 2));
  const bool plugged = numbers[1] % 3 != 0;
  Note("cable of port " + std::to_string(port) + (plugged ? " in" : " out"));
  world_->Plug(port, plugged);
  model_.faults = true;
  if (has_backup_ && port != 1) MakeUnsure(0);
}

// The rings of a side with a backup are on the same port, once both have moved.
void Player::FollowMove(const xtreme_completion& moved) {
  Check(has_backup_ && moved.user_data < 2, "MOVED of a ring without a backup");
  if (moved.status != 0) return;
  const bool home = moved.interface_index == World::IfindexOf(0);
  Check(home || moved.interface_index == World::IfindexOf(2), "MOVED to another interface");
  away_[moved.user_data] = !home;
  Announce(home ? 0 : 2);
  MakeUnsure(0);
}

void Player::Announce(int port) {
  Note("announce " + std::to_string(port));
  world_->Announce(port);
}

void Player::ChangeRoutes(const Numbers& numbers) {
  const int side = static_cast<int>(numbers[0] % 2);
  const bool there = numbers[1] / 4 % 3 != 0;
  model_.upset = true;
  for (auto& [handle, socket] : model_.sockets()) {
    socket.wire_may_miss = socket.wire_unordered = true;
  }
  switch (numbers[1] % 4) {
    case 0:
      Note("route of side " + std::to_string(side) + (there ? " there" : " gone"));
      return world_->SetRoute(side, there);
    case 1:
      Note("neighbour of side " + std::to_string(side) + (there ? " known" : " unknown"));
      return world_->SetNeighbour(side, there);
    default: {
      const uint32_t mtu = there ? 1'500 : 600 + numbers[2] % 900;
      Note("mtu of side " + std::to_string(side) + " " + std::to_string(mtu));
      return world_->SetMtu(side, mtu);
    }
  }
}

void Player::HealNet() {
  for (int side = 0; side < 2; ++side) {
    world_->SetRoute(side, true);
    world_->SetNeighbour(side, true);
    world_->SetMtu(side, 1'500);
  }
  for (int port = 0; port < 3; ++port) world_->Plug(port, true);
}

}  // namespace xtreme::model
