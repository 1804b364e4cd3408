"""What stands before a fleet, and what joins its two kinds of replicas, as titles say it."""

from __future__ import annotations

from collections.abc import Sequence

from prefixroute.costmodel import Assumption
from prefixroute.report.times import duration


def arrangement(assumptions: Sequence[Assumption]) -> str:
    """Return what a title says of routers and links, with a comma in front; empty for one router and mixed replicas."""
    values = {item.name: item.value for item in assumptions}
    parts = []
    if "routers" in values:
        delay_s = values.get("peer_delay_s")
        late = "at once" if not delay_s else f"{duration(float(delay_s))} late"
        shared = "nothing shared" if delay_s is None else f"commits shared {late}"
        parts.append(f"{values['routers']} routers ({values['front']} front, {shared})")
    links = [str(item.value) for item in assumptions if item.name == "link" or item.name.startswith("link_")]
    if links:
        parts.append(f"prefill and decode apart over {' and '.join(links)}")
    return "".join(f", {part}" for part in parts)
