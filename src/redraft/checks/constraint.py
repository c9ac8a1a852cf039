"""Constraint: a language of texts, in llguidance's terms. `&`, `|` and `~` compose them.

What was decoded under a constraint is judged by the checks all the same: a language may be narrower than its check, and
an engine may fail to hold it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redraft.errors import UsageError


@dataclass(frozen=True, slots=True)
class Constraint:
    """Either `terminal` (an llguidance terminal expression, e.g. `/[a-z]+/ & ~/.*no.*/`) or a JSON `schema`."""

    terminal: str = ""
    bounded: bool = False
    """No text of it grows for ever. Decoding under an unbounded one, such as "contains", need never end."""
    schema: Mapping[str, Any] | None = None

    def __and__(self, other: Constraint) -> Constraint:
        return self._joined("&", other, bounded=self.bounded or other.bounded)

    def __or__(self, other: Constraint) -> Constraint:
        return self._joined("|", other, bounded=self.bounded and other.bounded)

    def __invert__(self) -> Constraint:
        self._needs_terminal()
        return Constraint(f"~({self.terminal})")

    def _joined(self, mark: str, other: Constraint, *, bounded: bool) -> Constraint:
        self._needs_terminal()
        other._needs_terminal()
        return Constraint(f"({self.terminal}) {mark} ({other.terminal})", bounded)

    def _needs_terminal(self) -> None:
        if self.schema is not None:
            raise UsageError("a JSON schema's constraint stands alone: it does not compose with &, | or ~")

    def grammar(self) -> str:
        """As an llguidance grammar. A schema is written without free white space, in which engines loop."""
        if self.schema is None:
            return f"start: TEXT\nTEXT: {self.terminal}\n"
        compact = {**self.schema, "x-guidance": {"whitespace_flexible": False}}
        return f"start: %json {json.dumps(compact, ensure_ascii=False)}\n"
