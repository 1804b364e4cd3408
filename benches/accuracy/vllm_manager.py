"""vLLM's own KV-cache manager on a CPU, out of its wheel, without PyTorch and without weights.

Only the scheduler's modules are imported; all else that they name (kernels, platforms, models) is replaced by an object
that stands for anything, since the manager computes with ids of blocks and never touches a tensor.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

from accuracy.wheels import unpacked

VERSION = "0.33.0"
REAL = ("vllm.v1.core", "vllm.v1.request", "vllm.v1.kv_cache")
"""Modules of vLLM that are really run, with those below them."""
PACKAGES = ("vllm", "vllm.v1", "vllm.utils", "vllm.distributed")
"""Packages that real modules lie in, or that modules which compute lie in; their own ``__init__`` is not run."""
COMPUTES = ("vllm.utils.", "vllm.envs", "vllm.logger", "vllm.distributed.kv_events", "vllm.logging_utils")
ABSENT = ("torch", "transformers", "triton", "compressed_tensors", "huggingface_hub", "cv2", "PIL", "zmq")
"""Roots of packages that are replaced whether or not they are installed."""
LONGEST = 10**7


class _Anything(type):
    """A class that any use of gives back: attribute, call, index, union, base class."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return cls

    def __call__(cls, *_: Any, **__: Any) -> Any:
        return cls

    def __getitem__(cls, _: Any) -> Any:
        return cls

    def __setitem__(cls, _: Any, __: Any) -> None:
        pass

    def __or__(cls, _: Any) -> Any:
        return cls

    __ror__ = __or__

    def __iter__(cls) -> Any:
        return iter(())


class Anything(metaclass=_Anything):
    """What stands for everything that is not imported."""

    def __init_subclass__(cls, **_: Any) -> None:
        pass


class _Replaced(ModuleType):
    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return "0"
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Anything


class _Replacing(MetaPathFinder, Loader):
    """Finds modules that are to be replaced.

    Before all others those that are named, after them those that are missing.
    """

    def __init__(self, *, named: bool) -> None:
        self._named = named

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        del path, target
        if (_is_named if self._named else _is_missing)(name):
            return ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Replaced(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def _is_named(name: str) -> bool:
    root = name.partition(".")[0]
    if root != "vllm":
        return root in ABSENT
    return not name.startswith((*REAL, *COMPUTES)) and name not in PACKAGES


def _is_missing(name: str) -> bool:
    root = name.partition(".")[0]
    parent = sys.modules.get(name.rpartition(".")[0])
    return root != "vllm" and root not in sys.stdlib_module_names and (parent is None or isinstance(parent, _Replaced))


def load() -> SimpleNamespace:
    """Import what is needed of vLLM; return its classes by name."""
    folder = unpacked("vllm", VERSION, suffix=".py")
    for package in PACKAGES:
        module = _Replaced(package)
        module.__path__ = [str(folder / package.replace(".", "/"))]
        module.__spec__ = ModuleSpec(package, None, is_package=True)
        module.__version__ = VERSION  # type: ignore[attr-defined]
        sys.modules[package] = module
    sys.meta_path.insert(0, _Replacing(named=True))
    sys.meta_path.append(_Replacing(named=False))
    request = import_module("vllm.v1.request")
    manager = import_module("vllm.v1.core.kv_cache_manager")
    interface = import_module("vllm.v1.kv_cache_interface")
    request.StructuredOutputRequest = SimpleNamespace(from_sampling_params=lambda _: None)
    request.length_from_prompt_token_ids_or_embeds = lambda tokens, _: len(tokens)
    return SimpleNamespace(
        Request=request.Request,
        Manager=manager.KVCacheManager,
        Spec=interface.FullAttentionSpec,
        Config=interface.KVCacheConfig,
        Group=interface.KVCacheGroupSpec,
    )


class Replica:
    """One engine's cache: vLLM's manager with so many tokens, asked by one request at a time."""

    def __init__(self, vllm: SimpleNamespace, capacity_tokens: int, block_size: int) -> None:
        """Make the manager. One block more than fits is its null block."""
        self._vllm = vllm
        self._block_size = block_size
        spec = vllm.Spec(block_size=block_size, num_kv_heads=8, head_size=128, dtype=None)
        config = vllm.Config(
            num_blocks=capacity_tokens // block_size + 1,
            kv_cache_tensors=[],
            kv_cache_groups=[vllm.Group(["layer"], spec)],
        )
        self._manager = vllm.Manager(
            config,
            max_model_len=LONGEST,
            scheduler_block_size=block_size,
            hash_block_size=block_size,
            enable_caching=True,
            max_in_flight_tokens=LONGEST,
        )

    def serve(self, name: str, prompt_tokens: int, blocks: list[bytes], output_tokens: int = 0) -> int:
        """Serve a request whole, and return the tokens of its prompt that were cached.

        Args:
            name: of the request.
            prompt_tokens: of the prompt.
            blocks: an id of each full block of prompt and output, such that equal ids have equal prefixes.
            output_tokens: of the answer. The last of them is sampled and never computed, so it has no keys and values.
        """
        settings = SimpleNamespace(
            max_tokens=LONGEST, extra_args=None, skip_reading_prefix_cache=False, prompt_logprobs=None
        )

        def hashes(request: Any) -> list[bytes]:
            return blocks[len(request.block_hashes) : request.num_tokens // self._block_size]

        request = self._vllm.Request(name, [0] * prompt_tokens, settings, None, block_hasher=hashes)
        cached, hit, _ = self._manager.get_computed_blocks(request)
        if self._manager.allocate_slots(request, prompt_tokens - hit, hit, cached) is None:
            return hit
        request.num_computed_tokens = prompt_tokens
        if output_tokens > 1:
            request.append_output_token_ids([1] * output_tokens)
            if self._manager.allocate_slots(request, output_tokens - 1) is not None:
                request.num_computed_tokens += output_tokens - 1
        self._manager.free(request)
        return hit
