"""Where in a run the running code stands: its scope, its meter, the advice it is given.

Carried by a context variable through tasks and worker threads, so that a module called inside a user's module joins
the surrounding run: one meter, one journal.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from redraft.budget import UNLIMITED, Meter
from redraft.config import _local, say_once, settings
from redraft.protocols import LM
from redraft.record import digest, inputs_digest

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
    schema: Mapping[str, Any] | None = None
    """The same as a JSON schema, for models that take no grammar."""
    hints: Mapping[str, str] = field(default_factory=dict)
    """A hint of its own for each module inside the attempt's, by attribute path; the attempt's own module is ""."""
    lm: LM | None = None
    """Overrides the modules' own model."""
    effort: str | None = None
    """How much a reasoning model shall think; overrides the modules' own."""

    def within(self, path: str) -> Advice:
        """What the module at this path is told: the hint with its name, and those for the modules inside it."""
        inside = {p[len(path) :].lstrip("."): hint for p, hint in self.hints.items() if within_path(p, path)}
        return replace(self, hint="\n".join(filter(None, (self.hint, inside.pop("", "")))), hints=inside)


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
    fresh: bool = False
    """What was tried before was not good enough: no cache may answer."""

    def inner(self, module: Any, inputs: Mapping[str, Any]) -> Frame:
        """The frame in which a module works on these inputs."""
        name = f"{self._path(module)}:{inputs_digest(inputs)}"
        self.counts[name] = nth = self.counts.get(name, 0) + 1
        scope = f"{self.scope}/{name}#{nth}"
        advice = self.advice.within(self._path(module)) if self.advice.hints else self.advice
        return Frame(run=self.run, scope=scope, meter=self.meter, advice=advice, owner=module, fresh=self.fresh)

    def attempt(self, run: Run, scope: str, meter: Meter, advice: Advice, *, again: bool) -> Frame:
        """The frame of an attempt made here; `again`: another one was made before."""
        return Frame(run, scope, meter, advice, owner=self.owner, paths=self.named(), fresh=self.fresh or again)

    def step(self, key: str) -> Frame:
        """The frame of a step with this key. What is bought in it lies apart: a replay of the step asks for none of it."""
        return replace(self, scope=f"{self.scope}/{key.removeprefix(f'{self.scope}|')}", counts={})

    def nested_run(self) -> str:
        """The scope of a run that is opened here."""
        self.counts["run"] = nth = self.counts.get("run", 0) + 1
        return f"{self.scope}/run#{nth}"

    def unadvised(self) -> Frame:
        """The same place for those who judge: what the author is told must not colour a critic or a judge."""
        if self.advice is NO_ADVICE:
            return self
        return Frame(self.run, self.scope, self.meter, NO_ADVICE, self.owner, self.counts, self.paths, self.fresh)

    def again(self) -> Frame:
        """The same place for a reply that is asked for once more."""
        return Frame(self.run, self.scope, self.meter, self.advice, self.owner, self.counts, self.paths, fresh=True)

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


def wants_new() -> bool:
    """True where a reply has to be a new one: an LM with a cache of its own goes past it."""
    frame = _frame.get() or _payer.get()
    return frame is not None and frame.fresh


def payer() -> Frame | None:
    """For an LM: the frame whose call it works on; None where no run asks."""
    return _payer.get()


def warn(text: str) -> None:
    """Put a warning on record in the surrounding run (event `lint`), and say it once a process on stderr."""
    frame = current_frame()
    if frame is not None and settings().lint:
        frame.run.journal.remark("lint", scope=frame.scope, text=text)
        say_once(f"redraft: {text}")


async def recorded(
    frame: Frame,
    name: str,
    call: Callable[[], Awaitable[T]],
    *,
    ready: Callable[[], None],
    keep: Callable[[T], bool] = lambda _: True,
) -> T:
    """What `call` returns, journalled as a step: a resumed run gets the recorded value, and calls nothing.

    `ready` raises if it may not begin; `keep` says of a value whether it can be recorded.
    """
    journal = frame.run.journal
    key = journal.key(frame.scope, f"step:{name}")
    inside = frame.step(key)
    if (old := journal.recorded("step", key)) is not None:
        journal.settled(inside.scope)
        value: T = old.data["value"]
        return value
    ready()
    with entered(inside):
        value = await call()
    if keep(value):
        await journal.commit("step", scope=frame.scope, key=key, name=name, value=value)
    return value


def in_run(fn: Callable[..., T]) -> Callable[..., T]:
    """The function as part of the surrounding run, from whatever thread it is called: for thread pools of your own.

    `pool.map(in_run(predict), questions)` spends from the run's budget; without it each call would open a run of its own.
    """
    if current_frame() is None:
        return fn
    here = copy_context()  # whole: other frameworks keep their settings in it, too

    def call(*args: Any, **kwargs: Any) -> T:
        return here.copy().run(fn, *args, **kwargs)

    return call


def within(scope: str, around: str) -> bool:
    """True if one scope is the other, or lies in it."""
    return not around or f"{scope}/".startswith(f"{around}/")


def within_path(path: str, around: str) -> bool:
    """True if one attribute path is the other, or lies in it: `steps[0].critic` in `steps[0]` and in `steps`."""
    return path == around or path.startswith((f"{around}.", f"{around}["))


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


class paying:  # noqa: N801 - see `entered`
    """Around what an LM does for a purchase: no code in here is part of the run, and a run that it opens keeps nothing and
    tries once, since the purchase does all that.

    Code below (an LM that asks another one, a metered client) would count the same call twice, and wait for room that its
    own purchase holds.
    """

    __slots__ = ("_tokens",)

    def __enter__(self) -> None:
        local = {**(_local.get() or {}), **_PAID}
        self._tokens = (_payer.set(_frame.get() or _payer.get()), _frame.set(None), _local.set(local))

    def __exit__(self, *_: object) -> None:
        asks, frame, local = self._tokens
        _local.reset(local)
        _frame.reset(frame)
        _payer.reset(asks)


_payer: ContextVar[Frame | None] = ContextVar("redraft_payer", default=None)
_PAID = {"budget": UNLIMITED, "store": None, "cache": None, "tries": 1, "listeners": ()}
