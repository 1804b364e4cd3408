"""Prompt caching of LLM APIs: providers as dated data, a runtime for calls, and accounting of what they report.

Tables and rules: :func:`find_model`, :func:`find_provider`, :func:`read_provider`. Runtime, which needs no SDK:
:func:`fan_out`, :class:`PreWarmer`, :func:`cache_key`. Accounting: :class:`Usage`, :class:`Account`. Planners, which
need traffic, are in :mod:`prefixroute.plan`.
"""

from __future__ import annotations

from prefixroute.providers.accounting import Account, Verdict
from prefixroute.providers.catalog import Lifetime, Mode, Model, Price, Provider
from prefixroute.providers.keys import cache_key, prefix_key, shard_of, shards_for
from prefixroute.providers.parallel import fan_out
from prefixroute.providers.prewarm import PreWarmer, cheapest_lifetime, keep_alive_usd, renewals_worth
from prefixroute.providers.tables import find_model, find_provider, providers, read_provider
from prefixroute.providers.usage import Diagnosis, Usage, diagnosis_of, reported_tokens

__all__ = [
    "Account",
    "Diagnosis",
    "Lifetime",
    "Mode",
    "Model",
    "PreWarmer",
    "Price",
    "Provider",
    "Usage",
    "Verdict",
    "cache_key",
    "cheapest_lifetime",
    "diagnosis_of",
    "fan_out",
    "find_model",
    "find_provider",
    "keep_alive_usd",
    "prefix_key",
    "providers",
    "read_provider",
    "renewals_worth",
    "reported_tokens",
    "shard_of",
    "shards_for",
]
