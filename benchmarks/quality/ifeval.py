"""IFEval's prompts with their instructions as ordinary checks: `run.py --ifeval PATH`.

Counted as in the original, but without NLTK and langdetect: sentences by our splitter, languages by their script. An
instruction that cannot be judged so leaves its prompt out, and is named.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks import Task

from redraft.checks import (
    Check,
    bullets,
    check,
    contains,
    ends_with,
    forbids,
    json_valid,
    keyword_counts,
    language,
    lowercase,
    no_commas,
    sentences,
    uppercase,
    words,
)
from redraft.errors import RedraftError

LONG = re.compile(
    r"\b(essay|blog|article|story|resume|itinerary|speech|script|song|novel|lyrics|rap|proposal|cover letter|dialogue)\b",
    re.IGNORECASE,
)
SCRIPTS = {"ru": "Ѐ-ӿ", "bg": "Ѐ-ӿ", "hi": "ऀ-ॿ", "mr": "ऀ-ॿ",
           "ne": "ऀ-ॿ", "bn": "ঀ-৿", "gu": "઀-૿", "pa": "਀-੿",
           "ta": "஀-௿", "te": "ఀ-౿", "kn": "ಀ-೿", "ko": "가-힯",
           "ar": "؀-ۿ", "fa": "؀-ۿ", "ur": "؀-ۿ", "th": "฀-๿"}  # fmt: skip


def tasks(path: Path, *, short: bool = False) -> list[Task]:
    """The prompts all of whose instructions can be judged; says on stderr what is left out."""
    found, skipped, lines = [], Counter[str](), 0
    for line in path.read_text(encoding="utf-8").splitlines():
        item = json.loads(line)
        lines += 1
        given = zip(item["instruction_id_list"], item["kwargs"], strict=True)
        made = [(name, _made(name, options, item["prompt"])) for name, options in given]
        missing = [name for name, made_check in made if made_check is None]
        skipped.update(missing)
        if not missing:
            checks = tuple(made_check for _, made_check in made if made_check)
            family = made[0][0] if len(made) == 1 else f"{len(made)} instructions"
            found.append((Task(f"ifeval-{item['key']}", family, item["prompt"], checks), item))
    print(f"IFEval: {lines} prompts in the file, {len(found)} can be judged", file=sys.stderr)
    for name, count in skipped.most_common():
        print(f"  left out: {name} (no check for it here), {count} times", file=sys.stderr)
    return [task for task, item in found if not short or _is_short(item)]


def _is_short(item: dict[str, Any]) -> bool:
    """Nothing in the prompt asks for a long text."""
    limits = {"num_words": 60, "num_sentences": 5, "num_paragraphs": 2, "num_sections": 2, "num_bullets": 5,
              "num_highlights": 3, "num_placeholders": 4, "frequency": 5, "let_frequency": 12, "capital_frequency": 8}  # fmt: skip
    for name, options in zip(item["instruction_id_list"], item["kwargs"], strict=True):
        few = "less than" in options.values()  # an upper limit asks for nothing long
        if any(options.get(key, 0) > most for key, most in limits.items()) and not few:
            return False
        if name in ("combination:repeat_prompt", "combination:two_responses"):
            return False
    return len(item["prompt"]) < 600 and not LONG.search(item["prompt"])


def _made(name: str, options: dict[str, Any], prompt: str) -> Check | None:
    make = MADE.get(name)
    return None if make is None else make(options, prompt)


def _limits(options: dict[str, Any], key: str, relation: str = "relation") -> tuple[int, int | None]:
    """IFEval knows "at least" n and "less than" n."""
    n = int(options[key])
    return (0, n - 1) if options[relation] == "less than" else (n, None)


def _range(kind: Any, options: dict[str, Any], key: str) -> Check:
    low, high = _limits(options, key)
    made: Check = kind(at_least=low) if high is None else kind(at_most=high)
    return made


def _found(pattern: str, low: int, high: int | None, what: str, flags: int = 0) -> Check:
    """A count of matches, as a check without a constraint."""

    def matches_found(text: str) -> tuple[float, str]:
        n = sum(1 for found in re.finditer(pattern, text, flags) if found.group().strip("*[]#< >"))
        if n >= low and (high is None or n <= high):
            return 1.0, ""
        return min(0.9, n / max(1, low)), f"{n} {what}, want {_want(low, high)}"

    return check(matches_found, tell=f"Write {_want(low, high)} {what}.", name=what.replace(" ", "_"))


def _want(low: int, high: int | None) -> str:
    return f"at least {low}" if high is None else str(low) if low == high else f"{low} to {high}"


def _parts(split: str, count: int, what: str) -> Check:
    """Exactly so many parts, none of them empty."""

    def parts(text: str) -> tuple[float, str]:
        found = [part for part in re.split(split, text) if part.strip()]
        if len(found) == count:
            return 1.0, ""
        return min(0.9, len(found) / count) if len(found) < count else 0.5, f"{len(found)} {what}, want {count}"

    return check(parts, tell=f"Write exactly {count} {what}.", name=what.replace(" ", "_"))


def _says(fn: Callable[[str], bool], tell: str, name: str) -> Check:
    def holds(text: str) -> tuple[float, str]:
        return (1.0, "") if fn(text) else (0.0, f"not so: {tell}")

    return check(holds, tell=tell, name=name)


def _nth_paragraph(options: dict[str, Any], _: str) -> Check:
    count, nth, word = options["num_paragraphs"], options["nth_paragraph"], options["first_word"].lower()

    def starts_right(text: str) -> tuple[float, str]:
        found = [part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()]
        first = re.sub(r"\W", "", found[nth - 1].split()[0]).lower() if len(found) >= nth else ""
        good = (len(found) == count) + (first == word)
        return good / 2, "" if good == 2 else f"{len(found)} paragraphs, want {count}; paragraph {nth} starts otherwise"

    tell = f'Write exactly {count} paragraphs with an empty line between them; paragraph {nth} starts with "{word}".'
    return check(starts_right, tell=tell, name="nth_paragraph")


def _sections(options: dict[str, Any], _: str) -> Check:
    mark, count = options["section_spliter"].strip(), options["num_sections"]
    return _found(rf"\s?{re.escape(mark)}\s?\d+\s?", count, None, f"sections marked {mark} X")


def _capital_words(options: dict[str, Any], _: str) -> Check:
    low, high = _limits(options, "capital_frequency", "capital_relation")
    return _found(r"\b[A-Z][A-Z'\u2019-]*\b", low, high, "words in capital letters")


def _letters(options: dict[str, Any], _: str) -> Check:
    low, high = _limits(options, "let_frequency", "let_relation")
    letter = options["letter"]
    return _found(re.escape(letter), low, high, f'times the letter "{letter}"', re.IGNORECASE)


def _language(options: dict[str, Any], _: str) -> Check | None:
    try:
        made = language(options["language"])
        made.judge("Does it find its detector?")
        return made
    except RedraftError:
        script = SCRIPTS.get(options["language"])
    if script is None:
        return None  # written in Latin letters: that needs a detector

    def in_script(text: str) -> tuple[float, str]:
        letters = re.findall(r"[^\W\d_]", text)
        part = sum(bool(re.match(f"[{script}]", letter)) for letter in letters) / max(1, len(letters))
        return (1.0, "") if part > 0.7 else (part, f"only {part:.0%} of the letters are of that language")

    return check(in_script, tell=f"Write in the language {options['language']} only.", name="language")


def _repeats(options: dict[str, Any], _: str) -> Check:
    wanted = " ".join(options["prompt_to_repeat"].lower().split())
    return _says(lambda text: " ".join(text.lower().split()).startswith(wanted), "Repeat the request first.", "repeat")


def _two(_: dict[str, Any], __: str) -> Check:
    def two(text: str) -> bool:
        found = [part.strip() for part in text.split("******")]
        return len(found) == 2 and all(found) and found[0] != found[1]

    return _says(two, "Give two different answers with ****** between them.", "two_responses")


def _postscript(options: dict[str, Any], _: str) -> Check:
    mark = re.escape(options["postscript_marker"]).replace(r"\.", r"\.\s?")
    return _says(lambda text: bool(re.search(mark, text, re.IGNORECASE)), f"End with a postscript that starts with "
                 f"{options['postscript_marker']}.", "postscript")  # fmt: skip


def _one_answer(*_: Any) -> Check:
    said = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
    return _says(lambda text: any(phrase in text for phrase in said), "Use one of the phrases given.", "one_answer")


def _quoted(text: str) -> bool:
    return len(text.strip()) > 1 and text.strip()[0] == text.strip()[-1] == '"'


MADE: dict[str, Callable[[dict[str, Any], str], Check | None]] = {
    "punctuation:no_comma": lambda *_: no_commas(),
    "length_constraints:number_words": lambda o, _: _range(words, o, "num_words"),
    "length_constraints:number_sentences": lambda o, _: _range(sentences, o, "num_sentences"),
    "length_constraints:number_paragraphs": lambda o, _: _parts(r"\s?\*\*\*\s?", o["num_paragraphs"],
                                                               "paragraphs separated by ***"),
    "length_constraints:nth_paragraph_first_word": _nth_paragraph,
    "detectable_format:number_highlighted_sections": lambda o, _: _found(r"\*\*[^\n*]+\*\*|\*[^\n*]+\*",
                                                                        o["num_highlights"], None, "*highlighted* parts"),
    "detectable_format:number_bullet_lists": lambda o, _: bullets(o["num_bullets"]),
    "detectable_format:title": lambda *_: _found(r"<<[^\n<>]+>>", 1, None, "titles in <<double angular brackets>>"),
    "detectable_format:multiple_sections": _sections,
    "detectable_format:json_format": lambda *_: json_valid(),
    "detectable_format:constrained_response": _one_answer,
    "detectable_content:number_placeholders": lambda o, _: _found(r"\[.*?\]", o["num_placeholders"], None,
                                                                 "placeholders in [square brackets]"),
    "detectable_content:postscript": _postscript,
    "keywords:existence": lambda o, _: contains(*o["keywords"]),
    "keywords:forbidden_words": lambda o, _: forbids(*o["forbidden_words"]),
    "keywords:frequency": lambda o, _: keyword_counts({o["keyword"]: _limits(o, "frequency")}),
    "keywords:letter_frequency": _letters,
    "startend:quotation": lambda *_: _says(_quoted, "Put the whole answer in double quotation marks.", "quoted"),
    "startend:end_checker": lambda o, _: ends_with(o["end_phrase"]),
    "change_case:english_lowercase": lambda *_: lowercase(),
    "change_case:english_capital": lambda *_: uppercase(),
    "change_case:capital_word_frequency": _capital_words,
    "combination:repeat_prompt": _repeats,
    "combination:two_responses": _two,
    "language:response_language": _language,
}  # fmt: skip
