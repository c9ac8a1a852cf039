"""Functions that call a model through the official SDKs' clients: `metered(client)` makes their calls the run's.

client = metered(AsyncOpenAI())

async def answer(question: str) -> str:
    reply = await client.chat.completions.create(model="gpt-4.1-mini", messages=[...])
    return reply.choices[0].message.content

result = Refine(answer, N=3, checks=[...], budget=Budget(tokens=20_000))(question="...")
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from redraft.config import resolve_lm
from redraft.errors import InputError
from redraft.foreign import charge
from redraft.frame import current_frame
from redraft.integrations.transport import AsyncWire, Served, Through, Told, Wire
from redraft.integrations.usage import priced
from redraft.integrations.wires import usage_from
from redraft.protocols import LM
from redraft.types import Usage

if TYPE_CHECKING:
    from openai import AsyncOpenAI

C = TypeVar("C")

__all__ = ["charge_reply", "metered", "served_by"]


def metered(client: C, *, advised: bool = True) -> C:
    """A copy of an `OpenAI`, `AsyncOpenAI` (Azure's too), `Anthropic` or `AsyncAnthropic` client for use inside runs.

    Each chat completion, response or message that it is asked for inside a run is bought by that run: journalled (a resumed
    run sends nothing again), reserved and capped under a token or money limit, retried by the run instead of the SDK, and
    counted exactly. A streamed reply arrives when it is whole. Other calls (embeddings, images) pass, and are counted
    softly where they report a usage. Outside any run the copy is the client it was.

    `advised`: an attempt's requirements and hint go in a paragraph at the end of the user's last message, its temperature
    where the call names none, and another model (`Refine(models=...)`) answers in place of a chat completion.

    Errors are the SDK's own, but for an ended budget or run (`BudgetExceeded`, `RunClosed`). A call from a thread of your
    own is part of the run through `redraft.in_run`; a sync client's on the run's event loop is counted softly.
    Raises `InputError` for anything that is no such client.
    """
    return copied(client, Told(hints=advised, sampling=advised))


def copied(client: C, told: Told) -> C:
    """See `metered`; `told` says which part of an attempt's advice its calls hear."""
    inner = getattr(client, "_client", None)
    if isinstance(client, type) or not is_sdk_client(client):
        raise InputError(f"metered({client!r}): give a client of the openai or anthropic SDK, e.g. AsyncOpenAI()")
    import httpx2

    is_async = hasattr(inner, "aclose")
    http: Any = (
        httpx2.AsyncClient(transport=AsyncWire(inner, told)) if is_async else httpx2.Client(transport=Wire(inner, told))
    )
    given: Any = client
    copy: Any = given.copy(http_client=http)
    kind: Any = copy.__class__
    copy.__class__ = _kind(kind, is_async)
    return copy  # type: ignore[no-any-return]


def is_sdk_client(client: object) -> bool:
    """True for what `metered` takes."""
    inner = getattr(client, "_client", None)
    return hasattr(inner, "build_request") and callable(getattr(client, "copy", None))


@lru_cache(maxsize=64)
def _kind(kind: Any, is_async: bool) -> type:
    """The client's class, with the run's retries in place of the SDK's, and the run's errors as they are."""

    async def request_async(self: Any, cast_to: Any, options: Any, **more: Any) -> Any:
        try:
            return await super(made, self).request(cast_to, _once(options), **more)
        except Through as through:
            raise through.error from through.error.__cause__

    def request(self: Any, cast_to: Any, options: Any, **more: Any) -> Any:
        try:
            return super(made, self).request(cast_to, _once(options), **more)
        except Through as through:
            raise through.error from through.error.__cause__

    made: Any = type(f"Metered{kind.__name__}", (kind,), {"request": request_async if is_async else request})
    return made  # type: ignore[no-any-return]


def _once(options: Any) -> Any:
    """Inside a run the SDK tries once: the run retries."""
    if current_frame() is not None:
        options.max_retries = 0
    return options


def served_by(lm: LM | str) -> AsyncOpenAI:
    """An `AsyncOpenAI` client whose chat completions are written by a redraft model: the embedded one, a scripted one.

    For code that is written for the SDK. Inside a run the calls are the run's; outside each opens one, with the budget of
    the settings. What the model does not take (a schema, tools) is the SDK's `BadRequestError`.
    """
    import httpx2
    import openai

    http = httpx2.AsyncClient(transport=Served(resolve_lm(lm)))
    client: Any = openai.AsyncOpenAI(api_key="none", base_url="http://redraft.invalid/v1", http_client=http)
    kind: Any = openai.AsyncOpenAI
    client.__class__ = _kind(kind, is_async=True)
    return client  # type: ignore[no-any-return]


def charge_reply(reply: Any, by: str = "openai") -> Usage:
    """Count a reply that a client of your own got, softly: an SDK's object or the JSON of it. Nothing outside a run.

    For functions whose client `metered` cannot wrap. `by` is the provider: its price list is used. Returns what is counted;
    a reply that reports no usage counts as a call of unknown size.
    """
    raw = reply if isinstance(reply, dict) else reply.model_dump() if hasattr(reply, "model_dump") else {}
    usage = priced(usage_from(raw.get("usage")), str(raw.get("model") or ""), by)
    charge(usage, by)
    return usage
