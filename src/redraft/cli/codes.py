"""Exit codes: part of the command line's contract."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """How a command ended."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    LIMIT = 3
    NOT_PASSED = 4
    INTERRUPTED = 130
    """128 + SIGINT, as shells count; SIGTERM gives 143."""


EXPLAINED = """\b
Exit codes:
  0    done
  1    failed (the best draft so far is still printed, if there is one)
  2    wrong usage: nothing was spent
  3    a limit ended it before there was any draft
  4    done, but not all checks passed (--allow-fail makes this 0)
  130  interrupted (143: terminated); the best draft so far is printed"""
