#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""document.py [REPORT.json ...]: docs/hardware.md, from reports of //benchmarks:hardware.

The reports that count are kept in docs/hardware/; with none the page says so.
"""

import json
import os
import sys

HEAD = """# Seen on real cards

This page is generated from reports of people's cards, kept in `docs/hardware/`, by
`benchmarks/hardware/document.py docs/hardware/*.json > docs/hardware.md`. To add yours, run the
other side on a second host, or on another port in a network namespace,

```
bazel run //benchmarks:hardware -- --serve --interface=eth3
```

and the list, about a quarter of an hour, on this one, then attach the report to an issue:

```
bazel run //benchmarks:hardware -- --interface=eth2 --peer=ADDRESS --json=$PWD/report.json
```

The list also runs, short, on the software ConnectX in the test suite; times there mean nothing.
"""

NONE = """
**No report of a real card is here yet.** What this project says of cards is so far derived from
manuals, from the kernel's and rdma-core's sources, and from the software ConnectX.
"""


def _time(figures):
    if "p50_ns" not in figures:
        return ""
    return f"{figures['p50_ns']} / {figures['p99_ns']} ns"


def _shown(figures):
    """Figures in a cell: round trips as p50 / p99, the rest as they are."""
    nested = {name: _time(value) for name, value in figures.items() if isinstance(value, dict)}
    if not nested and _time(figures):
        return _time(figures)
    return "; ".join(f"{name}: {nested.get(name) or json.dumps(value)}"
                     for name, value in figures.items())


def Section(report):
    """One report as Markdown."""
    lines = ["", f"## {report['device']}, firmware {report['firmware']}, {report['date']}", "",
             f"{report['cpu']}, Linux {report['kernel']}, "
             f"{report['link_bits_per_second'] // 10**9} Gbit/s.", "",
             "| item | what | verdict | figures |", "|---|---|---|---|"]
    for item in report["items"]:
        verdict = item["verdict"] + (f": {item['finding']}" if item["finding"] else "")
        lines.append(f"| {item['name']} | {item['what']} | {verdict} | {_shown(item['figures'])} |")
    return "\n".join(lines) + "\n"


def Document(reports):
    """The page; reports of software devices are not of cards."""
    cards = [report for report in reports if not report["software"]]
    cards.sort(key=lambda report: (report["device"], report["date"]))
    return HEAD + ("".join(Section(report) for report in cards) or NONE)


def Read(paths):
    """The reports; a pattern is one that the shell found no file for."""
    reports = []
    for path in paths:
        if "*" in path and not os.path.exists(path):
            continue
        with open(path, encoding="utf-8") as file:
            reports.append(json.load(file))
    return reports


def _main(paths):
    sys.stdout.write(Document(Read(paths)))


if __name__ == "__main__":
    _main(sys.argv[1:])
