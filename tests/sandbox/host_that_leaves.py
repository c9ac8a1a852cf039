"""A host process that starts a jail, says its process id, and ends in one way or another."""

import asyncio
import os
import sys
import threading
import warnings

from redraft.sandbox import Jail


async def begin(jail):
    await jail.start({"x": 1}, {})
    print((await jail.execute("import os\nprint(os.getpid())")).output, end="", flush=True)


async def hang(jail):
    await begin(jail)
    await jail.execute("while True: pass")


def main(way):
    jail = Jail(seconds=600)
    if way == "hangs":  # until it is killed
        asyncio.run(hang(jail))
    elif way == "forgets":
        asyncio.run(begin(jail))
    elif way == "raises":
        asyncio.run(begin(jail))
        raise SystemExit(3)
    elif way == "thread":  # the thread that started it ends first; it goes on all the same
        thread = threading.Thread(target=lambda: asyncio.run(begin(jail)))
        thread.start()
        thread.join()
        result = asyncio.run(jail.execute("print(x)"))
        print(result.output, end="", flush=True)
    elif way == "forks":
        asyncio.run(begin(jail))
        if os.fork() == 0:
            asyncio.run(begin(Jail()))
            os._exit(0)
        os.wait()
        print(asyncio.run(jail.execute("print(x)")).output, end="", flush=True)
    elif way == "copies":
        copied(jail)


def copied(jail):
    """Forked copies of the host forget the jail, and come to a regular end: it is not theirs."""
    asyncio.run(begin(jail))
    for forget in (True, False):
        if (pid := os.fork()) == 0:
            if forget:
                jail._process = None
                os._exit(0)
            sys.exit(0)
        os.waitpid(pid, 0)
    print(asyncio.run(jail.execute("print(x)")).output, end="", flush=True)


warnings.filterwarnings("ignore", "This process.*fork")  # Python 3.12 and newer warn of threads; the forks are the test
main(sys.argv[1])
