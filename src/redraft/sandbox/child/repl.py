"""A REPL whose names live in a real module, `__main__`: they outlive a cell, and an exception in it."""

from __future__ import annotations

import _ast  # without the module `ast`, which is slow to load
import sys
from collections.abc import Callable, Coroutine
from types import CodeType, ModuleType

from redraft.sandbox.child import show
from redraft.sandbox.child.bridge import CellEnded

TYPE_CHECKING = False  # `typing` is slow to load, and type checkers know the name
if TYPE_CHECKING:
    import asyncio
    from typing import Any


_COROUTINE = 0x80  # inspect.CO_COROUTINE: that module is slow to load


class Repl:
    """Runs cells one after the other.

    `reserved` are names that the code may not keep for itself; `room` frees memory set aside when a cell ran out of it.
    """

    def __init__(
        self,
        values: dict[str, Any],
        reserved: dict[str, Any],
        write: Callable[[str], object],
        room: Callable[[], None] = lambda: None,
    ) -> None:
        self.module = ModuleType("__main__")
        self.names = vars(self.module)
        self.names |= values | reserved
        self._reserved = reserved
        self._write = write
        self._room = room
        self._count = 0
        self._sources: dict[str, str] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, code: str, ended: Callable[[], None] = lambda: None) -> str:
        """Run one cell; its error on one line, or nothing. `ended` is called as soon as its code has come to an end."""
        self._count += 1
        file = f"<cell {self._count}>"
        self._remember(file, code)
        error = ""
        try:
            parts = _parts(code, file)
            if any(part.co_flags & _COROUTINE for part, _ in parts):
                self._awaited(self._in_order(parts))
            else:
                for part, shown in parts:
                    self._show(eval(part, self.names), shown)  # noqa: S307 - what it is for
            ended()
        except CellEnded:
            ended()
        except SystemExit as stop:
            ended()
            error = "" if stop.code in (None, 0) else f"SystemExit: {stop.code}"[:500]
        except BaseException as raised:  # noqa: BLE001 - user code: what it raises is shown to its author
            ended()
            if isinstance(raised, MemoryError):
                self._room()
            told = show.failure(raised, self._sources)
            raised.__traceback__ = raised.__context__ = (
                None  # their frames' variables would live on, and fill the memory
            )
            error = show.line_of(raised)
            self._write(told or f"{error}\n")
        self._restore()
        return error

    def _remember(self, file: str, code: str) -> None:
        """Tracebacks show the lines of cells; their module is loaded when there is time, or need."""
        self._sources[file] = code
        if "linecache" in sys.modules:
            show.remember(self._sources)

    def close(self) -> None:
        """End the loop that its cells awaited on."""
        if self._loop is not None:
            self._loop.close()

    def _show(self, value: Any, shown: bool) -> None:
        if shown and value is not None:
            self._write(f"{show.echo(value)}\n")

    async def _in_order(self, parts: list[tuple[CodeType, bool]]) -> None:
        """A cell that awaits: all of it runs on the loop."""
        for part, shown in parts:
            value = eval(part, self.names)  # noqa: S307 - what it is for
            self._show(await value if part.co_flags & _COROUTINE else value, shown)

    def _awaited(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        import asyncio

        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(coroutine)

    def _restore(self) -> None:
        lost = [name for name, value in self._reserved.items() if self.names.get(name) is not value]
        if lost:
            self.names |= {name: self._reserved[name] for name in lost}
            names = ", ".join(f"`{name}`" for name in lost)
            self._write(f"[{names}: the sandbox's own function again; give your variable another name]\n")


def _parts(code: str, file: str) -> list[tuple[CodeType, bool]]:
    """The cell as compiled pieces, and whether the value of each is shown: that of a last expression is."""
    tree: _ast.Module = compile(code, file, "exec", _ast.PyCF_ONLY_AST, dont_inherit=True)  # type: ignore[assignment]
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], _ast.Expr) else None
    flags = _ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    parts = [(compile(tree, file, "exec", flags, dont_inherit=True), False)] if tree.body else []
    if isinstance(last, _ast.Expr):
        parts.append((compile(_ast.Expression(last.value), file, "eval", flags, dont_inherit=True), True))
    return parts


def make_main(module: ModuleType) -> None:
    """Pickle, dataclasses and typing look for a class's module in `sys.modules`."""
    sys.modules["__main__"] = module
