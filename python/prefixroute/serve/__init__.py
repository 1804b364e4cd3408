"""The server: an OpenAI- and Anthropic-compatible proxy that routes with a Router. Needs ``prefixroute[serve]``."""

from prefixroute.serve.app import Service, create_app
from prefixroute.serve.config import read_settings
from prefixroute.serve.discovery import check
from prefixroute.serve.settings import OPTIONS, Settings
from prefixroute.serve.workers import serve

__all__ = ["OPTIONS", "Service", "Settings", "check", "create_app", "read_settings", "serve"]
