"""Regular expressions of strangers: matched in time that is linear in the text, by RE2, so that none can stop the process.

`with linear():` around what makes checks of a stranger's words; `matcher` is what those checks match with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from redraft.errors import ConfigError, UsageError

_linear: ContextVar[bool] = ContextVar("redraft_linear", default=False)


@contextmanager
def linear() -> Iterator[None]:
    """In here every pattern is a stranger's."""
    token = _linear.set(True)
    try:
        yield
    finally:
        _linear.reset(token)


def is_linear() -> bool:
    """True inside `linear`."""
    return _linear.get()


def matcher(pattern: re.Pattern[str]) -> Any:
    """What has the pattern's `search` and `fullmatch`. Inside `linear` RE2's, or a `UsageError` for what RE2 does not take."""
    if not _linear.get():
        return pattern
    try:
        import re2
    except ImportError as error:
        raise ConfigError("patterns of strangers need the package google-re2: pip install 'redraft[mcp]'") from error
    options = re2.Options()
    options.log_errors = False
    flags = "".join(letter for letter, flag in _FLAGS if pattern.flags & flag)
    try:
        return re2.compile(f"(?{flags}){pattern.pattern}" if flags else pattern.pattern, options=options)
    except re2.error as error:
        said = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else error
        raise UsageError(
            f"the pattern {pattern.pattern!r} cannot be matched in linear time ({said}): write it without look-around and "
            "back-references"
        ) from error


_FLAGS = (("i", re.IGNORECASE), ("m", re.MULTILINE), ("s", re.DOTALL))
