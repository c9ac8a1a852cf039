"""One jail for all tests of a module: it belongs to no loop, and is started anew after a cell that it did not survive."""

import asyncio
from pathlib import Path

import pytest

from redraft.errors import SandboxError
from redraft.sandbox import Jail

PATIENCE = 60


class Shared:
    """A jail that is always there: started when it is first asked, and after each end."""

    def __init__(self, jail, functions=None, before=""):
        self.jail, self.functions, self.before = jail, functions or {}, before

    async def start(self):
        await self.jail.start({}, self.functions)
        if self.before:
            assert (await self.jail.execute(self.before)).error == ""

    async def run(self, code):
        try:
            return await asyncio.wait_for(self.jail.execute(code), PATIENCE)
        except SandboxError:
            await self.start()
            return await asyncio.wait_for(self.jail.execute(code), PATIENCE)


@pytest.fixture(scope="module")
def share():
    made = []

    def make(jail=None, **options):
        shared = Shared(jail or Jail(seconds=10), **options)
        made.append(shared)
        return shared

    yield make
    for shared in made:
        asyncio.run(shared.jail.close())


@pytest.fixture
def open_descriptors():
    """Counts those of this process."""
    return lambda: len([*Path("/proc/self/fd").iterdir()])


@pytest.fixture
async def jail():
    """A jail of one's own, not started."""
    jail = Jail(seconds=10)
    yield jail
    await jail.close()
