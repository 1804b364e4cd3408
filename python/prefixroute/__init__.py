"""prefixroute: decide which LLM replica a request should go to, so that its prefix cache is reused."""

from __future__ import annotations

import warnings

from prefixroute._core import DEBUG_BUILD, __version__

if DEBUG_BUILD:
    warnings.warn("prefixroute was built without optimisation: timings mean nothing", RuntimeWarning, stacklevel=2)

__all__ = ["__version__"]
