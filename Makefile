# The developer's interface. Every target sets up what it needs; a second run reuses what was built.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
# The system's Python where it is new enough: distributions build theirs with profile-guided optimisation, and all of Sluice is an eighth faster for it.
PYTHON ?= $(shell /usr/bin/python3 -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo /usr/bin/python3 || echo python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SCENARIOS ?= $(if $(wildcard ../shared/scenarios),../shared/scenarios,tests/conformance/scenarios)

.PHONY: help setup up demo down test test-unit simulate simulate-mutations chaos lint format load budget bench-engine conformance conformance-selfcheck crds integrations chart versions handback e2e docs lock clean

help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  make \1|\2/' | column -t -s '|'

setup: $(STAMP) ## Make the virtual environment (about 30 s the first time)

$(STAMP): requirements-dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Sluice needs Python 3.11 or newer, $(PYTHON) is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	@echo "setting up $(VENV) (about 30 s)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

up: $(STAMP) ## Run everything here with sample Jobs flowing, until Ctrl-C (first time builds a control plane: about 8 min; then 20 s)
	@$(BIN)/sluice up

demo: $(STAMP) ## The same unattended, checks the outcome and ends (about 1.5 min once built)
	@$(BIN)/sluice demo

down: $(STAMP) ## End what a killed `make up` left behind
	@$(BIN)/sluice down

test: $(STAMP) ## All tests, with a real control plane and NATS (about 33 min on 2 cores; the first time 9 min more, to build it and helm)
	@$(BIN)/python -m devcluster build
	@$(BIN)/python -m pytest

test-unit: $(STAMP) ## Only the tests that need no control plane (about 2 min)
	@$(BIN)/python -m pytest -m 'not integration' tests

simulate: $(STAMP) ## Deterministic simulation: SEED=7 replays one with its story, SEEDS=3000 FIRST=1 runs a range (300 seeds: about 3 min on 2 cores)
	@$(BIN)/python -m tests.simulation.run $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),300) --first $(or $(FIRST),1))

simulate-mutations: $(STAMP) ## Break the protocol in thirteen ways and demand that a promise notices each within 200 seeds (rounds of seeds until each is caught; about 75 s on 2 cores)
	@$(BIN)/python -m tests.simulation.mutations

chaos: $(STAMP) ## 1,000 Jobs while everything is killed, frozen, wiped, reset, filled up and upgraded, then a preemption storm (SEED=1; about 7 min)
	@$(BIN)/python -m devcluster build
	@$(BIN)/python -m tests.chaos --seed $(or $(SEED),1)

versions: $(STAMP) ## A smoke test on Kubernetes 1.34, 1.35 and 1.36 (1 min; the first time each is built, up to 9 min on a busy machine)
	@$(BIN)/python -m devcluster build --kubernetes 1.34
	@$(BIN)/python -m devcluster build --kubernetes 1.36
	@$(BIN)/python -m pytest tests/versions/smoke.py

handback: $(STAMP) ## Kueue's own controller, then Sluice, then Kueue again, on the same Jobs (1.5 min; the first time Kueue is built: 5.5 min of CPU)
	@$(BIN)/python -m devcluster build --kueue
	@$(BIN)/python -m pytest tests/handback/kueue.py

e2e: $(STAMP) ## JobSets under their own, real controller and Sluice (40 s; the first time its controller is built, 1.5 min on two free cores)
	@$(BIN)/python -m devcluster build --job-controllers
	@$(BIN)/python -m pytest tests/e2e/job_kinds.py

lint: $(STAMP) ## ruff, mypy --strict, import contracts, generated files current (about 1 min)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m cli.crds --check
	@$(BIN)/python -m cli.integrations --check
	@$(BIN)/python -m cli.event_docs --check
	@$(BIN)/python -m cli.asyncapi --check

format: $(STAMP) ## Format the code (seconds)
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

load: $(STAMP) ## Run a load shape (SHAPE=baseline; small) against a control plane of its own; report and plots in loadtest/reports/
	@$(BIN)/python -m loadtest.run $(or $(SHAPE),small)

budget: $(STAMP) ## Measure what a workload costs, in ratios, and fail where it is a fifth over loadtest/budget.yaml (about 1.5 min)
	@$(BIN)/python -m loadtest.budget

bench-engine: $(STAMP) ## Measure the engine alone, on one core, and write loadtest/reports/engine.json (about 5 min)
	@$(BIN)/python -m loadtest.engine

conformance: $(STAMP) ## Run scenario files (SCENARIOS=folder) and print passed, failed and waiting by area (about 1 min; api_admission needs a built control plane)
	@$(BIN)/python -m tests.conformance.run $(SCENARIOS)

conformance-selfcheck: $(STAMP) ## Alter each expectation and demand that its case then fails (about 2 min)
	@$(BIN)/python -m tests.conformance.run --self-check $(SCENARIOS)

crds: $(STAMP) ## Generate k8s/crds from shared/api
	@$(BIN)/python -m cli.crds

integrations: $(STAMP) ## Generate k8s/components/integrations from shared/jobs
	@$(BIN)/python -m cli.integrations

chart: $(STAMP) ## Generate k8s/charts/sluice from the kustomize manifests (seconds; needs a built control plane)
	@$(BIN)/python -m cli.chart

docs: $(STAMP) ## Generate docs/events.md and docs/asyncapi.yaml from the Structs
	@$(BIN)/python -m cli.event_docs
	@$(BIN)/python -m cli.asyncapi

lock: ## Pin the requirements again, with hashes
	@for extra in '' dev; do \
	  $(BIN)/pip-compile --quiet --upgrade --generate-hashes --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
	    --strip-extras --no-annotate --no-header --allow-unsafe $${extra:+--extra $$extra} \
	    -o requirements$${extra:+-$$extra}.txt pyproject.toml; done

clean: ## Remove the virtual environment and caches of this folder (built control planes stay in the user's cache)
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info
