"""Checks on how a text is written: case, commas, language, repetition."""

from __future__ import annotations

import importlib.util
import itertools
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from redraft.checks import clean, languages
from redraft.checks.base import Check, Guard
from redraft.checks.constraint import Constraint
from redraft.checks.segment import Span, has_capitals, sentence_spans
from redraft.errors import ConfigError, UsageError


class Case(Check):
    """Every letter is of one case; letters without cases are fine."""

    name = "lowercase"
    always_mends = True
    told_as = "Write in lower case letters only."
    wrong = "capital"

    def cased(self, text: str) -> str:
        """The text in that case."""
        return text.lower()

    def tell_text(self) -> str:
        """See `Check`."""
        return self.told_as

    def constraint(self) -> Constraint | None:
        """See `Check`."""
        return languages.lowercase()

    def judge(self, value: Any) -> tuple[float, str]:
        """The share of letters that are right."""
        text = str(value)
        wrong = sum(c != self.cased(c) for c in text)
        if not wrong:
            return 1.0, ""
        letters = sum(c.lower() != c.upper() for c in text)
        return max(0.0, 1.0 - wrong / max(letters, 1)), f"{wrong} of {letters} letters are {self.wrong}s, want none"

    def guard(self, prefix: str) -> Guard:
        """See `Check`."""
        return "fail" if any(c != self.cased(c) for c in prefix) else "unknown"

    def fix(self, value: Any) -> str | None:
        """The same letters in the other case."""
        return self.cased(value) if isinstance(value, str) and self.guard(value) == "fail" else None


class UpperCase(Case):
    """Every letter is a capital."""

    name = "uppercase"
    told_as = "Write in capital letters only."
    wrong = "small letter"

    def cased(self, text: str) -> str:
        """See `Case`."""
        return text.upper()

    def constraint(self) -> Constraint | None:
        """See `Check`."""
        return languages.uppercase()


_COMMAS = ",\u055d\u060c\u07f8\u1363\u1802\u2e32\u2e34\u2e41\u3001\ua60d\ua6f5\ufe10\ufe11\ufe50\ufe51\uff0c\uff64"
_COMMA = re.compile(f"[{_COMMAS}]")
_GROUPED = re.compile(r"(?<![\d,])\d{1,3}(?:,\d{3})+(?![\d,])")
_CLAUSE = r"(?!(?:i|you|he|she|it|we|they|who|which|that|this|there)\b)"
_THING = rf"{_CLAUSE}[^\W\d_][\w'\u2019-]*(?: {_CLAUSE}[\w'\u2019-]+){{0,2}}"
_SERIES = re.compile(rf"(?<=\w )({_THING}(?:, {_THING}){{1,12}}), ((?:and|or) )", re.IGNORECASE)
_LOST = re.compile(rf"(?<![ \t])[ \t]*+[{_COMMAS}]+([ \t]*)(?=(.?))")


class NoCommas(Check):
    """No comma, of any script."""

    name = "no_commas"

    def tell_text(self) -> str:
        """See `Check`."""
        return "Do not use any commas."

    def constraint(self) -> Constraint | None:
        """See `Check`."""
        return languages.no_commas()

    def judge(self, value: Any) -> tuple[float, str]:
        """Half the credit for one comma, a third for two, and so on."""
        n = len(_COMMA.findall(str(value)))
        return 1.0 / (1 + n), f"{n} comma{'' if n == 1 else 's'}, want none"

    def guard(self, prefix: str) -> Guard:
        """See `Check`."""
        return "fail" if _COMMA.search(prefix) else "unknown"

    def fix(self, value: Any) -> str | None:
        """Numbers lose their groups, "a, b, and c" becomes "a and b and c", other commas go."""
        if not isinstance(value, str) or not _COMMA.search(value) or clean.as_json(value) or "```" in value:
            return None
        text = _GROUPED.sub(lambda number: number.group().replace(",", ""), value)
        text = _SERIES.sub(lambda series: series[1].replace(", ", f" {series[2]}") + f" {series[2]}", text)
        text = _LOST.sub(lambda comma: " " if comma[2].strip() and comma[2] not in ".!?;:" else comma[1], text)
        return text if text.strip() else None


class NoRepetition(Check):
    """No sentence, line or list item comes twice, and no words again and again."""

    name = "no_repetition"

    def tell_text(self) -> str:
        """See `Check`."""
        return "Do not repeat yourself: no sentence, line or list item twice."

    def judge(self, value: Any) -> tuple[float, str]:
        """The share of sentences (or lines) that are new; half of it if words come again and again."""
        text = str(value)
        if clean.as_json(text) is not None:
            return 1.0, ""  # values of JSON come again
        plain = clean.prose(text)
        kinds, loops = clean.repeats(plain), clean.loops(plain)
        new = 1.0 - len(kinds[0].later) / len(kinds[0].keys) if kinds else 1.0
        return new / 2 if loops else new, "; ".join([*loops, *clean.told(kinds)])

    def guard(self, prefix: str) -> Guard:
        """Fails once something that is complete has come again."""
        if prefix.lstrip()[:1] in ("", "{", "["):
            return "unknown"
        ends = [end for _, end in sentence_spans(prefix, cased=True)]
        said = clean.prose(prefix[: ends[-2]] if len(ends) > 1 else "")
        lines = clean.prose(prefix[: prefix.rfind("\n") + 1])
        # Where the sentences of a text in small letters end is told by capitals, which may follow.
        sure = has_capitals(said) or said == said.upper()
        again = clean.loops(said) or (sure and clean.again("sentence", said).later) or clean.again("line", lines).later
        return "fail" if again else "unknown"

    def fix(self, value: Any) -> str | None:
        """The text without what comes again."""
        if not isinstance(value, str) or len(value) > _LONG or "```" in value or clean.as_json(value) is not None:
            return None
        text = value
        for kind in ("sentence", "line"):
            repeats = clean.again(kind, text)
            text = _without(text, [repeats.spans[place] for place in repeats.later])
        return text if text and self.judge(text)[0] > self.judge(value)[0] else None


_NUMBER = re.compile(r"^([ \t]*)(\d+)(?=[.)]\s)", re.MULTILINE)
_BARE = re.compile(r"\s*(?:[-*+\u2022]|\d+[.)])?\s*")
_GONE = "\0"
_LONG = 200_000  # characters; longer than that no draft is that is worth mending


def _without(text: str, spans: list[Span]) -> str:
    """The text without these parts and the lines that they leave empty; a numbered list is numbered anew."""
    parts, start = [], 0
    for begin, end in spans:
        parts += [text[start:begin], _GONE]
        start = end
    lines = [
        line.replace(f"{_GONE} ", "").replace(_GONE, "").rstrip() if _GONE in line else line
        for line in "".join([*parts, text[start:]]).split("\n")
        if _GONE not in line or not _BARE.fullmatch(line.replace(_GONE, ""))
    ]
    left = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
    numbers = [int(number) for _, number in _NUMBER.findall(text)]
    if numbers != list(range(1, len(numbers) + 1)):
        return left
    new = itertools.count(1)
    return _NUMBER.sub(lambda number: f"{number[1]}{next(new)}", left)


class Language(Check):
    """The text is written in one language."""

    name = "language"

    def __init__(self, code: str, **options: Any) -> None:
        super().__init__(**options)
        known = {name.lower(): key for key, name in _LANGUAGES.items()}
        key = code.strip().lower() if isinstance(code, str) else ""
        self.code = known.get(key, key)
        if self.code not in _LANGUAGES:
            raise UsageError(
                f"language({code!r}): no such language; known are {', '.join(_LANGUAGES)}, and their names"
            )
        if importlib.util.find_spec("py3langid") is None:  # said now, not after the first draft is paid for
            raise ConfigError(_MISSING)

    def tell_text(self) -> str:
        """See `Check`."""
        return f"Write in {_LANGUAGES[self.code]}."

    def judge(self, value: Any) -> tuple[float, str]:
        """How likely it is that language. What is too brief to tell passes."""
        likely = _ranking()(str(value)[:_LOOKED_AT])
        top, chance = likely[0]
        if top == self.code or chance < _CERTAIN:
            return 1.0, ""
        own = next((float(p) for code, p in likely if code == self.code), 0.0)
        return min(own, 0.99), f"reads as {_LANGUAGES.get(top, top)}, want {_LANGUAGES[self.code]}"


_LOOKED_AT = 20_000
_MISSING = "the check language needs the package py3langid: pip install 'redraft[language]'"
_CERTAIN = 0.5
_NAMES = """
    af:Afrikaans am:Amharic ar:Arabic az:Azerbaijani be:Belarusian bg:Bulgarian bn:Bengali bs:Bosnian ca:Catalan
    cs:Czech cy:Welsh da:Danish de:German el:Greek en:English eo:Esperanto es:Spanish et:Estonian eu:Basque
    fa:Persian fi:Finnish fr:French ga:Irish gl:Galician gu:Gujarati ha:Hausa he:Hebrew hi:Hindi hr:Croatian
    hu:Hungarian hy:Armenian id:Indonesian ig:Igbo is:Icelandic it:Italian ja:Japanese ka:Georgian kk:Kazakh
    km:Khmer kn:Kannada ko:Korean ku:Kurdish ky:Kyrgyz la:Latin lb:Luxembourgish lo:Lao lt:Lithuanian lv:Latvian
    mg:Malagasy mk:Macedonian ml:Malayalam mn:Mongolian mr:Marathi ms:Malay mt:Maltese my:Burmese ne:Nepali nl:Dutch
    no:Norwegian pa:Punjabi pl:Polish ps:Pashto pt:Portuguese ro:Romanian ru:Russian si:Sinhala sk:Slovak
    sl:Slovenian so:Somali sq:Albanian sr:Serbian sv:Swedish sw:Swahili ta:Tamil te:Telugu th:Thai tl:Tagalog
    tr:Turkish uk:Ukrainian ur:Urdu uz:Uzbek vi:Vietnamese xh:Xhosa yo:Yoruba zh:Chinese zu:Zulu
"""
_LANGUAGES = dict(pair.split(":") for pair in _NAMES.split())


@lru_cache(maxsize=1)
def _ranking() -> Callable[[str], list[tuple[str, float]]]:
    """The identifier, with probabilities; its model is read once."""
    try:
        langid = importlib.import_module("py3langid.langid")
    except ImportError as error:
        raise ConfigError(_MISSING) from error
    ranking: Callable[[str], list[tuple[str, float]]] = langid.LanguageIdentifier.from_modelpath(
        langid.MODEL_DIR / langid.MODEL_FILE, norm_probs=True
    ).rank
    return ranking


def lowercase(**options: Any) -> Case:
    """No capital letter. Options: `field`, `hard`, `tell`."""
    return Case(**options)


def uppercase(**options: Any) -> UpperCase:
    """Capital letters only. Options: `field`, `hard`, `tell`."""
    return UpperCase(**options)


def no_commas(**options: Any) -> NoCommas:
    """No comma, of any script. Options: `field`, `hard`, `tell`."""
    return NoCommas(**options)


def no_repetition(**options: Any) -> NoRepetition:
    """No sentence, line or list item twice, no words again and again. Options: `field`, `hard`, `tell`."""
    return NoRepetition(**options)


def language(code: str, **options: Any) -> Language:
    """`language("en")` or `language("English")`; needs the extra `language`. Options: `field`, `hard`, `tell`."""
    return Language(code, **options)
