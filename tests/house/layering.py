# SPDX-License-Identifier: Apache-2.0
"""The arrows between folders, and what may not be used in which folder."""

import fnmatch
import pathlib
import re

import sources

# What each package may include, itself aside. A package is the longest prefix that stands here.
# Tests, benchmarks and tools may open any room.
_STACK = {
    "stack/base": (),
    "stack/packet": ("stack/base",),
    "stack/wire": ("stack/base",),
    "stack/ip": ("stack/base", "stack/packet", "stack/wire"),
    "stack/udp": ("stack/base", "stack/packet", "stack/wire", "stack/ip"),
    "stack/tcp": ("stack/base", "stack/packet", "stack/wire", "stack/ip"),
}
_XTREME = {
    "xtreme/completion": ("stack",),
    "xtreme/nic": ("stack",),
    "xtreme/host": ("stack",),
    "xtreme/stats": ("stack",),
    "xtreme/mlx5": ("stack", "xtreme/completion", "xtreme/nic", "xtreme/host", "xtreme/stats"),
    # The engine is handed a Nic; which driver it is, the api decides.
    "xtreme/engine": ("stack", "xtreme/completion", "xtreme/nic", "xtreme/host", "xtreme/stats"),
}
ALLOWED = {
    **_STACK,
    **_XTREME,
    "api": ("stack", "xtreme"),
    "samples": ("api",),
    "benchmarks": None,
    "tests": None,
    "tools": None,
}


def _within(path, package):
    return path == package or path.startswith(package + "/")


def _package(path):
    return max((p for p in ALLOWED if _within(path, p)), key=len, default=None)


def _tests_beside(package):
    """What tests that stand beside the code may open besides."""
    if package.startswith("stack/"):
        return ("tests",)
    return ("tests", "stack", "xtreme")


def Arrows(root):
    """Includes that go up, sideways, or into a room that is not theirs to open."""
    findings = []
    for path in sources.CppFiles(root):
        package = _package(path)
        if package is None:
            findings.append(f"{path}: belongs to no package known to tests/house/layering.py")
            continue
        allowed = ALLOWED[package]
        if sources.IsTest(path) and allowed is not None:
            allowed += _tests_beside(package)
        for line, included in sources.Includes(sources.Read(root, path)):
            ours = included.split("/")[0] in sources.ROOMS and "/" in included
            if not ours or allowed is None or _within(included, package):
                continue
            if not any(_within(included, p) for p in allowed):
                findings.append(f"{path}:{line}: {package} may not include {included}")
    return findings


def Environment(root):
    """Reads of the environment in stack/ and xtreme/."""
    findings = []
    for path in sources.CppFiles(root):
        if not path.startswith(("stack/", "xtreme/")) or sources.IsTest(path):
            continue
        text = sources.StripCpp(sources.Read(root, path))
        for match in re.finditer(r"\b(secure_)?getenv\b|\benviron\b", text):
            findings.append(f"{path}:{sources.LineOf(text, match.start())}: reads the environment")
    return findings


def PublicHeaders(root):
    """Public headers that include abseil, or a header of ours that is not public."""
    findings = []
    for path in sources.CppFiles(root):
        parts = path.split("/")
        public = parts[0] == "api" and len(parts) == 2 and path.endswith((".h", ".hpp"))
        if not public:
            continue
        text = sources.Read(root, path)
        for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^">]+)', text, re.MULTILINE):
            if re.match(r"absl/|stack/|xtreme/", match.group(1)):
                line = sources.LineOf(text, match.start())
                findings.append(f"{path}:{line}: a public header includes {match.group(1)}")
    return findings


def Guards(path):
    """What the include guard of a header may be: the project's name, then the path from the root.

    For a path that begins with xtreme/ the name may stand once.
    """
    name = re.sub(r"\W", "_", path).upper() + "_"
    return ("XTREME_" + name,) + ((name,) if name.startswith("XTREME_") else ())


# What stands in the root of the project; everything else belongs into a room.
_ROOT = {
    ".bazelignore", ".bazelrc", ".ci", ".clang-format", ".clang-tidy", ".git", ".gitignore",
    "BUILD.bazel", "LICENSE", "README.md", "WORKSPACE", "api", "benchmarks", "docs", "samples",
    "stack", "tests", "tools", "xtreme",
}


def Strays(root):
    """Entries of the root that are neither the project's nor ignored there by .gitignore."""
    ignored = pathlib.Path(root, ".gitignore")
    patterns = ignored.read_text(encoding="utf-8").split() if ignored.exists() else []
    patterns = [pattern.lstrip("/") for pattern in patterns]
    return [f"{name}: does not belong into the root"
            for name in sorted(entry.name for entry in pathlib.Path(root).iterdir())
            if name not in _ROOT
            and not any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]


def Heads(root):
    """C++ files without the licence line, and headers whose guard is not their path's."""
    findings = []
    for path in sources.CppFiles(root):
        text = sources.Read(root, path)
        if not re.match(r"(//|/\*) SPDX-License-Identifier: Apache-2.0( \*/)?\n", text):
            findings.append(f"{path}: the first line is not the SPDX line")
        if not path.endswith((".h", ".hpp")):
            continue
        guard = re.search(r"^#ifndef (\w+)\n#define (\w+)\n", text, re.MULTILINE)
        if guard is None or guard.group(1) != guard.group(2) or guard.group(1) not in Guards(path):
            findings.append(f"{path}: the include guard is not {Guards(path)[0]}")
    return findings
