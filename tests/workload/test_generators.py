"""Laws of the article's workloads, through the public door."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from prefixroute.errors import ConfigError, TraceError
from prefixroute.sim.replica import ReplicaCache
from prefixroute.workload import (
    GENERATORS,
    AgentsShape,
    Arrivals,
    Bursty,
    ChatShape,
    DocumentsShape,
    Even,
    FanOutShape,
    FewShotShape,
    Poisson,
    Recorded,
    Request,
    TenantsShape,
    Workload,
    agents,
    chat,
    documents,
    fan_out,
    few_shot,
    floor,
    measure,
    read_shares,
    tenants,
)

CAPACITIES = (1_000, 20_000, 100_000, 1_000_000)
every_generator = pytest.mark.parametrize("generator", GENERATORS.values(), ids=list(GENERATORS))


@every_generator
def test_same_seed_same_requests_and_each_reading_starts_again(generator: Callable[..., Workload]) -> None:
    workload = generator(7, requests=1_200)
    first = list(workload.requests())
    assert first == list(workload.requests()) == list(generator(7, requests=1_200).requests())
    assert first != list(generator(8, requests=1_200).requests())


@every_generator
def test_a_longer_run_begins_with_the_shorter_one(generator: Callable[..., Workload]) -> None:
    longer = generator(1, requests=5_000).head(1_500)
    assert list(generator(1, requests=1_500).requests()) == list(longer.requests())


@every_generator
@pytest.mark.parametrize("block_size", [1, 16, 512])
def test_every_request_is_well_formed(generator: Callable[..., Workload], block_size: int) -> None:
    last = 0.0
    served: set[int] = set()
    for request in generator(3, requests=60 if block_size == 1 else 500, block_size=block_size).requests():
        hashes = request.prompt.array.tolist()
        known = [block in served for block in hashes]
        assert known == sorted(known, reverse=True)  # else a block is known and the one before it is not
        served.update(request.context.array.tolist())
        assert request.arrival_s >= last
        last = request.arrival_s
        assert len(request.prompt) == request.prompt_tokens // block_size
        assert len(request.context) == (request.prompt_tokens + request.output_tokens - 1) // block_size
        assert (request.context.array[: len(request.prompt)] == request.prompt.array).all()
        assert request.prompt.token_count == request.prompt_tokens
        assert request.prompt.block_size == request.context.block_size == block_size


def test_a_chat_grows_by_600_tokens_a_turn_for_12_turns() -> None:
    turns: dict[str | None, list[Request]] = {}
    for request in chat(1, requests=20_000).requests():
        turns.setdefault(request.session, []).append(request)
    finished = [conversation for conversation in turns.values() if len(conversation) == 12]
    assert len(finished) > 1_000
    assert max(len(conversation) for conversation in turns.values()) == 12
    for conversation in finished[:50]:
        assert [request.prompt_tokens for request in conversation] == [2_200 + 600 * turn for turn in range(12)]
        for before, after in itertools.pairwise(conversation):
            assert (after.prompt.array[: len(before.context)] == before.context.array).all()


def test_conversations_share_the_system_prompt_and_nothing_after() -> None:
    requests = list(chat(1, requests=2_000).requests())
    system = requests[0].prompt.array[:125]
    assert all((request.prompt.array[:125] == system).all() for request in requests)
    owners = Counter((request.session, block) for request in requests for block in request.prompt.array[125:].tolist())
    assert len({block for _, block in owners}) == len(owners)


def test_another_seed_is_another_fleet_of_names_and_blocks() -> None:
    first, second = ([*generator(seed, requests=300).requests()] for generator, seed in ((chat, 1), (chat, 2)))
    assert not {request.session for request in first} & {request.session for request in second}
    assert not set(first[0].prompt.array.tolist()) & set(second[0].prompt.array.tolist())


def test_floor_of_chat_is_3_857_percent_in_blocks_of_16() -> None:
    """Every other answer ends at the end of a block, which is recomputed.

    Its last token was sampled and never computed.
    """
    few_slots = ChatShape(slots=5)
    assert floor(chat(1, requests=4_000, shape=few_slots)) == pytest.approx(0.03857, abs=0.0005)
    assert floor(chat(1, requests=1_000, shape=few_slots, block_size=1)) == pytest.approx(0.03636, abs=0.001)


def test_documents_follow_zipf_and_share_a_document_of_1000_blocks() -> None:
    requests = list(documents(1, requests=10_000).requests())
    counts = Counter(request.document for request in requests)
    harmonic = sum(1 / rank for rank in range(1, 301))
    assert counts.most_common(1)[0][1] / len(requests) == pytest.approx(1 / harmonic, rel=0.08)
    by_document = {request.document: request.prompt.array[:1_000].tobytes() for request in requests}
    assert len(set(by_document.values())) == len(by_document) == 300
    assert all(request.prompt.array[:1_000].tobytes() == by_document[request.document] for request in requests)
    assert len({request.prompt.array[1_000:].tobytes() for request in requests}) == len(requests)
    assert floor(documents(1, requests=3_000)) < 0.11


def test_entries_are_what_the_article_keeps() -> None:
    for request in chat(1, requests=300).requests():
        assert request.entry == (request.session, request.prompt_tokens + 400, 2_000)
    for request in documents(1, requests=300).requests():
        assert request.entry == (request.document, 16_000, 0)


@pytest.mark.parametrize("arrivals", [Even(50), Poisson(50), Bursty(50, cv=3)])
def test_arrivals_keep_their_rate(arrivals: Arrivals) -> None:
    times = [request.arrival_s for request in chat(1, requests=20_000, arrivals=arrivals).requests()]
    assert times[-1] == pytest.approx(400, rel=0.15)
    assert all(before <= after for before, after in itertools.pairwise(times))


def test_bursts_have_the_spread_asked_for() -> None:
    times = [request.arrival_s for request in chat(1, requests=40_000, arrivals=Bursty(10, cv=4)).requests()]
    gaps = np.diff(times)
    assert gaps.std() / gaps.mean() == pytest.approx(4, rel=0.15)


def test_recorded_arrivals_start_again() -> None:
    times = [request.arrival_s for request in chat(1, requests=5, arrivals=Recorded([3.0, 4.0, 7.0])).requests()]
    assert times == [0.0, 1.0, 4.0, 6.0, 7.0]


def test_arrivals_do_not_move_anything_else() -> None:
    even, poisson = (
        [request[1:] for request in chat(1, requests=1_000, arrivals=arrivals).requests()]
        for arrivals in (Even(5), Poisson(5))
    )
    assert even == poisson


@every_generator
def test_no_cache_recomputes_less_than_the_floor_and_more_room_never_hurts(generator: Callable[..., Workload]) -> None:
    workload = generator(5, requests=600)
    curve = measure(workload).hit_ratios_of_cache(np.array(CAPACITIES))
    assert (np.diff(curve) >= 0).all()
    assert curve[-1] <= 1 - floor(workload) + 1e-12
    for capacity, most in zip(CAPACITIES, curve, strict=True):
        cache = ReplicaCache(capacity_tokens=capacity, block_size=workload.block_size)
        hits = sum(cache.serve(request.prompt, request.context) for request in workload.requests())
        tokens = sum(request.prompt_tokens for request in workload.requests())
        assert 1 - hits / tokens >= floor(workload) - 1e-12
        # The engine's last-token rule and the room that the request itself takes cost a little of the curve.
        assert most - 0.06 <= hits / tokens <= most + 1e-12 or capacity < 50_000


@every_generator
def test_a_sample_keeps_sessions_whole(generator: Callable[..., Workload]) -> None:
    workload = generator(1, requests=4_000)
    everything = Counter(request.session for request in workload.requests())
    requests = list(workload.sampled(0.3, seed=2).scaled(3).requests())
    sample = Counter(request.session for request in requests)
    assert all(before.arrival_s <= after.arrival_s for before, after in itertools.pairwise(requests))
    assert all(session is None or everything[session] == count for session, count in sample.items())
    assert sum(sample.values()) == pytest.approx(1_200, rel=0.25)
    assert sample == Counter(request.session for request in workload.sampled(0.3, seed=2).requests())


def test_scaling_time_scales_arrivals_only() -> None:
    workload = chat(1, requests=100)
    for before, after in zip(workload.requests(), workload.scaled(4).requests(), strict=True):
        assert after.arrival_s == before.arrival_s / 4
        assert after[1:] == before[1:]


def test_a_rate_that_nobody_gave_is_an_assumption() -> None:
    rate = chat(1).assumptions[-1]
    assert (rate.name, rate.value, rate.assumed) == ("requests_per_day", 1_000_000, True)
    assert "requests_per_day" not in {item.name for item in chat(1, arrivals=Even()).assumptions}


def test_own_shapes_are_not_marked_assumed() -> None:
    sizes = {item.name: item for item in chat(1, shape=ChatShape(turns=3)).assumptions}
    assert not sizes["chat_turns"].assumed
    assert sizes["chat_turns"].value == 3
    assert sizes["chat_system_tokens"].assumed


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: ChatShape(turns=0), "chat turns .* 1 .*0"),
        (lambda: ChatShape(system_tokens=-1), "chat system_tokens .* 0 .*-1"),
        (lambda: DocumentsShape(documents=0), "documents documents .* 1 .*0"),
        (lambda: DocumentsShape(zipf=-1), "documents zipf .* 0 .*-1"),
        (lambda: DocumentsShape(documents=1.5), r"documents documents .*1\.5"),  # type: ignore[arg-type]
        (lambda: AgentsShape(spawn=1.5), r"agents spawn .*0 to 1.*1\.5"),
        (lambda: FewShotShape(levels=0), "few_shot levels .* 1 .*0"),
        (lambda: FanOutShape(copies=0), "fan_out copies .* 1 .*0"),
        (lambda: ChatShape(turns=10**9), "chat turns .*1 to 5000000.*1000000000"),
        (lambda: DocumentsShape(documents=10**8), "documents documents .*1 to 5000000.*100000000"),
        (lambda: FewShotShape(levels=1000), "few_shot levels .*1 to 64.*1000"),
        (lambda: FanOutShape(prompt_tokens=2**39), f"fan_out prompt_tokens .*1 to {2**38}.*{2**39}"),
        (lambda: chat(shape=ChatShape(turns=5 * 10**6)), "chat: .* 4194304 "),
        (lambda: tenants(shape=TenantsShape(turns=5 * 10**6)), "tenants: .* 4194304 "),
        (lambda: agents(shape=AgentsShape(steps=5 * 10**6)), "agents: .* 4194304 "),
        (lambda: few_shot(shape=FewShotShape(example_tokens=10**9)), "few_shot: .* 4194304 "),
        (lambda: fan_out(shape=FanOutShape(prompt_tokens=10**9)), "fan_out: .* 4194304 "),
        (lambda: documents(shape=DocumentsShape(documents=10**6)), "documents: .* 536870912 "),
        (lambda: agents(shape=AgentsShape(tasks=10**6)), "agents: .* 536870912 "),
        (lambda: tenants(shape=TenantsShape(tenants=5 * 10**6)), "tenants: .* 536870912 "),
        (lambda: chat(requests=10**7, shape=ChatShape(slots=10**6)), "chat: .* 536870912 "),
        (lambda: few_shot(requests=10**7, shape=FewShotShape(levels=9)), "few_shot: .* 536870912 "),
        (lambda: chat(requests=-5), "requests .* 0.*-5"),
        (lambda: chat(block_size=0), "block_size .* 1 .*65536.* 0"),
        (lambda: TenantsShape(shares=(1.0, -1.0)), "tenants shares .* 0 "),
        (lambda: next(chat(-1).requests()), "seed .* 0 .*-1"),
        (lambda: Poisson(0), r"rate_per_s .*1e-09 .*1e\+09.* 0"),
        (lambda: Bursty(1, cv=float("inf")), "cv .*inf"),
        (lambda: Even(1e-300), "rate_per_s .*1e-09 .*1e-300"),
        (lambda: chat().scaled(1e-300), "speed .*1e-09 .*1e-300"),
        (lambda: Recorded([1.0]), "2 .* 1$"),
        (lambda: Recorded([1.0, 0.5, 2.0]), "back"),
        (lambda: chat().sampled(0), "share .* 0 .*1.* 0"),
        (lambda: chat().scaled(-1), r"speed .*1e-09 .*1e\+09.*-1"),
        (lambda: chat().head(-1), "head .* 0 .*-1"),
    ],
)
def test_impossible_settings_are_refused(call: Callable[[], object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        call()


def test_agents_fork_a_tree_that_one_session_key_does_not_describe() -> None:
    requests = list(agents(1, requests=6_000).requests())
    by_task: dict[str | None, list[Request]] = {}
    for request in requests:
        by_task.setdefault(request.session, []).append(request)
    contexts = {request.context.array.tobytes() for request in requests}
    subs = [request for request in requests if request.attrs["agent"] != "0"]
    assert 0.2 < len(subs) / len(requests) < 0.6
    # Every agent's first step goes on from a context that another agent of the task has just left.
    system_and_group = (4_000 + 6_000) // 16
    for request in subs[:200]:
        step = (request.prompt_tokens - 800) // 16
        assert step > system_and_group
        assert any(
            before.context.array.tobytes() == request.prompt.array[: len(before.context)].tobytes()
            for before in by_task[request.session]
            if before.context.token_count == request.prompt_tokens - 800 - 1
        )
    heads = {request.prompt.array[:system_and_group].tobytes() for request in requests}
    assert len(heads) == 8
    assert len({head[: 8 * 250] for head in heads}) == 1
    assert len(contexts) == len(requests)


def test_few_shot_prompts_share_paths_of_a_tree() -> None:
    requests = list(few_shot(1, requests=4_000).requests())
    per_level = [len({request.prompt.array[:depth].tobytes() for request in requests}) for depth in (62, 156, 250, 343)]
    assert per_level[0] == 1
    assert per_level[1] == 20
    assert 20 < per_level[2] <= 80
    assert 80 < per_level[3] <= 320
    assert {request.session for request in requests} == {None}


def test_tenants_have_their_shares_and_share_nothing() -> None:
    requests = list(tenants(1, requests=4_000, shape=TenantsShape(shares=(70, 20, 10))).requests())
    counts = Counter(request.tenant for request in requests)
    assert [counts[f"tenant-{at}"] / 4_000 for at in range(3)] == pytest.approx([0.7, 0.2, 0.1], abs=0.03)
    blocks = {name: {b for r in requests if r.tenant == name for b in r.prompt.array.tolist()} for name in counts}
    assert not blocks["tenant-0"] & blocks["tenant-1"]
    zipf = Counter(request.tenant for request in tenants(1, requests=8_000).requests())
    assert zipf["tenant-0"] / zipf["tenant-9"] == pytest.approx(10, rel=0.3)


def test_fan_out_sends_identical_prompts_at_one_instant() -> None:
    requests = list(fan_out(1, requests=803).requests())
    groups: dict[str | None, list[Request]] = {}
    for request in requests:
        groups.setdefault(request.document, []).append(request)
    assert sorted({len(group) for group in groups.values()}) == [3, 8]
    for group in groups.values():
        assert len({(request.arrival_s, request.prompt) for request in group}) == 1
        assert len({request.context for request in group}) == len(group)
    assert requests[-1].arrival_s == pytest.approx(100 * 8 / (1e6 / 86_400))


@pytest.mark.parametrize(
    ("model", "clients", "busiest", "top_5", "for_90"),
    [
        ("m-large", 162, 16, 43, 39), ("m-mid", 109, 52, 67, 22), ("m-small", 43, 30, 77, 9),
        ("deepseek-r1", 73, 29, 53, 25), ("mm-image", 35, 14, 56, 15),
    ],
)  # fmt: skip
def test_tenant_skew_of_servegen(
    *, model: str, clients: int, busiest: int, top_5: int, for_90: int, traces_dir: Path
) -> None:
    rates = np.array(read_shares(traces_dir / "servegen_client_rates.csv.gz", model))
    shares = np.cumsum(rates) / rates.sum() * 100
    assert len(rates) == clients
    assert shares[0] == pytest.approx(busiest, abs=0.5)
    assert shares[4] == pytest.approx(top_5, abs=0.6)
    assert int(np.searchsorted(shares, 90)) + 1 == for_90
    assert len(TenantsShape(shares=tuple(rates.tolist())).assumptions) == 8


def test_a_model_that_is_not_in_the_table(tmp_path: Path) -> None:
    (tmp_path / "rates.csv").write_text("model,mean_rate\na,1\nb,x\n")
    assert read_shares(tmp_path / "rates.csv", "a") == (1.0,)
    with pytest.raises(TraceError, match=r"rates\.csv: .*'c'"):
        read_shares(tmp_path / "rates.csv", "c")
    with pytest.raises(TraceError, match=r"rates\.csv:3: mean_rate .*0.*'x'"):
        read_shares(tmp_path / "rates.csv", "b")
