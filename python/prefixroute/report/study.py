"""The result of running policies over one workload: what tables, JSON, pages and pictures are made from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefixroute.costmodel import Assumption
from prefixroute.report.table import usd

SCHEMA = 1
"""Version of the JSON object. Fields may be added under the same number; a changed meaning raises it."""

QUANTILES = np.linspace(0.0, 1.0, 101)
"""The shares at which a study keeps the distribution of TTFT."""


@dataclass(frozen=True, slots=True)
class Study:
    """Rows of one ``simulate`` run and what they rest on.

    Attributes:
        workload: the name of the workload.
        cache: ``blocks`` or ``entries``, the kind of cache that was simulated.
        rows: one mapping per policy and number of replicas, with the fields that ``simulate --json`` prints.
        assumptions: the figures behind the rows.
        notes: what a reader should know before believing the rows.
        ttft_s: per ``(policy, replicas)`` the TTFT in seconds at each of :data:`QUANTILES`.
    """

    workload: str
    cache: str
    rows: tuple[Mapping[str, Any], ...]
    assumptions: tuple[Assumption, ...] = ()
    notes: tuple[str, ...] = ()
    ttft_s: Mapping[tuple[str, int], NDArray[np.float64]] = field(default_factory=dict, compare=False)

    @property
    def policies(self) -> list[str]:
        """Policies in the order in which they were asked for."""
        return list(dict.fromkeys(row["policy"] for row in self.rows))

    @property
    def replicas(self) -> list[int]:
        """Numbers of replicas in the order in which they were asked for."""
        return list(dict.fromkeys(row["replicas"] for row in self.rows))

    @property
    def floor(self) -> float | None:
        """The recompute ratio of one cache of unlimited size, full blocks only; None where no row knows it."""
        floors = [row["floor"] for row in self.rows if row["floor"] is not None]
        return sum(floors) / len(floors) if floors else None

    def summary(self) -> list[str]:
        """Return what the rows say at the largest number of replicas, in two sentences or less."""
        most = max(self.replicas)
        rows = sorted(
            (row for row in self.rows if row["replicas"] == most), key=lambda row: float(row["recompute_ratio"])
        )
        least, worst = rows[0], rows[-1]
        share = (
            f"At {most} replica{'s' * (most > 1)}, {worst['policy']} computes {100 * worst['recompute_ratio']:.1f} % of the "
            f"prompt tokens again, {least['policy']} {100 * least['recompute_ratio']:.1f} %"
        )
        floor = "" if self.floor is None else f"; no routing can go below {100 * self.floor:.1f} %"
        costs = [f"${usd(row['usd_per_million_requests'])} with {row['policy']}" for row in (worst, least)]
        return [f"{share}{floor}.", f"The prefill of a million requests costs {costs[0]} and {costs[1]}."]

    def to_json(self) -> str:
        """Return the object that ``simulate --json`` prints, with a final newline. Equal studies give equal bytes."""
        document = {
            "schema": SCHEMA,
            "workload": self.workload,
            "cache": self.cache,
            "assumptions": {
                item.name: {"value": item.value, "unit": item.unit, "source": item.source, "assumed": item.assumed}
                for item in self.assumptions
            },
            "notes": list(self.notes),
            "rows": [dict(row) for row in self.rows],
        }
        return json.dumps(document, indent=2, allow_nan=False) + "\n"
