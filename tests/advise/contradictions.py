"""What no advice may say: anything that the table below it does not."""

from __future__ import annotations

import math
import re

from prefixroute.advise import Advice
from prefixroute.advise.choice import JUDGED, LOAD_ONLY, METRIC, OBJECTIVES, TTFT, beats, outdoes, preempts
from prefixroute.advise.fleet import MOST_TIMES
from prefixroute.advise.reasons import RECOMPUTE, better_throughout, why, why_not
from prefixroute.report import answer
from prefixroute.report.reasons import NOT_ADVISED, WHY, WHY_NOT, advised, because


def assert_not_contradicted(advice: Advice) -> None:
    """Choice, headline, reasons and savings of an advice agree with its table."""
    _choice_is_that_of_the_table(advice)
    for row in advice.comparison.rows:
        if row.policy != advice.policy:
            _reason_holds(advice, row.policy)
    _every_row_says_why(advice)
    _headline_holds(advice)


def _choice_is_that_of_the_table(advice: Advice) -> None:
    choice, found, chosen = advice.choice, advice.comparison, advice.policy
    assert choice is not None
    own = set(choice.among)
    assert chosen in own
    assert own <= {row.policy for row in found.rows}
    if found.is_overloaded(chosen):
        assert all(found.is_overloaded(name) for name in own)
    gone = {one.policy for one in choice.rejected}
    assert chosen not in gone
    left = own - gone
    beaten = {name for name in left if any(beats(found, other, name) for other in left - {name})}
    if beaten != left:  # noise can make a circle
        assert chosen not in beaten
        assert not any(_is_plainly_better(advice, name) for name in left)
    if chosen != advice.in_use:
        assert not any(outdoes(found, name, chosen) for name in left)
        assert advice.in_use not in left or _is_worth_it(advice)


def _is_worth_it(advice: Advice) -> bool:
    """Whether the advice is better than what is in use, though that could be taken.

    By what the objective weighs in the mean: by 3 % if one of it is beyond the noise, else by 10 %. Or by anything that is beyond the
    noise, if it is worse in nothing.
    """
    choice, found = advice.choice, advice.comparison
    assert choice is not None
    weighed = OBJECTIVES[choice.objective]
    before, after = found.row(advice.in_use), found.row(advice.policy)
    ratio = math.prod(getattr(before, metric) / getattr(after, metric) for metric in weighed) ** (1 / len(weighed))
    apart = any(found.gap(advice.policy, advice.in_use, metric).excludes_zero for metric in weighed)
    return ratio > (1.03 if apart else 1.1) or bool(beats(found, advice.policy, advice.in_use))


def _is_plainly_better(advice: Advice, policy: str) -> bool:
    """Better than the advice in recomputed tokens and TTFT, one of them by 3 %, and no more expensive, all beyond the noise.

    An interval excuses no cost that is a tenth higher in the mean.
    """
    found, row = advice.comparison, advice.comparison.row(advice.policy)
    gaps = {metric: found.gap(policy, advice.policy, metric) for metric in JUDGED}
    large = any(-gaps[metric].value > 0.03 * getattr(row, metric) for metric in (RECOMPUTE, TTFT))
    fair = gaps[METRIC].low <= 0 and gaps[METRIC].value <= 0.1 * getattr(row, METRIC)
    return gaps[RECOMPUTE].high < 0 and gaps[TTFT].high < 0 and fair and large


def _reason_holds(advice: Advice, policy: str) -> None:
    choice, found = advice.choice, advice.comparison
    assert choice is not None
    gaps = {metric: found.gap(policy, choice.policy, metric) for metric in JUDGED}
    kind, row = why_not(found, choice, policy), found.row(policy)
    holds = {
        "elsewhere": policy not in choice.among,
        "overloaded": found.is_overloaded(policy),
        "preempts": preempts(row),
        "coincidence": policy == "round-robin",
        "beaten": any(beats(found, other, policy) for other in choice.among),
        "costlier": gaps[METRIC].low > 0,
        "later": gaps[TTFT].low > 0,
        "recomputes": gaps[RECOMPUTE].low > 0,
        "noise": not any(gap.excludes_zero for gap in gaps.values()),
        "weighed": any(gap.high < 0 for gap in gaps.values()) and not any(gap.low > 0 for gap in gaps.values()),
    }
    assert holds[kind], (policy, kind, gaps)
    assert kind in WHY_NOT.keys() & NOT_ADVISED.keys()
    instead = why(found, choice, policy)
    ahead = {
        "overloaded": found.is_overloaded(choice.policy),
        "keeps-up": found.is_overloaded(policy) and not found.is_overloaded(choice.policy),
        "remembers": preempts(row),
        "coincidence": policy == "round-robin",
        "saves": gaps[RECOMPUTE].low > 0,
        "cheaper": gaps[METRIC].low > 0,
        "earlier": gaps[TTFT].low > 0,
        "simpler": not any(gap.excludes_zero and gap.low > 0 for gap in gaps.values()),
        "weighed": any(gap.high < 0 for gap in gaps.values()),
    }
    assert ahead[instead], (policy, instead, gaps)


def _every_row_says_why(advice: Advice) -> None:
    """The table says of each row whether it is advised, or why not.

    Never that it is within the noise where it is better.
    """
    said = advised(advice)
    assert [name for name, words in said.items() if words == "advised"] == [advice.policy]
    for name, words in said.items():
        assert words
        assert "None" not in words
        gaps = [advice.comparison.gap(name, advice.policy, metric) for metric in JUDGED]
        told_as_noise = words == NOT_ADVISED["noise"].format(chosen=advice.policy)
        assert not told_as_noise or not any(gap.excludes_zero for gap in gaps)


def _headline_holds(advice: Advice) -> None:
    said = answer(advice)
    named = said.headline.removeprefix("keep ")
    assert said.headline.startswith("keep ") == (advice.policy == advice.in_use)
    for name in advice.choice.among if advice.choice is not None else ():
        row = advice.comparison.row(name)
        if all(getattr(row, metric) < getattr(advice.row, metric) for metric in JUDGED):
            assert advice.choice is not None
            assert name in better_throughout(advice.comparison, advice.choice)
            assert any(f"{name}, but " in text for text in said.opening)
    assert named.startswith(advice.policy.partition(":")[0].partition(" ")[0])
    assert (re.search(r"\bcannot\b", said.headline) is not None) == advice.is_overloaded
    if advice.is_overloaded:  # no number of its replicas is called enough
        assert not re.search(rf"\b\d+ of {advice.replicas}\b", " ".join((said.headline, *said.opening)))
    need = advice.need
    if need is not None and not advice.is_overloaded and need.size.replicas != need.replicas:
        wanted = MOST_TIMES * need.replicas if need.size.replicas is None else need.size.replicas
        assert f" {wanted} " in said.headline
    if advice.policy in LOAD_ONLY and "%" not in because(advice):  # what prefixes would save has no figure
        for row in advice.comparison.rows:
            gap = advice.comparison.gap(row.policy, advice.policy, RECOMPUTE)
            assert gap.high >= 0 or -gap.value <= 0.05
    if advice.saving is not None:
        apart = advice.comparison.gap(advice.policy, advice.saving.against, METRIC).excludes_zero
        (saved,) = (text for text in said.opening if text.startswith(f"Against {advice.saving.against}"))
        assert ("noise" in saved) != apart
    assert set(WHY) >= {"overloaded", "in-use", "simpler"}
