"""Facts of workloads whose sharing is known by construction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from traffic import SIZE, made

from prefixroute.advise.findings import facts
from prefixroute.advise.profile import profile
from prefixroute.hashing import common_blocks
from prefixroute.sim import floor
from prefixroute.workload import Workload, chat, documents


def test_chat_shares_its_head_with_all_and_the_rest_with_itself() -> None:
    found = profile(chat(1, requests=6_000))
    assert found.head_tokens == 2_000
    assert found.floor == pytest.approx(floor(chat(1, requests=6_000)))
    assert found.shared_session > 0.4
    assert found.shared_others < 0.01
    assert found.floor + found.shared_head + found.shared_session + found.shared_others == pytest.approx(1.0)
    assert found.broken is None
    assert found.keyless == 0.0


def test_documents_are_shared_among_strangers() -> None:
    found = profile(documents(1, requests=2_000))
    assert found.head_tokens == 0
    assert found.shared_others > 0.6
    assert 200 < found.documents <= 300
    assert found.keyless == 1.0


def turns(prefix: Callable[[int, int], list[int]]) -> Workload:
    """20 sessions of 8 turns; ``prefix`` of (session, turn) stands before the session's own growing history."""
    prompts = [
        (f"s{session}", [*prefix(session, turn), *(1_000 * session + step for step in range(4 * turn + 4))])
        for turn in range(8)
        for session in range(20)
    ]
    return made(prompts)


def test_a_date_after_two_common_blocks_is_found_with_its_place_and_its_price() -> None:
    stable = profile(turns(lambda *_: [1, 2]))
    dated = profile(turns(lambda session, turn: [1, 2, 1_000_000 + 100 * session + turn]))
    assert stable.broken is None
    assert dated.broken is not None
    assert dated.broken.tokens == 2 * SIZE
    assert dated.broken.share == 1.0
    assert dated.floor > stable.floor + 0.3
    assert dated.broken.floor_if_fixed == pytest.approx(stable.floor, abs=0.05)


def test_a_history_rewritten_now_and_then_is_not_a_date() -> None:
    found = profile(turns(lambda _, turn: [1, turn // 6]))
    assert found.broken is None


def test_prompts_below_a_block_are_counted() -> None:
    assert profile(made([(None, []), (None, [1]), (None, []), (None, [1])])).short == 0.5


def test_an_empty_workload_has_a_profile() -> None:
    found = profile(made([]))
    assert (found.requests, found.requests_per_s, found.broken) == (0, None, None)


@pytest.mark.parametrize(("one", "other", "shared"), [([], [1], 0), ([1, 2, 3], [1, 2, 4], 2), ([1, 2], [1, 2, 3], 2)])
def test_common_blocks(one: list[int], other: list[int], shared: int) -> None:
    chains = [np.cumsum(np.array(values, np.uint64) * np.uint64(31)) for values in (one, other)]
    assert common_blocks(*chains) == shared


def test_prompts_that_share_a_key_and_nothing_else_are_no_broken_turns() -> None:
    """Questions of one user each: nothing to mend. A date in the first block is: turns grow all the same."""
    asked = [(f"user {at % 10}", [1_000 * at + k for k in range(1 + at * 7 % 5)]) for at in range(60)]
    assert profile(made(asked)).broken is None
    dated = [(f"chat {at % 10}", [10_000 + at, *range(4 * (at // 10) + 2)]) for at in range(60)]
    found = profile(made(dated)).broken
    assert found is not None
    assert found.tokens == 0


def test_several_models_are_priced_as_one_and_that_is_said() -> None:
    plain = made([("a", [1, 2, 3]), ("b", [1, 2, 4])])
    mixed = replace(plain, source=lambda: (r._replace(model=f"m{at}") for at, r in enumerate(plain.requests())))
    for workload, models in ((plain, 0), (mixed, 2)):
        found = profile(workload)
        assert found.models == models
        kinds = [finding.kind for finding in facts(found, workload, None)]
        assert ("several-models" in kinds) == (models > 1)
