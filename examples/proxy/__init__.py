"""A proxy for OpenAI-compatible engines that routes with prefixroute, see README.md."""
