from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from redraft.testing import ScriptedLM

OK = json.dumps({"verdict": "ok", "issues": []})


def issue(problem: str, suggestion: str = "", location: str = "") -> dict[str, str]:
    return {
        "problem": problem,
        "suggestion": suggestion,
        "aspect": "detail",
        "severity": "major",
        "location": location,
    }


class Words:
    """What scripted models say, and what was said to them."""

    ok = OK
    a = json.dumps({"better": "A"})
    b = json.dumps({"better": "B"})
    tie = json.dumps({"better": "tie"})
    wins = (a, b)  # in both orders

    @staticmethod
    def found(*problems: str | dict[str, str]) -> str:
        issues = [issue(p) if isinstance(p, str) else p for p in problems]
        return json.dumps({"verdict": "revise", "issues": issues})

    @staticmethod
    def asked(lm: Any, at: int = -1) -> str:
        """The text of the last message of a call."""
        content = lm.requests[at].messages[-1]["content"]
        return content if isinstance(content, str) else "\n".join(p.get("text", "<part>") for p in content)

    @staticmethod
    def everything(lm: Any, at: int = -1) -> str:
        """All that a call sent, as one text."""
        return json.dumps([dict(m) for m in lm.requests[at].messages], ensure_ascii=False)

    @staticmethod
    def trail(result: Any) -> list[tuple[Any, ...]]:
        """The attempts as (text, rung, parent, accepted, reason)."""
        return [(a.text, a.rung, a.parent, a.accepted, a.reason) for a in result.attempts]


@pytest.fixture
def say() -> type[Words]:
    return Words


@pytest.fixture
def script() -> Callable[..., ScriptedLM]:
    def make(*replies: Any, **options: Any) -> ScriptedLM:
        return ScriptedLM(replies, **options)

    return make
