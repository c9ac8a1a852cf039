"""What is asked for without its extra says which one it is, before anything is spent, and without a traceback."""

import tomllib
from pathlib import Path

import pytest

MODEL = ("-m", "test", "--base-url", "http://127.0.0.1:9/v1")

ASKED = {
    # extra -> commands of `redraft`, or a line of Python
    "local": [("run", "x"), ("run", "x", "-m", "local/smollm2-135m")],
    "language": [("run", "x", "--check", "language:en", *MODEL)],
    "yaml": [("run", "x", "--checks", "checks.yaml", *MODEL)],
    "parquet": [("batch", "in.parquet", "out.jsonl", *MODEL), ("batch", "in.jsonl", "out.parquet", *MODEL)],
    "dspy": ["import redraft.integrations.dspy"],
    "providers": [("run", "x", "-m", "anthropic/claude"), "import redraft.integrations.pydantic_ai"],
    "mcp": [("mcp",)],
    "hub": [("models", "pull", "hf:org/model")],
    "server": [("serve",), ("view",), ("report",)],
    "monty": ["from redraft.sandbox.monty import Monty; Monty()"],
    "otel": ["from redraft.integrations.otel import spans; spans()"],
    "ray": [("batch", "in.jsonl", "out.jsonl", "--cluster", "local", *MODEL)],
    "torch": ["from redraft.proactive.torch_lm import TransformersLM; TransformersLM.load('x')"],
    "train": [("train", "pasr", "-m", "x", "--data", "in.jsonl")],
}
CASES = [(extra, asked) for extra, every in ASKED.items() for asked in every]

FILES = {
    "checks.yaml": "- assert: []\n",
    "in.parquet": "",
    "in.jsonl": '{"task": "a", "question": "a", "answer": "b"}\n',
}


def test_every_extra_is_asked_for():
    project = Path(__file__).parents[2] / "pyproject.toml"
    assert set(ASKED) == set(tomllib.loads(project.read_text(encoding="utf-8"))["project"]["optional-dependencies"])


@pytest.mark.parametrize(("extra", "asked"), CASES, ids=[f"{e}-{a if isinstance(a, str) else a[0]}" for e, a in CASES])
def test_a_missing_extra_is_named(base, extra, asked):
    for name, text in FILES.items():
        (base.home / name).write_text(text)
    in_python = isinstance(asked, str)
    done = base.run("python", "-c", asked) if in_python else base.run("redraft", *asked, ANTHROPIC_API_KEY="none")
    said = done.stderr.splitlines()
    assert done.returncode == (1 if in_python else 2)
    assert f"pip install 'redraft[{extra}]'" in said[-1]
    if in_python:
        assert said[-1].startswith("redraft.errors.ConfigError: ")
    else:
        assert (len(said), done.stdout) == (1, "")
