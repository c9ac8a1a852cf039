"""What Sphinx does not do by itself for this site: docstrings of this house, its settings' tables, links out of docs/."""

# ruff: noqa: INP001 - an extension of the site, no part of the package

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst.states import Inliner
from pygments.lexers.data import JsonLexer
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util import inspect
from sphinx.util.docutils import SphinxDirective

import redraft

ROOT = Path(__file__).parents[2]
LINKED = frozenset(name for name in redraft.__all__ if name[0].isupper())
LINK_OUT = re.compile(r"(?<!!)\[([^\]]+)\]\((?!\w+:)([^)#\s]+)(?:#[^)]*)?\)")
SPAN = re.compile(r"(`[^`]+`)(?=(\w)?)")
REPLIES = re.compile(r"^<!-- test: replies (\[.*\]) *-->$", re.MULTILINE)
OPTION = re.compile(r"`[\w=, `]+`(?: and `\w+`)?: ")


def code_role(
    _name: str, rawtext: str, text: str, _line: int, inliner: Inliner, *_more: Any
) -> tuple[list[nodes.Node], list[nodes.system_message]]:
    """Single backticks: code, and a link where it is a public name."""
    text = rawtext[1:-1] if rawtext.startswith("`") else text  # with its backslashes
    shown = nodes.literal(rawtext, text)
    name = text.removesuffix("()")
    if name not in LINKED:
        return [shown], []
    env = inliner.document.settings.env
    link = addnodes.pending_xref(
        rawtext, shown, refdomain="py", reftype="obj", reftarget=f"redraft.{name}", refdoc=env.docname, refwarn=True
    )
    return [link], []


def as_rst(_app: Sphinx, _what: str, _name: str, _thing: Any, _options: Any, lines: list[str]) -> None:
    """Docstrings are read as they are written: indented code is code, and a line that opens with an option is an item."""
    done: list[str] = []
    for block in re.split(r"\n\s*\n", "\n".join(lines).strip("\n")):
        if block.startswith("    ") or (block.startswith("  ") and done and done[-1].startswith("    ")):
            done += [block] if done and done[-1].startswith("    ") else ["::", block]
        else:
            done.append(itemised(SPAN.sub(lambda found: f"{found[1]}\\ " if found[2] else found[1], block)))
    lines[:] = "\n\n".join([*done, ""]).split("\n")


def itemised(paragraph: str) -> str:
    """A paragraph in which each line that opens with an option begins an item."""
    first, *rest = paragraph.split("\n")
    lines = [f"- {first}" if OPTION.match(first) else first]
    for line in rest:
        in_item = lines[-1].startswith(("- ", "  "))
        if OPTION.match(line):
            lines += [*([] if in_item else [""]), f"- {line}"]
        else:
            lines.append(f"  {line.strip()}" if in_item else line)
    return "\n".join(lines)


def own_signature(
    _app: Sphinx, what: str, _name: str, thing: Any, _options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """A class whose base is of a library that is not here has its constructor's signature all the same."""
    if what != "class" or signature is None or not signature.startswith("(*args"):
        return signature, returns
    constructor = inspect.signature(thing.__init__, bound_method=True)
    return inspect.stringify_signature(constructor, show_return_annotation=False), returns


def links_out(app: Sphinx, docname: str, content: list[str]) -> None:
    """A link to a file that is no page of the site gives the file."""
    folder = (Path(app.srcdir) / docname).parent

    def shown(match: re.Match[str]) -> str:
        text, target = match.groups()
        path = (folder / target).resolve()
        page = str(path.relative_to(app.srcdir)).removesuffix(".md") if path.is_relative_to(app.srcdir) else None
        return match[0] if page in app.env.found_docs or path.suffix == "" else f"[{text}](path:{target})"

    content[0] = LINK_OUT.sub(shown, content[0])


class SettingsTable(SphinxDirective):
    """`{settings} src/redraft/x.py:Class`: the fields of a dataclass as keys of a TOML table; options leave some out."""

    required_arguments = 1
    option_spec = {"omit": str.split}  # noqa: RUF012 - as docutils declares it

    def run(self) -> list[nodes.Node]:
        """The table."""
        path, name = self.arguments[0].split(":")
        self.env.note_dependency(str(ROOT / path))
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
        rows = ["| key | is | default | |", "|---|---|---|---|"]
        rows += [row(*found) for found in fields(body) if found[0] not in self.options.get("omit", [])]
        return self.parse_text_to_nodes("\n".join(rows))


def fields(body: list[ast.stmt]) -> list[tuple[str, str, str, str]]:
    """(name, type, default, docstring) of each public field."""
    found = []
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not node.target.id.startswith("_"):
            said = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            default = ast.unparse(node.value) if node.value else ""
            found.append((node.target.id, ast.unparse(node.annotation), default, " ".join(str(said).split())))
    return found


KINDS = {
    "str": "text",
    "int": "whole number",
    "float": "number",
    "bool": "true or false",
    "Budget": "table",
    "ToolRules": "table",
}


def row(name: str, kind: str, default: str, said: str) -> str:
    """One line of the table, in TOML's words."""
    kind = kind.removesuffix(" | None")
    kind = "list of texts" if kind.startswith("tuple[str") else KINDS.get(kind, kind)
    default = default.replace("'", '"')
    if default in ("None", '""', "()") or default.startswith("field("):
        default = ""
    elif default.startswith("("):
        default = f"[{default[1:-1].rstrip(',')}]"
    return f"| `{name}` | {kind} | {default and f'`{default}`'} | {said} |"


def replies_shown(_app: Sphinx, _docname: str, source: list[str]) -> None:
    """Above a block that runs on a scripted model stands what that model replies."""

    def line(found: re.Match[str]) -> str:
        replies = [" ".join(reply.split())[:70] for reply in json.loads(found[1]) if isinstance(reply, str)]
        return (
            found[0] + "\n*The model replies:* " + ", ".join(f"`` {reply} ``" for reply in replies) + ".\n"
            if replies
            else found[0]
        )

    source[0] = REPLIES.sub(line, source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Sphinx calls it."""
    app.add_role("house", code_role)
    app.add_lexer("jsonl", JsonLexer)
    app.connect("autodoc-process-docstring", as_rst)
    app.connect("autodoc-process-signature", own_signature)
    app.connect("source-read", links_out)
    app.connect("source-read", replies_shown)
    app.add_directive("settings", SettingsTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
