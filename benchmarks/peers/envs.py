"""Each peer in an environment of its own, since they conflict: `build/peers/NAME`, made on first use.

Versions are pinned here. optillm's 253 packages are resolved by uv: pip had not found a set of them after three minutes.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "peers"
INSTALLED = {
    "redraft": f"{ROOT}[server]",
    "dspy": "dspy==3.4.1",
    "instructor": "instructor==1.17.0",
    "mellea": "mellea==0.8.0",
    "its-hub": "its-hub[lm]==1.2.0",
    "optillm": "optillm==0.4.0",
    "rlms": "rlms==0.1.3",
    "openai": "openai",  # and what follows, to see what an installation holds
    "redraft-base": str(ROOT),
    "redraft-local": f"{ROOT}[local]",
    "redraft-server": f"{ROOT}[server]",
}
WITH_UV = {"optillm"}
SHOWN = {"redraft": ("redraft", "openai"), "dspy": ("dspy", "openai", "litellm"), "instructor": ("instructor", "openai"),
         "mellea": ("mellea", "openai"), "its-hub": ("its_hub", "aiohttp"), "optillm": ("optillm", "openai", "flask"),
         "rlms": ("rlms", "openai")}  # fmt: skip


def python(name):
    """The interpreter of a peer's environment, which is made if it is not there or another version is wanted."""
    folder, wanted = FOLDER / name, INSTALLED[name]
    stamp = folder / ".ready"
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"setting up {folder.relative_to(ROOT)}: once", file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        install(folder, wanted, editable=name == "redraft", uv=name in WITH_UV)
        stamp.write_text(wanted)
    return str(folder / "bin" / "python")


def install(folder, wanted, *, editable=False, uv=False):
    """A fresh environment with it."""
    flags = ["--editable"] if editable else []
    quietly([sys.executable, "-m", "venv", str(folder)])
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--no-input", "install", "--quiet"]
    quietly([*pip, "--upgrade", "pip>=25.1"])
    with_uv = [uv_program(), "pip", "install", "--quiet", "--link-mode", "copy", "--python", pip[0]] if uv else []
    quietly([*(with_uv or pip), *flags, wanted])


def quietly(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[-3:])}: {done.stderr.strip()[-800:]}")


def uv_program():
    if found := shutil.which("uv"):
        return found
    program = FOLDER / ".uv" / "bin" / "uv"
    if not program.exists():
        quietly([sys.executable, "-m", "venv", str(FOLDER / ".uv")])
        quietly([str(program.with_name("python")), "-m", "pip", "--no-input", "install", "--quiet", "uv"])
    return str(program)


def versions():
    """Of each environment that is there."""
    code = "import sys, json; from importlib import metadata as m; print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))"
    found = {}
    for name, packages in SHOWN.items():
        program = FOLDER / name / "bin" / "python"
        if program.exists():
            said = subprocess.run([str(program), "-c", code, *packages], capture_output=True, text=True, check=False)
            found[name] = json.loads(said.stdout) if said.returncode == 0 else {}
    return found


ENV = {**os.environ, "MELLEA_TELEMETRY": "0", "DSPY_CACHEDIR": str(ROOT / "build" / "dspy-cache")}
