"""redraft as a user has it: from the wheel and from the sdist, in an environment that has nothing else."""

import json
import re
import resource
import signal
import subprocess

from sizes import megabytes, packages, pip

import redraft
from redraft.testing import FaultServer

THREE = "La Maison is a small place. The soup was hot and the bread fresh. We left happy."

LOADED = (
    "import sys, redraft; print(*sorted({m.partition('.')[0] for m in sys.modules} - set(sys.stdlib_module_names)))"
)


def test_the_version(plain):
    assert plain.run("redraft", "--version").stdout == f"redraft {redraft.__version__}\n"
    assert plain.run("python", "-m", "redraft", "--version").stdout == f"redraft {redraft.__version__}\n"


def test_it_is_the_installed_package_and_not_the_checkout(plain):
    where = plain.run("python", "-c", "import redraft; print(redraft.__file__)").stdout
    assert where.startswith(str(plain.folder))


def test_import_redraft_loads_no_other_package(plain):
    loaded = plain.run("python", "-c", LOADED).stdout.split()
    assert set(loaded) - {"_distutils_hack", "sitecustomize", "__main__"} == {"redraft"}


def test_nothing_is_missing_and_nothing_clashes(plain, image):
    for installed in (plain, image):
        done = pip(installed.python, "check")
        assert (done.returncode, done.stdout) == (0, "No broken requirements found.\n")


def test_without_a_model_it_says_how_to_get_one(plain):
    done = plain.run("redraft", "run", "Review La Maison")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "no model configured" in done.stderr
    assert "pip install 'redraft[local]'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_run_on_a_server(plain):
    with FaultServer(["Too short.", THREE]) as server:
        asked = ("run", "Review La Maison", "-m", "test", "--base-url", server.base_url, "--check", "sentences:3")
        done = plain.run("redraft", *asked, "--json", "-q")
    whole = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert (whole["text"], whole["stop_reason"], len(whole["attempts"])) == (THREE, "passed", 2)


def test_the_sdist_makes_the_same_package(installs):
    files = [
        {str(f.relative_to(folder)) for f in folder.rglob("*") if "__pycache__" not in f.parts}
        for folder in (next(installs[name].folder.glob("lib/*/site-packages/redraft")) for name in ("wheel", "sdist"))
    ]
    assert files[0] == files[1]
    assert packages(installs["wheel"].folder) == packages(installs["sdist"].folder)


def test_the_base_install_is_as_large_as_the_page_says(base, root, capsys):
    found = packages(base.folder), megabytes(base.folder)
    with capsys.disabled():
        print(f"\nbase install: {len(found[0])} packages, {found[1]:.1f} MB")
    page = (root / "docs/install.md").read_text(encoding="utf-8")
    count, size = re.search(r"^\| `redraft` +\| .* \| (\d+) +\| ([\d.]+) +\|$", page, re.MULTILINE).groups()
    assert abs(len(found[0]) - int(count)) <= 5, f"measure again (tests/dist/sizes.py): {found[0]}"
    assert abs(found[1] - float(size)) <= float(size) / 4, "measure again (tests/dist/sizes.py)"


class TestWithTheEmbeddedModelAndTheServer:
    def test_a_draft_of_the_embedded_model_and_its_report(self, image):
        limits = ("--max-tokens", "60", "--call-limit", "3", "--seed", "1", "--allow-fail")
        asked = ("run", "Write about soup", "-m", "local/smollm2-135m", "--check", "sentences:1", *limits)
        done = image.run("redraft", *asked, "--store", "runs.db", "--json", "-q")
        assert (done.returncode, done.stderr) == (0, "")
        whole = json.loads(done.stdout)
        assert whole["usage"]["output_tokens"] > 3
        assert len(whole["text"].split()) > 3
        assert image.run("redraft", "report", "--store", "runs.db", "-o", "page.html").returncode == 0
        page = (image.home / "page.html").read_text(encoding="utf-8")
        styles = next(image.folder.glob("lib/*/site-packages/redraft/report/page/templates/page.css"))
        assert "Write about soup" in page
        assert "local/smollm2-135m" in page
        assert styles.read_text(encoding="utf-8").strip()[:40] in page

    def test_what_the_image_runs_is_healthy(self, image, dockerfile):
        """Its CMD and its HEALTHCHECK, on a free port."""
        preset = '[presets.review]\nmodel = "local/smollm2-135m"\nchecks = ["sentences:1"]\n'
        (image.home / "redraft.toml").write_text(preset)
        command = json.loads(dict(dockerfile)["CMD"])
        command[command.index("--port") + 1] = "0"
        check = json.loads(dict(dockerfile)["HEALTHCHECK"].partition("CMD ")[2])
        env = {**image.env, "REDRAFT_SERVER_KEYS": "a-key-of-a-test"}
        program = [image.folder / "bin/redraft", *command]
        with subprocess.Popen(program, cwd=image.home, env=env, stderr=subprocess.PIPE, text=True) as server:
            try:
                port = re.search(r":(\d+)/v1 \(with keys\)", server.stderr.readline())[1]
                health = [*check[:2], check[2].replace("8000", port)]
                healthy = image.run(*health)
                server.send_signal(signal.SIGTERM)
                ended = server.wait(timeout=20)
            finally:
                server.kill()
        assert (healthy.returncode, healthy.stderr) == (0, "")
        assert ended == 0
        assert image.run(*health).returncode != 0

    def test_completion_in_bash(self, image):
        script = 'eval "$(redraft completion bash)"; COMP_WORDS=(redraft ru) COMP_CWORD=1; _redraft_completion redraft; echo "${COMPREPLY[@]}"'
        done = subprocess.run(
            ["bash", "-c", script],
            check=False,
            env=image.env,
            cwd=image.home,
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert (done.stdout, done.stderr) == ("run runs\n", "")


def test_startup_is_measured(base, capsys):
    """Shown, not judged: seconds of the processor, which depend less on what else runs here."""

    def seconds(*command, **env):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        base.run("redraft", *command, **env)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    asked = {"_REDRAFT_COMPLETE": "bash_complete", "COMP_WORDS": "redraft run --strategy re", "COMP_CWORD": "3"}
    version, tab = min(seconds("--version") for _ in range(3)), min(seconds(**asked) for _ in range(3))
    with capsys.disabled():
        print(f"\nredraft --version: {version * 1000:.0f} ms; a completion: {tab * 1000:.0f} ms of the processor")
