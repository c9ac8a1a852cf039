"""What `python_tests` runs in a jail: a draft's code in one cell, its tests in the next.

Both cells begin with this very text, so that what the code did to these functions is undone before they judge it. It
imports nothing of redraft. `told` is the host's function: the number of a test (or -1: the code) and its fault.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any

_CODE, _TESTS = "<code>", "<tests>"
_SHOWN = 80  # characters of a value or message


def run_code(code: str, told: Callable[..., Any]) -> None:
    """Run the draft as a module of its own."""
    module = ModuleType("__draft__")
    sys.modules[module.__name__] = module  # dataclasses, pickle and typing look there for a class's module
    if why := _faults(lambda: exec(_compiled(code, _CODE), vars(module))):  # noqa: S102 - what it is for
        told("", -1, why)


def run_tests(tests: str, mark: str, told: Callable[..., Any]) -> None:
    """Run the tests one by one, and tell each one's fault."""
    names = vars(sys.modules["__draft__"])
    for number, node in enumerate(ast.parse(tests).body):
        told(mark, number, _faults(_runner(node, names)))


def _faults(run: Callable[[], Any]) -> str:
    """What went wrong; empty if nothing did."""
    try:
        run()
    except _Untrue as error:
        return str(error)
    except KeyboardInterrupt:  # the time is over
        raise
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
