#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/hardware.md is what document.py makes of the reports there are."""

import glob
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__))))
import document  # pylint: disable=wrong-import-position

REPORT = {
    "format": 1, "date": "2026-01-02", "kernel": "6.1", "cpu": "a CPU", "device": "mlx5_0",
    "firmware": "22.35.1012", "software": False, "link_bits_per_second": 100 * 10**9,
    "items": [
        {"name": "blueflame", "what": "both", "verdict": "ok", "finding": "",
         "figures": {"on": {"p50_ns": 900, "p99_ns": 1000},
                     "off": {"p50_ns": 1200, "p99_ns": 1300}}},
        {"name": "fragments", "what": "long ones", "verdict": "failed", "finding": "lost",
         "figures": {"p50_ns": 5, "p99_ns": 6}},
        {"name": "rings", "what": "many", "verdict": "ok", "finding": "",
         "figures": {"rings": 32}},
        {"name": "timestamps", "what": "of frames", "verdict": "ok", "finding": "",
         "figures": {"resolution_ns": 4, "phc": {"offset_ns": 7},
                     "reading": {"p50_ns": 1, "p99_ns": 2}}},
    ],
}


class DocumentTest(unittest.TestCase):

    def test_page_in_docs_is_what_the_reports_make(self):
        reports = [json.load(open(path, encoding="utf-8"))
                   for path in sorted(glob.glob("docs/hardware/*.json"))]
        with open("docs/hardware.md", encoding="utf-8") as page:
            self.assertEqual(page.read(), document.Document(reports))

    def test_without_a_report_it_says_so(self):
        self.assertIn("No report of a real card is here yet", document.Document([]))

    def test_a_pattern_that_the_shell_found_nothing_for_is_no_report(self):
        self.assertEqual(document.Read(["no/such/folder/*.json"]), [])
        with self.assertRaises(FileNotFoundError):
            document.Read(["no/such/report.json"])

    def test_a_software_device_is_no_card(self):
        self.assertIn("No report", document.Document([dict(REPORT, software=True)]))

    def test_a_report_is_a_table(self):
        page = document.Document([REPORT])
        self.assertNotIn("No report", page)
        self.assertIn("## mlx5_0, firmware 22.35.1012, 2026-01-02\n", page)
        self.assertIn("| blueflame | both | ok | on: 900 / 1000 ns; off: 1200 / 1300 ns |\n", page)
        self.assertIn("| fragments | long ones | failed: lost | 5 / 6 ns |\n", page)
        self.assertIn("| rings | many | ok | rings: 32 |\n", page)
        self.assertIn('| timestamps | of frames | ok | resolution_ns: 4; phc: {"offset_ns": 7}; '
                      "reading: 1 / 2 ns |\n", page)


if __name__ == "__main__":
    unittest.main()
