"""Stories and lists as HTML: one text that holds its own style and script, asks no server for anything, and lets no other
script run. jinja2 escapes whatever is printed; nothing that a run holds is read as Markdown or HTML.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Mapping
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from redraft import __version__
from redraft.errors import ConfigError
from redraft.jsonable import plain
from redraft.report.diff import Piece
from redraft.report.page import shown
from redraft.report.page.charts import HEIGHT, WIDTH, curve_of
from redraft.report.page.evaluation import Evaluation
from redraft.report.page.listing import Listing
from redraft.report.page.story import Story

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

_MARKS = {"=": "%s", "-": "<del>%s</del>", "+": "<ins>%s</ins>"}
TEMPLATES = Path(__file__).with_name("templates")


def report(story: Story, data: Mapping[str, Any]) -> str:
    """One run as a file of its own. `data` is what its reader can save as JSON."""
    return _page("run.html", story=story, packed=_packed(data), served=False)


def _packed(data: Mapping[str, Any]) -> str:
    packed = gzip.compress(json.dumps(data, ensure_ascii=True, default=plain).encode("ascii"), mtime=0)
    return base64.b64encode(packed).decode("ascii")


def run_page(story: Story) -> str:
    """One run as a page of `redraft view`, which follows it while it is at work."""
    return _page("run.html", story=story, packed="", served=True)


def run_part(story: Story) -> str:
    """What of that page changes while the run goes on."""
    return _rendered("run_main.html", story=story, served=True)


def list_page(listing: Listing) -> str:
    """All runs as a page of `redraft view`."""
    return _page("list.html", listing=listing, served=True)


def list_part(listing: Listing) -> str:
    """What of that page changes."""
    return _rendered("list_main.html", listing=listing, served=True)


def evaluation_page(told: Evaluation) -> str:
    """An evaluation as a page of `redraft view`."""
    return _page("evaluation.html", told=told, packed="", served=True)


def evaluation_report(told: Evaluation, data: Mapping[str, Any]) -> str:
    """An evaluation as a file of its own, as `report` makes one of a run."""
    return _page("evaluation.html", told=told, packed=_packed(data), served=False)


def error_page(title: str, text: str) -> str:
    """A page that says what went wrong."""
    return _page("error.html", title=title, text=text, served=True)


def needed() -> None:
    """Raises `ConfigError` where the template library is not installed."""
    if find_spec("jinja2") is None:
        raise ConfigError("the page needs the package jinja2: pip install 'redraft[server]'")


def policy(*, served: bool) -> str:
    """The Content-Security-Policy of the page: its own style and script and nothing else."""
    style, script = _asset("page.css"), _asset("page.js")
    asks = "'self'" if served else "'none'"
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; connect-src {asks}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _page(template: str, *, served: bool, **values: Any) -> str:
    style, script = _asset("page.css"), _asset("page.js")
    return _rendered(
        template, policy=policy(served=served), style=style, script=script, version=__version__, served=served, **values
    )


def _rendered(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Environment:
    needed()
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        finalize=shown.finalized,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        seconds=shown.seconds,
        number=shown.number,
        cut=shown.cut,
        score=shown.score,
        gain=shown.gain,
        chance=shown.chance,
        money=shown.money,
        cost=shown.cost_of,
        tokens=shown.tokens_of,
        moment=shown.moment,
        url=_url,
        percent=_percent,
        opening=_opening,
        diffed=_diffed,
    )
    made.globals.update(curve_of=curve_of, WIDTH=WIDTH, HEIGHT=HEIGHT)
    return made


@cache
def _asset(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(sha256(text.encode()).digest()).decode('ascii')}"


def _diffed(pieces: Iterable[Piece]) -> Markup:
    """A word diff. Made here, for a template takes a second for what a long run has of them."""
    from markupsafe import Markup, escape

    marked = (_MARKS[piece.op] % escape(shown.visible(piece.text)) for piece in pieces)
    return Markup("").join(map(Markup, marked))


def _url(text: str) -> str:
    """A text as one part of an address."""
    return quote(text, safe="", errors="surrogatepass")


def _opening(text: str) -> str:
    """With a capital letter, the rest as it is."""
    return text[:1].upper() + text[1:]


def _percent(share: float) -> str:
    return f"{share:.0%}"
