"""Functions that call a model through the official SDKs' clients: `metered(client)` makes their calls the run's.

    client = metered(AsyncOpenAI())

    async def answer(question: str) -> str:
        reply = await client.chat.completions.create(model="gpt-4.1-mini", messages=[...])
        return reply.choices[0].message.content

    result = Refine(answer, N=3, checks=[...], budget=Budget(tokens=20_000))(question="...")

Anthropic's clients go the same way. What is counted how is said at `metered`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from redraft.config import resolve_lm
from redraft.foreign import charge
from redraft.integrations.transport import Served, Told, as_metered, metered_copy
from redraft.integrations.usage import priced
from redraft.lm.openai_wire import read_usage
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
    return metered_copy(client, Told(hints=advised, sampling=advised))


def served_by(lm: LM | str) -> AsyncOpenAI:
    """An `AsyncOpenAI` client whose chat completions are written by a redraft model: the embedded one, a scripted one.

    For code that is written for the SDK. Inside a run the calls are the run's; outside each opens one, with the budget of
    the settings. What the model does not take (a schema, tools, a field that makes no sense) is the SDK's `BadRequestError`.
    """
    import httpx2
    import openai

    http = httpx2.AsyncClient(transport=Served(resolve_lm(lm)))
    client: Any = openai.AsyncOpenAI(api_key="none", base_url="http://redraft.invalid/v1", http_client=http)
    return as_metered(client, is_async=True)  # type: ignore[no-any-return]


def charge_reply(reply: Any, by: str = "openai") -> Usage:
    """Count a reply that a client of your own got, softly: an SDK's object or the JSON of it. Nothing outside a run.

    For functions whose client `metered` cannot wrap. `by` is the provider: its price list is used. Returns what is counted;
    a reply that reports no usage counts as a call of unknown size.
    """
    raw = reply if isinstance(reply, dict) else reply.model_dump() if hasattr(reply, "model_dump") else {}
    usage = priced(read_usage(raw.get("usage")), str(raw.get("model") or ""), by)
    charge(usage, by)
    return usage
