"""A model's reasoning: told from the answer, and carried back to the upstream that wants it.

In a tool loop, and only there, each message takes back the field its reasoning came in: `reasoning_details` (OpenRouter
and other gateways), `reasoning_content` (DeepSeek, Kimi, GLM, Qwen, llama-server; DeepSeek and Kimi refuse a tool loop
without it), `reasoning` (Groq, Ollama, vLLM). Everywhere else it is left out on purpose: no provider reads it there,
and some refuse it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum, auto
from typing import Any

_OPEN = "<think>"
_CLOSE = "</think>"


class _At(Enum):
    START = auto()
    THOUGHT = auto()
    GAP = auto()
    """The blank space between the thought and the answer."""
    ANSWER = auto()


class ThoughtSplitter:
    """Feed it a reply's text piece by piece; each piece comes back as `(reasoning, text)`.

    Only a tag at the very start counts: later ones are part of the answer. `flush` at the end gives what was held
    back: a thought that never ended is reasoning, never an answer.
    """

    def __init__(self) -> None:
        self._at = _At.START
        self._held = ""

    def feed(self, piece: str) -> tuple[str, str]:
        """What is certain after this piece."""
        self._held += piece
        if self._at is _At.START and not self._started():
            return "", ""
        reasoning = self._thought() if self._at is _At.THOUGHT else ""
        if self._at is _At.GAP:
            self._held = self._held.lstrip()
            self._at = _At.ANSWER if self._held else _At.GAP
        return reasoning, self._take() if self._at is _At.ANSWER else ""

    def flush(self) -> tuple[str, str]:
        """What is left when the reply has ended."""
        if self._at is _At.THOUGHT:
            return self._take(), ""
        return "", self._take()

    def _started(self) -> bool:
        bare = self._held.lstrip()
        if bare.startswith(_OPEN):
            self._at, self._held = _At.THOUGHT, bare[len(_OPEN) :]
        elif not _OPEN.startswith(bare):
            self._at = _At.ANSWER
        return self._at is not _At.START

    def _thought(self) -> str:
        thought, closed, rest = self._held.partition(_CLOSE)
        if closed:
            self._at, self._held = _At.GAP, rest
            return thought
        # the end of the piece may be the first half of the closing tag
        keep = next((n for n in range(len(_CLOSE) - 1, 0, -1) if thought.endswith(_CLOSE[:n])), 0)
        self._held = thought[len(thought) - keep :]
        return thought[: len(thought) - keep]

    def _take(self) -> str:
        taken, self._held = self._held, ""
        return taken


def split_lone(text: str) -> tuple[str, str | None]:
    """Reasoning and answer where a thought is closed that was never opened, as its opening was part of the prompt.

    The answer is None if there is no such thing: a text that holds an opening tag or several closing ones, or one in
    quotes, in a code block or amid a sentence, or that is JSON, speaks of the tags and is an answer as it stands.
    """
    thought, closed, rest = text.partition(_CLOSE)
    if not closed or _CLOSE in rest or _OPEN in text or thought.lstrip()[:1] in ("{", "["):
        return "", None
    amid = thought[-1:] in _BEFORE and (rest[:1] in _AFTER or not rest.strip())
    fenced = thought.count("```") % 2 or thought.count("~~~") % 2
    if amid or rest[:1] in tuple(".,;:!?)") or fenced:
        return "", None
    return thought, rest.lstrip()


_BEFORE = tuple(" `'\"*(\u2018\u201c\u00ab\u201e")
_AFTER = tuple(" `'\"*\u2019\u201d\u00bb\u201c")


def text_of(value: object, kind: str = "text") -> str:
    """A text field: a string, null, or a list of content parts, of which one kind is taken (Mistral has "thinking")."""
    if value is None or isinstance(value, str):
        return value or "" if kind == "text" else ""
    if isinstance(value, list):
        return "".join(text_of(part.get(kind)) for part in value if part.get("type") == kind)
    raise TypeError(f"text expected, got {type(value).__name__}")


class Thoughts:
    """The reasoning fields of one choice, put together out of its chunks."""

    def __init__(self) -> None:
        self._field = ""
        self._details: list[dict[str, Any]] = []

    def add(self, said: Mapping[str, Any], *, whole: bool) -> str:
        """Take one message (whole) or delta; returns the reasoning that is new in it."""
        details = [part for part in said.get("reasoning_details") or () if isinstance(part, Mapping)]
        for part in details:
            if whole or not self._continues(part):
                self._details.append(dict(part))
        told = {name: value for name in _PLAIN if isinstance(value := said.get(name), str)}
        self._field = self._field or next(iter(told), "")
        plain = next(filter(None, told.values()), "")
        return plain or "".join(str(part.get("text") or part.get("summary") or "") for part in details)

    def items(self, upstream: str, reasoning: str) -> tuple[Mapping[str, Any], ...]:
        """What the upstream gets back with the next turn: the field that it sent, even if it was empty."""
        if self._details:
            return ({"provider": upstream, "reasoning_details": [*self._details]},)
        return ({"provider": upstream, self._field: reasoning},) if self._field else ()

    def _continues(self, part: Mapping[str, Any]) -> bool:
        """True if the piece belongs to the last block, and is in it now: texts are joined, the rest is what it says."""
        last = self._details[-1] if self._details else {}
        text = next((key for key in ("text", "summary") if isinstance(part.get(key), str)), "")
        same = bool(last) and all(last.get(key) == part.get(key) for key in ("type", "index"))
        if not same or not (text or "signature" in part):
            return False
        joined = {text: (last.get(text) or "") + part[text]} if text else {}
        last.update({key: value for key, value in part.items() if value is not None} | joined)
        return True


_PLAIN = ("reasoning_content", "reasoning")
REASONING_FIELDS = ("reasoning_details", *_PLAIN)


def with_thoughts(messages: Sequence[Mapping[str, Any]], upstream: str) -> list[Mapping[str, Any]]:
    """The messages as they are sent: of their `items`, those of this upstream in the turns that call tools."""
    if not any("items" in message for message in messages):
        return [*messages]
    calling = _calling(messages)
    return [_with(message, upstream if at in calling else "") for at, message in enumerate(messages)]


def with_empty_thoughts(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """For upstreams that want `reasoning_content` in each of the model's messages: empty where there is none."""
    return [{"reasoning_content": "", **m} if m.get("role") == "assistant" else m for m in messages]


def _with(message: Mapping[str, Any], upstream: str) -> Mapping[str, Any]:
    items = message.get("items")
    if items is None:
        return message
    sent = {key: value for key, value in message.items() if key != "items"}
    for item in items if upstream else ():
        if item.get("provider") == upstream:
            sent |= {key: value for key, value in item.items() if key != "provider"}
    return sent


def _calling(messages: Sequence[Mapping[str, Any]]) -> Collection[int]:
    """The places of all messages between two of the user's where a tool is called among them."""
    turns: list[list[int]] = [[]]
    for at, message in enumerate(messages):
        if message.get("role") == "user":
            turns.append([])
        else:
            turns[-1].append(at)
    return {at for turn in turns if any(messages[at].get("tool_calls") for at in turn) for at in turn}
