"""The examples run offline, on models that answer from a list."""

import json
import runpy
from pathlib import Path

import pytest

from redraft.testing import FunctionLM

EXAMPLES = Path(__file__).parents[2] / "examples"

REPLIES = {
    "answer": "Because air scatters blue light more than red, the light that reaches us from all over the sky is blue.",
    "output": '{"name": "Ann", "age": 30}',
    "emails": ["ann@example.org", "bob at example.com"],
    "summary": "Forty rope walks shrank to two. One spins again.",
    "top_complaints": ["battery"],
    "quality_score": 0.8,
    "error_patterns": ["db timeout"],
    "root_cause": "The pool of database connections is exhausted.",
}
SCORES = {
    "concise_answer": 1.0,
    "valid_json": 1.0,
    "quality_score": 0.7,
    "valid_email_extraction": 0.5,
    "good_summary": 1.0,
    "quality_reward": 0.8,
    "log_analysis_reward": 1.0,
}


def answer(request):
    """Every field that is asked for, or the one text that is."""
    asked = (request.schema or {}).get("properties", {})
    said = {name: REPLIES.get(name, "so it is") for name in asked}
    if "Belgium" in str(request.messages):
        said["answer"] = "Brussels" if request.temperature else "It is Brussels"
    if asked:
        return json.dumps(said)
    return REPLIES["answer" if "sky" in str(request.messages) else "output"]


@pytest.fixture(scope="module")
def rewards():
    return runpy.run_path(str(EXAMPLES / "seed_rewards.py"))


def test_rewards_written_for_dspy_run_as_they_are(rewards, capsys):
    results = rewards["main"](FunctionLM(answer, name="scripted"))
    assert [r.score for r in results] == [score for score in SCORES.values() for _ in ("Refine", "BestOfN")]
    assert [r.error for r in results] == [None] * len(results)
    assert results[0].answer == "Brussels"
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows[::2]] == list(SCORES)


def test_what_wastes_calls_is_said(rewards, capsys):
    results = rewards["main"](FunctionLM(answer, name="scripted"))
    lint = {
        name: " ".join(e.data["text"] for e in result.events if e.kind == "lint")
        for name, result in zip(SCORES, results[::2], strict=True)
    }
    binary = [name for name, said in lint.items() if "only says yes or no" in said]
    assert binary == ["concise_answer", "valid_json"]
    assert [name for name, said in lint.items() if "calls a model for each attempt" in said] == ["quality_reward"]
    assert [name for name, said in lint.items() if said] == [*binary, "quality_reward"]
