# Everything that a person or CI does with a checkout. `make` lists the targets.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.PHONY: help setup quickstart up down status test unit system lint format proto bench clean

BIN := .venv/bin
TARN := $(BIN)/tarn
# Where `make up` and `make quickstart` keep their data.
DATA ?= .tarn
# The S3 port of `make up` and `make quickstart`.
PORT ?= 8000
# The port that `tarn` itself talks to.
RPC_PORT ?= 8102
# Extra arguments of pytest, e.g. `make test ARGS="-k commit"`.
ARGS ?=

help:  ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  \033[1m%-12s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:  ## Install what is missing: Python packages, Java, Spark's S3 jars
	@tools/setup

quickstart: setup  ## Start Tarn on this machine and run a PySpark job on it
	@tools/quickstart $(DATA) $(PORT) $(RPC_PORT)

up:  ## Start Tarn in the background (DATA=.tarn PORT=8000)
	@tools/setup python
	@$(TARN) up --detach --data-dir $(DATA) --port $(PORT) --rpc-port $(RPC_PORT)

down:  ## Stop what `make up` or `make quickstart` started
	@if [ -x $(TARN) ]; then $(TARN) down --data-dir $(DATA); else echo "nothing to stop: not set up"; fi

status:  ## Show whether Tarn runs, and where
	@$(TARN) status --data-dir $(DATA)

test: setup lint  ## Run every check and every test
	@$(MAKE) --no-print-directory pytest ARGS="$(ARGS)"

.PHONY: pytest
pytest:
	@HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-ci} $(BIN)/python -m pytest -n auto --dist loadgroup $(ARGS)

unit:  ## Run the quick tests only
	@tools/setup python
	@$(BIN)/python -m pytest -n auto tests/unit tests/contract $(ARGS)

system: setup  ## Run the tests that start real processes
	@$(MAKE) --no-print-directory pytest ARGS="tests/system $(ARGS)"

lint:  ## Check style, types, layers, protos and generated code
	@tools/setup python
	@tools/lint

format:  ## Format the code and fix what can be fixed
	@tools/setup python
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

proto:  ## Generate gen/ from protos/
	@tools/setup python
	@tools/proto

bench: setup  ## Measure; prints a table beside a raw loop
	@$(BIN)/python -m bench

clean: down  ## Stop Tarn and remove what make made, but no data
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -prune -exec rm -rf {} +
