"""The server's tests are collected where its libraries are installed: `make test-serve`."""

from importlib.util import find_spec

if any(find_spec(name) is None for name in ("starlette", "uvicorn", "prometheus_client", "anthropic")):
    collect_ignore_glob = ["test_*"]
