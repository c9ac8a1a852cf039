"""The jail's hostile cells in another sandbox, sandlock: which of them get something there, and which in the jail?

    pip install sandlock    # needs Landlock ABI 6, which is Linux 6.12
    python benchmarks/sandbox_second_opinion.py

Each cell runs in a fresh Python inside sandlock with the standard library readable and nothing else, no network, no
writes. What differs is printed; the jail's own column is the test-suite's (tests/sandbox/test_hostile_cells.py).
"""

import asyncio
import json
import socket
import sys
import sysconfig
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "sandbox"))

from hostile_cells import BEFORE, DENIED, escaped

from redraft.sandbox import Jail

SECRET = "a secret of the host"
RUNNER = """
import json, sys, traceback
before, cells = json.load(sys.stdin)
names = {}
exec(before, names)
for name, code in cells:
    print("\\n##", name, flush=True)
    try:
        exec(code, names)
    except BaseException as error:
        print("!!", type(error).__name__, error, flush=True)
"""


def in_sandlock(before: str, name: str, code: str) -> str:
    """What one cell said in sandlock, and how its process ended."""
    import sandlock

    home = sysconfig.get_paths()["stdlib"]
    readable = [
        home,
        "/lib",
        "/lib64",
        "/usr/lib",
        "/etc/ld.so.cache",
        str(Path(sys.executable).resolve().parent.parent),
    ]
    box = sandlock.Sandbox(fs_readable=[path for path in readable if Path(path).exists()], max_memory="600M")
    script = RUNNER.replace("json.load(sys.stdin)", repr([before, [[name, code]]]))
    result = box.run([str(Path(sys.executable).resolve()), "-I", "-S", "-c", script], timeout=20)
    said = result.stdout if isinstance(result.stdout, str) else result.stdout.decode("utf-8", "replace")
    return f"{said}\n== {getattr(result, 'exit_code', '?')}"


async def in_jail(before: str) -> dict[str, str]:
    jail = Jail(seconds=20)
    await jail.start({}, {})
    await jail.execute(before)
    said = {}
    for name, code in DENIED.items():
        result = await jail.execute(code)
        said[name] = f"{result.output}\n== {result.error}"
    await jail.close()
    return said


def main() -> None:
    try:
        import sandlock
    except ImportError:
        sys.exit("sandlock is not installed: pip install sandlock")
    if sandlock.landlock_abi_version() < sandlock.min_landlock_abi():
        sys.exit(
            f"sandlock needs Landlock ABI {sandlock.min_landlock_abi()}, this kernel has {sandlock.landlock_abi_version()}"
        )
    with tempfile.TemporaryDirectory() as home, socket.socket() as tcp:
        file = Path(home, "secret")
        file.write_text(SECRET, encoding="ascii")
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        names = {
            "SECRET": str(file),
            "PORT": tcp.getsockname()[1],
            "UNIX": str(file),
            "ABSTRACT": "x",
            "PACKAGES": home,
        }
        before = "\n".join([BEFORE, *(f"{name} = {value!r}" for name, value in names.items())])
        ours = asyncio.run(in_jail(before))
        theirs = {name: in_sandlock(before, name, code) for name, code in DENIED.items()}
    for title, said in (("jail", ours), ("sandlock", theirs)):
        got = [name for name, text in said.items() if escaped(text) or SECRET in text]
        print(f"{title}: {len(said) - len(got)} of {len(said)} held; got something: {json.dumps(got)}")
    for name in DENIED:
        if bool(escaped(theirs[name])) != bool(escaped(ours[name])):
            print(
                f"\n{name}\n  sandlock: {' '.join(theirs[name].split())[-200:]}\n  jail: {' '.join(ours[name].split())[-200:]}"
            )


if __name__ == "__main__":
    main()
