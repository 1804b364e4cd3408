"""Adapters that put a Router into hosts people already run. Each module imports its host, and nothing else does.

``ray`` (Ray Serve), ``litellm``, ``verl``, ``skypilot``, ``production_stack``, ``asgi`` (any ASGI server) and ``httpx``
(any client that takes an HTTPX transport, such as the OpenAI and Anthropic SDKs). docs/hosts.md starts from what you
run.
"""
