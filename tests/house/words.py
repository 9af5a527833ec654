# SPDX-License-Identifier: Apache-2.0
"""Words that say that something is unfinished."""

import re

import sources

_UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
_NOT_RUN = re.compile(r"\bDISABLED_\w+|\bGTEST_SKIP\b")


def _find(root, pattern, what, paths):
    findings = []
    for path in paths:
        # These files have to name what they look for.
        if path.startswith("tests/house/") or path.startswith("tests/suite/"):
            continue
        for number, line in enumerate(sources.Read(root, path).split("\n"), 1):
            for match in pattern.finditer(line):
                findings.append(f"{path}:{number}: {what}: {match.group()}")
    return findings


def Unfinished(root):
    """Notes of work left over, in any text of the project."""
    return _find(root, _UNFINISHED, "unfinished", sources.Files(root, sources.TEXT))


def NotRun(root):
    """Tests that are disabled or skip themselves."""
    return _find(root, _NOT_RUN, "a test that may not run", sources.CppFiles(root))


def Directives(root):
    """goto and using-directives."""
    findings = []
    for path in sources.CppFiles(root):
        text = sources.StripCpp(sources.Read(root, path))
        for match in re.finditer(r"\busing\s+namespace\b|\bgoto\b", text):
            line = sources.LineOf(text, match.start())
            findings.append(f"{path}:{line}: {' '.join(match.group().split())}")
    return findings
