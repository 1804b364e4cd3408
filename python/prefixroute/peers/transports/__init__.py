"""Transports between processes and hosts. Each imports its library when it is made, and names the extra that has it."""

from prefixroute.peers.transports.ray import RayPeers
from prefixroute.peers.transports.redis import RedisPeers
from prefixroute.peers.transports.rings import RingPeers
from prefixroute.peers.transports.zmq import ZmqPeers

__all__ = ["RayPeers", "RedisPeers", "RingPeers", "ZmqPeers"]
