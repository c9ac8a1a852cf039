"""Helpers for the code in a sandbox: to look at a part, to find, to cut, and to ask about each piece.

Plain functions without generators and classes, so that every interpreter can run this very source. They are given to
the model by name; `llm_map` is there only where the host gives `llm_query_batched`.
"""

import re

HELPERS = ("peek", "grep", "chunk", "llm_map")


def peek(text: str, start: int = 0, n: int = 500) -> str:
    """`n` characters (or items) of `text` from `start` on, and how much there is in all, as text to print."""
    size = len(text)
    if start < 0:
        start = max(size + start, 0)
    part = text[start : start + n]
    shown = part if isinstance(part, str) else repr(part)
    return f"[{start}:{start + len(part)} of {size}] {shown}"


def grep(pattern: str, text: str | list[str], window: int = 80, limit: int = 50) -> list[dict[str, object]]:
    """The first `limit` matches of a regular expression: a list of `{"position", "line", "match", "text"}`.

    `line` counts from 1; `text` is the match with up to `window` characters around it. A list of texts is looked
    through one by one, and each hit says which (`item`, from 0).
    """
    hits: list[dict[str, object]] = []
    if not isinstance(text, str):
        for item in range(len(text)):
            for hit in grep(pattern, str(text[item]), window, limit - len(hits)):
                hit["item"] = item
                hits.append(hit)
            if len(hits) >= limit:
                break
        return hits
    line = 1
    counted = 0
    for found in re.finditer(pattern, text):
        if len(hits) >= limit:
            break
        start = found.start()
        end = found.end()
        line = line + text.count("\n", counted, start)
        counted = start
        around = text[max(start - window, 0) : end + window]
        hits.append(
            {"position": start, "line": line, "match": text[start:end][:2000], "text": around[: 2000 + 2 * window]}
        )
    return hits


def chunk(text: str, n: int, overlap: int = 0, by: str = "line") -> list[str]:
    """`text` in pieces of at most `n` characters, each beginning with the last `overlap` of the one before.

    `by` says where pieces end where they can: "line", "paragraph" (an empty line) or "char" (anywhere). Without an
    overlap the pieces joined are the text.
    """
    marks = {"line": "\n", "paragraph": "\n\n", "char": ""}
    if by not in marks:
        raise ValueError(f'by={by!r}: "line", "paragraph" or "char"')
    if n < 1 or overlap < 0 or overlap >= n:
        raise ValueError(f"n={n}, overlap={overlap}: n is at least 1, and overlap less than n")
    mark = marks[by]
    pieces = []
    start = 0
    size = len(text)
    while start < size:
        end = min(start + n, size)
        if end < size and mark:
            # not within the overlap: the next piece has to get further
            found = text.rfind(mark, start + overlap, end)
            if found < 0 and by == "paragraph":
                mark_end = text.rfind("\n", start + overlap, end)
                end = mark_end + 1 if mark_end >= 0 else end
            elif found >= 0:
                end = found + len(mark)
        pieces.append(text[start:end])
        if end >= size:
            break
        start = end - overlap
    return pieces


def llm_map(ask, chunks, schema=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - anything
    """One answer for each chunk, in order, all asked at the same time.

    `ask` is a function from a chunk to a prompt, or a text with {chunk} (and {i}, its number from 0) in it.
    """
    prompts = []
    for i in range(len(chunks)):
        piece = chunks[i]
        if isinstance(ask, str):
            whole = ask if "{chunk}" in ask else ask + "\n\n{chunk}"
            parts = whole.split("{chunk}")
            prompts.append(str(piece).join([part.replace("{i}", str(i)) for part in parts]))
        else:
            prompts.append(ask(piece))
    if schema is None:
        return llm_query_batched(prompts)  # type: ignore[name-defined]  # noqa: F821 - the host's
    return llm_query_batched(prompts, schema=schema)  # type: ignore[name-defined]  # noqa: F821 - the host's
