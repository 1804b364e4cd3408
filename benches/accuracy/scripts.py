"""Prompts that routers are asked about one after another, and when their requests end.

Seeded, so that all see the same.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

LETTERS = "abcdefghijklmnopqrstuvwxyz "
LONGEST = 6_000
"""Characters of a conversation, after which a new one begins in its place."""
SHORTEST = 8
"""Characters of a prompt. Ours never counts the last token as held, since engines compute it again: in shorter ones it
decides."""
FRESH_SEEDS = (101, 202, 303)
"""Of scripts that no preset was made or fitted on: they were added afterwards."""


@dataclass(frozen=True)
class Script:
    """Prompts that are sent one after another.

    Attributes:
        name: what they are.
        prompts: as text.
        ends: of each prompt, which of the open requests end before it is sent, by their position then.
    """

    name: str
    prompts: Sequence[str]
    ends: Sequence[Sequence[int]]


def scripts() -> Iterator[Script]:
    """Yield conversations at two loads, and one prompt that all begin with, of which none ends."""
    for running in (24, 400):
        prompts = _conversations(random.Random(1), 1_500)  # noqa: S311 - prompts, no secrets
        yield Script(f"conversations, {running} in flight", prompts, _first_come(len(prompts), running))
    hot = _text(random.Random(2), 2_000)  # noqa: S311 - prompts, no secrets
    yield Script(
        "one hot prefix, none finishing", [f"{hot}{number:04}" for number in range(480)], _first_come(480, 480)
    )


def fresh() -> Iterator[Script]:
    """Yield longer scripts of other seeds and mixes, with loads that rise and fall and requests that end in any order."""
    for seed in FRESH_SEEDS:
        rng = random.Random(seed)  # noqa: S311 - prompts, no secrets
        prompts = _mixture(rng, 3_000)
        yield Script(f"mixture, seed {seed}", prompts, _any_order(rng, len(prompts), most=150))


def _first_come(prompts: int, running: int) -> list[list[int]]:
    """Return ends that keep so many requests open: the first come ends first."""
    return [[0] if number >= running else [] for number in range(prompts)]


def _any_order(rng: random.Random, prompts: int, *, most: int) -> list[list[int]]:
    """Return ends in any order around a number of open requests that is drawn anew now and then."""
    ends, open_, aim = [], 0, 0
    for number in range(prompts):
        if number % 200 == 0:
            aim = rng.choice((2, 8, 25, 60, most))
        now: list[int] = []
        while open_ and (open_ > aim or rng.random() < 0.3):
            now.append(rng.randrange(open_))
            open_ -= 1
        ends.append(now)
        open_ += 1
    return ends


def _conversations(rng: random.Random, requests: int) -> list[str]:
    """Return turns of 100 conversations behind 20 system prompts, each with what was said before."""
    systems = [_text(rng, rng.randrange(200, 1_200)) for _ in range(20)]
    said = [rng.choice(systems) + _text(rng, 200) for _ in range(100)]
    prompts = []
    for _ in range(requests):
        at = rng.randrange(len(said))
        said[at] += _text(rng, rng.randrange(50, 400))
        prompts.append(said[at])
        if len(said[at]) > LONGEST:
            said[at] = rng.choice(systems) + _text(rng, 200)
    return prompts


def _mixture(rng: random.Random, requests: int) -> list[str]:
    """Return turns, questions about few documents, short and wholly new prompts, exact repeats and prefixes of what was sent."""
    talk = iter(_conversations(rng, requests))
    documents = [_text(rng, rng.randrange(500, 8_000)) for _ in range(12)]
    sent: list[str] = []
    for _ in range(requests):
        kind = rng.random()
        if kind < 0.4 or not sent:
            prompt = next(talk)
        elif kind < 0.7:  # a few documents get most of the questions
            prompt = documents[int(len(documents) * rng.random() ** 3)] + _text(rng, rng.randrange(10, 3_000))
        elif kind < 0.8:
            prompt = _text(rng, rng.randrange(SHORTEST, 60))
        elif kind < 0.9:
            prompt = _text(rng, rng.randrange(100, 4_000))
        elif kind < 0.95:
            prompt = rng.choice(sent)
        else:
            whole = rng.choice(sent)
            prompt = whole[: rng.randrange(SHORTEST, len(whole) + 1)]
        sent.append(prompt)
    return sent


def _text(rng: random.Random, length: int) -> str:
    return "".join(rng.choices(LETTERS, k=length))
