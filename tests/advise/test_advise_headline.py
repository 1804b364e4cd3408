"""The headline never contradicts the table below it, whatever the table is."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from contradictions import assert_not_contradicted
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixroute.advise import Advice, Question, Saving, advise
from prefixroute.advise.choice import JUDGED, METRIC, OBJECTIVES, choose
from prefixroute.advise.question import OTHERS
from prefixroute.advise.sample import METRICS, Gaps
from prefixroute.sim import Scenario
from prefixroute.workload import Poisson, chat, few_shot

POLICIES = ("round-robin", "least-loaded", "session", "cache-aware", "lmetric", *OTHERS)


@pytest.fixture(scope="module")
def base() -> Advice:
    """An advice that needs no fewer replicas than it has or fewer, with every kind of policy in its table."""
    made = partial(chat, requests=300, arrivals=Poisson(20.0))
    return advise(made, Question(scenario=Scenario(replicas=4), seeds=1, policies=("lmetric",)))


@st.composite
def tables(draw: st.DrawFn) -> dict[str, object]:
    """Figures of each policy, half widths of every gap, who falls behind or preempts, and who may be taken."""
    count = len(POLICIES)
    near = draw(st.sampled_from([0.02, 0.2, 2.0]))
    figure = st.floats(1 - near / (1 + near), 1 + near)
    return {
        "figures": draw(st.lists(st.lists(figure, min_size=count, max_size=count), min_size=3, max_size=3)),
        "halves": draw(st.lists(st.sampled_from([0.0, 0.01, 0.05, 0.3]), min_size=3 * count, max_size=3 * count)),
        "behind": draw(st.sets(st.sampled_from(POLICIES))),
        "preempting": draw(st.sets(st.sampled_from(POLICIES))),
        "in_use": draw(st.sampled_from([None, *POLICIES])),
        "objective": draw(st.sampled_from(sorted(OBJECTIVES))),
        "keys": draw(st.booleans()),
    }


@settings(max_examples=300, deadline=None)
@given(tables())
def test_no_table_contradicts_its_headline(base: Advice, table: dict[str, object]) -> None:
    assert_not_contradicted(_advice(base, **table))  # type: ignore[arg-type]


def _advice(
    base: Advice,
    *,
    figures: list[list[float]],
    halves: list[float],
    behind: set[str],
    preempting: set[str],
    in_use: str | None,
    objective: str,
    keys: bool,
) -> Advice:
    """Return an advice with another table, chosen from as every advice is."""
    found = base.comparison
    rows = tuple(
        replace(
            found.row(name),
            preemptions=50.0 * (name in preempting),
            **{metric: each[at] for metric, each in zip(JUDGED, figures, strict=True)},
        )
        for at, name in enumerate(POLICIES)
    )
    ends = np.zeros((len(METRICS), len(rows), len(rows), 3))
    for number, (metric, each) in enumerate(zip(JUDGED, figures, strict=True)):
        value, half = np.array(each), np.array(halves[number * len(rows) : (number + 1) * len(rows)])
        gap, wide = value[:, None] - value[None, :], half[:, None] + half[None, :]
        ends[METRICS.index(metric)] = np.stack([gap, gap - wide, gap + wide], axis=2)
    table = replace(
        found, rows=rows, gaps=Gaps(POLICIES, ends), behind={name: int(name in behind) for name in POLICIES}, idle=()
    )
    own = [name for name in POLICIES if name not in OTHERS]
    choice = choose(table, objective=objective, keys=keys, in_use=in_use, among=own)
    row, against = table.row(choice.policy), in_use or "round-robin"
    gap = getattr(table.row(against), METRIC) - getattr(row, METRIC)
    return replace(
        base,
        policy=choice.policy,
        in_use=against,
        row=row,
        choice=choice,
        comparison=table.against(choice.policy),
        saving=None
        if against == choice.policy
        else Saving(against, gap, gap / getattr(table.row(against), METRIC), None),
        deployment=None,
        findings=(),
    )


def test_an_advice_has_one_floor_and_no_row_lies_below_it() -> None:
    advice = advise(partial(few_shot, requests=60), Question(scenario=Scenario(replicas=2), seeds=2, policies=()))
    (step,) = (one for one in advice.steps if one.kind == "system-prompt")
    assert step.evidence["floor"] == advice.row.floor != advice.profile.floor
    assert all(row.recompute_ratio >= step.evidence["floor"] for row in advice.comparison.rows)


@pytest.mark.parametrize(("rate", "kind"), [(4.0, "fewer"), (80.0, "all"), (400.0, "more"), (2_000.0, "overloaded")])
def test_a_headline_says_how_many_replicas_are_needed_where_these_are_others(rate: float, kind: str) -> None:
    made = partial(chat, requests=400, arrivals=Poisson(rate))
    advice = advise(made, Question(scenario=Scenario(replicas=4), seeds=1, policies=()))
    assert_not_contradicted(advice)
    assert advice.need is not None
    needed = advice.need.size.replicas or 99
    found = "overloaded" if advice.is_overloaded else "fewer" if needed < 4 else "more" if needed > 4 else "all"
    assert found == kind
