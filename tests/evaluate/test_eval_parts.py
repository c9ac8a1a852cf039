"""What `redraft eval` is made of: rows from anywhere, metrics by name, further baselines, files, the plot, the table."""

import asyncio
import json
import tomllib
import xml.etree.ElementTree as ET

import pytest

from redraft import Predict, Prediction, Refine, SqliteStore
from redraft.checks import words
from redraft.errors import ConfigError, InputError, UsageError
from redraft.evaluate import Evaluate, Example, examples_from, examples_of
from redraft.evaluate.kept import caution, data_of, keep, markdown, write
from redraft.evaluate.metrics import Exact, check_column, metric_from, named_in_file, same
from redraft.evaluate.peers import comparisons, larger_model, more_thinking
from redraft.evaluate.plot import svg
from redraft.evaluate.tables import found, put, writable
from redraft.testing import FunctionLM


@pytest.fixture
def report():
    """Half of the drafts pass; with more thinking, or on the larger model, all."""
    turn = iter(range(10**6))

    def reply(request):
        return "yes" if request.effort or next(turn) % 2 else "no no no no"

    module = Predict("q -> answer", lm=FunctionLM(reply, name="small", price=0.001))
    checks = [words(1)]
    peers = [more_thinking(module, checks), larger_model(module, checks, FunctionLM(lambda r: "yes", name="big"))]
    asked = [Example(q=str(i)).with_inputs("q") for i in range(6)]
    given = {"refine": Refine(module, N=2, checks=checks), **{p.name: p for p in peers}}
    return Evaluate(asked, checks=checks, concurrency=1)(given)


# Rows


def test_rows_come_from_files_and_from_memory(tmp_path):
    table = tmp_path / "rows.csv"
    table.write_text("question,answer\nq0,0\nq1,1\n")
    lines = tmp_path / "rows.jsonl"
    lines.write_text('{"question": "q0", "answer": 0, "hint": "h"}\n{"question": "q1", "answer": 1}\n')
    assert [e.inputs() for e in examples_from(str(table), ["question"])] == [{"question": "q0"}, {"question": "q1"}]
    assert examples_from(str(table), ["question"], limit=1)[0].labels() == {"answer": "0"}
    read = examples_from(str(lines), ["question"], optional=["hint"])
    assert [list(e.inputs()) for e in read] == [["question", "hint"], ["question"]]
    assert examples_of([{"question": "a"}], ["question"])[0].question == "a"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"question": "q"}\nnot json\n', "row 2: an example is an object"),
        ('{"question": "q"}\n{"other": 1}\n', "row 2 has no column 'question', only 'other'"),
        ('{"question": "q"}\n{"question": null}\n', "row 2: 'question' is empty"),
        ("", "holds no examples"),
    ],
)
def test_a_wrong_row_is_named(tmp_path, text, said):
    file = tmp_path / "rows.jsonl"
    file.write_text(text)
    with pytest.raises(InputError, match=said):
        examples_from(str(file), ["question"])


def test_a_data_set_of_the_hub_needs_its_library():
    try:
        import datasets  # noqa: F401
    except ImportError:
        with pytest.raises(ConfigError, match="pip install datasets"):
            examples_from("hf:some/data", ["question"])


# Metrics


@pytest.mark.parametrize(
    ("answer", "wanted", "equal"),
    [("a ", "a", True), ("A", "a", False), (42, "42", True), (42.0, "42", True), ("042", 42, True), ("042", "42", False),
     (True, 1, False), (None, "None", True), ([1], [1], True), ("x", 1, False)],
)  # fmt: skip
def test_what_is_exact(answer, wanted, equal):
    assert same(answer, wanted) is equal


def test_exact_takes_the_field_of_that_name_or_the_first():
    example = Example(q="?", gold="4").with_inputs("q")
    assert Exact("gold")(example, Prediction(answer="4", other="5"))
    assert not Exact("gold")(example, Prediction(answer="4", gold="5"))
    assert Exact("gold")(example, Prediction(reasoning="2 and 2", answer="4"))


def test_a_metric_by_name(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "def metric(example, prediction):\n    return 1.0\n\ndef other(example, prediction):\n    return 0.0\n"
    )
    assert metric_from("exact:gold")[0].column == "gold"
    assert metric_from("words:1-3")[1][0].name == "words"
    assert metric_from(str(file))[0](None, None) == 1.0
    assert metric_from(f"{file}:other")[0](None, None) == 0.0
    assert named_in_file(f"{file}:other", "metric").__name__ == "other"
    for wrong, said in [("exact", "exact:COLUMN"), (f"{file}:none", "metric, other"), (f"{file}x.py", "no file")]:
        with pytest.raises(UsageError, match=said):
            metric_from(wrong)
    with pytest.raises(UsageError, match=r"FILE\.py:NAME"):
        named_in_file("words:3", "metric")


# Baselines, files, plot


def test_more_thinking_and_a_larger_model_stand_beside_it_once(report):
    assert [(s.name, s.baseline) for s in report.standings] == [
        ("refine", False), ("effort high", True), ("big", True), ("single shot", True), ("best of 2", True)
    ]  # fmt: skip
    assert report["effort high"].pass_rate == report["big"].pass_rate == 1.0
    assert report["effort high"].usage.calls == 6
    more = comparisons(report, ["effort high", "big", "not there"])
    assert [(c.ours, c.theirs) for c in more] == [("refine", "effort high"), ("refine", "big")]
    assert not any("plain module" in note for note in report.notes())


def test_it_is_written_and_kept(report, tmp_path):
    more = comparisons(report, ["big"])
    data = data_of(report, more, {"model": "small"})
    files = write(tmp_path / "out", report, more, data)
    assert [f.name for f in files] == ["out.json", "out.md", "out.svg"]
    read = json.loads((tmp_path / "out.json").read_text())
    assert (read["model"], len(read["items"]), read["comparisons"][0]["theirs"]) == ("small", 30, "big")
    assert "| refine |" in (tmp_path / "out.md").read_text()
    assert "![quality against cost](out.svg)" in (tmp_path / "out.md").read_text()


async def test_the_store_has_it_once(report, tmp_path):
    data = data_of(report, [], {})
    store = SqliteStore(tmp_path / "runs.db")
    run_id = await keep(store, data)
    assert await keep(store, data) == run_id
    (event,) = [e for e in store.read(run_id) if e.kind == "evaluation"]
    kept = event.data["report"]
    assert kept["items"][0].keys() == {
        *("run_id", "strategy", "index", "status", "score", "passed", "said", "calls", "tokens")
    }
    assert kept["asked"] == {str(i): str(i) for i in range(6)}
    assert store.run(run_id).task == "refine on 6 examples, judged by checks"
    store.close()


async def test_two_that_end_at_once_put_it_there_once(report, tmp_path):
    data = data_of(report, [], {})
    with SqliteStore(tmp_path / "runs.db") as store:
        one, two = await asyncio.gather(keep(store, data), keep(store, data))
        assert one == two
        assert [e.kind for e in store.read(one)].count("evaluation") == 1


def test_many_comparisons_are_warned_of(report):
    more = comparisons(report, ["effort high", "big"])
    assert caution(report, more) == []
    assert "would differ by luck" in caution(report, more * 2)[0]
    assert "would differ by luck" in markdown(report, more * 2)


def test_the_plot_is_one_svg_with_a_point_a_strategy(report):
    root = ET.fromstring(svg(report.standings, "a < b"))
    tags = [node.tag.rpartition("}")[2] for node in root.iter()]
    assert tags.count("circle") == len(report.standings)
    texts = [node.text for node in root.iter() if node.tag.endswith("text")]
    assert {"refine", "big", "dollars an item", "a < b"} <= set(texts)
    assert svg([]) == ""


def test_what_json_has_no_form_for_is_a_text(tmp_path):
    asked = examples_of([{"q": "a", "w": float("nan"), "v": float("inf")}], ["q"])
    report = Evaluate(asked, lambda e, p: True)({"ask": lambda q: "x"})
    data = data_of(report, [], {})
    write(tmp_path / "out", report, [], data)

    def refuse(constant):
        raise AssertionError(constant)

    read = json.loads((tmp_path / "out.json").read_text(), parse_constant=refuse)
    assert read["items"][0]["example"] == {"q": "a", "w": "NaN", "v": "Infinity"}


def test_an_answer_that_nothing_equals_is_refused():
    asked = examples_of([{"q": "a", "gold": 1.0}, {"q": "b", "gold": float("nan")}], ["q"])
    with pytest.raises(UsageError, match="example 1 has nan there"):
        check_column(Exact("gold"), asked)
    check_column(Exact("gold"), asked[:1])


# The table


COMMENTED = """\
# mine
model = "a/b"  # this one

# measured
[calibrated."m"]
# goes with it
strategy = "auto" # why

[calibrated."m".evidence]
why = "x"

# before presets
[presets.x]
strategy = "refine"
# the end
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_comments_places_and_line_ends_stay(tmp_path, end):
    file = tmp_path / "redraft.toml"
    file.write_bytes(COMMENTED.replace("\n", end).encode())
    file.chmod(0o640)
    put("m", {"strategy": "refine", "evidence": {"why": "y"}}, file)
    text = file.read_bytes().decode()
    assert (
        text
        == """\
# mine
model = "a/b"  # this one

# measured
[calibrated."m"]
strategy = "refine"

[calibrated."m".evidence]
why = "y"

# before presets
[presets.x]
strategy = "refine"
# the end
""".replace("\n", end)
    )
    put("m", {"strategy": "refine", "evidence": {"why": "y"}}, file)
    assert file.read_bytes().decode() == text
    assert file.stat().st_mode & 0o777 == 0o640


def test_a_comment_at_the_end_stays_and_a_second_table_stands_behind(tmp_path):
    file = tmp_path / "redraft.toml"
    file.write_text('[calibrated."m"]\nstrategy = "auto"\n\n# the end\n')
    put("n", {"strategy": "auto"}, file)
    put("m", {"strategy": "predict"}, file)
    assert file.read_text() == (
        '[calibrated."m"]\nstrategy = "predict"\n\n# the end\n\n[calibrated."n"]\nstrategy = "auto"\n'
    )


def test_a_file_that_is_not_to_be_written_is_known_before(tmp_path):
    file = tmp_path / "redraft.toml"
    file.write_text('model = "a/b"\n')
    assert writable("m", file) == file
    file.chmod(0o444)
    with pytest.raises(ConfigError, match="it is read-only; name another file with --config"):
        writable("m", file)
    with pytest.raises(ConfigError, match="its folder is not there"):
        writable("m", tmp_path / "no" / "redraft.toml")
    with pytest.raises(ConfigError, match="it is a folder"):
        writable("m", tmp_path)
    link = tmp_path / "link.toml"
    target = tmp_path / "target.toml"
    target.write_text("")
    link.symlink_to(target)
    put("m", {"strategy": "auto"}, link)
    assert link.is_symlink()
    assert "auto" in target.read_text()


def test_a_table_joins_what_is_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "redraft.toml"
    file.write_text('# mine\nmodel = "a/b"\n\n[presets.x]\nstrategy = "refine"\n')
    entry = {"strategy": "refine", "attempts": 3, "evidence": {"why": 'a "reason"', "rungs": {"edit": "1 of 2"}}}
    assert put("m | q -> a | words", entry) == file
    put("other", {"strategy": "auto"})
    put("m | q -> a | words", {**entry, "attempts": 4})
    text = file.read_text()
    assert text.startswith('# mine\nmodel = "a/b"\n')
    assert tomllib.loads(text)["presets"] == {"x": {"strategy": "refine"}}
    assert found("m | q -> a | words") == {**entry, "attempts": 4}
    assert found("other") == {"strategy": "auto"}
    assert found("nobody") is None


def test_a_project_in_pyproject_stays_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.redraft]\nmodel = "a/b"\n\n[tool.other]\nx = 1\n')
    assert put("m", {"strategy": "auto"}).name == "pyproject.toml"
    assert not (tmp_path / "redraft.toml").exists()
    assert found("m") == {"strategy": "auto"}


@pytest.mark.parametrize("header", ["[calibrated.'m']", "[ calibrated . m ]", '["calibrated"."m"]', "[calibrated.m]"])
def test_a_table_is_the_same_however_it_is_spelt(tmp_path, header):
    file = tmp_path / "redraft.toml"
    file.write_text(f'{header}\nstrategy = "auto"\nx = [\n  [1, 2],\n]\n\n[calibrated.mm]\nstrategy = "predict"\n')
    put("mm", {"strategy": "auto"}, file)
    assert file.read_text().startswith(f'{header}\nstrategy = "auto"\nx = [\n  [1, 2],\n]\n\n')
    file.write_text(f'{header}\nstrategy = "auto"\n\n[calibrated.mm]\nstrategy = "predict"\n')
    put("m", {"strategy": "refine"}, file)
    assert tomllib.loads(file.read_text())["calibrated"] == {"m": {"strategy": "refine"}, "mm": {"strategy": "predict"}}


@pytest.mark.parametrize("text", ["[calibrated\n", 'calibrated = {"m" = {strategy = "auto"}}\n'])
def test_a_file_that_cannot_be_changed_line_by_line_stays_as_it_is(tmp_path, text):
    file = tmp_path / "redraft.toml"
    file.write_text(text)
    for tried in (lambda: put("m", {"strategy": "refine"}, file), lambda: writable("m", file)):
        with pytest.raises(ConfigError, match="cannot take the calibration"):
            tried()
    assert file.read_text() == text
    assert [path.name for path in tmp_path.iterdir()] == ["redraft.toml"]
