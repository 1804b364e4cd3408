"""What is known of traffic before any policy is run on it: read once as it is, and once with what changes masked."""

from __future__ import annotations

from dataclasses import dataclass

from prefixroute.advise.affected import Affected, affected
from prefixroute.advise.profile import Profile, profile
from prefixroute.advise.question import Question
from prefixroute.sim.grid import Source, kept, open_source, seeds_of
from prefixroute.sim.pool import Jobs
from prefixroute.workload import Workload


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of the traffic before any policy is run.

    Attributes:
        source: the workload of each seed.
        workload: that of the first seed.
        profile: what it shares, and with whom.
        masked: the source with a constant in place of a date or id near the start of its prompts, where the text shows
            one.
        masked_profile: the profile of that.
        affected: the groups of prompts that have that date or id.
        inferred: sessions were inferred, because requests carry no key.
    """

    source: Source
    workload: Workload
    profile: Profile
    masked: Source | None
    masked_profile: Profile | None
    affected: tuple[Affected, ...]
    inferred: bool


def look(source: Source, asked: Question, jobs: Jobs = 1) -> Facts:
    """Read the traffic: as it is, and without what changes near the start of prompts."""
    held = kept(source, jobs=jobs)
    workload = open_source(held, seeds_of(asked.seeds)[0])
    masked = None if workload.masked is None else kept(workload.masked, jobs=jobs)
    return Facts(
        source=held,
        workload=workload,
        profile=profile(workload),
        masked=masked,
        masked_profile=None if masked is None else profile(open_source(masked, 1)),
        affected=affected(workload),
        inferred=workload.inferred_sessions,
    )
