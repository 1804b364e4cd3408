"""What a router needs to know of an HTTP exchange with an engine: the prompt, its conversation, and what the answer says."""

from prefixroute.bodies.answers import EVENT_END, Answer, Api, answer_of
from prefixroute.bodies.prompts import prompt_of
from prefixroute.bodies.sessions import SessionKeys, session_of

__all__ = ["EVENT_END", "Answer", "Api", "SessionKeys", "answer_of", "prompt_of", "session_of"]
