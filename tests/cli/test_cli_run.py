"""`redraft run`, end to end on a scripted model: what goes where, and the exit code that tells how it ended."""

import json

import pytest
from cli_texts import BRIEF, THREE

from redraft import registry
from redraft.errors import BadRequestError, TransientLMError, UnsupportedError
from redraft.testing import FaultyLM, ScriptedLM
from redraft.testing.words import EVERYTHING
from redraft.types import Capabilities

CHECKS = ("--check", "sentences:3", "--check", "contains:La Maison")
ONE_ISSUE = json.dumps(
    {
        "verdict": "revise",
        "issues": [
            {"problem": "too long", "suggestion": "cut it", "aspect": "length", "severity": "major", "location": "all"}
        ],
    }
)
FINE = json.dumps({"verdict": "ok", "issues": []})
WINS = ['{"better": "A"}', '{"better": "B"}']


def test_the_text_alone_goes_to_stdout_and_progress_to_stderr(redraft):
    said = redraft("run", "Review La Maison", *CHECKS, replies=[BRIEF, THREE])
    assert said.exit_code == 0
    assert said.stdout == THREE + "\n"
    first, second, receipt = said.stderr.splitlines()
    assert first.split("  ")[0] == "draft 1"
    assert "x 2 sentences, want 3" in first
    assert first.endswith(" tokens")
    assert "ok 2/2" in second
    assert receipt.startswith("kept draft 2")
    assert receipt.endswith("| $0.00 | stopped: passed")


def test_what_code_mends_is_a_line_that_cost_nothing(redraft):
    said = redraft("run", "Review", "--check", "sentences:2", replies=[THREE])
    assert (said.exit_code, said.stdout) == (0, THREE.removesuffix(" We left happy.") + "\n")
    assert said.stderr.splitlines()[1].split() == ["fix", "2", "ok", "1/1,", "mended", "by", "code", "0", "tokens"]


def test_a_fix_that_would_break_something_says_what(redraft):
    checks = ("--check", "sentences:2", "--check", "contains:happy")
    said = redraft("run", "Review", *checks, "-n", "1", replies=[THREE])
    assert said.exit_code == 4
    assert 'fix       x "happy" missing' in said.stderr


def test_quiet_says_nothing_but_the_text(redraft):
    said = redraft("run", "Review", *CHECKS, "-q", replies=[BRIEF, THREE])
    assert (said.stdout, said.stderr) == (THREE + "\n", "")


def test_a_rejected_draft_says_why(redraft):
    said = redraft("run", "Review", "--check", "sentences:3", "-n", "2", replies=[BRIEF, BRIEF])
    assert "rejected: does not score above draft 1" in said.stderr


def test_checks_that_do_not_pass_are_exit_code_4_and_the_best_draft_is_printed(redraft):
    said = redraft("run", "Review", "--check", "sentences:3", "-n", "2", replies=[BRIEF, BRIEF])
    assert (said.exit_code, said.stdout) == (4, BRIEF + "\n")


def test_allow_fail_makes_that_0(redraft):
    said = redraft("run", "Review", "--check", "sentences:3", "-n", "1", "--allow-fail", replies=[BRIEF])
    assert (said.exit_code, said.stdout) == (0, BRIEF + "\n")


def test_a_limit_keeps_the_best_draft_and_says_which_limit(redraft):
    said = redraft("run", "Review", "--check", "sentences:3", "--call-limit", "1", replies=[BRIEF])
    assert (said.exit_code, said.stdout) == (4, BRIEF + "\n")
    assert "limit     the limit of 1 call is reached" in said.stderr
    assert said.stderr.endswith("stopped: budget\n")


def test_a_draft_that_a_limit_cut_off_is_said_to_be_cut_off(redraft):
    """Its first try fails, and no call is left for another."""
    busy = TransientLMError("busy", status=503, retry_after=0.001)
    told = ("run", "Review", "--check", "sentences:3", "--call-limit", "2", "--store", "runs.db")
    said = redraft(*told, replies=[BRIEF, busy])
    assert said.exit_code == 4
    assert "draft 2   cut off " in said.stderr
    assert "kept draft 1 of 1, 1 cut off | 2 calls" in said.stderr
    shown = redraft("runs", "show", "--store", "runs.db")
    assert "== draft 2 | cut off: the limit of 2 calls is reached (2 spent) |" in shown.stdout
    assert "rejected" not in shown.stdout


def test_a_limit_before_any_draft_is_exit_code_3(redraft):
    said = redraft("run", "Review this place at length", "--token-limit", "2", replies=["never bought"])
    assert (said.exit_code, said.stdout) == (3, "")
    assert said.stderr.startswith("redraft: the limit of 2 tokens is reached")
    assert "--token-limit" in said.stderr


def test_a_failure_before_any_draft_is_exit_code_1(redraft):
    said = redraft("run", "Review", replies=[BadRequestError("the upstream wants no such thing")])
    assert (said.exit_code, said.stdout) == (1, "")
    assert said.stderr == "redraft: the upstream wants no such thing\n"


def test_a_failure_later_keeps_the_best_draft_and_is_exit_code_1(redraft):
    said = redraft("run", "Review", "--critic", "editor", replies=[BRIEF, BadRequestError("no critic today")])
    assert (said.exit_code, said.stdout) == (1, BRIEF + "\n")
    assert "the best draft was kept: no critic today" in said.stderr.splitlines()[-1]


def test_a_draft_that_failed_is_a_line_too(redraft):
    said = redraft("run", "Review", "--check", "sentences:3", replies=[BadRequestError("not this time"), THREE])
    assert (said.exit_code, said.stdout) == (0, THREE + "\n")
    assert "x failed: not this time" in said.stderr.splitlines()[0]


def test_what_a_critic_says_is_a_line_with_its_tokens(redraft):
    said = redraft("run", "Review", "--critic", "strict editor", replies=[BRIEF, ONE_ISSUE, THREE, *WINS, FINE])
    assert (said.exit_code, said.stdout) == (0, THREE + "\n")
    lines = said.stderr.splitlines()
    assert [line.split("  ")[0] for line in lines[:4]] == ["draft 1", "critic", "draft 2", "critic"]
    assert "1 issue: too long" in lines[1]
    assert lines[1].endswith("tokens")
    assert "the judge prefers it in both orders" in lines[2]
    assert "nothing to fix" in lines[3]
    assert lines[4].endswith("stopped: critic_ok")


def test_retries_are_said(redraft):
    lm = FaultyLM(ScriptedLM([THREE]), [TransientLMError("overloaded", retry_after=0.01)])
    said = redraft("run", "Review", "--strategy", "predict", lm=lm)
    assert said.exit_code == 0
    assert said.stderr.startswith("retry     in 0.0 s: overloaded")


def test_a_dropped_parameter_is_said(redraft):
    lm = ScriptedLM([THREE], name="picky", capabilities=Capabilities(temperature=True))
    refusing = FaultyLM(lm, [UnsupportedError("no temperature here", parameter="temperature")])
    said = redraft("run", "Review", "--strategy", "predict", "-t", "0.5", lm=refusing)
    assert said.exit_code == 0
    assert said.stderr.startswith("dropped   temperature: picky does not take it")


def test_a_cap_that_was_not_honoured_is_said(redraft):
    lm = FaultyLM(ScriptedLM([BRIEF]), ["ignore_cap"])
    said = redraft("run", "Review", "--strategy", "predict", "--max-tokens", "5", lm=lm)
    assert "overrun   scripted wrote 10 tokens beyond its cap of 5" in said.stderr


def test_a_kept_draft_that_its_limit_cut_is_said(redraft):
    options = ("--strategy", "predict", "--max-tokens", "5")
    said = redraft("run", "Review", *options, replies=[THREE])
    assert said.exit_code == 0
    assert said.stdout.strip() == " ".join(THREE.split()[:5])
    assert "the kept draft ends where a limit of tokens cut it" in said.stderr.splitlines()[-1]
    assert redraft("run", "Review", *options, "-q", replies=[THREE]).stderr == ""
    assert "ends where" not in redraft("run", "Review", "--strategy", "predict", replies=[THREE]).stderr


def test_an_empty_reply_is_asked_for_again_and_that_is_said(redraft):
    said = redraft("run", "Review", "--strategy", "predict", replies=["", THREE])
    assert (said.exit_code, said.stdout) == (0, THREE + "\n")
    assert said.stderr.startswith("asked     again: the reply is empty")


# --json


def test_json_is_one_object_with_the_whole_run(redraft):
    said = redraft("run", "Review", *CHECKS, "--json", replies=[BRIEF, THREE])
    whole = json.loads(said.stdout)
    assert said.exit_code == 0
    assert whole["fields"] == {"answer": THREE}
    assert (whole["text"], whole["score"], whole["passed"], whole["best"]) == (THREE, 1.0, True, 1)
    assert (whole["stop_reason"], whole["error"], whole["cost"]) == ("passed", None, 0.0)
    assert whole["usage"]["calls"] == 2
    first, second = whole["attempts"]
    assert [v["passed"] for v in first["verdicts"]] == [False, True]
    assert (first["text"], first["accepted"], first["reason"]) == (BRIEF, True, "the first draft")
    assert (second["rung"], second["error"], second["usage"]["calls"]) == ("constrain", None, 1)
    assert [e["seq"] for e in whole["events"]] == list(range(len(whole["events"])))
    assert whole["events"][-1]["kind"] == "stop"
    assert len(whole["run_id"]) > 10


def test_json_of_a_failed_run_has_the_same_keys_and_all_that_was_tried(redraft):
    good = json.loads(redraft("run", "Review", "--strategy", "predict", "--json", replies=[THREE]).stdout)
    said = redraft("run", "Review", "--json", replies=[BadRequestError("nope")])
    failed = json.loads(said.stdout)
    assert said.exit_code == 1
    assert said.stderr == "redraft: nope\n"
    assert failed.keys() == good.keys()
    assert failed["attempts"][0].keys() == good["attempts"][0].keys()
    assert (failed["text"], failed["stop_reason"]) == (None, "error")
    assert failed["error"] == {"type": "BadRequestError", "message": "nope"} == failed["attempts"][0]["error"]
    assert failed["usage"]["calls"] == 1


def test_json_holds_the_critique(redraft):
    said = redraft("run", "Review", "--critic", "editor", "--json", replies=[BRIEF, ONE_ISSUE, THREE, *WINS, FINE])
    first, second = json.loads(said.stdout)["attempts"]
    assert first["critique"]["issues"][0]["problem"] == "too long"
    assert second["critique"]["verdict"] == "ok"


# --show trajectory


def test_show_trajectory_prints_every_draft_what_changed_and_why_the_final_text_last(redraft):
    said = redraft(
        "run", "Review", "--critic", "editor", "--show", "trajectory", replies=[BRIEF, ONE_ISSUE, THREE, *WINS, FINE]
    )
    assert said.exit_code == 0
    parts = said.stdout.split("\n\n")
    assert parts[0].startswith("== draft 1 |")
    assert parts[0].endswith("accepted: the first draft ==")
    assert parts[1] == BRIEF
    assert parts[2] == "editor: 1 issue\n  - (all) too long -> cut it"
    assert parts[3].startswith("== draft 2 |")
    assert parts[4] == "(changes to draft 1)"
    assert "[-with-]{+. The soup was+} hot" in parts[5]
    assert parts[6] == "editor: nothing to fix"
    assert parts[7:] == ["== final: draft 2 ==", THREE + "\n"]


def test_a_failed_run_shows_its_trajectory_too(redraft):
    said = redraft("run", "Review", *CHECKS, "-n", "1", "--show", "trajectory", replies=[BadRequestError("nope")])
    assert said.exit_code == 1
    assert said.stdout.startswith("== draft 1 | x failed: nope |")
    assert "final" not in said.stdout


# Where the task comes from


@pytest.mark.parametrize("args", [(), ("-",)])
def test_a_task_is_piped_in(redraft, args):
    lm = ScriptedLM([THREE])
    assert redraft("run", *args, "--strategy", "predict", lm=lm, input="Review\nLa Maison\n").exit_code == 0
    assert lm.requests[0].messages[-1]["content"] == "Review\nLa Maison"


@pytest.mark.parametrize("args", [("@task.txt",), ("--file", "task.txt")])
def test_a_task_is_read_from_a_file(redraft, tmp_path, args):
    (tmp_path / "task.txt").write_text("\ufeffReview the café\n", encoding="utf-8")
    lm = ScriptedLM([THREE])
    assert redraft("run", *args, "--strategy", "predict", lm=lm).exit_code == 0
    assert lm.requests[0].messages[-1]["content"] == "Review the café"


# What the options do


def test_system_prompt_sampling_and_seed_reach_the_model(redraft):
    lm = ScriptedLM([THREE])
    redraft("run", "Review", "--strategy", "predict", "-s", "Be brief.", "-t", "0.3", "--max-tokens", "99", lm=lm)
    (request,) = lm.requests
    assert request.messages[0] == {"role": "system", "content": "Be brief."}
    assert (request.temperature, request.max_tokens) == (0.3, 99)


def test_the_seed_makes_runs_repeat(redraft):
    seeds = []
    for _ in range(2):
        lm = ScriptedLM([THREE])
        redraft("run", "Review", "--strategy", "predict", "--seed", "7", lm=lm)
        seeds.append(lm.requests[0].seed)
    assert seeds[0] == seeds[1] is not None


def test_a_check_file_is_run(redraft, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from redraft import check\n@check(tell='End with a bang.')\ndef bang(text):\n    return text.endswith('!')\n"
    )
    lm = ScriptedLM([THREE, THREE + "!"])
    said = redraft("run", "Review", "--checks", "mine.py", lm=lm)
    assert (said.exit_code, said.stdout) == (0, THREE + "!\n")
    assert "x bang failed" in said.stderr
    assert "End with a bang." in lm.requests[0].messages[-1]["content"]


def test_a_writer_and_an_editor_make_it_reflect(redraft):
    lm = ScriptedLM([BRIEF, FINE])
    options = (
        "--writer",
        "food writer",
        "--editor",
        "copy editor",
        "--criteria",
        "taste, tone",
        "--criteria",
        "length",
    )
    said = redraft("run", "Review", *options, "-s", "Write in English.", lm=lm)
    assert said.exit_code == 0
    author, editor = lm.requests
    assert author.messages[0]["content"] == "You are a food writer.\n\nWrite in English."
    assert editor.messages[0]["content"].startswith("You are a copy editor.")
    assert "Judge by: taste; tone; length." in editor.messages[0]["content"]


def test_a_role_may_be_a_model_of_its_own(redraft):
    critic = ScriptedLM([FINE])
    registry.register("models", "other", lambda name, base_url=None: critic)
    try:
        said = redraft("run", "Review", "--critic", "other/critic", replies=[BRIEF])
    finally:
        del registry._KNOWN["models"]["other"]
    assert said.exit_code == 0
    assert critic.left == 0


def test_without_any_bar_it_is_one_round_of_self_refine(redraft):
    said = redraft("run", "Review", replies=[BRIEF, ONE_ISSUE, THREE, *WINS])
    assert (said.exit_code, said.stdout) == (0, THREE + "\n")
    assert said.stderr.endswith("stopped: rounds\n")


def test_best_of_n_takes_the_attempts_it_is_given(redraft):
    said = redraft("run", "Review", "--strategy", "best-of-n", "-n", "4", "--check", "words:1", replies=["a b"] * 4)
    assert said.exit_code == 4
    assert "4 calls" in said.stderr


def test_a_text_outlives_a_narrow_encoding(redraft):
    said = redraft("run", "Review", "--strategy", "predict", replies=["caf\u00e9 \U0001f600"], charset="latin-1")
    assert (said.exit_code, said.stdout) == (0, "caf\u00e9 \\U0001f600\n")
    said = redraft(
        "run", "Review", "--strategy", "predict", "--json", replies=["caf\u00e9 \U0001f600"], charset="latin-1"
    )
    assert json.loads(said.stdout)["text"] == "caf\u00e9 \U0001f600"


def test_progress_does_not_steer_the_terminal(redraft):
    said = redraft("run", "Review", replies=[BadRequestError("bad \x1b[2J news")])
    assert said.stderr == "redraft: bad \\x1b[2J news\n"


def test_effort_by_attempt(redraft, monkeypatch):
    lm = ScriptedLM(["one", "one two three"], capabilities=EVERYTHING)
    monkeypatch.setitem(registry._KNOWN["models"], "thinker", lambda name, base_url=None: lm)
    said = redraft("run", "x", "-m", "thinker/x", "--check", "words:3", "--effort", "low,high")
    assert said.exit_code == 0
    assert [r.effort for r in lm.requests] == ["low", "high"]
