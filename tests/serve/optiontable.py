"""The table of options in docs/serve.md. Run this file to write it."""

from __future__ import annotations

import json
from pathlib import Path

from prefixroute.serve.settings import OPTIONS, SECTIONS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "serve.md"
BEGIN = "<!-- options: written by tests/serve/optiontable.py, held equal to the code by a test -->"
END = "<!-- end of options -->"


def shown(value: object) -> str:
    return "" if value is None else f"`{json.dumps(value)}`"


def table() -> str:
    lines = []
    for section, options in OPTIONS.items():
        lines += [
            "",
            f"`[{section}]` {SECTIONS[section].__doc__}",
            "",
            "| key | default | what | allowed |",
            "|---|---|---|---|",
        ]
        lines += [f"| `{one.key}` | {shown(one.default)} | {one.about} | {one.kind.allowed} |" for one in options]
    return "\n".join(lines)


def page_with(options: str) -> str:
    page = PAGE.read_text(encoding="utf-8")
    return f"{page.partition(BEGIN)[0]}{BEGIN}\n{options}\n\n{END}{page.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page_with(table()), encoding="utf-8")
