"""Each reason that ``verify`` can name, under each scheme where it applies: events are made by the schemes themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, get_args

import pytest

from prefixroute.hash_exact import (
    PLAIN,
    Content,
    GatewayHashes,
    HashScheme,
    LlmdCborHashes,
    LlmdXxh64Hashes,
    Media,
    SglangHashes,
    StoredEvent,
    VllmHashes,
    Xxh3Local,
    Xxh3Sequence,
    verify,
)
from prefixroute.hash_exact.scheme import Reason

SIZE = 8
SCHEMES: list[HashScheme[Any]] = [
    VllmHashes("sha256", "0"),
    VllmHashes("sha256_cbor", "0"),
    VllmHashes("xxhash", "0"),
    VllmHashes("xxhash_cbor", "0"),
    SglangHashes(),
    Xxh3Local(),
    Xxh3Sequence(),
    LlmdCborHashes("m"),
    LlmdXxh64Hashes("m"),
    GatewayHashes("m"),
]
CHAINED = [scheme for scheme in SCHEMES if not isinstance(scheme, Xxh3Local)]
PUBLISHES_ITS_STATE = (Xxh3Sequence, LlmdCborHashes, LlmdXxh64Hashes, GatewayHashes)
ADAPTER = Content(lora="sql", lora_path="/models/sql")
SALTED = Content(salt="tenant")


def picture(scheme: HashScheme[Any], first: int = 1) -> Content:
    """An image over the tokens from ``first`` on, named as the scheme names media."""
    identifier = 77 if isinstance(scheme, Xxh3Local | Xxh3Sequence) else "img"
    return Content(media=(Media(identifier, first, 2),))


HIDDEN: dict[Reason, Any] = {
    "lora": lambda _: ADAPTER,
    "salt": lambda _: SALTED,
    "media": picture,
}


def stored(
    scheme: HashScheme[Any], begin: int = 1, blocks: int = 3, content: Content = PLAIN, told: Content | None = None
) -> StoredEvent:
    """A prompt as an engine with this scheme stores it; ``told`` = what its event says in place of the content."""
    tokens = tuple(range(begin, begin + blocks * SIZE + scheme.look_ahead))
    states = scheme.states(tokens, SIZE, content)[:blocks]
    hashes = tuple(scheme.published(state, content) % 2**64 for state in states)
    after = tuple(tokens[SIZE * (n + 1) :][: scheme.look_ahead] for n in range(blocks)) if scheme.look_ahead else ()
    contents = (content if told is None else told,) * blocks
    return StoredEvent(hashes, None, tokens, SIZE, contents, after)


def with_digests(scheme: HashScheme[Any], event: StoredEvent) -> StoredEvent:
    """The same event of an engine that publishes whole digests."""
    return replace(event, digests=tuple(scheme.states(event.token_ids, SIZE)))


def rows() -> Iterator[Any]:
    for scheme in SCHEMES:
        name = f"{type(scheme).__name__} {getattr(scheme, 'algorithm', '')}".strip()
        for what, events, expected in cases(scheme):
            yield pytest.param(scheme, events, expected, id=f"{name}: {what}")


def cases(scheme: HashScheme[Any]) -> Iterator[tuple[str, list[StoredEvent], tuple[Reason, ...]]]:
    """Yield what is wrong, the events, and the reasons that must be named: one, or those that remain."""
    plain = stored(scheme, 1_000)
    yield from settings(scheme)
    yield from unknown_settings(scheme)
    for other in SCHEMES:
        if type(other) is not type(scheme) and not {type(other), type(scheme)} & {LlmdCborHashes, GatewayHashes}:
            known = type(other)() if isinstance(other, VllmHashes | SglangHashes | Xxh3Local | Xxh3Sequence) else other
            if hasattr(scheme, "model") or not hasattr(known, "model"):
                yield f"another scheme {type(other).__name__}", [stored(known)], ("algorithm",)
    for kind in scheme.hidden:
        if kind in HIDDEN:
            content = HIDDEN[kind](scheme)
            events = [plain, stored(scheme, content=content, told=PLAIN)]
            yield f"{kind} not told beside a plain prompt", events, scheme.hidden
    if "media" in scheme.hidden:
        late = [plain, stored(scheme, content=picture(scheme, SIZE), told=PLAIN)]
        yield "media not told in a later block", late, late_kinds(scheme)
    broken = replace(plain, hashes=(plain.hashes[0], plain.hashes[1] ^ 1, *plain.hashes[2:]))
    yield "a hash that nothing explains", [broken], tuple(late_kinds(scheme))
    if not isinstance(scheme, PUBLISHES_ITS_STATE):
        yield "nothing but the middle of a chain", [replace(plain, parent=5)], ("parent",)
    yield "no hashes", [replace(plain, hashes=(), contents=())], ()


def late_kinds(scheme: HashScheme[Any]) -> tuple[Reason, ...]:
    """What a block behind the first may hold that its event leaves out."""
    return tuple(kind for kind in scheme.hidden if kind in ("media", "extra_key"))


def settings(scheme: HashScheme[Any]) -> Iterator[tuple[str, list[StoredEvent], tuple[Reason, ...]]]:
    """Every other common setting of a scheme, one at a time, and every other unit of its chain."""
    for variant in scheme.variants():
        for content in (PLAIN, SALTED):
            other = stored(variant.scheme, content=content)
            if len(variant.reasons) == 1 and other.hashes != stored(scheme, content=content).hashes:
                yield f"{variant.detail}, salt {content.salt}", [other], variant.reasons
    if not isinstance(scheme, Xxh3Local):
        for unit in (1, 2, 4):
            fine = scheme.hashes(range(1, 3 * SIZE + 1), unit)
            hashes = tuple(value % 2**64 for value in fine[SIZE // unit - 1 :: SIZE // unit])
            yield f"blocks of {unit} chained", [replace(stored(scheme), hashes=hashes)], ("block_size",)
            part = StoredEvent((fine[0] % 2**64,), None, tuple(range(1, unit + 1)), unit, (PLAIN,))
            yield f"a partial block of {unit}", [part, replace(stored(scheme), hashes=hashes)], ("block_size",)


def unknown_settings(scheme: HashScheme[Any]) -> Iterator[tuple[str, list[StoredEvent], tuple[Reason, ...]]]:
    """Settings that cannot be guessed: what remains is what the root covers."""
    plain = [stored(scheme, 100 * n) for n in range(1, 3)]
    if isinstance(scheme, LlmdCborHashes | LlmdXxh64Hashes):
        for changed in ({"model": "other"}, {"seed": "unheard of"}):
            other = replace(scheme, **changed)
            yield f"{changed}", [stored(other, 100 * n) for n in range(1, 3)], ("model", "seed")
    elif isinstance(scheme, GatewayHashes):
        yield "another model", [stored(GatewayHashes("other"), 100 * n) for n in range(1, 3)], ("model", "salt")
    elif isinstance(scheme, VllmHashes):
        other = replace(scheme, seed="unheard of")
        yield "an unheard-of seed", [stored(other, 100 * n) for n in range(1, 3)], ("seed",)
        yield "an unheard-of seed and an adapter", [stored(other, content=ADAPTER)], ("seed", "lora")
        yield "an unheard-of seed and media", [stored(other, content=picture(scheme))], ("seed", "media")
        no_path, wrong = replace(ADAPTER, lora_path=""), replace(ADAPTER, lora_path="/wrong")
        yield "an adapter without a path", [stored(scheme, content=ADAPTER, told=no_path)], ("lora",)
        yield "the same beside plain", [*plain, stored(scheme, content=ADAPTER, told=no_path)], ("lora",)
        yield "a wrong path", [stored(scheme, content=ADAPTER, told=wrong)], ("seed", "lora")
        yield "a wrong path beside plain", [*plain, stored(scheme, content=ADAPTER, told=wrong)], ("lora",)
        whole = [with_digests(other, event) for event in (stored(other, 100 * n) for n in range(1, 3))]
        yield "an unheard-of seed, digests published", whole, ("seed",)
        kind = "xxhash" if scheme.algorithm == "sha256" else "sha256"
        third = replace(other, algorithm=kind)
        whole = [with_digests(third, event) for event in (stored(third, 100 * n) for n in range(1, 3))]
        yield "another algorithm under an unheard-of seed, digests published", whole, ("algorithm",)
        seeded = replace(scheme, seed="42")
        yield "another seed, a wrong path", [stored(seeded), stored(seeded, 99, 3, ADAPTER, wrong)], ("seed",)
        twice = Content(media=(Media("i", 1, 1), Media("i", 4, 1)))
        if not scheme.algorithm.endswith("cbor"):
            events = [replace(plain[0], contents=(twice,) * 3, hashes=(1, 2, 3))]
            yield "an image twice in a block", events, ("media",)
    elif isinstance(scheme, SglangHashes):
        keyed = SglangHashes(dynamo_format=True, extra_key="k")
        yield "keys of requests", [stored(keyed, 100 * n) for n in range(1, 3)], ("extra_key",)
        of_adapter = stored(SglangHashes(extra_key="k"), content=Content(lora="sql"))
        yield "an adapter", [of_adapter], ("lora",)
        yield "an adapter beside plain", [*plain, of_adapter], ("lora",)
    else:
        other = Xxh3Local(seed=4711) if isinstance(scheme, Xxh3Local) else Xxh3Sequence(Xxh3Local(seed=4711))
        yield "an unheard-of seed", [stored(other, 100 * n) for n in range(1, 3)], ("seed",)
        text = Content(media=(Media("not a number", 1, 1),))
        yield "media named by texts", [replace(plain[0], contents=(text,) * 3)], ("media",)


@pytest.mark.parametrize(("scheme", "events", "expected"), list(rows()))
def test_the_reason_is_the_right_one(
    scheme: HashScheme[Any], events: list[StoredEvent], expected: tuple[Reason, ...]
) -> None:
    found = verify(events, scheme)
    assert (found.remaining or (found.reason,)) == (expected or ("unknown",)), found
    assert (found.reason == "unknown") == (len(expected) != 1)
    assert found.detail


@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
def test_what_the_scheme_itself_made_agrees(scheme: HashScheme[Any]) -> None:
    contents = [PLAIN, SALTED, *([] if isinstance(scheme, SglangHashes) else [ADAPTER, picture(scheme)])]
    found = verify([stored(scheme, 100 * n, content=content) for n, content in enumerate(contents)], scheme)
    assert (found.reason, found.mismatched, found.unchecked) == (None, 0, 0)


@pytest.mark.parametrize("scheme", CHAINED, ids=repr)
@pytest.mark.parametrize("kept", [(2,), (0, 2), (1,), (0, 1)], ids=str)
def test_blocks_of_a_sliding_window_or_a_mask_are_found(scheme: HashScheme[Any], kept: tuple[int, ...]) -> None:
    whole = stored(scheme)
    event = replace(whole, hashes=tuple(whole.hashes[n] for n in kept), contents=(PLAIN,) * len(kept))
    found = verify([event], scheme)
    assert (found.matched, found.reason) == (len(kept), None)
    wrong = replace(event, hashes=tuple(value ^ 1 for value in event.hashes))
    assert verify([stored(scheme, 1_000), wrong], scheme).remaining in ((), scheme.hidden)
    assert verify([stored(scheme, 1_000), wrong], scheme).mismatched == len(kept)


@pytest.mark.parametrize("scheme", CHAINED, ids=repr)
def test_a_window_over_a_finer_chain_is_found(scheme: HashScheme[Any]) -> None:
    fine = scheme.hashes(range(1, 3 * SIZE + 1), 4)
    event = StoredEvent((fine[5] % 2**64,), None, tuple(range(1, 3 * SIZE + 1)), SIZE, (PLAIN,))
    found = verify([event], scheme)
    assert found.reason == "block_size"
    assert " 4" in found.detail


@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
def test_prompts_that_nothing_matches_are_explained(scheme: HashScheme[Any]) -> None:
    event = stored(scheme)
    tokens = list(event.token_ids)
    assert verify([event], scheme, prompts=[tokens]).reason is None
    for options, reason in (
        ({"prompts": [[9, *tokens]]}, "tokenizer"),
        ({"prompts": [tokens], "block_size": 99}, "block_size"),
        ({"prompts": [tokens], "content": Content(lora="a")}, "lora"),
        ({"prompts": [tokens], "content": SALTED}, "salt"),
        ({"prompts": [tokens], "content": picture(scheme)}, "media"),
    ):
        assert verify([event], scheme, **options).reason == reason


def test_every_reason_is_in_the_table() -> None:
    named = {reason for row in rows() for reason in (row.values[2] or ("unknown",))} | {"tokenizer"}
    assert named == set(get_args(Reason))
