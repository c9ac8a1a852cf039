# Needs make and Python 3.11 or newer, nothing else: each target makes its own .venv.
#
# `.venv/.ready` and its like are stamps: pip runs again only after pyproject.toml has changed.

PYTHON ?= python3 python3.13 python3.12 python3.11
ARGS ?=
TORCH_SPEC ?=
TORCH_CPU := torch==2.13.0+cpu

BIN := .venv/bin
PIP := $(BIN)/python -m pip --no-input
PYTEST := $(BIN)/python -m pytest -q -o verbosity_assertions=2

# A tier without tests yet is not a failure: pytest then exits with 5.
NONE_YET := || [ $$? -eq 5 ]

export PIP_DISABLE_PIP_VERSION_CHECK = 1
export PIP_ROOT_USER_ACTION = ignore

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-local test-server test-crash test-doors test-serve test-instructor test-ray test-torch test-browser test-docs docs dist test-dist check bench bench-docs clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo "  Options: ARGS='-k budget' goes to pytest, the demo or the benchmark; PYTHON=/path/to/python3.12 makes the .venv."

demo: .venv/.ready ## See it work on the embedded model: no key, no GPU
	@$(BIN)/python examples/demo.py $(ARGS)

test: .venv/.ready ## Core tests: no model, no network
	@$(PYTEST) --numprocesses auto --maxprocesses 4 --dist loadfile $(ARGS)

test-local: .venv/.ready ## Tests on the embedded model
	@$(PYTEST) -m local $(ARGS) $(NONE_YET)

test-server: .venv/.ready ## Tests on a real loopback server with the official client
	@$(PYTEST) -m server $(ARGS) $(NONE_YET)

test-crash: .venv/.ready ## Tests that kill processes
	@$(PYTEST) -m crash $(ARGS) $(NONE_YET)

test-doors: .venv-doors/.ready ## Tests with other people's libraries: DSPy, native providers, MCP, the hub, frameworks
	@.venv-doors/bin/python -m pytest -q -o verbosity_assertions=2 -m doors tests $(ARGS) $(NONE_YET)

test-serve: .venv-doors/.ready ## Tests of `redraft serve` with the official clients
	@.venv-doors/bin/python -m pytest -q -o verbosity_assertions=2 -m serve tests/serve $(ARGS) $(NONE_YET)

test-instructor: .venv-instructor/.ready ## Tests with instructor, which holds openai back
	@.venv-instructor/bin/python -m pytest -q -o verbosity_assertions=2 -m doors tests/doors/test_instructor_clients.py $(ARGS) $(NONE_YET)

test-ray: .venv-ray/.ready ## Tests of batches on a real local Ray cluster
	@.venv-ray/bin/python -m pytest -q -o verbosity_assertions=2 -m ray tests/cluster $(ARGS) $(NONE_YET)

test-torch: .venv-torch/.ready ## Tests that need torch (TORCH_SPEC='torch==2.14.*' names another build than the CPU's)
	@.venv-torch/bin/python -m pytest -q -o verbosity_assertions=2 -m torch tests/torch_lm $(ARGS) $(NONE_YET)

test-browser: .venv-browser/.ready ## Tests of the page in a real headless Chromium (apt-get install chromium)
	@.venv-browser/bin/python -m pytest -q -o verbosity_assertions=2 -m browser tests/browser $(ARGS) $(NONE_YET)

test-docs: .venv/.ready ## Run the code blocks of the README and docs (on the embedded model: test-local)
	@$(PYTEST) tests/docs $(ARGS) $(NONE_YET)

docs: .venv-docs/.ready ## The site, into build/docs: no warnings
	@.venv-docs/bin/python -m sphinx --fail-on-warning --keep-going --quiet --write-all --jobs auto -d build/doctrees docs build/docs $(ARGS)
	@echo "docs: open build/docs/index.html"

dist: .venv-dist/.ready ## Build the wheel and the sdist into dist/
	@rm -rf dist
	@.venv-dist/bin/python -m build --no-isolation --outdir dist .
	@ls -s --block-size=KB dist

test-dist: dist ## Tests of the wheel and the sdist in empty environments
	@.venv-dist/bin/python -m pytest -q -o verbosity_assertions=2 -m dist tests/dist $(ARGS) $(NONE_YET)

check: .venv/.ready ## Format, lint, types, architecture
	@$(BIN)/ruff format --check --quiet . || { echo "check: run '$(BIN)/ruff format .'"; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(PYTEST) tests/architecture $(ARGS)

bench: build/bench/.ready ## Measure again, beside the peers: ARGS='loop' (--list says what there is, --all takes hours)
	@build/bench/bin/python -m benchmarks $(ARGS)

bench-docs: .venv/.ready ## Write docs/benchmarks.md from benchmarks/results
	@$(BIN)/python -m benchmarks --docs

clean: ## Remove .venv, caches and build outputs
	rm -rf .venv .venv-doors .venv-instructor .venv-ray .venv-torch .venv-browser .venv-docs .venv-dist .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.ready: pyproject.toml
	@for python in $(PYTHON); do \
	    "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; python=; \
	done; \
	if [ -z "$$python" ]; then \
	    echo "redraft needs Python 3.11 or newer, and none of these is: $(PYTHON). Install one, or name it: make PYTHON=/path/to/python" >&2; exit 1; \
	fi; \
	if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
	    echo "$$python cannot make a virtual environment: install its venv package (Debian, Ubuntu: apt-get install python3-venv)" >&2; exit 1; \
	fi; \
	echo "Setting up .venv with $$("$$python" --version): about a minute, once"; \
	"$$python" -m venv .venv
	@$(PIP) install --quiet --upgrade 'pip>=25.1'
	@$(PIP) install --quiet --editable '.[local]' --group dev
	@touch $@

# A venv of its own: the core has to work, and to say what is missing, where none of these is installed.
.venv-doors/.ready: .venv/.ready pyproject.toml
	@echo "Setting up .venv-doors with the libraries that the doors lead to: about a minute, once"
	@.venv/bin/python -m venv .venv-doors
	@.venv-doors/bin/python -m pip --no-input install --quiet --upgrade 'pip>=25.1'
	@.venv-doors/bin/python -m pip --no-input install --quiet --editable '.[local,dspy,providers,mcp,hub,server,monty]' --group doors
	@touch $@

.venv-instructor/.ready: .venv/.ready pyproject.toml
	@echo "Setting up .venv-instructor: half a minute, once"
	@.venv/bin/python -m venv .venv-instructor
	@.venv-instructor/bin/python -m pip --no-input install --quiet --upgrade 'pip>=25.1'
	@.venv-instructor/bin/python -m pip --no-input install --quiet --editable . instructor pytest pytest-asyncio
	@touch $@

.venv-ray/.ready: .venv/.ready pyproject.toml
	@echo "Setting up .venv-ray with Ray (about 500 MB): half a minute, once"
	@.venv/bin/python -m venv .venv-ray
	@.venv-ray/bin/python -m pip --no-input install --quiet --upgrade 'pip>=25.1'
	@.venv-ray/bin/python -m pip --no-input install --quiet --editable '.[ray]' --group dev
	@touch $@

# torch's build for the CPU is a tenth of the usual one for Linux (190 MB, not 550 MB and 3 GB of CUDA beside it), where pip
# knows a place that has it; TORCH_SPEC names another one.
.venv-torch/.ready: .venv/.ready pyproject.toml
	@echo "Setting up .venv-torch with torch, transformers and TRL (1.6 GB with the CPU's build): a minute, once"
	@.venv/bin/python -m venv .venv-torch
	@.venv-torch/bin/python -m pip --no-input install --quiet --upgrade 'pip>=25.1'
	@.venv-torch/bin/python -m pip --no-input install --quiet '$(or $(TORCH_SPEC),$(TORCH_CPU))' 2>/dev/null \
	    || .venv-torch/bin/python -m pip --no-input install --quiet '$(or $(TORCH_SPEC),torch)'
	@.venv-torch/bin/python -m pip --no-input install --quiet --editable '.[local,train]' --group dev
	@touch $@

# Playwright drives the system's Chromium: its own is no package of a registry.
.venv-browser/.ready: .venv/.ready pyproject.toml
	@echo "Setting up .venv-browser with Playwright: half a minute, once"
	@.venv/bin/python -m venv .venv-browser
	@.venv-browser/bin/python -m pip --no-input install --quiet --upgrade 'pip>=25.1'
	@.venv-browser/bin/python -m pip --no-input install --quiet --editable . --group browser
	@touch $@

.venv-docs/.ready: .venv/.ready pyproject.toml
	@echo "Setting up .venv-docs with Sphinx: half a minute, once"
	@.venv/bin/python -m venv .venv-docs
	@.venv-docs/bin/python -m pip --no-input install --quiet --upgrade 'pip>=25.1'
	@.venv-docs/bin/python -m pip --no-input install --quiet --editable . --group docs
	@touch $@

.venv-dist/.ready: .venv/.ready pyproject.toml
	@echo "Setting up .venv-dist to build and examine the packages: half a minute, once"
	@.venv/bin/python -m venv .venv-dist
	@.venv-dist/bin/python -m pip --no-input install --quiet --upgrade 'pip>=25.1'
	@.venv-dist/bin/python -m pip --no-input install --quiet --editable . --group dist
	@touch $@

# instructor's pins on jiter and rich hold openai back; it works beside the newest. Peers that are run against the loopback
# model have environments of their own, build/peers/NAME, which the benchmark makes.
build/bench/.ready: .venv/.ready pyproject.toml
	@echo "Setting up build/bench: a minute or two, once"
	@.venv/bin/python -m venv build/bench
	@build/bench/bin/python -m pip --no-input install --quiet --upgrade 'pip>=25.1'
	@build/bench/bin/python -m pip --no-input install --quiet --editable '.[local,dspy,server]' --group bench
	@build/bench/bin/python -m pip --no-input install --quiet --no-deps instructor==1.17.0
	@touch $@
