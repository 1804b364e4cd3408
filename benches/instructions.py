"""Holds the instruction counts of the core's hot paths to their budgets.

A count repeats to the digit on a busy machine; a time does not.

`python benches/instructions.py` builds `rust/core/examples/hot_paths.rs`, runs each path under callgrind and compares
with `benches/instructions.json`: more than 3 % over its budget fails, more than 3 % under asks for a lower budget.
`--update` writes what was counted as the new budgets. Another compiler or processor family counts differently.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUDGETS = ROOT / "benches" / "instructions.json"
MARGIN = 0.03


def build() -> Path:
    """Build the example as the wheel is built; give the program."""
    command = ["cargo", "build", "--release", "--quiet", "-p", "prefixroute-core", "--example", "hot_paths"]
    messages = subprocess.run(
        [*command, "--message-format=json"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    programs = [json.loads(line).get("executable") for line in messages.splitlines()]
    return Path(next(program for program in programs if program))


def count(program: Path, path: str) -> int:
    """Give the instructions that `counted` and what it calls take on one path."""
    callgrind = [
        "valgrind",
        "--tool=callgrind",
        "--toggle-collect=*hot_paths::counted*",
        "--callgrind-out-file=/dev/null",
    ]
    done = subprocess.run([*callgrind, program, path], check=True, capture_output=True, text=True)
    collected = re.search(r"Collected : (\d+)", done.stderr)
    if not collected or collected[1] == "0":
        sys.exit(f"callgrind counted nothing on {path}:\n{done.stderr}")
    return int(collected[1])


def compare(counts: dict[str, int], budgets: dict[str, int]) -> int:
    """Print the counts beside their budgets; give the exit status."""
    failed = set(counts) != set(budgets)
    for path in budgets.keys() - counts.keys():
        print(f"{path:26} has a budget, but is no path")
    for path, counted in counts.items():
        budget = budgets.get(path)
        if budget is None:
            print(f"{path:26} {counted:>12,}  has no budget: --update")
            continue
        change = counted / budget - 1
        verdict = "OVER BUDGET" if change > MARGIN else "lower the budget: --update" if change < -MARGIN else ""
        failed |= change > MARGIN
        print(f"{path:26} {counted:>12,}  {change:+8.2%}  {verdict}".rstrip())
    return int(failed)


def main() -> int:
    """Count, then compare or update."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--update", action="store_true", help="write the counts as the new budgets")
    arguments = parser.parse_args()
    program = build()
    paths = subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    counts = {path: count(program, path) for path in paths}
    budgets = json.loads(BUDGETS.read_text()) if BUDGETS.exists() else {}
    status = compare(counts, budgets)
    if arguments.update:
        BUDGETS.write_text(json.dumps(counts, indent=4) + "\n")
        return 0
    return status


if __name__ == "__main__":
    sys.exit(main())
