from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from redraft.types import Choice, Completion, Usage


def choice(tokens: Sequence[str | tuple[str, Mapping[str, float]]], text: str | None = None) -> Choice:
    """A choice out of tokens; one with alternatives is (token, alternative to probability)."""
    logprobs = []
    for token in tokens:
        said, chances = token if isinstance(token, tuple) else (token, {})
        top = [{"token": t, "logprob": math.log(p) if p else -9999.0} for t, p in chances.items()]
        logprobs.append({"token": said, "logprob": math.log(chances.get(said, 0.9)), "top_logprobs": top})
    said = "".join(t["token"] for t in logprobs)
    return Choice(text=said if text is None else text, finish_reason="stop", logprobs=tuple(logprobs))


def completion(tokens: Any, text: str | None = None) -> Completion:
    return Completion(choices=(choice(tokens, text),), usage=Usage(input_tokens=1, output_tokens=1))


def verdict(score: Any, hint: str = "") -> str:
    return json.dumps({"verdict": str(score), "hint": hint})


def asked(request: Any) -> str:
    return str(request.messages[-1]["content"])


class Say:
    """What scripted judges say, and what was said to them."""

    choice = staticmethod(choice)
    completion = staticmethod(completion)
    verdict = staticmethod(verdict)
    asked = staticmethod(asked)


@pytest.fixture
def say() -> type[Say]:
    return Say
