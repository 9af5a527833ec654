#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the test cases of one Bazel run, from its build events.

Usage: tally.py EVENTS_JSON BAZEL_EXIT_CODE
       tally.py --failed-tests EVENTS_JSON

Prints a line for every failed or skipped case, for every target that did not build and for every
test that passed only when it ran again, then one line `PASSED FAILED SKIPPED` of three numbers;
with --failed-tests, the labels of the tests that ran and failed. A case is a <testcase> of the
test.xml that the test wrote, else the whole test. Whatever the events say, a Bazel run that failed
counts at least one failure.
"""

import dataclasses
import json
import pathlib
import sys
import urllib.parse
import xml.etree.ElementTree

BAZEL_SUCCESS = 0
BAZEL_NO_TESTS = 4


@dataclasses.dataclass
class Tally:
    """What came of the cases; `failed` and `skipped` name them, `again` tests that passed late."""

    passed: int = 0
    failed: list[str] = dataclasses.field(default_factory=list)
    skipped: list[str] = dataclasses.field(default_factory=list)
    again: list[str] = dataclasses.field(default_factory=list)


def _output(result, name):
    for output in result.get("testActionOutput", []):
        if output["name"] == name:
            return pathlib.Path(urllib.parse.unquote(urllib.parse.urlparse(output["uri"]).path))
    return None


def _cases(path):
    """The <testcase> elements of a test.xml; none when there is no such file or it is broken."""
    if path is None or not path.exists():
        return []
    try:
        return list(xml.etree.ElementTree.parse(path).getroot().iter("testcase"))
    except xml.etree.ElementTree.ParseError:
        return []


def _succeeded(result):
    return result["status"] in ("PASSED", "FLAKY")


def _count_result(label, result, tally):
    failed = []
    for case in _cases(_output(result, "test.xml")):
        name = f"{label} {case.get('classname', '')}.{case.get('name', '')}"
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(name)
        elif case.get("result") in ("skipped", "suppressed") or case.get("status") == "notrun":
            tally.skipped.append(name)
        else:
            tally.passed += 1
    # A test that crashed, or that failed outside its cases, fails as a whole.
    succeeded = _succeeded(result)
    if not succeeded and not failed:
        failed.append(f"{label} ({result['status']})")
    tally.failed += failed
    if succeeded and not _cases(_output(result, "test.xml")):
        tally.passed += 1


def Count(events, exit_code):
    """The tally of a run of Bazel that reported `events` and ended with `exit_code`."""
    tally = Tally()
    last_attempts = {}
    for event in events:
        kind = event["id"]
        if "testResult" in kind and "testResult" in event:
            # Of several attempts of one shard the last one counts.
            key = kind["testResult"]
            attempt = key["label"], key.get("shard"), key.get("run")
            result = event["testResult"]
            if _succeeded(result) and not _succeeded(last_attempts.get(attempt, result)):
                tally.again.append(key["label"])
            last_attempts[attempt] = result
        elif "targetCompleted" in kind and not event.get("completed", {}).get("success"):
            if "aborted" not in event:
                tally.failed.append(f"{kind['targetCompleted']['label']} (did not build)")
    for (label, _, _), result in last_attempts.items():
        # What did not build was counted above.
        if result["status"] != "NO_STATUS":
            _count_result(label, result, tally)
    if exit_code not in (BAZEL_SUCCESS, BAZEL_NO_TESTS) and not tally.failed:
        tally.failed.append(f"bazel ended with exit code {exit_code}")
    return tally


def FailedTests(events):
    """The labels of the tests that ran and did not pass, sorted."""
    results = [(event["id"]["testResult"]["label"], event["testResult"])
               for event in events if "testResult" in event]
    return sorted({label for label, result in results
                   if result["status"] != "NO_STATUS" and not _succeeded(result)})


def _events(path):
    lines = []
    if pathlib.Path(path).exists():
        lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
    # A Bazel that was killed leaves half a line.
    return [json.loads(line) for line in lines if line.endswith("}")]


def main():
    if sys.argv[1] == "--failed-tests":
        print("\n".join(FailedTests(_events(sys.argv[2]))))
        return
    path, exit_code = sys.argv[1:]
    tally = Count(_events(path), int(exit_code))
    for name in tally.failed:
        print(f"FAILED  {name}")
    for name in tally.skipped:
        print(f"SKIPPED {name}")
    for name in tally.again:
        print(f"AGAIN   {name} (failed, and passed when it ran again by itself)")
    print(tally.passed, len(tally.failed), len(tally.skipped))


if __name__ == "__main__":
    main()
