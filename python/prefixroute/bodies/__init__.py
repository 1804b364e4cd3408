"""What a router needs to know of an HTTP request to an engine: the prompt, and which conversation it is a turn of."""

from prefixroute.bodies.prompts import prompt_of
from prefixroute.bodies.sessions import SessionKeys, session_of

__all__ = ["SessionKeys", "prompt_of", "session_of"]
