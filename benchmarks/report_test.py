#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the report with few iterations: every row is there, measured, and its value can be true.

Usage: report_test.py REPORT
"""

import json
import math
import pathlib
import subprocess
import sys
import tempfile
import unittest

# Rows by name and unit, with the least and the most that any machine can show.
EXPECTED = {
    ("udp_tx_post", "instructions"): (40, 1000),
    ("udp_tx_burst", "instructions"): (20, 1000),
    ("udp_tx_dm", "instructions"): (100, 2000),
    ("udp_fire", "instructions"): (20, 500),
    ("udp_rx", "instructions"): (40, 2000),
    ("rx_burst to first", "instructions"): (40, 4000),
    ("rx_burst to last", "instructions"): (1000, 100000),
    ("idle_poll", "instructions"): (3, 200),
    ("udp_echo", "instructions"): (100, 10000),
    ("udp_tx_post", "ns"): (1, 1e5),
    ("udp_tx_dm", "ns"): (1, 1e5),
    ("udp_fire", "ns"): (1, 1e5),
    ("remote_fire", "ns, best of 5"): (20, 1e8),
    ("face_vma", "instructions over the engine, socketxtreme_poll"): (1, 1000),
    ("face_vma", "instructions over the engine, send"): (1, 1000),
    ("face_posix", "instructions over the engine, UDP"): (1, 5000),
    ("face_posix", "instructions over the engine, TCP"): (1, 5000),
    ("face_vma", "instructions over the engine, socketxtreme_poll, locked"): (1, 1000),
    ("face_vma", "instructions over the engine, send, locked"): (1, 1000),
    ("face_posix", "instructions over the engine, UDP, locked"): (1, 5000),
    ("face_posix", "instructions over the engine, TCP, locked"): (1, 5000),
    ("sockperf udp", "us"): (1, 1e6),
    ("sockperf tcp", "us"): (1, 1e6),
    ("frame_tap udp_rx", "instructions more"): (5, 100),
    ("frame_tap udp_rx_one", "instructions more"): (5, 300),
    ("frame_tap udp_tx_post", "instructions more"): (5, 100),
    ("frame_tap udp_tx_burst", "instructions more"): (5, 100),
    ("frame_tap udp_fire", "instructions more"): (5, 300),
    ("frame_tap tcp_pingpong", "instructions more"): (20, 5000),
    ("rtt_two_processes", "ns, median"): (50, 1e8),
    ("rtt_two_processes", "ns, 99.9 %"): (50, 1e10),
    ("udp_rx", "ns"): (1, 1e5),
    ("idle_poll", "ns"): (0.1, 1e4),
    ("udp_echo", "ns"): (10, 1e6),
    ("tcp_pingpong", "instructions"): (500, 20000),
    ("tcp_bulk", "instructions"): (200, 10000),
    ("tcp_send_small", "instructions"): (100, 5000),
    ("tcp_fire", "instructions"): (20, 5000),
    ("tick_to_order", "instructions"): (100, 5000),
    ("tcp_rx_one", "instructions"): (100, 5000),
    ("tcp_open_close", "instructions"): (2000, 50000),
    ("tcp_pingpong", "ns"): (10, 1e6),
    ("tcp_bulk", "ns"): (10, 1e6),
    ("growth", "instructions, 1000"): (500, 20000),
    ("growth", "ns, 1000 connections"): (10, 1e6),
    ("memory_tcp", "B a connection"): (256, 100000),
    ("rtt_two_cores", "ns, TCP, best of 5"): (50, 1e8),
    ("memory_ring", "MB"): (1, 1000),
    ("memory_udp", "B a socket, rule apart"): (64, 100000),
    ("startup", "ms, library and ring"): (0.01, 10000),
    ("control_stall", "instructions"): (100, 1e5),
    ("control_stall", "us over an idle loop"): (-1e6, 1e6),
    ("steady_state", "allocations /1e6 packets"): (0, 0),
    ("steady_state", "system calls /1e6 packets"): (0, 0),
    ("steady_state", "locked instr. /1e6 packets"): (0, 0),
    ("steady_state", "allocations /1e6 TCP packets"): (0, 0),
    ("steady_state", "system calls /1e6 TCP packets"): (0, 0),
    ("steady_state", "locked instr. /1e6 TCP packets"): (0, 0),
    ("cold_lines", "code lines, one TCP send"): (5, 1000),
    ("cold_lines", "data lines, one TCP receive"): (5, 1000),
    ("tail_instructions", "most / median, TCP send"): (1, 100),
    ("tail_instructions", "most / median, TCP receive"): (1, 100),
    ("cold_lines", "code lines, one send"): (5, 1000),
    ("cold_lines", "data lines, one receive"): (5, 1000),
    ("rtt_two_cores", "ns, best of 5"): (50, 1e8),
    ("tail_instructions", "most / median, UDP send"): (1, 100),
    ("tail_instructions", "most / median, UDP receive"): (1, 100),
}
REPORT = str(pathlib.Path(sys.argv.pop(1)).resolve())


class Report(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as scratch:
            path = pathlib.Path(scratch) / "rows.json"
            subprocess.run([REPORT, "--quick", f"--json={path}"], check=True, timeout=240)
            cls.rows = [json.loads(line) for line in path.read_text().splitlines()]

    def testEveryRowHasAValueThatCanBeTrue(self):
        found = {(row["name"], row["unit"]): row for row in self.rows}
        for key, (least, most) in EXPECTED.items():
            with self.subTest(row=key):
                self.assertIn(key, found)
                self.assertIsNotNone(found[key]["value"], found[key]["note"])
                self.assertGreaterEqual(found[key]["value"], least)
                self.assertLessEqual(found[key]["value"], most)

    def testARowWithoutAValueSaysWhy(self):
        for row in self.rows:
            if row["value"] is None:
                self.assertIn("not measured: ", row["note"])

    def testARowWithoutItsPeerSaysWhy(self):
        for row in self.rows:
            if row["peer"] and row["peer_value"] is None:
                self.assertIn("no peer: ", row["note"])

    def testVerdictsFollowFromValueAndGoal(self):
        for row in self.rows:
            if row["goal"].startswith("<= ") and not row["goal"].endswith(" x"):
                with self.subTest(row=row["name"]):
                    self.assertEqual(row["met"], row["value"] <= float(row["goal"][3:]))

    def testLibmlx5IsCountedInTheSameRun(self):
        peers = [row["peer_value"] for row in self.rows
                 if row["unit"] == "instructions" and "libmlx5" in row["peer"]]
        self.assertTrue(peers)
        for count in peers:
            self.assertTrue(math.isfinite(count) and 50 < count < 2000, count)


if __name__ == "__main__":
    unittest.main()
