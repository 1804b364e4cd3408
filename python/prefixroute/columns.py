"""Columns: one number per replica, in a list or an array, and the compiled passes over them that decisions are made of.

:func:`highest` and :func:`lowest` find an extreme, how many are equal to it and where the first lies, :func:`nth` where
another lies, :func:`up_to` which lie below a limit, :func:`is_answer` whether a policy's answer is a candidate and a
reason; :func:`mapped`, :func:`falling`, :func:`filled` and :func:`sum_of_products` make arrays ``float64[replicas]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from prefixroute._core import (
    Kernel,
    Sight,
    falling,
    filled,
    highest,
    is_answer,
    lowest,
    mapped,
    nth,
    sum_of_products,
    up_to,
)

Column: TypeAlias = Sequence[float] | NDArray[np.float64]
"""One number per replica."""

__all__ = [
    "Column",
    "Kernel",
    "Sight",
    "falling",
    "filled",
    "highest",
    "is_answer",
    "lowest",
    "mapped",
    "nth",
    "sum_of_products",
    "up_to",
]
