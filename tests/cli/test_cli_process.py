"""The command line as a process: startup, pipes, Ctrl-C. A loopback server plays the model."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_texts import BRIEF, THREE

from redraft.testing import FaultServer, Reply

HEAVY = {"openai", "pydantic", "rich", "xllamacpp", "asyncio"}


def test_help_and_version_load_nothing_heavy():
    script = """if True:
        import json, sys
        from redraft.cli import main
        codes = []
        for args in (["--help"], ["run", "--help"], ["models", "--help"], ["--version"], [], ["models"]):
            try:
                main(args)
            except SystemExit as end:
                codes.append(end.code)
        print(json.dumps([codes, sorted(sys.modules)]))
    """
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    codes, modules = json.loads(said.splitlines()[-1])
    assert codes == [0] * 6
    assert HEAVY & set(modules) == set()
    assert said.count("Exit codes:") == 3


def test_python_m_redraft_is_redraft(start):
    from redraft import __version__

    out, _ = start("--version").communicate(timeout=10)
    assert out == f"redraft {__version__}\n"


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
def test_without_a_task_on_a_terminal_it_does_not_wait_for_one(start):
    here, there = pty.openpty()
    try:
        process = start("run", stdin=there)
        _, err = process.communicate(timeout=10)
    finally:
        os.close(here)
        os.close(there)
    assert process.returncode == 2
    assert "there is no task; give it as an argument" in err


@pytest.mark.server
class TestOnAServer:
    """Each with a real server and the real client."""

    def on(self, server, *args):
        return ("run", "Review", "-m", "test", "--base-url", server.base_url, *args)

    @pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    def test_a_signal_prints_the_best_so_far_at_once(self, start, until, stopped, number, code):
        with FaultServer([BRIEF, Reply(delay=30)]) as server:
            process = start(*self.on(server, "--check", "sentences:3"))
            until(lambda: server.calls == 2)
            returncode, out, err, seconds = stopped(process, number)
            until(lambda: server.aborted == 1, 2)
        assert (returncode, out) == (code, BRIEF + "\n")
        assert err.endswith("stopped: cancelled\n")
        assert seconds < 1.5

    def test_a_signal_before_any_draft(self, start, until, stopped):
        with FaultServer([Reply(delay=30)]) as server:
            process = start(*self.on(server))
            until(lambda: server.calls == 1)
            code, out, err, seconds = stopped(process)
        cut, said = err.splitlines()
        assert (code, out, said) == (130, "", "redraft: interrupted before there was any draft")
        assert cut.split() == ["draft", "1", "cut", "off", "at", "least", "0", "tokens"]
        assert seconds < 1.5

    def test_a_second_signal_ends_it_at_once(self, start, until, stopped):
        Path("stuck.py").write_text(
            "import pathlib, time\nfrom redraft.checks import Check\n"
            "class Stuck(Check):\n"
            "    def judge(self, value):\n"
            "        pathlib.Path('stuck').touch()\n"
            "        time.sleep(30)\n"
            "checks = [Stuck()]\n"
        )
        with FaultServer([BRIEF]) as server:
            process = start(*self.on(server, "--check-file", "stuck.py"))
            until(Path("stuck").exists)
            process.send_signal(signal.SIGINT)
            time.sleep(0.5)
            assert process.poll() is None
            code, _, err, seconds = stopped(process)
        assert code == 130
        assert "Traceback" not in err
        assert seconds < 1

    def test_json_of_an_interrupted_run(self, start, until, stopped):
        with FaultServer([BRIEF, Reply(delay=30)]) as server:
            process = start(*self.on(server, "--check", "sentences:3", "--json", "-q"))
            until(lambda: server.calls == 2)
            code, out, err, _ = stopped(process)
        whole = json.loads(out)
        assert (code, err) == (130, "")
        assert (whole["text"], whole["stop_reason"]) == (BRIEF, "cancelled")

    def test_a_reader_that_left_is_no_error(self, start):
        here, there = os.pipe()
        os.close(here)
        with FaultServer([THREE]) as server:
            process = start(*self.on(server, "--strategy", "predict", "-q"), stdout=there)
            os.close(there)
            _, err = process.communicate(timeout=10)
        assert (process.returncode, err) == (0, "")

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
    def test_a_full_disk_is_said(self, start):
        with FaultServer([THREE]) as server, Path("/dev/full").open("w") as full:
            process = start(*self.on(server, "--strategy", "predict", "-q"), stdout=full)
            _, err = process.communicate(timeout=10)
        assert process.returncode == 1
        assert err == "redraft: the text could not be written to stdout: No space left on device\n"

    def test_plain_progress_does_not_stream(self, start):
        with FaultServer([THREE]) as server:
            process = start(*self.on(server, "--strategy", "predict"))
            out, err = process.communicate(timeout=10)
        assert (process.returncode, out) == (0, THREE + "\n")
        assert "\x1b" not in err
        assert not server.requests[0].get("stream")

    @pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
    def test_a_terminal_shows_the_draft_while_it_is_written(self, start):
        here, there = pty.openpty()
        with FaultServer([Reply(text=THREE, pause=0.02)]) as server:
            env = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
            process = start(*self.on(server, "--check", "sentences:3"), stderr=there, env=env)
            os.close(there)
            shown = read_all(here)
            out, _ = process.communicate(timeout=10)
        assert (process.returncode, out) == (0, THREE + "\n")
        assert server.requests[0]["stream"] is True
        assert "La Maison is a small" in shown
        assert "\x1b[32mok 1/1\x1b[0m" in shown
        assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") > 0

    def test_a_model_is_tried_out(self, redraft):
        def answer(asked):
            if "tools" in asked:
                call = {"name": asked["tools"][0]["function"]["name"], "arguments": '{"colour": "red"}'}
                return Reply(tool_calls=[{"id": "1", "type": "function", "function": call}])
            return '{"colour": "red"}' if "response_format" in asked else "red is a colour"

        with FaultServer(answer) as server:
            said = redraft("models", "check", "test", "--base-url", server.base_url)
        assert said.exit_code == 0
        lines = dict(line.split(maxsplit=1) for line in said.stdout.splitlines()[2:-1])
        assert lines["json_schema"].split() == ["yes", "held"]
        assert lines["seed"].split() == ["yes", "repeats"]
        assert lines["stream"].split() == ["yes", "4", "pieces"]
        assert lines["grammar"].split() == ["no", "not", "tried"]

    def test_a_model_that_does_not_do_what_it_says_is_exit_code_4(self, redraft):
        with FaultServer(lambda asked: "no JSON today") as server:
            said = redraft("models", "check", "test", "--base-url", server.base_url)
        assert said.exit_code == 4
        assert "not held: 'no JSON today'" in said.stdout


def read_all(terminal):
    parts = []
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # Linux says so when the other end is closed
            part = b""
        if not part:
            os.close(terminal)
            return b"".join(parts).decode()
        parts.append(part)
