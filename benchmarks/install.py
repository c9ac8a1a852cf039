"""What one installs, and what an import costs: each library in an environment of its own, as `pip install` gives it.

MB are those of site-packages without pip and setuptools, bytecode included, but for optillm's (a MB is 10^6 bytes).
The import is CPU of a new process without the bare interpreter's, the least of several in turn. The first answer is
CPU of a whole process that makes one (imports included). optillm is installed by uv, since pip had not found a set of
its packages after three minutes, and its first answer includes the start of its proxy. dspy and mellea ship more than
a loop, optillm local inference with torch.
"""

import subprocess
import sys
from pathlib import Path

import loop
import record
from overhead import child
from peers import envs, jobs

LIBRARIES = [
    ("openai (the floor)", "floor", "openai", "best of N", "import openai"),
    ("redraft", "redraft", "redraft-base", "BestOfN", "from redraft import Refine, Predict, checks"),
    ("redraft[local]", "redraft", "redraft-local", "", ""),
    ("redraft[server]", "redraft", "redraft-server", "serve", "import redraft.server.app"),
    ("dspy", "dspy", "dspy", "BestOfN", "import dspy"),
    ("instructor", "instructor", "instructor", "retries", "import instructor"),
    ("mellea", "mellea", "mellea", "rejection", "from mellea import MelleaSession"),
    ("its-hub[lm]", "its-hub", "its-hub", "BestOfN",
     "from its_hub.core.algorithms.bon import BestOfN; from its_hub.core.lms import openai_lm"),
    ("rlms", "rlms", "rlms", "", "from rlm import RLM"),
    ("optillm", "optillm", "optillm", "bon", "import optillm.server"),
]  # fmt: skip
BETTER = {"packages": "low", "MB": "low", "import ms": "low", "modules": "low", "first answer ms": "low"}
LEFT_OUT = {"pip", "setuptools", "wheel", "pkg_resources", "_distutils_hack", "distutils-precedence.pth"}


def size(program, *, compiled):
    """Packages and MB of an environment."""
    folder = Path(program).parent.parent
    if compiled:
        subprocess.run([program, "-m", "compileall", "-q", str(folder / "lib")], check=False, capture_output=True)
    [site] = folder.glob("lib/python*/site-packages")
    kept = [path for path in site.iterdir() if path.name.partition("-")[0] not in LEFT_OUT]
    packages = sum(path.suffix == ".dist-info" for path in kept)
    files = [f for path in kept for f in ([path] if path.is_file() else path.rglob("*")) if f.is_file()]
    return packages, sum(f.stat().st_size for f in files) / 1e6


def modules(program, statement):
    code = f"import sys; was = len(sys.modules); {statement}; print(len(sys.modules) - was)"
    return int(subprocess.check_output([program, "-W", "ignore", "-c", code], text=True).split()[-1])


def measure(options):
    libraries = [one for one in LIBRARIES if not options.only or one[1] in ("floor", "redraft", *options.only)]
    taken = {one[0]: {"pass": [], one[4]: [], "first": []} for one in libraries}
    with jobs.served() as url:
        for nth in range(options.runs):
            for name, peer, env, arm, statement in libraries:
                if nth and peer in loop.SLOW:
                    continue
                for code in filter(None, ("pass", statement)):
                    taken[name][code].append(child(code, envs.python(env)))
                if arm:
                    job = {"url": url, "model": "first.0", "items": 1, "warm": 0, "tries": 3}
                    taken[name]["first"].append(jobs.child(peer, arm, whole=True, **job)["cpu_whole"] * 1e3)
                print(".", end="", file=sys.stderr, flush=True)
    rows = [row(one, taken[one[0]]) for one in libraries]
    what = f"an environment of each; least of {options.runs} runs in turn"
    yield record.Table("What one installs", what, rows, BETTER)


def row(library, figures):
    name, peer, env, _, statement = library
    packages, mb = size(envs.python(env), compiled=peer not in loop.SLOW)
    return {
        "library": name,
        "by": peer,
        "packages": packages,
        "MB": mb,
        "import ms": min(figures[statement]) - min(figures["pass"]) if statement else None,
        "modules": modules(envs.python(env), statement) if statement else None,
        "first answer ms": min(figures["first"]) if figures["first"] else None,
    }


def more(parser):
    jobs.options(parser)
    parser.add_argument("--runs", type=int, default=5)


if __name__ == "__main__":
    record.main(
        "install", "What one installs, and what an import costs", measure, more, about=__doc__, peers=envs.versions
    )
