"""redraft makes an LLM's answer meet its bar before anyone sees it."""

__version__ = "0.1.0"
