"""``ray.serve.llm``: its server, its request objects and its calls, over an engine without a GPU.

It imports vLLM for the shapes of requests and the names of options. A package of that name with just those is in its
place.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from http_engine import chat, settled

ray = pytest.importorskip("ray", reason="needs ray[serve], see `make hosts`")
serve = pytest.importorskip("ray.serve", reason="needs ray[serve], see `make hosts`")
pytest.importorskip("fastapi", reason="needs ray[serve], see `make hosts`")

from prefixroute.hosts.ray import PrefixRouter  # noqa: E402
from prefixroute.router import Router  # noqa: E402

SHAPES = """
import dataclasses, sys, types
from pydantic import BaseModel, ConfigDict

PROTOCOLS = {
    "openai.chat_completion": ["ChatCompletionRequest", "ChatCompletionResponse", "ChatCompletionStreamResponse"],
    "openai.completion": ["CompletionRequest", "CompletionResponse", "CompletionStreamResponse"],
    "pooling.embed": ["EmbeddingChatRequest", "EmbeddingCompletionRequest", "EmbeddingResponse"],
    "pooling.scoring": ["ScoreResponse", "ScoreTextRequest"],
    "serve.engine": ["ErrorInfo", "ErrorResponse"],
    "serve.tokenize": ["DetokenizeRequest", "DetokenizeResponse", "TokenizeChatRequest", "TokenizeCompletionRequest",
                       "TokenizeResponse"],
    "speech_to_text.transcription": ["TranscriptionRequest", "TranscriptionResponse", "TranscriptionStreamResponse"],
}

class Model(BaseModel):
    model_config = ConfigDict(extra="allow")

def put(name, **names):
    for at in range(1, name.count(".") + 2):
        path = ".".join(name.split(".")[:at])
        if path not in sys.modules:
            module = sys.modules[path] = types.ModuleType(path)
            module.__path__ = []
    vars(sys.modules[name]).update(names)

for name, models in PROTOCOLS.items():
    put(f"vllm.entrypoints.{name}.protocol", **{model: type(model, (Model,), {}) for model in models})
put("vllm.engine.arg_utils", AsyncEngineArgs=dataclasses.make_dataclass("AsyncEngineArgs", []))
put("vllm.entrypoints.launchers.cli_args", FrontendArgs=dataclasses.make_dataclass("FrontendArgs", []))
"""
ENGINE = """
import asyncio
from ray import serve
from ray.llm._internal.serve.core.configs.openai_api_models import ChatCompletionResponse
from ray.llm._internal.serve.core.engine.protocol import LLMEngine

class Engine(LLMEngine):
    def __init__(self, llm_config):
        self.name = serve.get_replica_context().replica_id.unique_id

    async def start(self): ...
    async def resolve_lora(self, lora_model): ...
    async def check_health(self): ...
    def routing_stats(self):
        return {"waiting": 0, "running": 1}

    async def chat(self, request, raw_request_info=None):
        if getattr(request, "fail", False):
            raise ValueError("as it was told")
        for _ in range(5 if request.stream else 0):
            await asyncio.sleep(0.001)
            yield f"data: {self.name}\\n\\n"
        if not request.stream:
            yield ChatCompletionResponse(replica=self.name)

    completions = embeddings = transcriptions = score = tokenize = detokenize = chat

Engine.__abstractmethods__ = frozenset()
"""


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Router]]:
    """Yield a handle of ``LLMServer`` and the Router of this process."""
    folder: Path = tmp_path_factory.mktemp("shapes")
    (folder / "vllm").mkdir()
    (folder / "vllm" / "__init__.py").write_text(SHAPES)
    (folder / "engine_without_gpu.py").write_text(ENGINE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{folder}:{Path(__file__).resolve().parents[2] / 'python'}")
        patch.setenv("RAYLLM_VLLM_ENGINE_CLS", "engine_without_gpu.Engine")
        patch.syspath_prepend(str(folder))
        from ray.serve.llm import LLMConfig, build_llm_deployment  # noqa: PLC0415  # after its vLLM

        ray.init(address="local", num_cpus=8, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        routing = {"request_router_class": "prefixroute.hosts.ray:PrefixRouter", "request_router_kwargs": {"seed": 1}}
        config = LLMConfig(
            model_loading_config={"model_id": "m", "model_source": "m"},
            deployment_config={
                "num_replicas": 4,
                "autoscaling_config": None,
                "ray_actor_options": {"num_cpus": 0.1},
                "request_router_config": routing,
            },
            placement_group_config={"bundles": [{"CPU": 0.1}]},
        )
        handle = serve.run(build_llm_deployment(config), name="llm", route_prefix=None)
        asyncio.run(answer(handle, 99, 0))
        host = handle._router._asyncio_router.request_router
        assert isinstance(host, PrefixRouter)
        yield handle, host.router
        serve.shutdown()
        ray.shutdown()
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm" or name.startswith("ray.llm")]:
        del sys.modules[name]


async def answer(handle: Any, session: int, turn: int, **fields: Any) -> str:
    """Ask as the ingress does, with its own request object; return the replica."""
    from ray.llm._internal.serve.core.configs.openai_api_models import ChatCompletionRequest  # noqa: PLC0415

    request = ChatCompletionRequest(**{**chat(session, turn), "stream": False, **fields})
    said = [part async for part in handle.options(stream=True).chat.remote(request, None)]
    return str(said[-1][-1].split()[1] if request.stream else said[-1].replica)


def test_conversations_stay_where_their_prefix_is(deployed: Any) -> None:
    handle, router = deployed

    async def talk() -> list[set[str]]:
        return [
            {await answer(handle, session, turn, stream=bool(turn % 2)) for turn in range(4)} for session in range(12)
        ]

    homes = asyncio.run(talk())
    assert sum(len(home) == 1 for home in homes) >= 11
    assert set().union(*homes) <= set(router.replicas)
    settled(router)


def test_nothing_is_left_of_calls_that_end_badly(deployed: Any) -> None:
    handle, router = deployed

    async def everything() -> None:
        calls = [
            asyncio.create_task(answer(handle, number % 20, 0, stream=bool(number % 2), fail=number % 3 == 0))
            for number in range(200)
        ]
        await asyncio.sleep(0.05)
        for call in calls[::4]:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    before = settled(router)["committed"]
    asyncio.run(everything())
    assert settled(router)["committed"] > before + 100
