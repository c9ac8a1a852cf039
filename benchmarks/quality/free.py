"""The families of the suite that no grammar holds: what is required relates parts of the text to each other or to the
prompt, or has to be run. Each is a function over the text with partial credit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date
from itertools import pairwise
from typing import Any

from tasks import Judge, with_text

from redraft.checks import Check, check, python_tests
from redraft.checks.segment import split_sentences


def lines_of(text: str) -> list[str]:
    """The lines that hold something, without list marks."""
    return [re.sub(r"^(?:[-*•]|\d+[.)])\s+", "", line).strip() for line in text.splitlines() if line.strip()]


def items_of(text: str) -> list[str]:
    """What stands between commas, spaces or line ends."""
    return [item.strip(" .;:\"'*") for item in re.split(r"[\s,]+", text.strip()) if item.strip(" .;:\"'*-")]


def share(good: int, of: int, complaint: str) -> tuple[float, str]:
    """The score of having `good` of so many."""
    return (1.0, "") if good == of else (max(0.0, min(0.99, good / max(1, of))), complaint)


def sorted_lines(given: Sequence[str]) -> Judge:
    """Just these, one a line, in order."""

    def sorted_items(text: str) -> tuple[float, str]:
        found = [line.lower().strip(" .,") for line in lines_of(text)]
        wanted = {item.lower() for item in given}
        if sorted(found) != sorted(wanted):
            known = len(wanted & set(found))
            return 0.5 * known / len(wanted), f"{known} of the {len(wanted)} items stand alone on a line"
        pairs = sum(a <= b for a, b in pairwise(found))
        return share(pairs, len(found) - 1, f"{len(found) - 1 - pairs} items come before the one above them")

    return sorted_items


def some_words(count: int, fits: Callable[[str], bool], what: str) -> Judge:
    """So many different words, all of which fit."""

    def fitting_words(text: str) -> tuple[float, str]:
        found = [item.lower() for item in items_of(text)]
        if len(found) != count:
            return 0.5 * min(len(found), count) / max(len(found), count), f"{len(found)} words, want {count}"
        good = len({item for item in found if item.isalpha() and fits(item)})
        return share(good, count, f"{count - good} words are repeated or do not {what}")

    return fitting_words


def growing(count: int) -> Judge:
    """Each word is longer than the one before."""

    def growing_words(text: str) -> tuple[float, str]:
        lengths = [len(re.sub(r"\W", "", item)) for item in items_of(text)]
        if len(lengths) != count:
            return 0.2, f"{len(lengths)} words, want {count}"
        rises = sum(a < b for a, b in pairwise(lengths))
        return share(rises, count - 1, f"{count - 1 - rises} words are not longer than the one before")

    return growing_words


def acrostic(name: str) -> Judge:
    """The lines' first letters spell a name."""

    def first_letters(text: str) -> tuple[float, str]:
        found = lines_of(text)
        if len(found) != len(name):
            return 0.2, f"{len(found)} lines, want {len(name)}"
        good = sum(line[:1].upper() == letter for line, letter in zip(found, name, strict=True))
        long = sum(len(line.split()) >= 2 for line in found)
        return share(good + long, 2 * len(name), f"{len(name) - good} lines start with the wrong letter")

    return first_letters


def palindrome(low: int) -> Judge:
    """One word that reads the same backwards."""

    def palindromic(text: str) -> tuple[float, str]:
        word = text.strip(" .\"'!*\n").lower()
        if not word.isalpha() or len(word) < low or len(set(word)) == 1:
            return 0.2, f"not one word of {low} letters or more"
        return (1.0, "") if word == word[::-1] else (0.4, "it does not read the same backwards")

    return palindromic


def anagram(source: str) -> Judge:
    """Another arrangement of the same letters."""

    def rearranged(text: str) -> tuple[float, str]:
        word = text.strip(" .\"'!*\n").lower()
        if word == source:
            return 0.1, "it is the word that was given"
        if not word.isalpha():
            return 0.1, "not one word"
        return (1.0, "") if sorted(word) == sorted(source) else (0.4, "its letters are not those of the word")

    return rearranged


def different_numbers(count: int, total: int) -> Judge:
    """Different whole numbers with a given sum, and nothing else."""

    def summing_numbers(text: str) -> tuple[float, str]:
        found = [int(n) for n in re.findall(r"\d+", text)]
        if re.search(r"[^\d\s,]", text.strip()) or len(set(found)) != count or len(found) != count:
            return (
                0.2,
                f"want {count} different numbers and nothing else, not {len(found)} with {len(set(found))} different",
            )
        return (1.0, "") if sum(found) == total else (0.5, f"they add up to {sum(found)}, not {total}")

    return summing_numbers


def iso_dates(count: int, fits: Callable[[date], bool], what: str) -> Judge:
    """ISO dates, one a line, rising."""

    def rising_dates(text: str) -> tuple[float, str]:
        found = []
        for line in lines_of(text):
            try:
                found.append(date.fromisoformat(line.strip(" .,")))
            except ValueError:
                return 0.2, "a line is no date in the form YYYY-MM-DD"
        if len(found) != count:
            return 0.3, f"{len(found)} dates, want {count}"
        if not all(map(fits, found)):
            return 0.6, f"not all dates are {what}"
        return (1.0, "") if found == sorted(set(found)) else (0.8, "the dates do not rise from line to line")

    return rising_dates


def shortened(source: str, *names: str) -> Judge:
    """At most half as long, names kept, no number or name that was not there."""
    most = len(source.split()) // 2

    def shorter(text: str) -> tuple[float, str]:
        missing = [name for name in names if name not in text]
        size = len(text.split())
        strange = [w for w in re.findall(r"(?<=[a-z,] )[A-Z]\w+|\d+", text) if w not in source]
        parts = [not missing, 3 <= size <= most, not strange]
        said = [f"{', '.join(missing)} missing" * bool(missing), f"{size} words, want 3 to {most}" * (not parts[1])]
        said.append("it adds names or numbers" * bool(strange))
        return share(sum(parts), 3, "; ".join(filter(None, said)))

    return shorter


def avoids(prompt_words: Sequence[str], low: int, high: int) -> Judge:
    """A text of some length that uses none of the task's own words."""
    stems = [w.lower()[: max(4, len(w) - 2)] for w in prompt_words]

    def none_of_the_words(text: str) -> tuple[float, str]:
        size = len(text.split())
        if not low <= size <= high:
            return 0.4, f"{size} words, want {low} to {high}"
        used = [w for w in re.findall(r"\w+", text.lower()) if any(w.startswith(s) for s in stems)]
        return (1.0, "") if not used else (1 / (1 + len(used)), f"{', '.join(sorted(set(used)))} is forbidden")

    return none_of_the_words


def title_case(low: int, high: int) -> Judge:
    """Every word starts with a capital letter and goes on in small ones."""

    def titled(text: str) -> tuple[float, str]:
        found = re.findall(r"[^\W\d_][\w'\u2019]*", text)
        if not low <= len(found) <= high or "\n" in text.strip():
            return 0.2, f"{len(found)} words, want {low} to {high} on one line"
        good = sum(
            (word[0].isupper() and not word[1:].isupper()) or (len(word) == 1 and word.isupper()) for word in found
        )
        return share(good, len(found), f"{len(found) - good} words do not start with a capital letter")

    return titled


def different_starts(count: int) -> Judge:
    """Sentences that start with different letters."""

    def starts_differ(text: str) -> tuple[float, str]:
        found = split_sentences(text)
        if len(found) != count:
            return 0.3, f"{len(found)} sentences, want {count}"
        letters = {re.sub(r"\W", "", sentence)[:1].lower() for sentence in found}
        return share(len(letters), count, f"only {len(letters)} different first letters in {count} sentences")

    return starts_differ


def one_question(low: int, high: int) -> Judge:
    """One question mark, in a text of some length."""

    def single_question(text: str) -> tuple[float, str]:
        size, marks = len(text.split()), text.count("?")
        if not low <= size <= high:
            return 0.4, f"{size} words, want {low} to {high}"
        return (1.0, "") if marks == 1 else (0.5, f"{marks} question marks, want 1")

    return single_question


def _sort(items: str, what: str = "words") -> tuple[str, Check]:
    given = items.split()
    judge = check(sorted_lines(given), tell="Write just the given items, one a line, in alphabetical order.")
    return f"Sort these {what} alphabetically, one per line, and write nothing else: {', '.join(given)}", judge


def _starting(count: int, letter: str, what: str) -> tuple[str, Check]:
    told = f"Write {count} different words, each starting with {letter.upper()}, and nothing else."
    fits = some_words(count, lambda word: word.startswith(letter), f"start with {letter.upper()}")
    return (
        (
            f'Write {count} different {what} that all start with the letter "{letter.upper()}". Single words only, '
            "separated by commas, and nothing else."
        ),
        check(fits, tell=told),
    )


def _ending(count: int, suffix: str) -> tuple[str, Check]:
    fits = some_words(count, lambda word: word.endswith(suffix) and word != suffix, f'end in "{suffix}"')
    told = f'Write {count} different words that end in "{suffix}", and nothing else.'
    return (
        f'Write {count} different words that end in "{suffix}", separated by commas, and nothing else.',
        check(fits, tell=told),
    )


def _acrostic(name: str, about: str) -> tuple[str, Check]:
    told = f"Write {len(name)} lines of two words or more; their first letters spell {name}."
    return (
        (
            f"Write an acrostic about {about}: {len(name)} short lines whose first letters spell {name}. "
            "Write only the lines."
        ),
        check(acrostic(name), tell=told),
    )


def _python(what: str, tests: str) -> tuple[str, Check]:
    return f"Write a Python function {what} Answer with the code only.", python_tests(tests)


def _shorten(source: str, *names: str) -> tuple[str, Check]:
    kept = " and ".join(names)
    told = f"Use at most {len(source.split()) // 2} words, keep {kept}, and add no names or numbers."
    asked = f"Shorten the text to at most {len(source.split()) // 2} words. Keep {kept}, and add nothing new."
    return with_text(asked, source), check(shortened(source, *names), tell=told)


FREE: dict[str, list[tuple[Any, ...]]] = {
    "sorting": [
        _sort("pear apple mango fig"),
        _sort("zebra lion otter", "animals"),
        _sort("Oslo Berlin Madrid Athens", "cities"),
        _sort("plum cherry banana grape lemon", "fruits"),
        _sort("violin drum flute", "instruments"),
    ],
    "initials": [
        _starting(5, "b", "words"),
        _starting(4, "c", "animals or plants"),
        _starting(3, "m", "foods"),
        _starting(6, "s", "words"),
        _starting(4, "p", "jobs or objects"),
    ],
    "endings": [_ending(4, "ing"), _ending(3, "tion"), _ending(4, "er"), _ending(3, "ness")],
    "growing": [
        (f"Write {n} words in which each word is longer than the word before it. Write only the {n} words.",
         check(growing(n), tell=f"Write {n} words; each has more letters than the one before."))
        for n in (3, 4, 5)
    ],
    "acrostics": [_acrostic("MIA", "a girl"), _acrostic("SUN", "summer"), _acrostic("TEA", "a quiet evening"),
                  _acrostic("ROSE", "a garden")],
    "letters": [
        ("Write one English word of at least 3 letters that reads the same backwards. Write only the word.",
         check(palindrome(3), tell="Write one word of 3 letters or more that reads the same backwards.")),
        ('Rearrange the letters of the word "listen" to form another word. Write only the new word.',
         check(anagram("listen"), tell="Use each letter of the word once, in another order.")),
        ('Rearrange the letters of the word "tea" to form another word. Write only the new word.',
         check(anagram("tea"), tell="Use each letter of the word once, in another order.")),
    ],
    "python": [
        _python("add(a, b) that returns the sum of a and b.", "assert add(2, 3) == 5\nassert add(-1, 1) == 0"),
        _python("is_even(n) that returns True if n is even.", "assert is_even(4)\nassert not is_even(7)"),
        _python("initials(name) that returns the first letters of the words of name, in capitals, e.g. 'AL' for "
                "'ada lovelace'.", "assert initials('ada lovelace') == 'AL'\nassert initials('grace brewster hopper') == 'GBH'"),
        _python("count_vowels(text) that counts the letters a, e, i, o and u in text, in any case.",
                "assert count_vowels('Banana') == 3\nassert count_vowels('xyz') == 0\nassert count_vowels('AEIOU') == 5"),
        _python("clamp(x, low, high) that returns x limited to the range low..high.",
                "assert clamp(5, 0, 3) == 3\nassert clamp(-2, 0, 3) == 0\nassert clamp(2, 0, 3) == 2"),
        _python("second_largest(numbers) that returns the second largest different value of a list.",
                "assert second_largest([3, 1, 2]) == 2\nassert second_largest([5, 5, 4]) == 4"),
    ],
    "sums": [
        (f"Write {n} different whole numbers that add up to {total}, separated by spaces, and nothing else.",
         check(different_numbers(n, total), tell=f"Write {n} different whole numbers with the sum {total}, nothing else."))
        for n, total in ((2, 10), (3, 12), (3, 100))
    ],
    "dates": [
        ("List three dates in May 2024 in the form YYYY-MM-DD, one per line, earliest first. Write nothing else.",
         check(iso_dates(3, lambda d: (d.year, d.month) == (2024, 5), "in May 2024"),
               tell="Write 3 dates in May 2024 as YYYY-MM-DD, one a line, earliest first.")),
        ("Write the first day of four different months of 2023 in the form YYYY-MM-DD, one per line, in order.",
         check(iso_dates(4, lambda d: d.year == 2023 and d.day == 1, "the first day of a month of 2023"),
               tell="Write 4 first days of months of 2023 as YYYY-MM-DD, one a line, in order.")),
        ("Suggest two Mondays in the year 2024 for a meeting, in the form YYYY-MM-DD, one per line, earliest first.",
         check(iso_dates(2, lambda d: d.year == 2024 and d.weekday() == 0, "Mondays of 2024"),
               tell="Write 2 Mondays of 2024 as YYYY-MM-DD, one a line, earliest first.")),
    ],
    "shortening": [
        _shorten("Yesterday evening Anna Lopez, who has been working for the city library for many years, opened a new "
                 "reading room for children in Bergen.", "Anna Lopez", "Bergen"),
        _shorten("After a very long and difficult discussion that went on until midnight, the council of Graz decided to "
                 "build a new bridge over the Mur.", "Graz", "Mur"),
        _shorten("We would like to inform you that, because of the bad weather, the concert by Lena Park has been moved "
                 "from Saturday to Sunday.", "Lena Park", "Sunday"),
        _shorten("The small company Nordlicht, which was founded by two sisters in an old garage, now sells its wooden "
                 "toys in eleven countries, says Ida Holm.", "Nordlicht", "Ida Holm"),
    ],
    "own_words": [
        (("Explain in 8 to 30 words what an umbrella protects people from. Do not use any of these words or their forms: "
         "umbrella, protect, people, rain."),
         check(avoids(("umbrella", "protect", "people", "rain"), 8, 30),
               tell="Use 8 to 30 words, and no form of umbrella, protect, people or rain.")),
        (("Describe in 8 to 30 words how bread is baked. Do not use any of these words or their forms: bread, bake, flour, "
         "oven."),
         check(avoids(("bread", "bake", "baking", "flour", "oven"), 8, 30),
               tell="Use 8 to 30 words, and no form of bread, bake, flour or oven.")),
    ],
    "titles": [
        (f"Write a title of {low} to {high} words for {what}. Every word starts with a capital letter. Write only the title.",
         check(title_case(low, high), tell=f"Write {low} to {high} words on one line, each with a capital first letter."))
        for low, high, what in (
            (3, 7, "a book about a lost dog"),
            (4, 8, "a blog post about saving energy at home"),
            (3, 6, "a talk about healthy food"),
        )
    ],
    "starts": [
        (f"Write {n} sentences about {about}. Each sentence must start with a different letter.",
         check(different_starts(n), tell=f"Write exactly {n} sentences; each starts with a different letter."))
        for n, about in ((2, "cats"), (3, "the sea"), (4, "your favourite meal"))
    ],
    "questions": [
        (f"Write {what} in {low} to {high} words that contains exactly one question mark.",
         check(one_question(low, high), tell=f"Use {low} to {high} words and exactly one question mark."))
        for low, high, what in (
            (10, 30, "a message that invites a friend to lunch"),
            (15, 40, "a short e-mail to a hotel about breakfast"),
            (10, 30, "a comment on a photo of a mountain"),
        )
    ],
}  # fmt: skip
