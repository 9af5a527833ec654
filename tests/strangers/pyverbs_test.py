#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""rdma-core's own tests, unmodified from Debian's python3-pyverbs, on the software ConnectX.

Those that concern Ethernet queues and what stands around them. A case that does not pass has to
stand in NOT_OURS with the reason, else it is a failure: so is one that begins to be skipped.
"""

import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from xml.sax.saxutils import quoteattr

DEBIAN = pathlib.Path("/usr/share/doc/rdma-core/tests")
LAUNCH = "tools/connectx/preload/launch"
INSIDE = "tests/strangers/pyverbs_inside.py"
TIMEOUT_S = 120

MODULES = ("test_addr", "test_cq", "test_cq_events", "test_cqex", "test_device", "test_flow",
           "test_fork", "test_mlx5_cq", "test_mlx5_dm_ops", "test_mlx5_flow", "test_mlx5_pp",
           "test_mlx5_raw_wqe", "test_mlx5_timestamp", "test_mlx5_uar", "test_mr", "test_pd",
           "test_qp", "test_qpex", "test_relaxed_ordering", "test_rss_traffic")

RDMA = "a queue pair for RDMA (RC, UC, UD, XRC, DC): the device has Ethernet queues only"
MACHINE = "this machine lacks what it needs"

# (case, what it said, why it is not ours). All are searched for.
NOT_OURS = (
    (r"", r"Create QP type [234] is not supported", RDMA),
    (r"", r"Create (XRCD|AH) is not supported", RDMA),
    (r"", r"Create (RC|UC|UD) QP .* is not supported", RDMA),
    (r"^test_mlx5_cq\..*scatter_to_cqe", r"SRQ|Errno: 95", RDMA),
    (r"^test_mlx5_raw_wqe\.", r"Create Mlx5DV QP is not supported", RDMA),
    (r"^test_qpex\.", r"is not supported", RDMA),
    (r"^test_mr\.MWTest", r"memory window", RDMA),
    (r"", r"Allocating dmabuf is not supported|cuda-python", MACHINE),
    (r"", r"huge pages", MACHINE),
    (r"^test_mlx5_flow\.", r"Matcher creation|DevX general command|flow table does not support",
     "rules through DevX: not offered"),
    (r"^test_mlx5_dm_ops\.", r"DevX general command",
     "atomic operations on device memory are asked for through DevX: not offered"),
    (r"^test_mlx5_cq\.", r"CQE (128B )?(compression|padding)|CQE 128B",
     "compressed or padded CQEs: not offered"),
    (r"^test_device\..*gid_ex", r"All gid indices populated", "the GID table has no empty entry"),
    (r"^test_device\.SharedDMTest", r"Failed to import device",
     "a context imported from a duplicated descriptor: out of the hooks' reach"),
    (r"^test_addr\.", r"not supported|Failed to create AH. Errno: 121", RDMA),
)


def reason(case, text):
    """Why a case that did not pass is not ours; None: it is."""
    for case_pattern, text_pattern, why in NOT_OURS:
        if re.search(case_pattern, case) and re.search(text_pattern, text):
            return why
    return None


def unpack(directory):
    """Debian ships the tests as documentation, the longer ones compressed."""
    package = directory / "tests"
    package.mkdir()
    for source in DEBIAN.iterdir():
        target = package / source.name.removesuffix(".gz")
        if source.suffix == ".gz":
            target.write_bytes(gzip.decompress(source.read_bytes()))
        else:
            shutil.copy(source, target)


def run_module(directory, module, personality):
    """Outcomes by case of one module, in a process of its own: one that dies takes no other."""
    outcomes = directory / f"{module}.{personality}.json"
    outcomes.touch()
    command = [LAUNCH, f"--personality={personality}", "--", "/usr/bin/python3", "-B", INSIDE,
               str(directory), str(outcomes), module]
    process = subprocess.run(command, timeout=TIMEOUT_S, capture_output=True, text=True,
                             check=False)
    cases = {}
    for line in outcomes.read_text().splitlines():
        event = json.loads(line)
        cases[event["case"]] = (event["outcome"], event["text"])
    if process.returncode != 0 or not cases:
        cases[module] = ("failed", f"exit code {process.returncode}: {process.stderr[-500:]}")
    return cases


class PyverbsTest(unittest.TestCase):
    """Runs all modules once."""

    @classmethod
    def setUpClass(cls):
        cls.cases = {}
        with tempfile.TemporaryDirectory() as name:
            directory = pathlib.Path(name)
            unpack(directory)
            for module in MODULES:
                cls.cases.update(run_module(directory, module, "cx7"))
        cls.skipped = {}
        cls.failed = {}
        for case, (outcome, text) in cls.cases.items():
            if outcome == "passed":
                continue
            why = reason(case, text) if outcome in ("skipped", "failed") else None
            (cls.failed if why is None else cls.skipped)[case] = why or f"{outcome}: {text}"
        cls._report()

    @classmethod
    def _report(cls):
        for what, cases in (("SKIPPED", cls.skipped), ("FAILED", cls.failed)):
            for case, why in sorted(cases.items()):
                print(f"{what} {case}: {why}")
        passed = len(cls.cases) - len(cls.skipped) - len(cls.failed)
        print(f"{passed} passed, {len(cls.failed)} failed, {len(cls.skipped)} skipped")
        if "XML_OUTPUT_FILE" not in os.environ:
            return
        with open(os.environ["XML_OUTPUT_FILE"], "w", encoding="utf-8") as xml:
            xml.write('<?xml version="1.0" encoding="UTF-8"?>\n')
            xml.write('<testsuites><testsuite name="pyverbs">\n')
            for case in sorted(cls.cases):
                xml.write(f"<testcase name={quoteattr(case)}>")
                if case in cls.failed:
                    xml.write(f"<failure message={quoteattr(cls.failed[case])}/>")
                if case in cls.skipped:
                    xml.write(f"<skipped message={quoteattr(cls.skipped[case])}/>")
                xml.write("</testcase>\n")
            xml.write("</testsuite></testsuites>\n")

    def test_every_case_passes_or_is_not_ours_for_a_known_reason(self):
        self.assertEqual(self.failed, {})

    def test_what_concerns_ethernet_queues_passes(self):
        for case in ("test_flow.FlowTest.test_udp_spec_flow_traffic",
                     "test_flow.FlowTest.test_ipv4_spec_flow_traffic",
                     "test_mr.DeviceMemoryAPITest.test_create_dm_mr",
                     "test_mlx5_pp.Mlx5PPTestCase.test_pp_alloc",
                     "test_mlx5_uar.Mlx5UarTestCase.test_alloc_uar",
                     "test_mlx5_timestamp.TimeStampTest."
                     "test_timestamp_free_running_send_raw_traffic",
                     "test_mlx5_timestamp.TimeStampTest.test_timestamp_real_time_raw_traffic",
                     "test_rss_traffic.RSSTrafficTest.test_rss_traffic"):
            self.assertEqual(self.cases.get(case, ("absent", ""))[0], "passed", case)

    def test_a_reason_covers_its_own_case_only(self):
        text = "Flow creation is not supported"
        self.assertIsNotNone(reason("test_mlx5_flow.Mlx5MatcherTest.test_x", "Matcher creation"))
        self.assertIsNone(reason("test_flow.FlowTest.test_udp_spec_flow_traffic", text))
        self.assertIsNone(reason("test_mr.DeviceMemoryAPITest.test_create_dm_mr",
                                 "Device memory is not supported"))


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False).result.wasSuccessful() else 1)
