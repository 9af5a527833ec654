#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs modules of rdma-core's own tests and writes what came of each case.

Usage: pyverbs_inside.py DIRECTORY OUTCOMES MODULE...

DIRECTORY holds the package `tests`. OUTCOMES gets one JSON object a line: {"case", "outcome",
"text"}; a case that has begun and has no outcome took the process with it.
"""

import json
import sys
import unittest


class Outcomes(unittest.TestResult):
    """Writes each event when it happens."""

    def __init__(self, path):
        super().__init__()
        self._file = open(path, "a", encoding="utf-8")

    def _write(self, test, outcome, text=""):
        line = {"case": test.id().removeprefix("tests."), "outcome": outcome, "text": text}
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def startTest(self, test):
        super().startTest(test)
        self._write(test, "begun")

    def addSuccess(self, test):
        self._write(test, "passed")

    def addSkip(self, test, reason):
        self._write(test, "skipped", reason)

    def addError(self, test, err):
        self._write(test, "failed", f"{err[0].__name__}: {err[1]}")

    def addFailure(self, test, err):
        self.addError(test, err)


def main():
    directory, outcomes, *modules = sys.argv[1:]
    sys.argv[1:] = []  # The tests read options of their own.
    sys.path[:0] = [directory, directory + "/tests"]
    from args_parser import parser
    parser.parse_args()
    suite = unittest.defaultTestLoader.loadTestsFromNames([f"tests.{name}" for name in modules])
    suite.run(Outcomes(outcomes))


if __name__ == "__main__":
    main()
