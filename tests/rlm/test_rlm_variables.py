"""What the sandbox is given of the inputs, and what a model is told of them."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import math
import os
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from pathlib import Path

import pytest

from redraft.errors import InputError
from redraft.rlm.variables import fingerprint, prepared


def one(value, bypass=0):
    return asyncio.run(prepared({"data": value}, bypass))["data"]


@dataclass
class Point:
    x: int
    when: dt.date


class Colour(str, Enum):  # noqa: UP042 - the old way, whose str() is its name
    RED = "red"


class Table:
    """A table as pandas shows itself."""

    columns = ("city", "n", "at")

    def to_dict(self, orient):
        assert orient == "records"
        return [
            {"city": "Bern", "n": math.nan, "at": dt.datetime(2024, 1, 2, tzinfo=dt.UTC)},
            {"city": None, "n": 2.0, "at": None},
        ]


class Arrow:
    column_names = ("a",)
    columns = ([1, 2],)

    def to_pylist(self):
        return [{"a": 1}, {"a": 2}]


def test_a_long_text_is_told_by_its_size_and_ends():
    text = "first line\n" + "middle\n" * 10_000 + "last line"
    about = one(text).about
    assert about.startswith("str, 70,020 characters, 10,002 lines")
    assert "begins 'first line" in about
    assert about.endswith("last line'")
    assert len(about) < 900


def test_a_short_text_is_shown():
    assert one("How many?").about == "str, 9 characters: 'How many?'"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"id": 1, "text": "x"}\n' * 100, "JSON lines with the keys 'id', 'text'"),
        ('[{"id": 1}, ' + "1, " * 1000 + "2]", "looks like JSON"),
        ("id,name,age\n" + "1,x,3\n" * 500, "looks like a table, split by commas, first line 'id,name,age'"),
    ],
)
def test_the_form_of_a_text_is_told(text, said):
    assert said in one(text).about


def test_lists_and_dicts_are_told_by_their_parts():
    rows = [{"id": i, "review": "good " * 50} for i in range(500)]
    about = one(rows).about
    assert "list, 500 items of dict with the keys 'id', 'review'" in about
    assert len(about) < 900
    assert one(["ab", "abcd"] * 1000).about.startswith("list, 2,000 items of str of 2 to 4 characters")
    assert "'a' (list of 3)" in one({"a": [1, 2, 3], "b": "x" * 999}).about
    assert one([1, 2]).about == "list, 2 items: [1, 2]"
    assert one(3).about == "int: 3"
    assert one([]).about == "list, 0 items: []"


def test_values_arrive_as_json_holds_them():
    assert one((1, 2)).value == [1, 2]
    assert one(Colour.RED).value == "red"
    assert one(dt.date(2024, 1, 2)).value == "2024-01-02"
    assert one(Decimal("1.50")).value == "1.50"
    assert one(Point(1, dt.date(2024, 1, 2))).value == {"x": 1, "when": "2024-01-02"}
    assert one({1: {"a"}}).value == {"1": ["a"]}
    assert one([math.nan, 1.5]).value == [None, 1.5]
    assert one(b"\x00\x01").value == b"\x00\x01"
    rows = [{"a": [1, None, True, "x"]}]
    assert one(rows).value is rows


def test_tables_become_rows():
    table = one(Table())
    assert table.value == [
        {"city": "Bern", "n": None, "at": "2024-01-02T00:00:00+00:00"},
        {"city": None, "n": 2.0, "at": None},
    ]
    assert "rows of a table with the columns city, n, at" in table.about
    assert one(Arrow()).value == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([{"type": "image_url", "image_url": {"url": "x"}}], "an image"),
        (object(), "object has no JSON form"),
        (math.inf, "inf"),
        ([math.inf], "inf"),
        (Path("/no/such/file"), "cannot be read"),
        (Path(__file__).parent, "cannot be read"),
    ],
)
def test_what_code_cannot_look_at_is_refused(value, said):
    with pytest.raises(InputError, match=said):
        one(value)


def test_an_open_file_is_refused():
    with Path(__file__).open() as file, pytest.raises(InputError, match="open file; pass its Path"):
        one(file)


def test_a_file_is_told_without_being_read_whole(tmp_path):
    path = tmp_path / "big.log"
    with path.open("wb") as file:
        file.write(b"2024-01-01 start\n" * 1000)
        file.truncate(3_000_000_000)  # a hole of 3 GB, which nobody has the time to read
        file.seek(3_000_000_000)
        file.write("das Ende über allem\n".encode())
    variable = one(path)
    assert variable.value == path
    assert "3,000,000,021 bytes in UTF-8" in variable.about
    assert "begins '2024-01-01 start" in variable.about
    assert "über allem" in variable.about


def test_a_file_of_bytes_and_a_short_one(tmp_path):
    (tmp_path / "b").write_bytes(b"\xff\xfe\x00" * 100)
    assert one(tmp_path / "b").about.startswith("bytes, 300 bytes, of the file b")
    (tmp_path / "s").write_text("short")
    assert one(tmp_path / "s", bypass=10).text == "short"
    assert one(tmp_path / "s", bypass=3).text is None


def test_a_file_is_known_again_by_path_size_and_time(tmp_path):
    path = tmp_path / "f"
    path.write_text("one")
    first = asyncio.run(fingerprint({"f": path}))
    assert asyncio.run(fingerprint({"f": path})) == first
    path.write_text("other")
    assert asyncio.run(fingerprint({"f": path})) != first
    json.dumps(first)


def test_what_is_no_plain_file_is_refused():
    with pytest.raises(InputError, match="no file that can be read again"):
        asyncio.run(fingerprint({"f": Path(os.devnull)}))
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(InputError, match="contains itself"):
        asyncio.run(fingerprint({"f": loop}))


def test_long_texts_are_known_by_a_hash():
    text = "ä" * 9_000_000
    first, again, other = (asyncio.run(fingerprint({"t": t}))["t"] for t in (text, "ä" * 9_000_000, text + "."))
    assert first == again != other
    assert asyncio.run(fingerprint({"t": "short", "n": 3})) == {"t": "short", "n": 3}
