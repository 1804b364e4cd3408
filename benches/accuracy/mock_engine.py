"""Dynamo's mock engine and its replay of traces, offline.

Paged keys and values, chunked prefill, preemption of the last come.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from prefixroute.costmodel import StepTimes

TOKEN_S, STEP_S, CONTEXT_S = 33.2e-6, 6e-3, 55e-9
"""The cost of a step on both sides: seconds a prompt token, a step that decodes, and a token of context."""
MILLISECOND = 1e-3
CHUNK_TOKENS, MAX_RUNNING = 8_192, 256


def source() -> str:
    """Return the name and version of the package."""
    return f"Dynamo {metadata.version('ai-dynamo-runtime')} mock engine"


def step_times() -> StepTimes:
    """Return the same linear cost as tables: exact, since straight lines lie between their points."""
    tokens, behind, requests, context = (1.0, 2.0), (0.0, 1.0), (1.0, 2.0), (1.0, 2.0)
    prefill = tokens, behind, tuple(TOKEN_S * new for new in tokens for _ in behind)
    decode = requests, context, tuple(STEP_S + CONTEXT_S * one * each for one in requests for each in context)
    return StepTimes("linear", "the cost that both sides have", prefill, decode, decode)


def replay(
    rows: Iterable[Mapping[str, Any]],
    *,
    replicas: int,
    capacity_tokens: int,
    block_size: int,
    router: str = "round_robin",
    speed: float = 1.0,
) -> list[dict[str, Any]]:
    """Replay requests; return what Dynamo reports of each, in order of arrival.

    Args:
        rows: of a trace in Mooncake's form, with blocks of 512 tokens.
        replicas: mock engines.
        capacity_tokens: of each.
        block_size: tokens of a block of theirs.
        router: ``round_robin`` or ``kv_router``.
        speed: times as fast as the trace says.
    """
    os.environ.setdefault("DYN_LOG", "error")  # read when the package is imported
    from dynamo._core import KvRouterConfig, _normalize_mocker_config, run_mocker_trace_replay  # noqa: PLC0415 - Linux

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "trace.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        profile = {"path": _profile(folder, capacity_tokens)}
        engine = {
            "backend": "vllm",
            "num_gpu_blocks": capacity_tokens // block_size,
            "block_size": block_size,
            "max_num_seqs": MAX_RUNNING,
            "max_num_batched_tokens": CHUNK_TOKENS,
            "enable_prefix_caching": True,
            "enable_chunked_prefill": True,
            "timing_model": {"type": "external", "provider": "dynamo_profile", "config": profile},
        }
        more = {"router_config": KvRouterConfig()} if router == "kv_router" else {}
        run_mocker_trace_replay(
            [str(folder / "trace.jsonl")],
            extra_engine_args=_normalize_mocker_config({"engine": engine}),
            num_workers=replicas,
            router_mode=router,
            trace_block_size=512,
            arrival_speedup_ratio=speed,
            capture_per_request=True,
            report_jsonl_path=str(folder / "report.jsonl"),
            **more,
        )
        found = [json.loads(line) for line in (folder / "report.jsonl").read_text().splitlines()]
    return sorted(found, key=lambda row: float(row["arrival_time_ms"]))


def _profile(folder: Path, capacity_tokens: int) -> str:
    """Write the linear cost in Dynamo's form: by prompt tokens, and by tokens of context of all requests."""
    tokens, context = np.array([1.0, 100.0, 1e4, 1e6]), np.linspace(1.0, 1.1 * capacity_tokens, 12)
    path = folder / "profile.npz"
    np.savez(
        path,
        prefill_isl=tokens,
        prefill_ttft_ms=TOKEN_S * tokens / MILLISECOND,
        decode_active_kv_tokens=context,
        decode_context_length=np.array([1.0, 1e6]),
        decode_itl=np.repeat((STEP_S + CONTEXT_S * context)[:, None] / MILLISECOND, 2, axis=1),
    )
    return str(path)
