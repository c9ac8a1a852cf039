"""`<think>`, `<refine>` and `<answer>`: the form that PASR (arXiv 2508.12903) trains a model to write in.

    <think> ... <refine>a second look</refine> ... </think><answer>42</answer>

A think block and an answer block once each, in this order, and any number of refine spans inside the think block. The tags are
plain text, spelled just so; what only looks like one is text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Where = Literal["outside", "think", "refine", "answer"]

TAGS = ("<think>", "</think>", "<refine>", "</refine>", "<answer>", "</answer>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A piece of a reply: a text or, whole, a tag; all pieces together are the reply."""

    where: Where
    """What a text stands in, what a tag opens or closes; `outside` for a tag that is out of place, which counts as text of
    nothing."""
    text: str
    tag: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tagged:
    """A reply taken apart."""

    think: str | None
    """What stands in the think blocks, refine spans without their tags included; None without one."""
    answer: str | None
    """The last answer block's text, without white space around it; None without one."""
    refines: tuple[str, ...]
    """The text of each refine span."""
    outside: str
    """What stands in no block."""
    faults: tuple[str, ...]
    """What is wrong with the form, in order; empty where all of it holds."""

    @property
    def well_formed(self) -> bool:
        """Whether the form holds."""
        return not self.faults

    @property
    def counts(self) -> dict[str, int]:
        """How many refine spans, and how many characters think blocks, refine spans and the answer have."""
        return {
            "refines": len(self.refines),
            "think": len(self.think or ""),
            "refine": sum(map(len, self.refines)),
            "answer": len(self.answer or ""),
        }


class TagStream:
    """Takes a reply apart while it is written; how it is cut into chunks makes no difference to `tagged`, nor to the pieces,
    but for where texts are cut. What may become a tag is held back until that is clear, 8 characters at most.

    `opened`: the prompt ended in `<think>` already, as some chat templates do.
    """

    def __init__(self, *, opened: bool = False) -> None:
        self._held = ""
        self._stack: list[Where] = ["think"] if opened else []
        self._blocks: dict[Where, list[str]] = {"think": [""] if opened else [], "refine": [], "answer": []}
        self._outside: list[str] = []
        self._faults: list[str] = []

    def feed(self, chunk: str) -> list[Piece]:
        """The pieces that are sure by now."""
        self._held += chunk
        return list(self._taken())

    def close(self) -> list[Piece]:
        """The last piece, if one was held back: the reply has ended."""
        rest, self._held = self._held, ""
        return [self._text(rest)] if rest else []

    def tagged(self) -> Tagged:
        """What is sure so far, seen as if the reply ended with it; after `close`, all of the reply."""
        think, answers = self._blocks["think"], self._blocks["answer"]
        outside = "".join(self._outside)
        return Tagged(
            think="".join(think) if think else None,
            answer=answers[-1].strip() if answers else None,
            refines=tuple(self._blocks["refine"]),
            outside=outside,
            faults=(*self._faults, *self._ending(outside)),
        )

    def _ending(self, outside: str) -> Iterator[str]:
        yield from (f"<{where}> is not closed" for where in reversed(self._stack))
        for where in ("think", "answer"):
            if not self._blocks[where]:
                yield f"there is no <{where}>"
        if self._blocks["answer"] and not self._blocks["answer"][-1].strip():
            yield "the answer is empty"
        if outside.strip():
            yield f"{outside.strip()[:40]!r} stands in no block"

    def _taken(self) -> Iterator[Piece]:
        while self._held:
            at = self._held.find("<")
            if at < 0:
                text, self._held = self._held, ""
                yield self._text(text)
            elif at > 0:
                text, self._held = self._held[:at], self._held[at:]
                yield self._text(text)
            elif found := next((tag for tag in TAGS if self._held.startswith(tag)), None):
                self._held = self._held.removeprefix(found)
                yield self._tag(found)
            elif any(tag.startswith(self._held) for tag in TAGS):
                return
            else:
                self._held = self._held[1:]
                yield self._text("<")

    def _text(self, text: str) -> Piece:
        if not self._stack:
            self._outside.append(text)
            return Piece(where="outside", text=text)
        for where in self._stack:  # a refine span is part of its think block
            self._blocks[where][-1] += text
        return Piece(where=self._stack[-1], text=text)

    def _tag(self, tag: str) -> Piece:
        where: Where = tag.strip("</>")  # type: ignore[assignment]
        fits = self._closes(where) if tag.startswith("</") else self._opens(where)
        if not fits:
            self._faults.append(f"{tag} is out of place")
        return Piece(where=where if fits else "outside", text=tag, tag=True)

    def _closes(self, where: Where) -> bool:
        if where not in self._stack:
            return False
        while (last := self._stack.pop()) != where:
            self._faults.append(f"<{last}> is not closed")
        return True

    def _opens(self, where: Where) -> bool:
        if where == "refine":
            fits = self._stack == ["think"]
        elif self._stack == ["answer"] or where in self._stack:
            fits = False
        else:  # an answer is an answer, even if the thinking before it was not closed
            self._faults.extend(f"<{last}> is not closed" for last in reversed(self._stack))
            self._stack.clear()
            fits = True
            if self._blocks[where]:
                self._faults.append(f"<{where}> stands there twice")
            elif where == "think" and self._blocks["answer"]:
                self._faults.append("<think> comes after <answer>")
        if fits:
            self._stack.append(where)
            self._blocks[where].append("")
        return fits


def parse(text: str, *, opened: bool = False) -> Tagged:
    """A whole reply taken apart. `opened` as in `TagStream`."""
    stream = TagStream(opened=opened)
    stream.feed(text)
    stream.close()
    return stream.tagged()


def strip_refine(text: str, *, opened: bool = False) -> str:
    """The reply without its refine spans, tags and all; one that is not closed goes to the end of its think block. What is
    left has none, even where taking a span out has made one.
    """
    while True:
        stream = TagStream(opened=opened)
        pieces = [*stream.feed(text), *stream.close()]
        left = "".join(piece.text for piece in pieces if piece.where != "refine")
        if left == text:
            return text
        text = left
