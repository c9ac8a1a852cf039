"""From a reply to the code in it: lenient about fences, languages and form, and never guessing at half a reply.

What a reply says in prose is prose: `FINAL(x)` or a variable's name in it is neither an answer nor code.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from typing import NamedTuple

from redraft.types import Completion

_PYTHON = frozenset({"python", "py", "python3", "py3", "ipython", "repl", "pycon", "tool_code"})
# Possessive: a model may go on with blanks to its limit of tokens, and no part of these may look at them twice.
_OPEN = re.compile(r"[ \t]*+(?P<marks>`{3,}+|~{3,}+)[ \t]*+\{?+\.?+(?P<language>[\w+-]*+)[^`\n]*+$")
_INLINE = re.compile(r"[ \t]*+```[ \t]*+(?:(?P<language>[\w+-]++)[ \t]++(?=[^`]))?+(?P<code>[^`\n]++)```[ \t]*+$")
_DSPY = re.compile(r"\[\[ ## code ## \]\](.*?)(?:\[\[ ## \w++ ## \]\]|\Z)", re.DOTALL)
_TRIES = 20  # fence ends that are tried: bounds the time that garbage takes
_BLOCKS = 50
_LONGEST = 200_000  # characters that are parsed at once, and in all to find a fence's end


class Reply(NamedTuple):
    """What a reply holds: the code to run, or why there is none."""

    code: str = ""
    thought: str = ""
    """What stands before the code; all of the reply, if there is none."""
    shown: str = ""
    """The reply as far as it was read: what stands after the code was written without knowing what the code prints."""
    note: str = ""
    """What the model has to know of how it was read."""
    fault: str = ""
    """Why nothing can be run; empty if there is code."""


class _Block(NamedTuple):
    language: str
    code: str
    start: int
    end: int
    closed: bool

    @property
    def is_python(self) -> bool:
        return self.language in _PYTHON or (not self.language and is_python(self.code))


def read(completion: Completion) -> Reply:
    """The code of a reply. Of several blocks the first one counts: the others were written without seeing its output."""
    choice = completion.choices[0]
    text = choice.text if isinstance(choice.text, str) else ""
    cut = choice.finish_reason == "length"
    if not text.strip():
        return Reply(thought=choice.reasoning, fault=_why_empty(completion))
    blocks = _blocks(text)
    block = next((b for b in blocks if b.is_python and b.code.strip()), None)
    block = block or next((b for b in blocks if not b.language and b.code.strip()), None)
    if block is None:
        return _bare(text, blocks, cut=cut)
    thought = text[: block.start].strip()
    if cut and not block.closed:
        return Reply(thought=thought, shown=text, fault=_CUT)
    note = ""
    if more := sum(b.is_python and b.start > block.start for b in blocks):
        note = (
            f"Only the first code block was run: {more} more {'was' if more == 1 else 'were'} not. One block a reply."
        )
    return Reply(code=_plain(block), thought=thought, shown=text[: block.end].rstrip(), note=note)


def _bare(text: str, blocks: list[_Block], *, cut: bool) -> Reply:
    """A reply without a block that could be run."""
    found = _framed(text)
    if found is None and not blocks and looks_like_code(text):
        found = text
    if cut:
        return Reply(thought=text.strip(), shown=text, fault=_CUT)
    if found is not None and found.strip():
        return Reply(code=found.strip(), thought="" if found is text else text[: text.find(found)].strip(), shown=text)
    if any(b.is_python or not b.language for b in blocks):
        return Reply(thought=text.strip(), shown=text, fault=f"The code block is empty. {_ASK}")
    if blocks:
        return Reply(thought=text.strip(), shown=text, fault=f"Only Python runs here, no {blocks[0].language}. {_ASK}")
    return Reply(thought=text.strip(), shown=text, fault=f"There was no code in your reply, so nothing was run. {_ASK}")


def _framed(text: str) -> str | None:
    """Code in the forms of other frameworks: a JSON object's `code`, or DSPy's marks."""
    if match := _DSPY.search(text):
        return match[1].strip()
    if text.lstrip().startswith("{"):
        try:
            found = json.loads(text, strict=False)
        except (ValueError, RecursionError):
            return None
        if isinstance(found, dict) and isinstance(found.get("code"), str):
            return str(found["code"])
    return None


def _blocks(text: str) -> list[_Block]:
    """The fenced blocks in order. A fence inside a string of the code does not end it: code ends where it parses."""
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    blocks: list[_Block] = []
    at = 0
    while at < len(lines) and len(blocks) < _BLOCKS:
        if match := _INLINE.match(lines[at].rstrip("\n")):
            language = (match["language"] or "").casefold()
            blocks.append(_Block(language, match["code"].strip(), starts[at], starts[at + 1], closed=True))
        elif match := _OPEN.match(lines[at].rstrip("\r\n")):
            end, closed = _end_of(lines, at, match)
            code, after = "".join(lines[at + 1 : end]), min(end + closed, len(lines))
            blocks.append(_Block(match["language"].casefold(), code, starts[at], starts[after], closed))
            at = after
            continue
        at += 1
    return blocks


def _end_of(lines: list[str], at: int, opened: re.Match[str]) -> tuple[int, bool]:
    """The line that closes a fence, and whether there is one."""
    mark, least = opened["marks"][0], len(opened["marks"])
    closes = re.compile(rf"^[ \t]*{re.escape(mark)}{{{least},}}[ \t]*$")
    may_hold_fences = opened["language"].casefold() in ("", *_PYTHON)
    first, tried, parsed = 0, 0, 0
    for end in range(at + 1, len(lines)):
        if not closes.match(lines[end].rstrip("\r\n")):
            continue
        first, tried = first or end, tried + 1
        code = "".join(lines[at + 1 : end])
        if not may_hold_fences or is_python(code):
            return end, True
        parsed += len(code)
        if tried == _TRIES or parsed > _LONGEST:
            break
    return (first, True) if first else (len(lines), False)


def _plain(block: _Block) -> str:
    """The code without a doctest's prompts and the indentation of a list that it stands in."""
    import textwrap

    code = textwrap.dedent(block.code.expandtabs(4) if block.code[:1] == "\t" else block.code).strip("\n")
    lines = code.splitlines()
    if lines and lines[0].startswith(">>> "):
        return "\n".join(line[4:] for line in lines if line.startswith((">>> ", "... ")))
    return code.rstrip()


def _parsed(code: str) -> ast.Module | None:
    if len(code) > _LONGEST:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import textwrap

            return ast.parse(textwrap.dedent(code))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def is_python(code: str) -> bool:
    """True if it parses."""
    return _parsed(code) is not None


_DOES = (
    ast.Assign,
    ast.AugAssign,
    ast.Import,
    ast.ImportFrom,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.For,
    ast.While,
    ast.With,
    ast.If,
    ast.Try,
)


def looks_like_code(text: str) -> bool:
    """True for a text that parses and does something: "Done" and "Answer: yes" parse, too."""
    tree = _parsed(text)
    if tree is None:
        return False
    for node in tree.body:
        if isinstance(node, _DOES) or (isinstance(node, ast.AnnAssign) and node.value is not None):
            return True
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await):
            return True
    return False


def _why_empty(completion: Completion) -> str:
    choice = completion.choices[0]
    if choice.tool_calls:
        return f"You called a tool, but there are none: functions are called in the code. {_ASK}"
    if choice.reasoning.strip():
        limit = " until your limit of tokens" if choice.finish_reason == "length" else ""
        return f"You only thought{limit} and wrote nothing. Think less. {_ASK}"
    return f"Your reply was empty. {_ASK}"


_ASK = "Reply with one ```python block."
_CUT = f"Your reply was cut at its limit of tokens, and nothing of it was run. Write less. {_ASK}"
