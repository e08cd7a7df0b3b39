# Every verb sets up what it needs. `make help` lists them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.stamp
SOURCE := agent benchmarks cli common controller docs examples grafana inplace simulator testbed tests
PODS   ?= 1000
SEED   ?= 0
SEEDS  ?= 20000
MODE   ?= probe
# pytest's arguments; CI says -m "not long" as well.
NODE_TESTS ?= tests/cluster/node
# CI leaves out tests/model here: it runs the model checker itself.
SIM_TESTS ?= tests
# CI leaves out the properties here: `make test-sim` draws 200 examples of each, where `make test` draws 25.
QUICK ?= not slow
# CI leaves out the attacks here: each ran where it stands.
ATTACKS ?= tests
# Measures how long a restart takes beside hostile objects, so nothing else may run beside it.
ALONE := tests/cluster/test_hostile_real.py
# The whole suite spreads over the cores, with one process more: some tests wait more than they work.
# A test that needs the machine for itself says so with a benchmark, not a test.
PYTEST := $(BIN)/python -m pytest -q -n $(shell expr $$(nproc) + 1)
# A machine that keeps no byte code would have every process of the tests compile what it imports.
export PYTHONDONTWRITEBYTECODE :=
# Users' frameworks, each with a lock of its own; `make test-frameworks FRAMEWORKS=jax` takes one.
ALSO_WITH_torch := tests/frameworks/test_trainers.py
FRAMEWORKS ?= jax torch libraries
LOCK = $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-find-links --no-emit-index-url --no-header -q --upgrade
# What `make soak` runs: each is a target of its own, prints what replays a failure, and does not stop the others.
SEARCHES := soak-seeds soak-plans soak-properties soak-http soak-types

.DEFAULT_GOAL := help
.PHONY: help setup lock fmt lint type test test-sim model cluster test-cluster test-hostile node test-node first-cluster test-frameworks docs dashboards-test docs-images
.PHONY: sim soak $(SEARCHES) mutants bench demo image audit sbom release man check clean rewrite

help:  ## list the commands
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version.split()[0]; sys.version_info >= (3, 11) or sys.exit("setup: expected Python 3.11 or newer, saw " + v + "; set PYTHON=/path/to/python3.11")'
	@$(PYTHON) -c 'import ensurepip, venv' || { echo "setup: Python's venv module is missing; on Debian: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements.lock
	# compat mode is a plain .pth line; the default finder would cost every agent process of the demo some 10 ms.
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation \
		--config-settings editable_mode=compat -e .
	# Else each process of the tests or the demo would compile what it imports; pytest compiles test_*.py itself.
	$(BIN)/python -m compileall -q -j 0 -x /test_ $(SOURCE)
	@touch $(STAMP)

setup: $(STAMP)  ## make .venv with the locked dependencies

lock: $(STAMP)  ## write requirements.lock anew from pyproject.toml, and the frameworks' locks
	$(LOCK) pyproject.toml --extra dev -o requirements.lock
	for name in $(FRAMEWORKS); do $(LOCK) --excludes testbed/frameworks/excludes.txt testbed/frameworks/$$name.in -o testbed/frameworks/$$name.lock || exit 1; done

fmt: $(STAMP)  ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix-only -q .

lint: $(STAMP)  ## check format, lint rules, import arrows and the shape of the source
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/python -m tests.source.shape

type: $(STAMP)  ## check types
	$(BIN)/mypy

test: $(STAMP)  ## run the quick tests in two minutes; every run gives the same result
	$(PYTEST) --dist worksteal tests --ignore=tests/cluster --ignore=tests/frameworks -m "$(QUICK)"

test-sim: $(STAMP)  ## run the longer tests without a cluster: seeds of faults, planted bugs, the model, more examples
	$(PYTEST) $(SIM_TESTS) --ignore=tests/cluster --ignore=tests/frameworks -m "slow or hypothesis" --hypothesis-profile=thorough

model: $(STAMP)  ## explore the protocol's states and prove that planted bugs are caught
	$(BIN)/python -m tests.model

cluster: $(STAMP)  ## build the real control plane, Helm, upstream's programs, Kueue and Trainer for the tests (needs Go), once; WORLD=1.36: older ones
	$(BIN)/python -m testbed.go_programs

test-cluster: cluster  ## run the tests on a real kube-apiserver
	$(PYTEST) tests/cluster --ignore=tests/cluster/node --ignore=$(ALONE)

test-hostile: cluster  ## run the attacks on a real kube-apiserver, then time a restart beside hostile objects; nothing else may run
	$(if $(ATTACKS),$(PYTEST) $(ATTACKS) --ignore=tests/cluster/node --ignore=tests/frameworks --ignore=$(ALONE) -m attack)
	$(BIN)/python -m pytest -q $(ALONE)

node: cluster  ## build containerd, runc and the images for the tests on a real node, and install PyTorch (needs root, Go, Debian packages), once
	$(BIN)/python -m testbed.node.prepare

test-node: node  ## restart groups with real kubelets and containers; the workers' own records judge each restart
	$(BIN)/python -m testbed.node.capsule $(BIN)/python -m pytest -q $(NODE_TESTS)

first-cluster: node  ## follow docs/first-cluster.md from an empty folder to an empty cluster, and print how long each step takes
	$(BIN)/python -m benchmarks.first_cluster

test-frameworks: $(STAMP)  ## train with users' frameworks and checkpoint libraries, in the demo and under random kills; FRAMEWORKS names them
	$(BIN)/python -m testbed.frameworks.venv $(FRAMEWORKS)
	$(BIN)/python -m pytest -q $(foreach name,$(FRAMEWORKS),tests/frameworks/test_$(name).py $(ALSO_WITH_$(name))) $(SELECT)

docs: $(STAMP)  ## build the pages of docs/ as a site in build/site, and look at it in Chromium; a broken link or a wide table is an error
	$(BIN)/mkdocs build -q
	$(BIN)/python -m docs.in_browser build/site

docs-images: $(STAMP)  ## make the pictures of docs/images from demos (needs Debian's tmux and prometheus)
	$(BIN)/python -m docs.pictures
	$(BIN)/python -m grafana.pictures

dashboards-test: $(STAMP)  ## evaluate every panel and rule on a real Prometheus fed by a demo (needs Debian's prometheus; Go once)
	$(BIN)/python -m testbed.grafana.evaluate

sim: $(STAMP)  ## run a group restart of PODS modelled Pods under virtual time, all from SEED; MODE names another mode
	$(BIN)/python -m simulator.campaign restart --seed $(SEED) --pods $(PODS) --mode $(MODE)

soak: $(STAMP)  ## run SEEDS new random groups with faults, and all plans (FIRST=N replays)
	@$(MAKE) --no-print-directory --keep-going $(SEARCHES)

soak-seeds: $(STAMP)
	$(BIN)/python -m simulator.campaign soak --seeds $(SEEDS) $(if $(FIRST),--first $(FIRST))

soak-plans: $(STAMP)
	$(BIN)/python -m simulator.campaign sieve

soak-properties: $(STAMP)
	$(PYTEST) tests --ignore=tests/cluster --ignore=tests/frameworks -m hypothesis --hypothesis-profile=search

soak-http: $(STAMP)
	$(BIN)/python -m tests.common.kube.http.fuzz_http1 --cases 450000

soak-types: $(STAMP)
	$(BIN)/python -m tests.cli.fuzz_types --cases 20000 $(if $(FIRST),--first $(FIRST))

mutants: $(STAMP)  ## plant bugs and prove that the campaign of faults catches them
	$(BIN)/python -m tests.planted --by campaign,stories

bench: $(STAMP)  ## print the figures of docs/numbers.md
	$(BIN)/python -m benchmarks.ledger
	$(BIN)/python -m benchmarks.agent_start
	$(BIN)/python -m benchmarks.supervisor
	$(BIN)/python -m benchmarks.standby
	$(BIN)/python -m benchmarks.guard_start
	$(BIN)/python -m benchmarks.worker_output
	$(BIN)/python -m benchmarks.progress
	$(BIN)/python -m benchmarks.goodput
	$(BIN)/python -m benchmarks.herd --rounds 3
	$(BIN)/python -m benchmarks.controller_events
	$(BIN)/python -m benchmarks.controller

demo: $(STAMP)  ## run a group on an embedded Kubernetes, kill a worker, show the restart in place
	$(BIN)/inplace demo

image: $(STAMP)  ## build both images with buildah; BASE=IMAGE (and BUILD_BASE, with pip) choose the base; PINNED=1 requires its digest
	$(BIN)/python -m images.build $(if $(BASE),--base $(BASE)) $(if $(BUILD_BASE),--build-base $(BUILD_BASE)) $(if $(PINNED),--pinned) -- $(BUILDAH_FLAGS)

audit: $(STAMP)  ## ask PyPI for advisories about every locked version; an advisory fails
	$(BIN)/python -m images.audit

sbom: $(STAMP)  ## list the contents of the images in dist/*.cdx.json (CycloneDX)
	@mkdir -p dist
	$(BIN)/python -m images.sbom agent > dist/inplace-agent.cdx.json
	$(BIN)/python -m images.sbom controller > dist/inplace-controller.cdx.json

release: $(STAMP)  ## make the files of a release in dist/VERSION; ARGUMENTS='--url URL --sign-key KEY' go to the program
	$(BIN)/python -m release $(ARGUMENTS)

man: $(STAMP)  ## show the man page of inplace
	@$(BIN)/python -m release.man_page
	man -l docs/inplace.1

rewrite: $(STAMP)  ## regenerate script outputs, generated pages, dashboards and the Helm chart; commit only differences you can explain
	$(BIN)/python -m tests.rewrite
	$(BIN)/python -m tests.docs.protocol_page
	$(BIN)/python -m tests.docs.decisions_page
	$(BIN)/python -m tests.docs.metrics_page
	$(BIN)/python -m tests.docs.logs_page
	$(BIN)/python -m tests.docs.states_page
	$(BIN)/python -m tests.docs.failure_cost_page
	$(BIN)/python -m tests.docs.settings_page
	$(BIN)/python -m tests.docs.api_page
	$(BIN)/python -m tests.planted.table
	$(BIN)/python -m tests.docs.schemas
	$(BIN)/python -m release.man_page
	$(BIN)/python -m grafana.build
	$(BIN)/python -m deploy.immutable
	$(BIN)/python -m deploy.chart

check: lint type test test-sim  ## run all checks that need no cluster

clean:  ## remove the files that make created in this folder
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
