"""Sentences whose label a reader knows and no keyword gives away, and how the oracle finds the label again.

`#` stands for a number, `@` for a name and `_` for the thing spoken of; `stem` puts them back into a written sentence.
"""

from __future__ import annotations

import re

NAMES = (
    *("Ada", "Boris", "Carmen", "Dilip", "Elena", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Kira", "Lionel"),
    *("Mara", "Nils", "Oksana", "Pavel", "Quentin", "Rosa", "Selim", "Tove", "Umar", "Vera", "Wanda", "Yusuf"),
)
PLACES = (
    *("Lisbon", "Oslo", "Quito", "Dakar", "Hanoi", "Perth", "Turin", "Lagos", "Kyoto", "Riga", "Lima", "Cork"),
    *("Basel", "Accra", "Minsk", "Tunis", "Malmo", "Patna", "Tampa", "Ghent"),
)
THINGS = ("kettle", "lamp", "backpack", "toaster", "jacket", "headset", "blender", "chair")

_NAME = re.compile(rf"\b(?:{'|'.join((*NAMES, *PLACES))})\b")
_THING = re.compile(rf"\b(?:{'|'.join(THINGS)})\b")
_NUMBER = re.compile(r"\d+")

OPENERS = (
    *("", "Bought it for my sister.", "Second time I order here.", "Got the _ in spring.", "Saw it at a friend's."),
    *("My old one broke.", "It was a present.", "Ordered two of them."),
)

REVIEWS = {
    "positive": (
        *(
            "The _ does what it should, day after day.",
            "I would not give it away again.",
            "Better than the one I had for # years.",
        ),
        *(
            "My neighbours ask me where I got it.",
            "It was here before I had even looked for the mail.",
            "Not one thing to complain about.",
        ),
        *(
            "I feared it would be cheap, and it is not.",
            "Worth every cent of the # euros.",
            "Support wrote back within # minutes and meant it.",
        ),
        *("Everything was in the box, down to the last screw.",),
    ),
    "neutral": (
        *(
            "It is a _, no more and no less.",
            "Does the job, I suppose.",
            "Neither good nor bad, I will see in # months.",
        ),
        *(
            "Some days I like it, some days I do not.",
            "About what one expects for # euros.",
            "I have not formed an opinion yet.",
        ),
    ),
    "late delivery": (
        *(
            "It turned up # days after the birthday it was meant for.",
            "The parcel saw more of the country than I did before it came to me.",
        ),
        *("Promised for Monday, here on the Friday # weeks on.", "By the time it arrived I had bought another."),
        *("Tracking stood still for # days.",),
    ),
    "poor quality": (
        *(
            "The handle came off in my hand on day #.",
            "After # weeks it looks # years old.",
            "The seams gave way at the first tug.",
        ),
        *("It smells of glue and wobbles.", "One fall from the table and that was that."),
    ),
    "bad support": (
        *("# mails, and each time the same ready-made answer.", "They hung up on me after # minutes of music."),
        *("Nobody there seems to read what one writes.", "I was sent from one desk to the next, # times."),
        *("Their chat told me to ask their phone line, which told me to ask their chat.",),
    ),
    "wrong size": (
        *("My son could live in it, and I ordered for him.", "The table says # centimetres, my ruler does not agree."),
        *(
            "It does not go over my shoulders.",
            "Two of me would fit.",
            "It stands out a hand's breadth over the shelf it was made for.",
        ),
    ),
    "missing parts": (
        *("Where # screws should be there were #.", "The cable that is in the picture was not in the box."),
        *("The manual speaks of a lid that I have never seen.", "Half of it came, the other half did not."),
        *("I had to buy the plug myself.",),
    ),
    "misleading description": (
        *("The page says steel, the magnet says otherwise.", "In the photo it is blue, on my desk it is grey."),
        *("Waterproof, they wrote; it rained once.", "It is called silent and wakes the house."),
        *("They call it new and somebody's name is on it.",),
    ),
}
"""Positive, neutral, and six themes of complaints: each of those is negative."""

QUESTIONS = {
    "abbreviation": (
        *("What does the A in the file of @ stand for?", "What is the full form of the letters on the door of @?"),
        *("Which words are shortened in the badge that @ wears?", "What do the initials under the letter from @ mean?"),
    ),
    "entity": (
        *(
            "What instrument does @ play?",
            "Which animal sleeps on the desk of @?",
            "What did @ carry through the rain?",
        ),
        *("What colour did @ paint the door?", "Which language do @ and @ speak to each other?"),
    ),
    "description": (
        *(
            "What is the smell that @ keeps talking about like?",
            "Why did @ leave the table?",
            "How did @ come to be so quiet?",
        ),
        *("What is meant by the tide of @?", "How does one tune the old radio of @?"),
    ),
    "human": (
        *("Whose shoes stand in the hall of @?", "Who taught @ to swim?", "Which sister of @ sings?"),
        *("What is the name of the person that @ wrote to?", "Who came after @ in the race?"),
    ),
    "location": (
        *("Where does @ spend the winter?", "What town was @ born in?", "In which room did @ hide the letter?"),
        *("What is the harbour from which @ sailed?", "Which street does @ take home?"),
    ),
    "numeric": (
        *(
            "How many stairs lead up to the flat of @?",
            "What is the weight of the trunk that @ lifted?",
            "When did @ arrive?",
        ),
        *("What share of the bill did @ pay?", "How far is it from @ to the sea?"),
    ),
}
"""The six coarse classes of TREC's questions, as OOLONG's trec_coarse has them; the sentences are our own."""

CLOSINGS = {
    "resolved": (
        *(
            "That did it, thank you.",
            "Oh, it blinks again. Good.",
            "You are right, it was the cable.",
            "I can get in now.",
        ),
        *("Then I am happy.", "It came through this minute.", "My daughter found it while we spoke, all is well."),
    ),
    "open": (
        *(
            "Then I shall write again tomorrow.",
            "No, still the same red light.",
            "I did that already, # times.",
            "So I wait, do I.",
        ),
        *("That page does not load for me either.", "I will ask somebody else.", "It says error # now."),
    ),
}
"""How a customer's last message ends a support session."""

CAUSES = (
    ("config set db.pool.max from # to #", "orders-db: no free connection after # ms"),
    ("rotated signing key of auth to version #", "gateway: token signature does not match, key #"),
    ("moved cache to node cache-#", "catalog: lookup took # ms, limit # ms"),
    ("lowered memory of worker to # MB", "worker: process # ended by signal 9"),
    ("shortened log volume to # GB", "audit: write failed, # bytes left on device"),
    ("closed port # of the mail relay", "mailer: connection refused, message # kept"),
)
"""A change, and the error that it brings about."""

NOISE = (
    *("payments: card # declined by issuer", "search: query # cancelled by client", "images: file # is no picture"),
    *("gateway: client # sent too many requests", "orders: order # has no items", "export: row # skipped, empty name"),
)
"""Errors that come all the time and that no change explains."""

CALM = (
    *(
        "gateway: GET /cart/# took # ms",
        "orders: order # placed",
        "payments: card # charged",
        "search: query # gave # hits",
    ),
    *("worker: job # done in # ms", "mailer: message # sent", "catalog: # items reloaded", "auth: session # opened"),
)

FILLER = (
    *("The road to the mill was dry that year.", "Nobody in the village kept clocks.", "Rain came late and stayed."),
    *("They spoke of boats, and of the price of salt.", "A door stood open and let the dust in."),
    *("The old bridge had been mended twice.", "In autumn the carts went slower.", "Somebody sang behind the wall."),
    *("The market closed at noon.", "Letters were read aloud in the square.", "It was said that the well was deep."),
)
DECOYS = (
    *(
        "@ counted # sheep on the way to the market.",
        "The boat of @ has carried # sacks of salt.",
        "@ was born in a house with # windows.",
    ),
    *("For # days nobody had seen @.",),
)
NEEDLE = "Before the winter @ had the spare key put on hook #."

LABELS = {
    **{stem: label for bank in (REVIEWS, QUESTIONS, CLOSINGS) for label, stems in bank.items() for stem in stems},
}


def stem(text: str) -> str:
    """The sentence with its numbers, names and things taken out again."""
    return _NUMBER.sub("#", _NAME.sub("@", _THING.sub("_", text)))


def label(text: str) -> str | None:
    """What a reader would say of the text: the label of its last known sentence; None if it holds none."""
    whole = stem(text.strip())
    if whole in LABELS:
        return LABELS[whole]
    found = None
    for opener in OPENERS:
        if opener and whole.startswith(opener):
            found = LABELS.get(whole[len(opener) :].strip(), found)
    return found
