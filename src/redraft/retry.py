"""The one retry policy: which failures of a call deserve another try, and after how long. Run drives it."""

from __future__ import annotations

from redraft.errors import LMError, TransientLMError

LONGEST_WAIT = 120.0
"""Seconds. An upstream that asks for more is not waited for."""


def wait_before(error: LMError, tried: int, tries: int) -> float | None:
    """Seconds to wait before the next try of a call that failed `tried` times; None: give up.

    Retry-After is honoured as it stands; without it the wait grows from half a second, with jitter, so that many
    callers do not return at once.
    """
    if not isinstance(error, TransientLMError) or tried >= tries:
        return None
    if error.retry_after is None:
        import random

        return random.uniform(0.5, 1.0) * min(0.5 * 2.0 ** (tried - 1), 20.0)
    return error.retry_after if error.retry_after <= LONGEST_WAIT else None
