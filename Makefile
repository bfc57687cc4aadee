# What a newcomer needs: Python 3.11 or later, make and a package index. `make` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PACKAGES := tools policies checkpoints graph console sandbox evals
NEWEST_ENOUGH := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))

# The first that runs, is new enough and can make environments; set PYTHON to choose another.
PYTHON ?= $(shell for name in python3.13 python3.12 python3.14 python3.11 python3 python; do \
	if $$name -c '$(NEWEST_ENOUGH)' >/dev/null 2>&1; then echo $$name; break; fi; done)

# The policy compiler, needed only where the Rego changes; `.ci/run` builds it.
OPA := $(or $(REMIT_OPA),$(shell command -v opa 2>/dev/null))

.PHONY: help
help: ## lists the targets
	@awk -F ' *## ' '/^[a-z-]+:.*## / { sub(/:.*/, "", $$1); printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: venv
venv: $(INSTALLED) typing ## makes .venv with everything locked, and .venv/bin/remit

$(INSTALLED): requirements.lock pyproject.toml
	@if [ -z "$(PYTHON)" ] || ! $(PYTHON) -c '$(NEWEST_ENOUGH)'; then \
		echo "Remit needs Python 3.11 or later with the modules venv and ensurepip (on Debian: python3-venv)." >&2; \
		echo "Install it, or name one: make PYTHON=/path/to/python3 $(MAKECMDGOALS)" >&2; exit 2; fi
	@echo "Setting up $(VENV) with $$($(PYTHON) --version); this happens once per change of the lock file."
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: typing
typing: ## links the folders under their full names, for type checkers and import-linter
	@mkdir -p build/typing/remit
	@for name in $(PACKAGES); do ln -sfn ../../../$$name build/typing/remit/$$name; done

.PHONY: demo
demo: venv ## tells the whole story on a pretend company, in the terminal
	@$(BIN)/remit demo

.PHONY: test
test: venv ## runs the tests; ARGS="-k name" chooses
	@$(BIN)/python -m pytest $(ARGS)

.PHONY: bench
bench: venv ## measures decisions and claims, both sides of each comparison in one run
	@REMIT_OPA="$(OPA)" $(BIN)/python benchmarks/decisions.py
	@PYTHONPATH=. $(BIN)/python benchmarks/claims.py

KILLS := 1000
SEED := 1
.PHONY: chaos
chaos: venv ## kills workers and breaks everything around them; KILLS=1000 SEED=1
	@$(BIN)/python -m tests.chaos --kills $(KILLS) --seed $(SEED)

.PHONY: crash-full
crash-full: venv ## ends a worker at every fault point in every combination; PART=2/8 is the second of eight parts
	@CRASH_PART=$(or $(PART),1/1) $(BIN)/python -m pytest -m crash_full -s -o faulthandler_timeout=0 tests/matrix $(ARGS)

.PHONY: check
check: venv check-policies ## format, lint, strict types, import layers and policies
	$(BIN)/ruff format --check --output-format concise .
	$(BIN)/ruff check .
	$(BIN)/mypy
	PYTHONPATH=build/typing $(BIN)/lint-imports

.PHONY: check-policies
check-policies: venv ## compares the committed policy bundle with a fresh build
ifneq ($(OPA),)
	$(BIN)/python -m remit.policies.build --opa "$(OPA)" --check
else ifeq ($(CI),true)
	@echo "The policies were not checked: there is no opa. Run .ci/run, which builds it, or set REMIT_OPA." >&2; exit 1
else
	@echo "SKIPPED: the policies were not checked, since there is no opa on PATH. Set REMIT_OPA to one, or run .ci/run."
endif

.PHONY: policies
policies: venv ## formats, tests and builds the policies (needs opa)
	@if [ -z "$(OPA)" ]; then echo "This needs opa on PATH or in REMIT_OPA; .ci/run builds one." >&2; exit 2; fi
	$(BIN)/python -m remit.policies.build --opa "$(OPA)"

.PHONY: format
format: venv ## formats the code and mends what can be mended
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

.PHONY: lock
lock: ## resolves the requirements anew for all Pythons and systems (needs uv); UPGRADE=1 takes newer ones
	uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --extra embedded --extra dev \
		--generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate \
		$(if $(UPGRADE),--upgrade) --custom-compile-command "make lock" --output-file requirements.lock

.PHONY: clean
clean: ## removes what was built; keeps .remit, which holds your runs
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find $(PACKAGES) tests -name __pycache__ -type d -prune -exec rm -rf {} +
