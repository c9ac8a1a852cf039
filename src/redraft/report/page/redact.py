"""Secrets taken out of what a run left behind, before anybody is shown it.

Known by their form (keys of providers, tokens, private keys, passwords in URLs and settings), by the name that they stand
under, and by their value: that of an environment variable whose name says that it is one. What has none of these is shown.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from redraft.journal import CALL, INTENT
from redraft.jsonable import canonical
from redraft.types import Event

GONE = "[redacted]"

_FORMS = re.compile(
    r"""
    (?P<whole>(?<![A-Za-z0-9])(?:
        (?:sk|rk|pk)-(?=[A-Za-z_-]{0,60}[0-9])[A-Za-z0-9_-]{16,}   # OpenAI, Anthropic, OpenRouter, Stripe, Langfuse
      | [sr]k_(?:live|test)_[A-Za-z0-9]{10,}
      | (?:gsk_|xai-|hf_|r8_|nvapi-|pplx-|fw_|csk-|npm_|pypi-|glpat-|dop_v1_)(?=[A-Za-z_-]{0,60}[0-9])[A-Za-z0-9_-]{16,}
      | gh[pousr]_[A-Za-z0-9]{20,} | github_pat_[A-Za-z0-9_]{20,}
      | xox[abeoprs]-[A-Za-z0-9-]{10,}
      | AIza[A-Za-z0-9_-]{30,}
      | (?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])
      | eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*   # a JSON web token
      | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----.*?(?:-----END[ ][A-Z ]*PRIVATE[ ]KEY-----|\Z)
    ))
  | (?P<before>(?<![A-Za-z0-9])[Bb]earer[ ]+)[A-Za-z0-9._~+/=-]{8,}
  | (?P<scheme>(?<![A-Za-z0-9])[a-z][a-z0-9+.-]{1,20}://[^\s/:@'"<>]{0,100}:)[^\s/@'"<>]{1,200}(?=@)
  | (?P<name>(?i:(?:api[_-]?key|secret|password|passwd|access[_-]?token|auth[_-]?token)["']?[ ]?
        (?:=[ ]?|:[ ]?(?=["'\s]?[^\s"']{0,60}[0-9]))["']?))   # in prose a word may follow the colon: a secret has a digit
    [^\s"',;&<>(){}\[\]]{8,}
    """,
    re.VERBOSE | re.DOTALL,
)
_NAMES = re.compile(
    r"(?i)(x-)?(api[-_]?key|authorization|proxy-authorization|cookie|password|passwd|secret|client[-_]?secret|"
    r"(access|refresh|auth|id)[-_]?token)"
)
_VARIABLES = re.compile(r"(?i)(^|_)(api_?key|key|token|secret|password|passwd|credentials?)(_|$)")
_REMEMBERED, _MOST = 20_000, 10_000  # characters of a text, and texts, that are remembered
_SHORTEST = 8  # a shorter value of a variable is a word as well


class Redactor:
    """Takes secrets out of texts, JSON values and events. The environment is read once, when it is made."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        found = {
            value
            for name, value in (os.environ if environment is None else environment).items()
            if len(value) >= _SHORTEST and _VARIABLES.search(name) and not value.startswith(("/", "~"))
        }
        longest_first = sorted(found, key=len, reverse=True)
        self._values = re.compile("|".join(map(re.escape, longest_first))) if found else None
        self._seen: dict[str, str] = {}

    def text(self, text: str) -> str:
        """The text without what looks like a secret. Texts that come often (a prompt) are looked at once."""
        if len(text) < _SHORTEST:
            return text
        if (known := self._seen.get(text)) is not None:
            return known
        known = self._cleaned(text)
        if len(text) <= _REMEMBERED:
            if len(self._seen) >= _MOST:
                self._seen.clear()
            self._seen[text] = known
        return known

    def value(self, value: Any) -> Any:
        """A JSON value, and all texts in it."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self._name(name): self._under(name, inner) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(inner) for inner in value]
        return value

    def events(self, events: Sequence[Event]) -> list[Event]:
        """The events of a run. A call's messages stay the JSON text that they are on record as."""
        return [self._event(event) for event in events]

    def _event(self, event: Event) -> Event:
        data = self.value({name: part for name, part in event.data.items() if name != "content"})
        if (content := event.data.get("content")) is not None:
            data = {"content": self._content(content) if event.kind in (INTENT, CALL) else self.value(content), **data}
        return Event(
            seq=event.seq,
            kind=event.kind,
            time=event.time,
            scope=self.text(event.scope),
            key=self.text(event.key),
            data=data,
        )

    def _content(self, content: Any) -> Any:
        """What was asked. A secret in it may be cut in two by JSON's own escapes, so it is read first."""
        if not isinstance(content, str):
            return self.value(content)
        try:
            asked = json.loads(content)
        except ValueError:
            return self.text(content)
        cleaned = self.value(asked)
        return content if cleaned == asked else canonical(cleaned)

    def _name(self, name: object) -> Any:
        return self.text(name) if isinstance(name, str) else name

    def _under(self, name: object, value: Any) -> Any:
        secret = isinstance(name, str) and isinstance(value, str) and value and _NAMES.fullmatch(name)
        return GONE if secret else self.value(value)

    def _cleaned(self, text: str) -> str:
        if self._values is not None:
            text = self._values.sub(GONE, text)
        return _FORMS.sub(_gone, text)


def _gone(found: re.Match[str]) -> str:
    return f"{found['before'] or found['scheme'] or found['name'] or ''}{GONE}"
