"""Wheels of others that are run without being installed.

Downloaded once into the user's cache folder, and unpacked there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "prefixroute" / "accuracy"


def unpacked(package: str, version: str, *, suffix: str = "") -> Path:
    """Return the folder with a package's files.

    Args:
        package: its name on PyPI.
        version: of the package.
        suffix: only files that end so are needed; empty = all.
    """
    folder = CACHE / f"{package}-{version}"
    if not folder.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(CACHE)]
        subprocess.run([*pip, f"{package}=={version}"], check=True)
        (packed,) = CACHE.glob(f"{package.replace('-', '_')}-{version}-*.whl")
        with zipfile.ZipFile(packed) as archive:
            archive.extractall(folder, [one for one in archive.namelist() if one.endswith(suffix)])
        packed.unlink()
    return folder
