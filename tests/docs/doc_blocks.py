"""How a page is read: its code blocks, what each one asks for, and what its commands are.

An HTML comment right before a block says how it is tested:

    <!-- test: replies ["first reply", "second reply"] -->   run; what the default model answers
    <!-- test: local -->                                     run on the embedded model: make test-local
    <!-- test: doors ["a reply"] -->                         run with another library: make test-doors
    <!-- test: file data.jsonl -->                           written to that file, for the blocks below
    <!-- test: skip needs a key of OpenAI -->                never run, and why

Without one, a `python` block is run and must not call a model; `toml`, `json`, `jsonl` and `yaml` are parsed; `text` is
shown. A `console` block is run if it has replies, and says why not otherwise; the commands of each are parsed by the
command line itself. Left out: docs/design.md (shapes, not code) and docs/adr/.
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
LEFT_OUT = [ROOT / "docs/design.md", ROOT / "docs/adr"]
HOWS = ("replies", "local", "doors", "file", "skip")
RUN = ("python", "console")
PARSED = ("toml", "json", "jsonl", "yaml")
SHOWN = ("text", "csv", "diff")
"""Nothing can be wrong with them by themselves."""

MARKDOWN = MarkdownIt("commonmark")
DIRECTIVE = re.compile(r"<!-- test: (?P<how>\w+) ?(?P<detail>.*?) ?-->\s*\Z", re.DOTALL)
PROMPT = re.compile(r"^\$ (?P<command>(?:.*\\\n)*.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    """Of the code's first line in the page."""
    language: str
    code: str
    how: str | None
    detail: str

    def __str__(self):
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def read_blocks(page, text):
    """Code blocks in order, in lists too; directives of the site (```{name}) are none."""
    blocks, before = [], None
    for token in MARKDOWN.parse(text):
        if token.type in {"fence", "code_block"} and not token.info.startswith("{"):
            said = DIRECTIVE.match(before.content) if before and before.type == "html_block" else None
            fenced = token.type == "fence"
            blocks.append(
                Block(
                    page=page,
                    line=token.map[0] + 1 + fenced,
                    language=(token.info.split() or [""])[0] if fenced else _of_indented(token.content),
                    code=token.content,
                    how=said["how"] if said else None,
                    detail=said["detail"] if said else "",
                )
            )
        before = token
    return blocks


def _of_indented(code):
    return "console" if code.startswith("$ ") else "text"


def pages():
    every = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in every if page.is_file() and not {page, *page.parents} & set(LEFT_OUT)]


def commands(code):
    """(arguments, lines shown below it) of each command after a prompt."""
    parts = PROMPT.split(code)
    return [
        (shlex.split(command.replace("\\\n", " "), comments=True), shown.strip("\n").splitlines())
        for command, shown in zip(parts[1::2], parts[2::2], strict=True)
    ]


def calls_of_redraft(arguments):
    """The arguments of each `redraft` in a line of the shell: after a pipe, `&&` or a variable, up to the next of these."""
    calls, open_call = [], None
    for word, before in zip(arguments, ["|", *arguments], strict=False):
        if word in {"|", "&&", ">", "2>", "<", ";", "&"}:
            open_call = None
        elif word == "redraft" and (before in {"|", "&&", ";", "env"} or re.match(r"\w+=", before)):
            calls.append(open_call := [])
        elif open_call is not None:
            open_call.append(word)
    return calls
