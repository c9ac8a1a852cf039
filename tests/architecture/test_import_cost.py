"""Heavy parts load when used, not when imported."""

import json
import subprocess
import sys

import pytest

import redraft

HEAVY = {"openai", "pydantic", "pydantic_ai", "ray", "torch", "xllamacpp"}
FIRST_NAMES = ["Refine", "SelfRefine", "Predict", "checks"]


def loaded_by(statement):
    """The top-level modules that a new interpreter loads for one import statement."""
    script = f"import sys; before = set(sys.modules); {statement}; import json; print(json.dumps([*set(sys.modules) - before]))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in json.loads(run.stdout)}


def test_the_front_loads_nothing():
    assert loaded_by("import redraft") & (HEAVY | {"asyncio", "rich", "click"}) == set()


def test_the_first_names_load_no_wire_and_no_engine():
    missing = set(FIRST_NAMES) - set(getattr(redraft, "__all__", []))
    if missing:
        pytest.skip(f"not exported yet: {', '.join(sorted(missing))}")
    assert loaded_by(f"from redraft import {', '.join(FIRST_NAMES)}") & HEAVY == set()
