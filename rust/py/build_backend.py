"""Build backend: maturin's, told to name a missing Rust compiler instead of fetching a toolchain.

The fetch hangs where there is no network, and a compiler is the user's choice.
"""

import os

from maturin import *  # noqa: F403

os.environ.setdefault("MATURIN_NO_INSTALL_RUST", "1")
