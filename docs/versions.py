"""The page that lists every version of the documentation in a folder: ``python docs/versions.py docs/_build/html``."""

from __future__ import annotations

import re
import sys
from html import escape
from pathlib import Path

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>prefixroute: versions of the documentation</title>
</head>
<body>
<h1>prefixroute</h1>
<ul>
{items}
</ul>
</body>
</html>
"""


def order(version: str) -> tuple[tuple[int, int | str], ...]:
    """Return what a version is sorted by: numbers as numbers, and a pre-release before its release."""
    parts = re.findall(r"\d+|[a-z]+", version)
    return (*((1, int(part)) if part.isdecimal() else (0, part) for part in parts), (0, "~"))


def main() -> None:
    """Write ``index.html`` of the folder, the newest version first."""
    folder = Path(sys.argv[1])
    versions = sorted((page.parent.name for page in folder.glob("*/index.html")), key=order, reverse=True)
    items = (f'<li><a href="{escape(version)}/index.html">{escape(version)}</a></li>' for version in versions)
    (folder / "index.html").write_text(PAGE.format(items="\n".join(items)), encoding="utf-8")


if __name__ == "__main__":
    main()
