"""Module: named inputs in, a Prediction out. Sync and async callers get the same coroutine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

from redraft.budget import Budget
from redraft.config import say_once
from redraft.errors import InputError
from redraft.frame import current_frame, entered
from redraft.protocols import Store
from redraft.registry import load
from redraft.run import Run
from redraft.scoring import as_prediction
from redraft.sync import call_user, in_foreign_thread, on_loop, run_sync
from redraft.types import Prediction

if TYPE_CHECKING:
    from redraft.batch import BatchItem


class Module:
    """Base class of modules. Override `forward` (a `def`, run in a worker thread) or `aforward` (the fast path).

    A thread pool of your own knows nothing of the run: give it `in_run(predict)` instead of `predict`.

    Sub-modules are plain attributes, also in lists, tuples and dicts. A module called inside another one, or inside a
    strategy, joins the surrounding run: one budget, one journal. Calling a module never changes it.
    """

    alone = False
    """No modules are inside: they need not be looked for on each call."""

    def __call__(self, *unnamed: Any, **inputs: Any) -> Any:
        """Run on the inputs and wait. On an event loop, `await module.acall(...)` instead."""
        if unnamed:
            raise InputError(
                f"{type(self).__name__} takes its inputs by name, e.g. {_example(self)}; got {unnamed[0]!r:.40}"
            )
        frame = current_frame()
        if frame is not None:
            frame.run.check_open()
        elif in_foreign_thread():
            say_once(FOREIGN)
        return run_sync(lambda: self.acall(**inputs), home=frame.run.loop if frame else None)

    async def acall(self, **inputs: Any) -> Any:
        """Run on the inputs. Outside any run this opens one, with the budget and store of the settings."""
        frame = current_frame()
        if frame is None:
            async with Run():
                return await self._within(inputs)
        if frame.run.loop is asyncio.get_running_loop():
            return await self._within(inputs)
        return await on_loop(lambda: self._within(inputs), frame.run.loop)

    def batch(
        self,
        items: Iterable[Any] | AsyncIterable[Any],
        *,
        concurrency: int = 32,
        budget: Budget | None = None,
        item_budget: Budget | None = None,
        store: Store | None = None,
        batch_id: str | None = None,
        ordered: bool = True,
        on_result: Callable[[BatchItem], None] | None = None,
    ) -> list[BatchItem]:
        """Run on many items, `concurrency` at once, and wait for all: `batch([{"question": "..."}, ...])`.

        Items are mappings of inputs; a field `id` names one. Each is a run of its own; one that fails holds its error, and
        the others go on. `budget` is for all together, `item_budget` for each. With a `store`, calling it again with the
        same `batch_id` goes on where it was and buys no committed reply again. `on_result` hears of each as it ends.
        `ordered=False` returns them in that order.
        """
        work: list[BatchItem] = load("redraft.batch:batch")(
            self,
            items,
            concurrency=concurrency,
            budget=budget,
            item_budget=item_budget,
            store=store,
            batch_id=batch_id,
            ordered=ordered,
            on_result=on_result,
        )
        return work

    def abatch_as_completed(
        self, items: Iterable[Any] | AsyncIterable[Any], *, ordered: bool = False, **options: Any
    ) -> AsyncIterator[BatchItem]:
        """`batch`, one by one as they end, or `ordered`: `async for item in module.abatch_as_completed(items): ...`.

        Items are read as they are needed, and nothing is kept of those that were handed out: the input may be larger than
        memory. `options` as for `batch`. Closing the iterator cancels what is under way.
        """
        work: AsyncIterator[BatchItem] = load("redraft.batch:batch_as_completed")(
            self, items, ordered=ordered, **options
        )
        return work

    async def _within(self, inputs: dict[str, Any]) -> Prediction:
        frame = current_frame()
        assert frame is not None
        with entered(frame.inner(self, inputs)):
            return as_prediction(await self._forward(inputs))

    async def _forward(self, inputs: dict[str, Any]) -> Any:
        kind = type(self)
        if kind.aforward is not Module.aforward:
            return await call_user(self.aforward, **inputs)
        if kind.forward is not Module.forward:
            return await call_user(self.forward, **inputs)
        raise TypeError(
            f"{kind.__name__} defines neither forward nor aforward; define one: it turns inputs into outputs"
        )

    def forward(self, *_: Any, **inputs: Any) -> Any:
        """What the module does, as sync code; it may call other modules as functions. Inputs come by name."""
        return self(**inputs)

    async def aforward(self, *_: Any, **inputs: Any) -> Any:
        """What the module does, as async code; it awaits other modules' `acall`. Inputs come by name."""
        return await self.acall(**inputs)

    def identity(self) -> str:
        """What tells this module from others of its class, the same in every process: its class, its plain attributes
        (texts, numbers, and collections of them) and its sub-modules.
        """
        inside = [(path, m) for path, m in self.named_modules() if isinstance(m, Module)]
        return "|".join([self._kind(), *(f"{path}={m._kind()}" for path, m in inside)])

    def _kind(self) -> str:
        """`identity` without the sub-modules, which `named_modules` lists by themselves."""
        plain = (f"{name}={value!r}" for name, value in vars(self).items() if _is_plain(value))
        return f"{type(self).__name__}({', '.join(plain)})"

    def dump_state(self) -> dict[str, Any]:
        """What was learned and set, as JSON values, by attribute path: instructions, descriptions, demos, settings, models'
        names. No code, and no keys.
        """
        state: dict[str, Any] = load("redraft.modules.state:dump")(self)
        return state

    def load_state(self, state: Mapping[str, Any]) -> Self:
        """Take over a state of `dump_state`. Raises `ConfigError` that names every difference; nothing has changed then."""
        load("redraft.modules.state:load_into")(self, state)
        return self

    def save(self, path: str | PathLike[str]) -> None:
        """Write the state to a JSON file; whatever happens, the file is whole, the old one or the new one."""
        load("redraft.modules.state:save")(self, path)

    def load(self, path: str | PathLike[str]) -> Self:
        """Take over what `save` wrote for a program of this class, or DSPy's `save` to JSON: `MyProgram().load("x.json")`."""
        state = load("redraft.modules.state:read")(path)
        load("redraft.modules.state:load_into")(self, state, source=str(path))
        return self

    def named_modules(self) -> Iterator[tuple[str, Any]]:
        """All modules inside this one with their attribute paths, e.g. `("steps[0].critic", <Predict>)`."""
        seen: set[int] = {id(self)}
        for name, value in vars(self).items():
            yield from _walk(name, value, seen)


def _example(module: Any) -> str:
    signature = getattr(module, "signature", None) or getattr(getattr(module, "module", None), "signature", None)
    names = list(signature.inputs) if signature is not None else ["question"]
    return f"module({', '.join(f'{name}=...' for name in names)})"


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    return isinstance(value, str | int | float | None)


def _walk(path: str, value: Any, seen: set[int]) -> Iterator[tuple[str, Any]]:
    if value is None or isinstance(value, str | int | float):
        return
    if isinstance(value, list | tuple | dict):
        if id(value) in seen:
            return
        seen.add(id(value))
    if isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from _walk(f"{path}[{i}]", item, seen)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _walk(f"{path}[{key!r}]", item, seen)
    elif (isinstance(value, Module) or hasattr(value, "acall")) and id(value) not in seen:
        seen.add(id(value))
        yield path, value
        if getattr(value, "alone", False):
            return
        for name, item in getattr(value, "__dict__", {}).items():
            yield from _walk(f"{path}.{name}", item, seen)


FOREIGN = (
    "redraft: a module was called in a thread that belongs to no run, while a run's own code is at work. If it is part of "
    "that run, pass redraft.in_run(module) to the thread pool; else the call is outside the run's budget and receipt."
)
