"""The replay harness against fake engines: what was sent, what was measured, and what the simulator says of it."""

from __future__ import annotations

import asyncio
import io
import json
import math
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st

from prefixroute import ConfigError, hash_blocks
from prefixroute.replay import (
    Figures,
    PromptMaker,
    ReplayRow,
    ReplaySettings,
    RequestSlo,
    compared,
    differences,
    predict,
    replay,
    write_rows,
)
from prefixroute.replay.bodies import Bodies, TokenText
from prefixroute.replay.harness import parts_of
from prefixroute.replay.stream import StreamedAnswer
from prefixroute.report.replays import MEASURED
from prefixroute.sim import EngineModel, Scenario
from prefixroute.testing import Behaviour, EngineSettings, FakeEngine, PlainCost
from prefixroute.workload import ChatShape, Even, Workload, chat

SHAPE = ChatShape(system_tokens=100, user_tokens=60, answer_tokens=20, turns=6, slots=8)
SLOW = Behaviour(prefill_s_per_1k=0.05, decode_s=0.002)


def small_chat(requests: int = 60) -> Workload:
    return chat(3, requests=requests, arrivals=Even(50.0), shape=SHAPE)


@pytest.fixture(scope="module")
def engines() -> Iterator[list[FakeEngine]]:
    engines = [FakeEngine(EngineSettings(capacity_tokens=40_000), SLOW) for _ in range(2)]
    yield engines
    for engine in engines:
        engine.kill()


def settings(engines: list[FakeEngine], **options: Any) -> ReplaySettings:
    urls = tuple(engine.url for engine in engines)
    return ReplaySettings(endpoints=urls, capacity_tokens=40_000, dictate=True, timeout_s=60.0, **options)


# -- prompts -----------------------------------------------------------------------------------------------------


def test_made_up_prompts_share_tokens_exactly_where_they_share_blocks() -> None:
    workload = small_chat(200)
    maker = PromptMaker(workload.block_size)
    by_hash: dict[int, tuple[int, ...]] = {}
    by_tokens: dict[tuple[int, ...], int] = {}
    size = workload.block_size
    for number, request in enumerate(workload.requests()):
        made = maker.make(request, number)
        assert len(made.tokens) == request.prompt_tokens
        assert len(made.output) == request.output_tokens
        whole = np.concatenate([made.tokens, made.output])
        rehashed = hash_blocks(whole[: len(request.context) * size], size)
        for position, block in enumerate(request.context.array.tolist()):
            chain = tuple(rehashed.array.tolist()[: position + 1])[-1:]
            assert by_hash.setdefault(block, chain) == chain
            assert by_tokens.setdefault(chain, block) == block


def test_tokens_are_of_the_vocabulary() -> None:
    made = PromptMaker(16, first_token=5, vocabulary=7).make(next(iter(small_chat().requests())), 0)
    assert made.tokens.min() >= 5
    assert made.tokens.max() < 12
    for wrong in ({"vocabulary": 1}, {"first_token": -1}):
        with pytest.raises(ConfigError):
            PromptMaker(16, **wrong)


# -- measuring ---------------------------------------------------------------------------------------------------


def test_policies_are_measured_on_the_same_requests_from_empty_caches(engines: list[FakeEngine]) -> None:
    workload = small_chat(60)
    told: list[float] = []
    chosen = settings(engines, policies=("round-robin", "session"), parts=2, warmup=5, slo=RequestSlo(ttft_s=10.0))
    found = asyncio.run(replay(workload, chosen, progress=lambda share, _: told.append(share)))
    assert len(found.rows) == 120
    assert [row.error for row in found.rows] == [""] * 120
    assert found.reset
    assert not found.interrupted
    assert told[-1] == 1.0
    robin, session = found.figures
    assert (robin.requests, session.requests) == (50, 50)
    assert robin.good_share == 1.0
    assert session.recompute_ratio is not None
    assert robin.recompute_ratio is not None
    assert session.recompute_ratio < robin.recompute_ratio
    # The router's own prediction is what the engines report, but where a turn comes before the last one was answered.
    reported, believed = (
        sum(getattr(row, name) or 0 for row in found.rows) for name in ("cached_tokens", "predicted_tokens")
    )
    assert reported == pytest.approx(believed, rel=0.15)
    less = next(one for one in found.differences if one.figure == "recompute_ratio")
    assert (less.policy, less.pairs) == ("session", 50)
    assert less.value == pytest.approx(session.recompute_ratio - robin.recompute_ratio)
    assert less.low <= less.value <= less.high


def test_the_simulator_predicts_what_fake_engines_do(engines: list[FakeEngine]) -> None:
    workload = small_chat(60)
    chosen = settings(engines, policies=("session",))
    measured = asyncio.run(replay(workload, chosen))
    predicted = predict(workload, chosen, Scenario(engine=EngineModel(PlainCost(SLOW.prefill_s_per_1k, SLOW.decode_s))))
    rows = compared(measured, predicted)
    assert rows[0]["policy"] == "session"
    ratio = rows[0]["predicted_over_measured"]["recompute_ratio"]
    assert ratio == pytest.approx(1.0, abs=0.15)  # a busy machine answers some turns after the next has come


def test_an_engine_that_fails_costs_its_requests_and_is_counted(engines: list[FakeEngine]) -> None:
    app = engines[0].app
    app.behaviour = app.behaviour.changed({"status": 503})
    try:
        found = asyncio.run(replay(small_chat(20), settings(engines, policies=("round-robin",))))
    finally:
        app.behaviour = app.behaviour.changed({"status": -1})
    errors = [row.error for row in found.rows if row.error]
    assert set(errors) == {"status 503"}
    assert found.figures[0].errors == len(errors) == 10


async def test_cancelling_gives_what_was_measured(engines: list[FakeEngine]) -> None:
    started = asyncio.Event()
    workload = small_chat(60).scaled(0.05)
    task = asyncio.create_task(
        replay(workload, settings(engines), progress=lambda share, _: share > 0.1 and started.set())
    )
    await started.wait()
    task.cancel()
    found = await task
    assert found.interrupted
    assert 0 < len(found.rows) < 60
    sent = max(row.number for row in found.rows) + 1
    assert predict(workload, settings(engines), measured=found) == predict(workload.head(sent), settings(engines))


def test_parts_for_which_there_is_no_time_are_left_out_under_every_policy(engines: list[FakeEngine]) -> None:
    workload, asked = small_chat(60), iter((False, True))
    chosen = settings(engines, policies=("round-robin", "session"), parts=4)
    found = asyncio.run(replay(workload, chosen, time_is_up=lambda: next(asked)))
    assert (found.parts, found.interrupted) == (2, False)
    assert [one.requests for one in found.figures] == [30, 30]
    assert {row.part for row in found.rows} == {0, 1}
    predicted = predict(workload, chosen, measured=found)
    assert predicted == predict(workload.head(30), replace(chosen, parts=2))
    whole = asyncio.run(replay(small_chat(8), replace(chosen, parts=1), time_is_up=lambda: True))
    assert (whole.parts, len(whole.rows)) == (1, 16)  # the first part is always sent


def test_an_endpoint_that_does_not_answer_is_named() -> None:
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1:1"):
        asyncio.run(replay(small_chat(3), ReplaySettings(endpoints=("http://127.0.0.1:1",))))


def test_an_endpoint_that_is_no_url_is_called_that() -> None:
    with pytest.raises(ConfigError, match=r"URL .*engine-1"):
        asyncio.run(replay(small_chat(3), ReplaySettings(endpoints=("engine-1",))))


def test_settings_are_checked() -> None:
    for wrong in (
        {"endpoints": ()},
        {"endpoints": "http://h"},
        {"endpoints": ("a", "a")},
        {"policies": ()},
        {"speed": 0},
        {"parts": 0},
        {"warmup": -1},
    ):
        with pytest.raises(ConfigError):
            ReplaySettings(**({"endpoints": ("http://h",)} | wrong))
    with pytest.raises(ConfigError, match="parts"):
        parts_of([], 1)
    assert "secret" not in repr(ReplaySettings(endpoints=("http://h",), api_key="secret"))


def test_requests_are_sent_when_due_though_nothing_is_answered() -> None:
    """Open loop: the first answer ends after all requests are sent."""
    slow = Behaviour(prefill_s_per_1k=0.0, decode_s=0.05)
    with FakeEngine(EngineSettings(), slow) as engine:
        found = asyncio.run(replay(small_chat(20).scaled(2.0), settings([engine], policies=("random",), reset=False)))
        assert [row.error for row in found.rows] == [""] * 20
        assert max(row.sent_s for row in found.rows) < min(row.done_s or 0.0 for row in found.rows)
        last = max(found.rows, key=lambda row: row.due_s)
        assert last.ttft_s == (last.first_s or 0.0) - last.due_s


def test_thousands_of_requests_while_one_engine_fails_and_another_dies() -> None:
    """Every request has a row; failures cost their requests alone; both policies answer the same requests otherwise."""
    count = 1_200
    workload = chat(5, requests=count, arrivals=Even(1_000.0), shape=SHAPE)
    fast = [
        FakeEngine(EngineSettings(capacity_tokens=40_000), Behaviour(prefill_s_per_1k=0, decode_s=0)) for _ in range(3)
    ]
    broken: list[str] = []

    def fail(share: float, _: str) -> None:
        if share > 0.6 and not broken:  # within the second policy
            broken.append("status")
            fast[0].app.behaviour = fast[0].app.behaviour.changed({"status": 500})
        elif share > 0.8 and len(broken) == 1:
            broken.append("death")
            threading.Thread(target=fast[1].kill).start()

    try:
        chosen = settings(fast, policies=("round-robin", "random"), parts=1, warmup=100, slo=RequestSlo(ttft_s=30.0))
        found = asyncio.run(replay(workload, chosen, progress=fail))
    finally:
        for engine in fast:
            engine.kill()
    assert len(broken) == 2
    assert sorted((row.policy, row.number) for row in found.rows) == [
        (policy, number) for policy in ("random", "round-robin") for number in range(count)
    ]
    first, second = found.figures
    assert (first.requests, first.errors) == (count - 100, 0)
    assert first.skew == pytest.approx(1.0, abs=0.01)
    errors = Counter(row.error for row in found.rows if row.error)
    assert errors["status 500"] > 20
    assert second.errors == errors.total() > errors["status 500"]
    assert {row.replica for row in found.rows if row.error} == {fast[0].url, fast[1].url}
    assert all(one.pairs == second.requests - second.errors for one in found.differences if one.figure == "ttft_s")
    assert second.good_share == pytest.approx(1 - second.errors / second.requests)


def test_bodies_are_json_with_the_tokens_of_the_prompt() -> None:
    workload = small_chat(30)
    requests, maker = list(workload.requests()), PromptMaker(workload.block_size)
    bodies = Bodies(requests, maker, dictate=True, model=None, default_model="m", ahead_bytes=20_000)
    kept = bodies.prepare(range(10, 30))
    assert 0 < kept < 20
    assert bodies.prepare(range(10, 30)) == kept
    for number in (0, 10, 29):
        body, prompt = json.loads(bodies[number].body), maker.make(requests[number], number)
        assert body["prompt"] == prompt.tokens.tolist()
        assert body["output_token_ids"] == prompt.output.tolist()
        assert (body["model"], body["max_tokens"]) == ("m", requests[number].output_tokens)
    named = Bodies(requests, maker, dictate=False, model="other", default_model="m")
    assert json.loads(named[3].body)["model"] == "other"
    assert "output_token_ids" not in json.loads(named[3].body)


@pytest.mark.parametrize(("first", "vocabulary"), [(0, 2), (5, 7), (1_000, 30_000), (99_990, 20)])
def test_token_ids_of_any_vocabulary_become_a_json_array(first: int, vocabulary: int) -> None:
    tokens = np.array([first, first + vocabulary - 1, first + 1], np.uint32)
    assert json.loads(TokenText(first, vocabulary).array(tokens)) == tokens.tolist()


# -- figures -----------------------------------------------------------------------------------------------------


def row(number: int, policy: str = "a", **changed: Any) -> ReplayRow:
    one = ReplayRow(
        policy=policy,
        part=0,
        number=number,
        session=f"s{number % 5}",
        replica=f"r{number % 2}",
        due_s=float(number),
        sent_s=number + 0.5,
        first_s=number + 1.0,
        done_s=number + 3.0,
        prompt_tokens=100,
        output_tokens=5,
        cached_tokens=40,
        predicted_tokens=30,
        in_flight=0,
        warm=False,
        error="",
    )
    return replace(one, **changed)


def test_times_count_from_when_a_request_was_due() -> None:
    one = row(3)
    assert (one.ttft_s, one.tpot_s, one.total_s) == (1.0, 0.5, 3.0)
    assert math.isnan(row(3, output_tokens=1).tpot_s)
    assert math.isnan(row(3, first_s=None, error="x").ttft_s)


def test_figures_of_known_rows() -> None:
    rows = [row(number) for number in range(10)]
    rows += [row(10, error="status 500", first_s=None, done_s=None), row(11, warm=True, cached_tokens=0)]
    found = Figures.of("a", rows, 2, RequestSlo(ttft_s=1.0, tpot_s=0.4))
    assert (found.requests, found.errors) == (11, 1)
    assert found.ttft_mean_s == found.ttft_p99_s == 1.0
    assert found.recompute_ratio == pytest.approx(0.6)
    assert found.skew == pytest.approx(2 * 6 / 11)
    assert (found.goodput_rps, found.good_share) == (0.0, 0.0)
    assert Figures.of("a", rows, 2, RequestSlo(ttft_s=1.0)).goodput_rps == pytest.approx(1.0)
    assert found.late_max_s == 0.5
    empty = Figures.of("a", [], 2, RequestSlo())
    assert empty.to_dict()["ttft_mean_s"] is None


def test_differences_are_paired_and_have_intervals() -> None:
    rows = [row(number) for number in range(50)]
    rows += [row(number, "b", first_s=number + 1.2, cached_tokens=60) for number in range(40)]
    rows += [row(number, "c") for number in range(50)]
    found = {(one.policy, one.figure): one for one in differences(rows, ["a", "b", "c"])}
    faster = found["b", "ttft_s"]
    assert (faster.value, faster.low, faster.high) == pytest.approx((0.2, 0.2, 0.2))
    assert (faster.pairs, faster.is_noise) == (40, False)
    assert found["b", "recompute_ratio"].value == pytest.approx(-0.2)
    assert found["c", "ttft_s"].is_noise


def test_one_session_alone_has_no_interval() -> None:
    rows = [row(number, policy, session="s", cached_tokens=10 * number) for number in range(9) for policy in "ab"]
    for one in differences(rows, ["a", "b"]):
        assert one.is_noise
        assert one.to_dict()["low"] is one.to_dict()["high"] is None
        assert json.loads(json.dumps(one.to_dict(), allow_nan=False))["pairs"] == 9


def test_rows_can_be_fitted() -> None:
    out = io.StringIO()
    write_rows([row(1), row(2, first_s=None)], out)
    head, first, second = out.getvalue().splitlines()
    assert {"prompt_tokens", "cached_tokens", "seconds", "in_flight"} <= set(head.split(","))
    assert first.endswith(",0.5")
    assert second.endswith(",")


def test_what_no_request_has_under_both_policies_is_in_no_difference() -> None:
    rows = [row(number, policy=policy) for number in range(3) for policy in "ab"]
    rows += [row(number, policy="c", error="status 500", first_s=None) for number in range(3)]
    found = differences([replace(one, cached_tokens=None) for one in rows], "abc")
    assert {(one.policy, one.figure) for one in found} == {("b", figure) for figure in ("ttft_s", "tpot_s", "total_s")}
    nothing = Figures.of("c", [one for one in rows if one.policy == "c"], 2, RequestSlo())
    cells = {column.title: column.cell(nothing) for column in MEASURED}
    assert (cells["TTFT mean ms"], cells["p99 ms"]) == ("-", "-")


def stream(*events: Any, end: str = "\n", before: str = "") -> bytes:
    """Return an answer of server-sent events."""
    texts = [event if isinstance(event, str) else json.dumps(event) for event in (*events, "[DONE]")]
    return (before + "".join(f"data: {text}{end * 2}" for text in texts)).encode()


async def replayed(answer: bytes) -> Any:
    """Return the replay of four requests that an engine answers with these bytes each."""

    async def complete(request: web.Request) -> web.Response:
        del request
        return web.Response(body=answer, content_type="text/event-stream")

    async def models(request: web.Request) -> web.Response:
        del request
        return web.json_response({"data": [{"id": "m"}]})

    app = web.Application()
    app.router.add_post("/v1/completions", complete)
    app.router.add_get("/v1/models", models)
    async with TestServer(app) as server:
        settings = ReplaySettings(endpoints=(str(server.make_url("")),), reset=False)
        return await replay(small_chat(4), settings)


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens_details": 5},
        {"prompt_tokens_details": {"cached_tokens": "many"}},
        {"prompt_tokens_details": {"cached_tokens": -1}},
        {"prompt_tokens_details": {"cached_tokens": 1 << 80}},
        {"prompt_tokens_details": {"cached_tokens": True}, "completion_tokens": "x", "prompt_tokens": []},
        [],
        None,
    ],
    ids=str,
)
async def test_an_engine_that_counts_oddly_costs_its_counts_alone(usage: Any) -> None:
    found = await replayed(stream({"choices": [{"text": "a"}]}, {"choices": [], "usage": usage}))
    assert [row.error for row in found.rows] == [""] * 4
    assert all(row.cached_tokens is None and row.output_tokens >= 1 for row in found.rows)
    assert found.figures[0].recompute_ratio is None


TEXT, USAGE = {"choices": [{"text": "x"}]}, {"prompt_tokens": 9, "completion_tokens": 5}
COUNTED = {"choices": [], "usage": USAGE | {"prompt_tokens_details": {"cached_tokens": 4}}}


@pytest.mark.parametrize("error", [{"message": "no", "code": 500, "type": "internal"}, "no"], ids=["code", "text"])
@pytest.mark.parametrize("before", [[], [TEXT], [TEXT, COUNTED]], ids=len)
async def test_an_error_that_an_engine_tells_in_its_stream_is_one(before: list[Any], error: Any) -> None:
    found = await replayed(stream(*before, {"error": error}))
    assert all(
        str(500 if isinstance(error, dict) else "unnamed") in row.error and row.done_s is None for row in found.rows
    )
    assert (found.figures[0].errors, found.figures[0].good_share) == (4, 0.0)


@pytest.mark.parametrize(
    "answer",
    [
        stream(*[TEXT] * 5, COUNTED, end="\r\n"),
        stream(*[TEXT] * 5, COUNTED, before=": ping\n\n"),
        stream(*[TEXT] * 5, COUNTED, {"choices": [], "usage": None}),
        stream(*[TEXT] * 5, COUNTED).rstrip(),
        stream(*[{**TEXT, "error": None}] * 5, COUNTED),
    ],
    ids=["lines end in CRLF", "a comment first", "usage is null at the end", "nothing ends the end", "no error"],
)
async def test_the_forms_that_a_stream_may_have(answer: bytes) -> None:
    found = await replayed(answer)
    assert [(row.error, row.output_tokens, row.cached_tokens) for row in found.rows] == [("", 5, 4)] * 4


def test_no_comment_and_no_error_is_the_first_token() -> None:
    answer = StreamedAnswer()
    for now, part in enumerate(
        [b": ping\n\n", b'data: {"choices": [], "usage": null}\n\n', b"data: {", stream(TEXT)[7:]]
    ):
        answer.feed(part, float(now))
    answer.end(9.0)
    assert (answer.first, answer.last, answer.error, answer.counts()) == (3.0, 3.0, "", (1, None, None))


@given(st.data())
def test_a_stream_says_the_same_wherever_it_is_cut(data: st.DataObject) -> None:
    whole = stream(TEXT, TEXT, COUNTED, end=data.draw(st.sampled_from(["\n", "\r\n"])))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    answer = StreamedAnswer()
    for start, end in pairwise([0, *cuts, len(whole)]):
        answer.feed(whole[start:end], 1.0)
    answer.end(1.0)
    assert (answer.first, answer.error, answer.counts()) == (1.0, "", (5, 9, 4))
