"""The belief: what the router thinks each replica holds.

One complete protocol, so that any index can be behind the router.

:class:`prefixroute.index.PrefixIndex` satisfies :class:`Belief` as it is. ``tests/belief`` holds the laws of every
belief.
"""

from prefixroute.belief.protocol import Belief, Blocks, Booked, Heard

__all__ = ["Belief", "Blocks", "Booked", "Heard"]
