# `make` alone prints the manual. Set-up is part of every target: the virtual environment in .venv is built once for
# each state of the lock files, by tools/setup.sh. PYTHON=/path/to/python chooses the interpreter (3.11 or newer).

.DEFAULT_GOAL := help
.PHONY: help run test lint pytest soak sim bench golden docs web lock audit clean runtime dev peers

PYTHON ?=
UV ?= uv
SEED ?=
BIN := .venv/bin
COLLECTED := .venv/.collected
# Four workers on the smallest machine we care for, which has two cores: tests of servers and workers mostly wait for processes.
JOBS ?= 4
# Minutes of the attack programme in `make soak`; as root it runs twice, the second time as an ordinary user.
ATTACK_MINUTES ?= 15
# Tests that `make soak` runs again on homes of four partitions.
SPREAD := tests/runs/test_driver.py tests/runs/test_resume.py tests/runs/test_retry.py tests/runs/ordered/test_driver.py
PYTEST := $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal
# No configuration and no index from the surroundings: the lock must be the same wherever it is made.
COMPILE := env -u UV_INDEX -u UV_INDEX_URL -u UV_EXTRA_INDEX_URL -u UV_DEFAULT_INDEX -u UV_FIND_LINKS \
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(UV) pip compile --quiet --no-config --upgrade --universal \
	--python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-emit-find-links --group build

help: ## this manual
	@echo 'Detent. make TARGET, where TARGET is one of:'
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  \1|\2/p' Makefile | awk -F'|' '{printf "%-10s %s\n", $$1, $$2}'
	@echo 'Nothing needs to be installed first but make and Python 3.11 or newer. PYTHON=... chooses another one.'

run: runtime ## run the example pipeline, then verify what it left on the ledger; again: everything is reused
	@$(BIN)/detent run examples/pipeline/pipeline.yaml --home examples/pipeline/.detent
	@echo
	@$(BIN)/detent verify --home examples/pipeline/.detent

test: lint pytest ## everything that must hold before a commit: lint, then the tests

lint: dev ## ruff (rules and format) and mypy strict
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

# Compiled first: where bytecode may not be written, each of the many processes that tests start would compile all of it again.
pytest: dev $(COLLECTED)
	@$(BIN)/python -m compileall -q src
	@$(PYTEST)

# Collected once by two processes, which keep what they compile: the workers, all at the same file, would each compile all tests,
# and pytest's plugins, whose assertions it rewrites. What is wrong with a test is told by the run itself.
$(COLLECTED): $(shell find tests -name '*.py') | dev
	@ls -d tests/*/ | xargs -n 17 -P 2 env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -q --collect-only >/dev/null 2>&1 || true
	@touch $@

soak: dev ## all tests with many more examples, the slow ones, a thousand faults, and attacks for ATTACK_MINUTES: an hour or two
	@HYPOTHESIS_PROFILE=soak $(PYTEST) -m '' -o time_limit_seconds=7200
	@DETENT_PARTITIONS=4 $(PYTEST) -m '' -o time_limit_seconds=7200 $(SPREAD)
	@$(BIN)/python -m tests.faults.programme --cycles 1000 $(if $(SEED),--seed $(SEED))
	@DETENT_PARTITIONS=4 $(BIN)/python -m tests.faults.programme --cycles 200 $(if $(SEED),--seed $(SEED))
	@$(BIN)/python -m tests.faults.floods loris --connections 2000
	@$(BIN)/python -m tests.faults.floods streams --connections 10000 --deaf 1000
	@$(BIN)/python -m tests.faults.served --cycles 5000 $(if $(SEED),--seed $(SEED))
	@$(BIN)/python -m tests.faults.owners --cycles 1000 $(if $(SEED),--seed $(SEED))
	@$(BIN)/python -m tests.attacks.programme --minutes $(ATTACK_MINUTES) $(if $(SEED),--seed $(SEED))
	@[ $$(id -u) != 0 ] || $(BIN)/python -m tests.attacks.programme --as user --minutes $(ATTACK_MINUTES) $(if $(SEED),--seed $(SEED))

sim: dev ## the simulation alone; make sim SEED=4711 replays one seed
	@DETENT_SIM_SEED=$(SEED) $(PYTEST) tests/sim

bench: runtime ## side-by-side measurements, printed as ratios of one run
	@$(BIN)/python bench/run.py

peers: runtime ## install what `make bench` compares Detent with into .venv (bench/peers.txt)
	@$(BIN)/python -m pip --disable-pip-version-check --no-input --quiet install --only-binary=:all: -r bench/peers.txt

golden: dev ## rewrite the golden files; review their diff as code
	@$(BIN)/python -m tests.golden.rewrite

docs: dev ## rewrite docs/traceability.md, docs/states.md, docs/reference/, docs/openapi.json, web/src/api.d.ts and docs/images/
	@$(BIN)/python tools/traceability.py
	@$(BIN)/python tools/state_diagram.py
	@$(BIN)/python tools/reference.py
	@$(BIN)/python -m tools.api_types
	@$(BIN)/python -m tests.web.screenshots

web: dev ## build the dashboard from web/ into src/detent/serve/static/ (needs node 20; the built files are committed)
	@$(BIN)/python -m tools.web

lock: ## resolve the dependencies again into requirements.lock and requirements-dev.lock (needs uv)
	@command -v $(UV) >/dev/null || { echo 'make lock needs uv on the PATH, or UV=/path/to/uv' >&2; exit 1; }
	@$(COMPILE) pyproject.toml --extra postgres --extra render --extra s3 --extra serve -o requirements.lock
	@$(COMPILE) pyproject.toml --extra dev --extra postgres --extra ray --extra render --extra s3 --extra serve -c requirements.lock -o requirements-dev.lock

audit: dev ## compare the locks and the oldest allowed releases with known holes: make audit ADVISORIES=all.zip
	@$(BIN)/python tools/audit.py $(if $(ADVISORIES),--advisories $(ADVISORIES))

clean: ## remove .venv, caches and what builds leave behind
	@rm -rf .venv build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache src/detent.egg-info bench/out examples/out
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

runtime dev:
	@PYTHON='$(PYTHON)' tools/setup.sh $@
