"""Every ```python block of README.md and docs/ runs, block after block, in one namespace a page.

An HTML comment right before a block says how:

    <!-- test: replies ["first reply", "second reply"] -->   what the default model answers
    <!-- test: local -->                                     needs the embedded model: make test-local
    <!-- test: doors ["a reply"] -->                         needs another library, too: make test-doors
    <!-- test: skip needs a key of OpenAI -->                never runs, and why

A block without one must not call a model. Left out: docs/design.md (shapes, not code) and docs/adr/.
"""

import ast
import asyncio
import inspect
import json
import re
import shlex
import sys
import textwrap
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
LEFT_OUT = [ROOT / "docs/design.md", ROOT / "docs/adr"]

DIRECTIVE = re.compile(r"<!-- test: ")
BLOCK = re.compile(
    r"""
    (?:^[ ]*<!--\ test:\ (?P<how>\w+)\ ?(?P<detail>(?:(?!-->).)*?)\ -->\n+)?
    ^(?P<indent>[ ]*)```(?P<language>\w+)[^\n]*\n
    (?P<code>.*?)
    ^(?P=indent)```$
    """,
    re.MULTILINE | re.DOTALL | re.VERBOSE,
)


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
    return [
        Block(
            page=page,
            line=text.count("\n", 0, match.start("code")) + 1,
            language=match["language"],
            code=textwrap.dedent(match["code"]),
            how=match["how"],
            detail=match["detail"] or "",
        )
        for match in BLOCK.finditer(text)
    ]


def pages():
    every = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in every if page.is_file() and not {page, *page.parents} & set(LEFT_OUT)]


TEXTS = {page: page.read_text(encoding="utf-8") for page in pages()}
BLOCKS = [block for page, text in TEXTS.items() for block in read_blocks(page, text)]
PYTHON = [block for block in BLOCKS if block.language == "python"]
COMMANDS = [
    line.removeprefix("$ ")
    for block in BLOCKS
    if block.language in {"bash", "console"}
    for line in block.code.splitlines()
    if line.startswith("$ redraft")
]


TIERS = ("local", "doors")


def pages_with(tier=None):
    """Names of the pages that have something to run in the core tier, or in another one."""
    hows = {tier} if tier else {None, "replies"}
    return sorted({str(b.page.relative_to(ROOT)) for b in PYTHON if b.how in hows})


def run_page(name, monkeypatch, tier=None):
    """Run a page's blocks from top to bottom, as one module."""
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    for block in PYTHON:
        if block.page == ROOT / name and block.how in {None, "replies", tier}:
            set_default_model(block)
            run_block(block, vars(module))


def set_default_model(block):
    from redraft.config import configure
    from redraft.testing import ScriptedLM

    replies = json.loads(block.detail or "[]") if block.how in {"replies", "doors"} else []
    configure(model=None if block.how == "local" else ScriptedLM(replies))


def run_block(block, namespace):
    """Errors show the page's own lines; `await` is allowed at the top, as in a notebook."""
    source = "\n" * (block.line - 1) + block.code
    code = compile(source, str(block.page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    outcome = eval(code, namespace)
    if inspect.iscoroutine(outcome):
        asyncio.run(outcome)


@pytest.fixture
def clean_slate(tmp_path, monkeypatch):
    """An empty folder, no key or model from the environment, and the settings put back afterwards."""
    from redraft import config

    monkeypatch.chdir(tmp_path)
    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "REDRAFT_MODEL"):
        monkeypatch.delenv(variable, raising=False)
    before = config.settings()
    yield
    config.configure(**{field.name: getattr(before, field.name) for field in fields(before)})


@pytest.mark.usefixtures("clean_slate")
@pytest.mark.parametrize("name", pages_with())
def test_a_page_runs(name, monkeypatch):
    run_page(name, monkeypatch)


@pytest.mark.local
@pytest.mark.usefixtures("clean_slate")
@pytest.mark.parametrize("name", pages_with("local"))
def test_a_page_runs_on_the_embedded_model(name, monkeypatch):
    run_page(name, monkeypatch, "local")


@pytest.mark.doors
@pytest.mark.usefixtures("clean_slate")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", pages_with("doors"))
def test_a_page_runs_with_other_libraries(name, monkeypatch):
    run_page(name, monkeypatch, "doors")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_well_quoted(command):
    assert shlex.split(command)[0] == "redraft"


def test_every_directive_is_understood():
    assert [str(b) for b in BLOCKS if b.how not in {None, "local", "doors", "replies", "skip"}] == []
    assert [str(b) for b in BLOCKS if b.how == "skip" and not b.detail] == [], "a skipped block says why"
    stray = {
        page.name
        for page, text in TEXTS.items()
        if len(DIRECTIVE.findall(text)) != sum(block.how is not None for block in read_blocks(page, text))
    }
    assert stray == set(), "a directive stands right before its block"


def test_how_a_page_is_read():
    page = """
Text.

<!-- test: replies ["one",
"two"] -->

```python
x = 1
```

1. In a list:

   ```python
   y = 2
   ```

```console
$ redraft run "a b"
```
"""
    first, second, third = read_blocks(ROOT / "README.md", page)
    assert (str(first), first.code, first.how, json.loads(first.detail)) == (
        "README.md:8",
        "x = 1\n",
        "replies",
        ["one", "two"],
    )
    assert (second.code, second.how) == ("y = 2\n", None)
    assert third.language == "console"


def test_a_block_may_await_at_the_top():
    namespace = {}
    for block in read_blocks(ROOT / "README.md", "```python\nimport asyncio\nx = await asyncio.sleep(0, 3)\n```\n"):
        run_block(block, namespace)
    assert namespace["x"] == 3
