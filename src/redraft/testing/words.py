"""The test models' tokenizer: a token is a word. Counts are exact, so budgets can be tested to the token."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from redraft.errors import UnsupportedError
from redraft.protocols import Delta
from redraft.types import Capabilities, Choice, Completion, Request, Usage

EVERYTHING = Capabilities(
    json_schema=True,
    grammar=True,
    n=True,
    logprobs=True,
    prefill=True,
    seed=True,
    tools=True,
    reasoning=True,
    stream=True,
)

NEEDS: Mapping[str, str] = {
    "schema": "json_schema",
    "grammar": "grammar",
    "logprobs": "logprobs",
    "prefill": "prefill",
    "seed": "seed",
    "temperature": "temperature",
    "tools": "tools",
}
"""Request field to the capability without which it is refused; `n` above 1 needs `n`."""


def refuse_unsupported(request: Request, capabilities: Capabilities, name: str) -> None:
    """Raise `UnsupportedError` for the first field that the capabilities do not cover."""
    used = [field for field in NEEDS if getattr(request, field) not in (None, ())]
    for field in [*used, *(["n"] if request.n > 1 else [])]:
        if not getattr(capabilities, NEEDS.get(field, field)):
            raise UnsupportedError(f"{name} does not support {field!r}", parameter=field)


def prompt_words(messages: Iterable[Mapping[str, Any]]) -> int:
    """Words of all text in the messages, parts and tool results included."""
    total = 0
    for message in messages:
        content = message.get("content") or ""
        parts = [content] if isinstance(content, str) else [str(part.get("text", "")) for part in content]
        total += sum(len(part.split()) for part in parts)
    return total


def cut(text: str, cap: int | None) -> tuple[str, bool]:
    """The text's first `cap` words, and whether anything was cut off."""
    words = pieces(text)
    if cap is None or len(text.split()) <= cap:
        return text, False
    return "".join(words[:cap]).rstrip(), True


def pieces(text: str) -> list[str]:
    """The text in pieces of a word and the space around it."""
    return re.findall(r"\s*\S+\s*|\s+", text)


def written(text: str, request: Request, model: str) -> Completion:
    """`text` as the reply to the request: n times, cut at the cap, with exact usage."""
    said, was_cut = cut(text, request.max_tokens)
    choice = Choice(text=said, finish_reason="length" if was_cut else "stop")
    usage = Usage(input_tokens=prompt_words(request.messages), output_tokens=len(said.split()) * request.n)
    return Completion(choices=(choice,) * request.n, model=model, usage=usage)


def tell(completion: Completion, on_delta: Callable[[Delta], None] | None) -> None:
    """Stream a finished completion word by word, reasoning first."""
    if on_delta is None:
        return
    for index, choice in enumerate(completion.choices):
        for piece in pieces(choice.reasoning):
            on_delta(Delta(reasoning=piece, choice=index))
        for piece in pieces(choice.text):
            on_delta(Delta(text=piece, choice=index))
