"""Constraint: a language of texts, in llguidance's terms. `&`, `|` and `~` compose them.

What was decoded under a constraint is judged by the checks all the same: a language may be narrower than its check, and
an engine may fail to hold it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redraft.checks.shapes import Shape
from redraft.errors import UsageError


@dataclass(frozen=True, slots=True)
class Constraint:
    """A `shape`, a `terminal` (an llguidance terminal expression, e.g. `/[a-z]+/ & ~/.*no.*/`), both (the text is in
    each), or a JSON `schema`, which stands alone.
    """

    terminal: str = ""
    bounded: bool = False
    """No text of it grows for ever. Decoding under an unbounded one, such as "contains", need never end."""
    schema: Mapping[str, Any] | None = None
    shape: Shape | None = None

    def __and__(self, other: Constraint) -> Constraint:
        self._composes(other)
        shape: Shape | None = self.shape or other.shape
        if self.shape and other.shape:
            shape = self.shape & other.shape
            if shape is None:
                return NOTHING
        terminal = " & ".join(f"({t})" for t in (self.terminal, other.terminal) if t)
        return Constraint(terminal, self.bounded or other.bounded, shape=shape)

    def __or__(self, other: Constraint) -> Constraint:
        self._composes(other)
        return Constraint(f"({self.expression()}) | ({other.expression()})", self.bounded and other.bounded)

    def __invert__(self) -> Constraint:
        self._composes(self)
        return Constraint(f"~({self.expression()})")

    def _composes(self, other: Constraint) -> None:
        if self.schema is not None or other.schema is not None:
            raise UsageError("a JSON schema's constraint stands alone: it does not compose with &, | or ~")

    def expression(self) -> str:
        """As one llguidance terminal expression."""
        if self.shape is None:
            return self.terminal
        written = self.shape.expression() or NOTHING.terminal
        return f"({written}) & {self.terminal}" if self.terminal else written

    def grammar(self) -> str:
        """As an llguidance grammar. A schema is written without free white space, in which engines loop."""
        if self.schema is None:
            return f"start: TEXT\nTEXT: {self.expression()}\n"
        compact = {**self.schema, "x-guidance": {"whitespace_flexible": False}}
        return f"start: %json {json.dumps(compact, ensure_ascii=False)}\n"


NOTHING = Constraint("/a/ & /b/", bounded=True)
"""The language without texts: what contradicts itself. `redraft.grammar.problem` says so."""
