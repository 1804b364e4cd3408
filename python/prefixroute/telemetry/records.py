"""The decision record: one decision as plain data, from which it can be taken again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from math import isfinite
from typing import IO, Any, TypeAlias

from prefixroute.policies import Policy, RequestInfo, View, as_policy
from prefixroute.policies.base import resolve
from prefixroute.routing import Decision
from prefixroute.types import EMPTY_ATTRS, LoadReport, Namespace

Sink: TypeAlias = IO[str] | Callable[[dict[str, Any]], object]
"""Where records go: a text file, one JSON object a line, or a function of the object."""


def to_record(decision: Decision, policy: str, now: float) -> dict[str, Any]:
    """Return a decision as JSON-able data: the answer, and the whole view under ``view``.

    Args:
        decision: any decision.
        policy: name by which the router was given its policy.
        now: the decision's time in seconds.
    """
    view = decision.view
    fields: dict[str, Any] = dict(zip(View._fields, view, strict=True))
    request = view.request
    fields["request"] = {
        **request._asdict(),
        "namespace": None if request.namespace is None else _namespace(request.namespace),
        "attrs": _strict(dict(request.attrs)),
        "slo_ttft_s": _strict(request.slo_ttft_s),
    }
    fields["reports"] = None if view.reports is None else [None if r is None else asdict(r) for r in view.reports]
    return {
        "decision_id": view.decision_id,
        "time": now,
        "policy": policy,
        "replica": decision.replica,
        "reason": decision.reason,
        "prompt_tokens": view.prompt_tokens,
        "hit_tokens": decision.hit_tokens,
        "best_hit_tokens": decision.best_hit_tokens,
        "view": {name: value for name, value in fields.items() if value is not None},
    }


def write_record(sink: Sink, record: dict[str, Any]) -> None:
    """Hand a record to its sink."""
    if callable(sink):
        sink(record)
    else:
        sink.write(json.dumps(record, separators=(",", ":"), default=str, allow_nan=False) + "\n")


def _strict(value: Any) -> Any:
    """Return a value as JSON can have it: other things, such as ``inf`` and ``nan``, are texts."""
    if isinstance(value, float):
        return value if isfinite(value) else str(float(value))
    if isinstance(value, Mapping):
        return {_strict(key): _strict(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(inner) for inner in value]
    return value


def read_view(record: Mapping[str, Any]) -> View:
    """Return the view of a record.

    Args:
        record: as :class:`~prefixroute.telemetry.DecisionRecord` is written, parsed.
    """
    fields = dict(record["view"])
    for name in ("slots", "names", "hashes", "weights"):
        fields[name] = None if fields.get(name) is None else tuple(fields[name])
    request = dict(fields["request"])
    if request.get("namespace") is not None:
        extra = tuple(
            (at, key if isinstance(key, str) else bytes.fromhex(key["hex"]))
            for at, key in request["namespace"]["extra"]
        )
        request["namespace"] = Namespace(**{**request["namespace"], "extra": extra})
    request["attrs"] = request.get("attrs") or EMPTY_ATTRS
    if isinstance(request.get("slo_ttft_s"), str):
        request["slo_ttft_s"] = float(request["slo_ttft_s"])
    fields["request"] = RequestInfo(**request)
    fields["binding"] = fields.get("binding")
    if fields.get("reports") is not None:
        fields["reports"] = [None if report is None else LoadReport(**report) for report in fields["reports"]]
    return View(**fields)


def replay(record: Mapping[str, Any], policy: Policy | None = None) -> tuple[str, str]:
    """Take a recorded decision again; return (replica, reason).

    Args:
        record: an object as :func:`to_record` makes it, e.g. a parsed line of a record file.
        policy: the policy that decided, unless its name is that of a policy or preset with default parameters.

    Returns:
        Name of the replica, and the reason.
    """
    view = read_view(record)
    policy = as_policy(record["policy"]) if policy is None else policy
    slot, reason = resolve(policy.decide(view), view, policy.name)
    return view.names[slot] or "", reason


def _namespace(namespace: Namespace) -> dict[str, Any]:
    extra = [(at, {"hex": key.hex()} if isinstance(key, bytes) else key) for at, key in namespace.extra]
    return {"model": namespace.model, "lora": namespace.lora, "salt": namespace.salt, "extra": extra}
