"""Transports between hosts. Each imports its library when it is made, and names the extra that has it."""

from prefixroute.peers.transports.ray import RayPeers
from prefixroute.peers.transports.redis import RedisPeers
from prefixroute.peers.transports.zmq import ZmqPeers

__all__ = ["RayPeers", "RedisPeers", "ZmqPeers"]
