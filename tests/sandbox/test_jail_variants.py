"""The jail holds for root, for nobody, and inside of namespaces; and its self-test says so."""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from redraft.sandbox import self_test
from redraft.sandbox.__main__ import main, transcript

ROOT = Path(__file__).parents[2]
CELLS = Path(__file__).with_name("variant_cells.py")


def for_everybody(path):
    """Everybody may go there and read it."""
    path = Path(os.path.realpath(path))
    return all(place.stat().st_mode & stat.S_IROTH for place in [path]) and all(
        place.stat().st_mode & stat.S_IXOTH for place in path.parents
    )


def public_python():
    """A Python 3.11 or newer that any user can start, with sources that any user can read."""
    if not for_everybody(CELLS):
        pytest.skip("this clone is not readable for everybody")
    for name in ("python3", "python3.13", "python3.12", "python3.11"):
        for found in (sys.executable, shutil.which(name, path="/usr/local/bin:/usr/bin")):
            if found and for_everybody(found):
                new = subprocess.run(
                    [found, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"], check=False
                ).returncode
                if new == 0:
                    return found
    return pytest.skip("no Python 3.11 or newer here that every user can start")


def works(*command):
    if (
        shutil.which(command[0]) is None
        or subprocess.run([*command, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip(f"`{' '.join(command)}` does not work here")
    return command


def run(command, python, *arguments):
    env = {"PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1", "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [*command, python, *arguments], capture_output=True, text=True, timeout=120, env=env, cwd="/", check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def holds(said, user=None):
    told = json.loads(said)
    assert told["got"] == []
    assert told["cells"] > 80
    assert told["alive"] == "2\n"
    assert told["untouched"]
    assert user is None or told["used"]["user"] == user


def as_nobody():
    if os.getuid() != 0:
        pytest.skip("only root can become another user; this run is as an ordinary one already")
    return works("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")


def test_it_holds_for_an_ordinary_user():
    holds(run(as_nobody(), public_python(), str(CELLS)), user="65534")


def test_it_holds_for_root_and_makes_it_nobody():
    if os.getuid() != 0:
        pytest.skip("needs root")
    holds(run((), public_python(), str(CELLS)), user="65534")


def test_it_holds_inside_of_namespaces():
    holds(run(works("unshare", "-Urn"), sys.executable, str(CELLS)), user="0")


def test_it_holds_with_namespaces_in_front_of_it():
    holds(run((), sys.executable, str(CELLS), *works("unshare", "-Urn")))


def test_it_holds_in_a_process_namespace():
    holds(run((), sys.executable, str(CELLS), *works("unshare", "-Urnpf", "--kill-child")))


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_it_holds_inside_of_bubblewrap():
    prefix = works("bwrap", "--ro-bind", "/", "/", "--unshare-all", "--die-with-parent")
    holds(run((), sys.executable, str(CELLS), *prefix))


async def test_the_self_test_tries_and_is_refused():
    jail = await self_test()
    tried = [probe.tried for probe in jail.probes]
    assert len(tried) >= 20
    assert all(probe.held for probe in jail.probes)
    for name in ("fork", "execve", "socket", "ptrace", "open /proc/self/environ", "signal the host", "make a file"):
        assert name in tried
    assert f"{len(tried)} of {len(tried)} held" in transcript(jail)


def test_the_transcript_is_a_command(capsys):
    assert main([]) == 0
    assert "  held   fork" in capsys.readouterr().out
    assert main(["false"]) == 1
    assert capsys.readouterr().out.startswith("no jail: ")


# Refusals: a system call that this system does not have is played by a filter in front of the child.

WITHOUT = """
import ctypes, os, struct, sys
number, error = int(sys.argv[1]), int(sys.argv[2])
class P(ctypes.Structure):
    _fields_ = (("n", ctypes.c_ushort), ("f", ctypes.c_void_p))
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x50000 | error), (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *s) for s in steps))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(P(len(steps), ctypes.addressof(code))), 0, 0) == 0
os.execv(sys.argv[3], sys.argv[3:])
"""


def without(number, error):
    return sys.executable, "-S", "-c", WITHOUT, str(number), str(error)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of calls are x86-64's")
@pytest.mark.parametrize(
    ("number", "error", "says"),
    [
        (444, 38, "Landlock is not there .ENOSYS."),
        (444, 95, "Landlock is not there .E(OP)?NOTSUPP?."),
        (445, 1, "a Landlock rule for .* was refused"),
        (446, 1, "Landlock was refused"),
        (126, 1, "dropping capabilities was refused"),
    ],
)
async def test_without_a_hold_there_is_no_jail(number, error, says):
    from redraft.errors import SandboxError

    with pytest.raises(SandboxError, match=says) as refused:
        await self_test(without(number, error))
    assert "monty" in str(refused.value)
    assert "container" in str(refused.value)
