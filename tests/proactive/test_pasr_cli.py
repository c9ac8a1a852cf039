"""`redraft train pasr` before any model is loaded: what it asks for, and what it says is wrong."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from click.testing import CliRunner

from redraft.cli import main


@pytest.fixture
def train(tmp_path):
    def call(text, *more):
        data = tmp_path / "rows.jsonl"
        data.write_text(text, encoding="utf-8")
        given = ["train", "pasr", "-m", str(tmp_path / "no-model"), "--data", str(data), "-o", str(tmp_path / "out")]
        return CliRunner().invoke(main, [*given, *more])

    return call


@pytest.mark.parametrize(
    ("text", "more", "said"),
    [
        ('{"question": "1+1?"}', (), "row 1 has no `answer`"),
        ("no object", (), "row 1 is no object"),
        ('{"question": "1+1?", "answer": "2"}', ("--set", "beta"), "write NAME=VALUE"),
        ('{"question": "1+1?", "answer": "2"}', ("--check", "words:3", "--judge", "x/y"), "not both"),
        ('{"question": "1+1?", "answer": "2"}', ("--zeta", "1"), "not in the range"),
    ],
)
def test_what_is_wrong_is_one_paragraph_and_nothing_is_made(train, tmp_path, text, more, said):
    ended = train(text, *more)
    assert ended.exit_code == 2
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(find_spec("trl") is not None, reason="the extra train is here")
def test_without_the_extra_it_says_which(train):
    ended = train('{"question": "1+1?", "answer": "2"}')
    assert ended.exit_code == 2
    assert "pip install 'redraft[train]'" in ended.stderr


def test_help_names_the_values_of_the_paper():
    said = CliRunner().invoke(main, ["train", "pasr", "--help"]).stdout
    assert "3000, the paper's" in said
    assert "[default: 8" in said
