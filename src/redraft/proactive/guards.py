"""The checks' guards as one: which of them a text that begins like this cannot pass any more."""

from __future__ import annotations

from collections.abc import Sequence

from redraft.checks import Check
from redraft.errors import ScoreError


class Guards:
    """The guards of hard checks that look at the text which is being written. Called from whatever thread writes.

    What a user's guard raises is kept as `error`, and ends the writing: whoever reads the outcome raises it.
    """

    def __init__(self, checks: Sequence[Check], field: str) -> None:
        told = [check for check in checks if check.hard and check.field in (None, field)]
        self.checks = tuple(check for check in told if type(check).guard is not Check.guard)
        self.error: ScoreError | None = None

    def __call__(self, prefix: str) -> str:
        """The name of the first check that fails for sure; empty if there is none."""
        for check in self.checks:
            try:
                said = check.guard(prefix)
            except Exception as error:  # noqa: BLE001 - user code: it runs inside a model's call, which is not at fault
                self.error = ScoreError(
                    f"{type(error).__name__} in the guard of check {check.name!r}: {error}; mend it"
                )
                self.error.__cause__ = error
                return check.name
            if said == "fail":
                return check.name
        return ""
