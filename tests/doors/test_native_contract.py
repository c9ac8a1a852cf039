"""The LM contract over every native door, against servers in the providers' own formats."""

from contextlib import ExitStack

import pytest

pytest.importorskip("pydantic_ai")

from native_doors import CASES, params, start

from redraft.testing import FunctionLM, Reply, lm_contract

pytestmark = pytest.mark.doors

NAMES = [name for name, _ in lm_contract(lambda: FunctionLM(lambda request: ""))]


@pytest.fixture
def serve():
    with ExitStack() as running:
        yield lambda case, script=None, **options: start(running, case, script, **options)


@pytest.mark.parametrize("case", params(CASES))
@pytest.mark.parametrize("name", NAMES)
async def test_it_keeps_its_promise(serve, case, name):
    server, _ = serve(case, lambda asked: Reply(text="Red, green and blue.", reasoning="rgb", delay=0.002))
    await dict(lm_contract(lambda: case.make(server)))[name]()
