import itertools

import pytest

from redraft.lm.thoughts import ThoughtSplitter

CASES = {
    "plain": ("", "plain"),
    "": ("", ""),
    "  ": ("", "  "),
    "<think>hm</think>yes": ("hm", "yes"),
    "\n<think>\nhm\n</think>\n\n yes \n": ("\nhm\n", "yes \n"),
    "<think>never ends": ("never ends", ""),
    "<think>a < b </thin": ("a < b </thin", ""),
    "<think></think>": ("", ""),
    "<thinking>aloud": ("", "<thinking>aloud"),
    "<thi": ("", "<thi"),
    "so: <think>no</think>": ("", "so: <think>no</think>"),
    "<think>a</think>b</think><think>c": ("a", "b</think><think>c"),
}


@pytest.mark.parametrize(("text", "wanted"), CASES.items())
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 100])
def test_the_cuts_do_not_matter(text, wanted, size):
    splitter = ThoughtSplitter()
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    got = [splitter.feed(piece) for piece in pieces] + [splitter.flush()]
    assert ("".join(reasoning for reasoning, _ in got), "".join(said for _, said in got)) == wanted


def test_text_is_not_held_back():
    splitter = ThoughtSplitter()
    assert list(itertools.chain.from_iterable(splitter.feed(p) for p in ("<think>one ", "two</think>", "thr", "ee"))) == [
        "one ", "", "two", "", "", "thr", "", "ee",
    ]  # fmt: skip
