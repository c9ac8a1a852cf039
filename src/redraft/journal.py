"""The journal of a run: what is keyed, what is replayed, what an unfinished call is charged.

Key of a call = (scope, hash of content, nth occurrence of that hash in that scope): never arrival order, so that
concurrent code finds its own replies again. Every event with a key is written once; a replay finds it and adds
nothing. Nothing here calls a model or decides anything.
"""

from __future__ import annotations

import asyncio
import os
import time
import weakref
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from redraft.budget import Meter
from redraft.errors import DivergedError, StoreError
from redraft.protocols import Store
from redraft.record import limits
from redraft.sync import seen
from redraft.types import Event, Usage

T = TypeVar("T")

CALL = "call"
"""A committed reply."""
CALL_ERROR = "call_error"
"""A permanent refusal: replays too."""
CALL_FAILED = "call_failed"
"""A transient failure, or a call cancelled after sending: charged, never replayed."""
SOFT = "soft"
"""Bought by code that calls models by itself, and metered after the fact."""
INTENT = "intent"
"""Written before a try is sent, so that a killed process's call is charged."""
REPLAYED = frozenset(
    {
        CALL,
        CALL_ERROR,
        "run",
        "propose",
        "attempt",
        "judge_error",
        "critique",
        "accept",
        "reject",
        "parse_error",
        "step",
        "stop",
        "refused",
        "constraint_held",
        "unclean",
        "fix_refused",
        "advisor_error",
        "advice_unaddressed",
        "judge_abstained",
        "lint",
        "observation_dropped",
        "rewind",
        "decoded",
        "token_mismatch",
    }
)
PASSED_OVER = ("cancelled", "not looked at")
"""How the reasons begin why attempts were rejected that nobody has compared."""
_ENDS = frozenset({CALL, CALL_ERROR, CALL_FAILED})


EVENT_VERSION = 1
"""Of the events' kinds and data."""


class MemoryStore:
    """Keeps events for as long as the process lives."""

    def __init__(self) -> None:
        self._events: dict[str, list[Event]] = defaultdict(list)

    def append(self, run_id: str, events: Sequence[Event]) -> Awaitable[None]:
        """See `Store`."""
        self._events[run_id].extend(events)
        return DONE

    def read(self, run_id: str) -> list[Event]:
        """See `Store`."""
        return list(self._events.get(run_id, ()))

    def close(self) -> None:
        """Forget everything."""
        self._events.clear()


class _Done:
    """An awaitable that is over already, without a task switch."""

    def __await__(self) -> Any:
        return iter(())


DONE: Awaitable[None] = _Done()


class Journal:
    """One run's ordered, append-only events, and the record of an earlier process that is replayed by key.

    Lives on the run's loop: no locks. A listener that fails is dropped and cannot hurt the run.
    """

    def __init__(self, store: Store | None, run_id: str, listeners: Sequence[Callable[[Event], None]] = ()) -> None:
        self.store = store
        self.run_id = run_id
        self._claim: Claim | None = None
        self.events: list[Event] = store.read(run_id) if store else []
        self._listeners = list(listeners)
        self._counts: dict[tuple[str, str], int] = {}
        self._recorded = {(e.kind, e.key): e for e in self.events if e.key and e.kind in REPLAYED}
        self._unused: dict[str, set[str]] = defaultdict(set)
        for kind, key in self._recorded:
            if kind == CALL:
                self._unused[self._recorded[kind, key].scope].add(key)
        self.spec: Mapping[str, Any] | None = None
        """What the run is made of, as JSON; recorded when it begins."""
        self.begun: set[str] = set()
        """Scopes of the attempts that were begun in this process."""
        self._spent: dict[str, Usage] | None = None
        self._unfinished: dict[str, Event] | None = None if self.events else {}
        self.resumed = bool(self.events)
        self.streams = any(getattr(listener, "deltas", False) for listener in listeners)
        """A listener with a true attribute `deltas` is also shown replies while they are written (not journalled)."""

    def begin(self, seed: int | None, budget: Hashable) -> int:
        """Record the run's start; returns its seed: the given or a drawn one, and on a resume the one on record.

        Raises `StoreError` if the run is open already, in this process or another one.
        """
        self._claimed()
        if self.resumed:
            self.note("resumed")
        old = self.recorded("run", "run")
        drawn = int.from_bytes(os.urandom(4), "big") >> 1 if seed is None else seed
        seed = int(old.data["seed"]) if old is not None else drawn
        if changed := self.changes(old):
            self.note("changed", what=changed)
        spec: dict[str, Any] = {} if self.spec is None else {"spec": dict(self.spec)}
        self.note("run", key="run", seed=seed, version=EVENT_VERSION, budget=limits(budget), **spec)
        return seed

    def changes(self, begun: Event | None) -> list[str]:
        """Names of what the run is made of now that differs from the record of its beginning."""
        before, now = (begun.data.get("spec") if begun else None) or {}, self.spec or {}
        return sorted(name for name in now if name in before and before[name] != now[name])

    def _claimed(self) -> None:
        if self.store is None or self._claim is not None:
            return
        self._claim = Claim(self.store, self.run_id)
        if self.resumed and len(self.store.read(self.run_id)) != len(self.events):
            self.close()
            raise StoreError(
                f"run {self.run_id!r} was gone on with meanwhile, by somebody else: look at it, and begin again"
            )

    def close(self) -> None:
        """The run has ended: another one may go on with it. From any thread."""
        if self._claim is not None:
            self._claim.release()

    def key(self, scope: str, what: str) -> str:
        """The key of the next occurrence of `what` in a scope."""
        self._counts[scope, what] = nth = self._counts.get((scope, what), 0) + 1
        return f"{scope}|{what}|{nth}"

    def recorded(self, kind: str, key: str) -> Event | None:
        """What an earlier process wrote under this key."""
        event = self._recorded.get((kind, key))
        if event is not None and kind == CALL:
            self._unused[event.scope].discard(key)
        return event

    def forgive(self) -> None:
        """Replay no refusals, nor the replies of a call that never came in the form that was asked for: they are asked anew."""
        calls, faults = (Counter(e.scope for kind, e in self._of(kinds)) for kinds in ({CALL}, {"parse_error"}))
        hopeless = {scope for scope, times in faults.items() if times >= calls[scope]}
        for kind, event in self._of({CALL, CALL_ERROR}):
            if kind == CALL_ERROR or event.scope in hopeless:
                del self._recorded[kind, event.key]
                self._unused[event.scope].discard(event.key)

    def _of(self, kinds: set[str]) -> list[tuple[str, Event]]:
        return [(kind, event) for (kind, _), event in self._recorded.items() if kind in kinds]

    def unused(self) -> list[str]:
        """Scopes of recorded replies that no code has asked for yet, but those of attempts that were passed over or never
        ended (cancelled, cut off by a kill) and were not begun again: another one was good enough.
        """
        proposed = (key for kind, key in self._recorded if kind == "propose" and key not in self.begun)
        left_out = [scope for scope in proposed if self._was_passed_over(scope)]
        left = (scope for scope, keys in self._unused.items() if keys)
        return sorted(scope for scope in left if not any(f"{scope}/".startswith(f"{o}/") for o in left_out))

    def _was_passed_over(self, scope: str) -> bool:
        rejected = self.recorded("reject", scope)
        late = rejected is not None and str(rejected.data["reason"]).startswith(PASSED_OVER)
        return late or self.recorded("attempt", scope) is None

    def diverged(self) -> DivergedError | None:
        """A run that ends well has asked for every reply on record, unless its code or inputs changed."""
        unused = self.unused()
        if not unused:
            return None
        self.note("diverged", unused=unused)
        return DivergedError(f"the resumed run never asked for the reply recorded in {unused[0]}: its code changed")

    def settled(self, scope: str) -> None:
        """An attempt was judged by its recorded score: the replies that its judges asked for will not be asked for."""
        for inner in [s for s, keys in self._unused.items() if keys and f"{s}/".startswith(f"{scope}/")]:
            self._unused[inner].clear()

    def note(self, kind: str, *, scope: str = "", key: str = "", **data: Any) -> Event:
        """Append an event; it is written with the next commit. A recorded one is shown again, not doubled."""
        event, durable = self._append(kind, scope, key, data)
        if isinstance(durable, asyncio.Future):
            durable.add_done_callback(seen)  # the next commit meets the same error and raises it
        if self._listeners:
            self.tell(event)
        return event

    def remark(self, kind: str, *, scope: str, **data: Any) -> Event:
        """Record a remark on what happens; a replay that makes the same one again adds nothing."""
        return self.note(kind, scope=scope, key=self.key(scope, kind), **data)

    async def commit(self, kind: str, *, scope: str = "", key: str = "", **data: Any) -> Event:
        """Append an event and wait until it outlives the process."""
        event, durable = self._append(kind, scope, key, data)
        await durable
        if self._listeners:
            self.tell(event)
        return event

    def _append(self, kind: str, scope: str, key: str, data: Mapping[str, Any]) -> tuple[Event, Awaitable[None]]:
        if key and (old := self._recorded.get((kind, key))) is not None and dict(old.data) == data:
            return old, DONE
        event = Event(
            seq=self.events[-1].seq + 1 if self.events else 0,
            kind=kind,
            time=time.time(),
            scope=scope,
            key=key,
            data=data,
        )
        self.events.append(event)
        durable = self.store.append(self.run_id, (event,)) if self.store else DONE
        return event, durable

    def guarded(self, listener: Callable[[T], None]) -> Callable[[T], None]:
        """A listener that is dropped when it fails."""
        failed = False

        def tell(what: T) -> None:
            nonlocal failed
            if failed:
                return
            try:
                listener(what)
            except Exception as error:  # noqa: BLE001 - user code: it cannot hurt the run
                failed = True
                self._dropped(error)

        return tell

    def _dropped(self, error: BaseException) -> None:
        """Say that a listener failed."""
        self.note("listener_failed", error=f"{type(error).__name__}: {error}")
        import logging

        logging.getLogger("redraft").warning("a listener failed and hears no more: %s", error, exc_info=error)

    def tell(self, event: Event) -> None:
        """Show an event to the listeners."""
        for listener in tuple(self._listeners):
            try:
                listener(event)
            except (KeyboardInterrupt, asyncio.CancelledError):
                raise
            except BaseException as error:  # noqa: BLE001 - the same
                if listener in self._listeners:
                    self._listeners.remove(listener)
                    self._dropped(error)

    def spent(self, scope: str = "") -> Usage:
        """What earlier processes spent in a scope: every try that ended, and the reservation of every one that did not."""
        if self._spent is None:
            self._spent = self._by_scope()
        return self._spent.get(scope, Usage())

    def metered(self, scope: str, around: Meter) -> Meter:
        """A meter for a scope, with what earlier processes spent in it."""
        meter = Meter(parent=around)
        if self.resumed:
            meter.preload(self.spent(scope))
        return meter

    def unfinished(self, key: str) -> Event | None:
        """The intent of a call that an earlier process has sent, and of which no end is on record."""
        if self._unfinished is None:
            ended = {e.data["intent"] for e in self.events if e.kind in _ENDS}
            self._unfinished = {e.key: e for e in self.events if e.kind == INTENT and e.seq not in ended}
        return self._unfinished.get(key)

    def gone_on_with(self, intent: Event) -> None:
        """It is this process's from here on."""
        if self._unfinished is not None:
            self._unfinished.pop(intent.key, None)

    def calls(self, scope: str) -> Iterator[Event]:
        """The replies that were bought in a scope, the last one first: which model gave them, and how they ended."""
        return (e for e in reversed(self.events) if e.kind == CALL and f"{e.scope}/".startswith(f"{scope}/"))

    def _by_scope(self) -> dict[str, Usage]:
        ended = {e.data["intent"] for e in self.events if e.kind in _ENDS}
        total: dict[str, Usage] = {}
        for event in self.events:
            if event.kind in _ENDS or event.kind == SOFT:
                usage = Usage(**event.data["usage"])
            elif event.kind == INTENT and event.seq not in ended:
                usage = Usage(**event.data["reserved"])
            else:
                continue
            parts = event.scope.split("/")
            for n in range(1, len(parts) + 1):
                around = "/".join(parts[:n])
                total[around] = total.get(around, Usage()) + usage
        return total

    def seconds(self) -> float:
        """How long earlier processes worked on this run; the time between them does not count."""
        total, before = 0.0, None
        for event in self.events:
            if before is not None and event.kind != "resumed":
                total += max(0.0, event.time - before)
            before = event.time
        return total


class Claim:
    """Held by who writes a run or a batch: two would write over each other. Given back when it is forgotten, too.

    Raises `StoreError` if another one is held in this process, or in another one where the store can tell (a method
    `claim`, which returns what gives it back).
    """

    def __init__(self, store: Store, run_id: str) -> None:
        self._store, self._key = store, (id(store), run_id)
        if _open.setdefault(self._key, self) is not self:
            raise StoreError(f"run {run_id!r} is open in this process already; wait for its end, or take another id")
        try:
            claim: Callable[[str], Callable[[], None]] | None = getattr(store, "claim", None)
            self._let_go = None if claim is None else weakref.finalize(self, claim(run_id))
        except StoreError:
            del _open[self._key]
            raise

    def release(self) -> None:
        """Give it back; doing so again does nothing."""
        if _open.get(self._key) is self:
            _open.pop(self._key, None)
        if self._let_go is not None:
            self._let_go()


_open: weakref.WeakValueDictionary[tuple[int, str], Claim] = weakref.WeakValueDictionary()


def new_run_id() -> str:
    """Sortable by time, unique across processes."""
    return f"{time.time_ns() // 1_000_000:011x}{os.urandom(5).hex()}"
