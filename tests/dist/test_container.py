"""The Dockerfile. No engine builds it here: it is read, and what it runs is run in environments of their own (see also
`test_installed.py`, where its `pip install`, its command and its health check are those of the fixture `image`).
"""

import json
import re
import subprocess
import sys
import tomllib

COMPILERS = re.compile(r"\b(gcc|g\+\+|clang|make|cmake|cargo|rustc|build-essential|[\w.+]+-dev)\b")


def every(dockerfile, kind):
    return [rest for found, rest in dockerfile if found == kind]


def test_it_starts_from_a_python_that_is_promised(dockerfile, root):
    (start,) = every(dockerfile, "FROM")
    version = re.fullmatch(r"python:(3\.\d+)-slim", start)[1]
    classifiers = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["classifiers"]
    assert f"Programming Language :: Python :: {version}" in classifiers


def test_nothing_is_compiled(dockerfile, pip_line):
    assert [rest for kind, rest in dockerfile if kind == "RUN" and COMPILERS.search(rest)] == []
    assert "--only-binary=:all:" in pip_line
    assert pip_line[-1] == "[local,server]"


def test_it_runs_as_a_user_without_rights(dockerfile):
    kinds = [kind for kind, _ in dockerfile]
    (user,) = every(dockerfile, "USER")
    assert int(user) > 0  # a number: an orchestrator can tell that it is not root
    assert kinds.index("USER") < kinds.index("ENTRYPOINT") < kinds.index("CMD")
    made = next(rest for rest in every(dockerfile, "RUN") if "useradd" in rest)
    assert f"--uid {user} " in made


def test_it_serves_on_the_port_that_it_exposes_and_asks(dockerfile):
    assert every(dockerfile, "ENTRYPOINT") == ['["redraft"]']
    command = json.loads(every(dockerfile, "CMD")[0])
    (port,) = every(dockerfile, "EXPOSE")
    assert command[:1] == ["serve"]
    assert command[command.index("--port") + 1] == port
    assert f"'127.0.0.1', {port}" in every(dockerfile, "HEALTHCHECK")[0]


def test_its_context_is_the_wheel_alone(root):
    lines = [
        line for line in (root / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] not in ("", "#")
    ]
    assert lines == ["*", "!dist/*.whl"]


def test_every_dependency_is_a_wheel_for_the_image(dockerfile, wheel, pip_line, tmp_path):
    """pip resolves for the image's Python and Debian 13, not for ours, and installs nothing."""
    version = re.search(r"3\.\d+", every(dockerfile, "FROM")[0])[0]
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in range(17, 42)]
    where = [
        "--dry-run",
        "--ignore-installed",
        f"--python-version={version}",
        "--only-binary=:all:",
        f"--target={tmp_path}",
    ]
    asked = [
        sys.executable,
        "-m",
        "pip",
        "--no-input",
        "install",
        "--quiet",
        *where,
        *platforms,
        f"{wheel}{pip_line[-1]}",
    ]
    done = subprocess.run([*asked, "--report=-"], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    chosen = {each["download_info"]["url"].rpartition("/")[2] for each in json.loads(done.stdout)["install"]}
    assert [name for name in chosen if not name.endswith(".whl")] == []
    assert {"redraft", "xllamacpp", "uvicorn"} <= {name.partition("-")[0] for name in chosen}
