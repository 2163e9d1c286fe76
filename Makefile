# Everything works from a bare checkout with Python 3.11 or later and make: each target first
# makes .venv from the hashed requirement files.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
WORKERS ?= 2
SHIM := $(wildcard src/leasehold/adapters/agent/shim/*.[ch])
PROGRAM := src/leasehold/adapters/agent/shim/leasehold-shim

.PHONY: help setup demo test test-kills test-torch test-web test-kubelets test-kube bench-web pictures coverage check format bench bench-kube test-mutants test-mutants-sim test-model test-spec test-sim bench-sim soak soak-kube docs lock clean \
	missing-shim

help:
	@echo "make demo | test | test-kills | test-torch | test-web | test-kubelets | test-kube | check | coverage | bench | bench-kube | bench-web | test-mutants | test-mutants-sim | test-model | test-spec | test-sim | bench-sim | soak | soak-kube | docs | format | lock | clean"

setup: $(STAMP)

# Installing compiles the shim (hatch_build.py): about a minute the first time. The files name all
# there is to install: pip is not to look for more, since it finds releases that they do not pin.
$(STAMP): requirements.txt requirements-dev.txt pyproject.toml hatch_build.py $(SHIM) \
		$(if $(wildcard $(PROGRAM)),,missing-shim)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "leasehold needs Python 3.11 or later")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps \
		-r requirements.txt -r requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
		--no-build-isolation --editable .
	$(BIN)/python -m pip check --quiet
	@touch $@

missing-shim:

# `make demo KEEP=1` leaves it running, to be explored with kubectl.
demo: $(STAMP)
	$(BIN)/python -m demo $(if $(KEEP),--keep)

test: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS)

# A real torchrun job that is resized and loses nodes. Jobs take PyTorch from the machine: Debian's
# package is a CPU build, and .venv does not have it.
test-torch: $(STAMP)
	@command -v torchrun >/dev/null || { \
		echo "torchrun is not here; installing Debian's python3-torch"; \
		apt-get install -y python3-torch || \
		{ apt-get update && apt-get install -y python3-torch; } || \
		{ echo "it cannot be installed: as root on Debian 12 or later, apt-get install python3-torch" >&2; \
		exit 1; }; }
	$(BIN)/python -m tests.torchrun.elastic

# Every page in Debian's Chromium, which is no part of .venv; pictures lie under build/web.
WEB := .venv/.installed-web
$(WEB): $(STAMP) requirements-web.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps \
		-r requirements-web.txt
	@touch $@

test-web: $(WEB)
	@test -x /usr/bin/chromium || { \
		echo "chromium is not here; installing Debian's"; \
		apt-get install -y chromium || { apt-get update && apt-get install -y chromium; } || \
		{ echo "it cannot be installed: as root on Debian 12 or later, apt-get install chromium" >&2; \
		exit 1; }; }
	$(BIN)/python -m pytest -q tests/web/browser/browse_*.py

# Runs in containers of real kubelets, each in a mount namespace of its own; needs root on Debian.
test-kubelets: $(STAMP)
	tests/kubelets/run

# What needs more programs, all built once from Go modules: helm, kwok, an S3 server, Prometheus'
# parser.
test-kube: $(STAMP)
	$(BIN)/python -m pytest -q tests/kube/story_*.py

# The fleet of the benchmarks in a browser: how long until it is drawn and answers.
bench-web: $(WEB)
	$(BIN)/python -m bench.browser

# Those of the documents, from the last `make test-web`.
pictures:
	cd build/web && for each in docs-*; do cp "$$each" "../../docs/pictures/$${each#docs-}"; done

# The control plane is killed 200 times while it works; takes about ten minutes.
test-kills: $(STAMP)
	$(BIN)/python -m tests.up.storm --kills 200

coverage: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) --cov --cov-report=term-missing:skip-covered \
		--cov-fail-under=99

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/clang-format --dry-run -Werror $(SHIM)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/tidy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(SHIM)

bench: $(STAMP)
	$(BIN)/python -m bench

# A real API server and scheduler beside it; `SIZES=50,100 LEASES=500` asks for less.
SIZES ?= 500,2000
LEASES ?= 20000
bench-kube: $(STAMP)
	$(BIN)/python -m bench.kubernetes --sizes $(SIZES) --leases $(LEASES) --foreign $(LEASES)

test-mutants: $(STAMP)
	$(BIN)/python tests/mutants/run.py

# Those that simulations of three controllers must catch, with the number of seeds it takes.
test-mutants-sim: $(STAMP)
	$(BIN)/python tests/mutants/storm.py

# The product against a second implementation, on random stories; `SEEDS=0..1999` asks for more.
SEEDS ?= 0..499
test-model: $(STAMP)
	$(BIN)/python -m tests.model --seeds $(SEEDS) --workers $(WORKERS)

# Three controllers under the faults of seeds: fixed ones, and some of each commit. DST_SEED plays
# one with its trace.
SIM_SEEDS ?= 0..59
test-sim: $(STAMP)
ifdef DST_SEED
	$(BIN)/leasehold sim --seed $(DST_SEED)
else
	$(BIN)/leasehold sim --seeds $(SIM_SEEDS) --workers $(WORKERS) --twice --marks \
		--fresh "$$(git rev-parse HEAD 2>/dev/null || echo none)"
endif

# How fast that goes, for 200 nodes; writes build/bench-sim.json.
bench-sim: $(STAMP)
	$(BIN)/python -m bench.storm

# Seeds for so many hours; those that failed are left in build/storm.
HOURS ?= 1
soak: $(STAMP)
	$(BIN)/python tools/soak.py --hours $(HOURS) --workers $(WORKERS)

# Controllers on a real API server that are killed, paused and stopped: every step, and so many moments.
MOMENTS ?= 100
soak-kube: $(STAMP)
	SOAK_MOMENTS=$(MOMENTS) $(BIN)/python -m pytest -q tests/kubernetes/test_moments.py \
		tests/kubernetes/test_fail_over.py tests/kubernetes/test_replicas.py \
		tests/kubernetes/test_three_replicas.py

# The models of tenure and of the commit, by TLC; it needs Java.
test-spec: $(STAMP)
	@command -v java >/dev/null || { \
		echo "java is not here; installing Debian's default-jre-headless"; \
		apt-get install -y default-jre-headless || \
		{ apt-get update && apt-get install -y default-jre-headless; } || \
		{ echo "it cannot be installed: as root on Debian, apt-get install default-jre-headless" >&2; \
		exit 1; }; }
	$(BIN)/python spec/check.py

# Nothing is regenerated here: it builds, and fails when something is stale, broken or missing.
docs: $(STAMP)
	$(BIN)/python tools/cli_docs.py --check
	$(BIN)/python tools/query_docs.py --check
	$(BIN)/python tools/runbook_page.py --check
	$(BIN)/zensical build --strict
	$(BIN)/python -m pytest -q -n $(WORKERS) tests/docs tests/tidy/test_docs.py \
		tests/tidy/test_docs_complete.py

# Needs uv. The files name no index, so they say nothing about the machine that made them.
lock:
	uv pip compile --quiet --python-version 3.11 --universal --generate-hashes \
		--no-emit-index-url --no-header pyproject.toml -o requirements.txt
	uv pip compile --quiet --python-version 3.11 --universal --generate-hashes \
		--no-emit-index-url --no-header --group dev -c requirements.txt \
		-o requirements-dev.txt
	uv pip compile --quiet --python-version 3.11 --universal --generate-hashes \
		--no-emit-index-url --no-header --extra bucket --extra parquet -c requirements.txt \
		-c requirements-dev.txt pyproject.toml -o requirements-image.txt
	uv pip compile --quiet --python-version 3.11 --universal --generate-hashes \
		--no-emit-index-url --no-header --group web -c requirements.txt \
		-c requirements-dev.txt -o requirements-web.txt

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis htmlcov .coverage
	rm -f $(PROGRAM)
