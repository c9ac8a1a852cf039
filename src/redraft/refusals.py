"""What each model refused: dropped once, remembered, said. A run goes by its own record, so that it replays alike."""

from __future__ import annotations

from collections import defaultdict
from weakref import WeakKeyDictionary

from redraft.frame import current_frame
from redraft.journal import Journal
from redraft.protocols import LM

_refused: dict[str, set[str]] = defaultdict(set)
_by_run: WeakKeyDictionary[Journal, dict[str, set[str]]] = WeakKeyDictionary()


def refuses(lm: LM, parameter: str) -> bool:
    """True if this model refused the parameter before, as far as this run knows: a resumed run goes by its record."""
    return parameter in _refused_in_run(lm)


def remember_refusal(lm: LM, parameter: str) -> None:
    """From now on this model is not sent the parameter."""
    _refused_in_run(lm).add(parameter)
    _refused[lm.name].add(parameter)


def refused_by(lm: LM) -> frozenset[str]:
    """Everything that this model refused in this process."""
    return frozenset(_refused.get(lm.name, ()))


def _refused_in_run(lm: LM) -> set[str]:
    frame = current_frame()
    if frame is None:
        return _refused[lm.name]
    journal = frame.run.journal
    by_name = _by_run.setdefault(journal, {})
    if lm.name not in by_name:
        old = journal.recorded("refused", lm.name)
        known = set(old.data["parameters"]) if old else set() if journal.resumed else {*_refused[lm.name]}
        if known:
            journal.note("refused", key=lm.name, parameters=sorted(known))
        by_name[lm.name] = known
    return by_name[lm.name]
