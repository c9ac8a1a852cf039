"""Every code block of README.md and docs/ runs, block after block, in one namespace and one folder a page, or says why not.

`doc_blocks` says how a page asks for it. `make test-docs` ends with what was run, parsed, shown and skipped.
"""

import ast
import asyncio
import inspect
import json
import re
import sys
import tomllib
from dataclasses import fields
from types import ModuleType

import click
import doc_blocks
import pytest
import yaml
from click.testing import CliRunner
from doc_blocks import ROOT, calls_of_redraft, commands, read_blocks

from redraft.cli import main

TEXTS = {page: page.read_text(encoding="utf-8") for page in doc_blocks.pages()}
BLOCKS = [block for page, text in TEXTS.items() for block in read_blocks(page, text)]
CONSOLE = [block for block in BLOCKS if block.language == "console"]
PARSED = [block for block in BLOCKS if block.language in doc_blocks.PARSED and block.how != "skip"]


def runs_in(block, tier=None):
    """True if the block has a part in the core tier, or in another one beside it."""
    if block.how == "file":
        return True
    unmarked = block.how is None and block.language == "python"
    return block.language in doc_blocks.RUN and (unmarked or block.how in {"replies", *([tier] if tier else [])})


def pages_with(tier=None):
    """Names of the pages that have something to run in the core tier, or in another one."""
    found = {str(b.page.relative_to(ROOT)) for b in BLOCKS if (b.how == tier if tier else runs_in(b))}
    return sorted(found)


def run_page(name, monkeypatch, done, tier=None):
    """Run a page's blocks from top to bottom, as one module."""
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    for block in BLOCKS:
        if block.page == ROOT / name and runs_in(block, tier):
            set_default_model(block)
            run_block(block, vars(module))
            done.add(str(block))


def set_default_model(block):
    from redraft.config import configure
    from redraft.testing import ScriptedLM

    replies = json.loads(block.detail or "[]") if block.how in {"replies", "doors"} else []
    configure(model=None if block.how == "local" else ScriptedLM(replies))


def run_block(block, namespace):
    if block.how == "file":
        write_file(block)
    elif block.language == "console":
        run_commands(block)
    else:
        run_python(block, namespace)


def run_python(block, namespace):
    """Errors show the page's own lines; `await` is allowed at the top, as in a notebook."""
    source = "\n" * (block.line - 1) + block.code
    code = compile(source, str(block.page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    outcome = eval(code, namespace)
    if inspect.iscoroutine(outcome):
        asyncio.run(outcome)


def write_file(block):
    from pathlib import Path

    path = Path(block.detail)
    assert not path.is_absolute() and ".." not in path.parts, f"{block}: a page writes below its own folder"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.code, encoding="utf-8")


def run_commands(block):
    """Run each `redraft ...` in this process on the scripted model, whichever it names; `echo $?` shows its exit code.

    The lines that the page shows below a command are in its output, in their order, but for spaces and what `...` stands for.
    """
    code = None
    for arguments, shown in commands(block.code):
        if arguments == ["echo", "$?"]:
            assert shown == [str(code)], f"{block}: the exit code is {code}"
            code = None
            continue
        assert not code, f"{block}: exit code {code}"
        if arguments[0] == "redraft":
            code = run_command(block, without_model(arguments[1:]), shown)
    assert not code, f"{block}: exit code {code}"


def run_command(block, arguments, shown):
    ended = CliRunner().invoke(main, arguments)
    rest = iter(" ".join(line.split()) for line in ended.output.splitlines())
    for line in shown:
        wanted = ".*".join(re.escape(" ".join(part.split())) for part in line.split("..."))
        assert any(re.fullmatch(wanted, said) for said in rest), f"{block}: no {line!r} in\n{ended.output}"
    return ended.exit_code


def without_model(arguments):
    at = next((n for n, word in enumerate(arguments) if word in {"-m", "--model"}), None)
    return arguments if at is None else arguments[:at] + arguments[at + 2 :]


def parse_data(block):
    if block.language == "toml":
        tomllib.loads(block.code)
    elif block.language == "yaml":
        yaml.safe_load(block.code)
    else:
        for text in block.code.splitlines() if block.language == "jsonl" else [block.code]:
            json.loads(text)


def parse_command(arguments):
    """Have the command line read the arguments as it does before it begins."""
    if arguments in (["--version"], ["--help"]):
        return
    command, context, rest = main, click.Context(main, info_name="redraft"), list(arguments)
    while isinstance(command, click.Group) and rest:
        _, command, rest = command.resolve_command(context, rest)
        context = command.make_context(command.name, rest, parent=context, resilient_parsing=False)
        rest = context._protected_args + context.args if isinstance(command, click.Group) else []


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
def test_a_page_runs(name, monkeypatch, blocks_done):
    run_page(name, monkeypatch, blocks_done)


@pytest.mark.local
@pytest.mark.usefixtures("clean_slate")
@pytest.mark.parametrize("name", pages_with("local"))
def test_a_page_runs_on_the_embedded_model(name, monkeypatch, blocks_done):
    run_page(name, monkeypatch, blocks_done, "local")


@pytest.mark.doors
@pytest.mark.usefixtures("clean_slate")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", pages_with("doors"))
def test_a_page_runs_with_other_libraries(name, monkeypatch, blocks_done):
    run_page(name, monkeypatch, blocks_done, "doors")


@pytest.mark.parametrize("block", PARSED, ids=str)
def test_data_is_well_formed(block):
    parse_data(block)


@pytest.mark.usefixtures("clean_slate")
@pytest.mark.parametrize("block", CONSOLE, ids=str)
def test_commands_and_their_options_exist(block):
    for arguments, _ in commands(block.code):
        for call in calls_of_redraft(arguments):
            parse_command(call)


def test_every_block_is_run_or_says_why_not():
    known = (*doc_blocks.RUN, *doc_blocks.PARSED, *doc_blocks.SHOWN)
    assert [str(b) for b in BLOCKS if b.language not in known and b.how is None] == [], f"a block is of {known}"
    silent = [
        b for b in CONSOLE if b.how is None and any(arguments[0] == "redraft" for arguments, _ in commands(b.code))
    ]
    assert [str(b) for b in silent] == []


def test_every_directive_is_understood():
    assert [str(b) for b in BLOCKS if b.how not in {None, *doc_blocks.HOWS}] == []
    assert [str(b) for b in BLOCKS if b.how in {"skip", "file"} and not b.detail] == [], "it says why, or which file"
    stray = {
        page.name
        for page, text in TEXTS.items()
        if text.count("<!-- test: ") != sum(block.how is not None for block in read_blocks(page, text))
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

<!-- test: skip why not -->
```console
$ A=1 redraft run "a b" \\
    --seed 1   # a comment
shown
$ cat x | redraft rlm -
```

    $ indented

```{note}
A directive of the site.
```
"""
    first, second, third, fourth = read_blocks(ROOT / "README.md", page)
    assert (str(first), first.code, first.how, json.loads(first.detail)) == (
        "README.md:8",
        "x = 1\n",
        "replies",
        ["one", "two"],
    )
    assert (second.code, second.how) == ("y = 2\n", None)
    assert (third.language, third.how, third.detail) == ("console", "skip", "why not")
    ran = commands(third.code)
    assert ran == [
        (["A=1", "redraft", "run", "a b", "--seed", "1"], ["shown"]),
        (["cat", "x", "|", "redraft", "rlm", "-"], []),
    ]
    assert [calls_of_redraft(arguments) for arguments, _ in ran] == [[["run", "a b", "--seed", "1"]], [["rlm", "-"]]]
    assert fourth.language == "console"


def test_a_block_may_await_at_the_top():
    namespace = {}
    for block in read_blocks(ROOT / "README.md", "```python\nimport asyncio\nx = await asyncio.sleep(0, 3)\n```\n"):
        run_block(block, namespace)
    assert namespace["x"] == 3


CONSOLE_PAGE = """<!-- test: replies ["Hi there."] -->
```console
$ redraft run "Greet" -m openai/some --strategy predict --max-tokens 5 -q --check words:2
{shown}
$ echo $?
{code}
```
"""


@pytest.mark.usefixtures("clean_slate")
def test_what_a_command_shows_is_what_it_says():
    def play(shown, code):
        (block,) = read_blocks(ROOT / "README.md", CONSOLE_PAGE.format(shown=shown, code=code))
        set_default_model(block)
        run_block(block, {})

    play("Hi ...", 0)
    with pytest.raises(AssertionError, match=r"no .Ho there"):
        play("Ho there.", 0)
    with pytest.raises(AssertionError, match="the exit code is 0"):
        play("Hi there.", 1)


@pytest.mark.usefixtures("clean_slate")
def test_a_command_that_does_not_exist_is_found():
    parse_command(["runs", "list"])
    with pytest.raises(click.NoSuchOption, match="--sed"):
        parse_command(["run", "x", "--sed", "1"])
    with pytest.raises(click.UsageError, match="No such command"):
        parse_command(["runs", "lost"])
