"""The mapping of the keys that were set last."""

from __future__ import annotations

import pickle

from prefixroute.recent import Recent


def test_the_key_set_longest_ago_makes_room() -> None:
    recent: Recent[str, int] = Recent(2)
    recent["a"], recent["b"], recent["a"], recent["c"] = 1, 2, 3, 4
    assert list(recent.items()) == [("a", 3), ("c", 4)]


def test_a_pickle_keeps_keys_order_and_bound() -> None:
    recent: Recent[str, int] = Recent(2)
    recent["b"], recent["a"] = 1, 2
    same = pickle.loads(pickle.dumps(recent))  # noqa: S301
    same["c"] = 3
    assert list(same.items()) == [("a", 2), ("c", 3)]
