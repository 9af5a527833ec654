# SPDX-License-Identifier: Apache-2.0
"""Limits of size: lines of a file, lines and nesting of a function, columns, headers reached."""

import functools
import posixpath

import functions
import sources

FILE_LINES = 600
TEST_FILE_LINES = 800
FUNCTION_LINES = 60
NESTING = 3
COLUMNS = 100
REACHABLE_HEADERS = 20


def FileLengths(root):
    """Files longer than their limit."""
    findings = []
    for path in sources.CppFiles(root):
        lines = sources.Read(root, path).count("\n")
        limit = TEST_FILE_LINES if sources.IsTest(path) else FILE_LINES
        if lines > limit:
            findings.append(f"{path}: {lines} lines, the limit is {limit}")
    return findings


def Columns(root):
    """Lines of C++, Bazel and Python wider than 100 columns, whatever cannot be broken excepted."""
    findings = []
    for path in sources.Files(root, sources.CPP + (".py", ".bzl")):
        for number, line in enumerate(sources.Read(root, path).split("\n"), 1):
            cannot_break = line.startswith(("#include", "#ifndef", "#define", "#endif"))
            if len(line) > COLUMNS and not cannot_break and "://" not in line:
                findings.append(f"{path}:{number}: {len(line)} columns, the limit is {COLUMNS}")
    return findings


def FunctionLengths(root):
    """Functions longer than the limit."""
    return [f"{path}:{f.line}: {f.name} has {f.lines} lines, the limit is {FUNCTION_LINES}"
            for path in sources.CppFiles(root)
            for f in functions.Functions(sources.Read(root, path)) if f.lines > FUNCTION_LINES]


def Nesting(root):
    """Functions whose control statements nest too deep."""
    return [f"{path}:{f.line}: {f.name} nests {f.nesting} deep, the limit is {NESTING}"
            for path in sources.CppFiles(root)
            for f in functions.Functions(sources.Read(root, path)) if f.nesting > NESTING]


def FanOut(root):
    """Headers from which more than 20 other headers of the project are reachable."""
    files = set(sources.CppFiles(root))

    @functools.cache
    def direct(path):
        beside = posixpath.dirname(path)
        named = [name for _, name in sources.Includes(sources.Read(root, path))]
        return {p for name in named for p in (name, posixpath.join(beside, name)) if p in files}

    findings = []
    for header in sorted(path for path in files if path.endswith((".h", ".hpp"))):
        reached, waiting = set(), [header]
        while waiting:
            new = direct(waiting.pop()) - reached
            reached |= new
            waiting += new
        count = len(reached - {header})
        if count > REACHABLE_HEADERS:
            findings.append(f"{header}: reaches {count} headers of the project, "
                            f"the limit is {REACHABLE_HEADERS}")
    return findings
