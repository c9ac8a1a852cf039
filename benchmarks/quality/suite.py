"""The suite: short, product-like tasks, each with a requirement that code can verify.

Nothing here is a reference answer: a check sees what a program in production would see (form, counts, words, whether a
value stands in the source), so that a strategy that may look at checks learns nothing it could not have known.
The families below can mostly be held while decoding; those of `free.py` cannot.
"""

from __future__ import annotations

import json
import re
from typing import Any

from free import FREE
from tasks import Task, numbered, with_text

from redraft.checks import (
    bullets,
    check,
    contains,
    ends_with,
    forbids,
    json_schema,
    keyword_counts,
    lowercase,
    matches,
    no_commas,
    number,
    one_of,
    paragraphs,
    sentences,
    starts_with,
    uppercase,
    words,
)

WORDS = [
    ("Write a product description for a stainless steel water bottle in 20 to 30 words.", words(20, 30)),
    ("Describe a rainy morning in a small town. Use between 25 and 40 words.", words(25, 40)),
    ("Write a push notification for a pizza delivery app. Use at most 12 words.", words(1, 12)),
    ("Explain to a child what a spreadsheet is. Use at least 30 and at most 50 words.", words(30, 50)),
    ("Write a slogan for a bicycle shop in exactly 6 words.", words(6)),
    ("Write an out-of-office reply of 30 to 45 words.", words(30, 45)),
    ("Say in 15 to 20 words why sleep matters.", words(15, 20)),
    ("Write a newspaper headline of 5 to 8 words about a new city park.", words(5, 8)),
    ("Write a thank-you note to a teacher, between 40 and 60 words long.", words(40, 60)),
]
SENTENCES = [
    ("Describe how to make tea in exactly 3 sentences.", sentences(3)),
    ("Write a bio for a nurse named Carla. Use exactly 2 sentences.", sentences(2)),
    ("Tell a short story about a lighthouse in exactly 4 sentences.", sentences(4)),
    ("Review a hotel near the beach in 2 or 3 sentences.", sentences(2, 3)),
    ("In one sentence, explain what a firewall does.", sentences(1)),
    ("Apologize to a customer for a late parcel in exactly 3 sentences.", sentences(3)),
    ("Describe your ideal weekend in 5 sentences, no more and no fewer.", sentences(5)),
]
BULLETS = [
    ('List exactly 3 benefits of walking as bullets that start with "- ".', bullets(3)),
    ('Give exactly 4 tips for saving money, each on its own line starting with "- ".', bullets(4)),
    ('What should I pack for a hike? Answer with exactly 5 bullets that start with "- ".', bullets(5)),
    ('Name 3 features of a good password as a list of exactly 3 "- " bullets.', bullets(3)),
    ('Write meeting notes about a website launch as exactly 4 bullets that start with "- ".', bullets(4)),
    ('List exactly 2 advantages of electric cars as "- " bullets.', bullets(2)),
    ('Write the steps to change a light bulb as exactly 5 bullets that start with "- ".', bullets(5)),
    ('Give 3 reasons to learn a language. Use exactly 3 bullets that start with "- ".', bullets(3)),
]
PARAGRAPHS = [
    ("Write 2 short paragraphs about bees, with an empty line between them.", paragraphs(2)),
    ("Introduce a coffee shop in exactly 2 short paragraphs, separated by an empty line.", paragraphs(2)),
    ("Write a short letter to a neighbor in exactly 3 paragraphs, separated by empty lines.", paragraphs(3)),
    ("Explain recycling in a single paragraph, without line breaks.", paragraphs(1)),
]
KEYWORDS = [
    ('Write one or two sentences for a garden shop. Use the words "tulip", "spring" and "discount".',
     contains("tulip", "spring", "discount")),
    ('Describe a train journey. Your text must contain "window", "river" and "ticket".',
     contains("window", "river", "ticket")),
    ('Write a short welcome message that mentions "Harbor Gym" and "locker".', contains("Harbor Gym", "locker")),
    ('Write a short weather report that contains "wind", "Tuesday" and "umbrella".',
     contains("wind", "Tuesday", "umbrella")),
    ('Recommend a laptop for students. Mention "battery", "weight" and "price".',
     contains("battery", "weight", "price")),
    ('Write a sentence that contains both "volcano" and "library".', contains("volcano", "library")),
    ('Write a short note to a landlord that contains the words "heating", "repair" and "Friday".',
     contains("heating", "repair", "Friday")),
]  # fmt: skip
FORBIDDEN = [
    ('Describe a summer day in two sentences without the words "sun", "hot" or "warm".',
     sentences(2), forbids("sun", "hot", "warm")),
    ('Explain in one or two sentences what a dog is. Do not use the words "animal" or "pet".',
     sentences(1, 2), forbids("animal", "pet")),
    ('Write an advertisement of 10 to 25 words for a phone. Do not use the words "phone" or "best".',
     words(10, 25), forbids("phone", "best")),
    ('Describe chocolate in one sentence without the words "sweet", "brown" or "delicious".',
     sentences(1), forbids("sweet", "brown", "delicious")),
    ('Say in 10 to 30 words why people travel. Do not use the words "and" or "the".',
     words(10, 30), forbids("and", "the")),
    ('Write two sentences about winter without the words "snow", "cold" and "ice".',
     sentences(2), forbids("snow", "cold", "ice")),
]  # fmt: skip
KEYWORD_COUNTS = [
    ('Write a short text about gardens in which the word "green" appears exactly 3 times.',
     keyword_counts({"green": 3})),
    ('Write two or three sentences about a ship. Use the word "sea" exactly twice.', keyword_counts({"sea": 2})),
    ('Write a cheerful message in which the word "happy" appears exactly twice.', keyword_counts({"happy": 2})),
    ('Write a short text about school. Use the word "book" exactly once and the word "teacher" exactly twice.',
     keyword_counts({"book": 1, "teacher": 2})),
    ('Write a slogan in which the word "fresh" appears exactly 3 times.', keyword_counts({"fresh": 3})),
]  # fmt: skip
LOWERCASE = [
    ("Describe the city of Paris in 10 to 25 words. Use lowercase letters only.", words(10, 25), lowercase()),
    ("Write one sentence about a cat called Tom. Write everything in lowercase.", sentences(1), lowercase()),
    ("Write a chat message of 8 to 20 words that asks for a day off, all in lowercase letters.",
     words(8, 20), lowercase()),
    ("Write a short caption of 4 to 12 words for a holiday photo. No capital letters.", words(4, 12), lowercase()),
    ("Write a one-sentence joke about programmers, in lowercase letters only.", sentences(1), lowercase()),
]  # fmt: skip
UPPERCASE = [
    ("Write a warning sign for a wet floor in 3 to 10 words. Use capital letters only.", words(3, 10), uppercase()),
    ("Write a sale banner for a shoe shop, 4 to 10 words, all in capital letters.", words(4, 10), uppercase()),
    ("Announce in one sentence that school is closed today. WRITE IN CAPITAL LETTERS ONLY.", sentences(1), uppercase()),
    ("Write a telegram of 8 to 20 words about a safe arrival, all in capital letters.", words(8, 20), uppercase()),
]
NO_COMMAS = [
    ("Describe a market in two sentences without any commas.", sentences(2), no_commas()),
    ("Write an invitation to a birthday party of 15 to 35 words. Do not use commas.", words(15, 35), no_commas()),
    ("Name the four seasons in one sentence without using a comma.", sentences(1), no_commas()),
    ("Write a reminder of 10 to 25 words to buy milk and bread and eggs. Use no commas.", words(10, 25), no_commas()),
    ("Tell in exactly three sentences what firefighters do. Do not use any comma.", sentences(3), no_commas()),
]
START_END = [
    ('Write a short e-mail of 15 to 40 words that starts with "Dear team" and ends with "Best regards".',
     words(15, 40), starts_with("Dear team"), ends_with("Best regards")),
    ('Write a fairy tale of 20 to 45 words. Start with "Once upon a time" and end with "The end."',
     words(20, 45), starts_with("Once upon a time"), ends_with("The end.")),
    ('Answer in 10 to 30 words why the sky is blue. Start your answer with "Because".',
     words(10, 30), starts_with("Because")),
    ('Write a support reply of 15 to 40 words that ends with "Is there anything else I can help with?"',
     words(15, 40), ends_with("Is there anything else I can help with?")),
    ('Write a sentence that begins with "Yesterday" and ends with "again."',
     sentences(1), starts_with("Yesterday"), ends_with("again.")),
    ('Write a release note of 8 to 30 words that starts with "Fixed:".', words(8, 30), starts_with("Fixed:")),
]  # fmt: skip
_LABEL = "Answer with one of these labels and nothing else"
LABELS = [
    (with_text(f"What is the sentiment of the review? {_LABEL}: positive, negative, neutral",
               "The room was dirty and nobody answered the phone."), one_of("positive", "negative", "neutral")),
    (with_text(f"Which team should handle the ticket? {_LABEL}: billing, shipping, technical",
               "I was charged twice for the same order."), one_of("billing", "shipping", "technical")),
    (with_text(f"How urgent is the message? {_LABEL}: low, medium, high",
               "Our production server has been down for an hour."), one_of("low", "medium", "high")),
    (with_text(f"Is this message spam? {_LABEL}: yes, no", "You won a free cruise! Click here to claim it."),
     one_of("yes", "no")),
    (with_text(f"What is the topic of the headline? {_LABEL}: sports, politics, science, business",
               "Local team wins the cup after extra time"), one_of("sports", "politics", "science", "business")),
    (with_text(f"Which language is the text written in? {_LABEL}: English, French, German, Spanish",
               "Der Zug kommt heute leider später."), one_of("English", "French", "German", "Spanish")),
]  # fmt: skip


def _digits(text: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", text)]


def _even(text: str) -> tuple[float, str]:
    found = _digits(text)
    return (1.0, "") if len(found) == 1 and found[0] % 2 == 0 else (0.0, "the number is not even")


def _multiple_of_7(text: str) -> tuple[float, str]:
    found = _digits(text)
    return (1.0, "") if len(found) == 1 and found[0] % 7 == 0 else (0.0, "the number is not a multiple of 7")


def _adds_up(text: str) -> tuple[float, str]:
    found = _digits(text)
    if len(found) != 3:
        return 0.0, f"{len(found)} numbers, want the form A + B = C"
    a, b, c = found
    return (1.0, "") if a + b == c else (0.3, f"{a} + {b} is {a + b}, not {c}")


def _different_digits(text: str) -> tuple[float, str]:
    digits = re.findall(r"\d", text)
    return (1.0, "") if len(set(digits)) == len(digits) == 4 else (0.3, "the four digits are not all different")


NUMBERS = [
    ("Pick a whole number between 50 and 60. Answer with the number only.", number(50, 60, integer=True)),
    ("Pick an even number between 100 and 120. Answer with the number only.",
     number(100, 120, integer=True), check(_even, tell="The number is even.")),
    ("Name a multiple of 7 between 30 and 90. Answer with the number only.",
     number(30, 90, integer=True), check(_multiple_of_7, tell="The number is a multiple of 7.")),
    ("How many minutes does it take to boil an egg? Answer with a number from 1 to 20 only.", number(1, 20, integer=True)),
    ("Write one addition of two whole numbers that gives 50, in the form A + B = 50. Nothing else.",
     matches(r"\d+ \+ \d+ = 50"), check(_adds_up, tell="The addition is right.")),
    ("Invent a 4-digit PIN in which all digits are different. Answer with the 4 digits only.",
     matches(r"\d{4}"), check(_different_digits, tell="All four digits are different.")),
]  # fmt: skip


def _schema(**types: str) -> dict[str, Any]:
    kinds = {name: {"type": kind} for name, kind in types.items()}
    return {"type": "object", "properties": kinds, "required": [*kinds], "additionalProperties": False}


def _extract(what: str, source: str, **types: str) -> tuple[Any, ...]:
    listed = ", ".join(f'"{name}" ({"a text" if kind == "string" else "a number"})' for name, kind in types.items())
    prompt = with_text(
        f"Extract {what} as JSON with the keys {listed}. Copy the values from the text. Answer with JSON only.", source
    )
    return prompt, json_schema(_schema(**types)), check(_grounded(source), tell="Copy the values from the text.")


def _grounded(source: str) -> Any:
    def values_stand_in_the_text(text: str) -> tuple[float, str]:
        try:
            found = json.loads(text)
        except ValueError:
            return 0.0, "not JSON"
        found = list(found.values()) if isinstance(found, dict) else [found]
        strange = [v for v in found if not str(v).strip() or str(v).lower() not in source.lower()]
        return 1 - len(strange) / max(1, len(found)), f"{len(strange)} values do not stand in the text"

    return values_stand_in_the_text


JSON = [
    _extract("the person", "Maria Jensen, 34, works as a pilot in Oslo.", name="string", age="integer", city="string"),
    _extract("the order", "Please send 12 blue mugs to Aachen by Friday.",
             item="string", quantity="integer", city="string"),
    _extract("the event", "The jazz night starts at 20:30 in the Old Mill.", event="string", time="string",
             place="string"),
    _extract("the product", "Our desk lamp Luma costs 39 euros.", product="string", price="integer"),
    _extract("the flight", "Flight LX 318 leaves Zurich for London at gate B27.",
             flight="string", origin="string", gate="string"),
    _extract("the book", "Emma was written by Jane Austen and published in 1815.",
             title="string", author="string", year="integer"),
    _extract("the contact", "You can reach Omar Haddad at omar@example.org.", name="string", email="string"),
    _extract("the recipe facts", "The lentil soup serves 4 and takes 35 minutes.",
             dish="string", servings="integer", minutes="integer"),
]  # fmt: skip
COMBINATIONS = [
    ('Write exactly 3 "- " bullets about autumn. Use no commas.', bullets(3), no_commas()),
    ('Write exactly 2 sentences about coffee that mention "Ethiopia".', sentences(2), contains("Ethiopia")),
    ('Write 15 to 30 words about a robot in lowercase letters only. Mention "battery".',
     words(15, 30), lowercase(), contains("battery")),
    ('Write exactly 4 "- " bullets about a picnic that mention "blanket".', bullets(4), contains("blanket")),
    ('Write one sentence of 10 to 20 words about rivers without the word "water".',
     sentences(1), words(10, 20), forbids("water")),
    ('Write exactly 2 sentences that start with "Our museum" and contain no commas.',
     sentences(2), starts_with("Our museum"), no_commas()),
    ('Write a headline of 4 to 9 words in capital letters only. Mention "MOON".',
     words(4, 9), uppercase(), contains("MOON")),
    ('Write a customer message of 20 to 40 words that starts with "Hello" and mentions "refund". Use no commas.',
     words(20, 40), starts_with("Hello"), contains("refund"), no_commas()),
]  # fmt: skip

HELD: dict[str, list[tuple[Any, ...]]] = {
    "words": WORDS,
    "sentences": SENTENCES,
    "bullets": BULLETS,
    "paragraphs": PARAGRAPHS,
    "keywords": KEYWORDS,
    "forbidden": FORBIDDEN,
    "keyword_counts": KEYWORD_COUNTS,
    "lowercase": LOWERCASE,
    "uppercase": UPPERCASE,
    "no_commas": NO_COMMAS,
    "start_end": START_END,
    "labels": LABELS,
    "numbers": NUMBERS,
    "json": JSON,
    "combinations": COMBINATIONS,
}


def tasks() -> list[Task]:
    """All of them, in a fixed order."""
    return [task for family, prompts in {**HELD, **FREE}.items() for task in numbered(family, prompts)]
