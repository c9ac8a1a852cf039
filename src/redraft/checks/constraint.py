"""Constraint: a language of texts, in llguidance's terms. `&`, `|` and `~` compose them.

What was decoded under a constraint is judged by the checks all the same: a language may be narrower than its check, and
an engine may fail to hold it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redraft.checks import writer
from redraft.checks.shapes import Shape
from redraft.errors import UsageError


@dataclass(frozen=True, slots=True)
class Constraint:
    """Any of the `shapes`, a `terminal` (an llguidance terminal expression, e.g. `/[a-z]+/ & ~/.*no.*/`), both (the text
    is in each), or a JSON `schema`, which stands alone.

    Shapes merge into one small grammar, however many they are. Terminals multiply the engine's states.
    """

    terminal: str = ""
    bounded: bool = False
    """No text of it grows for ever. Decoding under an unbounded one, such as `~`, need never end."""
    schema: Mapping[str, Any] | None = None
    shapes: tuple[Shape, ...] = ()

    def __and__(self, other: Constraint) -> Constraint:
        self._composes(other)
        shapes = self.shapes or other.shapes
        if self.shapes and other.shapes:
            both = [merged for one in self.shapes for two in other.shapes if (merged := one & two)]
            if not both:
                return NOTHING
            shapes = tuple(dict.fromkeys(both))
        terminal = " & ".join(f"({t})" for t in (self.terminal, other.terminal) if t)
        return Constraint(terminal, self.bounded or other.bounded, shapes=shapes)

    def __or__(self, other: Constraint) -> Constraint:
        self._composes(other)
        bounded = self.bounded and other.bounded
        if self.terminal or other.terminal:
            return Constraint(f"({self.expression()}) | ({other.expression()})", bounded)
        return Constraint(bounded=bounded, shapes=tuple(dict.fromkeys((*self.shapes, *other.shapes))))

    def __invert__(self) -> Constraint:
        """All other texts. What is outside of a shape tells nothing, since a shape is narrower than its check; but a
        phrase is in a text or is not.
        """
        self._composes(self)
        if not self.shapes:
            return Constraint(f"~({self.terminal})")
        opposite = None if self.terminal or len(self.shapes) > 1 else self.shapes[0].opposite()
        return Constraint(bounded=True, shapes=(opposite,)) if opposite else NOTHING

    def _composes(self, other: Constraint) -> None:
        if self.schema is not None or other.schema is not None:
            raise UsageError("a JSON schema's constraint stands alone: it does not compose with &, | or ~")

    def expression(self) -> str:
        """As one llguidance terminal expression."""
        if not self.shapes:
            return self.terminal
        shapes = writer.expression(self.shapes) or NOTHING.terminal
        return f"({shapes}) & {self.terminal}" if self.terminal else shapes

    def grammar(self) -> str:
        """As an llguidance grammar. A schema is written without free white space, in which engines loop."""
        if self.schema is not None:
            compact = {**self.schema, "x-guidance": {"whitespace_flexible": False}}
            return f"start: %json {json.dumps(compact, ensure_ascii=False)}\n"
        shapes = None if self.terminal else writer.grammar(self.shapes)
        return shapes or f"start: TEXT\nTEXT: {self.expression()}\n"


NOTHING = Constraint("/a/ & /b/", bounded=True)
"""The language without texts, for what contradicts itself; `redraft.grammar.problem` says that nothing satisfies it."""
