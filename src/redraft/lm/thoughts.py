"""Tells a leading `<think>...</think>` from the answer, however the text is cut into pieces."""

from __future__ import annotations

from enum import Enum, auto

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
