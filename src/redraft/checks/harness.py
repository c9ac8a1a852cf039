"""The child process of `python_tests`: runs a draft's code, then its tests one by one.

It runs alone (`python -I harness.py`) and imports nothing of redraft. A task comes in as JSON on stdin; what happened
goes out on what was stdout, which the code under test has not: one JSON line each, after the task's mark, such as
`MARK {"test": 2, "ok": false, "why": "..."}`, and `MARK {"end": true}` last. A line without the mark is the code's.
"""

from __future__ import annotations

import ast
import json
import os
import sys
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any

_CODE, _TESTS = "<code>", "<tests>"
_SHOWN = 80  # characters of a value or message


def main() -> None:
    """Run the task on stdin."""
    task = json.load(sys.stdin)
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silence, stream)
    _limit(task["seconds"], task["memory"], task["file_size"])

    def tell(**said: Any) -> None:
        out.write(f"\n{task['mark']} {json.dumps(said)}\n")  # on a line of its own, whatever the code wrote there
        out.flush()

    tell(start=True)
    module = ModuleType("__draft__")
    sys.modules[module.__name__] = module  # dataclasses, pickle and typing look there for a class's module
    names = vars(module)
    if why := _faults(lambda: exec(_compiled(task["code"], _CODE), names)):  # noqa: S102 - what it is for
        tell(code=why)
    else:
        for number, node in enumerate(ast.parse(task["tests"]).body):
            why = _faults(_runner(node, names))
            tell(test=number, ok=not why, why=why)
    tell(end=True)


def _limit(seconds: float, memory: int, file_size: int) -> None:
    try:
        import resource
    except ImportError:  # no such limits on this system; the parent's timeout holds
        return
    limits = {
        "RLIMIT_AS": memory,
        "RLIMIT_CPU": int(seconds)
        + 2,  # the parent ends what runs too long, and says so; this is for the case that it died
        "RLIMIT_FSIZE": file_size,
        "RLIMIT_CORE": 0,
        "RLIMIT_NOFILE": 64,
    }
    for name, most in limits.items():
        try:
            resource.setrlimit(getattr(resource, name), (most, most))
        except (AttributeError, OSError, ValueError):  # unknown here, or a tighter one is in force already
            continue


def _faults(run: Callable[[], Any]) -> str:
    """What went wrong; empty if nothing did."""
    try:
        run()
    except _Untrue as error:
        return str(error)
    except BaseException as error:  # noqa: BLE001 - user code: what it raises is its fault
        said = error.msg if isinstance(error, SyntaxError) else _shown(error, str)
        line = _line_in_code(error)
        return f"{type(error).__name__}{f': {said}' if said else ''}{f' (line {line} of the code)' if line else ''}"
    return ""


class _Untrue(Exception):
    """An assert that does not hold, with the value that it has instead."""


def _runner(node: ast.stmt, names: dict[str, Any]) -> Callable[[], Any]:
    if isinstance(node, ast.Assert):
        return lambda: _hold(node, names)
    if isinstance(node, ast.FunctionDef) and node.name.startswith("test") and not node.args.args:
        return lambda: _call(node, names)
    return lambda: _run(node, names)


def _run(node: ast.stmt, names: dict[str, Any]) -> None:
    exec(_compiled(ast.Module([node], []), _TESTS), names)  # noqa: S102 - what it is for


def _call(node: ast.FunctionDef, names: dict[str, Any]) -> None:
    _run(node, names)
    names[node.name]()


def _hold(node: ast.Assert, names: dict[str, Any]) -> None:
    """An assert, with the left side's value kept to be told."""
    test = node.test
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        value = _value(test, names)
        if not value:
            raise _Untrue(f"it is {_shown(value)}")
        return
    sides = {"_left": _value(test.left, names), "_right": _value(test.comparators[0], names)}
    compared = ast.Compare(ast.Name("_left", ast.Load()), test.ops, [ast.Name("_right", ast.Load())])
    if not _value(compared, sides):
        raise _Untrue(f"got {_shown(sides['_left'])}")


def _value(node: ast.expr, names: dict[str, Any]) -> Any:
    return eval(_compiled(ast.fix_missing_locations(ast.Expression(node)), _TESTS, "eval"), names)  # noqa: S307


def _compiled(source: str | ast.Module | ast.Expression, name: str, mode: str = "exec") -> CodeType:
    """By itself: annotations are no texts there, as they are in this file."""
    code: CodeType = compile(source, name, mode, dont_inherit=True)
    return code


def _shown(value: Any, form: Callable[[Any], str] = repr) -> str:
    try:
        text = form(value)
    except BaseException:  # noqa: BLE001 - user code: a value whose repr raises
        text = f"a {type(value).__name__}"
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _line_in_code(error: BaseException) -> int:
    if isinstance(error, SyntaxError) and error.filename == _CODE:
        return error.lineno or 0
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == _CODE:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


if __name__ == "__main__":
    main()
