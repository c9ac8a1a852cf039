"""Warnings about set-ups that were seen to waste calls: said once on stderr, and on record in the run (`lint` events).

`configure(lint=False)` keeps them quiet.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from redraft.checks import Check
from redraft.checks.compose import Composed
from redraft.judges.family import family
from redraft.modules import Module
from redraft.scoring import name_of
from redraft.strategies.advisor import own_lm, said_of

if TYPE_CHECKING:
    from redraft.strategies.refine import Refine

_MANY = 3  # criteria from which on reaching all of them is luck
_ASK = {name for name in dir(str) if name.startswith("is")} | {
    *("startswith", "endswith", "all", "any", "bool", "callable", "hasattr", "isinstance", "issubclass")
}
"""Functions and methods that say yes or no."""


def findings(strategy: Refine) -> Iterator[str]:
    """What can be seen before anything is tried."""
    for check in _untold(strategy.judgement.checks):
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


def _untold(checks: Iterable[Check]) -> Iterator[Check]:
    for check in checks:
        if isinstance(check, Composed):
            yield from _untold(check.members if check.told else ())
        elif check.told and not check.tell_text():
            yield check


@lru_cache(maxsize=256)
def _shape(source: str) -> tuple[int, bool]:
    """Of a reward function: how many parts it adds up, and whether it only ever says yes or no."""
    try:
        tree = ast.parse(f"({source})" if source.startswith("lambda") else source)
    except (SyntaxError, ValueError):  # no code, or a piece of it
        return 0, False
    parts = sum(isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) for node in ast.walk(tree))
    returned = list(_returned(tree))
    several = len(set(map(ast.dump, returned))) > 1 or not all(isinstance(value, ast.Constant) for value in returned)
    return parts, several and all(map(_is_yes_or_no, returned))


def _returned(tree: ast.Module) -> list[ast.expr]:
    match tree.body:
        case [ast.Expr(ast.Lambda(body=value))]:
            return [value]
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Return) and node.value is not None]


def _is_yes_or_no(value: ast.expr) -> bool:
    match value:
        case ast.Constant(value=said):
            return said in (0, 1)
        case ast.IfExp(body=one, orelse=other):
            return _is_yes_or_no(one) and _is_yes_or_no(other)
        case ast.Call(func=ast.Name(id="float" | "int"), args=[inside]):
            return _is_yes_or_no(inside)
        case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
            return name in _ASK
        case ast.BoolOp(values=values):
            return all(map(_is_yes_or_no, values))
        case ast.UnaryOp(op=ast.Not()) | ast.Compare():
            return True
    return False


def _kinship(strategy: Refine) -> Iterator[str]:
    own = own_lm(strategy.module)
    authors = dict.fromkeys(map(_name, strategy.ladder.models[: strategy.N] or [own]))
    judges = [getattr(check, "judging", check) for check in _asking(strategy.judgement.checks)]
    judges.append(strategy.judge)
    for judge in judges:
        if not isinstance(judge, Module) and not hasattr(judge, "lm"):
            continue  # nobody knows whom it asks
        named = _name(own_lm(judge) or own)
        for author in authors:
            if named == author:
                yield f"the judge is the author's own model{f', {named},' if named else ''} {OVERRATES}"
            elif family(named) == family(author):
                yield f"the judge {named} is of the family of the author {author}, {OVERRATES}"


def _asking(checks: Iterable[Check]) -> Iterator[Check]:
    for check in checks:
        if isinstance(check, Composed):
            yield from _asking(check.members)
        elif check.asks:
            yield check


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
