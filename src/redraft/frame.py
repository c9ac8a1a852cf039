"""Where in a run the running code stands: its scope, its meter, the advice it is given.

Carried by a context variable through tasks and worker threads, so that a module called inside a user's module joins
the surrounding run: one meter, one journal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from redraft.budget import Meter
from redraft.journal import digest, inputs_digest
from redraft.protocols import LM

if TYPE_CHECKING:
    from redraft.run import Run


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What an attempt's modules are told beyond their inputs."""

    requirements: tuple[str, ...] = ()
    """What the checks will ask for, stated in the prompt (rung "tell")."""
    hint: str = ""
    """One short hint from an earlier attempt, in a fresh prompt."""
    temperature: float | None = None
    grammar: str | None = None
    """Decode under this llguidance grammar where the module's one output is text (rung "constrain")."""
    lm: LM | None = None
    """Overrides the modules' own model."""


NO_ADVICE = Advice()


@dataclass(slots=True)
class Frame:
    """One level of the call tree. Scope = attribute path + hash of inputs + occurrence; attempts by their index."""

    run: Run
    scope: str
    meter: Meter
    advice: Advice = NO_ADVICE
    owner: Any = None
    """The module whose code is running: its sub-modules are named by their path in it."""
    counts: dict[str, int] = field(default_factory=dict)
    paths: dict[int, str] | None = None
    """By `id`, of the owner's sub-modules; found out when first asked for."""

    def inner(self, module: Any, inputs: Mapping[str, Any]) -> Frame:
        """The frame in which a module works on these inputs."""
        name = f"{self._path(module)}:{inputs_digest(inputs)}"
        self.counts[name] = nth = self.counts.get(name, 0) + 1
        return Frame(
            run=self.run, scope=f"{self.scope}/{name}#{nth}", meter=self.meter, advice=self.advice, owner=module
        )

    def attempt(self, run: Run, scope: str, meter: Meter, advice: Advice) -> Frame:
        """The frame of an attempt made here."""
        return Frame(run, scope, meter, advice, owner=self.owner, paths=self.named())

    def nested_run(self) -> str:
        """The scope of a run that is opened here."""
        self.counts["run"] = nth = self.counts.get("run", 0) + 1
        return f"{self.scope}/run#{nth}"

    def unadvised(self) -> Frame:
        """The same place for those who judge: what the author is told must not colour a critic or a judge."""
        return self if self.advice is NO_ADVICE else replace(self, advice=NO_ADVICE)

    def named(self) -> dict[int, str]:
        """The paths of the owner's sub-modules."""
        if self.paths is None:
            self.paths = {}
            if hasattr(self.owner, "named_modules"):
                self.paths = {id(m): path for path, m in self.owner.named_modules()}
        return self.paths

    def _path(self, module: Any) -> str:
        path = self.named().get(id(module))
        if path is None:
            # No attribute of the owner: told apart by what it is, never by which one came first.
            what = getattr(module, "identity", None)
            path = type(module).__name__ + (f"~{digest(what())[:8]}" if what else "")
        return path


_frame: ContextVar[Frame | None] = ContextVar("redraft_frame", default=None)


def current_frame() -> Frame | None:
    """The frame of the running code; None outside any run."""
    return _frame.get()


def in_run(fn: Callable[..., T]) -> Callable[..., T]:
    """The function as part of the surrounding run, from whatever thread it is called: for thread pools of your own.

    `pool.map(in_run(predict), questions)` spends from the run's budget; without it each call would open a run of its own.
    """
    frame = current_frame()

    def call(*args: Any, **kwargs: Any) -> T:
        if frame is None:
            return fn(*args, **kwargs)
        with entered(frame):
            return fn(*args, **kwargs)

    return call


def within(scope: str, around: str) -> bool:
    """True if one scope is the other, or lies in it."""
    return not around or f"{scope}/".startswith(f"{around}/")


class entered:  # noqa: N801 - used like contextlib's functions; a class, since it stands on every call's path
    """Run a block inside a frame: `with entered(frame):`."""

    __slots__ = ("_frame", "_token")

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    def __enter__(self) -> Frame:
        self._token = _frame.set(self._frame)
        return self._frame

    def __exit__(self, *_: object) -> None:
        _frame.reset(self._token)
