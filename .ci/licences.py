"""Check the licences of everything that is linked or installed; with `--write`, collect the texts for the wheel.

The allowed licences stand in deny.toml. Crates are those linked into the extension; distributions are those that the
extras install. Texts come from the crates' own packages and go to LICENSE-THIRD-PARTY.txt, which is not kept in the
tree.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TEXTS = re.compile(r"(?i)^(licen[cs]e|copying|notice|unlicense)")
# Distributions that state their licence only in words, or only by a classifier.
SPELLED = {
    "mit license": "MIT",
    "the mit license": "MIT",
    "apache license 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "bsd license": "BSD-3-Clause",
    "bsd": "BSD-3-Clause",
    "isc license (iscl)": "ISC",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "python software foundation license": "PSF-2.0",
    "the unlicense (unlicense)": "Unlicense",
}


def allowed(expression: str, names: set[str]) -> bool:
    """Return whether an SPDX expression can be met with the allowed licences."""
    words = re.sub(r"\s*/\s*", " OR ", expression)
    for part in re.split(r"\s+AND\s+", words.replace("(", " ").replace(")", " ")):
        if not any(option.strip() in names for option in re.split(r"\s+OR\s+", part)):
            return False
    return True


def linked_crates() -> list[dict[str, Any]]:
    """Return the packages that end up in the extension: normal dependencies that are no procedural macros."""
    metadata = json.loads(
        subprocess.run(
            ["cargo", "metadata", "--format-version=1", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    )
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    todo = [package["id"] for package in metadata["packages"] if package["name"] == "prefixroute-py"]
    found: dict[str, dict[str, Any]] = {}
    while todo:
        name = todo.pop()
        if name in found:
            continue
        package = packages[name]
        if any("proc-macro" in target["kind"] for target in package["targets"]):
            continue
        found[name] = package
        deps = nodes[name]["deps"]
        todo += [one["pkg"] for one in deps if any(kind["kind"] is None for kind in one["dep_kinds"])]
    return [package for package in found.values() if package["source"] is not None]


def installed_by_extras() -> dict[str, str]:
    """Return the licence of each distribution that `prefixroute[all]` installs here."""
    todo, found = ["prefixroute"], {}
    while todo:
        name = re.sub(r"[-_.]+", "-", todo.pop()).lower()
        if name in found:
            continue
        try:
            dist = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # of another platform
        found[name] = licence_of(dist)
        needed = [one for one in dist.requires or () if "extra ==" not in one or name == "prefixroute"]
        todo += [re.split(r"[ ;<>=!~\[(]", one)[0] for one in needed]
    del found["prefixroute"]
    return found


def licence_of(dist: importlib.metadata.Distribution) -> str:
    """Return a distribution's licence as an SPDX expression, as far as it can be told."""
    expression = dist.metadata.get("License-Expression")
    if expression:
        return expression
    words = [line.split(" :: ")[-1] for line in dist.metadata.get_all("Classifier") or () if line.startswith("License")]
    words += [line for line in [dist.metadata.get("License") or ""] if "\n" not in line]
    return next((SPELLED.get(word.lower(), word) for word in words if word), "none stated")


def texts(crates: list[dict[str, Any]]) -> str:
    """Return the licence texts of the crates, each with its name."""
    parts = ["Licences of the crates that are linked into prefixroute._core.\n"]
    for crate in sorted(crates, key=lambda crate: crate["name"]):
        folder = Path(crate["manifest_path"]).parent
        files = sorted(path for path in folder.iterdir() if path.is_file() and TEXTS.match(path.name))
        parts.append(
            f"\n{'=' * 78}\n{crate['name']} {crate['version']}: {crate['license']}\n{crate['repository'] or ''}\n"
        )
        parts += [f"\n--- {path.name}\n\n{path.read_text(errors='replace')}" for path in files]
    return "".join(parts)


def main() -> None:
    """Check, and write if asked to."""
    names = set(tomllib.loads((ROOT / "deny.toml").read_text())["licenses"]["allow"])
    crates = linked_crates()
    stated = {f"crate {crate['name']}": crate["license"] or "none stated" for crate in crates}
    stated |= {f"distribution {name}": licence for name, licence in installed_by_extras().items()}
    refused = [f"{name}: {licence}" for name, licence in stated.items() if not allowed(licence, names)]
    if refused:
        raise SystemExit("licences that deny.toml does not allow:\n  " + "\n  ".join(refused))
    if "--write" in sys.argv[1:]:
        (ROOT / "LICENSE-THIRD-PARTY.txt").write_text(texts(crates))
    print(f"{len(crates)} linked crates and {len(stated) - len(crates)} distributions have allowed licences")


if __name__ == "__main__":
    main()
