# SPDX-License-Identifier: Apache-2.0
"""Finds the functions of a C++ file, their lengths and their nesting, without a compiler.

Braces are followed from the top. A brace where declarations stand opens a scope (namespace,
class), a function body, or an initialiser; a function has a parameter list before its brace. Inside
it, what stands under `if`, `for`, `while`, `do` or `switch` is one level deeper; plain blocks,
lambdas, `case X: {` and `else if` add none.
"""

import dataclasses
import re

from sources import LineOf, StripCpp, StripPreprocessor

_SCOPE = re.compile(r"\b(namespace|class|struct|union|enum)\b|\bextern\s*\"\"\s*$")
_CONTROL = re.compile(r"^\s*(?:\[\[\w+\]\]\s*)?(?:else\b|if\b|for\b|while\b|do\b|switch\b)")
_KEYWORD = re.compile(
    r"\s*(?:else\b\s*)?(?:if\b\s*(?:constexpr\b)?|for\b|while\b|do\b|switch\b)?\s*")
_AFTER_PARAMETERS = ("const", "noexcept", "override", "final", "mutable", "try", "requires")


@dataclasses.dataclass
class Function:
    name: str
    line: int  # Of the first line of its head.
    lines: int  # From there to the closing brace, both included.
    nesting: int


def _match(text, start):
    """Offset just past the bracket that closes the one at `start`."""
    pairs = {"(": ")", "{": "}", "[": "]"}
    closers = []
    for offset in range(start, len(text)):
        c = text[offset]
        if c in pairs:
            closers.append(pairs[c])
        elif closers and c == closers[-1]:
            closers.pop()
            if not closers:
                return offset + 1
    return len(text)


def _drop_brackets(head):
    """`head` without what stands in parentheses, keeping the parentheses."""
    kept, depth = [], 0
    for c in head:
        if c == ")":
            depth -= 1
        if depth == 0:
            kept.append(c)
        if c == "(":
            depth += 1
    return "".join(kept)


def _is_member_initialiser(bare):
    """Whether `bare` ends within the list of `Name(...) : a_{...}, b_`."""
    if not re.search(r"\)\s*(?:noexcept\s*(?:\(\))?\s*)?:(?!:)", bare):
        return False
    last = re.search(r"([A-Za-z_]\w*|>)\s*$", bare)
    return last is not None and last.group(1) not in _AFTER_PARAMETERS


def _name(bare):
    if re.match(r"\s*(TYPED_)?TEST(_F|_P)?\s*\(", bare):
        return " ".join(bare.split())
    match = re.search(r"((?:[\w~]+(?:<[^()]*>)?::)*(?:operator\s*[^\s(]+|~?\w+))\s*\(", bare)
    return match.group(1) if match else "?"


def _kind(head):
    bare = _drop_brackets(head)
    if _is_member_initialiser(bare):
        return "initialiser"
    has_parameters = "()" in bare
    if _SCOPE.search(re.sub(r"template\s*<[^{]*?>", "", bare)) and not has_parameters:
        return "scope"
    if re.search(r"\b(class|struct|union)\s+(\w+\(\)\s*|\[\[.*?\]\]\s*)*\w+[^()]*$", bare) and (
            "=" not in bare):
        return "scope"  # An attribute with arguments, such as alignas(64).
    if has_parameters and not re.search(r"=\s*$", bare):
        return "function"
    return "initialiser"


def _statement_end(text, start, end):
    """Offset past the `;` that ends the braceless statement at `start`."""
    offset = start
    while offset < end:
        if text[offset] in "({[":
            offset = _match(text, offset)
        elif text[offset] == ";":
            return offset + 1
        else:
            offset += 1
    return end


def _head_end(text, start):
    """Offset past the keyword and the parenthesis of the control statement at `start`."""
    offset = _KEYWORD.match(text, start).end()
    if text[offset:offset + 1] == "(":
        return _match(text, offset)
    return offset


def _nesting(text, start, end, depth=0):
    """Deepest level of control statements in text[start:end], which begins at `depth`."""
    deepest = depth
    offset = start
    at_statement = True
    while offset < end:
        c = text[offset]
        if at_statement and _CONTROL.match(text[offset:offset + 40]) and (
                offset == 0 or not re.match(r"\w", text[offset - 1])):
            body = _head_end(text, offset)
            # A lambda may stand in the parenthesis.
            deepest = max(deepest, _nesting(text, offset + 2, body, depth))
            while text[body:body + 1].isspace() or text.startswith("[[", body):
                body = text.index("]]", body) + 2 if text[body] == "[" else body + 1
            if text[body:body + 1] == "{":
                close = _match(text, body)
                deepest = max(deepest, _nesting(text, body + 1, close - 1, depth + 1))
                offset = close
            else:
                close = _statement_end(text, body, end)
                deepest = max(deepest, _nesting(text, body, close, depth + 1))
                offset = close
            continue
        if c in ";{}:":
            at_statement = True
        elif not c.isspace():
            at_statement = False
        offset += 1
    return deepest


def Functions(text):
    """The functions of the C++ file `text`, in order; a lambda is part of what is around it."""
    text = StripPreprocessor(StripCpp(text))
    found = []
    head = offset = 0
    while offset < len(text):
        c = text[offset]
        if c in "([":
            offset = _match(text, offset)
            continue
        if c == ";" or c == "}":
            head = offset + 1
        elif c == ":" and re.search(r"\b(public|private|protected)\s*$", text[head:offset]):
            head = offset + 1
        elif c == "{":
            kind = _kind(text[head:offset])
            if kind == "scope":
                head = offset + 1
            else:
                close = _match(text, offset)
                if kind == "function":
                    begin = head + len(text[head:offset]) - len(text[head:offset].lstrip())
                    first = LineOf(text, begin)
                    found.append(Function(_name(text[begin:offset]), first,
                                          LineOf(text, close - 1) - first + 1,
                                          _nesting(text, offset + 1, close - 1)))
                    head = close
                offset = close
                continue
        offset += 1
    return found
