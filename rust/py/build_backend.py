"""Build backend: maturin's, told to name a missing Rust compiler instead of fetching a toolchain.

The fetch hangs where there is no network, and a compiler is the user's choice.
"""

import os

from maturin import *  # noqa: F403

os.environ.setdefault("MATURIN_NO_INSTALL_RUST", "1")
os.environ.setdefault("MATURIN_NO_MISSING_BUILD_BACKEND_WARNING", "1")  # this module is the backend, and calls maturin
