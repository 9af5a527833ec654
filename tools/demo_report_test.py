#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The report never calls a run complete that is not."""

import contextlib
import io
import json
import os
import pathlib
import tempfile
import unittest

import demo_report

_TRACE = """execve("feed_handler", [], 0x0) = 0
write(1, "ready\\n", 6) = 6
epoll_wait(3, [], 3, 100) = 1
recvmmsg(4, [], 32, MSG_DONTWAIT, NULL) = 2
--- SIGALRM {si_signo=SIGALRM} ---
epoll_wait(3, [], 3, 100) = 0
write(1, "feed_handler: 2 messages", 24) = 24
exit_group(0) = ?
"""
_TIMES = {"count": 2, "p50": 1000, "p99": 2000, "p999": 3000}
_FIGURES = {"messages": 100, "missing": 0, "lost": [8, 8], "recovered_by_line": 12,
            "recovered_by_request": 2, "receiving_allocations": 0, "handling_allocations": 50,
            "received_copied_bytes": 0, "held_copied_bytes": 0, "datagrams": 25, "ended": "done",
            "from_publisher_ns": _TIMES, "from_device_ns": _TIMES}


class CountsTest(unittest.TestCase):

    def test_system_calls_are_those_between_ready_and_the_summary(self):
        self.assertEqual(demo_report.count_system_calls(_TRACE), {"epoll_wait": 2, "recvmmsg": 1})

    def test_instructions_are_the_total_of_a_profile(self):
        self.assertEqual(demo_report.count_instructions("events: Ir\nsummary: 4200\n"), 4200)
        self.assertIsNone(demo_report.count_instructions(""))

    def test_instructions_in_a_function_are_those_of_the_calls_of_it(self):
        profile = ("fn=(1) ReceiveOnce\n12 7\ncfn=(2) HandleDatagram(int)\ncalls=2 20\n12 300\n"
                   "cfn=(3) other\ncalls=1 30\n13 50\nfn=(2)\n20 10\ncfn=(3)\ncalls=1 30\n21 290\n"
                   "fn=(4) Answers\n14 1\ncfn=(2)\ncalls=1 20\n15 100\n")
        self.assertEqual(demo_report.count_instructions_in(profile, "HandleDatagram"), 400)
        self.assertEqual(demo_report.count_instructions_in(profile, "Absent"), 0)

    def test_drops_of_all_wires_are_added(self):
        counters = "mlx5_0 rx_frames 9\nmlx5_0 rx_dropped_ring 2\nmlx5_1 rx_dropped_ring 3\n"
        self.assertEqual(demo_report.wire_drops(counters), {"rx_dropped_ring": 5})


class ReportTest(unittest.TestCase):

    def setUp(self):
        self._directory = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(self._directory.cleanup)
        for name in demo_report.RUNS:
            self._write(name + ".json", json.dumps(_FIGURES))
            self._write(name + ".published", "published=100 datagrams=13\n")
        self._write("ring.wire", "mlx5_0 rx_dropped_ring 0\n")
        self._write("conditions", "3 processors, XTREME_WAIT=hybrid\n")

    def _write(self, name, text):
        (pathlib.Path(self._directory.name) / name).write_text(text)

    def _report(self):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            code = demo_report.main(self._directory.name)
        return code, output.getvalue()

    def test_complete_run_ends_with_its_line(self):
        code, text = self._report()
        self.assertEqual(code, 0)
        self.assertEqual(text.split("\n")[-2], "demo: published=100 delivered=100"
                         " recovered_by_line=12 recovered_by_request=2 missing=0")
        self.assertIn("not those of a card", text)
        self.assertIn("3 processors, XTREME_WAIT=hybrid. Below 4", text)

    def test_figures_are_per_message(self):
        self._write("kernel-trace.calls", _TRACE)
        self._write("kernel-trace.json", json.dumps({"messages": 10}))
        self._write("ring-spin.calls", _TRACE)
        self._write("ring-spin.json", json.dumps({"messages": 10}))
        self._write("ring-profile.profile",
                    "cfn=(1) HandleDatagram\ncalls=1 20\n12 3000\ntotals: 4200\n")
        self._write("ring-profile.json", json.dumps({"messages": 10}))
        text = self._report()[1]
        self.assertIn("0.300 (epoll_wait, recvmmsg)", text)
        self.assertRegex(text, r"by a ring that spins \[3\] +0.300")
        self.assertRegex(text, r"receiving \[6\] +120 +not measured")
        self.assertRegex(text, r"books \[6\] +300 +not measured")
        self.assertIn("0.500", text)

    def test_profile_that_could_not_be_made_says_why(self):
        self._write("ring-profile.errors", "==1== Callgrind\nno device under valgrind\n")
        self.assertIn("no instructions counted: no device under valgrind", self._report()[1])

    def test_what_was_published_and_not_delivered_is_missing(self):
        self._write("ring.published", "published=103\n")
        code, text = self._report()
        self.assertEqual(code, 1)
        self.assertTrue(text.endswith(" missing=3\n"))

    def test_frame_dropped_by_the_wire_fails_the_run(self):
        self._write("ring.wire", "mlx5_0 rx_dropped_ring 1\n")
        code, text = self._report()
        self.assertEqual(code, 1)
        self.assertIn("rx_dropped_ring 1", text)

    def test_handler_that_left_nothing_fails_the_run(self):
        self._write("ring.json", "")
        code, text = self._report()
        self.assertEqual(code, 1)
        self.assertTrue(text.endswith(" missing=100\n"))

    def test_wire_without_counters_fails_the_run(self):
        self._write("ring.wire", "")
        self.assertEqual(self._report()[0], 1)

    def test_capture_is_held_to_its_datagrams(self):
        self._write("capture.count", "25\n")
        code, text = self._report()
        self.assertEqual(code, 0)
        self.assertIn("demo: published=25 delivered=25 ", text)


if __name__ == "__main__":
    unittest.main()
