// SPDX-License-Identifier: Apache-2.0
//
// The peer of echo_client.h's programs: it echoes at TCP port 8000 and UDP port 9000, and at TCP
// port 8001 reads nothing. It says "ready" when it listens.

#ifndef XTREME_TESTS_FACES_ECHO_PEER_H_
#define XTREME_TESTS_FACES_ECHO_PEER_H_

#include <cstdlib>
#include <fstream>
#include <string>

namespace xtreme::faces {

// The command that runs it on `address`.
inline std::string EchoPeer(const std::string& address) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/peer.py";
  std::ofstream(path) << R"(
import socket, sys, threading
def echo(c):
    try:
        while part := c.recv(65536): c.sendall(part)
    except OSError: pass
def serve(s, does):
    while True: does(s.accept()[0])
kept = []
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind((sys.argv[1], 9000))
echoes = socket.create_server((sys.argv[1], 8000))
deaf = socket.create_server((sys.argv[1], 8001))
for s, does in ((deaf, kept.append),
                (echoes, lambda c: threading.Thread(target=echo, args=(c,)).start())):
    threading.Thread(target=serve, args=(s, does)).start()
print('ready', flush=True)
while True: u.sendto(*u.recvfrom(65536))
)";
  return "/usr/bin/python3 " + path + " " + address;
}

}  // namespace xtreme::faces

#endif  // XTREME_TESTS_FACES_ECHO_PEER_H_
