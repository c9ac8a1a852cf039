"""Each door's tests are collected where its library is installed: `make test-doors` has all of them but instructor."""

from importlib.util import find_spec

import pytest

NEEDS = {
    "test_dspy_": "dspy",
    "test_hub_": "huggingface_hub",
    "test_instructor_": "instructor",
    "test_langchain_": "langchain_core",
    "test_mcp_http": "mcp",
    "test_mcp_patterns": "re2",
    "test_mcp_stdio": "mcp",
    "test_metered_wires": "anthropic",
    "test_monty_": "pydantic_monty",
    "test_native_": "pydantic_ai",
    "test_pydantic_ai_": "pydantic_ai",
}

collect_ignore_glob = [f"{prefix}*" for prefix, library in NEEDS.items() if find_spec(library) is None]


@pytest.fixture(autouse=True)
def _dspy_as_it_was(request):
    """DSPy's settings are one for a process."""
    if request.path.name.startswith("test_dspy_"):
        from dspy_programs import dspy_as_it_was

        with dspy_as_it_was():
            yield
    else:
        yield
