"""What a person reads when something is wrong: one paragraph that says what to do, and the exit code for it."""

import pytest

from redraft import registry
from redraft.testing import ScriptedLM

OK = ("--check", "words:1")

WRONG = {
    "empty task": (("run", ""), "the task is empty; say what to write"),
    "blank task": (("run", " \n "), "the task is empty"),
    "nothing piped in": (("run",), "nothing was piped in"),
    "two tasks": (("run", "a", "--file", "b"), "given twice"),
    "no task file": (("run", "@none.txt"), "the task file none.txt cannot be read: No such file"),
    "unknown strategy": (("run", "a", "--strategy", "refin"), "no strategy named 'refin'. Did you mean 'refine'?"),
    "unknown check": (("run", "a", "--check", "word:3"), "Did you mean 'words'?"),
    "check without argument": (("run", "a", "--check", "words"), "e.g. words:50 or words:20-40"),
    "check with a bad argument": (("run", "a", "--check", "words:many"), "neither a number nor a range"),
    "no schema file": (("run", "a", "--check", "json_schema:none.json"), "no such file"),
    "no check file": (("run", "a", "--check-file", "none.py"), "no check file none.py"),
    "unknown model": (("run", "a", "-m", "foo"), "unknown model 'foo'"),
    "empty model": (("run", "a", "-m", " "), "the model's name is empty"),
    "missing key": (("run", "a", "-m", "openai/gpt-4.1"), "set OPENAI_API_KEY"),
    "bad URL": (("run", "a", "-m", "x", "--base-url", "localhost"), "must begin with http"),
    "a limit of nothing": (("run", "a", "--call-limit", "0"), "0 is not in the range x>=1"),
    "a limit that is no number": (("run", "a", "--token-limit", "many"), "'many' is not a valid integer"),
    "a limit that is not finite": (
        ("run", "a", "--cost-limit", "nan", "-m", "scripted/x"),
        "a limit is a number above 0",
    ),
    "unknown option": (("run", "a", "--chekc", "x"), "No such option"),
    "unknown command": (("rnu", "a"), "No such command 'rnu'"),
    "attempts without checks": (("run", "a", "-n", "3"), "--attempts has no use in the strategy self-refine"),
    "an editor of best-of-n": (("run", "a", *OK, "--strategy", "best-of-n", "--editor", "x"), "--strategy reflect"),
    "refine without checks": (("run", "a", "--strategy", "refine"), "add --check NAME:ARGS"),
    "json and show": (("run", "a", "--json", "--show", "trajectory"), "leave out --show"),
    "unknown embedded model": (("models", "path", "gpt2"), "known: smollm2-135m"),
    "unknown model to check": (("models", "check", "foo"), "unknown model 'foo'"),
}


@pytest.mark.parametrize(("args", "told"), WRONG.values(), ids=WRONG)
def test_wrong_usage_is_exit_code_2_and_one_paragraph(redraft, args, told):
    registry.register("models", "scripted", lambda name, base_url=None: ScriptedLM([]))
    said = redraft(*args)
    assert said.exit_code == 2
    assert said.stdout == ""
    assert said.stderr.startswith("redraft: ")
    assert told in said.stderr
    assert said.stderr.count("\n") == 1


def test_wrong_usage_points_at_the_help(redraft):
    assert redraft("run", "a", "--chekc").stderr.endswith("See `redraft run --help`.\n")


def test_a_money_limit_without_a_price_is_wrong_usage(redraft):
    said = redraft("run", "a", "--cost-limit", "1", lm=ScriptedLM(["b"], price=None))
    assert said.exit_code == 2
    assert "--token-limit" in said.stderr


def test_a_task_file_that_is_no_text(redraft, tmp_path):
    (tmp_path / "task.bin").write_bytes(b"\xff\xfe\x00")
    said = redraft("run", "@task.bin")
    assert said.exit_code == 2
    assert "is not UTF-8 text (byte 0)" in said.stderr


def test_a_check_file_without_checks(redraft, tmp_path):
    (tmp_path / "mine.py").write_text("x = 1\n")
    said = redraft("run", "a", "--check-file", "mine.py", replies=[])
    assert said.exit_code == 2
    assert "mine.py defines no checks" in said.stderr


def test_a_check_that_raises_names_itself(redraft, tmp_path):
    (tmp_path / "mine.py").write_text("from redraft import check\n@check\ndef odd(text):\n    return 1 / 0\n")
    said = redraft("run", "a", "--check-file", "mine.py", "-n", "1", replies=["b"])
    assert "odd" in said.stderr
    assert "Traceback" not in said.stderr


def test_a_check_file_that_cannot_be_run_is_told_without_a_traceback(redraft, tmp_path):
    (tmp_path / "mine.py").write_text("from redraft import chekc\n")
    said = redraft("run", "a", "--check-file", "mine.py", replies=[])
    assert said.exit_code in (1, 2)
    assert "chekc" in said.stderr
    assert said.stderr.count("\n") == 1


def broken(name, base_url=None):
    raise ZeroDivisionError("a plug-in's fault")


def test_what_nobody_expected_is_one_line_that_names_the_way_to_the_traceback(redraft):
    registry.register("models", "scripted", broken)
    said = redraft("run", "a", "-m", "scripted/broken")
    assert said.exit_code == 1
    assert said.stderr.startswith("redraft: unexpected ZeroDivisionError: a plug-in's fault")
    assert "REDRAFT_DEBUG=1" in said.stderr
    assert said.stderr.count("\n") == 1


def test_debug_shows_the_traceback(redraft, monkeypatch):
    monkeypatch.setenv("REDRAFT_DEBUG", "1")
    registry.register("models", "scripted", broken)
    said = redraft("run", "a", "-m", "scripted/broken-again")
    assert said.exit_code == 1
    assert "Traceback" in said.stderr
    assert "in broken" in said.stderr
