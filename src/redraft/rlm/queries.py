"""The sub-queries of an RLM: `llm_query` and `llm_query_batched`, bought through the Run, one bound on all of them.

A prompt that is too long fails by itself, before it is bought; an empty or cut reply says that it is; a batch that is
larger than what is left of `max_llm_calls` is refused whole and costs nothing. Equal prompts of a batch are each asked:
code that asks five times wants five samples, and one answer five times over would look like agreement.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from redraft.errors import LMError, ParseError, UsageError
from redraft.frame import Frame, entered
from redraft.modules.fields import objects
from redraft.modules.written import mended_object
from redraft.protocols import LM
from redraft.refusals import refuses, without
from redraft.rlm.answers import Asked, bought, ending, head, may_pass
from redraft.schemas import faults, validator
from redraft.signature import as_signature
from redraft.types import Completion, Request

ERROR = "[ERROR]"
"""How the text begins that stands for a reply of a batch that could not be had."""
EMPTY = "[EMPTY REPLY]"
"""How the text begins that stands for a reply without text."""
CUT = "[CUT]"
"""The last line's beginning of a reply that ended at its limit of tokens."""

_ASKED = "what_was_asked"
_REASKS = 1  # times that a reply which does not fit its schema is asked for again


class Queries:
    """The two functions for one call of an RLM. `longest`: characters of a prompt at most."""

    def __init__(self, lm: LM, *, longest: int) -> None:
        self.lm = lm
        self.longest = longest

    async def llm_query(self, asked: Asked, prompt: Any, schema: Any = None) -> Any:
        """The reply to one prompt: its text, or the value that it holds where there is a schema."""
        shape = Shape(schema)
        self.check(prompt)
        asked.take(1)
        return await self._reply(asked, asked.frame, asked.entry, prompt, shape)

    async def llm_query_batched(self, asked: Asked, prompts: Any, schema: Any = None) -> list[Any]:
        """The replies to all prompts, in their order, asked at the same time. One that failed is a text `[ERROR] ...`."""
        if not isinstance(prompts, list):
            raise TypeError(f"llm_query_batched takes a list of prompts, got {type(prompts).__name__}")
        shape = Shape(schema)
        refused = [self._refused(prompt) for prompt in prompts]
        asked.take(refused.count(""))
        asked.more = [{"function": "llm_query_batched", "error": ""} for _ in prompts]
        work = [self._item(asked, i, prompt, shape, refused[i]) for i, prompt in enumerate(prompts)]
        replies = await asyncio.gather(*work, return_exceptions=True)  # one that ends the run leaves no other half done
        for reply in replies:
            if isinstance(reply, BaseException):
                raise reply
        return replies

    async def _item(self, asked: Asked, i: int, prompt: Any, shape: Shape, refused: str) -> Any:
        entry = asked.more[i]
        if refused:
            entry |= {"prompt": head(prompt), "error": refused}
            return f"{ERROR} {refused}"
        try:
            return await self._reply(asked, asked.at(f"[{i}]"), entry, prompt, shape)
        except (RuntimeError, ValueError) as error:
            entry["error"] = str(error)
            return f"{ERROR} {error}"

    def check(self, prompt: Any) -> None:
        """Raises `TypeError` or `ValueError` for a prompt that is not worth sending."""
        if not isinstance(prompt, str):
            raise TypeError(
                f"a prompt is a str, got {type(prompt).__name__}: write the data into it, e.g. with json.dumps"
            )
        if not prompt.strip():
            raise ValueError("the prompt is empty; nothing was asked")
        if len(prompt) > self.longest:
            raise ValueError(
                f"the prompt has {len(prompt):,} characters and {self.longest:,} are allowed; nothing was asked. "
                "Cut the text into pieces"
            )

    def _refused(self, prompt: Any) -> str:
        try:
            self.check(prompt)
        except (TypeError, ValueError) as error:
            return str(error)
        return ""

    async def _reply(self, asked: Asked, frame: Frame, entry: dict[str, Any], prompt: str, shape: Shape) -> Any:
        """One reply, read. Raises RuntimeError for one that could not be had, ValueError for one that does not fit."""
        entry |= {"prompt": head(prompt), "model": self.lm.name}
        wrong = ""
        for _ in range(1 + _REASKS):
            try:
                completion = await self._bought(frame, shape.request(prompt, wrong, self.lm))
            except LMError as error:
                if (ended := ending(frame, error)) is not None:
                    raise ended from None
                asked.unsure |= may_pass(error)
                raise RuntimeError(f"{self.lm.name} gave no reply: {error}") from error
            used = bought(self.lm, completion)
            entry["usage"] = {k: entry.get("usage", {}).get(k, 0) + v for k, v in used.items()}
            entry["reply"] = head(completion.text or "")
            if not shape:
                return _shown(completion)
            try:
                return shape.read(completion)
            except ParseError as error:
                wrong = str(error)
                if asked.limit.left < 1:
                    break
                asked.take(1)
        raise ValueError(f"the reply does not fit the schema: {wrong}")

    async def _bought(self, frame: Frame, request: Request) -> Completion:
        with entered(replace(frame, counts={})):
            return await frame.run.complete(request, lm=self.lm, role="sub")


def _shown(completion: Completion) -> str:
    """A reply's text; what is missing of it is said in it."""
    choice = completion.choices[0]
    text = choice.text or ""
    cut = choice.finish_reason == "length"
    if not text.strip():
        why = "the model only thought" if choice.reasoning.strip() else "the model wrote nothing"
        return f"{EMPTY} {why}{' until its limit of tokens' if cut else ''}"
    return f"{text}\n{CUT} the reply ended at its limit of tokens" if cut else text


class Shape:
    """What a typed reply has to look like: a JSON schema, or names with types as `"label: str, score: float"` or a dict.

    Raises `ValueError` for what is neither.
    """

    def __init__(self, schema: Any) -> None:
        self.schema: dict[str, Any] | None = None
        self.signature = None
        if schema is None:
            return
        try:
            if isinstance(schema, str):
                self.signature = as_signature(f"{_ASKED} -> {schema}")
            elif isinstance(schema, Mapping) and not _is_schema(schema) and _are_types(schema):
                self.signature = as_signature(f"{_ASKED} -> {', '.join(f'{k}: {v}' for k, v in schema.items())}")
            elif isinstance(schema, Mapping):
                # a stranger's patterns could take for ever to match
                self.schema = without(schema, ("pattern", "patternProperties", "format"))
                self.held = validator(self.schema, "the schema")
            else:
                raise ValueError(f"a schema is a dict or a str, got {type(schema).__name__}")
        except UsageError as error:
            raise ValueError(
                f'the schema cannot be read: {error}; give a JSON schema, or {{"label": "str", "score": "float"}}'
            ) from error
        if self.signature is not None:
            self.schema = self.signature.json_schema()

    def __bool__(self) -> bool:
        return self.schema is not None

    def request(self, prompt: str, wrong: str, lm: LM) -> Request:
        """What is sent: the prompt, the form that is asked for, and what was wrong with the last reply."""
        parts = [prompt]
        if self.schema is not None:
            parts.append(
                "Reply with JSON only, which follows this schema: "
                f"{json.dumps(self.schema, ensure_ascii=False, separators=(',', ':'))}"
            )
        if wrong:
            parts.append(f"Your last reply could not be used: {wrong}")
        # an enforced schema has to be a strict one: only ours is sure to be
        enforced = self.signature is not None and lm.capabilities.json_schema and not refuses(lm, "schema")
        return Request(
            messages=({"role": "user", "content": "\n\n".join(parts)},),
            schema=self.schema if enforced else None,
        )

    def read(self, completion: Completion) -> Any:
        """The value that a reply holds. Raises `ParseError`."""
        value = _value_in(completion)
        if self.signature is not None:
            names = list(self.signature.outputs)
            if not isinstance(value, dict) and len(names) == 1:
                value = {names[0]: value}
            if not isinstance(value, dict):
                raise ParseError(f"it is no JSON object with the keys {', '.join(names)}")
            return json.loads(json.dumps(self.signature.coerce(value), default=str))
        try:
            wrong = faults(self.held, value)
        except UsageError as error:
            raise ParseError(str(error)) from error
        if wrong:
            raise ParseError("; ".join(f"{e.json_path}: {e.message[:200]}" for e in wrong[:3]))
        return value


def _value_in(completion: Completion) -> Any:
    """The JSON value that a reply is, or holds."""
    text = (completion.text or "").strip()
    if not text:
        raise ParseError(_shown(completion))
    bare = text
    if text.startswith("```") and text.endswith("```"):
        bare = text.partition("\n")[2].removesuffix("```").strip()
    try:
        return json.loads(bare, strict=False)
    except (ValueError, RecursionError):
        found = next(objects(text), None) or mended_object(text)
    if found is None:
        raise ParseError(f"it holds no JSON: {text[:80]!r}")
    return found


_WORDS = frozenset({"type", "properties", "items", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "$defs"})


def _is_schema(schema: Mapping[str, Any]) -> bool:
    """True for a JSON schema; `{"type": "str"}` names a field called type."""
    kinds = ("object", "array", "string", "number", "integer", "boolean", "null")
    said = schema.get("type")
    return bool(_WORDS & set(schema)) and (said is None or isinstance(said, list) or said in kinds)


def _are_types(schema: Mapping[str, Any]) -> bool:
    return bool(schema) and all(
        isinstance(k, str) and k.isidentifier() and isinstance(v, str) for k, v in schema.items()
    )
