"""Hash-exact mode: the same block hashes as an engine or another router computes. Optional, extra ``hashes``.

Routing does not need it: KV events carry token ids, and the index hashes those itself, so that seeds, salts and
releases cannot break matching. It serves to ask an external store, to use events that carry hashes alone, and to verify
an engine.
"""

from __future__ import annotations

from prefixroute.hash_exact.scheme import PLAIN, Content, HashScheme, Media, NotReproducibleError
from prefixroute.hash_exact.sglang import SglangHashes, event_namespace, namespaced, storage_namespace
from prefixroute.hash_exact.stored import StoredEvent, stored_events
from prefixroute.hash_exact.verify import Verification, verify
from prefixroute.hash_exact.vllm import VllmHashes
from prefixroute.hash_exact.xxh import GatewayHashes, LlmdCborHashes, LlmdXxh64Hashes, Xxh3Local, Xxh3Sequence

__all__ = [
    "PLAIN",
    "Content",
    "GatewayHashes",
    "HashScheme",
    "LlmdCborHashes",
    "LlmdXxh64Hashes",
    "Media",
    "NotReproducibleError",
    "SglangHashes",
    "StoredEvent",
    "Verification",
    "VllmHashes",
    "Xxh3Local",
    "Xxh3Sequence",
    "event_namespace",
    "namespaced",
    "storage_namespace",
    "stored_events",
    "verify",
]
