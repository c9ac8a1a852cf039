"""Runs every denied cell in one jail and prints, as JSON, which got something: for other users and namespaces."""

import asyncio
import json
import socket
import sys
import tempfile
from pathlib import Path

from hostile_cells import BEFORE, DENIED, escaped

from redraft.sandbox import Jail

SECRET = "a secret of the host"


async def main(prefix):
    with tempfile.TemporaryDirectory() as home:
        Path(home).chmod(0o755)
        file = Path(home, "secret")
        file.write_text(SECRET)
        with socket.socket() as tcp:
            tcp.bind(("127.0.0.1", 0))
            tcp.listen()
            names = {
                "SECRET": str(file),
                "PORT": tcp.getsockname()[1],
                "UNIX": str(file),
                "ABSTRACT": "x",
                "PACKAGES": home,
            }
            jail = Jail(seconds=20, prefix=prefix)
            await jail.start({}, {})
            before = "\n".join([BEFORE, *(f"{name} = {value!r}" for name, value in names.items())])
            assert (await jail.execute(before)).error == ""
            got = []
            for name, code in DENIED.items():
                result = await jail.execute(code)
                if escaped(result.output) or SECRET in result.output or not result.error or result.lost:
                    got.append([name, result.output[-200:], result.error])
                if result.lost:
                    await jail.start({}, {})
                    await jail.execute(before)
            alive = (await jail.execute("print(1 + 1)")).output
            await jail.close()
        untouched = file.read_text() == SECRET and [path.name for path in Path(home).iterdir()] == ["secret"]
    said = {"cells": len(DENIED), "got": got, "alive": alive, "untouched": untouched, "used": jail.used}
    sys.stdout.write(json.dumps(said) + "\n")


asyncio.run(main(sys.argv[1:]))
