"""The architecture on one page: five contracts.

A strategy proposes attempts through a Run; the Run calls an LM, has each attempt judged by a Scorer, and writes what
happened to a Store. RLM's code runs in an Interpreter. Implement any of them as a plain class: nothing to inherit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from redraft.types import Capabilities, Completion, Event, Inputs, Prediction, Request, Score, StopReason, Usage

if TYPE_CHECKING:
    from redraft.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """A piece of a reply while it is being written."""

    text: str = ""
    reasoning: str = ""
    choice: int = 0
    tokens: tuple[Mapping[str, Any], ...] = ()
    """As in `Choice.logprobs`, where these were asked for: the tokens that are new."""


OnDelta = Callable[[Delta], None] | None
"""Who hears a reply while it is written."""


@runtime_checkable
class LM(Protocol):
    """One model at one endpoint. Only Run calls `generate`: it owns budget, retries, deadline and journal.

    An LM never retries, caches or counts by itself, and holds no event loop.
    """

    name: str
    """`provider/model`: part of every call's key, so it never changes for the same model."""
    capabilities: Capabilities
    max_output: int | None
    """The most tokens the model writes in one reply, if known."""
    parallel: int
    """How many calls may be in flight at once."""

    async def generate(self, request: Request, on_delta: OnDelta = None) -> Completion:
        """One call. Streams to `on_delta` where it can. Raises `LMError` and nothing else; cancelling it must give
        up the connection and every slot at once.
        """

    def count(self, request: Request) -> int | None:
        """An upper bound of the prompt's tokens from a real tokenizer, or None (then bytes are counted)."""

    def cost(self, usage: Usage) -> float | None:
        """Dollars for these tokens, monotone in each; None if the price is unknown (never 0 for unknown)."""


@runtime_checkable
class Scorer(Protocol):
    """Judges a prediction: checks, a reward function, an LM judge. Higher is better; a Score is finite or an error."""

    async def score(self, inputs: Inputs, prediction: Prediction) -> Score:
        """Judge. May raise; Run turns whatever is raised into a `ScoreError` that names the scorer."""


HostFunction = Callable[..., Awaitable[Any]]
"""What sandboxed code calls by name, run on the host: takes and returns what JSON can hold. What it raises is raised in
the code; `CellEnd` ends the cell, which is no error."""


class CellEnd(Exception):
    """Raised by a host function: the cell that called it ends here, as if its code had come to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """What came of one cell."""

    output: str = ""
    """What it printed, in order, the value of a last expression, and the traceback if it raised."""
    error: str = ""
    """Why it did not come to its end, on one line: `ValueError: ...`, or the limit that it ran into; empty if it did."""
    lost: bool = False
    """The sandbox ended with this cell, and every variable with it: `start` it anew before the next one."""


@runtime_checkable
class Interpreter(Protocol):
    """A sandboxed REPL whose variables outlive a cell (RLM).

    Limits of a cell (seconds, not counting those that it waits for the host; memory) are the implementation's, which ends
    a cell at them and answers. Only what is wrong with the sandbox itself is raised, as a `SandboxError`.
    """

    dialect: str
    """What code in it has to know beyond Python, in words for a model; empty for all of CPython."""

    async def start(self, variables: Inputs, functions: Mapping[str, HostFunction]) -> None:
        """Begin with these variables and nothing else; from anew if it was started before.

        A value is a str, bytes, what JSON can hold, or the `Path` of a file, which the code sees as its text (as bytes, if
        it is not UTF-8). Functions called from threads and coroutines run at the same time.
        """

    async def execute(self, code: str) -> CellResult:
        """Run one cell. The code's own errors, and its limits, are part of the result."""

    async def close(self) -> None:
        """End the sandbox and everything it started."""


@runtime_checkable
class Store(Protocol):
    """Keeps the journal: an ordered, append-only list of events a run."""

    def append(self, run_id: str, events: Sequence[Event]) -> Awaitable[None]:
        """Take the events in this order, at once; the awaitable ends when they outlive the process."""

    def read(self, run_id: str) -> list[Event]:
        """All events of a run in order; empty for an unknown run."""

    def close(self) -> None:
        """Write what is pending and let go of files."""


@runtime_checkable
class Strategy(Protocol):
    """A method of making an answer better: reads like its paper's algorithm, on one screen."""

    async def steps(self, run: Run, inputs: Inputs) -> StopReason:
        """Propose attempts with `run.attempt`, accept or reject them, and say why it stopped.

        Budget, journal, retries, events, cancellation and best-so-far are the Run's; an exception that leaves here
        ends the run, and what was tried is kept.
        """


Reward = Callable[[dict[str, Any], Any], Any]
"""DSPy's form `(args, pred) -> float`; may be async and may return `(float, "feedback")`, a Score or an object with
`score` and `feedback`."""
