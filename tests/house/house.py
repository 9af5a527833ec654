#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the project against the rules of its house, and prints what breaks them.

Usage: house.py [ROOT]

A finding may be excused in tests/house/exemptions.txt, by a line `CHECK PATH REASON...`. An excuse
that excuses nothing is a finding too.
"""

import pathlib
import sys

import documents
import layering
import sizes
import words

CHECKS = {check.__name__: check for check in (
    sizes.FileLengths, sizes.Columns, sizes.FunctionLengths, sizes.Nesting, sizes.FanOut,
    layering.Arrows, layering.Environment, layering.PublicHeaders, layering.Heads,
    layering.Strays,
    words.Unfinished, words.NotRun, words.Directives, documents.Snippets)}
EXEMPTIONS = "tests/house/exemptions.txt"


def _exemptions(root):
    path = pathlib.Path(root) / EXEMPTIONS
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [line.split(maxsplit=2) for line in lines if line and not line.startswith("#")]


def Check(root):
    """All findings, as `CHECK PATH...` lines."""
    findings, used = [], set()
    excused = {}
    for words_of_line in _exemptions(root):
        if len(words_of_line) != 3 or words_of_line[0] not in CHECKS:
            findings.append(f"Exemptions {EXEMPTIONS}: not `CHECK PATH REASON`: "
                            f"{' '.join(words_of_line)}")
        else:
            excused[tuple(words_of_line[:2])] = words_of_line[2]
    for name, check in CHECKS.items():
        for finding in check(root):
            key = (name, finding.split(":")[0])
            if key in excused:
                used.add(key)
            else:
                findings.append(f"{name} {finding}")
    findings += [f"Exemptions {EXEMPTIONS}: excuses nothing: {' '.join(key)}"
                 for key in excused if key not in used]
    return findings


def main():
    # In a Bazel test this file is a link into the real workspace.
    here = pathlib.Path(__file__).resolve()
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here.parents[2]
    findings = Check(root)
    for finding in findings:
        print(finding)
    print(f"{len(findings)} findings in {len(sizes.sources.CppFiles(root))} files")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
