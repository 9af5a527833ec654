#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The count never hides a failure."""

import os
import pathlib
import tempfile
import unittest

import tally

_CASES = """<testsuites><testsuite name="S">
  <testcase name="A" classname="S" status="run" result="completed"/>
  <testcase name="B" classname="S" status="run" result="completed"/>
  {more}
</testsuite></testsuites>"""


class CountTest(unittest.TestCase):

    def setUp(self):
        self._directory = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(self._directory.cleanup)

    def _result(self, status, more=None, label="//a:t", attempt=1):
        outputs = []
        if more is not None:
            path = pathlib.Path(self._directory.name) / f"test {label[2:].replace('/', '_')}.xml"
            path.write_text(more if more.startswith("!") else _CASES.format(more=more))
            outputs = [{"name": "test.log", "uri": "file:///none"},
                       {"name": "test.xml", "uri": path.as_uri()}]
        return {"id": {"testResult": {"label": label, "run": 1, "attempt": attempt}},
                "testResult": {"status": status, "testActionOutput": outputs}}

    def test_cases_are_counted_rather_than_tests(self):
        count = tally.Count([self._result("PASSED", more="")], 0)
        self.assertEqual((count.passed, count.failed, count.skipped), (2, [], []))

    def test_failed_case_is_named(self):
        more = '<testcase name="C" classname="S"><failure message="m"/></testcase>'
        count = tally.Count([self._result("FAILED", more=more)], 3)
        self.assertEqual((count.passed, count.failed), (2, ["//a:t S.C"]))

    def test_test_that_failed_outside_its_cases_counts_as_one_failure(self):
        count = tally.Count([self._result("FAILED", more="")], 3)
        self.assertEqual((count.passed, count.failed), (2, ["//a:t (FAILED)"]))

    def test_timeout_without_cases_counts_as_one_failure(self):
        self.assertEqual(tally.Count([self._result("TIMEOUT")], 3).failed, ["//a:t (TIMEOUT)"])

    def test_test_without_readable_cases_counts_as_one(self):
        self.assertEqual(tally.Count([self._result("PASSED")], 0).passed, 1)
        self.assertEqual(tally.Count([self._result("PASSED", more="!")], 0).passed, 1)

    def test_skipped_and_disabled_cases_are_not_passes(self):
        more = ('<testcase name="C" classname="S" status="run" result="skipped"/>'
                '<testcase name="DISABLED_D" classname="S" status="notrun" result="suppressed"/>')
        count = tally.Count([self._result("PASSED", more=more)], 0)
        self.assertEqual((count.passed, count.skipped), (2, ["//a:t S.C", "//a:t S.DISABLED_D"]))

    def test_target_that_did_not_build_is_a_failure(self):
        events = [{"id": {"targetCompleted": {"label": "//a:t"}}, "completed": {}},
                  self._result("NO_STATUS")]
        self.assertEqual(tally.Count(events, 1).failed, ["//a:t (did not build)"])

    def test_failed_run_without_events_is_a_failure(self):
        self.assertEqual(tally.Count([], 37).failed, ["bazel ended with exit code 37"])

    def test_run_that_matches_no_test_is_none(self):
        self.assertEqual(tally.Count([], 4), tally.Tally())

    def test_only_the_last_attempt_of_a_test_counts(self):
        more = '<testcase name="C" classname="S"><failure message="m"/></testcase>'
        events = [self._result("FAILED", more=more), self._result("PASSED", more="", attempt=2)]
        count = tally.Count(events, 0)
        self.assertEqual((count.passed, count.failed), (2, []))

    def test_one_that_passed_only_again_is_named(self):
        events = [self._result("FAILED", more=""), self._result("PASSED", more="", label="//a:u"),
                  self._result("PASSED", more="")]
        self.assertEqual(tally.Count(events, 0).again, ["//a:t"])

    def test_one_that_failed_again_is_a_failure(self):
        events = [self._result("TIMEOUT"), self._result("FAILED", more="")]
        count = tally.Count(events, 3)
        self.assertEqual((count.failed, count.again), (["//a:t (FAILED)"], []))

    def test_tests_to_run_again_are_those_that_ran_and_failed(self):
        events = [self._result("TIMEOUT", label="//a:u"), self._result("PASSED", label="//a:v"),
                  self._result("NO_STATUS", label="//a:w"), self._result("FAILED"),
                  {"id": {"targetCompleted": {"label": "//a:x"}}, "completed": {}}]
        self.assertEqual(tally.FailedTests(events), ["//a:t", "//a:u"])


if __name__ == "__main__":
    unittest.main()
