"""What was measured is said with its origin, and docs/benchmarks.md says that and nothing else."""

import importlib
import json
import sys
from types import SimpleNamespace

import pytest

HEADER = {"commit", "dirty", "date", "command", "seeds", "python", "packages", "machine", "load", "quiet", "seconds"}
MACHINE = {"cpu", "cores", "memory_gb", "system"}


@pytest.fixture(scope="module")
def bench(request):
    folder = request.config.rootpath / "benchmarks"
    if not any(folder.glob("results/*.json")) and not (request.config.rootpath / ".git").exists():
        pytest.skip("a source package holds no results")
    sys.path.insert(0, str(folder))
    try:
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in ("record", "publish")})
    finally:
        sys.path.remove(str(folder))
        for name in ("record", "publish", "report", "arms", "families"):
            sys.modules.pop(name, None)


def results(bench):
    found = sorted(bench.record.RESULTS.glob("*.json"))
    assert found
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in found}


def test_the_page_is_what_the_committed_results_say(bench):
    assert bench.publish.page() == bench.publish.PAGE.read_text(encoding="utf-8"), "run: make bench-docs"


def test_each_result_says_on_what_and_when_it_was_measured(bench):
    for name, result in results(bench).items():
        head = result["header"]
        assert result["benchmark"] == name
        assert head.keys() >= HEADER, name
        assert head["machine"].keys() == MACHINE, name
        assert head["load"].keys() == {"start", "end"}, name
        assert head["quiet"] == (head["load"]["start"] / head["machine"]["cores"] < bench.record.QUIET), name
        assert head["packages"]["redraft"], name
        assert head["command"].startswith(f"python -m benchmarks {name}"), name


def test_each_row_says_whose_it_is_and_ours_are_among_those_that_compare(bench):
    for path in bench.record.RESULTS.glob("*.json"):
        for table in bench.record.read(path)[1]:
            assert table.rows, table.title
            assert all("by" in row for row in table.rows), table.title
            if table.better:
                assert {row["by"] for row in table.rows} > {"redraft"}, table.title
                assert set(table.better) <= set(table.columns), table.title


def test_no_result_names_a_place_on_the_machine(bench):
    for name, result in results(bench).items():
        text = json.dumps(result)
        assert str(bench.record.ROOT) not in text, name
        assert "/home/" not in text, name
        assert "/tmp/" not in text, name


def table(bench, *rows, **better):
    return bench.record.Table(
        "T", "t", [dict(zip(("what", "by", "ms", "case"), row, strict=True)) for row in rows], better
    )


def test_whoever_is_better_than_the_best_of_ours_is_listed(bench):
    found = table(
        bench,
        ("A", "redraft", 4.0, "one"),
        ("B", "redraft", 2.0, "one"),
        ("peer", "peer", 1.0, "one"),
        ("slow", "slow", 3.0, "one"),
        ("C", "redraft", 9.0, "two"),
        ("peer", "peer", 9.0, "two"),
        ms="low",
    )
    assert found.losses() == ["one, ms: ours 2.00; peer 1.00 (0.50 x ours)"]
    found.better = {"ms": "high"}
    assert found.losses() == []


def test_many_cases_are_counted_by_rival(bench):
    rows = [(who, by, value, f"case {i}") for i in range(8) for who, by, value in (("A", "redraft", 2), ("p", "p", i))]
    assert table(bench, *rows, ms="low").losses() == ["ms: p, in 2 of 8 cases, at best 0.00 x ours"]


def test_a_result_is_read_as_it_was_written(bench, tmp_path, monkeypatch):
    def measure(_):
        yield table(bench, ("A", "redraft", 4.0, "one"), ("B", "floor", 2.0, "one"), ms="low")

    out = tmp_path / "x.json"
    monkeypatch.setattr(sys, "argv", ["x.py", "--rounds", "2", "--out", str(out)])
    bench.record.main("x", "X", measure, lambda parser: parser.add_argument("--rounds"), about="Of\nit.", seeds=(7,))
    result, tables = bench.record.read(out)
    assert result["header"]["command"] == "python -m benchmarks x --rounds 2"
    assert result["header"]["seeds"] == [7]
    assert result["about"] == "Of it."
    assert tables[0].losses() == ["one, ms: ours 4.00; B 2.00 (0.50 x ours)"]


def test_a_cell_is_shown_as_it_is_written(bench):
    assert bench.publish.escaped("a|b_c `d_e[0]` [f]") == "a\\|b\\_c `d_e[0]` \\[f]"
