"""instructor clients as modules: `wrap(client, Review, model="gpt-4.1-mini")`.

    review = Refine(wrap(client, Review, model="gpt-4.1-mini", instructions="Review it."), N=3, checks=[...])
    result = review(topic="La Maison")
    result.stars

How each client is counted is said at `wrap`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from redraft.errors import ConfigError, InputError, LMError, ParseError, TransientLMError

try:
    import instructor
except ImportError as missing:
    raise ConfigError(
        "redraft.integrations.instructor needs the package instructor: pip install instructor"
    ) from missing

from instructor.core.exceptions import InstructorError, InstructorRetryException
from instructor.core.hooks import Hooks

from redraft.foreign import charge, once
from redraft.integrations.advice import Unwrapped, fields_of, here
from redraft.integrations.transport import Told, is_sdk_client, metered_copy
from redraft.integrations.usage import priced
from redraft.lm.openai_errors import Endpoint, Refusal, as_error
from redraft.lm.openai_wire import read_usage
from redraft.modules import Module
from redraft.modules.wire import compose
from redraft.signature import Field, SignatureSpec, as_signature
from redraft.sync import call_user

__all__ = ["Instructor", "wrap"]

_MAKERS = {"openai": "from_openai", "anthropic": "from_anthropic"}


def wrap(
    client: Any,
    response_model: Any = None,
    *,
    model: str | None = None,
    instructions: str = "",
    signature: Any = None,
    **options: Any,
) -> Instructor:
    """A client of instructor (sync or async, `from_openai`, `from_provider`...) as a module.

    Inputs become the user's message: one as it is, several as paragraphs by name, content parts as content, messages as
    messages; `instructions` are the system's. The fields of the response model are the outputs; what is no model (an int, a
    list) is `answer`. With a `signature` inputs are checked, its instructions are said, and the one output has its name.
    `options` go to each `create`: temperature, max_tokens, context, strict...

    A client over the openai or anthropic SDK is metered exactly, as by `redraft.integrations.openai.metered`; of others the
    usage that their replies report is counted softly. instructor's own retries are off unless `max_retries` is given: a
    reply that does not validate is the attempt's `ParseError`, and the next attempt is told why.
    """
    if response_model is None:
        raise InputError(
            f"wrap({type(client).__name__}): give the response model, too: wrap(client, Review, model=...)"
        )
    options = {**({} if model is None else {"model": model}), **options}
    return Instructor(client, response_model, instructions=instructions, signature=signature, options=options)


class Instructor(Module):
    """A client and a response model as a module; see `wrap`."""

    alone = True

    def __init__(
        self,
        client: Any,
        response_model: Any,
        *,
        instructions: str = "",
        signature: Any = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(client, instructor.Instructor):
            raise InputError(
                f"wrap({client!r:.80}): give a client of instructor, e.g. instructor.from_openai(AsyncOpenAI())"
            )
        self.client = client
        self.response_model = response_model
        self.name = getattr(response_model, "__name__", str(response_model))
        self.instructions = instructions
        self.signature = None if signature is None else as_signature(signature)
        self.options = dict(options or {})
        self._bought = _metered(client)

    async def aforward(self, **inputs: Any) -> Any:
        """One call of `create`."""
        given = inputs if self.signature is None else self.signature.bind(inputs)
        spec = self.signature or SignatureSpec([Field(name) for name in given or {"task": ""}], [Field("answer")])
        advice = here()
        asked = compose(
            spec, given, style="plain", system=self.instructions, requirements=advice.requirements, hint=advice.hint
        )
        messages = [dict(message) for message in asked]
        if self._bought is not None:
            return await self._created(self._bought, messages, {})
        told = (
            {} if advice.temperature is None or "temperature" in self.options else {"temperature": advice.temperature}
        )
        counted = {**told, "hooks": _counting(self.options.get("hooks"), self.client, self.options)}
        return await once(f"instructor:{self.name}", lambda: self._created(self.client, messages, counted))

    async def _created(self, client: Any, messages: list[Any], more: Mapping[str, Any]) -> dict[str, Any]:
        options = {"max_retries": 0, "response_model": self.response_model, **self.options, **more}
        try:
            with Unwrapped():
                return fields_of(await call_user(client.create, messages=messages, **options), self.signature)
        except InstructorRetryException as error:
            raise _meant(error.__cause__ or error) from error


def _metered(client: Any) -> Any:
    """The client over a metered SDK client; None where it stands on something else."""
    provider = str(getattr(client.provider, "value", client.provider))
    maker = getattr(instructor, _MAKERS.get(provider, ""), None)
    if maker is None or not is_sdk_client(client.client):
        return None
    told = Told(hints=False, sampling=True)  # requirements and hint stand in the messages already
    default = inspect.getclosurevars(client.create_fn).nonlocals.get("default_model")
    named = {} if default is None else {"model": default}
    anew = maker(metered_copy(client.client, told), mode=client.mode, **named)
    anew.hooks, anew.kwargs = client.hooks, dict(client.kwargs)
    return anew


def _counting(given: Any, client: Any, options: Mapping[str, Any]) -> Hooks:
    """Hooks that count each reply, and each call without one."""
    provider = str(getattr(client.provider, "value", client.provider))
    asked = str(options.get("model") or client.kwargs.get("model") or "")

    def arrived(response: Any) -> None:
        raw = response.model_dump() if hasattr(response, "model_dump") else {}
        charge(priced(read_usage(raw.get("usage")), str(raw.get("model") or asked), provider), f"instructor:{provider}")

    def failed(*_: Any, **__: Any) -> None:
        charge(priced(None, asked, provider), f"instructor:{provider}")

    hooks = Hooks()
    hooks.on("completion:response", arrived)
    hooks.on("completion:error", failed)
    return hooks if given is None else given + hooks


def _meant(error: BaseException) -> Exception:
    """What instructor's one error stands for: a refusal of the server, a lost connection, or a reply that does not validate."""
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        at = Endpoint(
            "instructor's client", "the model", str(getattr(error, "request", "") or "its server"), "the client"
        )
        return as_error(Refusal.read(status, getattr(error, "body", None) or str(error)), (), at)
    if isinstance(error, LMError):
        return error
    if type(error).__module__.partition(".")[0] in ("openai", "anthropic", "httpx", "httpx2"):
        return TransientLMError(f"instructor's client: no answer ({error})", sent=True)
    if isinstance(error, ValueError | InstructorError) or not isinstance(error, Exception):
        return ParseError(f"the reply does not validate: {error}")
    return error
