# SPDX-License-Identifier: Apache-2.0
"""Code in documents, which no compiler sees there."""

import re

import sources

_SNIPPET = re.compile(r"^```c\+\+\n(.*?)^```", re.DOTALL | re.MULTILINE)
# Between what is shown and what is left out.
_LEFT_OUT = re.compile(r"^ *// \.\.\..*\n", re.MULTILINE)


def _flat(text):
    return "\n".join(line.strip() for line in text.strip().split("\n"))


def Snippets(root):
    """C++ of a document that stands so, but for indentation, in no source."""
    code = [_flat(sources.Read(root, path)) for path in sources.CppFiles(root)]
    findings = []
    for path in sources.Files(root, (".md",)):
        text = sources.Read(root, path)
        for snippet in _SNIPPET.finditer(text):
            pieces = [_flat(piece) for piece in _LEFT_OUT.split(snippet.group(1))]
            if not all(any(piece in source for source in code) for piece in pieces):
                line = sources.LineOf(text, snippet.start())
                findings.append(f"{path}:{line}: this code stands in no source")
    return findings
