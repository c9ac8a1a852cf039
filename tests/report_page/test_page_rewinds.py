"""What was taken back while it was written, on the page."""

from page_runs import Read

from redraft import Predict, checks
from redraft.proactive import DynamicBacktracker, ProactiveDecoder, RandomSignal
from redraft.proactive.scripted import END, TableLM, chain
from redraft.report.page import render
from redraft.report.page.story import story

WORDS = [END, "A", " dull", " red", " <b>dog", ".", " It", " runs"]
NEXT = {
    END: {"A": 1.0},
    "A": {" dull": 0.6, " red": 0.4},
    " dull": {" <b>dog": 1.0},
    " red": {" <b>dog": 1.0},
    " <b>dog": {".": 1.0},
    ".": {END: 0.6, " It": 0.4},
    " It": {" runs": 1.0},
    " runs": {".": 1.0},
}


def written(ran, rules, **options):
    module = Predict("task -> line", temperature=0.0, max_tokens=30)
    return story(
        "r", ran(ProactiveDecoder(module, checks=rules, **options), TableLM(chain(NEXT), WORDS, name="t/table"))
    )


def test_each_rewind_stands_with_the_draft_that_it_mended(ran):
    told = written(ran, [checks.forbids("dull"), checks.sentences(2)])
    first, second = told.main.rounds
    assert [r.text for r in first.remarks] == [
        "token 3 \u2192 1, cannot pass forbids",
        "tokens written so far: the text 3, after guards 3",
    ]
    assert [(p.op, p.text) for p in first.remarks[0].pieces] == [("=", "A"), ("-", " dull <b>dog"), ("+", " red")]
    assert second.rung == "taken back, and written on"
    assert [r.text for r in second.remarks] == [
        "token 5 \u2192 4, ended without passing: the checks, the end was taken back",
        "tokens written so far: the text 3, after guards 3, after ends that did not pass 3",
    ]
    assert told.main.remarks == ()


def test_what_was_taken_and_put_is_struck_and_underlined_and_stays_text(ran):
    page = render.run_page(written(ran, [checks.forbids("dull"), checks.sentences(2)]))
    assert "A<del> dull &lt;b&gt;dog</del><ins> red</ins>" in page
    assert not any(
        tag == "b" and not attrs for tag, attrs in Read(page.split('class="remarks"')[1].split("</ul>")[0]).tags
    )


def test_alternatives_that_were_looked_at_in_vain_say_what_they_cost(ran):
    back = DynamicBacktracker(reach=(1, 9), gap=1)
    told = written(ran, [checks.contains("A dull")], signal=RandomSignal(1.0), back=back)
    vain = [r for each in told.main.rounds for r in each.remarks if "it stands, after" in r.text]
    assert vain
    assert {p.op for r in vain for p in r.pieces} <= {"="}
