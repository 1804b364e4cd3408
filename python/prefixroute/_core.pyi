from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Literal, Protocol, Self, SupportsIndex, TypeAlias, TypeVar, Unpack, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypeIs, disjoint_base

__all__ = [
    "Admitted",
    "CacheEvent",
    "EntryCache",
    "Finished",
    "NoRoom",
    "ReplicaCache",
    "BlockHashes",
    "hash_blocks",
    "BatchNumbers",
    "PrefixIndex",
    "chain",
    "draw",
    "is_answer",
    "scattered",
    "Attempt",
    "Lease",
    "Ledger",
    "Formula",
    "Kernel",
    "Lens",
    "Roster",
    "best_of",
    "start_seconds",
    "LoadCounts",
    "Sight",
    "Cluster",
    "duplicated_tokens",
    "ReplicaStore",
    "PeerChains",
    "PeerFrame",
    "PeerInbox",
    "PeerOutbox",
    "PeerRing",
    "PeerRings",
    "PeerSeal",
    "StepPrices",
    "TransferPrices",
    "Applied",
    "FeedStats",
    "IndexStats",
    "Insertion",
    "Removed",
    "Stored",
    "__version__",
    "DEBUG_BUILD",
    "MAX_REPLICAS",
    "MAX_NAME_BYTES",
    "MAX_BLOCK_SIZE",
    "MAX_BLOCKS",
    "MAX_PAYLOAD_BYTES",
    "BYTES_PER_TOKEN",
    "PROVISIONAL_S",
    "REMEMBERED_BATCHES",
    "FIXED_HASH_KEY",
    "DURATIONS_S",
    "ZERO_STREAK",
    "ASSUMED_TOKENS_PER_S",
    "PEER_VERSION",
    "MAX_PEER_FRAME_BYTES",
    "MAX_PEER_VERSION",
]

__version__: str
DEBUG_BUILD: bool
MAX_REPLICAS: int
MAX_NAME_BYTES: int
MAX_BLOCK_SIZE: int
MAX_BLOCKS: int
MAX_PAYLOAD_BYTES: int
BYTES_PER_TOKEN: int
PROVISIONAL_S: float
REMEMBERED_BATCHES: int
FIXED_HASH_KEY: int
DURATIONS_S: list[float]
ZERO_STREAK: int
ASSUMED_TOKENS_PER_S: float
PEER_VERSION: int
MAX_PEER_FRAME_BYTES: int
MAX_PEER_VERSION: int

# Anything with the buffer protocol (collections.abc.Buffer from Python 3.12 on).
class _Buffer(Protocol):
    def __buffer__(self, flags: int, /) -> memoryview: ...

# What NumPy can view: tensors and the like.
class _ArrayLike(Protocol):
    def __array__(self) -> NDArray[Any]: ...

# `prefixroute.Namespace`, read by attribute.
class _Namespace(Protocol):
    @property
    def model(self) -> str | bytes: ...
    @property
    def lora(self) -> str | bytes: ...
    @property
    def salt(self) -> str | bytes: ...
    @property
    def extra(self) -> Iterable[tuple[int, str | bytes]]: ...

_Number = TypeVar("_Number", int, float)
_TokenIds: TypeAlias = Sequence[SupportsIndex] | NDArray[np.integer[Any]] | _Buffer | _ArrayLike
_Prompt: TypeAlias = _TokenIds | str | bytes | bytearray | BlockHashes
_Hashes: TypeAlias = Iterable[SupportsIndex | bytes] | NDArray[np.integer[Any]]
_Offsets: TypeAlias = Iterable[SupportsIndex] | NDArray[np.integer[Any]]

@final
class BlockHashes:
    """The chained hashes of a prompt's full blocks, with the prompt's length in tokens.

    A value: immutable, hashable, equal if all three parts are, safe to share between threads and to pickle. `len()` is
    the
    number of full blocks.

    Args:
        hashes: `uint64[blocks]` or ints; they are taken as they are.
        token_count: tokens of the prompt, at least `blocks * block_size`.
        block_size: tokens of a block, 1 to 65,536.

    Raises:
        ConfigError: a value outside of these limits.
    """

    def __new__(cls, hashes: _Hashes, *, token_count: int, block_size: int = 16) -> BlockHashes: ...
    @property
    def array(self) -> NDArray[np.uint64]:
        """`uint64[len]`, read-only, a view of this object's memory."""
    @property
    def token_count(self) -> int:
        """Tokens of the prompt, those after the last full block included."""
    @property
    def block_size(self) -> int:
        """Tokens of a block."""
    def hash_at(self, block: int, /) -> int:
        """The hash of one block: `int(array[block])`, without an array.

        Args:
            block: its number, from 0.

        Returns:
            64 bits.

        Raises:
            ConfigError: there is no such block.
        """
    def head(self, blocks: int, token_count: int | None = None) -> BlockHashes:
        """The first blocks. Shares memory, costs nothing.

        Args:
            blocks: how many; at most as many as there are.
            token_count: length of the prompt in tokens; None: nothing beyond these blocks.

        Returns:
            Hashes of the shorter prompt.

        Raises:
            ConfigError: there are fewer blocks, or the length is not theirs.
        """
    def __len__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __getnewargs_ex__(self) -> tuple[tuple[NDArray[np.uint64]], dict[str, int]]: ...

def hash_blocks(
    prompt: _TokenIds | str | bytes | bytearray,
    block_size: int = 16,
    namespace: _Namespace | None = None,
    hash_key: int | None = None,
) -> BlockHashes:
    """Hash a prompt's full blocks under a namespace; about 4 nanoseconds a block.

    Token ids are a list, any integer array, or a buffer (`array.array`, `memoryview`); `str` and `bytes` are text,
    whose
    blocks have `4 * block_size` bytes and never equal a block of token ids.

    Args:
        prompt: token ids, 0 to 2**32 - 1, or text.
        block_size: tokens of a block, 1 to 65,536.
        namespace: a `prefixroute.Namespace`; prompts of different namespaces share no hash, but see `hash_key`.
        hash_key: 0 to 2**64 - 1. None: the fixed key, the same in every process, for which anyone can compute prompts
        that
            share a hash. Where untrusted prompts meet, use the key of the index, `PrefixIndex.hash_key`.

    Raises:
        TokensError: not a prompt; the message names the first bad position.
        ConfigError: a block size or namespace that cannot be.
    """

@final
class PrefixIndex:

    """Which replica holds how much of a prompt's prefix.

    `match` gives, for each replica, the largest number of leading tokens of which it holds every full block. What a
    replica holds is *belief* (`insert`: a decision sent a prompt there; least recently used blocks go when the capacity
    is reached) and *truth* (`apply_stored`, `apply_removed`, `apply_cleared`: the engine's own events, in any order).

    Results are `uint32` arrays with one entry per slot, aligned with `replicas`. Sizes and capacities are in tokens;
    counts of what an insert or an event did are in blocks; times are seconds on the caller's clock. A prompt is a list,
    an integer array or a buffer of token ids (0 to 2**32 - 1), `str` or `bytes`, or `BlockHashes`; a contiguous
    `uint32`
    array is read in place. It must not be written to during the call: work of 20 microseconds and more is done with the
    interpreter released.

    All methods may be called from many threads; each call is atomic (`insert_many` is one insert after the other).

    Args:
        block_size: tokens of a block, 1 to 65,536; the engine's own (vLLM: 16).
        capacity_tokens: believed tokens per replica, unless it has a capacity of its own; None: unlimited. What events
            say does not count.
        max_bytes: bytes that the index may reserve; the oldest belief of all replicas makes room. None: unlimited. An
            index that holds nothing takes about 7 KiB, and 0.4 KiB for each replica: less is refused.
        ttl_s: seconds after its last touch that belief ends; None: never.
        provisional_s: the same at a replica that sends events, unless they confirm it; None: as elsewhere.
        hash_key: key of the content hashes, 0 to 2**64 - 1. None: random, so that nobody can compute a prompt whose
        blocks
            match those of another namespace. Give one where several processes share hashes, or the fixed key
            `prefixroute.limits.FIXED_HASH_KEY`, which `hash_blocks` has by default.

    Raises:
        ConfigError: a setting outside of these limits.

    Example:
        >>> index = PrefixIndex(block_size=16, capacity_tokens=300_000)
        >>> index.add_replica("a"), index.add_replica("b")
        (0, 1)
        >>> index.insert("a", list(range(100)))
        Insertion(held_before=0, stored=6, dropped=0, evicted=0, stamp=1)
        >>> index.match(list(range(50)))
        array([48,  0], dtype=uint32)
    """

    def __new__(
        cls,
        *,
        block_size: int = 16,
        capacity_tokens: int | None = None,
        max_bytes: int | None = None,
        ttl_s: float | None = None,
        provisional_s: float | None = ...,
    hash_key: int | None = None,
    ) -> PrefixIndex: ...
    @property
    def hash_key(self) -> int:
        """Key of content hashes. `hash_blocks(prompt, hash_key=index.hash_key)` hashes as the index does."""
    @property
    def block_size(self) -> int:
        """Tokens of a block."""
    @property
    def replicas(self) -> tuple[str | None, ...]:
        """Names in slot order; a freed slot is None until it is given again."""
    def add_replica(self, name: str, capacity_tokens: int | None = None, *, reuse_reports: bool = False) -> int:
        """Add an empty replica and return its slot.

        Args:
            name: of at most 65,536 bytes.
            capacity_tokens: overrides the index's own.
            reuse_reports: its engine reports blocks that requests reuse, in the shape of a store (vLLM with
                `kv_cache_report_mode="full"`). A block stored again is then no further copy, and one removal ends it.

        Raises:
            ConfigError: the name is taken or cannot be one, or there is no room for another replica, by number or
                `max_bytes`.
        """
    def check_room(self, replicas: int) -> None:
        """Raise unless `max_bytes` leaves room for so many replicas; who adds several asks before the first.

        Args:
            replicas: how many will be there, those that are there included.

        Raises:
            ConfigError: what the index reserves for them while it holds nothing is more than `max_bytes`.
        """
    def remove_replica(self, name: str) -> None:
        """Remove a replica with all it holds. Costs what it holds.

        Args:
            name: the replica.

        Raises:
            UnknownReplicaError: no replica has that name.
        """
    def clear(self, name: str | None = None) -> None:
        """Forget what one replica holds, or all of them.

        Args:
            name: the replica; None: all of them.

        Raises:
            UnknownReplicaError: no replica has that name.
        """
    def new_epoch(self) -> None:
        """Forget what all replicas hold: the weights have changed."""
    def set_capacity(self, name: str, tokens: int | None) -> None:
        """Give a replica another capacity and evict down to it.

        Args:
            name: the replica.
            tokens: what it holds at most; None: unlimited.

        Raises:
            ConfigError: the capacity is below 0.
            UnknownReplicaError: no replica has that name.
        """
    def match(
        self, prompt: _Prompt, namespace: _Namespace | None = None, out: NDArray[np.uint32] | None = None
    ) -> NDArray[np.uint32]:
        """Tokens of the prompt's prefix that each slot holds.

        Args:
            prompt: token ids, text, or `BlockHashes` of this index.
            namespace: what else must be equal; not together with `BlockHashes`, which have theirs.
            out: uint32[slots] to write to; None: a new array.

        Returns:
            uint32[slots], multiples of the block size, in the order of `replicas`; 0 at a free slot.

        Raises:
            TokensError: the prompt holds something that is no token id.
            ConfigError: `out` is too short, or the hashes are of other blocks or another key.
        """
    def match_many(
        self,
        flat: _TokenIds,
        offsets: _Offsets,
        namespace: _Namespace | None = None,
        out: NDArray[np.uint32] | None = None,
    ) -> NDArray[np.uint32]:
        """Match prompts laid end to end: prompt i is flat[offsets[i]:offsets[i + 1]].

        Args:
            flat: token ids of all prompts, an integer array.
            offsets: n + 1 rising positions in it, from 0 to its length.
            namespace: of all of them.
            out: uint32[n, slots] to write to; None: a new array.

        Returns:
            uint32[n, slots], in tokens.

        Raises:
            TokensError: an id is no token id.
            ConfigError: the offsets do not rise, or `out` has another shape.
        """
    def match_hashes(self, hashes: BlockHashes | _Hashes, out: NDArray[np.uint32] | None = None) -> NDArray[np.uint32]:
        """Match a prompt that was hashed before.

        Args:
            hashes: uint64 hashes of its blocks, or `BlockHashes`.
            out: uint32[slots] to write to; None: a new array.

        Returns:
            uint32[slots], in tokens.

        Raises:
            ConfigError: the hashes are of other blocks or another key, or `out` is too short.
        """
    def hash_and_match(
        self, prompt: _Prompt, out: NDArray[np.uint32], namespace: _Namespace | None = None
    ) -> BlockHashes:
        """Hash all of a prompt and match it: one crossing of the border for a router.

        Args:
            prompt: token ids, text, or `BlockHashes` of this index.
            out: uint32[slots] that takes the tokens held.
            namespace: what else must be equal.

        Returns:
            The hashes of the whole prompt.

        Raises:
            TokensError: the prompt holds something that is no token id.
            ConfigError: `out` is too short, or the hashes are of other blocks or another key.
        """
    def match_media(self, prompt: _Prompt, namespace: _Namespace | None = None) -> NDArray[np.uint32]:
        """Tokens of the prefix by the best medium of each block.

        Args:
            prompt: token ids, text, or `BlockHashes` of this index.
            namespace: what else must be equal.

        Returns:
            uint32[slots, 3], in tokens on GPU, CPU and disk.

        Raises:
            TokensError: the prompt holds something that is no token id.
        """
    def insert(self, name: str, prompt: _Prompt, namespace: _Namespace | None = None, now: float = 0.0) -> Insertion:
        """Book a decision: the replica is believed to hold the prompt from now on.

        Args:
            name: the replica.
            prompt: token ids, text, or `BlockHashes` of this index.
            namespace: what else must be equal.
            now: seconds on the caller's clock, for `ttl_s` and provisional blocks.

        Returns:
            What was added and evicted; `retract` takes it.

        Raises:
            TokensError: the prompt holds something that is no token id.
            UnknownReplicaError: no replica has that name.
        """
    def insert_many(
        self,
        names: str | Sequence[str],
        flat: _TokenIds,
        offsets: _Offsets,
        namespace: _Namespace | None = None,
        now: float = 0.0,
    ) -> list[Insertion]:
        """Book prompts laid end to end, up to the first error.

        Args:
            names: one name for all, or one for each prompt.
            flat: token ids of all prompts, an integer array.
            offsets: n + 1 rising positions in it, from 0 to its length.
            namespace: of all of them.
            now: seconds on the caller's clock.

        Returns:
            What was added and evicted, for each prompt.

        Raises:
            TokensError: an id is no token id.
            UnknownReplicaError: no replica has one of the names.
        """
    def retract(self, name: str, hashes: BlockHashes, insertion: Insertion) -> int:
        """Take back the blocks that an insert added and nobody has touched since.

        Args:
            name: the replica.
            hashes: of the prompt that was inserted.
            insertion: what `insert` returned.

        Returns:
            How many blocks went.

        Raises:
            UnknownReplicaError: no replica has that name.
        """
    def touch(self, name: str, prompt: _Prompt, namespace: _Namespace | None = None, now: float = 0.0) -> int:
        """Make the leading blocks held the most recently used.

        Args:
            name: the replica.
            prompt: token ids, text, or `BlockHashes` of this index.
            namespace: what else must be equal.
            now: seconds on the caller's clock, for `ttl_s`.

        Returns:
            How many blocks lead.

        Raises:
            TokensError: the prompt holds something that is no token id.
            UnknownReplicaError: no replica has that name.
        """
    def pin(self, name: str, hashes: BlockHashes) -> int:
        """Keep the leading blocks held from eviction.

        Args:
            name: the replica.
            hashes: of the prompt.

        Returns:
            How many lead: unpin as many.

        Raises:
            UnknownReplicaError: no replica has that name.
        """
    def unpin(self, name: str, hashes: BlockHashes) -> None:
        """Take one pin from each of these blocks.

        Args:
            name: the replica.
            hashes: of the blocks that `pin` kept.

        Raises:
            UnknownReplicaError: no replica has that name.
        """
    def apply(
        self,
        name: str,
        payload: bytes,
        *,
        sequence: int | None = None,
        namespace: _Namespace | None = None,
        now: float = 0.0,
    ) -> Applied:
        """Apply an engine's batch of KV events, as vLLM and SGLang send it: one call from bytes to index.

        Events are maps or arrays; hashes are ints of either sign or bytes; unknown fields and types are passed over.
        The group
        of full or MLA attention is followed in blocks of any size, and sliding-window groups bound what `match` gives.
        An event that is malformed costs itself alone.

        Args:
            name: the replica (one data-parallel rank).
            payload: the MessagePack bytes, 64 MiB at most.
            sequence: the batch's number. Gaps are counted. Of a number that is not above the last one, the bytes tell:
                those that were applied under that number come again, and a number that was missing is too late; both do
                nothing. Anything else means that the engine began again, at whatever number: what it held is forgotten
                first. None: no numbers are compared.
            namespace: where events are silent; they name the adapter and the salt, never the model.
            now: seconds on the caller's clock.

        Returns:
            What was done, with counts of blocks and events, and why events were refused.

        Raises:
            ConfigError: the sequence is no number from 0 to 2**64 - 1; nothing was applied.
            EventError: the bytes are no batch of events; nothing was applied.
            UnknownReplicaError: no replica has that name.
        """
    def apply_stored(
        self,
        name: str,
        block_hashes: _Hashes,
        *,
        parent: int | bytes | None = None,
        token_ids: _TokenIds,
        namespace: _Namespace | None = None,
        medium: str | None = None,
        ownership: str | None = None,
        block_size: int | None = None,
        group: int = 0,
        kind: str | None = None,
        sliding_window: int | None = None,
        now: float = 0.0,
    ) -> Stored:
        """An engine stored these blocks, one after the other behind parent. Every store is a further copy, unless the
        replica
        was added with `reuse_reports`.

        Args:
            name: the replica.
            block_hashes: the engine's own, ints of either sign or bytes.
            parent: the engine's hash of the block before; None: the first block starts a prompt.
            token_ids: of all blocks. None at all: the blocks of these hashes are on that medium too, whatever they
            hold.
            namespace: model, adapter, salt and extra keys, whose positions count from the first of these tokens.
            medium: an engine's word in any case, such as "GPU", "cpu" or "STORAGE"; None: GPU. An unknown word counts
            as the
                slowest tier.
            ownership: who owns the copy on that medium; its removal has to say the same.
            block_size: tokens of one of these blocks; None: as in the index. Blocks of other sizes are regrouped.
            group: number of the attention group. A hash is a key within its group.
            kind: its kind, as engines write it ("full_attention", "sliding_window", ...).
            sliding_window: its window in tokens.
            now: seconds on the caller's clock.

        Raises:
            EventError: the token ids are not those of so many blocks, or the kind is unknown.
            UnknownReplicaError: no replica has that name.
        """
    def apply_stored_hashes(
        self,
        name: str,
        block_hashes: _Hashes,
        *,
        parent: int | bytes | None = None,
        medium: str | None = None,
        now: float = 0.0,
    ) -> Stored:
        """An engine stored blocks, whose hashes are those of this index: chained, as `BlockHashes` has them. No token ids are
        needed. A simulated replica sends such events, and an engine whose block hashes this index is given to match.

        Args:
            name: the replica.
            block_hashes: uint64 hashes, one after the other.
            parent: the hash of the block before; None: the first block starts a prompt.
            medium: as in `apply_stored`.
            now: seconds on the caller's clock.

        Returns:
            What was stored.

        Raises:
            UnknownReplicaError: no replica has that name.
        """
    def expect_events(self, name: str) -> None:
        """The replica sends events, though none has come yet: what is inserted there is provisional.

        Args:
            name: the replica.

        Raises:
            UnknownReplicaError: no replica has that name.
        """
    def apply_removed(
        self,
        name: str,
        block_hashes: _Hashes,
        *,
        medium: str | None = None,
        ownership: str | None = None,
        group: int = 0,
    ) -> Removed:
        """An engine removed one copy of each of these blocks.

        Args:
            name: the replica.
            block_hashes: the engine's own.
            medium: as in `apply_stored`.
            ownership: as in `apply_stored`.
            group: as in `apply_stored`.

        Raises:
            UnknownReplicaError: no replica has that name.
        """
    def apply_cleared(self, name: str) -> None:
        """An engine reset its cache.

        Args:
            name: the replica.

        Raises:
            UnknownReplicaError: no replica has that name.
        """
    def expire(self, now: float) -> int:
        """Drop belief that is older than its time to live.

        Args:
            now: seconds on the caller's clock.

        Returns:
            How many blocks went.
        """
    def crowded_blocks(self) -> list[int]:
        """Blocks of each slot with more copies than requests can have made, 1,024: its engine reports reuse, see
        `add_replica(reuse_reports=True)`, or removals are lost. Costs O(runs)."""
    def unmatched_event_blocks(self) -> list[int]:
        """Blocks from store events of each slot since a query last matched there. Where it grows while prompts are
        routed, the
        hashes of that engine and of the router do not agree.
        """
    def held_tokens(self) -> list[int]:
        """Tokens that each slot holds, believed and known.

        Returns:
            A list of one number for each slot.
        """
    def feed_stats(self, name: str) -> FeedStats:
        """Counters of a replica's event feed since it was added.

        Args:
            name: the replica.

        Returns:
            Counts of batches, events, blocks, gaps and refusals.

        Raises:
            UnknownReplicaError: no replica has that name.
        """
    def stats(self) -> IndexStats:
        """State and counters.

        Returns:
            Blocks, bytes, evictions and events as plain numbers.
        """
    def to_bytes(self) -> bytes:
        """The whole index as bytes: versioned, checksummed, exact to the order of eviction.

        Returns:
            What `from_bytes` reads.
        """
    @staticmethod
    def from_bytes(data: bytes) -> PrefixIndex:
        """The index that `to_bytes` saved.

        Args:
            data: the bytes.

        Returns:
            An equal index.

        Raises:
            ConfigError: the bytes were cut or altered, or are of another version.
        """
    def __reduce__(self) -> tuple[Callable[[bytes], PrefixIndex], tuple[bytes]]: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> Literal[True]: ...

@final
class Insertion:
    """What an insert did, in blocks. Hand it to `retract` to take it back."""

    def __new__(cls, held_before: int, stored: int, dropped: int, evicted: int, stamp: int) -> Insertion: ...
    @property
    def held_before(self) -> int:
        """Leading blocks that the replica held already."""
    @property
    def stored(self) -> int:
        """Blocks that are new and stayed."""
    @property
    def dropped(self) -> int:
        """New blocks that found no room."""
    @property
    def evicted(self) -> int:
        """Older blocks of this replica that made room."""
    @property
    def stamp(self) -> int:
        """Names this insert to `retract`."""
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type, tuple[int, ...]]: ...
    def to_dict(self) -> dict[str, int]:
        """The fields by name."""

@final
class Stored:
    """What a store event did, in blocks."""

    def __new__(
        cls,
        stored: int,
        confirmed: int,
        copies: int,
        orphaned: int,
        adopted: int,
        dropped: int,
        reused: int,
        unindexed: int,
        placeless: int,
        unfilled: int,
    ) -> Stored: ...
    @property
    def stored(self) -> int:
        """Blocks that the replica did not hold."""
    @property
    def confirmed(self) -> int:
        """Believed blocks that the event confirmed."""
    @property
    def copies(self) -> int:
        """Further copies of blocks that it held."""
    @property
    def orphaned(self) -> int:
        """Blocks that wait for their parent."""
    @property
    def adopted(self) -> int:
        """Waiting blocks that found their parent."""
    @property
    def dropped(self) -> int:
        """Blocks that found no room under `max_bytes`."""
    @property
    def reused(self) -> int:
        """Blocks that a replica which reports reuse said again."""
    @property
    def unindexed(self) -> int:
        """Blocks of attention groups that the index does not follow."""
    @property
    def placeless(self) -> int:
        """Blocks that nobody can place: named without content and never stored, or parts of a block whose start is
        unknown."""
    @property
    def unfilled(self) -> int:
        """Blocks smaller than the index's that completed none of its blocks: what follows them may."""
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type, tuple[int, ...]]: ...
    def to_dict(self) -> dict[str, int]:
        """The fields by name."""

@final
class Removed:
    """What a removal event did."""

    def __new__(cls, removed: int, unknown: int) -> Removed: ...
    @property
    def removed(self) -> int:
        """Copies taken away."""
    @property
    def unknown(self) -> int:
        """Names that no copy of this replica has."""
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type, tuple[int, ...]]: ...
    def to_dict(self) -> dict[str, int]:
        """The fields by name."""

@final
class FeedStats:
    """Counters of a replica's event feed since it was added."""

    def __new__(
        cls,
        batches: int,
        events: int,
        refused: int,
        unrecognized: int,
        unindexed: int,
        placeless: int,
        unknown_media: int,
        missed: int,
        restarts: int,
        stale: int,
        other_rank: int,
    ) -> FeedStats: ...
    @property
    def batches(self) -> int:
        """Batches applied."""
    @property
    def events(self) -> int:
        """Events in them."""
    @property
    def refused(self) -> int:
        """Events that were malformed."""
    @property
    def unrecognized(self) -> int:
        """Events of unknown types."""
    @property
    def unindexed(self) -> int:
        """Blocks of attention groups that the index does not follow."""
    @property
    def placeless(self) -> int:
        """Blocks that nobody could place."""
    @property
    def unknown_media(self) -> int:
        """Events on media of unknown names, which count as the slowest tier."""
    @property
    def missed(self) -> int:
        """Batches that never came, by their sequence numbers."""
    @property
    def restarts(self) -> int:
        """Times that the engine began again."""
    @property
    def stale(self) -> int:
        """Batches that came again, or too late."""
    @property
    def other_rank(self) -> int:
        """Batches of another data-parallel rank than the first one."""
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type, tuple[int, ...]]: ...
    def to_dict(self) -> dict[str, int]:
        """The fields by name."""

@final
class Applied:
    """What a batch of events did. Counts are in blocks unless they say events."""

    @property
    def timestamp(self) -> float:
        """When the engine sent it, in seconds on its clock."""
    @property
    def rank(self) -> int | None:
        """The data-parallel rank that sent it, or None."""
    @property
    def events(self) -> int:
        """Events of the batch."""
    @property
    def stored(self) -> int:
        """Blocks that the replica did not hold."""
    @property
    def confirmed(self) -> int:
        """Believed blocks that the events confirmed."""
    @property
    def copies(self) -> int:
        """Further copies of blocks that it held."""
    @property
    def orphaned(self) -> int:
        """Blocks that wait for their parent."""
    @property
    def adopted(self) -> int:
        """Waiting blocks that found their parent."""
    @property
    def dropped(self) -> int:
        """Blocks that found no room under `max_bytes`."""
    @property
    def reused(self) -> int:
        """Blocks that a replica which reports reuse said again."""
    @property
    def unindexed(self) -> int:
        """Blocks of attention groups that the index does not follow."""
    @property
    def placeless(self) -> int:
        """Blocks that nobody can place: named without content and never stored, or parts of a block whose start is
        unknown."""
    @property
    def unfilled(self) -> int:
        """Blocks smaller than the index's that completed none of its blocks: what follows them may."""
    @property
    def removed(self) -> int:
        """Copies taken away."""
    @property
    def unknown(self) -> int:
        """Names in removals that no copy of this replica has."""
    @property
    def cleared(self) -> int:
        """Clear events."""
    @property
    def refused(self) -> int:
        """Events that are malformed, each of which cost itself alone."""
    @property
    def unrecognized(self) -> int:
        """Events of types that this version does not know."""
    @property
    def missed(self) -> int:
        """Batches missing before this one, by its sequence number."""
    @property
    def reasons(self) -> list[str]:
        """Why events were refused or not recognized: the first eight."""
    @property
    def adapters(self) -> list[str]:
        """Adapters whose blocks it stored, each once: the first 256."""
    @property
    def tiered(self) -> bool:
        """Some event spoke of a medium other than the GPU."""
    @property
    def restarted(self) -> bool:
        """The engine began again: what it held before was forgotten."""
    @property
    def stale(self) -> bool:
        """A batch that had been applied before: nothing was done."""
    def to_dict(self) -> dict[str, Any]:
        """The fields by name."""

@final
class IndexStats:
    """State and counters of an index."""

    def __new__(
        cls,
        replicas: int,
        blocks: int,
        memberships: int,
        believed: int,
        runs: int,
        table_entries: int,
        live_bytes: int,
        reserved_bytes: int,
        event_names: int,
        orphans: int,
        orphaned: int,
        orphans_dropped: int,
        unknown_removals: int,
        reused: int,
        dropped: int,
        evicted_capacity: int,
        evicted_bytes: int,
        expired: int,
        retracted: int,
        unmatched_event_blocks: int,
    ) -> IndexStats: ...
    @property
    def replicas(self) -> int:
        """Live replicas."""
    @property
    def blocks(self) -> int:
        """Distinct blocks held by at least one replica."""
    @property
    def memberships(self) -> int:
        """Pairs of (block, replica) held."""
    @property
    def believed(self) -> int:
        """Of these, pairs that are belief."""
    @property
    def runs(self) -> int:
        """Runs of the tree."""
    @property
    def table_entries(self) -> int:
        """Entries of the head table."""
    @property
    def live_bytes(self) -> int:
        """Bytes that hold something."""
    @property
    def reserved_bytes(self) -> int:
        """Bytes allocated, `live_bytes` included."""
    @property
    def event_names(self) -> int:
        """Names of engines in the event map."""
    @property
    def orphans(self) -> int:
        """Blocks in the orphan buffer now."""
    @property
    def orphaned(self) -> int:
        """Blocks ever put in the orphan buffer."""
    @property
    def orphans_dropped(self) -> int:
        """Blocks that the orphan buffer had no room for."""
    @property
    def unknown_removals(self) -> int:
        """Removals of what was not there."""
    @property
    def reused(self) -> int:
        """Blocks that replicas which report reuse said again."""
    @property
    def dropped(self) -> int:
        """New blocks that found no room in their replica."""
    @property
    def evicted_capacity(self) -> int:
        """Blocks evicted by a replica's capacity."""
    @property
    def evicted_bytes(self) -> int:
        """Blocks evicted by `max_bytes`."""
    @property
    def expired(self) -> int:
        """Blocks expired."""
    @property
    def retracted(self) -> int:
        """Blocks taken back by `retract`."""
    @property
    def unmatched_event_blocks(self) -> int:
        """Blocks from store events of replicas that no query has matched since, over all replicas."""
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type, tuple[int, ...]]: ...
    def to_dict(self) -> dict[str, int]:
        """The fields by name."""

@final
class ReplicaCache:
    """The prefix cache of one simulated engine, block by block.

    Only full blocks are kept, a prefix shared by many requests once; a hit is at most all but the last token of a
    prompt,
    rounded down to blocks; blocks of running requests are pinned; the least recently used block goes first and, inside
    one request, the tail before the head. Serving the next turn of a conversation costs about a microsecond.

    Args:
        capacity_tokens: rounded down to blocks; None: unlimited.
        block_size: tokens of a block, 1 to 65,536.
        record_events: keep what is stored and removed for `take_events`.

    Raises:
        ConfigError: a setting outside of these limits; in calls, hashes of another block size, a request that is not
            running, a context that does not begin with its prompt. Nothing is changed then.
    """

    def __new__(
        cls, capacity_tokens: int | None = None, block_size: int = 16, *, record_events: bool = False
    ) -> ReplicaCache: ...
    def hit(self, prompt: BlockHashes) -> int:
        """Leading tokens of the prompt that need no prefill now; changes nothing."""
    def start(self, prompt: BlockHashes) -> Admitted | NoRoom:
        """Admit a request: pin what is held, allocate the rest, evict as needed. Gives `NoRoom`, and changes nothing,
        if the
        running requests leave too little room.
        """
    def grow(self, request: int, context: BlockHashes) -> NoRoom | None:
        """Make room for what a running request has generated so far, or give `NoRoom` and change nothing."""
    def finish(self, request: int, context: BlockHashes) -> Finished:
        """End a request: the full blocks of its context (prompt and output) are kept, most recently used; what does
        not fit
        beside the other running requests is dropped from the end.
        """
    def abort(self, request: int) -> None:
        """End a request without output; its prompt stays cached."""
    def serve(self, prompt: BlockHashes, context: BlockHashes) -> int:
        """One request from start to finish with nothing in between; returns its hit tokens. A prompt that does not fit
        is
        counted in `refused` and leaves the cache as it was.
        """
    def clear(self) -> None:
        """Drop every block that no running request holds."""
    def take_events(self) -> list[CacheEvent]:
        """What was stored and removed since the last call, oldest first (`record_events=True`)."""
    @property
    def block_size(self) -> int:
        """Tokens of a block."""
    @property
    def capacity_tokens(self) -> int | None:
        """Capacity; None: unlimited."""
    @property
    def cached_tokens(self) -> int:
        """Tokens held, shared ones once."""
    @property
    def pinned_tokens(self) -> int:
        """Tokens of room that running requests hold."""
    @property
    def running(self) -> int:
        """Requests in flight."""
    @property
    def evicted_blocks(self) -> int:
        """Blocks evicted so far."""
    @property
    def refused(self) -> int:
        """Requests that `serve` could not place."""
    def __len__(self) -> int: ...
    def __bool__(self) -> Literal[True]: ...

@final
class Admitted:
    """A request was admitted."""

    def __new__(cls, request: int, hit_tokens: int) -> Admitted: ...
    @property
    def request(self) -> int:
        """Its number, for `grow`, `finish` and `abort`."""
    @property
    def hit_tokens(self) -> int:
        """Leading tokens that need no prefill."""
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type, tuple[int, ...]]: ...
    def to_dict(self) -> dict[str, int]:
        """The fields by name."""

@final
class NoRoom:
    """The running requests leave too little room; nothing was changed."""

    def __new__(cls, needed_blocks: int, available_blocks: int) -> NoRoom: ...
    @property
    def needed_blocks(self) -> int:
        """Blocks that the request would have to allocate or pin."""
    @property
    def available_blocks(self) -> int:
        """Blocks that no running request holds."""
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type, tuple[int, ...]]: ...
    def to_dict(self) -> dict[str, int]:
        """The fields by name."""

@final
class Finished:
    """What ending a request left in the cache."""

    def __new__(cls, stored: int, dropped: int) -> Finished: ...
    @property
    def stored(self) -> int:
        """Blocks that were not held before."""
    @property
    def dropped(self) -> int:
        """Blocks at the end of the context that found no room beside the running requests."""
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type, tuple[int, ...]]: ...
    def to_dict(self) -> dict[str, int]:
        """The fields by name."""

@final
class CacheEvent:
    """A change of what a replica holds."""

    @property
    def kind(self) -> Literal["stored", "removed"]:
        """`"stored"` or `"removed"`."""
    @property
    def parent(self) -> int | None:
        """Hash of the block before the first stored one; `None` at the beginning of a prompt."""
    @property
    def blocks(self) -> NDArray[np.uint64]:
        """`uint64[n]`: stored in order, or removed tail first."""

@final
class EntryCache:
    """The prefix cache of one simulated engine, whole entries at a time: the model behind the published figures.

    An entry (a conversation, a document) weighs all of its tokens. A shared head (a system prompt) is one more entry,
    resident from the first request on, and still weighs in every entry that begins with it. The least recently used
    entry goes first.

    Args:
        capacity_tokens: tokens of all entries and the shared head; None: unlimited.
    """

    def __new__(cls, capacity_tokens: int | None = None) -> EntryCache: ...
    def hit(self, entry: str, prompt_tokens: int, shared_tokens: int = 0) -> int:
        """Tokens of the entry cached now: its size, else the resident shared head, else none."""
    def serve(self, entry: str, prompt_tokens: int, context_tokens: int, shared_tokens: int = 0) -> int:
        """Serve a prompt and hold `context_tokens` as the entry afterwards; returns the tokens that were cached."""
    def clear(self) -> None:
        """Forget everything."""
    @property
    def capacity_tokens(self) -> int | None:
        """Capacity; None: unlimited."""
    @property
    def cached_tokens(self) -> int:
        """Tokens held, shared ones once."""
    @property
    def evicted_entries(self) -> int:
        """Entries evicted so far."""
    def __len__(self) -> int: ...
    def __bool__(self) -> Literal[True]: ...

# A column is a list or a one-dimensional array of one number per replica.
_Column: TypeAlias = Iterable[_Number] | NDArray[Any]

def is_answer(answer: object, slots: tuple[int, ...], /) -> TypeIs[tuple[int, str]]:
    """Whether a policy's answer is a tuple of one of these slots, which ascend, and a text."""

def chain(key: int, first: int, last: int) -> NDArray[np.uint64]:
    """The numbers of a chain at the places `first` up to `last`, exclusive, as `uint64[last - first]`.

    Raises:
        ConfigError: more than a prompt has blocks at most, or places that do not fit in 64 bits.
    """

def scattered(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Numbers scattered over all of 64 bits, one to one, as `uint64` of the same length: what is distinct stays so."""

def draw(seed: int, decision_id: int, k: int) -> float:
    """The `k`-th number of a decision, uniform in [0, 1): a hash of its arguments, the same everywhere."""

@final
class Attempt:
    """One attempt of a request, drafted by a `Ledger`."""

    @property
    def number(self) -> int:
        """Its number, different from that of any other attempt of its ledger."""
    @property
    def decision(self) -> Any:
        """What was decided."""
    @property
    def member(self) -> Any:
        """The replica that has it."""
    @property
    def name(self) -> str:
        """The replica's name."""
    @property
    def slot(self) -> int:
        """The replica's slot."""
    @property
    def generation(self) -> int:
        """Of the process that it was booked on."""
    @property
    def tried(self) -> frozenset[Any]:
        """Processes that earlier attempts of its request have tried."""
    @property
    def epoch(self) -> int:
        """The router's epoch when it was booked."""
    @property
    def hit(self) -> int:
        """Leading prompt tokens that the replica was believed to hold."""
    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt in tokens."""
    @property
    def begun(self) -> float:
        """When it was booked, in seconds."""
    @property
    def keyed(self) -> bool:
        """Whether the host has a key for it."""
    @property
    def open(self) -> bool:
        """Whether it has not ended."""
    @property
    def over(self) -> bool:
        """Whether its request is over, by this or another of its attempts: finished, or given up for another one with its key."""
    @property
    def retried(self) -> bool:
        """Whether a retry has taken its place."""
    @property
    def started(self) -> bool:
        """Whether it has had its first token."""
    @property
    def outcome(self) -> str:
        """What became of it, in words."""
    @property
    def insertion(self) -> Any:
        """What the belief said when the prompt was inserted; `None` = it is not booked."""
    @property
    def prefill(self) -> Any:
        """The attempt that computes the prompt, if this one only decodes behind it; else `None`."""
    @property
    def followers(self) -> tuple[Any, ...]:
        """What follows its request to its end."""
    @followers.setter
    def followers(self, followers: tuple[Any, ...]) -> None: ...

@disjoint_base
class Lease:
    """Holds an attempt: once it is collected, the attempt, if it is open and has no key, is given up by the ledger's next
    `expire`. No Python code runs in the collector.

    Args:
        host: what the holder belongs to.
        attempt: what it holds.
    """

    def __new__(cls, host: Any, attempt: Attempt, /) -> Self: ...
    @property
    def host(self) -> Any:
        """What it belongs to."""
    @property
    def attempt(self) -> Attempt:
        """What it holds."""

@final
class Sight:
    """What a decision sees of the fleet: what each replica holds of the prompt, its load, and the session's place. Immutable.

    Args:
        hits: leading prompt tokens that each slot is believed to hold.
        loads: load of each slot; longer where slots are free.
        binding: slot that the session is bound to; negative = bound, but it has to move; `None` = not bound.
        shared: share of the last beginnings that branched where the prompt leaves what is known.

    Raises:
        ConfigError: a hit is no token count, or a load is no number.
    """

    def __new__(
        cls,
        hits: Sequence[int],
        loads: _Column[float],
        *,
        binding: int | None = None,
        shared: float | None = None,
    ) -> Sight: ...
    def columns(self) -> tuple[list[int], list[float], int | None]:
        """Hits, loads and binding, as they follow each other in a view."""
    @property
    def hits(self) -> list[int]:
        """Leading prompt tokens that each slot is believed to hold."""
    @property
    def loads(self) -> list[float]:
        """Load of each slot."""
    @property
    def binding(self) -> int | None:
        """Slot that the session is bound to; -1 if its replica has left or drains; `None` = not bound."""
    def signal(self, place: int, /) -> Any:
        """A signal that was asked for, by its place in `Kernel.SIGNALS`.

        Args:
            place: 0 = the first.

        Returns:
            What the field of a view has.

        Raises:
            ConfigError: it was not asked for.
        """
    def hit(self, slot: int, /) -> int:
        """Leading prompt tokens that one slot is believed to hold.

        Args:
            slot: its number.

        Returns:
            Tokens.

        Raises:
            ConfigError: there is no such slot.
        """
    def best_hit(self, slots: tuple[int, ...], /) -> int:
        """The most that one of these slots is believed to hold.

        Args:
            slots: their numbers.

        Returns:
            Tokens.

        Raises:
            ConfigError: there is no such slot.
        """
    def bound_to(self, binding: int | None, /) -> Sight:
        """The same for a session that is bound elsewhere.

        Args:
            binding: the slot; negative = it has to move.

        Returns:
            Another sight.
        """

@final
class Formula:
    """One number per candidate of a decision, worked out from what a view has. Costs and scores of policies are formulas. Immutable.

    Args:
        name: of a field of a view that is a column of numbers; `weights`; `saved` (tokens held, as held / (held + 1,024)); `prefix`
            (share of the prompt held); `length` (square of the tokens held over 8,192, at most 1); `kv_free` (free share of the
            KV cache; where it is not reported, the mean of where it is, or a half); `session` (1 where the session is bound, else
            0); `longest` (0 at the holders of the longest match, elsewhere minus infinity).

    Raises:
        ConfigError: there is no such column.
    """

    def __new__(cls, name: str) -> Formula: ...
    @staticmethod
    def constant(value: float) -> Formula:
        """The same number everywhere."""
    @staticmethod
    def given(number: int) -> Formula:
        """A column that is given with the question, by its place."""
    @staticmethod
    def sum(
        *terms: tuple[float, Unpack[tuple[Formula, ...]]], prompt: float = 0.0, over: Formula | None = None
    ) -> Formula:
        """`prompt * tokens of the prompt + weight * formula * ... + ...`, divided by a formula if there is one.

        Args:
            terms: a weight and formulas each.
            prompt: what each token of the prompt counts.
            over: what divides the sums.

        Returns:
            The sums.
        """
    @staticmethod
    def at_least_zero(formula: Formula) -> Formula:
        """The same, and 0 where it is less."""
    @staticmethod
    def rounded(formula: Formula) -> Formula:
        """The same, rounded to whole numbers, halves to even ones."""
    @staticmethod
    def falling(formula: Formula) -> Formula:
        """From 1 at the lowest to 0 at the highest, in proportion; 1 everywhere if all are equal."""
    @staticmethod
    def cold(formula: Formula) -> Formula:
        """A half where somebody holds something of the prompt, else the same."""
    @staticmethod
    def rates(otherwise: float) -> Formula:
        """Learned prefill rates; where none is known the harmonic mean of the others, or `otherwise` if there are none."""
    @staticmethod
    def within(ratio: float, gap: float) -> Formula:
        """0 where the load is at most `ratio` times the least or within `gap` of it, elsewhere minus infinity."""
    @staticmethod
    def holding(share: float) -> Formula:
        """0 where this share of the prompt is held, elsewhere minus infinity; 0 everywhere if nobody holds so much."""
    @staticmethod
    def fetched(threshold: float) -> Formula:
        """Hits, and the longest one where that is longer by more than a factor."""
    @staticmethod
    def prefill(price: StepPrices | Callable[[int, int], float], overhead_s: float, cached: Formula) -> Formula:
        """Seconds to compute what is left of the prompt behind so many cached tokens.

        Args:
            price: prices of steps, or a function of new and cached tokens.
            overhead_s: what is added to each of the prices of steps.
            cached: the tokens.

        Returns:
            The seconds.
        """
    @staticmethod
    def decode(price: StepPrices | Callable[[int, int], float], requests: Formula, contexts: Formula) -> Formula:
        """Seconds of a decode step once the prompt has joined what is decoded.

        Args:
            price: prices of steps, or a function of requests and of the tokens that they hold all together.
            requests: requests in decode.
            contexts: tokens that these hold.

        Returns:
            The seconds.
        """
    @staticmethod
    def transfer(prices: TransferPrices) -> Formula:
        """Seconds to move what is not held of the prompt from the replica that computes it; 0 for that itself."""
    @staticmethod
    def answer(limit: float) -> Formula:
        """Tokens of the answer: what the request allows, at most `limit`."""

def best_of(scores: _Column[float], temperature: float, seed: int, decision_id: int, /) -> int:
    """The position of the highest score, of equal ones by draw; with a temperature above 0 one drawn by softmax.

    Args:
        scores: a column.
        temperature: 0, or what the scores are divided by.
        seed: the router's seed.
        decision_id: number of the decision.

    Returns:
        The position, from 0.

    Raises:
        ValueError: there are no scores, or one is NaN; a ConfigError if they are no column at all.
        TypeError: a score is no real number.
    """

def start_seconds(
    waiting_tokens: float | None,
    waiting: float | None,
    kv_use: float | None,
    tokens_per_s: float | None,
    queued: float,
) -> float | None:
    """Seconds until a new request would start at a replica, by its report: SMG's `least_load` estimate.

    Args:
        waiting_tokens: uncached tokens that wait there.
        waiting: requests that wait there, which stand for 1,024 tokens each where no tokens are reported.
        kv_use: share of the KV cache in use.
        tokens_per_s: prefill throughput; `None` = 2,000.
        queued: uncached tokens that this router has waiting there.

    Returns:
        Seconds; `None` = too little is reported.
    """

@final
class Lens:
    """What a policy reads of a router, and how.

    Args:
        block_size: tokens of a block. A hit is at most the full blocks before the last token, which engines recompute.
        wanted: places in `Kernel.SIGNALS` of what is kept for the policy.
        head: tokens of the prompt's head, or a function that gives them for the prompt's length.
        credits: what tokens count on each medium, as an array; `None` = all count in full.

    Raises:
        ConfigError: a block has no tokens.
    """

    def __new__(
        cls,
        block_size: int,
        wanted: tuple[int, ...],
        head: int | Callable[[int], int],
        credits: NDArray[np.float64] | None = None,
    ) -> Lens: ...

@final
class Roster:
    """The names of a fleet's replicas as hashes, and their relative speeds, by slot. Immutable.

    Args:
        hashes: 64-bit hash of each replica's name.
        weights: speed of each replica relative to the others; `None` = all are equal.

    Raises:
        ConfigError: a hash does not fit in 64 bits.
    """

    def __new__(cls, hashes: tuple[int, ...], weights: Sequence[float] | None = None) -> Roster: ...

@final
class Kernel:
    """A policy as a compiled function of what a decision sees: a pure one, as every policy is."""

    SPILLS: ClassVar[tuple[str, ...]]
    """What `cache_aware` may compare a holder with."""
    HOLDERS: ClassVar[tuple[str, ...]]
    """Which of several holders `cache_aware` may follow."""
    MEASURES: ClassVar[tuple[str, ...]]
    """What `least` may go by."""
    KEYS: ClassVar[tuple[str, ...]]
    """What `hashed` and `bounded` may place."""
    SIGNALS: ClassVar[tuple[str, ...]]
    """The signals of a view, in the order of its last fields."""
    @staticmethod
    def random() -> Kernel:
        """Draws one."""
    @staticmethod
    def round_robin() -> Kernel:
        """Takes turns."""
    @staticmethod
    def least(by: str) -> Kernel:
        """Takes the least loaded by one of `MEASURES`; those that it cannot tell apart are told apart by load, then drawn."""
    @staticmethod
    def of_two(ranked: bool) -> Kernel:
        """Draws two and takes the less loaded, or the one that ranks first by its report."""
    @staticmethod
    def two_choices(text_hash: Callable[[str], int]) -> Kernel:
        """Takes the less loaded of a session's two first choices. `text_hash`: hashes a session."""
    @staticmethod
    def session(by_key: bool, text_hash: Callable[[str], int], fallback: Kernel | None) -> Kernel:
        """Stays where the session is bound; a new one goes by its key, or as the fallback says."""
    @staticmethod
    def hashed(key: str, text_hash: Callable[[str], int], fallback: Kernel | None) -> Kernel:
        """Takes the first choice of one of `KEYS`, however busy it is."""
    @staticmethod
    def bounded(
        key: str, factor: float, rescue: bool, text_hash: Callable[[str], int], fallback: Kernel | None
    ) -> Kernel:
        """Takes the first choice of a key that has room; see `prefixroute.policies.Bounded`."""
    @staticmethod
    def prefix_hash(factor: float, gap: float, fallback: Kernel | None) -> Kernel:
        """Takes the first choice of the prompt's head unless that is overloaded; see `prefixroute.policies.PrefixHash`."""
    @staticmethod
    def best(
        *stages: tuple[Formula, str, float | None], temperature: float = 0.0, rejects: bool = False
    ) -> Kernel:
        """Takes the highest of scores.

        Args:
            stages: (scores, why, share) each. Scores decide if the longest match is more than that share of the prompt, or the
                share is `None`, and if they leave a candidate, which minus infinity is not; the last decide in any case.
            temperature: above 0, one is drawn by softmax of `score / temperature`.
            rejects: nothing is taken whose score, negated, is above the request's `slo_ttft_s`.

        Returns:
            The kernel.
        """
    @staticmethod
    def cache_aware(
        *,
        min_match_tokens: float,
        min_match_ratio: float,
        spill: str,
        spill_ratio: float,
        spill_gap: float,
        shorter: bool,
        holders: str,
        gate_ratio: float,
        gate_gap: float,
        gated: Kernel | None,
        fallback: Kernel | None,
        adaptive: bool,
    ) -> Kernel:
        """Follows the longest match; see `prefixroute.policies.CacheAware`, which has these parameters."""
    def decide(
        self,
        sight: Sight,
        slots: tuple[int, ...],
        seed: int,
        decision_id: int,
        prompt_tokens: float,
        request: Any,
        roster: Roster,
        signals: tuple[Any, ...],
        /,
    ) -> tuple[int, str]:
        """The pick of a decision: a slot and why. -1: there is nothing to go by, and why; the policy's own `decide` has to answer.

        Args:
            sight: what is known of each slot.
            slots: the candidates, ascending.
            seed: the router's seed.
            decision_id: number of the decision.
            prompt_tokens: length of the prompt.
            request: what the caller said of it.
            roster: names and speeds of the replicas.
            signals: the last fields of a view, from the first signal on; those that the sight has may be `None`.

        Returns:
            The slot, or -1; and the reason.

        Raises:
            ConfigError: a slot is beyond the columns, or a signal is missing.
            ValueError: there is no candidate, or a load is NaN.
        """
    def scores(
        self,
        sight: Sight,
        slots: tuple[int, ...],
        seed: int,
        decision_id: int,
        prompt_tokens: float,
        request: Any,
        roster: Roster,
        signals: tuple[Any, ...],
        /,
        *,
        given: list[Any] | None = None,
    ) -> tuple[NDArray[np.float64], str, float]:
        """The scores of the candidates, why, and the temperature, of a kernel that takes the highest.

        Args:
            sight: as for `decide`, like all up to `signals`.
            slots: the candidates.
            seed: the router's seed.
            decision_id: number of the decision.
            prompt_tokens: length of the prompt.
            request: what the caller said of it.
            hashes: of names.
            weights: of replicas.
            signals: of the view.
            given: a column for each `Formula.given`.

        Returns:
            `float64[candidates]`, the reason and the temperature.

        Raises:
            ConfigError: the kernel has no scores, or what `decide` raises.
        """

@final
class LoadCounts:
    """Requests and tokens by slot, as they are when they are read."""

    @property
    def in_flight(self) -> list[int]:
        """Requests."""
    @property
    def queued(self) -> list[int]:
        """Prompt tokens that wait to be computed."""
    @property
    def decoding(self) -> list[int]:
        """Context tokens in decode."""

_Effects: TypeAlias = list[tuple[Attempt, bool, tuple[Any, ...]]] | None

@final
class Ledger:
    """Load, requests in flight, sessions, shared heads and counters of one router. Each call is one step that no signal
    divides.

    Lists have one entry a slot. What the end of an attempt asks of the router is a list of (attempt, whether its predicted
    blocks have to be taken back, what follows its request if that is over); `None` = nothing.

    Args:
        window: length of the recent window in bookings; `None` = 200, or 25 for each replica if that is more.
        window_s: length of the window of prefill seconds.
        ticket_s: seconds without progress after which an attempt is given up.
        session_idle_s: seconds after which an unused session is forgotten.
        session_capacity: sessions remembered at most.
        recent: whether the recent window is kept.
        balances_recent: whether policies weigh what the recent window holds in place of what is in flight.
        served: whether served requests count in `busy`.
        active_block_size: tokens of a block, if the blocks of requests in flight are counted; `None` = they are not.
        hash_key: key of the 128-bit hashes that names of sessions and requests are kept as.
    """

    def __new__(
        cls,
        *,
        window: int | None,
        window_s: float,
        ticket_s: float,
        session_idle_s: float,
        session_capacity: int,
        recent: bool,
        balances_recent: bool,
        served: bool,
        active_block_size: int | None = None,
        hash_key: int,
    ) -> Ledger: ...
    def see(self, states: Sequence[tuple[str | None, int, bool]]) -> None:
        """Take in what the slots are: (name, generation, draining) of each; a free one has no name and generation -1.

        A slot with another process has no load. The counts of a replica that has left go to those of all that have left.
        """
    def draft(
        self,
        decision: Any,
        member: Any,
        name: str,
        slot: int,
        generation: int,
        hit: int,
        prompt_tokens: int,
        key: str | None,
        tried: frozenset[Any],
        epoch: int,
        now: float,
        earlier: Attempt | None = None,
        /,
    ) -> Attempt:
        """An attempt that is going to be booked; `earlier`: one of the same request."""
    def book(
        self,
        attempt: Attempt,
        insertion: Any,
        decision_id: int,
        reason: str,
        sight: Sight,
        slots: tuple[int, ...],
        session: str | None,
        media: Sequence[int] | None,
        spent_s: float | None,
        earlier: Attempt | None = None,
        hedge: bool = False,
        /,
    ) -> _Effects:
        """Book an attempt: load up, key and session to it, everything counted.

        Args:
            attempt: what is booked.
            insertion: what the belief said.
            decision_id: number of the decision.
            reason: the policy's word for why.
            sight: what was known of each slot.
            slots: the candidates.
            session: the request's session.
            media: hit tokens on GPU, CPU and disk; `None` = all on the GPU.
            spent_s: prefill seconds that the replica is given; `None` = not counted.
            earlier: an attempt of the same request; `None` = this is the first.
            hedge: the earlier one goes on, and the first to answer wins.
        """
    def book_pair(
        self,
        prompt: Attempt,
        insertion: Any,
        decision_id: int,
        reason: str,
        sight: Sight,
        slots: tuple[int, ...],
        session: str | None,
        media: Sequence[int] | None,
        spent_s: float | None,
        answer: Attempt,
        answer_insertion: Any,
        answer_decision_id: int,
        answer_reason: str,
        earlier: Attempt | None = None,
        /,
    ) -> tuple[bool, _Effects]:
        """Book both halves of a request, or what takes the place of an earlier pair, whose half that decodes is `earlier`.

        A half without an insertion is that of the earlier pair, and goes on. What does not go on is given back.

        Returns:
            Whether it was booked, which it was not if a half that was to go on has ended; and effects.
        """
    def first_token(self, attempt: Attempt, now: float, /) -> _Effects:
        """Note that an engine answers, or goes on answering."""
    def finish(
        self, attempt: Attempt, now: float, reported_hit_tokens: int | None, belief: Any, held: Any, namespace: Any, /
    ) -> tuple[_Effects, bool | None] | None:
        """End an attempt normally.

        Args:
            attempt: what ends.
            now: seconds.
            reported_hit_tokens: cached tokens as the engine reports them.
            belief: has what the replica holds from now on inserted, before anything else.
            held: that, as `belief.insert` takes it; `None` = nothing.
            namespace: of what is held, if that is not hashed.

        Returns:
            `None` if it had ended; else what the end asks for, and whether the replica's belief counts from now on, `None` if
            that has not changed.
        """
    def abort(self, attempt: Attempt, why: str, /) -> _Effects:
        """Give an attempt up; `why` is a word of `counts`."""
    def goes_on(self, attempt: Attempt) -> bool:
        """Whether another attempt of the same request is in flight."""
    def drop(self, attempt: Attempt) -> None:
        """Leave an attempt to be given up by the next `expire`. May be called at any time."""
    @property
    def dropped(self) -> bool:
        """Whether an attempt waits to be given up."""
    def expire(self, now: float) -> _Effects:
        """Give up what was dropped, and what has made no progress for too long."""
    def sweep(self, now: float) -> None:
        """Forget idle sessions, and prefill seconds that have left the window."""
    def find(self, key: str) -> Attempt | None:
        """The attempt in flight with this key."""
    def known(self, key: str) -> Attempt | None:
        """The attempt with this key that is in flight or among the last 256 that ended."""
    @property
    def attempts(self) -> list[Attempt]:
        """The attempts in flight, in no order."""
    def count(self, what: str) -> None:
        """Count what has happened; `what` is a word of `counts`."""
    def time(self, seconds: float, /) -> None:
        """Count a decision's time."""
    def __len__(self) -> int:
        """Attempts in flight."""
    def bound(self, session: str, now: float, /) -> int | None:
        """The slot that a session is bound to; -1: its replica has left or drains; `None`: it is not bound."""
    def bind(self, session: str, slot: int, generation: int, now: float, /) -> None:
        """Bind a session to a process."""
    def alias(self, session: str, alias: str, now: float, /) -> bool:
        """Bind another name of a session to its process; whether the session was bound."""
    def forget(self, session: str) -> bool:
        """Drop a session's binding; whether there was one."""
    def forget_sessions(self) -> int:
        """Drop every session's binding; how many there were."""
    def session_name(self, session: str) -> bytes:
        """What a session is called in 16 bytes, the same under one hash key everywhere."""
    def learn_session(self, name: bytes, slot: int, generation: int, seen: float, /) -> None:
        """Take in where another router has bound a session, unless it was used later than that here."""
    def forget_name(self, name: bytes) -> None:
        """Drop the binding of a session by its name in bytes."""
    def newest_sessions(self, most: int) -> list[tuple[bytes, int, int, float]]:
        """(name in bytes, slot, generation, when it was used) of the sessions used last, newest first."""
    @property
    def sessions(self) -> int:
        """Sessions remembered."""
    def loads(self) -> LoadCounts:
        """What is in flight, by slot."""
    @property
    def since_requests(self) -> list[int]:
        """Requests booked since the replica's report."""
    @property
    def since_tokens(self) -> list[int]:
        """Uncached tokens booked since the replica's report."""
    @property
    def rates(self) -> list[float | None]:
        """Learned prefill rate in uncached tokens a second; `None` = not yet known."""
    def reported(self, slot: int) -> None:
        """A replica has reported its load: what was booked before is in the report."""
    def look(
        self,
        lens: Lens,
        belief: Any,
        prompt: Any,
        namespace: Any,
        width: int,
        session: str | None,
        now: float,
        load: int | Sequence[float],
        kv_at: int | None = None,
        scale: float = 1.0,
        /,
    ) -> tuple[Any, Sight]:
        """What a decision sees: the prompt hashed and matched, and what the ledger knows, in one call.

        Args:
            lens: what is read.
            belief: what each replica is believed to hold.
            prompt: as the belief takes it.
            namespace: what else must be equal.
            width: slots.
            session: the request's session.
            now: seconds.
            load: which of `LOADS` is balanced, by its place; or the loads.
            kv_at: slot of the replica that computes the prompt, where it is decided who decodes.
            scale: of the hits, from the router's tokens to the engine's.

        Returns:
            The prompt's hashes, and the sight.

        Raises:
            TokensError: the prompt holds something that is no token id.
            ConfigError: the hashes are of other blocks or another key, or a load is no number.
        """
    LOADS: ClassVar[tuple[str, ...]]
    """Names of the loads that a ledger knows."""
    def balanced(self, load: int, /) -> list[float]:
        """A load by slot, by its place in `LOADS`."""
    @property
    def counts(self) -> dict[str, int]:
        """How often each outcome was counted, those that were."""
    @property
    def own_in_flight(self) -> list[int]:
        """This router's own requests in flight by slot."""
    @property
    def moves(self) -> dict[str, int]:
        """How often bindings changed, and why."""
    @property
    def decisions(self) -> list[tuple[bool, str, str, int]]:
        """(on who decodes, reason, replica, count) of committed decisions; the replica is empty for those that have
        left."""
    @property
    def hit_tokens(self) -> list[list[int]]:
        """Hit tokens by slot on GPU, CPU and disk; the last entry is of replicas that have left."""
    @property
    def tokens(self) -> tuple[int, int]:
        """Prompt tokens of all requests, and the most that any candidate, or the replica that was taken, held of each."""
    @property
    def durations(self) -> tuple[list[int], float]:
        """Decisions by the time that they took, bounded by `DURATIONS_S`, and seconds of all."""
    @property
    def records(self) -> list[tuple[int, int, int, bool, int] | None]:
        """(predicted tokens, reported tokens, requests, distrusted, tokens predicted and not reported) by slot; the
        last entry is of processes that are gone. `None`: nothing was reported."""
    @property
    def unreported(self) -> int:
        """Requests that finished without a report."""
    @property
    def head(self) -> tuple[int, float, int, int, int]:
        """The head at which most of the last beginnings branched: (tokens, share, holders, replicas, beginnings)."""

# Two axes and the values at each pair of their points, row by row.
_Points: TypeAlias = tuple[Sequence[float], Sequence[float], Sequence[float]]

@final
class TransferPrices:
    """Prices of every transfer of one model's keys and values over one link: tokens in, seconds out. Immutable.

    Policies, the simulator and :class:`prefixroute.costmodel.CostModel` all ask it. Tokens must be finite; they are not
    checked, and 0 or fewer cost nothing.
    """

    def __new__(cls, latency_s: float, request_s: float, layers: Sequence[tuple[float, float]]) -> TransferPrices:
        """Price transfers.

        Args:
            latency_s: seconds between the end of sending and the arrival.
            request_s: seconds to send what a request keeps whatever its length.
            layers: of like layers, seconds to send a token, and the tokens that they keep at most.
        """

    def seconds(self, tokens: float) -> float:
        """Return the seconds to move ``tokens`` of a prompt."""

    def __getnewargs__(self) -> tuple[float, float, list[tuple[float, float]]]:
        """Return the arguments, for pickling."""

@final
class StepPrices:
    """Prices of every step of one model on one replica: tokens in, seconds out. Immutable.

    The simulated engine, first-token times and dollars all ask it. Tokens must be 0 or more and finite; they are not
    checked.
    """

    @staticmethod
    def formula(
        linear_s: float,
        attention_s: float,
        byte_s: float,
        weight_bytes: float,
        active_weight_bytes: float,
        kv_bytes: float,
    ) -> StepPrices:
        """Price operations: seconds a token, and a pair of tokens; where requests decode, bytes read from memory
        too."""

    @staticmethod
    def roofline(
        *,
        step_s: float,
        prefill_s: float,
        token_s: float,
        logits_s: float,
        state_s: float,
        matmul: tuple[float, float],
        experts: tuple[float, float, float, float, float] | None,
        attention: Sequence[tuple[float, float, float]],
    ) -> StepPrices:
        """Price what a step computes, reads and sends.

        Args:
            step_s: seconds of any step.
            prefill_s: further seconds of a step with prompt tokens.
            token_s: seconds a token beside its products.
            logits_s: seconds a prompt or request of the step.
            state_s: seconds a request that decodes.
            matmul: of the weights that every token passes through, seconds to compute a token and to read them once.
            experts: seconds to compute a token and to read all of them once, experts of a layer, those that a token picks,
            and rows that an expert's tokens are filled up by at most.
            attention: of like layers, seconds a pair of tokens of a prompt, seconds a token of context, and the window
            in tokens.
        """

    @staticmethod
    def grid(prefill: _Points, decode: _Points, beside: _Points, step_s: float) -> StepPrices:
        """Price steps by tables; see `prefixroute.costmodel.StepTimes`.

        Raises:
            ConfigError: an axis does not ascend, or seconds are missing, negative or no numbers.
        """

    def step_seconds(
        self, chunks: Sequence[tuple[int, int]], decodes: int = 0, decode_context_tokens: int = 0
    ) -> float:
        """Return the seconds of a step.

        Args:
            chunks: of each prompt in the step, (tokens computed, tokens before them).
            decodes: requests that decode one token.
            decode_context_tokens: tokens that these attend to, all together.
        """

    def prefill_seconds(self, new_tokens: float, cached_tokens: float = 0.0) -> float:
        """Return the seconds of a step that computes ``new_tokens`` of one prompt behind ``cached_tokens``."""

    def prefill_seconds_of(
        self, new_tokens: NDArray[np.float64], cached_tokens: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return :meth:`prefill_seconds` of each pair of two arrays of one dimension and length.

        Raises:
            ConfigError: they differ in length.
        """

@final
class ReplicaStore:
    """The cache of one simulated replica, over tiers if there are any. A :class:`Cluster` may serve requests from it.

    Args:
        capacity_tokens: of the GPU, rounded down to blocks; None: unlimited.
        block_size: tokens of a block, 1 to 65,536.
        tiers: (capacity in tokens, seconds to load a token) of each memory below, fastest first.
        record_events: keep what is stored and removed on the GPU for :meth:`take_events`.

    Raises:
        ConfigError: a setting outside of these limits; in calls, hashes of another block size.
    """

    def __new__(
        cls,
        capacity_tokens: int | None = None,
        block_size: int = 16,
        *,
        tiers: Sequence[tuple[int, float]] = ...,
        record_events: bool = False,
    ) -> ReplicaStore: ...
    def hit(self, prompt: BlockHashes) -> int:
        """Return the leading prompt tokens on the GPU that need no prefill now; change nothing."""

    def serve(self, prompt: BlockHashes, context: BlockHashes) -> int:
        """Serve a request from start to end; return its hit tokens, those loaded from a tier included."""

    def clear(self) -> None:
        """Drop every block that no running request holds."""

    def take_events(self) -> list[CacheEvent]:
        """Return what was stored and removed on the GPU since the last call, oldest first."""

    @property
    def cached_tokens(self) -> int:
        """Tokens held on the GPU, shared ones once."""

    @property
    def pinned_tokens(self) -> int:
        """Tokens of room that running requests hold."""

    @property
    def running(self) -> int:
        """Requests in flight."""

    @property
    def loaded_tokens(self) -> int:
        """Tokens that were loaded from tiers."""

    @property
    def oversized(self) -> int:
        """Requests that were larger than the cache, as they came or as they grew."""

def duplicated_tokens(stores: Sequence[ReplicaStore]) -> int:
    """Return the tokens on the GPUs of these replicas, all of one block size, that another of them holds as well: what
    all hold beyond one copy."""

@final
class Cluster:
    """Replicas that serve requests in virtual time, seconds from the start. Not thread-safe: a simulation is one
    thread.

    Args:
        prices: seconds of a step, as numbers or as a function of its chunks, its decoding requests and their context
        tokens.
        chunk_tokens: tokens of one step.
        max_running: requests in prefill or decode at once.
        overhead_s: seconds that admitting a request adds to a step.
        warmup: requests with a smaller number are not logged.
        late_s: seconds above which a gap between two tokens of an answer is late; infinite = none is.
        link: prices of moving keys and values between replicas; None: they are there at once.
    """

    BATCH: int
    def __new__(
        cls,
        prices: StepPrices | Callable[[list[tuple[int, int]], int, int], float],
        *,
        chunk_tokens: int,
        max_running: int,
        overhead_s: float = 0.0,
        warmup: int = 0,
        late_s: float = ...,
        link: TransferPrices | None = None,
    ) -> Cluster: ...
    def add(self, store: ReplicaStore, label: int) -> int:
        """Add an idle replica; return its number. ``label`` names it in the log."""

    def tell(self, ledger: Ledger, belief: Any) -> None:
        """Tell a router, from now on, of the requests that are submitted with an attempt: first tokens, and ends.

        Each is a step of the ledger, at its time on the clock; what a replica then holds goes into the belief before. The router
        neither hedges nor books pairs, and no other router listens to it.

        Args:
            ledger: the router's.
            belief: the router's.
        """

    def let_go(self, number: int) -> None:
        """Tell no more of a request, whose attempt has ended."""

    def submit(
        self,
        replica: int,
        number: int,
        session: int,
        prompt: BlockHashes,
        context: BlockHashes,
        prompt_tokens: int,
        output_tokens: int,
        arrival: float,
        now: float,
        decode: int | None = None,
        attempt: Attempt | None = None,
    ) -> None:
        """Give a request to a replica at second ``now``, to which the cluster has been advanced.

        With ``decode``, the replica computes the prompt alone, and that one decodes. ``attempt``: what the router has booked that
        is told of requests, see :meth:`tell`.

        Raises:
            ConfigError: a prompt without tokens, or more than 2**32 tokens of prompt or output.
        """

    def redirect(self, number: int, decode: int) -> None:
        """Let a request whose prompt is not computed yet be decoded by another replica."""

    def advance(self, until: float, inclusive: bool = True) -> list[tuple[int, float, int, Any]]:
        """Let time pass up to second ``until``; return what became known, in order.

        Returns:
            ``(0, at, number, hit_tokens)``: a first token is out; ``(1, at, number, hit_tokens)``: a request is
            finished. If a router is told (:meth:`tell`), no first tokens, and in place of the hits whether the replica's belief
            counts from now on, ``None`` = as before;
            ``(2, at, replica, events)``: a store that records them has changed; ``(3, at, number, 0)``: a request that
            was aborted while it ran is out. :attr:`BATCH` or more: call again.

        Raises:
            ConfigError: a context that does not begin with its prompt.
            ValueError: a step takes no finite time.
        """

    def abort(self, replica: int, number: int, now: float) -> bool:
        """Drop a request whose client has gone; return whether it waited and is gone at once.

        One that runs is taken out when the step under way ends, and :meth:`advance` tells of it. What it has computed
        stays cached.
        """

    @property
    def next_at(self) -> float | None:
        """When something happens next, unless a request comes first."""

    def stop(self, replica: int, now: float) -> tuple[list[int], list[int], float]:
        """Let a replica die.

        Its store keeps the prompts of its requests as ordinary cached blocks.

        Returns:
            The numbers of the requests that begin again: its own, oldest first, and those elsewhere whose keys and values
            it had; those that it was to decode and that are in prefill elsewhere, each of which needs :meth:`redirect`
            before time goes on; and the seconds that it worked.
        """

    def busy_s(self, replica: int) -> float:
        """Return the seconds that a replica has spent in steps that have ended."""

    def waiting(self, replica: int) -> int:
        """Return the requests of a replica that have not been admitted."""

    def running(self, replica: int) -> int:
        """Return the requests of a replica in prefill or decode."""

    @property
    def preempted(self) -> int:
        """How many times a request was preempted, on all replicas."""

    def gaps(self) -> list[tuple[float, int]]:
        """Return the gaps between tokens of answers: (seconds, to within 0.4 %, how many), the shortest first. Requests of
        the warm-up leave none.
        """

    def take_log(self) -> bytes:
        """Return the lines of the requests that have finished since the last call, as ``RequestLog`` keeps them."""

@final
class PeerChains:
    """The chains of blocks that a commit feed has carried, so that a message names only the blocks beyond the first
    unknown one.

    Bounded: the chain that was used longest ago goes first. Safe to use from many threads.

    Args:
        block_size: tokens of a block.
        capacity: blocks kept at most, about 11 bytes each.
    """

    def __new__(cls, block_size: int, capacity: int) -> PeerChains: ...
    def extend(self, start: int, parent: int, rest: bytes) -> BlockHashes | None:
        """The chain that goes on behind a known one, stored; None if that one is not known.

        Args:
            start: blocks of the known chain.
            parent: hash of its last block; without blocks it is not looked at.
            rest: the further hashes as little-endian bytes.

        Raises:
            ConfigError: the bytes are no whole number of hashes.
        """
    def chain(self, last: int, blocks: int) -> BlockHashes | None:
        """The chain of so many blocks that ends with this hash; None if it is not known."""
    def newest(self, most: int, most_blocks: int) -> list[BlockHashes]:
        """The chains used last, newest first: at most so many, of so many blocks in all."""
    def __len__(self) -> int: ...

@final
class PeerSeal:
    """What routers of a fleet have in common. Frames of others are refused.

    Args:
        fingerprint: tells strangers, in 32 bits.
        key: of the frames' tags, 16 bytes.
    """

    def __new__(cls, fingerprint: int, key: bytes, /) -> PeerSeal: ...
    @property
    def fingerprint(self) -> int: ...

@final
class PeerFrame:
    """A frame of a peer whose messages wait to be applied. `len()` is the number of messages that came."""

    @property
    def peer(self) -> int: ...
    @property
    def newest(self) -> int:
        """Sequence of the last message."""
    def __len__(self) -> int: ...

@final
class BatchNumbers:
    """The last batches that were applied of an engine's process, by number and content.

    Tells a batch that comes again from one of another process, whose numbers begin anew.
    """

    def __new__(cls) -> BatchNumbers: ...
    @staticmethod
    def content(payload: bytes, /) -> int:
        """Hash of a batch's bytes."""
    def content_of(self, number: int, /) -> int | None:
        """Hash of an applied batch's bytes; None: it is not remembered."""
    def applied(self, number: int, payload: bytes, /, *, burnt: bool = False) -> None:
        """Note that a batch was applied.

        Args:
            number: above all numbers that were applied.
            payload: its bytes.
            burnt: no number between the last one and this was ever published.
        """
    def back(
        self, number: int, payload: bytes, /, published: int | None
    ) -> Literal["repeated", "late", "restarted"]:
        """Tell what a number means that is not above the last one.

        Args:
            number: the batch's.
            payload: its bytes.
            published: the highest number published since numbers can only have risen; None: unknown.

        Returns:
            "repeated" = it was applied; "late" = it was missing, and is too late to be applied in order; "restarted" = it is
            of another process.
        """
    def clear(self) -> None:
        """Forget all: the next batch can have any number."""

@final
class PeerInbox:
    """Peers' attempts in flight, counted as load on a router's ledger. Each call is one step that no signal divides.

    Args:
        ledger: the router's.
        chains: the chains that the feed has carried.
        seal: what the router and its peers have in common.
        counts: whether load is counted; else the transport knows it better.
    """

    def __new__(cls, ledger: Ledger, chains: PeerChains, seal: PeerSeal, *, counts: bool = True) -> PeerInbox: ...
    def see(self, processes: list[tuple[int, int, int]], /) -> None:
        """Know these processes, and no others: (mark, slot, generation) of each."""
    def read(self, data: bytes, own: int, /) -> PeerFrame | None:
        """Read a frame, which is to be applied then. None: it is of the router `own`, was read before, or is too old to tell.

        Raises:
            PeerError: it is no frame, or none of a peer.
        """
    def apply(self, frame: PeerFrame, now: float, /) -> tuple[Any, ...] | None:
        """Apply messages of a frame up to the first that leaves something to do.

        Returns:
            What that is, its kind first; None: all are applied.
        """
    def give_up(self, peer: int, newest: int, /) -> int:
        """Forget what a peer has in flight, and what it said up to the sequence `newest`.

        Returns:
            How many attempts that were.
        """
    def forget(self, peer: int, /) -> None:
        """Forget a peer altogether."""
    def open(self, peer: int, /) -> int:
        """How many attempts a peer has in flight."""
    def is_open(self, peer: int, attempt: int, /) -> bool:
        """Whether an attempt of a peer is in flight."""
    @property
    def repeated(self) -> int:
        """Frames that were read before, or are too old to tell: what comes twice changes nothing."""
    @property
    def strangers(self) -> int:
        """Messages about a process that is not known here."""

@final
class PeerOutbox:
    """What a router tells its peers, as frames that wait to be taken, or are sent at once. Called with the router's lock
    held.

    Args:
        ledger: the router's.
        chains: the chains that the feed has carried.
        seal: what the router and its peers have in common.
        describe: returns the mark of a member's process, and whether its engine sends events.
        ident: number of the router.
        first_sequence: number of the first message.
        send: takes each frame at once; None: frames wait for `take`.
        failed: hears of the first exception that `send` raises.
    """

    def __new__(
        cls,
        ledger: Ledger,
        chains: PeerChains,
        seal: PeerSeal,
        describe: Callable[[Any], tuple[int, bool]],
        *,
        ident: int,
        first_sequence: int,
        send: Callable[[bytes], object] | None,
        failed: Callable[[Exception], object],
    ) -> PeerOutbox: ...
    def booked(
        self, attempt: Attempt, session: str | None, now: float, earlier: Attempt | None = None, hedge: bool = False, /
    ) -> None:
        """Tell of an attempt that is booked. `earlier`: an attempt of the same request; `hedge`: that one goes on."""
    def started(self, attempt: Attempt, now: float, /) -> None:
        """Tell of a first token, which may have decided a hedge."""
    def finished(self, attempt: Attempt, held: Any, now: float, /) -> None:
        """Tell of an answer that is complete, and of the blocks that the replica then holds; None: nothing is known of
        them."""
    def given_up(self, attempt: Attempt, /) -> None:
        """Tell of an end without an answer."""
    def beat(self) -> None:
        """Tell of all that is in flight, that which an exception has kept from being told included."""
    def bound(self, bindings: list[tuple[bytes, int, float]], /) -> None:
        """Tell of bindings: (the session's name in bytes, zeros = all; mark of its process, 0 = no longer any; seconds
        since it was used) of each."""
    def held(self, mark: int, blocks: BlockHashes, /) -> None:
        """Tell that a process is believed to hold a chain."""
    def chain(self, blocks: BlockHashes, carried: PeerChains | None = None, /) -> None:
        """Send a chain, without what `carried` has, which then has it; None: as a whole."""
    def missing(self, peer: int, known: int, parent: int, /) -> None:
        """Ask a peer for the chain of so many blocks that ends with a hash."""
    def cleared(self, replica: int, /) -> None:
        """Tell that the cache of a replica, by the mark of its name, was cleared; 0: the weights have changed
        everywhere."""
    def register(
        self, replica: int, version: int, author: int, state: int, left: float, incarnation: bytes, /
    ) -> None:
        """Tell a register of the fleet."""
    def hello(self) -> None:
        """Begin."""
    def welcome(self) -> None:
        """Begin a snapshot."""
    def left(self) -> None:
        """Leave."""
    def take(self) -> list[bytes]:
        """Take the frames that wait."""
    def show_in(self, ring: PeerRing, /) -> None:
        """Show loads in a ring, too."""
    def forget_places(self) -> None:
        """Ask anew what members are: the fleet has changed."""
    def counts(self) -> dict[str, int]:
        """Messages by kind, and frames that could not be sent."""

@final
class PeerRing:
    """The ring that this process writes, in memory that others map too.

    Args:
        memory: writable and all zero, `PeerRing.size(capacity)` long.

    Raises:
        ConfigError: the memory is no such memory.
    """

    def __new__(cls, memory: _Buffer) -> PeerRing: ...
    @staticmethod
    def size(capacity: int) -> int:
        """Bytes of memory for a ring that holds so many bytes of messages."""
    def publish(self, frame: bytes, /) -> bool:
        """Write a frame. False: it is too long for the ring."""

@final
class PeerRings:
    """The rings of other processes: their messages, and their loads on this process's ledger.

    Args:
        ledger: the router's.
    """

    def __new__(cls, ledger: Ledger) -> PeerRings: ...
    def attach(self, ident: int, memory: _Buffer, /) -> bool:
        """Read the ring in this memory from its oldest message on. False: it is no ring of this layout."""
    def detach(self, ident: int, /) -> None:
        """Let a ring go, and take back its loads."""
    def see(self, processes: list[tuple[int, int, int]], /) -> None:
        """Know these processes: (mark, slot, generation) of each. Loads are counted anew."""
    def refresh(self) -> None:
        """Take in the loads that have changed: under a microsecond if none has."""
    def take(self, most: int, /) -> tuple[list[bytes], int]:
        """Messages that have come, at most so many, and how often a ring was overwritten before it was read."""
