"""The advisor on traffic whose right answer is known, branch by branch."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from traffic import chats, made

from prefixroute.advise import Advice, Question, advise, compare
from prefixroute.advise.choice import BY_TOKENS, JUDGED, METRIC, UNEQUAL
from prefixroute.advise.findings import elsewhere
from prefixroute.advise.question import OTHERS
from prefixroute.advise.sample import METRICS, Gaps
from prefixroute.costmodel import CostModel
from prefixroute.errors import ConfigError
from prefixroute.policies import CacheAware
from prefixroute.report import advice_dict, advice_text, answer
from prefixroute.report.figures import percent, usd
from prefixroute.sim import EngineModel, Events, Perfect, Scenario, simulate
from prefixroute.workload import Options, Poisson, Request, Workload, chat, documents, read_trace
from prefixroute.workload.readers import lines
from prefixroute.workload.readers.lines import read_lines
from prefixroute.workload.readers.log_pass import LogPass

CHAT = partial(chat, requests=1_200)
ARTICLE = CostModel(preset="article")


ask = partial(Question, policies=())  # other routers take time, and have a test of their own


def kinds(advice: Advice) -> dict[str, str]:
    return {finding.kind: finding.severity for finding in advice.findings}


@pytest.fixture(scope="module")
def on_chat() -> Advice:
    return advise(CHAT, ask(scenario=Scenario(replicas=8), seeds=1, vary=("capacity", "price"), current="random"))


def test_conversations_are_kept_together(on_chat: Advice) -> None:
    assert on_chat.policy == "session"
    assert [step.kind for step in on_chat.steps] == ["own-replicas", "two-or-more", "system-prompt", "conversations"]
    assert on_chat.steps[-1].evidence["apart"]
    assert on_chat.row is not None
    assert on_chat.row.recompute_ratio < 0.08
    assert on_chat.saving is not None
    assert on_chat.saving.against == "random"
    rows = {row.policy: row.usd_per_million_requests_busiest for row in on_chat.comparison.rows}
    assert on_chat.saving.usd_per_million_requests == pytest.approx(rows["random"] - rows["session"])
    a_million_a_day = on_chat.saving.usd_per_million_requests * 730 / 24
    assert on_chat.saving.usd_per_month == pytest.approx(a_million_a_day, rel=0.01)


def test_the_advice_says_what_would_change_it(on_chat: Advice) -> None:
    flips = {(flip.setting, flip.value): flip for flip in on_chat.sensitivity}
    assert set(flips) == {
        ("capacity", 150_000), ("capacity", 600_000), ("capacity", None), ("price", 2.145), ("price", 8.58),
    }  # fmt: skip
    assert on_chat.row is not None
    usual = on_chat.row.usd_per_million_requests_busiest
    assert flips["price", 8.58].usd_per_million_requests_busiest == pytest.approx(2 * usual)
    assert not flips["price", 8.58].flips
    assert not flips["capacity", None].flips


def test_json_and_report_hold_the_same_answer(on_chat: Advice) -> None:
    document = advice_dict(on_chat)
    assert document["advice"]["policy"] == "session"
    assert {row["policy"] for row in document["comparison"]["rows"]} >= {
        "round-robin",
        "session",
        "cache-aware",
        "random",
    }
    assert document["assumptions"]["usd_per_gpu_hour"]["assumed"] is True
    text = advice_text(on_chat)
    first, verdict = text.splitlines()[0], document["advice"]["verdict"]
    assert verdict.startswith("session")
    assert all(part in first for part in ("chat", "8 replicas (ASSUMED)", verdict))
    behind = answer(on_chat).expectation[-1]
    assert {"ASSUMED", "requests_per_day", "gpu"} <= set(re.findall(r"\w+", behind))
    assert behind in text
    assert "current_policy" not in text  # somebody named it
    assert f"{100 * on_chat.row.recompute_ratio:.1f} %" in text  # type: ignore[union-attr]


def test_same_inputs_same_bytes() -> None:
    question = ask(scenario=Scenario(replicas=4), seeds=1)
    one, other = (advise(partial(chat, requests=400), question).to_json() for _ in range(2))
    assert one == other


def test_other_routers_stand_beside_every_advice() -> None:
    advice = advise(partial(chat, requests=800), Question(scenario=Scenario(replicas=4), seeds=1))
    rows = [row.policy for row in advice.comparison.rows]
    assert set(OTHERS) <= set(rows)
    assert advice.policy not in OTHERS
    assert advice.comparison.reference not in OTHERS
    named = Question(policies=("min-ttft",), current="random")
    assert named.further == ["random", *OTHERS, "min-ttft"]


def test_another_routers_rule_that_is_plainly_better_is_named_and_not_taken() -> None:
    advice = advise(partial(chat, requests=800), Question(scenario=Scenario(replicas=4), seeds=1))
    gaps, name = advice.comparison.gaps, "dynamo"
    assert advice.choice is not None
    ends = gaps.ends.copy()
    at, own = gaps.policies.index(name), gaps.policies.index(advice.policy)
    for metric in JUDGED:
        value = getattr(advice.row, metric)
        ends[METRICS.index(metric), at, own] = [-0.1 * value, -0.11 * value, -0.09 * value]
    better = replace(advice.comparison, gaps=Gaps(gaps.policies, ends))
    own_names = [row.policy for row in better.rows if row.policy not in OTHERS]
    (found,) = elsewhere(better, advice.choice, own_names)
    assert found.evidence["policy"] == name
    assert not list(elsewhere(better, advice.choice, [*own_names, name]))


def test_documents_are_followed_and_a_small_cache_is_named() -> None:
    advice = advise(partial(documents, requests=1_500), ask(scenario=Scenario(replicas=8), seeds=1))
    comparison = advice.comparison
    # New tokens are very unequal, as only the first question about a document brings it: what waits is balanced, not a count.
    assert (advice.profile.unequal > UNEQUAL, advice.policy) == (True, BY_TOKENS)
    for metric in (METRIC, "ttft_mean_s"):
        assert comparison.gap("cache-aware", BY_TOKENS, metric).low > 0
    cost = comparison.gap("document", "cache-aware", METRIC)
    assert cost.low < 0 < cost.high
    assert cost.value < 0.1 * comparison.row("cache-aware").usd_per_million_requests_busiest
    assert {one.policy: one.by for one in advice.choice.rejected}["cache-aware"] == BY_TOKENS
    assert comparison.row("document").skew > 1.5
    assert advice.steps[-1].kind == "shared-prefixes"
    assert kinds(advice)["capacity"] == "warning"


def unequal(heavy: int, light: int) -> Workload:
    """Conversations that share nothing: ``heavy`` ones of 60 turns, and up to ``light`` of which the others have 3."""

    def prompts() -> Iterator[tuple[str, list[int]]]:
        for turn in range(60):
            for session in range(heavy if turn % 20 else light):
                yield f"s{session}", [1_000 * session + step for step in range(12 * turn + 70)]

    return made(prompts())


def test_unequal_conversations_are_not_called_documents() -> None:
    """Nothing is shared across sessions here.

    A few heavy ones make hashing them too uneven, wherever it places them.
    """
    advice = advise(unequal(10, 24), ask(scenario=Scenario(replicas=8), timed=False, objective="cost"))
    assert advice.profile.shared_others < 0.05
    assert advice.policy in {"session", "cache-aware"}
    uneven = advice.steps[-1].evidence
    assert (
        uneven["session_skew"] > uneven["cache_aware_skew"] + 0.3
    )  # cost alone was asked for: bindings recompute less


def test_where_hashing_happens_to_place_sessions_is_noise() -> None:
    """Three heavy conversations meet on a replica or do not: no reason to advise for or against hashing them."""
    ask_both = partial(
        compare, unequal(3, 24), ["session", "cache-aware"], scenario=Scenario(replicas=8), metric=METRIC, cost=ARTICLE
    )
    alone = [ask_both(seeds=(seed,)).row("session").usd_per_million_requests_busiest for seed in (1, 2)]
    assert alone[1] > 1.5 * alone[0]
    together = ask_both(seeds=6)
    assert together.winner is None
    assert together.row("session").usd_per_million_requests_busiest == pytest.approx(sum(alone) / 2, rel=0.3)


def test_one_that_is_good_by_coincidence_does_not_make_a_dear_one_good() -> None:
    """Three sessions in turns over three replicas.

    Hashing them is a third dearer than matching, whatever round robin costs.
    """
    tokens = [(f"s{at % 3}", [at % 3 * 7 + step for step in range(20)]) for at in range(30)]
    advice = advise(made(iter(tokens)), ask(scenario=Scenario(replicas=3)))
    costs = {row.policy: row.usd_per_million_requests_busiest for row in advice.comparison.rows}
    assert advice.policy != "round-robin"
    assert costs[advice.policy] <= 1.1 * min(cost for name, cost in costs.items() if name != "round-robin")


def test_two_policies_of_one_name_are_refused() -> None:
    for policies in ([lambda view: view.slots[0], lambda view: view.slots[-1]], [CacheAware(spill="mean")]):
        with pytest.raises(ConfigError, match=r"policies .*'(<lambda>|cache-aware)'"):
            advise(CHAT, Question(policies=policies))  # type: ignore[list-item]
    with pytest.raises(ConfigError, match=r"seeds .* 1, 1$"):
        Question(seeds=(1, 1))


@pytest.mark.parametrize("current", [None, "least-loaded"])
def test_a_single_replica_needs_no_router_and_saves_nothing(current: str | None) -> None:
    advice = advise(CHAT, ask(scenario=Scenario(replicas=1), seeds=1, current=current))
    assert (advice.policy, advice.saving) == ("none", None)
    assert [step.kind for step in advice.steps] == ["own-replicas", "two-or-more"]
    assert "no router" in advice_text(advice)


def test_a_shared_system_prompt_alone_needs_no_more_than_round_robin() -> None:
    head = list(range(1, 101))
    alone = made((f"s{number}", [*head, 10_000 + number]) for number in range(600))
    advice = advise(alone, ask(scenario=Scenario(replicas=4), seeds=2))
    assert advice.policy == "round-robin"
    assert advice.saving is None
    assert advice.profile.shared_head > 0.9
    assert len(advice.steps) == 3


def test_a_date_near_the_start_comes_before_any_routing() -> None:
    def prompts() -> Iterator[tuple[str, list[int]]]:
        for turn in range(10):
            for session in range(60):
                history = [1_000 * session + step for step in range(20 * turn + 20)]
                yield f"s{session}", [1, 2, 3, 9_000_000 + 100 * session + turn, *history]

    advice = advise(made(prompts()), ask(scenario=Scenario(replicas=4), seeds=1))
    first = advice.findings[0]
    assert (first.kind, first.severity) == ("broken-prefix", "fix first")
    assert first.evidence["tokens"] == 48
    assert advice.remedy is not None
    headline = answer(advice).headline
    assert (advice.policy in headline, headline.startswith(advice.policy)) == (True, False)  # the prompt comes first
    assert advice.remedy.recompute_ratio_fixed == first.evidence["floor_if_fixed"]
    assert advice.remedy.usd_per_million_requests is None  # no text, so nothing to mend and simulate
    assert first.evidence["floor_if_fixed"] < first.evidence["floor"] - 0.3  # type: ignore[operator]
    assert advice.policy in ("round-robin", "least-loaded")


def test_a_trace_too_small_to_tell_gets_the_simplest_policy() -> None:
    advice = advise(chat(1, requests=12), ask(scenario=Scenario(replicas=4), seeds=1), cost=ARTICLE)
    assert advice.policy == "round-robin"
    assert advice.comparison.winner is None
    assert kinds(advice)["noise"] == "note"


def test_several_routers_need_a_sticky_front_where_the_policy_keeps_state() -> None:
    tree = partial(chat, requests=1_000)
    scenario = Scenario(replicas=8, routers=4, capacity_tokens=None)
    advice = advise(tree, ask(scenario=scenario, seeds=1))
    finding = next(one for one in advice.findings if one.kind == "several-routers")
    # Rendezvous sessions agree without talking, so for this policy the front does not matter.
    assert advice.policy == "session"
    assert finding.severity == "note"
    assert finding.evidence["round_robin"] == pytest.approx(finding.evidence["sticky"], abs=0.01)


def test_a_log_with_reports_is_tested_first() -> None:
    truth = Scenario(policy="cache-aware", replicas=4)
    workload = chat(1, requests=700)
    log = simulate(workload, truth).log
    hits = log.in_order(log.column("hit")).tolist()

    def source() -> Iterator[Request]:
        return (one._replace(reported_hit_tokens=hits[at]) for at, one in enumerate(workload.requests()))

    logged = replace(workload, source=source)
    right = advise(logged, ask(scenario=Scenario(replicas=4), current="cache-aware", seeds=1))
    assert right.backtest is not None
    assert right.backtest.verdict == "agrees"
    wrong = advise(logged, ask(scenario=Scenario(replicas=4), current="random", seeds=1))
    assert kinds(wrong)["backtest"] == "warning"


def test_in_time_an_overloaded_fleet_is_named() -> None:
    busy = chat(1, requests=1_500, arrivals=Poisson(80.0))
    scenario = Scenario(replicas=2, engine=EngineModel(CostModel()))
    advice = advise(busy, ask(scenario=scenario, seeds=1))
    assert kinds(advice)["overload"] == "warning"
    assert advice.row is not None
    assert advice.row.queue_mean_s is not None


def test_an_empty_trace_gets_an_answer() -> None:
    advice = advise(chat(1, requests=0), ask(scenario=Scenario(replicas=2), seeds=1))
    assert advice.policy == "round-robin"
    json.loads(advice.to_json())


def test_where_the_hits_went_adds_up_and_what_the_router_does_not_know_is_told_apart() -> None:
    lossy = Scenario(replicas=4, observe=Events(loss=0.5), capacity_tokens=100_000)
    advice = advise(partial(chat, requests=800), ask(scenario=lossy, seeds=1))
    found = advice.finding("losses")
    assert found is not None
    shares = {name.removesuffix("_share"): value for name, value in found.evidence.items() if name.endswith("_share")}
    assert set(shares) == {"first_sight", "volatile", "elsewhere", "unknown", "evicted"}
    assert sum(map(float, shares.values())) == pytest.approx(advice.row.recompute_ratio)  # type: ignore[arg-type]
    assert all(value >= 0 for value in shares.values())  # type: ignore[operator]
    dollars = sum(
        float(str(value)) for name, value in found.evidence.items() if name.endswith("_usd_per_million_requests")
    )
    assert dollars == pytest.approx(advice.row.usd_per_million_requests)


@pytest.mark.parametrize("seeds", [1, 3])
def test_every_policy_s_lost_hits_add_up_in_tokens_and_dollars(seeds: int) -> None:
    """First sight, volatile, elsewhere, unknown to the router, evicted: to the token, whatever the number of runs."""
    scenario = Scenario(replicas=4, observe=Events(loss=0.5), capacity_tokens=20_000)
    policies = ("round-robin", "session", "cache-aware", "cache-aware:min_match_tokens=64", "linear-cost")
    found = compare(partial(chat, requests=400), policies, scenario=scenario, seeds=seeds, infinite=True)
    for row in found.rows:
        lost = found.lost(row.policy)
        assert list(lost) == ["first_sight", "volatile", "elsewhere", "unknown", "evicted"]
        assert sum(figures["tokens"] for figures in lost.values()) == row.recomputed_tokens
        assert min(figures["tokens"] for figures in lost.values()) >= 0
        for unit in ("usd_per_million_requests", "usd_per_million_requests_busiest"):
            assert sum(figures[unit] for figures in lost.values()) == pytest.approx(getattr(row, unit))
        assert sum(figures["share"] for figures in lost.values()) == pytest.approx(row.recompute_ratio)
        assert found.to_dict()["rows"][found.rows.index(row)]["losses"] == lost
    unknown = {row.policy: found.lost(row.policy)["unknown"]["tokens"] for row in found.rows}
    assert unknown["round-robin"] == unknown["session"] == 0  # they look at no cache: knowing more changes nothing
    assert unknown["linear-cost"] > 0
    assert all(found.lost(row.policy)["evicted"]["tokens"] > 0 for row in found.rows)


def test_a_router_that_sees_every_cache_has_nothing_unknown() -> None:
    seen = Scenario(replicas=4, observe=Perfect(), capacity_tokens=60_000)
    found = compare(partial(chat, requests=200), ("cache-aware", "linear-cost"), scenario=seen, seeds=1, infinite=True)
    assert [found.lost(row.policy)["unknown"]["tokens"] for row in found.rows] == [0, 0]


@pytest.mark.parametrize(("size", "named"), [(16, False), (1_536, True)])
def test_large_blocks_are_the_smallest_useful_prefix(size: int, *, named: bool) -> None:
    advice = advise(chat(1, requests=60, block_size=size), ask(scenario=Scenario(replicas=2), seeds=1))
    found = advice.finding("large-blocks")
    assert (found is not None) == named
    assert found is None or found.evidence == {"block_size": size}


def test_what_cannot_be_varied_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"sensitivity\b.*capacity, price, replicas.*'weather'"):
        Question(vary=("weather",))


def test_round_robin_is_not_advised_where_the_order_of_turns_alone_makes_it_good() -> None:
    def prompts() -> Iterator[tuple[str, list[int]]]:
        for turn in range(10):
            for session in range(60):  # a multiple of 4 replicas: each turn comes back to where the last one was
                yield f"s{session}", [1_000 * session + step for step in range(20 * turn + 20)]

    advice = advise(made(prompts()), ask(scenario=Scenario(replicas=4), seeds=1))
    row = advice.comparison.row("round-robin")
    assert row.recompute_ratio == pytest.approx(advice.profile.floor)
    assert kinds(advice)["coincidence"] == "warning"
    assert advice.policy.startswith(("session", "cache-aware"))


@pytest.mark.parametrize(("size", "severity"), [(128, "warning"), (16, None)])
def test_a_shared_head_shorter_than_a_block_is_named(tmp_path: Path, size: int, severity: str | None) -> None:
    """100 tokens of system prompt are nothing to an engine with blocks of 128."""
    system = {"role": "system", "content": "You help. " * 40}
    rows = [{"timestamp": at, "messages": [system, {"role": "user", "content": f"{at} " * 300}]} for at in range(60)]
    (tmp_path / "log.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    workload = read_trace(tmp_path / "log.jsonl", Options(block_size=size))
    assert workload.head_tokens == pytest.approx(103, abs=4)
    found = kinds(advise(workload, ask(scenario=Scenario(replicas=2), seeds=1)))
    assert found.get("head-shorter-than-a-block") == severity


def dated(date: str = "2026-11-29T10:{turn:02}:{chat:02}Z") -> Callable[[int, int], str]:
    """Return system prompts that begin with a date."""
    return lambda turn, chat: f"Now: {date.format(turn=turn, chat=chat)}. " + "Be polite. " * 120


def test_a_date_is_mended_in_other_processes_too_and_the_advice_is_that_on_the_mended_log(tmp_path: Path) -> None:
    log = chats(tmp_path / "log.jsonl", dated())
    question = ask(scenario=Scenario(replicas=2), seeds=(4, 5))
    advice = advise(log, question)
    assert advise(log, question, jobs=2).to_json() == advice.to_json()
    assert advice.remedy is not None
    mended = advise(chats(tmp_path / "mended.jsonl", dated("2026-11-29T10:00:00Z")), question)
    assert mended.remedy is None
    assert mended.row is not None
    assert advice.remedy.policy == mended.policy
    assert advice.remedy.recompute_ratio_fixed == pytest.approx(
        mended.row.recompute_ratio, abs=0.01
    )  # the mask is shorter


def test_a_date_that_the_text_shows_is_named_once(tmp_path: Path) -> None:
    advice = advise(chats(tmp_path / "log.jsonl", dated()), ask(scenario=Scenario(replicas=2), seeds=1))
    found = kinds(advice)
    assert found["volatile-head"] == "fix first"
    assert "broken-prefix" not in found
    remedy = advice.remedy
    assert remedy is not None
    assert remedy.recompute_ratio > 0.9
    assert remedy.recompute_ratio_fixed < 0.5
    assert remedy.policy is not None
    assert remedy.usd_per_million_requests is not None
    assert remedy.usd_per_million_requests > 0
    headline, first = answer(advice).headline, answer(advice).opening[0]
    assert (remedy.policy in headline, headline.startswith(remedy.policy)) == (True, False)  # the prompt comes first
    shares = (f" {percent(share)} " for share in (remedy.recompute_ratio, remedy.recompute_ratio_fixed))
    assert all(figure in first for figure in (*shares, f"${usd(remedy.usd_per_million_requests)} ", "[fix first]"))
    assert advice_text(advice).splitlines()[1] == first
    document = advice_dict(advice)["advice"]
    assert document["fix_first"]["recompute_ratio_fixed"] == remedy.recompute_ratio_fixed
    assert document["verdict"] == answer(advice).headline


@pytest.mark.parametrize("before", [0, 15])
def test_one_cause_is_named_once_wherever_it_stands(tmp_path: Path, before: int) -> None:
    """An id after a long common text breaks each turn in a block of its own place: still one thing to mend."""

    def system(turn: int, chat: int) -> str:
        number = f"{chat * 7_919 + turn * 104_729:08x}-1111-4111-8111-{chat:06x}{turn:06x}"
        return f"{'Answer politely. ' * before}Request {number}. {'Be brief. ' * 90}"

    advice = advise(chats(tmp_path / "log.jsonl", system), ask(scenario=Scenario(replicas=2), seeds=1))
    urgent = [finding for finding in advice.findings if finding.severity == "fix first"]
    assert [finding.kind for finding in urgent] == ["volatile-head"]
    assert urgent[0].evidence["what"] == "id"


def test_two_causes_are_both_named(tmp_path: Path) -> None:
    def system(turn: int, chat: int) -> str:
        shuffled = " ".join(f"tool{(at * (turn + 3) + chat) % 97}" for at in range(40))
        date = f"2026-11-29T10:{turn:02}:{chat:02}Z"
        return f"Now: {date}. {'Answer politely. ' * 20}{shuffled} {'Be brief. ' * 90}"

    advice = advise(chats(tmp_path / "log.jsonl", system, turns=5), ask(scenario=Scenario(replicas=2), seeds=1))
    kinds_found = {finding.kind for finding in advice.findings if finding.severity == "fix first"}
    assert kinds_found == {"volatile-head", "broken-prefix"}


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_log_is_read_once_whatever_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int) -> None:
    """Heads that change are masked as it is read, after the first rows have been looked at."""
    count = 0

    def counted(path: Path, reading: LogPass) -> Iterator[tuple[int, str]]:
        nonlocal count
        for line in read_lines(path, reading):
            count += 1
            yield line

    monkeypatch.setattr(lines, "read_lines", counted)
    streamed = chats(tmp_path / "log.jsonl", dated())
    question = ask(scenario=Scenario(replicas=4), seeds=2, vary=("replicas",), current="random")
    assert advise(streamed, question, jobs=jobs).remedy is not None
    looked_at = 80  # the first 500, of 80
    assert count == looked_at + 80


def test_what_was_inferred_is_said_in_the_report(tmp_path: Path) -> None:
    rows = [{"timestamp": at, "messages": [{"role": "user", "content": f"{at} " * 300}]} for at in range(30)]
    (tmp_path / "log.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    advice = advise(read_trace(tmp_path / "log.jsonl"), ask(scenario=Scenario(replicas=2), seeds=1))
    log = read_trace(tmp_path / "log.jsonl")
    assert log.inferred_sessions
    assert set(log.notes) <= set(advice.comparison.notes)
    assert all(f"\n  {note}\n" in advice_text(advice) for note in log.notes)
