"""What a fake engine is, and what may be wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

from prefixroute.sim.engine import CHUNK_TOKENS, MAX_RUNNING, StepCost
from prefixroute.testing.kv_events import Format
from prefixroute.testing.publisher import BUFFER_STEPS
from prefixroute.validation import check_choice, check_float, check_instance, check_int, check_names


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """A fake engine, as it is started.

    Attributes:
        format: whose metrics, KV events and server information: ``vllm`` or ``sglang``.
        block_size: tokens in a block.
        capacity_tokens: tokens that the KV cache holds.
        chunk_tokens: tokens of one step.
        max_running: requests in the batch at once.
        cost: prices steps, e.g. :class:`prefixroute.costmodel.CostModel`; ``None`` = by :class:`Behaviour`'s two
            numbers.
        speed: seconds of the engine that pass in one second.
        model: name of the base model.
        adapters: names of models that are adapters: blocks are not shared with those of other names.
        rank: data-parallel rank that KV events carry.
        events: address where KV events are published; ``None`` = not published.
        replay: address where replays are answered.
        buffer_steps: batches kept for replay.
        load: address where load is published, as SGLang does; ``None`` = not published.
    """

    format: Format = "vllm"
    block_size: int = 16
    capacity_tokens: int = 300_000
    chunk_tokens: int = CHUNK_TOKENS
    max_running: int = MAX_RUNNING
    cost: StepCost | None = None
    speed: float = 1.0
    model: str = "fake"
    adapters: tuple[str, ...] = ()
    rank: int | None = None
    events: str | None = None
    replay: str | None = None
    buffer_steps: int = BUFFER_STEPS
    load: str | None = None

    def __post_init__(self) -> None:
        """Refuse what no engine can be."""
        check_choice("format", self.format, ("vllm", "sglang"))
        for name in ("block_size", "capacity_tokens", "chunk_tokens", "max_running", "buffer_steps"):
            check_int(name, getattr(self, name), 1)
        check_float("speed", self.speed, 0, above=True)


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How fast a fake engine is, and what is wrong with it; may change while it runs. A negative number is off.

    Attributes:
        prefill_s_per_1k: seconds for 1,000 uncached prompt tokens.
        decode_s: seconds for a step that decodes.
        status: answer completions with this HTTP status.
        die_after: die, as a crash does, after so many output tokens of an answer; 0 = before the first.
        healthy: whether ``/health`` says so, 1 or 0.
        drop_events: lose every so many-th KV-event batch on its way; replay has it.
    """

    prefill_s_per_1k: float = 0.1
    decode_s: float = 0.01
    status: int = -1
    die_after: int = -1
    healthy: int = 1
    drop_events: int = -1

    def __post_init__(self) -> None:
        """Refuse what is no time and no count."""
        check_float("prefill_s_per_1k", self.prefill_s_per_1k, 0)
        check_float("decode_s", self.decode_s, 0)
        for name in ("status", "die_after", "healthy", "drop_events"):
            check_int(name, getattr(self, name))

    def changed(self, fields: Any) -> Self:
        """Return the behaviour with some fields changed; raise ConfigError for one that it does not have.

        Args:
            fields: by name.
        """
        check_instance("behaviour", fields, dict)
        check_names("behaviour", "field", fields, self.__dataclass_fields__)
        return replace(self, **fields)
