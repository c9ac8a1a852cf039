"""SUBMIT: how the code gives its answer. It is held to the signature, then to the user's checks; what is wrong is raised in
the code, field by field, so that the next turn can mend it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from redraft.checks import Judgement
from redraft.errors import ParseError
from redraft.frame import entered
from redraft.protocols import CellEnd
from redraft.rlm.answers import Asked, Cell, head
from redraft.signature import SignatureSpec, did_you_mean
from redraft.types import Prediction, Score

NAME = "SUBMIT"


class Submit:
    """Takes the answer of one call. `inputs` are the module's own, for the checks."""

    def __init__(
        self, signature: SignatureSpec, judgement: Judgement, inputs: Mapping[str, Any], cell: Callable[[], Cell | None]
    ) -> None:
        self.signature, self.judgement, self.inputs = signature, judgement, inputs
        self._cell = cell
        self.best: tuple[Prediction, Score] | None = None
        """Of the answers that failed a check, the one that failed least."""

    async def submit(self, asked: Asked, /, *args: Any, **kwargs: Any) -> None:
        """The host function. Raises TypeError or ValueError in the code, and `CellEnd` once the answer is taken."""
        given = self.named(args, kwargs)
        asked.entry["prompt"] = head(given)
        prediction = self.read(given)
        score = await self.judged(asked, prediction)
        if score is not None and not score.passed:
            if self.best is None or score.rank > self.best[1].rank:
                self.best = (prediction, score)
            raise ValueError(f"the answer was not taken: {score.feedback} Nothing is lost: mend it and SUBMIT again")
        cell = self._cell()
        if cell is not None and cell.submitted is None:
            cell.submitted = given
            cell.over.set()
        raise CellEnd

    async def judged(self, asked: Asked, prediction: Prediction) -> Score | None:
        """What the checks say of an answer; None if there are none."""
        if self.judgement.empty:
            return None
        with entered(asked.frame):
            work = self.judgement.score(self.inputs, prediction)
            return await asked.frame.run.judging(self.judgement, work)

    def named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name: given by keyword, in place, or as one dict. Raises `TypeError`."""
        names = list(self.signature.outputs)
        first = args[0] if len(args) == 1 and not kwargs else None
        if isinstance(first, Mapping) and set(first) & set(names):
            args, kwargs = (), {str(key): value for key, value in first.items()}
        if len(args) > len(names):
            raise TypeError(f"{NAME} takes {self.form()}, got {len(args)} values")
        given = dict(zip(names, args, strict=False))
        if twice := given.keys() & kwargs.keys():
            raise TypeError(f"{NAME} got {min(twice)!r} twice: in place and by name")
        if unknown := [name for name in kwargs if name not in names]:
            raise TypeError(f"{NAME} takes {self.form()}; there is no {unknown[0]!r}{did_you_mean(unknown[0], names)}")
        return {**given, **kwargs}

    def read(self, given: Mapping[str, Any]) -> Prediction:
        """The answer with its types. Raises `ValueError` that names every output which does not fit."""
        try:
            fields = self.signature.coerce(given)
        except ParseError as error:
            raise ValueError(f"the answer was not taken: {error}. Call {self.form()}") from error
        if all(isinstance(value, str) and not value.strip() for value in fields.values()):
            raise ValueError(f"the answer was not taken: it is empty. Call {self.form()}")
        return Prediction(fields)

    def form(self) -> str:
        """How it is called."""
        return f"{NAME}({', '.join(f'{name}=...' for name in self.signature.outputs)})"


def literal(code: str) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments of a SUBMIT that is called with values alone; None for any other code."""
    try:
        body = ast.parse(code).body
        call = body[-1].value if body and isinstance(body[-1], ast.Expr) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id != NAME:
            return None
        named = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords if keyword.arg}
        return tuple(ast.literal_eval(arg) for arg in call.args), named
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
