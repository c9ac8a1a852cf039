"""`python -m redraft.sandbox`: starts a jail that tries its own locks, and shows what came of it. Exit code 1: it leaks."""

from __future__ import annotations

import asyncio
import sys

from redraft.errors import SandboxError
from redraft.sandbox.jail import Jail, self_test


def transcript(jail: Jail) -> str:
    """What the jail was closed by, and each probe on a line."""
    used = jail.used
    threads = f"at most {used['threads']}" if used["threads"] else "counted by the host"
    head = f"jail on {used['machine']}: Landlock ABI {used['landlock']}, user id {used['user']}, threads {threads}"
    rows = [f"  {'held ' if probe.held else 'LEAKS'}  {probe.tried:<34} {probe.came}" for probe in jail.probes]
    return "\n".join([head, *rows, f"{sum(probe.held for probe in jail.probes)} of {len(rows)} held"])


def main(prefix: list[str]) -> int:
    """Run the self-test with a command in front of the child, if one is given."""
    try:
        said, code = transcript(asyncio.run(self_test(prefix))), 0
    except SandboxError as error:
        said, code = f"no jail: {error}", 1
    sys.stdout.write(f"{said}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
