"""Compare again: all studies, or those that are named; ``--write`` keeps what was found and writes the page."""

from __future__ import annotations

import argparse
import datetime as dt
import sys
import time
from importlib import import_module

from accuracy import page, step_times
from accuracy.comparison import record

STEP_TIMES = "step_times"


def main() -> None:
    """Run the studies and print their rows."""
    parser = argparse.ArgumentParser(prog="python -m accuracy", description=__doc__)
    parser.add_argument("study", nargs="*", help=f"{STEP_TIMES}, {', '.join(page.STUDIES)}; all unless named")
    parser.add_argument("--write", action="store_true", help="keep what was found, and write docs/accuracy.md")
    chosen = parser.parse_args()
    known = [STEP_TIMES, *page.STUDIES]
    if unknown := set(chosen.study) - set(known):
        parser.error(f"studies are {', '.join(known)}, got {', '.join(sorted(unknown))}")
    for study in chosen.study or known:
        started = time.perf_counter()
        if study == STEP_TIMES:
            step_times.main(write=chosen.write)
        else:
            found = list(import_module(f"accuracy.{study}").compare())
            for one in found:
                print(
                    f"{one.quantity:70} {one.independent:14,.6g} {one.ours:14,.6g} {one.unit:9} {one.difference}",
                    flush=True,
                )
            if chosen.write:
                record(found, dt.datetime.now(dt.UTC).date().isoformat())
        print(f"{study}: {time.perf_counter() - started:.0f} s", file=sys.stderr)
    if chosen.write:
        page.write()


if __name__ == "__main__":
    main()
