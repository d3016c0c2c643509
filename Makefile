# The two commands of a new checkout are `make demo` and `make test`. Both set up what they need in
# .venv and touch nothing else. `make help` lists the rest.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# The image's base, and the network in which it is built. Where no base can be pulled, tools/base-image
# makes one.
IMAGE ?= sexton:local
BASE_IMAGE ?= python:3.12-slim
BUILD_NETWORK ?= default
# What needs no more than this checkout.
HERE := not system and not browser and not containers and not faults
# One more than there are cores: tests of real processes wait most of their time.
WORKERS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 4 ? n + 1 : 4)))

.PHONY: help setup demo image test test-system test-browser test-containers test-faults soak lint format mutants generate clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml
	@command -v $(PYTHON) >/dev/null || { \
	  echo "$(PYTHON) is not installed. On Debian or Ubuntu: apt-get install python3 python3-venv"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Sexton needs Python 3.11 or newer; $$($(PYTHON) --version) was found. Name another one: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "This Python has no venv/ensurepip. On Debian or Ubuntu: apt-get install python3-venv"; exit 1; }
	@echo "setting up $(VENV) (once) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev
	@touch $@

setup: $(READY) ## set up the virtual environment

demo: $(READY) ## a whole mesh at work, until Ctrl-C (SECONDS=20: kill the leader, judge, end)
	@$(BIN)/python demos/mesh.py $(if $(SECONDS),--seconds $(SECONDS))

# The tests start some hundred processes: each would compile everything if the first may not keep it.
test: export PYTHONDONTWRITEBYTECODE :=
test: $(READY) ## run the tests (no root, no system packages; under 5 minutes)
	@$(BIN)/python -m pytest -m '$(HERE)' -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test-system: $(READY) ## run the tests that need root, strace and a tmpfs (see .ci/run)
	@$(BIN)/python -m pytest -m system

test-browser: $(READY) ## try the console in a headless Chromium (apt-get install chromium)
	@$(BIN)/python -m pytest -m browser tests/browser

image: ## build the container image (BASE_IMAGE=..., BUILD_NETWORK=host)
	@docker build --quiet --network=$(BUILD_NETWORK) --build-arg BASE_IMAGE=$(BASE_IMAGE) --tag $(IMAGE) .

test-containers: $(READY) ## run the mesh of docker-compose.yml and hold it to what its page says (after make image)
	@SEXTON_IMAGE=$(IMAGE) $(BIN)/python -m pytest -m containers tests/containers

test-faults: $(READY) ## break real meshes, of processes and of containers (root; 12 minutes)
	@$(BIN)/python -m pytest -m faults tests/faults tests/integration/mesh/test_bench.py

soak: $(READY) ## break meshes in every way for MINUTES=n, and see whether anything grows
	@PYTHONPATH=tests $(BIN)/python -m faults.soak --minutes $(or $(MINUTES),60)

lint: $(READY) ## types, style, import rules, protos, generated code
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/buf lint
	@$(BIN)/buf format --diff --exit-code
	@$(BIN)/python tools/generate.py --check

format: $(READY) ## format the code and the protos
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format --quiet .
	@$(BIN)/buf format --write

mutants: $(READY) ## which rule of the checker catches which fault put into the product
	@$(BIN)/python tools/mutants.py

generate: $(READY) ## generate the wire code from protos/
	@$(BIN)/python tools/generate.py

clean: ## remove what was set up
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
