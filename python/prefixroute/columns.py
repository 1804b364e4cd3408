"""Columns: one number per replica, in a list or an array, and the compiled passes over them that decisions are made of.

:func:`best_of` finds which score is taken, :func:`is_answer` whether a policy's answer is a candidate and a reason. A
:class:`Formula` is a column that is worked out from a view, a :class:`Kernel` a policy that decides on one. A
:class:`Lens` is what a policy reads of a router, a :class:`Roster` the names and speeds of a fleet's replicas.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from prefixroute._core import (
    ASSUMED_TOKENS_PER_S,
    Formula,
    Kernel,
    Lens,
    Roster,
    Sight,
    best_of,
    is_answer,
    start_seconds,
)

Column: TypeAlias = Sequence[float] | NDArray[np.float64]
"""One number per replica."""

__all__ = [
    "ASSUMED_TOKENS_PER_S", "Column", "Formula", "Kernel", "Lens", "Roster", "Sight", "best_of", "is_answer",
    "start_seconds",
]  # fmt: skip
