"""Exact hashes: golden values from the engines' own code, and laws against the libraries that define the parts."""

from __future__ import annotations

import hashlib
import json
import pickle
from pathlib import Path
from typing import get_args

import cbor2
import msgpack
import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixroute import ConfigError, EventError, TokensError
from prefixroute.hash_exact import (
    Content,
    GatewayHashes,
    LlmdCborHashes,
    LlmdXxh64Hashes,
    Media,
    NotReproducibleError,
    SglangHashes,
    VllmHashes,
    Xxh3Local,
    Xxh3Sequence,
    event_namespace,
    namespaced,
    storage_namespace,
    stored_events,
    verify,
)
from prefixroute.live.diagnosis import NoMatchReason, likely_reason

GOLDEN = json.loads((Path(__file__).parent / "golden" / "engine_hashes.json").read_text())
EIGHT = list(range(1, 9))
LONG = [0, 1, 255, 256, 65535, 65536, 70000, 128000, 151643, 200000, 5, 6, 7, 8, 9, 10] * 3
CONTENTS = {
    "none": Content(),
    "lora": Content(lora="a", lora_path="/x"),
    "salt": Content(salt="s"),
    "mm+salt": Content(salt="s", media=(Media("img", -3, 4),)),
    "embeds": Content(embeds=((0, bytes(range(32))),)),
    "old lora": Content(lora="a"),
    "old salt": Content(salt="s"),
}
KINDS = ["sha256", "sha256_cbor", "xxhash", "xxhash_cbor"]


def _vllm(row: dict[str, str], **options: object) -> VllmHashes:
    seed = row["PYTHONHASHSEED"]
    if options.get("legacy") and seed is None:
        seed = "vllm-none-hash"
    return VllmHashes(row["algorithm"], seed, **options)


@pytest.mark.parametrize(
    "row", GOLDEN["vllm"], ids=lambda row: f"{row['algorithm']}-{row['PYTHONHASHSEED']}-{row['extra_block1']}"
)
def test_vllm_hashes_equal_the_engine_s_own(row: dict[str, str]) -> None:
    name = row["extra_block1"]
    if name == "lookahead1":
        scheme, tokens, content = _vllm(row, look_ahead=1), [*EIGHT[:4], 5], Content()
    else:
        scheme, tokens, content = _vllm(row, legacy=name.startswith("old")), EIGHT[:4], CONTENTS[name]
    digest = scheme.states(tokens, 4, content)[0]
    assert scheme.root().hex() == row["none_hash"]
    assert (digest.hex(), scheme.published(digest)) == (row["block1"], row["block1_int"])
    second = _vllm(row).step(digest, EIGHT[4:], 1, 4)  # extra keys are of the first block alone
    assert (second.hex(), scheme.published(second)) == (row["block2"], row["block2_int"])


def test_the_golden_rows_are_complete() -> None:
    """Four algorithms, each seed that gives a fixed root, eight kinds of content: as many as the engine's own."""
    rows = {(row["algorithm"], row["PYTHONHASHSEED"], row["extra_block1"]) for row in GOLDEN["vllm"]}
    seeds = {kind: [None, "0", "42", "vllm-none-hash"][kind.startswith("xxhash") :] for kind in KINDS}
    assert rows == {(kind, seed, name) for kind in KINDS for seed in seeds[kind] for name in [*CONTENTS, "lookahead1"]}
    assert len(GOLDEN["vllm"]) == 112


@pytest.mark.parametrize("row", GOLDEN["vllm_edges"], ids=lambda row: f"{row['algorithm']}-{row['name']}")
def test_vllm_hashes_of_odd_sizes_and_large_ids(row: dict[str, object]) -> None:
    scheme = VllmHashes(row["algorithm"], row["PYTHONHASHSEED"])
    tokens = row["tokens"]
    assert scheme.states(tokens, len(tokens))[0].hex() == row["hash"]


@pytest.mark.parametrize("name", GOLDEN["vllm_chains"])
def test_vllm_chains(name: str) -> None:
    algorithm, seed = name.split(", PYTHONHASHSEED=")
    scheme = VllmHashes(algorithm, None if seed == "None" else seed)
    expected = GOLDEN["vllm_chains"][name]
    cases = {
        "1..8 by 4": scheme.states(EIGHT, 4),
        "16 ids by 16": scheme.states(np.array(LONG, np.uint32), 16),
        "1..8 by 4, salt s on block 0": scheme.states(EIGHT, 4, Content(salt="s")),
    }
    for case, states in cases.items():
        assert [digest.hex() for digest in states] == expected[case]


def test_sglang_hashes_equal_the_engine_s_own() -> None:
    golden = GOLDEN["sglang"]
    plain = SglangHashes()
    assert [d.hex() for d in plain.states(EIGHT, 4)] == golden["plain"]["hex"]
    assert plain.hashes(EIGHT, 4) == golden["plain"]["int"]
    assert plain.hashes(EIGHT, 1) == golden["page_1"]
    assert plain.hashes(golden["short_last_page"]["tokens"], 4) == golden["short_last_page"]["int"]
    assert plain.hashes(golden["wide"]["tokens"], 4) == golden["wide"]["int"]
    assert plain.hashes(EIGHT, 4, Content(salt="s")) == golden["salt_s"]
    pairs = SglangHashes(bigram=True)
    assert pairs.hashes(range(1, 10), 4) == golden["bigram_1..9"]
    assert pairs.hashes(golden["wide_bigram"]["tokens"], 4) == golden["wide_bigram"]["int"]


@pytest.mark.parametrize("row", GOLDEN["sglang"]["namespaced"], ids=str)
def test_sglang_namespaces(row: dict[str, object]) -> None:
    seed = event_namespace(row["extra_key"], row["cache_salt"])
    assert seed.hex() == row["seed"]
    assert storage_namespace(row["extra_key"], row["cache_salt"]).hex() == row["storage_seed"]
    assert [namespaced(plain, seed) for plain in SglangHashes().hashes(EIGHT, 4)] == row["int"]


def test_sglang_dynamo_format_covers_the_salt_twice() -> None:
    hashes = SglangHashes(dynamo_format=True).hashes(EIGHT, 4, Content(salt="s"))
    assert hashes == [-3993257993282020066, 6609261585110264492]


@pytest.mark.parametrize(
    ("scheme", "tokens", "content", "expected"),
    [
        (Xxh3Local(), EIGHT, Content(), [14643705804678351452, 16777012769546811212]),
        (Xxh3Local(), EIGHT, Content(lora="a"), [17680866786467819158, 10751596618610180438]),
        (Xxh3Local(), EIGHT, Content(salt="s"), [5728354201622468629, 3103195633695993164]),
        (Xxh3Local(eagle=True), range(1, 10), Content(), [1914873892905420881, 1929047464662796003]),
        (Xxh3Sequence(), EIGHT, Content(), [14643705804678351452, 4945711292740353085]),
        (LlmdCborHashes("m"), EIGHT, Content(), [14686617092727577033, 9856792211163113858]),
        (LlmdXxh64Hashes("m"), EIGHT, Content(), [6079057133344773006, 10407153327552680244]),
        (GatewayHashes("m"), EIGHT, Content(), [18390267952832273189, 15051379317946961216]),
    ],
    ids=str,
)
def test_hashes_of_other_routers(scheme: object, tokens: object, content: Content, expected: list[int]) -> None:
    assert scheme.hashes(tokens, 4, content) == expected


def test_roots_of_other_routers() -> None:
    assert LlmdCborHashes("m").root() == 11374735546233341228
    assert LlmdXxh64Hashes("m").root() == 14487164469406636363
    assert GatewayHashes("m").root() == 13415755381228090088


_IDS = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=70)


@settings(max_examples=60)
@given(tokens=_IDS, size=st.integers(1, 20), kind=st.sampled_from(KINDS), seed=st.text(max_size=4))
def test_vllm_is_a_digest_of_an_encoded_tuple(tokens: list[int], size: int, kind: str, seed: str) -> None:
    def encode(value: object) -> bytes:
        return cbor2.dumps(value, canonical=True) if kind.endswith("cbor") else pickle.dumps(value, 5)

    def digest(value: object) -> bytes:
        data = encode(value)
        return hashlib.sha256(data).digest() if kind.startswith("sha") else xxhash.xxh3_128(data).digest()

    parent, expected = digest(seed), []
    for begin in range(0, len(tokens) - size + 1, size):
        parent = digest((parent, tuple(tokens[begin : begin + size]), None))
        expected.append(int.from_bytes(parent[-8:], "big"))
    assert VllmHashes(kind, seed).hashes(tokens, size) == expected


@settings(max_examples=60)
@given(tokens=_IDS, size=st.integers(1, 20))
def test_sglang_is_a_digest_of_the_bytes(tokens: list[int], size: int) -> None:
    parent, expected = b"", []
    for begin in range(0, len(tokens), size):
        page = np.array(tokens[begin : begin + size], "<u4").tobytes()
        parent = hashlib.sha256(parent + page).digest()
        expected.append(int.from_bytes(parent[:8], "big", signed=True))
    assert SglangHashes().hashes(tokens, size) == expected


@settings(max_examples=60)
@given(tokens=_IDS, size=st.integers(1, 20), lora=st.none() | st.text(max_size=3), salt=st.none() | st.text(max_size=3))
def test_the_sequence_hash_chains_local_hashes(
    tokens: list[int], size: int, lora: str | None, salt: str | None
) -> None:
    content, seed = Content(lora=lora, salt=salt), 1337
    seed += 0 if lora is None else xxhash.xxh3_64_intdigest(lora.encode(), 0)
    seed += 0 if salt is None else xxhash.xxh3_64_intdigest(salt.encode(), 1)
    full = len(tokens) // size * size
    local = [
        xxhash.xxh3_64_intdigest(np.array(tokens[b : b + size], "<u4").tobytes(), seed % 2**64)
        for b in range(0, full, size)
    ]
    assert Xxh3Local().hashes(tokens, size, content) == local
    chained = local[:1]
    for block in local[1:]:
        chained.append(xxhash.xxh3_64_intdigest(np.array([chained[-1], block], "<u8").tobytes(), 1337))
    assert Xxh3Sequence().hashes(tokens, size, content) == chained


_TEXTS = st.text(max_size=4)
_MEDIA = st.builds(Media, st.text("abc", min_size=1, max_size=2), st.integers(0, 40), st.integers(1, 12))
_CONTENTS = st.builds(
    Content,
    lora=st.none() | _TEXTS,
    lora_path=st.just("/path"),
    salt=st.none() | _TEXTS,
    media=st.lists(_MEDIA, max_size=2, unique_by=lambda item: item.identifier).map(tuple),
    embeds=st.lists(st.tuples(st.integers(0, 5), st.binary(min_size=4, max_size=4)), max_size=1).map(tuple),
)


@settings(max_examples=150)
@given(
    tokens=_IDS,
    size=st.integers(1, 20),
    content=_CONTENTS,
    scheme=st.builds(
        VllmHashes,
        st.sampled_from(["sha256_cbor", "xxhash_cbor"]),
        st.just("0"),
        legacy=st.booleans(),
        look_ahead=st.integers(0, 2),
    ),
)
def test_vllm_covers_extra_keys_and_tokens_ahead(
    tokens: list[int], size: int, content: Content, scheme: VllmHashes
) -> None:
    legacy, ahead = scheme.legacy, scheme.look_ahead

    def digest(value: object) -> bytes:
        data = cbor2.dumps(value, canonical=True)
        short = scheme.algorithm == "xxhash_cbor"
        return xxhash.xxh3_128(data).digest() if short else hashlib.sha256(data).digest()

    parent, expected = digest("0"), []
    for block in range((len(tokens) - ahead) // size):
        begin, end = block * size, (block + 1) * size
        keys = [] if content.lora is None else [content.lora if legacy else ("lora", content.lora, "/path")]
        tag = () if legacy else ("mm",)
        inside = [item for item in content.media if item.first < end and item.first + item.tokens > begin]
        keys += [(*tag, item.identifier, item.first - begin) for item in inside]
        if content.salt is not None and block == 0:
            keys.append(content.salt if legacy else ("cache_salt", content.salt))
        keys += [each if legacy else ("prompt_embeds", each) for number, each in content.embeds if number == block]
        extra = tuple(keys) or None
        if ahead:
            extra = (extra, *tokens[end : end + ahead])
        parent = digest((parent, tuple(tokens[begin:end]), extra))
        expected.append(int.from_bytes(parent[-8:], "big"))
    assert scheme.hashes(tokens, size, content) == expected


@settings(max_examples=100)
@given(
    tokens=_IDS,
    size=st.integers(1, 20),
    content=st.builds(Content, lora=st.none() | st.just("a"), salt=st.none() | _TEXTS),
    scheme=st.builds(SglangHashes, st.booleans(), st.booleans(), st.none() | _TEXTS),
)
def test_sglang_covers_salts_pairs_and_namespaces(
    tokens: list[int], size: int, content: Content, scheme: SglangHashes
) -> None:
    ids, salt, key = np.array(tokens, "<u4"), content.salt, scheme.extra_key
    positions = np.stack([ids[:-1], ids[1:]], axis=1) if scheme.bigram else ids[:, None]
    parent = b"" if salt is None else hashlib.sha256(b"sglang-cache-salt-v1\0" + salt.encode()).digest()
    expected = []
    for begin in range(0, len(positions), size):
        parent = hashlib.sha256(parent + positions[begin : begin + size].tobytes()).digest()
        plain, parts = parent[:8], (key, salt if scheme.dynamo_format else None)
        if (content.lora is not None or scheme.dynamo_format) and parts != (None, None):
            seed = hashlib.sha256(b"sglang-kv-event-namespace-v1")
            for part in parts:
                text = (part or "").encode()
                seed.update(b"\0" if part is None else b"\1" + len(text).to_bytes(8, "little") + text)
            plain = hashlib.sha256(seed.digest() + plain).digest()[:8]
        expected.append(int.from_bytes(plain, "big", signed=True))
    if expected and content.lora is not None and key is None:
        with pytest.raises(NotReproducibleError, match="random id"):
            scheme.hashes(tokens, size, content)
    else:
        assert scheme.hashes(tokens, size, content) == expected


def _fnv(data: bytes) -> int:
    value = 14695981039346656037
    for byte in data:
        value = (value ^ byte) * 1099511628211 % 2**64
    return value


@settings(max_examples=100)
@given(tokens=_IDS, size=st.integers(1, 20), model=_TEXTS, seed=_TEXTS, content=_CONTENTS)
def test_llm_d_is_a_hash_of_an_encoded_array(
    tokens: list[int], size: int, model: str, seed: str, content: Content
) -> None:
    def counted(text: str) -> bytes:
        return len(text.encode()).to_bytes(8, "little") + text.encode()

    def u64(number: int) -> bytes:
        return number.to_bytes(8, "little")

    cbor = _fnv(cbor2.dumps([_fnv(seed.encode()), None, model], canonical=True))
    xxh = xxhash.xxh64_intdigest(u64(xxhash.xxh64_intdigest(seed.encode())) + counted(model))
    expected: list[tuple[int, int]] = []
    for block in range(len(tokens) // size):
        begin, end = block * size, (block + 1) * size
        ids = tokens[begin:end]
        texts = [str(i.identifier) for i in content.media if i.first < end and i.first + i.tokens > begin]
        texts += [content.salt] if content.salt is not None and block == 0 else []
        cbor = _fnv(cbor2.dumps([cbor, ids, [{"Hash": text} for text in texts] or None], canonical=True))
        xxh = xxhash.xxh64_intdigest(u64(xxh) + np.array(ids, "<u4").tobytes() + b"".join(map(counted, texts)))
        expected.append((cbor, xxh))
    assert LlmdCborHashes(model, seed).hashes(tokens, size, content) == [one for one, _ in expected]
    assert LlmdXxh64Hashes(model, seed).hashes(tokens, size, content) == [one for _, one in expected]


@settings(max_examples=60)
@given(tokens=_IDS, size=st.integers(1, 20), model=_TEXTS, salt=st.none() | _TEXTS)
def test_the_gateway_hashes_the_hash_of_each_block(tokens: list[int], size: int, model: str, salt: str | None) -> None:
    parent, expected = xxhash.xxh64_intdigest((model + (salt or "")).encode()), []
    for begin in range(0, len(tokens), size):
        own = xxhash.xxh64_intdigest(np.array(tokens[begin : begin + size], "<u4").tobytes())
        parent = xxhash.xxh64_intdigest(np.array([own, parent], "<u8").tobytes())
        expected.append(parent)
    assert GatewayHashes(model).hashes(tokens, size, Content(salt=salt)) == expected


@settings(max_examples=40)
@given(tokens=st.lists(st.integers(0, 50_000), min_size=2, max_size=40), cut=st.integers(0, 4))
def test_a_chain_can_be_continued(tokens: list[int], cut: int) -> None:
    for scheme in (VllmHashes(), SglangHashes(), Xxh3Sequence(), LlmdCborHashes("m"), LlmdXxh64Hashes("m")):
        whole = scheme.states(tokens, 4)
        cut = min(cut, len(tokens) // 4)
        head = scheme.states(tokens[: cut * 4], 4)
        state = head[-1] if head else None
        assert head + scheme.states(tokens[cut * 4 :], 4, first_block=cut, state=state) == whole


def test_what_cannot_be_reproduced_is_refused() -> None:
    for wrong in (
        lambda: VllmHashes("md5"),
        lambda: VllmHashes("xxhash"),
        lambda: VllmHashes("sha256", legacy=True),
        lambda: VllmHashes("sha256", seed=0),
        lambda: VllmHashes().hashes(EIGHT, 4, Content(media=(Media("i", 0, 1), Media("i", 2, 1)))),
        lambda: Xxh3Local().hashes(EIGHT, 4, Content(media=(Media("i", 0, 1),))),
        lambda: Xxh3Local().hashes([2**32], 1),
        lambda: VllmHashes().hashes(EIGHT, 0),
    ):
        with pytest.raises(ConfigError):
            wrong()
    for bad in ([1, -1], [1.5], ["a"], [True]):
        with pytest.raises(TokensError, match="position"):
            VllmHashes().hashes(bad, 1)


# -- verify ------------------------------------------------------------------------------------------------------


def _events(name: str, **options: str) -> list[object]:
    payload = bytes.fromhex(GOLDEN["payloads"][name])
    return list(stored_events(payload, **options))


@pytest.mark.parametrize(
    ("name", "scheme", "path"),
    [
        ("vllm_store_root", VllmHashes(), ""),
        ("vllm_lora", VllmHashes(), "/models/sql"),
        ("vllm_salt", VllmHashes(), ""),
        ("vllm_mm", VllmHashes(), ""),
        ("vllm_lora_mm_salt_session", VllmHashes(), "/models/sql"),
        ("vllm_lookahead", VllmHashes(look_ahead=1), ""),
        ("sglang_store_root", SglangHashes(), ""),
        ("sglang_salt", SglangHashes(), ""),
        ("sglang_bigram", SglangHashes(bigram=True), ""),
        ("sglang_dynamo_salt", SglangHashes(dynamo_format=True), ""),
        ("sglang_page_size_1", SglangHashes(), ""),
        ("sglang_short_page", SglangHashes(), ""),
    ],
)
def test_engines_payloads_are_reproduced(name: str, scheme: object, path: str) -> None:
    found = verify(_events(name, lora_path=path), scheme)
    assert found.agrees, found
    assert found.reason is None


@pytest.mark.parametrize(
    ("name", "scheme", "reason"),
    [
        ("vllm_store_root", VllmHashes(seed="0"), "seed"),
        ("vllm_store_root", VllmHashes("sha256_cbor"), "algorithm"),
        ("vllm_store_root", VllmHashes("xxhash", seed="7"), "algorithm"),
        ("vllm_lookahead", VllmHashes(), "look_ahead"),
        ("sglang_bigram", SglangHashes(), "look_ahead"),
        ("sglang_dynamo_salt", SglangHashes(), "format"),
    ],
)
def test_a_wrong_scheme_is_explained(name: str, scheme: object, reason: str) -> None:
    found = verify(_events(name), scheme)
    assert not found.agrees
    assert found.reason == reason


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x90", b"\x93\x01"])
def test_what_is_no_batch_is_refused(payload: bytes) -> None:
    with pytest.raises(EventError):
        list(stored_events(payload))


STORE = {
    "type": "BlockStored",
    "block_hashes": [1],
    "parent_block_hash": None,
    "token_ids": list(range(16)),
    "block_size": 16,
    "lora_name": None,
    "extra_keys": [None],
}


@pytest.mark.parametrize(
    "fields",
    [
        {"block_hashes": "abc"},
        {"block_hashes": [None]},
        {"block_hashes": [1.5]},
        {"block_hashes": 7},
        {"parent_block_hash": "x"},
        {"token_ids": ["a"]},
        {"token_ids": [[]]},
        {"token_ids": 5},
        {"block_size": None},
        {"block_size": 0},
        {"block_size": "many"},
        {"lora_name": ["x"]},
        {"cache_salt": 5},
        {"extra_keys": [[7]]},
        {"extra_keys": [[["a"]]]},
        {"extra_keys": [[["a", "b"]]]},
        {"extra_keys": [None, None]},
    ],
    ids=str,
)
def test_a_malformed_store_event_is_refused_by_its_number(fields: dict[str, object]) -> None:
    payload = msgpack.packb([1.5, [STORE, STORE | fields], None])
    with pytest.raises(EventError, match="event 1"):
        list(stored_events(payload))
    assert likely_reason([payload])[0] == "unknown"


@pytest.mark.parametrize("fields", [{"block_hashes": []}, {"block_hashes": None}, {"token_ids": None}], ids=str)
def test_an_event_that_names_no_blocks_or_no_tokens_is_left_out(fields: dict[str, object]) -> None:
    payload = msgpack.packb([1.5, [STORE | fields], None])
    assert list(stored_events(payload)) == []
    assert likely_reason([payload])[0] == "hashes_only"


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=3)
    | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=6,
)


@given(st.lists(st.dictionaries(st.sampled_from(sorted(STORE)), VALUES, max_size=3), max_size=3))
def test_whatever_an_engine_sends_has_a_reason(events: list[dict[str, object]]) -> None:
    payload = msgpack.packb([1.5, [STORE | fields for fields in events], None])
    reason, detail = likely_reason([payload])
    assert reason in get_args(NoMatchReason)
    assert detail
