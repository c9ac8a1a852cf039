"""Warnings about set-ups that were seen to waste calls: said once on stderr, and on record in the run (`lint` events).

`configure(lint=False)` keeps them quiet.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from redraft.judges.family import family
from redraft.modules import Module
from redraft.scoring import name_of
from redraft.strategies.advisor import own_lm, said_of

if TYPE_CHECKING:
    from redraft.strategies.refine import Refine

_MANY = 3  # criteria from which on reaching all of them is luck


def findings(strategy: Refine) -> Iterator[str]:
    """What can be seen before anything is tried."""
    for check in strategy.judgement.checks:
        if not check.tell_text():
            yield f"check {check.name!r} is never told to the author: give it tell='...', or tell=False on purpose"
    reward, threshold = strategy.judgement.reward, strategy.threshold
    soft = sum(not c.hard for c in strategy.judgement.checks)
    if reward is not None:
        name = name_of(reward)
        parts, binary = _shape(said_of(reward))
        if binary and strategy.N > 1:
            yield BINARY.format(name=name, n=strategy.N)
        soft += parts
    if threshold is not None and threshold >= 1.0 and soft >= _MANY:
        yield FAR.format(threshold=threshold, soft=soft, n=strategy.N)
    yield from _kinship(strategy)


@lru_cache(maxsize=256)
def _shape(source: str) -> tuple[int, bool]:
    """Of a reward function: how many parts it adds up, and whether it only ever says yes or no."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # a lambda's source is the line that it stands in
        return 0, False
    parts = sum(isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) for node in ast.walk(tree))
    returned = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return) and node.value is not None]
    return parts, bool(returned) and all(map(_is_yes_or_no, returned))


def _is_yes_or_no(value: ast.expr) -> bool:
    if isinstance(value, ast.Constant):
        return value.value in (0, 1)
    if isinstance(value, ast.IfExp):
        return _is_yes_or_no(value.body) and _is_yes_or_no(value.orelse)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in ("float", "int", "bool"):
        return len(value.args) == 1 and _is_yes_or_no(value.args[0])
    if isinstance(value, ast.BoolOp):
        return all(map(_is_yes_or_no, value.values))
    return isinstance(value, ast.Compare) or (isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not))


def _kinship(strategy: Refine) -> Iterator[str]:
    author = own_lm(strategy.module)
    judges = [getattr(check, "judging", check) for check in strategy.judgement.checks if check.asks]
    if isinstance(strategy.ladder.judge, Module):
        judges.append(strategy.ladder.judge)
    for judge in judges:
        named, written_by = _name(own_lm(judge) or author), _name(author)
        if named == written_by:
            yield f"the judge is the author's own model{f', {named},' if named else ''} {OVERRATES}"
        elif family(named) == family(written_by):
            yield f"the judge {named} is of the family of the author {written_by}, {OVERRATES}"


def _name(lm: Any) -> str:
    return str(getattr(lm, "name", lm) or "")


BINARY = (
    "reward function {name!r} only says yes or no: among {n} attempts it cannot tell a near miss from a failure; return "
    "partial credit, or use a check"
)
FAR = (
    "threshold={threshold:g} over {soft} soft criteria is rarely reached: then all {n} attempts are spent; ask for less"
)
OVERRATES = "which over-rates its own: judge by another family, or by code"
