"""What a user gets wrong: every command says it in one line, answers nothing, and exits with 2."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CHAT = "chat,requests=60,arrivals=poisson:10"
SIMULATE = f"simulate {CHAT} --policies session --seeds 1"
APART = f"{SIMULATE} --timed --prefill-replicas"
ADVISE = "advise chat,requests=50"
SIZE = f"size {CHAT} --slo ttft_p95=400ms --policies session --spare 0"
REPLAY = "replay chat,requests=40"

MISTAKES = {
    "nonsense": "there is no command 'nonsense'; commands: simulate, compare, advise, backtest, size, trace, ",
    "trace .": "'.' is a folder: name a file in it",
    "trace TRACE --model nope": "--model chooses requests here, --served-model prices their tokens",
    "convert . -o x.gz": "'.' is a folder",
    "simulate": "Missing argument 'WORKLOAD'",
    "simulate chat --replicas 0": "--replicas must be a whole number of at least 1",
    "simulate chat --policies ,": "--policies must be names separated by commas",
    "simulate chat --policies best": "no policy 'best'; policies: round-robin",
    "simulate chat --cache ram": "'ram' is not one of 'blocks', 'entries'",
    "simulate chat --capacity some": "--capacity must be a whole number",
    "simulate chat --observe all": "--observe must be history, perfect, events or events:LOSS",
    "simulate chat --gpu abacus": "abacus",
    "simulate absent.jsonl": "there is no file 'absent.jsonl'",
    "simulate chat --report no/such/folder/x.html": "--report must be a file in an existing folder",
    "simulate chat --report x.pdf": "--report must be a file that ends in .html, got 'x.pdf'",
    "simulate chat --png x.svg": "--png must be a file that ends in .png, got 'x.svg'",
    "simulate LOG,sample=0.0001": "no session of gateway.jsonl is in a sample of 0.0001",
    "simulate TRACE --chunk-tokens 512": "--chunk-tokens and --max-running speak of a timed simulation: give --timed "
    "too",
    "simulate chat --report /proc/x.html": "--report must be a file that can be written, got '/proc/x.html': No such "
    "file",
    "simulate chat --png /proc/x.png": "--png must be a file that can be written",
    "lint LOG --sarif /proc/x.sarif": "--sarif must be a file that can be written",
    "convert TRACE -o /proc/x.gz": "--output must be a file that can be written, got '/proc/x.gz'",
    f"{REPLAY} --endpoint http://127.0.0.1:1 --rows /proc/x.csv": "--rows must be a file that can be written",
    "simulate chat --seeds 0": "Invalid value for '--seeds': must be at least 1, got '0'",
    "simulate chat --seeds few": "Invalid value for '--seeds': must be a whole number, got 'few'",
    "simulate chat --routers 0": "Invalid value for '--routers': must be at least 1, got '0'",
    "trace TRACE --block-size 0": "Invalid value for '--block-size': must be at least 1, got '0'",
    "simulate chat --utilization some": "Invalid value for '--utilization': must be a number, got 'some'",
    "simulate chat --timed --chunk-tokens 0": "--chunk-tokens must be a whole number of at least 1",
    "simulate chat --goodput ttft=1s": "give an engine, or --timed",
    "advise chat,requests=3 answer.json --json": "'chat,requests=3' is made up and stands alone, got 'answer.json' "
    "beside it",
    "simulate chat,requests=200 --replicas 1 --warmup 200": "warmup must be below the 200 requests of "
    "chat,requests=200, at most 199, got 200",
    "compare chat,requests=200 --warmup 500": "at most 199, got 500",
    f"{REPLAY} --endpoint http://127.0.0.1:1 --warmup 40": "below the 40 requests of a part, at most 39",
    "simulate chat --load fast": "--load must be one of requests, in_flight, recent, uncached_tokens, tokens, got "
    "'fast'",
    "simulate chat --load kv_use --timed": "--load must be one of",
    "simulate chat --load in_flight": "give --timed too",
    "compare chat --load in_flight": "give --timed too",
    "advise chat,requests=50 --untimed --load in_flight": "give --timed too",
    "advise chat,requests=1 --load in_flight": "needs a clock",
    "policies cache-aware:speed=5": "cache-aware takes ",
    "fit /dev/null": "/dev/null is empty",
    "fit nowhere.csv": "'nowhere.csv' is not there",
    "compare chat --metric joy": "metric must be one of recompute_ratio",
    "compare chat --replicas 0": "must be a whole number of at least 1",
    "compare chat --replicas 2,4": "a fleet must be one number of replicas here, got '2,4'",
    "compare chat --policies session,bounded:factor=fast": "bounded factor must be a number, got 'fast'",
    "compare TRACE --time-budget soon": "--time-budget must be a time above 0",
    "advise chat --sensitivity weather": "weather",
    "backtest TRACE": "reports no cached tokens",
    "size chat --slo fast": "an SLO looks like ttft_p95=1.5s",
    "convert absent -o x.jsonl": "'absent' is no file",
    "convert FILE -o no/such/folder/x.gz": "--output must be a folder or a file in an existing",
    "policies best": "no policy 'best'",
    "trace chat --block-size 32": "speak of a trace, 'chat' is made up",
    "trace TRACE --since=soon": "must be a number or ISO 8601",
    "trace TRACE --where=model": "--where must be KEY=VALUE",
    # Prefill and decode apart.
    f"{SIMULATE} --timed --prefill-replicas 1": "--decode-replicas is missing",
    f"{SIMULATE} --timed --decode-replicas 1": "--prefill-replicas is missing",
    f"{APART} 1 --decode-replicas ,": "--decode-replicas is missing",
    f"{APART} 1,2 --decode-replicas 1": "as many fleets",
    f"{SIMULATE} --timed --link rdma": "--prefill-replicas",
    f"{APART} 1 --decode-replicas 1 --link string": "a link is",
    f"{APART} 0 --decode-replicas 1": "--prefill-replicas",
    "simulate chat,requests=50 --prefill-replicas 1 --decode-replicas 1": "--timed",
    f"{SIZE} --link rdma": "--apart",
    f"{ADVISE} --link rdma": "--apart",
    f"{ADVISE} --apart --replicas 1": "two replicas or more",
    f"{ADVISE} --apart --lifetimes 5m": "two replicas or more",
    f"{ADVISE} --apart --link pigeon": "pigeon",
    # Several routers.
    f"{SIMULATE} --routers 8 --peer-delay 100ms": "--timed",
    f"{SIMULATE} --timed --peer-delay 100ms": "--routers",
    f"{SIMULATE} --peer-delay 0": "--routers",
    f"{SIMULATE} --sticky-front": "--routers",
    f"{SIMULATE} --timed --routers 2 --peer-delay soon": "--peer-delay must be a time",
    # What prices a step.
    f"{SIMULATE} --speeds fast": "--speeds must be one of calibrated, article, aic, aic:vllm, aic:sglang, aic:trtllm, "
    "got 'fast'",
    f"{SIMULATE} --speeds aic --utilization 0.5": "--speeds aic has step times of its own: leave out utilization",
    f"{SIMULATE} --weight-format fp5": "weight_format must be one of bf16, ",
    # Checks of a log, and replays.
    "lint TRACE --config none.toml": "cannot read settings",
    "lint LOG --api-model claud": "no prices for the model",
    "lint LOG --sarif /nowhere/at/all.sarif": "existing folder",
    "lint LOG --fail-on sometimes": "sometimes",
    "lint nowhere.jsonl": "there is no file",
    f"{REPLAY} --endpoint http://127.0.0.1:1 --quiet": "127.0.0.1:1",
    f"{REPLAY} --endpoint http://a --endpoint http://a": "each once",
    f"{REPLAY} --endpoint http://a --policy other": "other",
    f"{REPLAY} --endpoint http://a --policy session --time-budget soon": "--time-budget must be a time above 0",
    REPLAY: "endpoint",
    # APIs.
    "plan anthropic --model claude-sonet-5": "nearest are claude-sonnet-5",
    "plan anthropic --model zzz": "known are claude-",
    "plan anthropic --model gpt-5": "plans for marks",
    "plan anthropic --read -1": "the read price must be at least 0",
    "plan anthropic --write nan": "the write price of 5m must be at least 0",
    "plan anthropic --miss-probability 2": "miss_probability",
    "plan anthropic --requests 1e99": "requests must be at least 1 and at most",
    "plan anthropic --requests 0": "--requests must be a whole number",
    "plan anthropic --lifetime 2h": "lifetimes 5m, 1h",
    "plan anthropic --trace nowhere.jsonl": "there is no file",
    "plan anthropic --trace chat,requests=10 --by mood": "classed by",
    "plan anthropic --prompts nowhere.jsonl": "nowhere.jsonl",
    "plan anthropic --per-hour 0": "uses_per_hour must be above 0",
    "plan anthropic --prefill-tokens-per-s inf": "prefill_tokens_per_s",
    "plan openai --per-minute nan": "requests_per_minute",
    "plan openai --users 0": "users must be at least 1",
    "plan openai --limit -3": "limit must be above 0",
    "plan gemini --model claude-sonnet-5-5": "plans for stored",
    "plan gemini --hours 0": "hours must be at least 0.0166667",
    "plan compare chat --models x": "no prices for the model 'x'",
    "plan compare chat,requests=100 --requests-per-day nan": "requests_per_day",
    "plan nobody": "commands: anthropic, openai, gemini, compare",
}
"""What is typed, and words of the complaint. TRACE is a trace, LOG a log with reported hits, FILE a file that is
neither."""


@pytest.mark.parametrize("typed", MISTAKES)
def test_a_mistake_is_one_line_and_exit_2(prefixroute: Callable[..., Any], trace: Path, log: Path, typed: str) -> None:
    files = {"TRACE": str(trace), "LOG": str(log), "FILE": __file__}
    words = [files.get(word, word).replace("LOG,", f"{log},") for word in typed.split()]
    code, out, err = prefixroute(*words)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert MISTAKES[typed] in err
