"""`redraft eval` and `redraft calibrate`, end to end: files in and out, going on, what auto makes of it, what is refused."""

import dataclasses
import json
import tomllib

import pytest

from redraft.errors import BadRequestError
from redraft.testing import FunctionLM

GOOD, BAD = "bright day", "dull words all around here and more"
CHECK = ("--check", "words:1-3")


@pytest.fixture
def data(tmp_path):
    def write(n, **more):
        rows = [{"task": f"write {i}", "gold": GOOD, **more} for i in range(n)]
        (tmp_path / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return "d.jsonl"

    return write


@pytest.fixture
def lm():
    """Four of ten blind drafts pass, all under a constraint, and none that sees a bad one."""
    turn = iter(range(10**6))

    def reply(request):
        if BAD in str(request.messages):
            return BAD
        return GOOD if request.grammar or request.effort or next(turn) * 7 % 10 < 4 else BAD

    return FunctionLM(reply, name="half", price=1e-6)


def test_strategies_stand_beside_what_they_have_to_beat(redraft, lm, data, tmp_path):
    said = redraft("eval", data(6), "--strategy", "refine:attempts=2", "--strategy", "best-of-n", *CHECK,
                   "--metric", "exact:gold", "--concurrency", "1", lm=lm)  # fmt: skip
    assert said.exit_code == 0, said.stderr
    for name in ("refine:attempts=2", "best-of-n", "- single shot", "- effort high", "- best of"):
        assert name in said.stdout
    assert "refine:attempts=2 against effort high" in said.stdout
    assert "wrote d.eval.json, d.eval.md, d.eval.svg; run evaluation-" in said.stderr
    read = json.loads((tmp_path / "d.eval.json").read_text())
    assert (read["judged_by"], read["data"], read["model"]) == ("metric 'exact:gold'", "d.jsonl", "half")
    assert (tmp_path / "d.eval.runs.db").exists()


def test_the_same_command_goes_on_and_buys_nothing_twice(redraft, lm, data):
    asked = ("eval", data(6), "--strategy", "refine", *CHECK, "--thinking", "none", "--concurrency", "1")
    part = redraft(*asked, "--call-limit", "5", lm=lm)
    assert part.exit_code == 3
    assert "PARTIAL" in part.stdout
    assert len(lm.requests) == 5
    whole = redraft(*asked, lm=lm)
    assert whole.exit_code == 0
    bought = len(lm.requests)
    again = redraft(*asked, "--json", lm=lm)
    assert (again.exit_code, len(lm.requests)) == (0, bought)
    assert all(item["resumed"] for item in json.loads(again.stdout)["items"])


def test_the_run_of_an_item_shows_what_was_decided_and_the_drafts_inside(redraft, lm, data, tmp_path):
    said = redraft("eval", data(1), "--strategy", "refine", *CHECK, "--no-baselines", lm=lm)
    read = json.loads((tmp_path / "d.eval.json").read_text())
    shown = redraft("runs", "show", read["items"][0]["run_id"], "--store", "d.eval.runs.db").stdout
    assert said.exit_code == 0
    assert "accepted: the metric gives 1, which passes" in shown
    assert "accepted: the first draft" in shown.partition("\nin /attempt[0]/")[2]


def test_what_does_not_stand_beside_them_is_said(redraft, lm, data, tmp_path):
    lm.capabilities = dataclasses.replace(lm.capabilities, reasoning=False)
    said = redraft("eval", data(2), "--strategy", "refine", *CHECK, lm=lm)
    assert "no more thinking beside them: half has no effort setting" in said.stdout
    assert "no larger model beside them: --larger MODEL names one" in said.stdout
    assert "no larger model beside them" in (tmp_path / "d.eval.md").read_text()
    less = redraft("eval", data(2), "--strategy", "refine", *CHECK, "--no-baselines", lm=lm)
    assert "beside them" not in less.stdout


def test_a_metric_that_always_fails_is_no_success(redraft, lm, data, tmp_path):
    (tmp_path / "m.py").write_text("def metric(example, prediction):\n    raise KeyError('golld')\n")
    asked = (
        "eval",
        data(3),
        "--strategy",
        "refine",
        *CHECK,
        "--thinking",
        "none",
        "--concurrency",
        "1",
        "--metric",
        "m.py",
    )
    said = redraft(*asked, lm=lm)
    assert said.exit_code == 1
    assert "not one item has come to a score; the first: example 0: KeyError" in said.stderr
    bought = len(lm.requests)
    (tmp_path / "m.py").write_text("def metric(example, prediction):\n    return True\n")
    mended = redraft(*asked, "--no-baselines", lm=lm)
    assert (mended.exit_code, len(lm.requests)) == (0, bought)


def test_a_model_that_is_gone_is_no_success(redraft, data):
    gone = FunctionLM(lambda request: (_ for _ in ()).throw(BadRequestError("it is gone")), name="gone")
    said = redraft("eval", data(2), "--strategy", "predict", *CHECK, "--thinking", "none", lm=gone)
    assert said.exit_code == 1
    assert "it is gone" in said.stderr


def test_a_critique_is_a_strategy_by_name(redraft, data):
    def reply(request):
        if "verdict" in json.dumps(dict(request.schema or {})):
            issue = {"problem": "cut it", "suggestion": "", "aspect": "", "severity": "major", "location": ""}
            return json.dumps({"verdict": "revise", "issues": [issue]})
        return GOOD if "cut it" in str(request.messages) else BAD

    lm = FunctionLM(reply, name="half")
    said = redraft("run", "Write", "--strategy", "critique", *CHECK, lm=lm)
    assert (said.exit_code, said.stdout.strip(), len(lm.requests)) == (0, GOOD, 3)
    assert not any("want 1 to 3" in str(r.messages) for r in lm.requests[1:2])  # the critic hears nothing of the checks
    report = redraft(
        "eval", data(3), "--strategy", "critique:rounds=2,critic=kind", *CHECK, "--thinking", "none", lm=lm
    )
    assert report.exit_code == 0, report.stderr
    assert "critique:rounds=2,critic=kind against single shot: no difference +1.000" in report.stdout
    for args, why in [(("--check", "words:1", "-n", "2"), "--attempts has no use"), ((), "nothing to choose its best")]:
        refused = redraft("run", "Write", "--strategy", "critique", *args, lm=lm)
        assert (refused.exit_code, why in refused.stderr) == (2, True)


def test_a_strategy_and_a_metric_of_a_file(redraft, lm, data, tmp_path):
    (tmp_path / "mine.py").write_text(
        "def shout(task):\n    return task.upper()\n\ndef loud(example, prediction):\n"
        "    return prediction.answer == example.task.upper()\n"
    )
    said = redraft("eval", data(3), "--strategy", "mine.py:shout", "--metric", "mine.py:loud", "--thinking", "none",
                   "-q", "-o", "x", lm=lm)  # fmt: skip
    assert said.exit_code == 0, said.stderr
    assert said.stderr == ""
    assert "100.0%" in said.stdout
    assert (tmp_path / "x.json").exists()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--strategy", "refine"), "nothing to judge by"),
        (("--strategy", "refine", "--metric", "exact:gold"), "nothing to choose its best attempt by"),
        (("--strategy", "refin", *CHECK), "Did you mean 'refine'"),
        (("--strategy", "refine:tries=2", *CHECK), "'tries=2' is no option"),
        (("--strategy", "refine:attempts=many", *CHECK), "is no number"),
        (("--strategy", "refine:rounds=2", *CHECK), "--rounds has no use in the strategy refine"),
        (("--strategy", "refine", "--strategy", "refine", *CHECK), "given twice"),
        (("--strategy", "refine", *CHECK, "--metric", "exact:golden"), "has no column 'golden'"),
        (("--strategy", "refine", *CHECK, "-o", "nowhere/x"), "cannot be written to"),
        (("--strategy", "refine", *CHECK, "--signature", "question -> answer"), "no column 'question'"),
        ((*CHECK,), "Missing option '--strategy'"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_spent(redraft, lm, data, args, said):
    found = redraft("eval", data(2), *args, lm=lm)
    assert found.exit_code == 2
    assert said in " ".join(found.stderr.split())
    assert lm.requests == []


def test_a_critic_with_a_comma_in_its_persona(redraft, lm, data):
    said = redraft("eval", data(2), "--strategy", "self-refine:rounds=1,critic=strict, but fair,critic=kind", *CHECK,
                   "--thinking", "none", lm=lm)  # fmt: skip
    assert said.exit_code == 0, said.stderr


# calibrate


def test_a_calibration_is_written_and_auto_takes_it(redraft, lm, data, tmp_path):
    said = redraft("calibrate", data(80), *CHECK, "--no-critic", "--concurrency", "1", lm=lm)
    assert said.exit_code == 0, said.stderr
    assert "recommended: strategy refine, revise constrain" in said.stdout
    (entry,) = tomllib.loads((tmp_path / "redraft.toml").read_text())["calibrated"].values()
    assert (entry["strategy"], entry["evidence"]["examples"]) == ("refine", 80)
    assert entry["evidence"]["tests"]
    run = redraft("run", "Write 0", *CHECK, lm=lm)
    assert run.exit_code == 0
    assert "not written" in redraft("calibrate", data(5), *CHECK, "--no-critic", lm=lm).stderr
    assert "constrain" in (tmp_path / "redraft.toml").read_text()


KEY = '[calibrated."half | task -> answer | words"]'


@pytest.mark.parametrize(
    ("entry", "took", "why"),
    [
        ('strategy = "best-of-n"\nattempts = 2', "best-of-n, attempts 2", "calibrated"),
        ('strategy = "auto"\nverdict = "no difference"', "refine", "calibrated: no difference"),
        ("", "refine", "nothing was calibrated for 'half | task -> answer | words'"),
    ],
)
def test_why_auto_took_it_is_on_record(redraft, tmp_path, entry, took, why):
    (tmp_path / "redraft.toml").write_text(f"{KEY}\n{entry}\n" if entry else "")
    lm = FunctionLM(lambda request: GOOD, name="half")
    said = redraft("run", "Write", *CHECK, "--store", "r.db", lm=lm)
    assert (", as calibrated" in said.stderr) == took.startswith("best-of-n")
    (run,) = json.loads(redraft("runs", "list", "--json", "--store", "r.db").stdout)["runs"]
    shown = redraft("runs", "show", run["run_id"], "--store", "r.db").stdout
    assert f"auto: {took}: {why}" in shown
    assert (
        f"<b>auto</b> took {took}: {why}".replace("'", "&#39;").replace("-> ", "-&gt; ")
        in redraft("report", "-o", "-", "--store", "r.db").stdout
    )
    named = redraft("run", "Write", *CHECK, "--strategy", "refine", "--store", "s.db", lm=lm)
    assert "auto" not in named.stderr
    assert "<b>auto</b>" not in redraft("report", "-o", "-", "--store", "s.db").stdout


def test_a_batch_has_it_on_record_once(redraft, lm, data):
    said = redraft("batch", data(2), "out.jsonl", *CHECK, "--store", "b.db", "--batch-id", "many", lm=lm)
    assert said.exit_code in (0, 4), said.stderr
    assert "auto: refine: nothing was calibrated for" in redraft("runs", "show", "many", "--store", "b.db").stdout


def test_other_reasons_of_auto(redraft):
    lm = FunctionLM(lambda request: '{"verdict": "ok", "issues": []}' if request.schema else GOOD, name="half")
    for n, (args, why) in enumerate([
        ((), "self-refine: without checks there is nothing"),
        ((*CHECK, "--critic", "kind"), "self-refine: --critic was given"),
    ]):  # fmt: skip
        redraft("run", "Write", *args, "--store", f"{n}.db", lm=lm)
        run_id = json.loads(redraft("runs", "list", "--json", "--store", f"{n}.db").stdout)["runs"][0]["run_id"]
        assert why in redraft("runs", "show", run_id, "--store", f"{n}.db").stdout


def test_the_critic_that_was_measured_is_the_one_that_auto_asks(redraft, tmp_path):
    (tmp_path / "redraft.toml").write_text(f'{KEY}\nstrategy = "critique"\ncritic = "a strict judge"\n')
    lm = FunctionLM(lambda request: '{"verdict": "ok", "issues": []}' if request.schema else BAD, name="half")
    redraft("run", "Write", *CHECK, lm=lm)
    assert len(lm.requests) == 2
    assert "a strict judge" in str(lm.requests[1].messages)


def test_a_read_only_file_is_known_before_anything_is_spent(redraft, lm, data, tmp_path):
    (tmp_path / "redraft.toml").write_text("# mine\n")
    (tmp_path / "redraft.toml").chmod(0o444)
    said = redraft("calibrate", data(5), *CHECK, "--no-critic", lm=lm)
    assert (said.exit_code, len(lm.requests)) == (2, 0)
    assert "it is read-only; name another file with --config, or take --no-write" in said.stderr
    assert redraft("calibrate", data(5), *CHECK, "--no-critic", "--no-write", lm=lm).exit_code == 0


def test_auto_takes_only_what_was_measured_for_this_task(redraft, data, tmp_path):
    entry = 'strategy = "best-of-n"\nattempts = 2\n[calibrated."half | task -> answer | words".evidence]\ndate = "2026-01-02"\n'
    (tmp_path / "redraft.toml").write_text(f'[calibrated."half | task -> answer | words"]\n{entry}')
    bad = [FunctionLM(lambda request: BAD, name="half") for _ in range(4)]
    redraft("run", "Write", *CHECK, lm=bad[0])
    assert len(bad[0].requests) == 2
    redraft("run", "Write", *CHECK, "--strategy", "refine", lm=bad[1])
    assert len(bad[1].requests) == 3
    redraft("run", "Write", "--check", "contains:sun", lm=bad[2])
    assert len(bad[2].requests) == 3
    redraft("run", "Write", *CHECK, "-n", "4", lm=bad[3])
    assert len(bad[3].requests) == 4


@pytest.mark.parametrize(
    ("entry", "calls"),
    [
        ('strategy = "predict"\nattempts = 1', 1),
        ('strategy = "predict"', 1),
        ('strategy = "auto"', 3),
        ('strategy = "critique"', 2),
    ],
)
def test_what_an_entry_says(redraft, tmp_path, entry, calls):
    (tmp_path / "redraft.toml").write_text(f'[calibrated."half | task -> answer | words"]\n{entry}\n')
    lm = FunctionLM(lambda request: '{"verdict": "ok", "issues": []}' if request.schema else BAD, name="half")
    said = redraft("run", "Write", *CHECK, lm=lm)
    assert said.exit_code == 4
    assert len(lm.requests) == calls


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ('strategy = "x"', "it is one of"),
        ('strategy = "refine"\nattempts = 0', "from 1 to 10,000,000"),
        ('strategy = "critique"\ncritic = ["a"]', "says critic = ['a']; give a persona or a model as a text"),
    ],
)
def test_a_wrong_entry_is_refused(redraft, lm, tmp_path, entry, said):
    (tmp_path / "redraft.toml").write_text(f'[calibrated."half | task -> answer | words"]\n{entry}\n')
    found = redraft("run", "Write", *CHECK, lm=lm)
    assert (found.exit_code, len(lm.requests)) == (2, 0)
    assert said in found.stderr


@pytest.mark.parametrize("table", ["5", "[]", '""', "[{}]"])
def test_a_table_that_is_none_is_refused(redraft, lm, tmp_path, table):
    (tmp_path / "redraft.toml").write_text(f"calibrated = {table}\n")
    found = redraft("run", "Write", *CHECK, lm=lm)
    assert (found.exit_code, len(lm.requests)) == (2, 0)
    assert "[calibrated] must be a table of tables, got" in found.stderr


def test_a_number_that_was_given_is_not_said_to_be_measured(redraft, tmp_path):
    (tmp_path / "redraft.toml").write_text(f'{KEY}\nstrategy = "best-of-n"\nattempts = 2\n')
    lm = FunctionLM(lambda request: BAD, name="half")
    said = redraft("run", "Write", *CHECK, "-n", "3", lm=lm)
    assert "auto: best-of-n, attempts 3, as calibrated but for attempts\n" in said.stderr
    assert "auto takes best-of-n, attempts 3: calibrated; but attempts 3 is given, calibrated is 2" in said.stderr
    same = redraft("run", "Write", *CHECK, "-n", "2", lm=lm)
    assert "auto: best-of-n, attempts 2, as calibrated\n" in same.stderr


def test_who_gives_attempts_wants_more_than_the_one_draft_that_was_measured(redraft, tmp_path):
    (tmp_path / "redraft.toml").write_text(f'{KEY}\nstrategy = "predict"\nattempts = 1\n')
    lm = FunctionLM(lambda request: BAD, name="half")
    said = redraft("run", "Write", *CHECK, "-n", "3", "--store", "r.db", lm=lm)
    assert (len(lm.requests), "as calibrated" in said.stderr) == (3, False)
    run_id = json.loads(redraft("runs", "list", "--json", "--store", "r.db").stdout)["runs"][0]["run_id"]
    shown = redraft("runs", "show", run_id, "--store", "r.db").stdout
    assert "auto: refine: attempts 3 is given, not one draft as calibrated" in shown


def test_the_tables_texts_stay_on_one_line_and_steer_no_terminal(redraft, tmp_path):
    evidence = f'{KEY.replace("]", ".evidence]")}\ndate = 2026-01-02\nwhy = "w\\u001b[2J\\nsecond"\n'
    (tmp_path / "redraft.toml").write_text(f'{KEY}\nstrategy = "critique"\ncritic = "a\\u001b[31m\\nman"\n{evidence}')
    lm = FunctionLM(lambda request: '{"verdict": "ok", "issues": []}' if request.schema else BAD, name="half")
    said = redraft("run", "Write", *CHECK, lm=lm)
    took = r"critique, critic a\x1b[31m man, rounds 1"
    assert rf"auto takes {took}: calibrated on 2026-01-02, w\x1b[2J second" in said.stderr
    assert f"| auto: {took}, as calibrated\n" in said.stderr


def test_a_critic_without_a_key_is_known_before_the_first_draft(redraft, lm, tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (tmp_path / "redraft.toml").write_text(f'{KEY}\nstrategy = "critique"\ncritic = "openai/x"\n')
    said = redraft("run", "Write", *CHECK, lm=lm)
    assert (said.exit_code, len(lm.requests)) == (2, 0)
    assert "no API key for openai/x" in said.stderr


def test_no_write_and_too_little_data(redraft, lm, data, tmp_path):
    said = redraft("calibrate", data(3), *CHECK, "--no-write", "--json", lm=lm)
    assert said.exit_code == 0
    assert json.loads(said.stdout)["verdict"] == "too little data"
    assert not (tmp_path / "redraft.toml").exists()


@pytest.mark.parametrize(
    ("args", "said"),
    [((), "no bar"), ((*CHECK, "--no-critic", "--critic", "a poet"), "no use"), (("--reward", "x.py:f"), "no file")],
)
def test_a_calibration_without_sense_is_refused(redraft, lm, data, args, said):
    found = redraft("calibrate", data(2), *args, lm=lm)
    assert found.exit_code == 2
    assert said in found.stderr
    assert lm.requests == []


def test_a_limit_ends_it_and_nothing_is_written(redraft, lm, data, tmp_path):
    said = redraft("calibrate", data(20), *CHECK, "--call-limit", "9", lm=lm)
    assert said.exit_code == 3
    assert not (tmp_path / "redraft.toml").exists()
