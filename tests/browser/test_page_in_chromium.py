"""The page as people meet it. That no page logs an error or asks another host holds for every test: see `browse`."""

import gzip
import json
import re
import time

import pytest

from redraft.report.page import render
from redraft.report.page.data import run_data
from redraft.report.page.redact import Redactor
from redraft.report.page.story import story
from redraft.types import Event

pytestmark = pytest.mark.browser

BACKGROUND = "getComputedStyle(document.body).backgroundColor"


def tasks(page):
    return page.locator("tr.run:not([hidden]) td.task a").all_inner_texts()


@pytest.fixture
def report(kept, tmp_path):
    """`report("review")` is the address of that run's file."""

    def write(run_id):
        events = Redactor().events(kept.read(run_id))
        file = tmp_path / "report.html"
        file.write_text(
            render.report(story(run_id, events), run_data(kept.run(run_id), events, Redactor())), encoding="utf-8"
        )
        return file.as_uri()

    return write


def test_the_list_is_filtered_as_one_types_and_the_address_remembers_it(browse, site):
    page = browse(site)
    assert len(tasks(page)) == 4
    page.fill("#q", "river")
    assert tasks(page) == ["A line about a river"]
    assert page.inner_text("#found") == "1 of 4"
    again = browse(page.evaluate("location.href"))
    assert tasks(again) == ["A line about a river"]
    again.fill("#q", "")
    again.select_option("#state", "bad")
    assert tasks(again) == ["It fails"]


def test_the_list_is_sorted_by_any_column(browse, site):
    page = browse(site)
    calls = page.locator("th[data-key=calls]")
    calls.locator("button").click()
    assert calls.get_attribute("aria-sort") == "descending"
    assert tasks(page)[0] == "A line about a river"
    calls.locator("button").click()
    assert calls.get_attribute("aria-sort") == "ascending"
    assert tasks(page)[-1] == "A line about a river"


def test_a_run_is_opened_from_the_list_with_the_keyboard_alone(browse, site):
    page = browse(site)
    page.keyboard.press("/")
    page.keyboard.type("review la")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/run/review*")
    assert page.inner_text("h1") == "Review La Maison"
    assert "Every check passed" in page.inner_text(".verdict")


def test_j_and_k_go_from_draft_to_draft(browse, site):
    page = browse(f"{site}run/review")
    seen = []
    for key in "jjjk":
        page.keyboard.press(key)
        seen.append(page.evaluate("document.activeElement.id"))
    assert seen == ["r1", "r2", "r3", "r2"]
    assert page.evaluate("location.hash") == "#r2"


def test_the_diff_and_the_text_of_a_draft(browse, site):
    page = browse(f"{site}run/review")
    card = page.locator("#r3")
    pane = card.locator(".pane:visible")
    assert card.locator("ins:visible").all_inner_texts() == ["Its soup is warm."]
    card.get_by_text("Text", exact=True).click()
    assert pane.inner_text() == "La Maison has good food. Its soup is warm. Go there."
    assert card.locator("del:visible").count() == 0
    card.get_by_text("Changes to draft 1").click()
    assert "Good" in card.locator("del:visible").all_inner_texts()
    page.keyboard.press("d")
    assert "Its soup is warm." in card.locator("ins:visible").all_inner_texts()


def test_issues_say_whether_they_were_addressed(browse, site):
    page = browse(f"{site}run/poem")
    fate = page.locator("#r1 .fate").inner_text()
    assert fate.startswith("addressed")
    assert "in draft 2" in fate


def test_a_permalink_to_a_call_opens_its_prompt(browse, site):
    page = browse(f"{site}run/review#c1")
    page.locator("#c1 pre").first.wait_for()
    assert page.locator("#c1").get_attribute("open") is not None
    assert not page.locator("#c2 pre").first.is_visible()
    page.locator("table.calls a[href='#c2']").click()
    page.locator("#c2 pre").first.wait_for()  # the address changes first, and the page hears of it later


@pytest.mark.parametrize("dark", [False, True])
def test_colours_follow_the_system_and_the_reader(browse, site, dark):
    page = browse(site, dark=dark)
    first = page.evaluate(BACKGROUND)
    page.click("#theme")
    other = page.evaluate(BACKGROUND)
    assert other != first
    page.reload()
    assert page.evaluate(BACKGROUND) == other
    page.keyboard.press("t")
    page.keyboard.press("t")
    assert page.evaluate(BACKGROUND) == first


@pytest.mark.parametrize("dark", [False, True])
def test_every_text_can_be_told_from_what_is_behind_it(browse, site, dark):
    for path in ("", "run/review", "run/poem", "run/failed"):
        page = browse(f"{site}{path}", dark=dark)
        page.evaluate("document.querySelectorAll('details').forEach((d) => (d.open = true))")
        assert page.evaluate(FAINT) == []


def test_a_run_at_work_is_followed_and_what_was_opened_stays_open(browse, site, kept):
    def say(seq, kind, scope="", **data):
        kept.append("live", [Event(seq=seq, kind=kind, time=1000.0 + seq, scope=scope, key=scope or kind, data=data)])

    asked = json.dumps({"messages": [{"role": "user", "content": "Say it"}], "model": "m"})
    say(0, "run", seed=1, version=1, budget=None, spec={"task": "Work on it", "strategy": "Refine"})
    say(1, "propose", "/attempt[0]", index=0, rung="tell", why="the first draft", parent=None)
    say(2, "intent", "/attempt[0]", content=asked, role="author", cap=None, reserved={"calls": 1})
    page = browse(f"{site}run/live")
    assert page.locator(".working").is_visible()
    page.locator("#c1 summary").click()
    say(
        3,
        "attempt",
        "/attempt[0]",
        index=0,
        parent=None,
        rung="tell",
        text="Here it is",
        score=None,
        error=None,
        usage={},
    )
    page.locator("#r1").get_by_text("Here it is").wait_for()
    assert page.locator("#c1").get_attribute("open") is not None
    say(4, "accept", "/attempt[0]", index=0, reason="the first draft")
    say(5, "stop", reason="passed", error=None)
    page.get_by_text("Every check passed").wait_for()
    assert page.locator(".working").count() == 0
    assert page.locator("#live").get_attribute("data-live") == ""


def test_a_new_run_comes_into_the_list_and_the_filter_still_holds(browse, site, kept):
    page = browse(f"{site}?q=brand")
    assert tasks(page) == []
    kept.append(
        "fresh",
        [Event(seq=0, kind="run", time=time.time(), key="run", data={"seed": 1, "spec": {"task": "Brand new"}})],
    )
    page.get_by_text("Brand new").wait_for()
    assert tasks(page) == ["Brand new"]
    kept.delete("fresh")


def test_what_a_model_wrote_does_nothing(browse, site):
    for path in ("", "run/hostile"):
        page = browse(f"{site}{path}")
        assert page.title() != "taken"
        assert "<script>document.title" in page.inner_text("main")
        assert page.locator("main img, main script").count() == 0


def test_the_report_works_from_disk(browse, report):
    page = browse(report("review"))
    assert page.inner_text("h1") == "Review La Maison"
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.id") == "r1"
    with page.expect_download() as saved:
        page.click("#save")
    assert saved.value.suggested_filename == "review.json"
    data = json.loads(saved.value.path().read_text(encoding="utf-8"))
    assert data["run_id"] == "review"
    assert [a["text"] for a in data["refinements"][0]["attempts"]][-1].startswith("La Maison has good food.")


def test_the_page_is_whole_without_a_script(browse, report):
    page = browse(report("review"), java_script_enabled=False)
    assert page.locator("#r3 ins").first.is_visible()
    page.locator("#r3").get_by_text("Text", exact=True).click()
    assert page.locator("#r3 del:visible").count() == 0


def test_json_is_saved_from_the_server_too(browse, site):
    page = browse(f"{site}run/poem")
    with page.expect_download() as saved:
        page.click("#save")
    assert json.loads(saved.value.path().read_text(encoding="utf-8"))["run_id"] == "poem"


def test_nothing_is_wider_than_a_small_screen(browse, site):
    for path in ("", "run/review", "run/poem", "run/hostile"):
        page = browse(f"{site}{path}", width=390)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_it_prints_without_its_buttons(browse, site):
    page = browse(f"{site}run/review")
    page.emulate_media(media="print")
    assert not page.locator(".bar").is_visible()
    assert page.locator("#r3").is_visible()


def test_every_part_has_a_name_for_those_who_do_not_see_it(browse, site):
    for path in ("", "run/review"):
        page = browse(f"{site}{path}")
        assert page.locator("main").count() == page.locator("h1").count() == 1
        assert page.evaluate(UNNAMED) == []
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map((e) => e.id)")
        assert len(ids) == len(set(ids))


@pytest.mark.parametrize("dark", [False, True])
def test_an_evaluation_from_the_list_to_an_items_run(browse, assessed, assessed_site, dark):
    run_id = assessed[1]
    page = browse(f"{assessed_site}?q=evaluation-", dark=dark)
    assert tasks(page) == ["refine, ask on 6 examples, judged by checks"]
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/run/{run_id}*")
    assert page.title() == "refine, ask on 6 examples - redraft"
    assert page.locator("#s1 td").first.inner_text() == "6/6"
    assert page.locator(".quality circle").count() == page.locator(".arms").first.locator("tbody tr").count()
    page.evaluate("document.querySelectorAll('details').forEach((d) => (d.open = true))")
    assert page.evaluate(FAINT) == []
    assert page.evaluate(UNNAMED) == []
    rows = page.locator(".passes tbody tr:visible")
    assert rows.count() == 6
    page.get_by_label("Only those").check()
    assert rows.count() == 3
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/run/refine-*")
    assert page.inner_text("h1").startswith("question 1")


def test_an_evaluation_is_whole_without_a_script_on_a_small_screen(browse, assessed, assessed_site):
    page = browse(f"{assessed_site}run/{assessed[1]}", java_script_enabled=False, width=390)
    assert page.locator(".quality circle").first.is_visible()
    page.get_by_label("Only those").check()
    assert page.locator(".passes tbody tr:visible").count() == 3
    assert page.title() != "taken"
    assert page.locator("main img, main script").count() == 0
    wide = browse(f"{assessed_site}run/{assessed[1]}", width=390)
    assert wide.evaluate("document.documentElement.scrollWidth") <= 390


UNNAMED = """() => {
  const named = (e) => e.getAttribute('aria-label') || e.getAttribute('aria-labelledby') || e.textContent.trim()
    || (e.labels && e.labels.length) || e.querySelector('title');
  const broken = [...document.querySelectorAll('[aria-labelledby]')].filter((e) => !document.getElementById(e.getAttribute('aria-labelledby')));
  const parts = [...document.querySelectorAll('button, a, input, select, nav, [role=region], svg[role=img]')];
  return [...parts.filter((e) => !named(e)), ...broken].map((e) => e.outerHTML.slice(0, 120));
}"""

FAINT = """() => {
  const parse = (c) => { const m = c.match(/[\\d.]+/g).map(Number); return c.startsWith('color(srgb') ? [...m.slice(0, 3).map((v) => v * 255), m[3] ?? 1] : [m[0], m[1], m[2], m[3] ?? 1]; };
  const light = ([r, g, b]) => { const f = (v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
  const over = (a, b) => [0, 1, 2].map((i) => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
  const behind = (e) => { const all = []; for (let at = e; at; at = at.parentElement) all.unshift(parse(getComputedStyle(at).backgroundColor)); return all.reduce((under, c) => over(c, under), [255, 255, 255, 1]); };
  const faint = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !e.checkVisibility() || e.closest('svg, .hidden, .skip, option')) continue;
    const back = behind(e), ink = over(parse(getComputedStyle(e).color), back);
    const [a, b] = [light(ink), light(back)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) faint.push(`${ratio.toFixed(2)} ${e.tagName}.${e.className} ${walk.currentNode.data.trim().slice(0, 40)}`);
  }
  return [...new Set(faint)];
}"""


def test_the_packed_json_is_what_gzip_unpacks(report):
    import base64
    from urllib.request import urlopen

    page = urlopen(report("poem")).read().decode()
    packed = re.search(r'id="data">([^<]*)<', page)[1]
    assert json.loads(gzip.decompress(base64.b64decode(packed)))["run_id"] == "poem"
