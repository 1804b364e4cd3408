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
    "nonsense": "'nonsense' simulate, compare, advise, backtest, size, trace, convert, lint, serve, replay, fit, bench, policies, plan",
    "simulat chat": "'simulat'; 'simulate'?",
    "plan opnai": "'opnai'; 'openai'?",
    "simulate caht": "'caht'; 'chat'?",
    "simulate chat,reqests=5": "chat 'reqests'; turns, 'requests'?",
    "simulate chat --policies sesion": "'sesion'; round-robin, 'session'",
    "simulate chat --policies cache-aware:spil=mean": "'spil'; holders, 'spill'",
    "simulate chat --gpu h10": "'h10'; H200, 'H100'?",
    "simulate chat --model qwen3-8": "'qwen3-8'; gpt-oss-120b 'Qwen3-8B'",
    "trace .": "'.' folder",
    "trace TRACE --model nope": "180 --model --served-model",
    "convert . -o x.gz": "'.' folder",
    "simulate": "'WORKLOAD'",
    "simulate chat --replicas 0": "--replicas 1 '0'",
    "simulate chat --policies ,": "--policies ','",
    "simulate chat --policies best": "'best' round-robin, cache-aware, smg-2026-10",
    "simulate chat --cache ram": "--cache 'ram' 'blocks', 'entries'",
    "simulate chat --capacity some": "--capacity 1 'some'",
    "simulate chat --observe all": "--observe history, perfect, events, events:LOSS, 'all'",
    "simulate chat --gpu abacus": "gpu H100, MI300X, 'abacus'",
    "simulate absent.jsonl": "chat, documents, fan-out 'absent.jsonl'",
    "simulate chat --report no/such/folder/x.html": "--report folder, 'no/such/folder/x.html'",
    "simulate chat --report x.pdf": "--report .html, 'x.pdf'",
    "simulate chat --png x.svg": "--png .png, 'x.svg'",
    "simulate LOG,sample=0.0001": "gateway.jsonl 0.0001",
    "simulate TRACE --chunk-tokens 512": "--chunk-tokens --timed",
    "simulate chat --report /proc/x.html": "--report '/proc/x.html': directory",
    "simulate chat --png /proc/x.png": "--png '/proc/x.png': directory",
    "lint LOG --sarif /proc/x.sarif": "--sarif '/proc/x.sarif': directory",
    "convert TRACE -o /proc/x.gz": "--output '/proc/x.gz': directory",
    f"{REPLAY} --endpoint http://127.0.0.1:1 --rows /proc/x.csv": "--rows '/proc/x.csv': directory",
    "simulate chat --seeds 0": "'--seeds': 1, '0'",
    "simulate chat --seeds few": "'--seeds': whole 'few'",
    "simulate chat --routers 0": "'--routers': 1, '0'",
    "trace TRACE --block-size 0": "'--block-size': 1, '0'",
    "simulate chat --utilization some": "'--utilization': number, 'some'",
    "simulate chat --timed --chunk-tokens 0": "'--chunk-tokens': 1 '0'",
    "simulate chat --goodput ttft=1s": "promise --timed",
    "advise chat,requests=3 answer.json --json": "'chat,requests=3' 'answer.json'",
    "simulate chat,requests=200 --replicas 1 --warmup 200": "warmup chat,requests=200, 199, 200",
    "compare chat,requests=200 --warmup 500": "warmup 199, 500",
    f"{REPLAY} --endpoint http://127.0.0.1:1 --warmup 40": "warmup 39, 40",
    "simulate chat --load fast": "--load requests, in_flight, recent, uncached_tokens, tokens, 'fast'",
    "simulate chat --load kv_use --timed": "--load requests, in_flight, recent, uncached_tokens, tokens, 'kv_use'",
    "simulate chat --load in_flight": "--load in_flight --timed recent",
    "compare chat --load in_flight": "--load in_flight --timed recent",
    "advise chat,requests=50 --untimed --load in_flight": "--load in_flight --timed recent",
    "advise chat,requests=1 --load in_flight": "'in_flight' 'recent'",
    "policies cache-aware:speed=5": "cache-aware min_match_tokens, adaptive 'speed';",
    "fit /dev/null": "/dev/null prompt_tokens, cached_tokens, seconds,",
    "fit nowhere.csv": "'nowhere.csv'",
    "compare chat --metric joy": "metric recompute_ratio, ttft_p99_s, 'joy'",
    "compare chat --replicas 0": "'--replicas': 1 '0'",
    "compare chat --replicas 2,4": "'--replicas': '2,4': simulate",
    "compare chat --policies session,bounded:factor=fast": "bounded factor number, 'fast'",
    "compare TRACE --time-budget soon": "'--time-budget': 0 90s, 'soon'",
    "advise chat --sensitivity weather": "sensitivity capacity, price, replicas, 'weather'",
    "backtest TRACE": "day.jsonl",
    "size chat --slo fast": "ttft_p95=1.5s, e2e_p99=20s, 'fast'",
    "convert absent -o x.jsonl": "'absent'",
    "convert FILE -o no/such/folder/x.gz": "--output folder, 'no/such/folder/x.gz'",
    "policies best": "'best' round-robin, cache-aware, smg-2026-10",
    "trace chat --block-size 32": "--format, 'chat'",
    "trace TRACE --since=soon": "'--since': 8601, 'soon'",
    "trace TRACE --where=model": "--where KEY=VALUE, 'model'",
    # Prefill and decode apart.
    f"{SIMULATE} --timed --prefill-replicas 1": "--decode-replicas missing: --prefill-replicas",
    f"{SIMULATE} --timed --decode-replicas 1": "--prefill-replicas missing: --decode-replicas",
    f"{APART} 1 --decode-replicas ,": "--decode-replicas missing: --prefill-replicas",
    f"{APART} 1,2 --decode-replicas 1": "--prefill-replicas --decode-replicas 2 1",
    f"{SIMULATE} --timed --link rdma": "--link --prefill-replicas --decode-replicas",
    f"{APART} 1 --decode-replicas 1 --link string": "nvlink, pcie, rdma, ethernet, 'string'",
    f"{APART} 0 --decode-replicas 1": "--prefill-replicas 1 '0'",
    "simulate chat,requests=50 --prefill-replicas 1 --decode-replicas 1": "--prefill-replicas --timed",
    f"{SIZE} --link rdma": "--link --apart",
    f"{ADVISE} --link rdma": "--link --apart",
    f"{ADVISE} --apart --replicas 1": "two replicas",
    f"{ADVISE} --apart --lifetimes 5m": "two replicas",
    f"{ADVISE} --apart --link pigeon": "nvlink, pcie, rdma, ethernet, 'pigeon'",
    # Several routers.
    f"{SIMULATE} --routers 8 --peer-delay 100ms": "--peer-delay --timed '100ms'",
    f"{SIMULATE} --timed --peer-delay 100ms": "--peer-delay --routers",
    f"{SIMULATE} --peer-delay 0": "--peer-delay --routers",
    f"{SIMULATE} --sticky-front": "--sticky-front --routers",
    f"{SIMULATE} --timed --routers 2 --peer-delay soon": "--peer-delay 0 90s, 'soon'",
    # What prices a step.
    f"{SIMULATE} --speeds fast": "--speeds calibrated, article, aic, aic:vllm, aic:sglang, aic:trtllm, 'fast'",
    f"{SIMULATE} --speeds aic --utilization 0.5": "--speeds aic utilization",
    f"{SIMULATE} --weight-format fp5": "weight_format bf16, int4, 'fp5'",
    # Checks of a log, and replays.
    "lint TRACE --config none.toml": "none.toml: directory",
    "lint LOG --api-model claud": "'claud'; claude-opus-5, claude-sonnet-5,",
    "lint LOG --sarif /nowhere/at/all.sarif": "--sarif folder, '/nowhere/at/all.sarif'",
    "lint LOG --fail-on sometimes": "'--fail-on': 'sometimes' 'note', 'warning', 'error', 'never'",
    "lint nowhere.jsonl": "chat, documents, fan-out 'nowhere.jsonl'",
    f"{REPLAY} --endpoint http://127.0.0.1:1 --quiet": "http://127.0.0.1:1",
    f"{REPLAY} --endpoint http://a --endpoint http://a": "endpoints once, 'http://a',",
    f"{REPLAY} --endpoint http://a --policy other": "'other' round-robin, cache-aware, smg-2026-10",
    f"{REPLAY} --endpoint http://a --policy session --time-budget soon": "'--time-budget': 0 90s, 'soon'",
    REPLAY: "'--endpoint'",
    # APIs.
    "plan anthropic --model claude-sonet-5": "'claude-sonet-5'; 'claude-sonnet-5'",
    "plan anthropic --model zzz": "'zzz'; claude-opus-5, gpt-5,",
    "plan anthropic --model gpt-5": "gpt-5 keyed, marks: compare",
    "plan anthropic --read -1": "read 0 1e+06, -1.0",
    "plan anthropic --write nan": "write 5m 0 1e+06, nan",
    "plan anthropic --miss-probability 2": "miss_probability 0 1, 2.0",
    "plan anthropic --requests 1e99": "requests 1 1e+12, 999999999",
    "plan anthropic --requests 0": "--requests 1 '0'",
    "plan anthropic --lifetime 2h": "5m, 1h, '2h'",
    "plan anthropic --trace nowhere.jsonl": "chat, documents, fan-out 'nowhere.jsonl'",
    "plan anthropic --trace chat,requests=10 --by mood": "model, tenant, agent, type, mood",
    "plan anthropic --prompts nowhere.jsonl": "--prompts 'nowhere.jsonl'",
    "plan anthropic --per-hour 0": "uses_per_hour 0 1e+12, 0.0",
    "plan anthropic --prefill-tokens-per-s inf": "prefill_tokens_per_s finite inf",
    "plan openai --per-minute nan": "requests_per_minute 0 1e+09, nan",
    "plan openai --users 0": "users 1 1e+06, 0",
    "plan openai --limit -3": "limit 0, -3.0",
    "plan gemini --model claude-sonnet-5-5": "claude-sonnet-5-5 marks, stored: compare",
    "plan gemini --hours 0": "hours 0.0166667 1e+06, 0.0",
    "plan compare chat --models x": "'x'; claude-opus-5, gpt-5,",
    "plan compare chat,requests=100 --requests-per-day nan": "requests_per_day 0 1e+12, nan",
    "plan nobody": "'nobody'; anthropic, openai, gemini, compare",
}
"""What is typed, and what the complaint names: the option, what is allowed, what was given. TRACE is a trace, LOG a log
with reported hits, FILE a file that is neither."""


@pytest.mark.parametrize("typed", MISTAKES)
def test_a_mistake_is_one_line_and_exit_2(prefixroute: Callable[..., Any], trace: Path, log: Path, typed: str) -> None:
    files = {"TRACE": str(trace), "LOG": str(log), "FILE": __file__}
    words = [files.get(word, word).replace("LOG,", f"{log},") for word in typed.split()]
    code, out, err = prefixroute(*words)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert [token for token in MISTAKES[typed].split() if token not in err] == []
