"""The site is whole: public names are in the reference, pages in the navigation, and no link between them is dead.

`make docs` builds it and fails on a warning; this is what can be known without Sphinx.
"""

import ast
import re
from fnmatch import fnmatch
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import click
import pytest
from doc_blocks import MARKDOWN, ROOT

import redraft
from redraft import config
from redraft.cli import main

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
LINKED = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
ROOMS = (
    "batch",
    "checks",
    "evaluate",
    "judges",
    "learn",
    "modules",
    "proactive",
    "rlm",
    "sandbox",
    "store",
    "strategies",
    "testing",
)
DOORS = ("dspy", "instructor", "langchain", "openai", "otel", "pydantic_ai")

TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
AUTODOC = re.compile(r"^\.\. (auto\w+):: ([\w.]+)\n((?:   :.*\n)*)", re.MULTILINE)


def documented():
    """Full names, and whole modules with what is left out of each."""
    names, modules = set(), {}
    for page in (DOCS / "reference").glob("*.md"):
        for kind, name, options in AUTODOC.findall(page.read_text(encoding="utf-8") + "\n"):
            if kind == "automodule":
                left_out = re.search(r":exclude-members: (.*)", options)
                modules[name] = set(left_out[1].split(", ")) if left_out else set()
            else:
                names.add(name)
    return names, modules


def has_page(name, module):
    names, modules = documented()
    return (
        f"redraft.{name}" in names or f"{module}.{name}" in names or (module in modules and name not in modules[module])
    )


def test_each_public_name_is_in_the_reference():
    modules = {"checks", "errors", "testing"}
    missing = [
        name
        for name in redraft.__all__
        if name not in modules | {"__version__"} and f"redraft.{name}" not in documented()[0]
    ]
    assert missing == []
    assert {f"redraft.{name}" for name in modules} <= set(documented()[1])


def test_the_table_of_the_reference_is_whole():
    text = (DOCS / "reference/index.md").read_text(encoding="utf-8")
    tables = re.findall(r"^\.\. autosummary::\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    listed = [name for table in tables for name in re.findall(r"^   (\w+)$", table, re.MULTILINE)]
    assert sorted(listed) == sorted(set(redraft.__all__) - {"checks", "errors", "testing", "__version__"})


@pytest.mark.parametrize("room", ROOMS)
def test_each_public_name_of_a_room_is_in_the_reference(room):
    names = import_module(f"redraft.{room}").__all__
    assert [name for name in names if not has_page(name, f"redraft.{room}")] == []


def test_each_door_is_in_the_reference():
    assert {f"redraft.integrations.{door}" for door in DOORS} <= set(documented()[1])
    named = (ROOT / "src/redraft/integrations/__init__.py").read_text(encoding="utf-8")
    said = re.search(r"^The doors: (.*)\. The other", named, re.MULTILINE)[1].split(", ")
    assert set(said) - {"mcp"} <= set(DOORS), "mcp is a command"


def test_what_the_reference_names_is_there():
    names, modules = documented()
    for name in [*names, *modules]:
        if not name.startswith("redraft.integrations."):
            home, _, attribute = name.rpartition(".")
            assert hasattr(import_module(home), attribute) or import_module(name), name


def in_navigation(docname, seen):
    """Pages that are reached from this one by its tables of contents."""
    path = DOCS / f"{docname}.md"
    if docname in seen or not path.is_file():
        return seen
    seen.add(docname)
    known = {str(page.relative_to(DOCS)).removesuffix(".md") for page in PAGES}
    for table in TOCTREE.findall(path.read_text(encoding="utf-8")):
        for entry in (line.strip() for line in table.splitlines() if line.strip() and not line.startswith(":")):
            whole = str(Path(docname).parent / entry) if docname != "index" else entry
            for found in [name for name in known if fnmatch(name, whole)] if "*" in entry else [whole]:
                in_navigation(found, seen)
    return seen


def test_each_page_is_in_the_navigation():
    every = {str(page.relative_to(DOCS)).removesuffix(".md") for page in PAGES}
    assert every - in_navigation("index", set()) == set()
    assert '"adr/0000-template.md"' in (DOCS / "conf.py").read_text(encoding="utf-8"), "it is no page of the site"


def headings(page):
    """The anchors of a page, as the site and the forges make them."""
    tokens = MARKDOWN.parse(page.read_text(encoding="utf-8"))
    texts = [after.content for token, after in pairwise(tokens) if token.type == "heading_open"]
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in texts}


def links(page):
    """Where the links of a page lead, but for other sites."""
    for token in MARKDOWN.parse(page.read_text(encoding="utf-8")):
        for child in token.children or ():
            target = child.attrGet("href") or child.attrGet("src") or ""
            if target and not re.match(r"\w+:", target):
                yield unquote(target)


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_link_is_dead(page):
    dead = []
    for target in links(page):
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and anchor not in headings(there)):
            dead.append(target)
    assert dead == []


def test_a_file_of_settings_is_described_whole():
    text = (DOCS / "reference/toml.md").read_text(encoding="utf-8")
    assert [key for key in config.FILE_SETTINGS if f"| `{key}` |" not in text] == []
    assert [table for table in config.TABLES if not re.search(rf"^## \[{table}\b", text, re.MULTILINE)] == []
    keys = "".join(re.findall(r"^\| `.*$", text[text.index("keys_file") :], re.MULTILINE))
    assert [key for key in settings_of("keys") if f"`{key}`" not in keys] == []


def settings_of(module):
    """`_SETTINGS` of a module of the server, which is not imported: it needs its extra."""
    tree = ast.parse((ROOT / f"src/redraft/server/{module}.py").read_text(encoding="utf-8"))
    values = [node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == "_SETTINGS"]
    return ast.literal_eval(values[0])


def commands_below(command, path="redraft"):
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands_below(below, f"{path} {name}")


def test_no_help_shows_its_mark_up():
    """Click keeps the lines of a paragraph after a backspace, which a raw docstring spells out."""
    spoilt = [path for path, command in commands_below(main) if r"\b" in command.get_help(click.Context(command))]
    assert spoilt == []
