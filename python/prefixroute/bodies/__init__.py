"""What a router needs to know of an HTTP exchange with an engine: the prompt, its conversation, and what the answer says."""

from prefixroute.bodies.answers import EVENT_END, AnswerReader, Api, answer_reader
from prefixroute.bodies.prompts import prompt_of
from prefixroute.bodies.sessions import SessionKeys, session_of

__all__ = ["EVENT_END", "AnswerReader", "Api", "SessionKeys", "answer_reader", "prompt_of", "session_of"]
