"""Rows as they are read and written: what is no number, what nests, what two batches call by one name, what a column holds."""

import json

import pytest

from redraft import Predict
from redraft.batch.files import as_line, convert, read_rows
from redraft.batch.item import DEEPEST, BatchItem
from redraft.batch.output import Output, row_of
from redraft.errors import InputError
from redraft.testing import FunctionLM
from redraft.types import Prediction


def nested(levels):
    value = "x"
    for _ in range(levels):
        value = [value]
    return value


def ended(item, run_id="b:1", **more):
    return BatchItem(index=0, key="1", item=item, inputs={}, run_id=run_id, status="done", **more)


@pytest.mark.parametrize("odd", [[1, [float("nan")]], {"a": {"b": float("-inf")}}, (float("inf"),)])
def test_a_number_that_is_none_is_found_wherever_it_is(odd):
    done = Predict("x -> line", lm=FunctionLM(lambda request: "ok")).batch([{"x": odd}, {"x": [1.5]}])
    assert [item.status for item in done] == ["failed", "done"]
    assert isinstance(done[0].error, InputError)
    assert "the input 'x' holds" in str(done[0].error)


def test_what_nests_too_deeply_is_a_row_that_failed_and_can_be_written_and_read(tmp_path):
    module = Predict("x -> line", lm=FunctionLM(lambda request: "ok"))
    itself = []
    itself.append(itself)
    done = module.batch([{"x": nested(DEEPEST + 1)}, {"x": nested(30_000)}, {"x": itself}, {"x": nested(20)}])
    assert [item.status for item in done] == ["failed", "failed", "failed", "done"]
    assert "nests deeper than 200 levels" in str(done[1].error)
    output = Output(str(tmp_path / "out.jsonl"))
    for item in done:
        output.write(item)
    rows = list(read_rows(str(tmp_path / "out.jsonl")))
    assert rows[1]["x"] == "(left out: it nests deeper than 200 levels)"
    assert rows[3]["x"] == nested(20)


def test_what_the_nth_batch_of_a_chain_writes_has_all_columns_of_those_before():
    row = {"task": "t"}
    for n in range(1, 5):
        row = row_of(ended(row, f"b{n}:1", result=Prediction(answer=f"answer {n}")))
    assert [row["answer"], row["input.answer"], row["input.input.answer"], row["input.input.input.answer"]] == [
        f"answer {n}" for n in (4, 3, 2, 1)
    ]
    assert row["input.input.run_id"] == "b2:1"
    assert row["task"] == "t"


def test_a_column_keeps_its_name_where_that_is_free():
    row = row_of(ended({"input.note": 1, "input.score": 2, "score": 3}))
    assert (row["input.note"], row["input.input.score"], row["input.score"], row["score"]) == (1, 2, 3, None)


def test_a_line_is_json_whatever_it_holds():
    line = as_line({"nan": float("nan"), "in": [float("inf"), 1.5], "bytes": b"\x00\xff", "cut": "\ud83d", "ü": "ü"})
    assert json.loads(line, parse_constant=pytest.fail) == {
        "nan": None, "in": [None, 1.5], "bytes": "AP8=", "cut": "\ud83d", "ü": "ü"
    }  # fmt: skip
    line.encode()


def written(tmp_path, rows, name):
    lines = tmp_path / "lines.jsonl"
    lines.write_text("".join(map(as_line, rows)), encoding="utf-8")
    convert(lines, str(tmp_path / name))
    return list(read_rows(str(tmp_path / name)))


def test_half_an_emoji_gets_into_a_table(tmp_path):
    assert written(tmp_path, [{"a": "cut \ud83d"}], "t.csv") == [{"a": "cut \\ud83d"}]


@pytest.mark.doors
class TestParquet:
    @pytest.fixture(autouse=True)
    def _there(self):
        pytest.importorskip("pyarrow")

    @pytest.mark.parametrize(
        ("values", "read"),
        [
            ([1, 2**62], [1, 2**62]),
            ([1, 2**63], ["1", "9223372036854775808"]),
            ([-(2**63), None], [-(2**63), None]),
            ([1, 0.5], [1.0, 0.5]),
            ([2**53 + 1, 0.5], ["9007199254740993", "0.5"]),
            ([True, 1], ["true", "1"]),
            ([{"a": 1}, [1], "text", None], ['{"a": 1}', "[1]", "text", None]),
            ([None, None], [None, None]),
            ([b"\xff", None], ["/w==", None]),
            (["cut \ud83d"], ["cut \\ud83d"]),
            ([float("nan"), 1.5], [None, 1.5]),
        ],
    )
    def test_a_column_holds_every_value_or_text(self, tmp_path, values, read):
        rows = written(tmp_path, [{"x": value, "n": n} for n, value in enumerate(values)], "t.parquet")
        assert [row["x"] for row in rows] == read

    def test_a_file_that_is_none_is_said(self, tmp_path):
        (tmp_path / "t.parquet").write_bytes(b"no parquet at all")
        with pytest.raises(InputError, match=r"t\.parquet cannot be read"):
            list(read_rows(str(tmp_path / "t.parquet")))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("id,a,a\n1,2,3\n", "more than one column 'a'"),
        ("\nid,a\n1,2\n", "first line is empty"),
        ('task,"b\n1,2\n', "unexpected end of data, in its header"),
        ('q,"a"b\n1,2\n', "in its header"),
        ('id,a\n1,x\n2,"never closed\n3,y\n', "in the row that begins after line 2"),
    ],
)
def test_a_table_that_would_lose_something_is_refused(tmp_path, text, says):
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=f"t.csv cannot be read: .*{says}"):
        list(read_rows(str(tmp_path / "t.csv")))


def test_a_row_with_too_many_cells_is_told_with_those(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("id,a\n1,2,3,3\n4,5\n", encoding="utf-8")
    assert list(read_rows(str(path))) == ["a row with more cells than the header: 3, 3", {"id": "4", "a": "5"}]
