"""`redraft rlm`, end to end on a scripted model and in the jail: what goes where, and what is shown while it happens."""

import json

import pytest

from redraft import registry
from redraft.cli.steps import live
from redraft.testing import FunctionLM, ScriptedLM

LOOK = "Look at the errors.\n```python\nhits = grep('ERROR', app_log)\nprint(len(hits))\nprint(llm_query('Is it bad? ' + hits[0]['text']))\n```"
SUBMIT = "```python\nSUBMIT(answer=str(len(hits)))\n```"
LOG = "ok\nERROR disk\nok\nERROR net\n" * 3


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "app.log"
    path.write_text(LOG)
    return path


def test_the_answer_alone_goes_to_stdout_and_the_turns_to_stderr(redraft, log):
    said = redraft("rlm", "How many errors?", str(log), "--bypass", "0", replies=[LOOK, "very", SUBMIT])
    assert said.exit_code == 0, said.stderr
    assert said.stdout == "6\n"
    lines = said.stderr.splitlines()
    assert lines[0].startswith("turn 1    Look at the errors.")
    assert "  hits = grep('ERROR', app_log)" in lines
    assert any(line.startswith("sub 1     very") for line in lines)
    assert lines.index("  | 6") < lines.index("  | very")
    assert lines.index("  print(len(hits))") < lines.index("  | 6"), "the code is shown before it is run"
    assert any("1 sub-call" in line for line in lines)
    assert "  SUBMIT(answer=str(len(hits)))" in lines
    assert lines[-1].startswith("kept draft 1 of 1 | 3 calls")


def test_quiet_says_nothing_and_json_says_all(redraft, log):
    args = ("rlm", "How many?", str(log), "--bypass", "0")
    assert redraft(*args, "-q", replies=[LOOK, "very", SUBMIT]).stderr == ""
    data = json.loads(redraft(*args, "--json", "-q", replies=[LOOK, "very", SUBMIT]).stdout)
    assert data["fields"]["answer"] == "6"
    assert [bool(step["code"]) for step in data["fields"]["trajectory"]] == [True, True]
    assert data["usage"]["calls"] == 3


def test_files_are_variables_by_their_names_or_by_names_that_are_given(redraft, log, tmp_path):
    (tmp_path / "2026-x.csv").write_text("a,b\n1,2\n")
    code = "```python\nSUBMIT(f'{len(app_log)} {file_2026_x_csv.strip()!r} {note} {piped}')\n```"
    (tmp_path / "n.txt").write_text("hello")
    said = redraft(
        *("rlm", "q", str(log), str(tmp_path / "2026-x.csv"), f"note={tmp_path / 'n.txt'}", "-", "--bypass", "0"),
        replies=[code],
        input="from stdin",
    )
    assert said.stdout == f"{len(LOG)} 'a,b\\n1,2' hello from stdin\n", said.stderr


def test_a_signature_names_inputs_and_types(redraft, log, tmp_path):
    other = tmp_path / "b.txt"
    other.write_text("two")
    code = "```python\nSUBMIT(n=len(docs), first=docs[1])\n```"
    signature = ("--signature", "docs: list[str], question -> n: int, first")
    said = redraft("rlm", "q", str(log), str(other), *signature, "--bypass", "0", "--json", "-q", replies=[code])
    fields = json.loads(said.stdout)["fields"]
    assert (fields["n"], fields["first"]) == (2, "two")
    said = redraft(
        "rlm", "q", str(log), "--signature", "logs -> n: int", "--bypass", "0", replies=["```python\nSUBMIT(1)\n```"]
    )
    assert said.exit_code == 2
    assert "do not go together" in said.stderr


def test_checks_hold_the_answer_and_an_exit_code_says_so(redraft, log):
    short, long = "```python\nSUBMIT('six')\n```", "```python\nSUBMIT('there are six errors')\n```"
    args = ("rlm", "q", str(log), "--bypass", "0", "--check", "words:4")
    said = redraft(*args, replies=[short, long])
    assert (said.exit_code, said.stdout) == (0, "there are six errors\n")
    assert "the answer was not taken" in said.stderr
    said = redraft(*args, "--max-iterations", "1", replies=[short, "six"])
    assert (said.exit_code, said.stdout) == (4, "six\n")


def test_short_inputs_are_asked_about_directly_and_it_says_so(redraft, log):
    said = redraft("rlm", "q", str(log), replies=["twelve"])
    assert said.stdout == "twelve\n"
    assert "the inputs are short: asked directly" in said.stderr


def test_a_limit_ends_it_and_resume_goes_on_without_buying_anything_twice(redraft, log):
    replies = iter(["```python\nx = len(app_log)\nprint(x)\n```", "```python\nSUBMIT(str(x))\n```"])
    lm = FunctionLM(lambda _: next(replies))
    args = ("rlm", "q", str(log), "--bypass", "0", "--store", "runs.db", "--call-limit", "1")
    said = redraft(*args, lm=lm)
    assert said.exit_code == 3
    run = said.stderr.split("redraft resume ")[1].split()[0]
    lm._script = iter(["```python\nSUBMIT(str(x))\n```"]) if hasattr(lm, "_script") else None
    again = redraft("resume", run, "--store", "runs.db", "--json", "-q")
    data = json.loads(again.stdout)
    assert data["fields"]["answer"] == str(len(LOG))
    assert data["usage"]["calls"] == 2
    assert len(lm.requests) == 2


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((), "no FILE to answer from"),
        (("nothing.txt",), "nothing.txt is no file"),
        (("a.txt", "b/a.txt"), "two files would be the variable a_txt"),
        (("a.txt", "--interpreter", "wings"), "no interpreter 'wings'"),
        (("a.txt", "--check", "nonsense:3"), "nonsense"),
    ],
)
def test_wrong_usage_spends_nothing(redraft, tmp_path, args, says):
    (tmp_path / "b").mkdir()
    for name in ("a.txt", "b/a.txt"):
        (tmp_path / name).write_text("x")
    said = redraft("rlm", "q", *args, "--bypass", "0", replies=["```python\nSUBMIT('x')\n```"])
    assert said.exit_code in (1, 2)
    assert says in said.stderr
    assert said.stdout == ""


def test_what_went_wrong_is_said_once(redraft, log):
    replies = ["I think it is six.", "```python\n1 / 0\n```", "```python\nprint(2)\n```", "six"]
    said = redraft("rlm", "q", str(log), "--bypass", "0", "--max-iterations", "3", replies=replies)
    assert said.stdout == "six\n", said.stderr
    assert said.stderr.count("There was no code in your reply") == 1
    assert said.stderr.count("division by zero") == 1
    assert "->        ZeroDivisionError, 0." in said.stderr
    assert said.stderr.count("no answer was submitted") == 1
    assert said.exit_code == 4, "a guess is no success"
    assert "no code submitted this answer" in said.stderr


def test_a_model_too_small_to_write_code_is_named_as_such(redraft, log):
    lm = ScriptedLM(["six"] * 9, name="local/smollm2-135m")
    args = ("rlm", "q", str(log), "--bypass", "0", "--max-iterations", "2")
    assert "too small to write code" in redraft(*args, lm=lm).stderr
    assert redraft(*args, "-q", lm=lm).stderr == ""


def test_nested_turns_are_marked(redraft, log):
    replies = [
        "```python\nprint(rlm_query('count', app_log))\n```",
        "```python\nSUBMIT(answer=str(len(data)))\n```",
        "```python\nSUBMIT('done')\n```",
    ]
    said = redraft("rlm", "q", str(log), "--bypass", "0", "--depth", "2", replies=replies)
    assert said.stdout == "done\n", said.stderr
    assert ">turn 1" in said.stderr


def test_a_sub_model_answers_the_sub_calls(redraft, log):
    registry.register("models", "subs", lambda name, base_url=None: ScriptedLM(["six bad ones"], name=f"subs/{name}"))
    try:
        code = "```python\nSUBMIT(llm_query('Is it bad?'))\n```"
        said = redraft("rlm", "q", str(log), "--bypass", "0", "--sub-model", "subs/x", "--json", "-q", replies=[code])
    finally:
        del registry._KNOWN["models"]["subs"]
    data = json.loads(said.stdout)
    assert data["fields"]["answer"] == "six bad ones"
    assert data["fields"]["trajectory"][0]["calls"][0]["model"] == "subs/x"


def test_a_terminal_shows_the_same_lines(redraft, log, monkeypatch, capsys):
    monkeypatch.setattr("redraft.cli.asking._progress", lambda quiet: live())
    said = redraft("rlm", "q", str(log), "--bypass", "0", replies=[LOOK, "very", SUBMIT])
    assert said.stdout == "6\n"
    shown = said.stderr + capsys.readouterr().err
    for part in ("turn 1", "hits = grep", "| 6", "sub 1", "1 sub-call"):
        assert part in shown


def test_a_resumed_run_is_listed_and_shown_again(redraft, log):
    args = ("rlm", "How many?", str(log), "--bypass", "0", "--store", "runs.db", "-q")
    assert redraft(*args, replies=[LOOK, "very", SUBMIT]).exit_code == 0
    (run,) = json.loads(redraft("runs", "list", "--store", "runs.db", "--json").stdout)["runs"]
    assert (run["strategy"], run["task"], run["calls"]) == ("RLM", "How many?", 3)
    assert redraft("resume", run["run_id"], "--store", "runs.db").stdout == "6\n"
