"""A shape written as an llguidance expression: plans of units (items, sentences, paragraphs, or one run of prose)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from redraft.checks.letters import capital, may_end, parts, quoted
from redraft.checks.shapes import Range, Shape

_ROOM = 16
"""Words before a phrase, at most: a weak model puts off what it is allowed to put off."""
_LEAVE = 20
"""Words in which the last sentence of a run of prose may come to its end."""
_PROSE: Range = (8, 60)
_SENTENCE: Range = (4, 30)
_ITEM: Range = (1, 18)
_PARAGRAPH: Range = (15, 70)
_PLANS = 6
"""Numbers of units that a text is planned for, where the check leaves a range."""


def grammar(shapes: Sequence[Shape]) -> str | None:
    """Any of the shapes, as a grammar of small terminals; None if no text has one, or none that can be written simply."""
    ways, rules = [], []
    for i, shape in enumerate(shapes):
        mark = f"_{i}" if i else ""
        terminals = _terminals(shape)
        way = _written(shape, {name: f"{name}{mark}" for name in terminals})
        if way is not None:
            ways.append(way)
            rules += [f"{n}{mark}: {t}" for n, t in terminals.items() if re.search(rf"\b{n}{mark}\b", way)]
    return "\n".join([f"start: {_any(ways)}", *rules, ""]) if ways else None


def expression(shapes: Sequence[Shape]) -> str | None:
    """The same as one terminal, which composes with others, at the price of many more states."""
    ways = [_written(shape, {name: f"({t})" for name, t in _terminals(shape, small=True).items()}) for shape in shapes]
    found = [way for way in ways if way is not None]
    return _any(found) if found else None


def _terminals(shape: Shape, *, small: bool = False) -> Mapping[str, str]:
    """The terminals of a shape's words; none if it contradicts itself."""
    placed = shape.placed()
    letters = None if placed is None else shape.letters(placed)
    if letters is None:
        return {}
    if shape.chars is None:
        return letters.terminals(small=small)
    skeleton = (shape.words, shape.sentences, shape.paragraphs, shape.bullets, shape.start, shape.end, placed)
    return {} if any(skeleton) or letters.words else {"TEXT": letters.measured(*shape.chars)}


def _written(shape: Shape, terminals: Mapping[str, str]) -> str | None:
    if not terminals:
        return None
    return terminals.get("TEXT") or _Writer(shape, shape.placed() or (), terminals).text()


class _Writer:
    def __init__(self, shape: Shape, placed: Sequence[str], terminals: Mapping[str, str]) -> None:
        self.shape, self.placed, self.of = shape, placed, terminals
        self.listed = shape.bullets is not None
        self.flowing = not self.listed and shape.sentences is None
        """A unit is prose, in which sentences end."""
        # What is a sentence, or a line of its own beside a list, stands outside the units.
        self.before = shape.start if self.listed or _ends(shape.start) else ""
        self.after = shape.end if self.listed or _ends(shape.end) else ""
        self.first = "" if self.before else shape.start
        self.last = "" if self.after else shape.end
        fixed = sum(map(_size, (self.before, self.after)))
        self.words = (max(shape.words[0] - fixed, 0), shape.words[1] - fixed) if shape.words else None
        """Of all units together."""

    def text(self) -> str | None:
        """All plans, one of which the text follows."""
        plans = [plan for n in self._numbers() if (plan := self._plan(n))]
        if not plans:
            return None
        between = r'"\n"' if self.listed else '" "'
        before = f"{quoted(self.before)} {between} " if self.before else ""
        after = f" {between} {quoted(self.after)}" if self.after else ""
        return f"{before}{_any(plans)}{after}"

    def _numbers(self) -> Sequence[int]:
        """How many units the text may have; none if what is asked for cannot be written as units."""
        shape = self.shape
        fixed = sum(len(_STOP.findall(text)) for text in (self.before, self.after))
        sentences = shape.sentences and (shape.sentences[0] - fixed, shape.sentences[1] - fixed)
        if sentences and any(map(_STOP.search, (*self.placed, self.first, self.last[:-1]))):
            return ()
        span = shape.bullets or sentences or shape.paragraphs or (1, 1)
        if shape.bullets and sentences:
            span = max(span[0], sentences[0]), min(span[1], sentences[1])
        if shape.bullets and (
            (shape.paragraphs and shape.paragraphs[0] > 1) or (sentences and (self.before or self.after))
        ):
            return ()
        numbers = range(max(span[0], 1), span[1] + 1)
        if self.words:
            low, high = self.words
            return sorted((n for n in numbers if n <= high), key=lambda n: abs(n * 24 - low - high))[:_PLANS]
        return numbers[:_PLANS]

    def _plan(self, n: int) -> str | None:
        """A text of n units."""
        flowing = _PARAGRAPH if self.shape.paragraphs else _PROSE
        usual = _ITEM if self.listed else flowing if self.flowing else _SENTENCE
        text = ""
        for i in range(n):
            span = (_share(self.words[0], n, i), _share(self.words[1], n, i)) if self.words else usual
            phrases = [p for j, p in enumerate(self.placed) if j * n // len(self.placed) == i]
            unit = self._unit(span, phrases, self.first if i == 0 else "", self.last if i == n - 1 else "")
            if unit is None:
                return None
            text += f"{self._between(i, n)} {unit} "
        return text.strip()

    def _between(self, i: int, n: int) -> str:
        """What stands before the i-th unit."""
        if self.listed:
            return r'"\n- "' if i else '"- "'
        if i == 0:
            return ""
        sentences, paragraphs = self.shape.sentences, self.shape.paragraphs
        blocks = n if not sentences else paragraphs[0] if paragraphs else 1
        return r'"\n\n"' if i * blocks // n != (i - 1) * blocks // n else '" "'

    def _unit(self, span: Range, phrases: Sequence[str], first: str, last: str) -> str | None:
        """One unit: a head, the phrases with words before and between them, a tail."""
        size = sum(map(_size, (*phrases, first, last)))
        low, high = span[0] - size, span[1] - size
        if not phrases:
            tail = self._tail(low - 1, high - 1, last)
            return None if tail is None else f"{self._head(first)} {tail}"
        width = min(_ROOM, max(high - low, 0) // len(phrases))
        ways = []
        for least in range(1 if first else 0, _ROOM + 1, width + 1):
            gaps = [(a := max(least, min(i, 1)), a + width) for i in range(len(phrases))]
            tail = self._tail(low - sum(a for a, _ in gaps), high - sum(b for _, b in gaps), last, after=phrases[-1])
            if tail is not None:
                led = [self._opened(phrases[0], gaps[0], first), *map(self._led, phrases[1:], gaps[1:])]
                ways.append(" ".join([*led, tail]))
        return _any(ways) if ways else None

    def _head(self, first: str) -> str:
        """The first word, or the given text and a word."""
        return f'{quoted(first)} " " {self.of["WORD"]}' if first else self.of["HEAD"]

    def _opened(self, phrase: str, gap: Range, first: str) -> str:
        """The unit's first phrase and the words before it."""
        low, high = gap
        opening = quoted(phrase if self.shape.case else capital(phrase))
        if high == 0:
            return opening
        led = f"{self._head(first)} {self._led(phrase, (max(low, 1) - 1, high - 1))}"
        return led if low else _any([opening, led])

    def _led(self, phrase: str, gap: Range) -> str:
        """A phrase and the words between it and what was written before."""
        said = f"{self.of['JOINT']} {quoted(phrase)}"
        if self.flowing and not self.shape.case:
            said = _any([said, f"{self._break()} {quoted(capital(phrase))}"])
        return f"{self._more(*gap, flowing=self.flowing)} {said}".strip()

    def _tail(self, low: int, high: int, last: str, after: str = "") -> str | None:
        """The words after the last phrase, and the end; None if there is no room for them."""
        if high < 0:
            return None
        if last:
            return f'{self._more(low, high, flowing=self.flowing)} " " {quoted(last)}'
        end = '"."?' if self.listed else self.of["END"]
        ways = []
        if low <= 0 and (not after or may_end(after)):
            ways.append(end)
        if high > 0:
            ways += self._closings(max(low - 1, 0), high - 1, end)
        return _any(ways) if ways else None

    def _closings(self, low: int, high: int, end: str) -> list[str]:
        """So many more words, then the last one. Each text is written in one way only: a parser that has to count the same
        word as two things runs out of room.
        """
        last, final = (f"{self.of['JOINT']} {self.of[name]} {end}" for name in ("LAST", "FINAL"))
        if not self.flowing:
            loose = [f"{self._more(low, high - 1)} {last}"] if low < high else []
            return [*loose, f"{self._more(high, high)} {final}"]
        # No sentence begins near the limit, where it would be cut off.
        turn = max(low, high - _LEAVE)
        flown = self._more(turn, turn, flowing=True)
        rest = high - turn
        ways = [f"{self._more(low, turn - 1, flowing=True)} {last}"] if low < turn else []
        ways += [f"{flown} {self._more(0, rest - 1)} {last}"] if rest > 0 else []
        return [*ways, f"{flown} {self._more(rest, rest)} {final}"]

    def _more(self, low: int, high: int, *, flowing: bool = False) -> str:
        """So many more words."""
        word = f"{self.of['JOINT']} {self.of['WORD']}"
        if flowing:
            word = f"{word} | {self._break()} {self.of['HEAD']}"
        return f"({word}){{{max(low, 0)},{high}}}" if high > 0 else ""

    def _break(self) -> str:
        """Between two sentences of a unit."""
        return f'{self.of["END"]} " "' if self.shape.paragraphs else self.of["BREAK"]


_STOP = re.compile(r"[.!?]+(?=\s|$)")


def _ends(text: str) -> bool:
    """Whether a text ends as a sentence does."""
    return bool(_STOP.search(text[-1:]))


def _size(text: str) -> int:
    """Words of a text, as the check counts them."""
    return sum(1 for run in text.split() if parts(run))


def _share(total: int, n: int, i: int) -> int:
    """The i-th of n parts of a total, as even as can be."""
    return total // n + (i < total % n)


def _any(ways: Sequence[str]) -> str:
    return ways[0] if len(ways) == 1 else f"({' | '.join(ways)})"
