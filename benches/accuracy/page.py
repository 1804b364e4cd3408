"""``docs/accuracy.md``, written from what is recorded."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from textwrap import fill

import numpy as np

from accuracy import step_times
from accuracy.comparison import recorded

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"
STUDIES = {
    "decisions": "Presets beside the routers that they reproduce, as released: SGLang's and SMG's as processes before eight workers that only hold "
    "requests, Ray's with its own prefix tree before eight replicas that only tell their queue. Decisions are compared one by one, on conversations, one "
    "hot prefix of which nothing finishes, and three mixtures of conversations, documents, repeats and new prompts, which were added after the presets "
    "were made. Where several workers are equally good both sides draw, and a decision agrees if the original's worker is one that ours draws; Ray's router "
    "names all that it would take, and there ours must draw from just these. The controls are pairs of different rules, so that decisions must differ. "
    "Not checked are the presets whose originals are on no registry of Python or Rust packages: AIBrix, KubeAI, llm-d, production-stack, header hashing in Envoy, nginx and HAProxy, and "
    "SGLang's router since 0.4 (`sglang-balanced`, `-prefer`, `-session`).",
    "hits": "Cached tokens of each request. vLLM's own `KVCacheManager`, on a CPU and without weights, serves the same requests in the same "
    "order on the same replicas, with the same memory.",
    "mocker": "Seconds. Dynamo's mock engine replays the same requests with the same linear cost of a step: round robin over 8 replicas, and "
    "outputs of 2,000 tokens at one replica of 60,000, whose keys and values grow until the memory is full.",
    "published": "A public run: llm-d's benchmark of 37 % cache capacity, 4 pods. Not published, and assumed here: 4 x H100 a pod, arrivals at "
    "random within a stage, stages that drain. Two more assumptions were taken up after seeing the rows, so read the agreement as an "
    "explanation and not as a prediction: prompts are 9 % longer than their nominal lengths (random tokens sent as text are tokenized again), "
    "which makes a pod's cache the 37 % of the benchmark's name; and 0.2 s of TTFT are outside of the engine (client, gateway, tokenizer), set "
    "by precise routing at 3 requests/s, which is not shown. What is left "
    "has explanations that nobody can check from outside: the GPUs and the engine's version and settings, how evenly clients send, and load "
    "figures that reach the router late, by which the measured `load` router sends bursts to one pod: its output falls with the load. Ours writes a token "
    "1.5 to 2.2 times as slowly as published, in every stage, and no mechanism of an engine was found that explains it. The published figures do not "
    "fit together: under random routing at 20 requests/s, 1,000 answers at 3,241 tokens/s take 308 s; if each is written in 28 s, they begin over 280 s "
    "and wait 115 s on average where 93 s is published, which takes 72 ms a token. Output times ITL says that 21 to 23 requests decode on a pod, whose memory "
    "has room for 42 while the queue is never empty. Prompts that are computed in chunks between the tokens are in ours. Weights in fp8 would give the ITL "
    "of precise routing at 3 to 6 requests/s (13 to 18 ms), but not that at 20 (59 against 31 ms), and TTFT and output of random routing would be off (72 s and 4,157 "
    "tokens/s). Not known are what was measured as ITL (a median leaves out the steps with prompts) and whether all answers had 1,000 tokens.",
    "queues": "Waiting. Requests of equal length at one replica wait as Lindley's recursion says.",
    "routers": "A preset beside the router that it reproduces: Dynamo's KV router over its mock engines, with the same cost of a step. The last "
    "fleet was added after the preset was made. Dynamo draws ties anew in each run, which moves its TTFT by up to 0.7 %.",
}
"""Modules of this package beside the step times, and what each compares."""
HEAD = """# Accuracy

How near the simulator and its costs are to implementations that nobody here wrote. All of it runs on a CPU, from
packages on PyPI. `make accuracy` compares everything again in half an hour and writes this page; `make accuracy
STUDY=step_times` one part of it, in seconds. It needs the public traces (`PREFIXROUTE_TRACES`) and downloads vLLM's
wheel (336 MB) and those of three routers once, into the user's cache folder. Tests hold what is recorded here.

Where a figure of ours is off, the tables say by how much.
"""
STEPS = """
## Step times

Ours beside [aiconfigurator-core](https://pypi.org/project/aiconfigurator-core/) 0.12.0, a model over measured kernels
of vLLM 0.24 (A100: 0.14), taken 2026-11 (`benches/accuracy/step_times.py`). Its predictions agree with measurements to
some per cent; it is no measurement itself. The shares of `gpus.toml` and the constants of `costmodel/speeds.py` are
fitted to the rows marked *fitted* (`benches/accuracy/calibrate.py`); all other rows are predictions.

{summary}

{table}

Each cell is milliseconds of ours / theirs and the difference. `16 x 2,000` is one token for each of 16 requests that
have 2,000 tokens of context. What is off, and why:

- **fp8 on B200, one request**: the tables have a decode step of one request slower than one of sixteen; ours does not
  follow.
- **DeepSeek-V3 on B200**: vLLM's table has a product in block-scaled fp8 at 160 to 270 µs there, whatever its size up
  to 8,192 tokens, where SGLang's and TensorRT-LLM's tables have the same kernel (DeepGEMM) at 6 to 12 µs: it measured
  the call and not the kernel. The two products of the shared experts, which steps pay for in each of 58 layers, make 33
  of the 37 ms of a decode step of one request, and 30 of the 52 ms of a prompt of 128 tokens. Ours does not follow. On
  H200 such a product takes 57 to 90 µs, and the price of latent attention was fitted with it: for DeepSeek-V3 on B200
  neither figure is worth much.
- **Experts**: each generation has kernels of its own (Triton on Hopper, TensorRT-LLM's on B200), so that what they
  reach is a figure of the GPU. Tokens of an expert are filled up to a tile, and experts that are split over GPUs reach
  less the narrower they are. These two terms were chosen with all rows in view.
- **gpt-oss at 512 tokens**: the tables' MXFP4 kernel is slower between 256 and 4,096 tokens than either bound explains.
- **MI300X** has no tables: its shares are planning figures. Measure, and `prefixroute fit`.

Dollars in our reports follow the same prices. By the seed article's formula (`--speeds article`), a cold prefill of
8,192 tokens of Qwen3-8B on an H100 takes {article:.0f} ms in place of {ours:.0f}, where the tables say {theirs:.0f}.
"""


def render() -> str:
    """Return the text of the page."""
    return HEAD + _comparisons() + _steps()


def _comparisons() -> str:
    parts = []
    for study, found in groupby(recorded(), key=lambda one: one.study):
        rows = list(found)
        parts.append(f"\n## {study.capitalize()}\n\n{fill(STUDIES[study], 120)}\n\n`{rows[0].command}`\n\n")
        parts.append("| quantity | independent | ours | difference | source |\n|---|---|---|---|---|\n")
        parts += [
            f"| {row.quantity} | {_figure(row.independent)} {row.unit} | {_figure(row.ours)} {row.unit} | {row.difference} | {row.source} |\n"
            for row in rows
        ]
    return "".join(parts)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) and abs(value) >= 1_000 else f"{value:.6g}"


def _steps() -> str:
    rows = step_times.recorded()
    tables = [_table(rows, kind) for kind in (step_times.PREFILL, step_times.DECODE)]
    first, at = rows[0], step_times.STEPS.index((step_times.PREFILL, 8_192, 0))
    article = 1e3 * step_times.CostModel(first.gpu, first.model, preset="article").prefill_seconds(8_192)
    return STEPS.format(
        summary=_summary(rows),
        table="\n\n".join(tables),
        article=article,
        ours=step_times.ours(first)[at],
        theirs=first.milliseconds[at],
    )


def _table(rows: list[step_times.Configuration], kind: str) -> str:
    """Return a table of the steps of one kind."""
    chosen = [at for at, step in enumerate(step_times.STEPS) if step[0] == kind]
    lines = [f"| {kind} | " + " | ".join(step_times.COLUMNS[at].removeprefix(f"{kind} ") for at in chosen) + " |"]
    lines.append("|---" * (len(chosen) + 1) + "|")
    for row in rows:
        ours = step_times.ours(row)
        cells = [
            f"{_short(ours[at])}/{_short(row.milliseconds[at])}, {100 * (ours[at] / row.milliseconds[at] - 1):+.0f} %"
            for at in chosen
        ]
        lines.append(f"| {row!s}{', *fitted*' if row.fitted else ''} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _short(milliseconds: float) -> str:
    return f"{milliseconds:,.0f}" if milliseconds >= 100 else f"{milliseconds:.3g}"


def _summary(rows: list[step_times.Configuration]) -> str:
    """Return a table of median and largest errors, of what was fitted and of what was not."""
    lines = ["| rows | number | median error | largest |", "|---|---|---|---|"]
    for name, chosen in (
        ("dense, fitted", [row for row in rows if row.fitted and not row.is_sparse]),
        ("dense, predicted", [row for row in rows if not row.fitted and not row.is_sparse]),
        ("experts, fitted", [row for row in rows if row.fitted and row.is_sparse]),
        ("experts, predicted", [row for row in rows if not row.fitted and row.is_sparse and not _is_dispatch(row)]),
        ("DeepSeek-V3 on B200, see below", [row for row in rows if _is_dispatch(row)]),
        ("the 12 rows that the goal was set on", [row for row in rows if row.published]),
        ("of these, predicted", [row for row in rows if row.published and not row.fitted]),
    ):
        found = np.concatenate([np.abs(step_times.errors(row)) for row in chosen])
        lines.append(f"| {name} | {len(found)} | {100 * np.median(found):.1f} % | {100 * found.max():.0f} % |")
    return "\n".join(lines)


def _is_dispatch(row: step_times.Configuration) -> bool:
    """Return whether the table has the price of calls in place of kernels."""
    return (row.model, row.gpu) == ("DeepSeek-V3", "B200")


def write() -> None:
    """Write the page."""
    PAGE.write_text(render(), encoding="utf-8")
