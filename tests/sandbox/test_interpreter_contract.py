"""Every interpreter keeps the contract; the names of promises are the test's ids."""

import pytest

from redraft.sandbox import Jail
from redraft.sandbox.local import UnsafeLocal
from redraft.testing import interpreter_contract


def jail():
    return Jail(seconds=1.0)


def local():
    return UnsafeLocal(seconds=1.0)


@pytest.mark.parametrize("promise", [pytest.param(check, id=name) for name, check in interpreter_contract(jail)])
async def test_jail(promise):
    await promise()


LOCAL = interpreter_contract(local, lacks={"kills", "containment"})


@pytest.mark.filterwarnings("ignore:unsafe_local:RuntimeWarning")
@pytest.mark.parametrize("promise", [pytest.param(check, id=name) for name, check in LOCAL])
async def test_unsafe_local(promise):
    await promise()


def test_an_unknown_part_is_an_error():
    with pytest.raises(ValueError, match="no such parts: wings"):
        interpreter_contract(jail, lacks={"wings"})
