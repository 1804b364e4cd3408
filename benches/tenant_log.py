"""A log of which one tenant sends half: ``python benches/tenant_log.py FILE [REQUESTS] [RATE] [SEED]``.

Chats of 20 tenants, each behind a system prompt of its own, as a private trace. Then, for example::

    prefixroute advise FILE --replicas 8 --timed
    prefixroute advise FILE --replicas 8 --untimed
"""

from __future__ import annotations

import sys

from prefixroute.workload import Poisson, TenantsShape, convert, tenants

OTHERS = 19
SHARES = (float(OTHERS), *(1.0,) * OTHERS)
"""The first tenant sends as much as all others together."""
DEFAULTS = ("20000", "10", "1")


def main() -> None:
    path, *given = sys.argv[1:]
    requests, rate, seed = (*given, *DEFAULTS[len(given) :])
    shape = TenantsShape(shares=SHARES)
    workload = tenants(int(seed), requests=int(requests), arrivals=Poisson(float(rate)), shape=shape)
    written = convert(workload, path, bytes(16))
    print(f"{path}: {written.requests:,} requests, {written.prompt_tokens:,} prompt tokens")


if __name__ == "__main__":
    main()
