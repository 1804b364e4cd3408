"""Examples for users of LLM APIs, see README.md."""
