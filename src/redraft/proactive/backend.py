"""What proactive decoding needs of a model, and how its requests are put.

A backend is an LM whose replies say how likely each token was and what else was (`logprobs`), and which continues a text
that is given to it (`prefill`). There is no session to keep: the tokens that are kept are the session, sent with each request,
so that a resumed run finds its replies in the journal. What a backend saves by having them already is its own affair: a server's
prefix cache, the cache of keys and values of a model in this process.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from redraft.errors import UnsupportedError
from redraft.frame import current_frame, recorded
from redraft.lm.cut import CUT, Watch
from redraft.proactive.decode import Ask, Finish, Written
from redraft.proactive.tokens import Token, reported, text_of
from redraft.protocols import LM
from redraft.run import Run
from redraft.types import Choice, Completion, Request

TOP = 8
"""Alternatives a token that are asked for."""

KEPT, FIRSTS, TEMPERATURES = "kept_ids", "first_ids", "temperatures"
"""Keys of `Request.extra` for backends that take ids: the tokens that are kept; the token that each choice begins with; each
choice's temperature.
"""


@runtime_checkable
class Backend(LM, Protocol):
    """An LM that takes tokens as they are: what is kept goes back as ids in `Request.extra`, never tokenised anew, and the `n`
    choices of a request are branches of it, written as one batch. Every other LM gets the text, and a request a branch.
    """

    takes_ids: bool

    def watched(self, watch: Watch) -> LM:
        """The same model; its reply ends at the very token at which `watch` says so. Of n choices, none is watched."""


def takes_ids(lm: LM) -> bool:
    """True for a backend that takes tokens as they are."""
    return bool(getattr(lm, "takes_ids", False))


def requests(lm: LM, base: Request, ask: Ask) -> list[Request]:
    """What to send for an ask: a request for each branch, or one for all where the backend takes ids."""
    if not takes_ids(lm):
        return [_by_text(lm, base, ask, i) for i in range(len(ask.branches))]
    kept = {KEPT: [token.id for token in ask.kept]}
    common = _continued(base, ask.kept, ask.cap)
    [alone, *others] = ask.branches
    if not others and alone.first is None:
        return [common.but(extra={**base.extra, **kept}, temperature=_warmth(base, alone.temperature))]
    temperatures = [_warmth(base, branch.temperature) for branch in ask.branches]
    firsts = [branch.first.id if branch.first else None for branch in ask.branches]
    extra = {**base.extra, **kept, FIRSTS: firsts, TEMPERATURES: temperatures}
    return [common.but(extra=extra, n=len(ask.branches))]


def _by_text(lm: LM, base: Request, ask: Ask, i: int) -> Request:
    branch = ask.branches[i]
    kept = [*ask.kept, branch.first] if branch.first else ask.kept
    return _told(lm, _continued(base, kept, ask.cap).but(temperature=_warmth(base, branch.temperature)))


def _told(lm: LM, request: Request) -> Request:
    if request.prefill and lm.name.startswith("vllm/"):  # it begins a new turn otherwise
        return request.but(extra={**request.extra, "continue_final_message": True, "add_generation_prompt": False})
    return request


def _continued(base: Request, kept: Sequence[Token], cap: int) -> Request:
    return base.but(prefill=text_of(kept) or None, max_tokens=cap, logprobs=TOP, schema=None, grammar=None)


def _warmth(base: Request, own: float | None) -> float | None:
    return base.temperature if own is None else own


def written(lm: LM, choice: Choice) -> Written:
    """One choice as a continuation. Raises `UnsupportedError` where the tokens are not reported."""
    tokens = reported(choice)
    if choice.text and not tokens:
        raise UnsupportedError(NO_LOGPROBS.format(name=lm.name), parameter="logprobs")
    finish: Finish = "length" if choice.finish_reason == "length" else "cut" if choice.finish_reason == CUT else "stop"
    return Written(tokens=tuple(tokens), finish=finish)


def agrees(choice: Choice) -> bool:
    """True if the tokens make up the text: then they can be cut at their bytes."""
    return text_of(reported(choice)) == choice.text


def as_backend(lm: LM) -> LM:
    """The model; one of a server that is known to continue a text, as a model that does (which it still has to show)."""
    if lm.capabilities.prefill or not lm.name.startswith(_CONTINUE):
        return lm
    able: Any = copy(lm)
    able.capabilities = replace(lm.capabilities, prefill=True)
    backend: LM = able
    return backend


_CONTINUE = ("llama-server/", "vllm/")
"""Servers that continue a trailing assistant message, vLLM where it is told to."""


def check_declared(lm: LM) -> None:
    """Raises `UnsupportedError` for a model that is not known to report its tokens or to continue a text."""
    for capability, message in (("logprobs", NO_LOGPROBS), ("prefill", NO_PREFILL)):
        if not getattr(lm.capabilities, capability):
            raise UnsupportedError(message.format(name=lm.name), parameter=capability)


_proven: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


async def check_proven(run: Run, lm: LM) -> None:
    """Raises `UnsupportedError` unless the model does what it is declared to do: it is asked to go on counting, once a process,
    for a few tokens. Those that run in this process are known and not asked.
    """
    check_declared(lm)
    if takes_ids(lm) or lm.name.startswith("local/"):
        return

    async def probe() -> str:
        if lm not in _proven:
            _proven[lm] = _fault(lm, await run.complete(_told(lm, _COUNT), lm=lm, role="probe"))
        return _proven[lm]

    frame = current_frame()
    assert frame is not None
    if fault := await recorded(frame, "proactive.probe", probe, ready=run.check_open):
        raise UnsupportedError(fault, parameter="prefill")


def _fault(lm: LM, reply: Completion) -> str:
    tokens = reported(reply.choices[0])
    if not any(len(token.top) > 1 for token in tokens):
        return NO_LOGPROBS.format(name=lm.name)
    if not reply.text.strip(" ,").casefold().startswith("four"):
        return (
            f"{NO_PREFILL.format(name=lm.name)} (asked to go on after 'One, two, three,' it wrote {reply.text!r:.60})"
        )
    return ""


_COUNT = Request(
    messages=({"role": "user", "content": "Count from one to ten, in words, separated by commas."},),
    prefill="One, two, three,",
    temperature=0.0,
    max_tokens=4,
    logprobs=2,
)

NO_LOGPROBS = (
    "{name} does not report the likely tokens of a reply (logprobs with alternatives), without which nothing can be taken back: "
    "use another server (llama-server, vLLM), the embedded model, or the strategy refine"
)
NO_PREFILL = (
    "{name} does not continue a text that is given to it (prefill), without which a text cannot be taken back and written on: "
    "declare the capability `prefill` if the server has it, use the embedded model, or the strategy refine"
)
