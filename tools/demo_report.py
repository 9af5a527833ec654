# SPDX-License-Identifier: Apache-2.0
"""The table at the end of tools/demo: the ring beside the kernel, and whether anything is missing.

usage: demo_report.py FOLDER, in which tools/demo left of its runs (ring, ring-spin, ring-trace,
ring-profile; kernel, ...) NAME.json, NAME.published, NAME.calls or NAME.profile; conditions and
ring.wire. Exits with 1 if anything is missing.
"""

import json
import os
import re
import sys

RUNS = ("ring", "kernel")
TITLES = {"ring": "ring, software ConnectX", "kernel": "kernel sockets, epoll"}
WAITS = ("Below 4 processors the ring spins 50 us, then sleeps (hybrid): one that spins on"
         "\ntakes its own device's processor and shows the scheduler's time slices. XTREME_WAIT"
         " chooses.")
TIMES = ("The times are those of a software device that shares this machine's processors with the"
         " programs,\nnot those of a card: compare what is done per message, not microseconds.")


def _read(folder, name):
    try:
        with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def _json(folder, name):
    text = _read(folder, name)
    return json.loads(text) if text else {}


def count_system_calls(trace):
    """System calls by name between the line "ready" and the summary in an strace of one thread."""
    calls = {}
    counting = False
    for line in trace.split("\n"):
        if line.startswith('write(1, "ready'):
            counting = True
        elif line.startswith('write(1, "feed_handler'):
            break
        elif counting and (name := re.match(r"([a-z_0-9]+)\(", line)):
            calls[name.group(1)] = calls.get(name.group(1), 0) + 1
    return calls


def count_instructions(profile):
    """The total of a callgrind profile; None when there is none."""
    total = re.search(r"^(?:totals|summary): (\d+)", profile, re.MULTILINE)
    return int(total.group(1)) if total else None


def count_instructions_in(profile, function):
    """Of them, those in calls of functions whose names contain `function`, and what these call.

    A call is a line "cfn=(NUMBER) NAME" (the name at a number's first use only), a line "calls=",
    and a line "POSITION COST".
    """
    names = {}
    called = ""
    count = 0
    lines = iter(profile.split("\n"))
    for line in lines:
        if named := re.match(r"c?fn=(\(\d+\))(?: (.*))?", line):
            names.setdefault(named.group(1), named.group(2))
            called = names[named.group(1)] if line.startswith("c") else ""
        elif line.startswith("calls=") and function in (called or ""):
            count += int(next(lines).split()[1])
    return count


def wire_drops(counters):
    """Dropped frames by counter, of all wires: lines "mlx5_0 rx_dropped_ring 0"."""
    drops = {}
    for line in counters.split("\n"):
        words = line.split()
        if len(words) == 3 and "dropped" in words[1]:
            drops[words[1]] = drops.get(words[1], 0) + int(words[2])
    return drops


def published(text):
    """The number behind the publisher's "published="."""
    found = re.search(r"\bpublished=(\d+)", text)
    return int(found.group(1)) if found else 0


def _system_calls(folder, name):
    """System calls per message of a traced run, and the two most frequent."""
    messages = _json(folder, name + ".json").get("messages", 0)
    if not messages:
        return "not measured"
    calls = count_system_calls(_read(folder, name + ".calls"))
    most = ", ".join(sorted(calls, key=calls.get, reverse=True)[:2])
    return f"{sum(calls.values()) / messages:.3f}" + (f" ({most})" if most else "")


class Run:
    """What one handler left behind: of its run, and of the short ones that were measured."""

    def __init__(self, folder, name):
        self.figures = _json(folder, name + ".json")
        self.messages = self.figures.get("messages", 0)
        self.published = published(_read(folder, name + ".published"))
        self.system_calls = _system_calls(folder, name + "-trace")
        self.system_calls_spinning = "-"
        if name == "ring":
            self.system_calls_spinning = _system_calls(folder, name + "-spin")
        self.profile = _read(folder, name + "-profile.profile")
        self.profiled = _json(folder, name + "-profile.json").get("messages", 0)
        self.profiler_said = [line for line in _read(folder, name + "-profile.errors").split("\n")
                              if line and not line.startswith("==")]

    def count(self, name):
        """A figure, or 0 when the run has none."""
        return self.figures.get(name, 0)

    def each(self, name):
        """A figure per delivered message."""
        return f"{self.count(name) / self.messages:.3f}" if self.messages else "unknown"

    def instructions(self, handling):
        """Instructions per message: of handling datagrams, or of all the rest."""
        whole = count_instructions(self.profile)
        if not whole or not self.profiled:
            return "not measured"
        inside = count_instructions_in(self.profile, "HandleDatagram")
        return f"{(inside if handling else whole - inside) / self.profiled:.0f}"

    def percentiles(self, name):
        """p50 / p99 / p99.9 in microseconds."""
        times = self.figures.get(name, {})
        if not times.get("count"):
            return "unknown"
        return " / ".join(f"{times[name] / 1000:.0f}" for name in ("p50", "p99", "p999"))

    def lost(self):
        """Messages that line A and line B lost."""
        return ", ".join(str(lost) for lost in self.figures.get("lost", []))


_HANDLER = "the handler's count of messages; what a line loses, 1 %, is decided by the seed"
_ALLOCATIONS = "operator new counted on the handler's thread during the whole run"
_COPIES = "counted by the handler during the whole run; what the device writes is no copy"
_TRACE = "strace of the handler's thread, a short run; the software device has its own"
_PROFILE = ("callgrind of the handler's thread, a short run in which both sleep in between; what"
            " the\n    kernel does for it, the whole stack of the right column, it cannot see")

# What a row says, how a run tells it, how it was got.
_ROWS = (
    ("messages published", lambda run: run.published, "the publisher's count"),
    ("messages delivered", lambda run: run.messages, _HANDLER),
    ("lost by line A, by line B", Run.lost, _HANDLER),
    ("recovered by the other line", lambda run: run.count("recovered_by_line"), _HANDLER),
    ("recovered by request", lambda run: run.count("recovered_by_request"), _HANDLER),
    ("missing", lambda run: run.count("missing"), _HANDLER),
    ("system calls per message", lambda run: run.system_calls, _TRACE),
    ("  by a ring that spins", lambda run: run.system_calls_spinning, _TRACE),
    ("allocations per message, receiving", lambda run: run.each("receiving_allocations"),
     _ALLOCATIONS),
    ("  books and what is held", lambda run: run.each("handling_allocations"), _ALLOCATIONS),
    ("bytes copied per message, receiving", lambda run: run.each("received_copied_bytes"),
     _COPIES),
    ("  to hold what came early", lambda run: run.each("held_copied_bytes"), _COPIES),
    ("instructions per message, receiving", lambda run: run.instructions(handling=False),
     _PROFILE),
    ("  decoding, arbiter, books", lambda run: run.instructions(handling=True), _PROFILE),
    ("us since the publisher's send", lambda run: run.percentiles("from_publisher_ns"),
     "p50 / p99 / p99.9 of all messages, by the publisher's time in each"),
    ("us since the device's receipt", lambda run: run.percentiles("from_device_ns"),
     "p50 / p99 / p99.9 of all datagrams, by the device's or the kernel's time stamp; the clock of"
     " a\n    software device stands still while its thread waits for a processor, and this errs by"
     " that"),
)


def table(runs):
    """The rows as lines, the runs side by side; below them, how each figure was got."""
    notes = list(dict.fromkeys(how for _, _, how in _ROWS))
    rows = [("", *(TITLES[name] for name in RUNS))]
    for label, tell, how in _ROWS:
        label = f"{label} [{notes.index(how) + 1}]"
        rows.append((label, *(str(tell(runs[name])) for name in RUNS)))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
             for row in rows]
    return lines + [""] + [f"[{i + 1}] {note}" for i, note in enumerate(notes)]


def capture_figures(runs, count):
    """Lines for a replayed capture, of which `count` datagrams were to arrive."""
    lines = [f"datagrams of the capture for both groups: {count}"]
    for name in RUNS:
        run = runs[name]
        lines.append(f"{TITLES[name]}: {run.count('datagrams')} received,"
                     f" {run.count('received_copied_bytes')} bytes copied on the way")
    return lines


def last_line(run, capture_count):
    """The demo's last line, and what is missing by it."""
    expected = run.published if capture_count is None else capture_count
    delivered = run.messages if capture_count is None else run.count("datagrams")
    missing = max(expected - delivered, run.count("missing"))
    return (f"demo: published={expected} delivered={delivered}"
            f" recovered_by_line={run.count('recovered_by_line')}"
            f" recovered_by_request={run.count('recovered_by_request')} missing={missing}", missing)


def main(folder):
    """Prints the report; the exit code."""
    runs = {name: Run(folder, name) for name in RUNS}
    capture = _read(folder, "capture.count")
    capture_count = int(capture) if capture else None
    print()
    lines = table(runs) if capture_count is None else capture_figures(runs, capture_count)
    print("\n".join(lines))
    for name in RUNS:
        if not runs[name].profiled and runs[name].profiler_said:
            print(f"{TITLES[name]}: no instructions counted: {runs[name].profiler_said[0]}")
    print(f"\n{_read(folder, 'conditions').strip()}. {WAITS}\n{TIMES}")
    drops = wire_drops(_read(folder, "ring.wire"))
    print("dropped by the wire: " +
          (", ".join(f"{name} {count}" for name, count in drops.items()) or "no counters"))
    line, missing = last_line(runs["ring"], capture_count)
    # Without its counters nobody can say that the wire dropped nothing.
    dropped = not drops or any(drops.values())
    if dropped:
        print("The wire dropped frames: this run proves nothing.")
    print(line)
    return int(missing != 0 or dropped or runs["ring"].figures.get("ended") != "done")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
