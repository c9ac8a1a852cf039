"""A client of the official SDK, `redraft mcp` as its child process, and a loopback server behind it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mcp")

from mcp_sessions import COMMAND, error_of, on_stdio, surroundings, until

from redraft.testing import FaultServer
from redraft.testing.replies import Reply

pytestmark = pytest.mark.doors

MODEL = ("-m", "test")


def last_message(body):
    return body["messages"][-1]["content"]


def words(text):
    return len(text.split())


async def test_the_tools_say_what_they_take_and_what_they_return():
    with FaultServer() as upstream:
        async with on_stdio(upstream, *MODEL) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            page = (await client.read_resource("redraft://checks")).contents[0].text
    assert set(tools) == {"refine", "check", "compare"}
    for tool in tools.values():
        undescribed = [n for n, p in tool.input_schema["properties"].items() if not p.get("description")]
        assert undescribed == []
        assert tool.input_schema["additionalProperties"] is False
        assert tool.output_schema["properties"]
    assert "`sentences`" in page
    assert "keyword_counts:fox=2" in page


async def test_check_judges_and_repairs_without_any_model():
    with FaultServer() as upstream:
        async with on_stdio(upstream, *MODEL) as client:
            checks = [
                "no_commas",
                {"check": "words", "args": [3, 4]},
                {"type": "icontains", "value": "SOAP"},
                "rubric:kind",
            ]
            answer = await client.call_tool("check", {"text": "soap, and water", "checks": checks})
            one = await client.call_tool("check", {"text": "a b c", "checks": "words:2"})  # as some clients write it
        said = answer.structured_content
        assert [v["passed"] for v in said["verdicts"]] == [False, True, True]
        assert said["verdicts"][0]["explanation"] == "1 comma, want none"
        assert (said["passed"], said["fixed"], said["fixed_passed"]) == (False, "soap and water", True)
        assert said["not_judged"] == ["rubric"]
        assert json.loads(answer.content[0].text) == said
        assert one.structured_content["verdicts"][0]["explanation"] == "3 words, want 2"
        assert upstream.calls == 0


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_refine_climbs_tells_of_each_attempt_and_gives_the_receipt(mode):
    told = []

    async def hear(progress, total, message):
        told.append((progress, total, message))

    with FaultServer(["one two", "one two three"]) as upstream:
        async with on_stdio(upstream, *MODEL, mode=mode) as client:
            asked = {"task": "Count", "checks": ["words:3"], "inputs": {"start": "one"}}
            answer = await client.call_tool("refine", asked, progress_callback=hear)
        said = answer.structured_content
        assert (said["text"], said["passed"], said["stop_reason"]) == ("one two three", True, "passed")
        assert [(a["rung"], a["passed"], a["failed"]) for a in said["attempts"]] == [
            ("tell", False, ["2 words, want 3"]),
            ("resample", True, []),
        ]
        assert said["usage"]["calls"] == upstream.calls == 2
        assert said["usage"]["input_tokens"] + said["usage"]["output_tokens"] == sum(
            a["tokens"] for a in said["attempts"]
        )
        assert said["best"] == 1
        assert said["run_id"]
        assert [(p, t) for p, t, _ in told] == [(1, 3), (2, 3)]
        assert told[0][2].startswith("draft 1: x 2 words, want 3")
        assert "one" in last_message(upstream.requests[0])


async def test_the_projects_calibration_is_what_auto_takes(tmp_path, monkeypatch):
    key = "openai/test | task -> answer | words"
    entry = f'[calibrated."{key}"]\nstrategy = "predict"\nattempts = 1\n'
    (tmp_path / "redraft.toml").write_text(entry, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with FaultServer(["one two"]) as upstream:
        async with on_stdio(upstream, *MODEL) as client:
            answer = await client.call_tool("refine", {"task": "Count", "checks": ["words:3"]})
            await until(lambda: "auto: predict, attempts 1, as calibrated" in client.said())
    assert (answer.structured_content["strategy"], upstream.calls) == ("predict", 1)


async def test_a_draft_that_passes_comes_back_untouched_and_one_that_code_can_mend_is_mended_for_nothing():
    with FaultServer() as upstream:
        async with on_stdio(upstream, *MODEL) as client:
            twice = "the same. the same. the same."  # reads badly, but passes: nobody asked for more
            fine = await client.call_tool("refine", {"task": "t", "draft": twice, "checks": ["lowercase"]})
            mended = await client.call_tool(
                "refine", {"task": "t", "draft": "A, B", "checks": ["no_commas", "words:2"]}
            )
        assert (fine.structured_content["text"], fine.structured_content["stop_reason"]) == (twice, "passed")
        assert fine.structured_content["usage"]["calls"] == 0
        assert [a["rung"] for a in mended.structured_content["attempts"]] == ["given", "fix"]
        assert mended.structured_content["text"] == "A B"
        assert upstream.calls == 0


async def test_a_draft_that_falls_short_is_edited_and_the_best_is_kept():
    with FaultServer(["worse by far and away", "red soap lasts"]) as upstream:
        async with on_stdio(upstream, *MODEL) as client:
            asked = {"task": "A slogan", "draft": "soap lasts", "checks": ["words:3", "contains:soap"]}
            answer = await client.call_tool("refine", asked)
        said = answer.structured_content
        assert [a["rung"] for a in said["attempts"]] == ["given", "edit", "edit"]
        assert [a["accepted"] for a in said["attempts"]] == [True, False, True]
        assert said["text"] == "red soap lasts"
        assert all("soap lasts" in last_message(body) for body in upstream.requests)


async def test_criteria_are_judged_by_an_editor():
    def answer(body):
        if "json_schema" in str(body.get("response_format")):
            return json.dumps({"verdict": "ok", "issues": []})
        return "a red dog"

    with FaultServer(answer) as upstream:
        async with on_stdio(upstream, *MODEL) as client:
            answer = await client.call_tool("refine", {"task": "A dog", "criteria": ["colour"]})
        said = answer.structured_content
        assert (said["strategy"], said["stop_reason"], said["text"]) == ("reflect", "critic_ok", "a red dog")
        assert said["passed"] is None
        assert "colour" in str(upstream.requests[1]["messages"])


async def test_a_client_that_cancels_ends_the_run_and_its_call_which_is_charged():
    with FaultServer(
        lambda body: Reply(text="late", delay=30) if "slow" in last_message(body) else "quick"
    ) as upstream:
        async with on_stdio(upstream, *MODEL) as client:
            call = asyncio.ensure_future(client.call_tool("refine", {"task": "slow", "checks": ["words:1"]}))
            await until(lambda: upstream.calls == 1)
            call.cancel()
            await until(lambda: upstream.aborted == 1)
            await until(lambda: "cancelled by the client: 1 call, " in client.said())
            after = await client.call_tool("refine", {"task": "quick", "checks": ["words:1"]})
        assert after.structured_content["text"] == "quick"
        assert upstream.calls == 2


async def test_no_request_spends_beyond_the_owners_limits_nor_its_own():
    with FaultServer(lambda _: "never three words, ever") as upstream:
        async with on_stdio(upstream, *MODEL, "--call-limit", "2") as client:
            asked = {"task": "t", "checks": ["words:3"], "attempts": 9}
            greedy = await client.call_tool("refine", {**asked, "limits": {"calls": 50}})
            assert upstream.calls == 2
            modest = await client.call_tool("refine", {**asked, "limits": {"calls": 1}})
            assert upstream.calls == 3
            broke = await client.call_tool("refine", {**asked, "limits": {"tokens": 1}})
            assert upstream.calls == 3
        for answer, limit in ((greedy, 2), (modest, 1)):
            said = answer.structured_content
            assert (said["stop_reason"], said["limits"]["calls"], said["usage"]["calls"]) == ("budget", limit, limit)
            assert "calls" in said["error"]
        assert "token" in error_of(broke)


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("refine", {"task": "t", "check": ["words:3"]}, "check: no such argument; did you mean checks?"),
        ("refine", {"checks": ["words:3"]}, "task: Field required"),
        ("refine", {"task": "t", "checks": ["wrods:3"]}, "Did you mean 'words'?"),
        ("refine", {"task": "t", "checks": ["words:many"]}, "checks[0]: check 'words:many'"),
        ("refine", {"task": "t", "checks": [{"check": "words", "arg": [3]}]}, "checks[0]:"),
        ("refine", {"task": "t", "checks": ["words:3"], "attempts": 0}, "attempts: Input should be greater"),
        ("refine", {"task": "t", "checks": ["words:3"], "limits": {"call": 3}}, "did you mean calls?"),
        ("refine", {"task": "t", "strategy": "refine"}, "give checks"),
        ("refine", {"task": "t", "checks": ["words:3"], "rounds": 2}, "rounds has no use in the strategy refine"),
        ("refine", {"task": "t", "inputs": {"task": "x"}}, "'task'"),
        ("refine", {"task": "t", "checks": ["words:3"], "model": "other"}, "'other' is not offered here"),
        ("check", {"text": "t", "checks": []}, "checks: List should have at least 1 item"),
        ("compare", {"task": "t", "a": "x", "b": "y", "judge": "never"}, "nothing to compare by"),
        ("polish", {}, "no tool 'polish'"),
    ],
)
async def test_what_cannot_be_done_is_an_error_that_says_what_to_do(tool, arguments, said):
    with FaultServer() as upstream:
        async with on_stdio(upstream, *MODEL) as client:
            assert said in error_of(await client.call_tool(tool, arguments))
        assert upstream.calls == 0


@pytest.mark.parametrize(
    "check",
    [
        "json_schema:secret.json",
        "is-json:secret.json",
        "rubric:secret.md",
        "not-llm-rubric:file://secret.md",
        "python_tests:tests.py",
        {"check": "python_tests", "args": ["import os"]},
        {"any_of": ["words:3", {"check": "rubric", "args": ["secret.md"]}]},
        {"type": "assert-set", "assert": [{"type": "python", "value": "file://x.py"}]},
        {"type": "llm-rubric", "value": "kind", "provider": "openai/dear"},
        {"check": "rubric", "args": ["kind"], "lm": "openai/dear"},
    ],
    ids=str,
)
async def test_a_client_names_no_files_runs_no_code_and_chooses_no_judge(check):
    with FaultServer() as upstream:
        async with on_stdio(upstream, *MODEL) as client:
            said = error_of(await client.call_tool("check", {"text": "t", "checks": [check]}))
    assert said.startswith("checks[0]: ")
    assert "--trusted" in said


async def test_an_owner_may_trust_clients():
    with FaultServer() as upstream:
        async with on_stdio(upstream, *MODEL, "--trusted") as client:
            tests = {"check": "python_tests", "args": ["assert double(2) == 4"]}
            answer = await client.call_tool("check", {"text": "def double(x): return 2 * x", "checks": [tests]})
    assert answer.structured_content["passed"] is True


async def test_a_failing_upstream_is_an_error_with_what_was_spent():
    with FaultServer(lambda _: Reply.error(400, "no such model")) as upstream:
        async with on_stdio(upstream, *MODEL) as client:
            said = error_of(await client.call_tool("refine", {"task": "t", "checks": ["words:3"], "attempts": 1}))
    assert "no such model" in said
    assert "spent: 1 call" in said


async def test_half_a_character_in_a_reply_loses_nothing():
    with FaultServer(["bad \ud83d text"]) as upstream:
        async with on_stdio(upstream, *MODEL) as client:
            answer = await client.call_tool("refine", {"task": "t", "checks": ["contains:\u00e9"], "attempts": 1})
    assert answer.structured_content["text"] == "bad ? text"
    assert json.loads(answer.content[0].text) == answer.structured_content


async def test_requests_run_side_by_side_and_keep_apart():
    with FaultServer(lambda body: Reply(text=last_message(body).split()[0], delay=0.3)) as upstream:
        async with on_stdio(upstream, *MODEL) as client:
            names = [f"name{i}" for i in range(8)]
            asked = [{"task": name, "checks": [f"contains:{name}"]} for name in names]
            answers = await asyncio.gather(*(client.call_tool("refine", a) for a in asked))
        assert [a.structured_content["text"] for a in answers] == names
        assert [a.structured_content["usage"]["calls"] for a in answers] == [1] * 8
        assert upstream.most_connections > 1


async def test_compare_goes_by_checks_and_asks_a_judge_in_both_orders_only_where_they_do_not_tell():
    def judge(body):
        text = last_message(body)
        return json.dumps({"better": "A" if text.index("good soap") < text.index("bad soap") else "B"})

    with FaultServer(judge) as upstream:
        async with on_stdio(upstream, *MODEL) as client:
            both = {"task": "Praise soap", "a": "bad soap", "b": "good soap"}
            by_checks = (await client.call_tool("compare", {**both, "checks": ["contains:bad"]})).structured_content
            assert upstream.calls == 0
            by_judge = (await client.call_tool("compare", {**both, "checks": ["words:2"]})).structured_content
            assert upstream.calls == 2
        assert (by_checks["winner"], by_checks["decided_by"], by_checks["judge"]) == ("a", "checks", None)
        assert by_checks["why"].startswith("b falls short: ")
        assert (by_judge["winner"], by_judge["decided_by"], by_judge["usage"]["calls"]) == ("b", "judge", 2)


async def test_a_judge_that_prefers_a_place_decides_nothing():
    with FaultServer(lambda _: json.dumps({"better": "A"})) as upstream:
        async with on_stdio(upstream, *MODEL) as client:
            said = (await client.call_tool("compare", {"task": "t", "a": "x", "b": "y"})).structured_content
    assert (said["winner"], said["decided_by"], said["judge"]) == ("tie", "nobody", "inconsistent")


def test_stdout_holds_the_protocol_alone_and_the_end_of_input_ends_it():
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "check", "arguments": CHECK}},
    ]
    with FaultServer() as upstream, started(upstream) as process:
        for line in lines:
            process.stdin.write(json.dumps(line) + "\n")
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in (1, 2)]
        out, err = process.communicate(timeout=15)
    assert [a["id"] for a in answers] == [1, 2]
    assert answers[1]["result"]["structuredContent"]["passed"] is True
    assert (out, process.returncode) == ("", 0)
    assert "Traceback" not in err


def test_the_end_of_input_cuts_off_what_is_under_way():
    asked = {"name": "refine", "arguments": {"task": "t", "checks": ["words:1"]}}
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": asked},
    ]
    with FaultServer(lambda _: Reply(delay=30)) as upstream, started(upstream) as process:
        process.stdin.write("".join(json.dumps(line) + "\n" for line in lines))
        process.stdin.flush()
        asyncio.run(until(lambda: upstream.calls == 1))
        _, err = process.communicate(timeout=10)
        asyncio.run(until(lambda: upstream.aborted == 1))
    assert process.returncode == 0
    assert "1 call, " in err
    assert "Traceback" not in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_at_once(number):
    with FaultServer() as upstream, started(upstream) as process:
        process.stdin.write(
            json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}) + "\n"
        )
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 1
        process.send_signal(number)
        assert process.wait(timeout=10) == 128 + number
        assert "Traceback" not in process.stderr.read()


INITIALIZE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}}
CHECK = {"text": "a b", "checks": ["words:2"]}


def started(upstream):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*COMMAND, *MODEL], env=surroundings(upstream), **pipes)


@pytest.mark.local
def test_the_example_refines_on_the_embedded_model():
    example = Path(__file__).parents[2] / "examples/14_mcp_session.py"
    kept = {k: v for k, v in os.environ.items() if not k.startswith("OPENAI_") and k != "REDRAFT_MODEL"}
    ended = subprocess.run(
        [sys.executable, example], env=kept, capture_output=True, text=True, timeout=120, check=True, encoding="utf-8"
    )
    assert "tools: refine, check, compare" in ended.stdout
    assert "by code alone: La Maison is nice and the soup is hot." in ended.stdout
    assert " | calls: " in ended.stdout
