"""What makes a passing text degenerate: it may hold all that was asked for and still be no good to a reader.

Small models under a constraint write "- 1. / - 2. / - 3.", the same sentence thrice, or one word until their limit. Told
conservatively, since a false alarm costs another call: refrains, tables, code and quotes are no faults. All of it takes
linear time, and `faults` looks at a text's first 60,000 characters only.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from redraft.checks.segment import Span, sentence_spans

_LOOKED_AT = 60_000  # characters: what is degenerate is so from early on
_LONGEST_LOOP = 30  # words that are looked for right after themselves; what is longer holds whole sentences
_UNSPACED_LOOP = 12  # characters of a loop in a script without spaces, where a short one is ordinary language
_COPIED = 12
_VERSE = 8  # lines from which on one may come again as a refrain
_BRIEF = 1_000  # characters of a prompt; a longer one holds material, which a text may quote
_SHORT = 2  # words of a line that may stand twice, but not three times
_TOLD = 3  # faults of one kind that are told

_UNSPACED = r"\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_MARKS_OF_LETTERS = r"\u0300-\u036f\u0591-\u05c7\u0610-\u065f\u0670\u0900-\u0963\u0966-\u0dff"
_TOKEN = re.compile(rf"[{_UNSPACED}]|(?:[^\W_{_UNSPACED}]|[{_MARKS_OF_LETTERS}])+")
_ONE_CHARACTER = re.compile(f"[{_UNSPACED}]")
_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_TABLE = re.compile(r"^[ \t]*\|[^\n]*", re.MULTILINE)
_LINE = re.compile(r"[^\n]+")
_ITEM = re.compile(r"[ \t]*(?:[-*+\u2022]|\d{1,3}[.)])(?=\s|\Z)")
_RULE = re.compile(r"\s*([-*_])(?:\s*\1){2,}\s*")
_NUMBER_ONLY = re.compile(r"\s*\d{1,3}[.)]")
_HOLLOW = re.compile(r"\s*(?:\d{1,3}[.)])?[\s!-/:-@\[-`{-~\u2010-\u2027\u2030-\u205e\u3001\u3002\uff0c]*")
_CODE = re.compile(r"[{}=;<>|\\]|\(\)|^(?:\t| {4})\s*(?![-*+\u2022\d\s])")
_LABELLED = re.compile(r"[^:\n]{1,40}:(?:\s+\S+){0,4}\s*")  # "Rating: 5 stars", or a heading
_FILLER = re.compile(r"[,;\uff0c\u3001]\s*[.!?\u3002](?![.\w])|[,\uff0c]\s+[,\uff0c]|,,(?=\s)")
_QUOTED = re.compile(r"\"[^\"]*\"|\u201c[^\u201d]*\u201d|\u00ab[^\u00bb]*\u00bb|`[^`]*`")
_SUNG = re.compile(r"\b(?:song|lyrics|poem|verse|chorus|refrain|ballad|repeat)", re.IGNORECASE)
_REUSES = re.compile(
    r"\b(?:repeat|copy|quote|verbatim|rewrite|rephrase|paraphrase|revise|edit|correct|proofread|summar|extract|translat|"
    r"improve|shorten|continue|complete)",
    re.IGNORECASE,
)


def faults(text: str, prompt: str = "") -> list[str]:
    """One short sentence for each fault, with its place; empty for a clean text. `prompt` is what the author was asked.

    Of a text longer than 60,000 characters the beginning counts; JSON of that length, which cannot be cut, is clean.
    """
    if len(text) > _LOOKED_AT:
        if as_json(text) is not None:
            return []
        text = _beginning(text)
    whole = as_json(text)
    if whole is not None:
        return list(_json_faults(whole))
    plain = prose(text)
    found = [*_hollow_items(plain), *_filler(plain), *loops(plain)]
    kinds = repeats(plain)
    if not _is_refrain(kinds, sung=bool(_SUNG.search(prompt))):
        found += told(kinds)
    return [*found, *_copied(plain, prompt)]


def _beginning(text: str) -> str:
    """Cut at the end of a line or word."""
    head = text[:_LOOKED_AT]
    return next((head[:end] for mark in "\n " if (end := head.rfind(mark)) > 0), head)


def prose(text: str) -> str:
    """The text without code in fences."""
    return _FENCE.sub("\n\n", text)


def as_json(text: str) -> Any:
    """The value of a text that is a JSON object or list; else None."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def tokens(text: str) -> list[str]:
    """Words without case and marks; single characters of scripts without spaces."""
    return _TOKEN.findall(text.casefold())


# What comes again


@dataclass(frozen=True)
class Repeats:
    """Which sentences or lines come again."""

    kind: str
    keys: list[str]
    spans: list[Span]
    later: dict[int, int]
    """Place of each that came before: the place where it first stood."""

    @property
    def adjacent(self) -> bool:
        """One comes right after itself."""
        return any(self.keys[place - 1] == self.keys[place] for place in self.later)

    @property
    def distinct(self) -> int:
        """How many different ones come again."""
        return len(set(self.later.values()))


def repeats(text: str) -> list[Repeats]:
    """The kinds of parts of which some come again: sentences, lines."""
    return [kind for kind in (again("sentence", text), again("line", text)) if kind.later]


def again(kind: str, text: str) -> Repeats:
    """What sentences or lines come again, by their words alone; brief ones count from their third time on."""
    spans = sentence_spans(text) if kind == "sentence" else _line_spans(text)
    keyed = [(" ".join(tokens(part)), span) for span in spans if _counts(part := text[slice(*span)])]
    keys = [key for key, _ in keyed]
    total, first, later = Counter(keys), dict[str, int](), dict[int, int]()
    for place, key in enumerate(keys):
        if not key:
            continue
        if key in first and total[key] >= (3 if key.count(" ") < _SHORT else 2):
            later[place] = first[key]
        first.setdefault(key, place)
    return Repeats(kind, keys, [span for _, span in keyed], later)


def _line_spans(text: str) -> Iterator[Span]:
    for line in _LINE.finditer(text):
        marker = _ITEM.match(text, *line.span())
        yield (marker.end() if marker else line.start()), line.end()


def _counts(part: str) -> bool:
    """Code, headings and labelled values come again in ordinary texts."""
    if _CODE.search(part) or part.lstrip().startswith("#"):
        return False
    return not all(_LABELLED.fullmatch(line) for line in part.splitlines())


def told(kinds: list[Repeats]) -> list[str]:
    """The repeats in words; lines only where no sentence comes again."""
    if not kinds:
        return []
    kind, later = kinds[0].kind, kinds[0].later
    found = [f"{kind} {place + 1} repeats {kind} {first + 1}" for place, first in list(later.items())[:_TOLD]]
    return found if len(later) <= _TOLD else [*found, f"{len(later) - _TOLD} more {kind}s are repeats"]


def _is_refrain(kinds: list[Repeats], *, sung: bool) -> bool:
    """In a text of many lines one line may come again at a distance; in a song, as many as half of them."""
    lines = next((kind for kind in kinds if kind.kind == "line"), None)
    if lines is None or len(lines.keys) < _VERSE or any(kind.adjacent for kind in kinds):
        return False
    return all(kind.distinct == 1 for kind in kinds) or (sung and len(lines.later) <= len(lines.keys) / 2)


def loops(text: str) -> list[str]:
    """The first words that come again and again, right after themselves: one or two 4 times, more of them 3 times."""
    words = tokens(_TABLE.sub("\n", text))
    for n in range(1, min(_LONGEST_LOOP, len(words) // 3) + 1):
        times = 4 if n < 3 else 3
        long = n * (times - 1)
        run, looks = 0, {long, max(long, _UNSPACED_LOOP - n)}
        for i in range(n, len(words)):
            run = run + 1 if words[i] == words[i - n] else 0
            if run in looks and _is_loop(words[i + 1 - n : i + 1], run + n):
                start = i - run - n + 2
                what = f"word {start} comes" if n == 1 else f"words {start} to {start + n - 1} come"
                return [f"{what} {times} or more times in a row"]
    return []


def _is_loop(words: list[str], length: int) -> bool:
    """Numbers come in rows, and in a script without spaces a word is some characters."""
    if all(_ONE_CHARACTER.fullmatch(word) for word in words):
        return length >= _UNSPACED_LOOP
    return not all(word.isdigit() for word in words)


# What is empty, and what was copied


def _hollow_items(text: str) -> Iterator[str]:
    lines = [line for line in text.split("\n") if line.strip()]
    hollow = [
        number
        for number, line in enumerate(lines, 1)
        if (marker := _ITEM.match(line))
        and _HOLLOW.fullmatch(line, marker.end())
        and not _RULE.fullmatch(line)
        and not _goes_on(line, lines[number : number + 1])
    ]
    if hollow:
        more = f" (and {len(hollow) - 1} more)" if len(hollow) > 1 else ""
        yield f"the list item in line {hollow[0]} is empty{more}"


def _goes_on(line: str, following: list[str]) -> bool:
    """A number on a line of its own, with its text below."""
    return bool(_NUMBER_ONLY.fullmatch(line.rstrip()) and following and not _ITEM.match(following[0]))


def _filler(text: str) -> Iterator[str]:
    found = list(_FILLER.finditer(text))
    if found:
        more = f" ({len(found)} times)" if len(found) > 1 else ""
        yield f"marks with nothing between them after word {len(text[: found[0].start()].split())}{more}"


def _copied(text: str, prompt: str) -> Iterator[str]:
    if len(prompt) > _BRIEF or _REUSES.search(prompt):
        return
    runs = {tuple(run) for part in _QUOTED.split(prompt) for run in _runs(tokens(part))}
    for place, run in enumerate(_runs(tokens(text)), 1):
        if tuple(run) in runs:
            yield f"{_COPIED} or more words of the prompt are copied, from word {place} on"
            return


def _runs(words: list[str]) -> Iterator[list[str]]:
    return (words[i : i + _COPIED] for i in range(len(words) - _COPIED + 1))


# JSON


def _json_faults(whole: Any) -> Iterator[str]:
    found = [fault for path, value in _walk(whole) for fault in _value_faults(path, value)]
    yield from found[:_TOLD]
    if len(found) > _TOLD:
        yield f"{len(found) - _TOLD} more values are empty or repeated"


def _walk(whole: Any) -> Iterator[tuple[str, Any]]:
    waiting = [("$", whole)]
    while waiting:
        path, value = waiting.pop()
        yield path, value
        if isinstance(value, dict):
            waiting += [(f"{path}.{key}", inner) for key, inner in reversed(value.items())]
        elif isinstance(value, list):
            waiting += [(f"{path}[{i}]", value[i]) for i in reversed(range(len(value)))]


def _value_faults(path: str, value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if not value.strip(" .\t\r\n\u2026"):
            yield f"{path} is empty"
        elif repeated := [*loops(value), *told(repeats(value))]:
            yield f"in {path} {repeated[0]}"
    elif isinstance(value, list) and len(value) > 1:
        seen: dict[str, int] = {}
        for place, item in enumerate(value):
            key = json.dumps(item, sort_keys=True)
            if key in seen and _is_rich(item):
                yield f"{path}[{place}] repeats {path}[{seen[key]}]"
            seen.setdefault(key, place)
        if len(value) > 2 and len(seen) == 1 and isinstance(value[0], str) and not _is_rich(value[0]):
            yield f"all {len(value)} items of {path} are the same"


def _is_rich(item: Any) -> bool:
    """Labels and numbers come again in ordinary lists."""
    return bool(item) and (isinstance(item, dict | list) or (isinstance(item, str) and item.count(" ") >= _SHORT))
