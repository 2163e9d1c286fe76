# Everything works from a bare checkout with Python 3.11 or later and make: each target first
# installs what it needs, from the hashed requirement files, into .venv.
PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2
SHIM := $(wildcard src/leasehold/adapters/agent/shim/*.[ch])
PROGRAM := src/leasehold/adapters/agent/shim/leasehold-shim

.PHONY: help setup demo test test-seeds test-kube test-all test-kills test-torch test-web \
	test-kubelets test-mutants test-mutants-sim test-model test-spec test-sim check coverage bench \
	bench-kube bench-web bench-sim soak soak-kube pictures docs format lock clean missing-shim

help:
	@echo "make demo       six acts on virtual GPUs, in twenty seconds"
	@echo "make test       everything that needs Python only; six minutes"
	@echo "make check      format, lint, types, layers, house rules"
	@echo "make test-all   every test there is: test, test-seeds, test-kube, test-spec, test-sim,"
	@echo "                test-model, test-web, test-kubelets"
	@echo "make setup      installs all that demo, test and check need into .venv"
	@echo "also: test-kills test-torch test-mutants test-mutants-sim coverage bench bench-kube"
	@echo "      bench-web bench-sim soak soak-kube pictures docs format lock clean"

# What is installed is noted in files under .venv: what leasehold runs on, what its tests import,
# what `make check` and `make docs` start, and what drives a browser. Each lock file names all that
# there is to install, so pip must not look for more (--no-deps).
RUN := .venv/.installed-run
TEST := .venv/.installed-test
CHECK := .venv/.installed-check
WEB := .venv/.installed-web
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps

setup: $(TEST) $(CHECK)

$(RUN): requirements.txt requirements-build.txt pyproject.toml hatch_build.py $(SHIM) \
		$(if $(wildcard $(PROGRAM)),,missing-shim)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "leasehold needs Python 3.11 or later")'
	@echo "setup: making .venv"
	@$(PYTHON) -m venv .venv
	@echo "setup: installing what leasehold runs on, and the compiler of its shim (150 MB)"
	@$(INSTALL) --require-hashes -r requirements.txt -r requirements-build.txt
	@echo "setup: compiling the shim and installing leasehold"
	@$(INSTALL) --no-build-isolation --editable .
	@touch $@

missing-shim:

$(TEST): $(RUN) requirements-test.txt
	@echo "setup: installing what the tests import (110 MB)"
	@$(INSTALL) --require-hashes -r requirements-test.txt
	@$(BIN)/python -m pip check --quiet
	@touch $@

$(CHECK): $(RUN) requirements-check.txt
	@echo "setup: installing ruff, mypy and what else \`make check\` and \`make docs\` start"
	@$(INSTALL) --require-hashes -r requirements-check.txt
	@touch $@

$(WEB): $(TEST) requirements-web.txt
	@echo "setup: installing playwright (53 MB)"
	@$(INSTALL) --require-hashes -r requirements-web.txt
	@touch $@

# `make demo KEEP=1` leaves it running, to be explored with kubectl.
demo: $(RUN)
	$(BIN)/python -m demo $(if $(KEEP),--keep)

# What needs Python and make, and nothing else. Of random seeds it plays as many as fit into a
# budget of CPU seconds. A worker that has nothing left takes tests from another one.
SPREAD := -n $(WORKERS) --dist worksteal
test: $(TEST)
	$(BIN)/python -m pytest $(SPREAD) --few-seeds -m "not kube and not long"

# All of those seeds, and what takes long.
test-seeds: $(TEST)
	$(BIN)/python -m pytest $(SPREAD) -m "(seeds or long) and not kube"

# What needs a real API server, kubectl, helm, kwok, an S3 server or Prometheus' parser. They are
# built from Go modules, once, which takes ten minutes; tools/toolchain finds or installs Go.
KUBE_PROGRAMS := kubectl etcd kube-apiserver kube-controller-manager informer helm kwok versitygw promql
test-kube: $(TEST)
	@for name in $(KUBE_PROGRAMS); do tools/kube/build $$name >/dev/null || exit 1; done
	$(BIN)/python -m pytest $(SPREAD) -m kube
	$(BIN)/python -m pytest -q tests/kube/story_*.py

test-all: check test test-seeds test-kube test-spec test-sim test-model test-web test-kubelets

# A real torchrun job that is resized and loses nodes. Jobs take PyTorch from the machine: Debian's
# package is a CPU build, and .venv does not have it.
test-torch: $(TEST)
	@command -v torchrun >/dev/null || { \
		echo "torchrun is not here; installing Debian's python3-torch"; \
		apt-get install -y python3-torch || \
		{ apt-get update && apt-get install -y python3-torch; } || \
		{ echo "it cannot be installed: as root on Debian 12 or later, apt-get install python3-torch" >&2; \
		exit 1; }; }
	$(BIN)/python -m tests.torchrun.elastic

# Every page in Debian's Chromium, which is no part of .venv; pictures lie under build/web.
test-web: $(WEB)
	@test -x /usr/bin/chromium || { \
		echo "chromium is not here; installing Debian's"; \
		apt-get install -y chromium || { apt-get update && apt-get install -y chromium; } || \
		{ echo "it cannot be installed: as root on Debian 12 or later, apt-get install chromium" >&2; \
		exit 1; }; }
	$(BIN)/python -m pytest -q tests/web/browser/browse_*.py

# Runs in containers of real kubelets, each in a mount namespace of its own; needs root on Debian.
test-kubelets: $(TEST)
	tests/kubelets/run

# The fleet of the benchmarks in a browser: how long until it is drawn and answers.
bench-web: $(WEB)
	$(BIN)/python -m bench.browser

# Those of the documents, from the last `make test-web`.
pictures:
	cd build/web && for each in docs-*; do cp "$$each" "../../docs/pictures/$${each#docs-}"; done

# The control plane is killed 200 times while it works; takes about ten minutes.
test-kills: $(TEST)
	$(BIN)/python -m tests.up.kills --kills 200

coverage: $(TEST)
	$(BIN)/python -m pytest $(SPREAD) --cov --cov-report=term-missing:skip-covered \
		--cov-fail-under=99

check: $(TEST) $(CHECK)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/clang-format --dry-run -Werror $(SHIM)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/tidy

format: $(CHECK)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(SHIM)

bench: $(TEST)
	$(BIN)/python -m bench

# A real API server and scheduler beside it; `SIZES=50,100 LEASES=500` asks for less.
SIZES ?= 500,2000
LEASES ?= 20000
bench-kube: $(TEST)
	$(BIN)/python -m bench.kubernetes --sizes $(SIZES) --leases $(LEASES) --foreign $(LEASES)

test-mutants: $(TEST)
	$(BIN)/python tests/mutants/run.py

# Those that simulations of three controllers must catch, with the number of seeds it takes.
test-mutants-sim: $(TEST)
	$(BIN)/python tests/mutants/run_simulated.py

# The product against a second implementation, on random stories; `SEEDS=0..1999` asks for more.
SEEDS ?= 0..499
test-model: $(TEST)
	$(BIN)/python -m tests.model --seeds $(SEEDS) --workers $(WORKERS)

# Three controllers under the faults of seeds: fixed ones, and some of each commit. DST_SEED plays
# one with its trace.
SIM_SEEDS ?= 0..59
test-sim: $(TEST)
ifdef DST_SEED
	$(BIN)/leasehold sim --seed $(DST_SEED)
else
	$(BIN)/leasehold sim --seeds $(SIM_SEEDS) --workers $(WORKERS) --twice --marks \
		--fresh "$$(git rev-parse HEAD 2>/dev/null || echo none)"
endif

# How fast that goes, for 200 nodes; writes build/bench-sim.json.
bench-sim: $(TEST)
	$(BIN)/python -m bench.simulation

# Seeds for so many hours; those that failed are left in build/faults.
HOURS ?= 1
soak: $(TEST)
	$(BIN)/python tools/soak.py --hours $(HOURS) --workers $(WORKERS)

# Controllers on a real API server that are killed, paused and stopped: every step, and so many moments.
MOMENTS ?= 100
soak-kube: $(TEST)
	SOAK_MOMENTS=$(MOMENTS) $(BIN)/python -m pytest -q tests/kubernetes/test_moments.py \
		tests/kubernetes/test_fail_over.py tests/kubernetes/test_replicas.py \
		tests/kubernetes/test_three_replicas.py

# The models of tenure and of the commit, by TLC; tools/toolchain finds or installs Java.
test-spec: $(TEST)
	$(BIN)/python spec/check.py

# Nothing is regenerated here: it builds, and fails when something is stale, broken or missing.
docs: $(TEST) $(CHECK)
	$(BIN)/python tools/cli_docs.py --check
	$(BIN)/python tools/query_docs.py --check
	$(BIN)/python tools/runbook_page.py --check
	$(BIN)/zensical build --strict
	$(BIN)/python -m pytest -q -n $(WORKERS) tests/docs tests/tidy/test_docs.py \
		tests/tidy/test_docs_complete.py

# Needs uv. The files name no index, so they say nothing about the machine that made them. Each is
# compiled under the versions of those before it, so that all fit into one environment.
COMPILE := uv pip compile --quiet --python-version 3.11 --universal --generate-hashes \
	--no-emit-index-url --no-header
lock:
	$(COMPILE) pyproject.toml -o requirements.txt
	$(COMPILE) --group build -c requirements.txt -o requirements-build.txt
	$(COMPILE) --group test -c requirements.txt -c requirements-build.txt -o requirements-test.txt
	$(COMPILE) --group check -c requirements-test.txt -c requirements-build.txt -o requirements-check.txt
	$(COMPILE) --group web -c requirements-test.txt -o requirements-web.txt
	$(COMPILE) --group tools -o requirements-tools.txt
	$(COMPILE) --extra bucket --extra parquet -c requirements-test.txt -c requirements-build.txt \
		pyproject.toml -o requirements-image.txt

clean:
	rm -rf .venv .venv-tools .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis htmlcov .coverage
	rm -f $(PROGRAM)
