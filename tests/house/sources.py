# SPDX-License-Identifier: Apache-2.0
"""The project's files, and C++ text without its comments and literals.

Paths are relative to the root, with forward slashes. A finding is one line of text that begins with
`PATH:` or `PATH:LINE:`.
"""

import pathlib
import re

# Directories of the project with C++ in them; what lies elsewhere is not ours.
ROOMS = ("api", "benchmarks", "samples", "stack", "tests", "tools", "xtreme")
CPP = (".h", ".hpp", ".cc")
TEXT = CPP + (".bazel", ".bzl", ".md", ".py", ".sh", ".ld", ".txt", ".system", ".root", "")

_TOKEN = re.compile(
    r'(?P<comment>//[^\n]*|/\*.*?\*/)'
    r'|(?P<raw>(?:u8|[uUL])?R"(?P<fence>[^\s()\\]{0,16})\(.*?\)(?P=fence)")'
    r'|(?P<string>"(?:\\.|[^"\\\n])*")'
    # Not the separators of 1'000'000: those follow a digit or letter.
    r"|(?P<char>(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])+')",
    re.DOTALL)


def Read(root, path):
    return (pathlib.Path(root) / path).read_text(encoding="utf-8", errors="replace")


def Files(root, suffixes=CPP):
    """Paths of all files below `root` that end in one of `suffixes`, sorted; no links followed."""
    found = []
    directories = [pathlib.Path(root)]
    while directories:
        for entry in directories.pop().iterdir():
            if entry.is_symlink() or entry.name in (".git", "__pycache__"):
                continue
            if entry.is_dir():
                directories.append(entry)
            elif entry.suffix in suffixes:
                found.append(entry.relative_to(root).as_posix())
    return sorted(found)


def CppFiles(root):
    return [path for path in Files(root)
            if path.split("/")[0] in ROOMS and not path.endswith("/BUILD.cc")]


def IsTest(path):
    name = re.search(r"_(test|fuzz|testing)\.(h|cc)$", path)
    return path.startswith("tests/") or name is not None


def LineOf(text, offset):
    return text.count("\n", 0, offset) + 1


def StripCpp(text):
    """`text` with comments and the insides of literals blanked; every line stays where it was."""

    def blank(match):
        kept = '""' if match.lastgroup != "comment" else ""
        lines = match.group().count("\n")
        return kept + "\n" * lines

    return _TOKEN.sub(blank, text)


def StripPreprocessor(text):
    """`text` with directives blanked, continued lines included."""
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: "\n" * m.group().count("\n"), text,
                  flags=re.MULTILINE)


def Includes(text):
    """[(line, path)] of the #include "path" directives."""
    return [(LineOf(text, m.start()), m.group(1))
            for m in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', text, re.MULTILINE)]
