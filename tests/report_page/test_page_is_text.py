"""Whatever a model or a user wrote is text on the page: nothing of it runs, hides, or steers."""

import base64
import gzip
import html
import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from page_runs import Journal, Read, issue

from redraft.report.page import render
from redraft.report.page.shown import visible
from redraft.report.page.story import story

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "' autofocus onfocus='alert(1)",
    "</pre></textarea></script><svg onload=alert(1)>",
    "[click](javascript:alert(1)) ![x](http://evil.example/p.png)",
    "{{ 7 * 7 }} {% raw %} {# no #}",
    "&lt;b&gt; &amp;amp; &#x3c;",
    "\x1b[31mred\x1b[0m\x1b]8;;http://evil.example\x07link\x1b]8;;\x07",
    "\u202eright to left\u202c \u2066isolated\u2069 zero\u200bwidth \ufeff",
    "nul\x00nul \x7f \x9b",
    "half \ud83d of a pair \udc00",
    "\U000e0041\U000e0042 tags",
]


def told(text):
    """A run in which the text stands wherever a text can stand."""
    journal = Journal()
    limits = {"calls": 3, "tokens": None, "cost": None, "seconds": None}
    journal(
        "run",
        key="run",
        seed=1,
        version=1,
        budget=limits,
        spec={"strategy": text, "inputs": {text: text, "task": text}},
    )
    for n in (0, 1):
        scope = f"/attempt[{n}]"
        journal("propose", scope, scope, index=n, rung="edit", why=text, parent=n - 1 if n else None)
        asked = journal.asked(text, scope=f"{scope}/{text}", key=f"k{n}", role=text, grammar=text)
        journal.answered(asked, text, scope=f"{scope}/{text}", key=f"k{n}")
        verdict = {"check": text, "passed": False, "score": 0.5, "explanation": text, "hard": True}
        score = {"value": n / 2, "feedback": text, "verdicts": [verdict]}
        value = {
            "code": text,
            "output": text,
            "error": text,
            "reasoning": text,
            "calls": [{"function": text, "prompt": text}],
        }
        journal("step", f"{scope}/m", f"{scope}/m|step:{text}|1", name=text, value=value)
        journal("lint", scope, text=text)
        journal(
            "attempt",
            scope,
            scope,
            index=n,
            parent=n - 1 if n else None,
            rung="edit",
            text=f"{text} {n}",
            score=score,
            error=text if n else None,
            usage={},
        )
        raised = issue(text, text, text, text)
        journal("critique", scope, scope, index=n, verdict="revise", issues=[raised], keep=[text], by=text)
        journal("accept", scope, scope, index=n, reason=text)
    journal("stop", "", "|stop", reason="error", error=text)
    return journal.events


@pytest.fixture(scope="module")
def harmless():
    """What stands on a page in which every text is one word."""
    return shape(render.report(story("r", told("word")), {}))


def shape(page):
    return sorted({(tag, tuple(sorted(attrs))) for tag, attrs in Read(page).tags})


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_markup(text, harmless):
    page = render.report(story("r", told(text)), {"text": text})
    assert shape(page) == harmless
    read = Read(page)
    assert [attrs for _, attrs in read.tags for name in attrs if name.startswith("on")] == []
    links = [attrs["href"] for _, attrs in read.tags if "href" in attrs]
    assert all(re.fullmatch(r"#[\w-]+|data:,", link) for link in links)
    shown = "".join(read.text)
    assert visible(text).split()[0] in shown


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    st.one_of(st.text(min_size=1, max_size=60), st.lists(st.sampled_from(HOSTILE), min_size=1, max_size=4).map("".join))
)
def test_whatever_is_written_the_page_has_the_same_elements(harmless, text):
    page = render.report(story("r", told(f"x{text}")), {"text": text})
    page.encode("utf-8")
    assert shape(page) == harmless


@given(st.text(max_size=80))
def test_visible_text_hides_and_steers_nothing(text):
    seen = visible(text)
    seen.encode("utf-8")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069\ufeff]", seen)
    assert visible(seen) == seen


@given(st.text(alphabet="abc \n\t\u00e9\u4e2d\u0627\U0001f600<>&\"'", max_size=80))
def test_ordinary_text_is_shown_as_it_is(text):
    assert visible(text) == text


def test_the_page_asks_nobody_for_anything():
    page = render.report(story("r", told("word")), {})
    assert "connect-src 'none'" in html.unescape(page)
    for tag, attrs in Read(page).tags:
        assert not {"src", "srcset", "action", "style", "integrity"} & set(attrs), (tag, attrs)
    own = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert "http" not in own.replace("http-equiv", "")
    assert "@import" not in page
    assert "url(" not in page


def test_the_file_holds_the_run_as_json():
    page = render.report(story("r", told("</script>\u00e9\ud83d")), {"text": "</script>\u00e9\ud83d"})
    packed = re.search(r'<script type="application/gzip" id="data">([^<]*)</script>', page)[1]
    assert json.loads(gzip.decompress(base64.b64decode(packed))) == {"text": "</script>\u00e9\ud83d"}


def test_a_very_long_text_is_cut_on_the_page():
    page = render.report(story("r", told("word " * 40_000)), {})
    assert "more characters are not shown" in page
    assert "200,000" not in html.unescape(page)


def test_the_templates_print_into_quoted_attributes_only_and_trust_nothing_but_our_own_files():
    for file in render.TEMPLATES.glob("*.html"):
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"\s[\w-]+=\{\{", text), file.name  # an attribute without quotes
        trusted = re.findall(r"\{\{\s*(\w+)[^}]*\|\s*safe", text)
        assert trusted == (["style", "script"] if file.name == "base.html" else []), file.name
        assert "autoescape" not in text
        assert not re.search(r'href="\{\{', text), file.name  # a link begins with our own words


def test_style_and_script_stay_small():
    lines = {file.name: len(file.read_text().splitlines()) for file in render.TEMPLATES.iterdir()}
    assert lines["page.css"] <= 300
    assert lines["page.js"] <= 200
