# Everything that a person or CI does with a checkout. `make` lists the targets.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.PHONY: help setup quickstart up down status test test-long fast unit system dashboards otlp browser screenshots rebuild-drill spark-churn spark-modes lint format lock proto wheel images k8s-test clean \
	bench bench-quick bench-peer bench-parts bench-scale compaction-soak \
	pictures sim sim-long state-machine mutate mutate-guards mutate-source fuzz \
	cassandra cassandra-cluster cassandra-down

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
# What `make bench` measures; `python -m bench.load --list` shows the names. Empty: everything.
CASES ?=

help:  ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  \033[1m%-18s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

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

cassandra:  ## Start a Cassandra node in the background, for development
	@tools/setup python java
	@tools/cassandra/nodes up 1 $(DATA)/cassandra

cassandra-cluster:  ## Start three Cassandra nodes in the background
	@tools/setup python java
	@tools/cassandra/nodes up 3 $(DATA)/cassandra

cassandra-down:  ## Stop what `make cassandra` or `make cassandra-cluster` started
	@tools/cassandra/nodes down $(DATA)/cassandra

# Types are checked on one core. Meanwhile another one makes archives of Java's classes, and compiles the tests: in a new
# checkout each worker of pytest would compile all of them for itself, at the same time as the others.
test: setup set-up-browser  ## Run every check and every test
	@unset PYTHONDONTWRITEBYTECODE; { $(BIN)/python -m tests.support.servers.java_archives || true; \
		$(BIN)/python -m pytest -q --collect-only; } > .venv/prepared.txt 2>&1 & \
	status=0; tools/lint || status=$$?; wait; exit $$status
	@$(MAKE) --no-print-directory pytest ARGS="$(ARGS)"

.PHONY: pytest set-up-browser
set-up-browser: setup
	@tools/setup browser

pytest:
	@HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-ci} $(BIN)/python -m tests.run $(ARGS)

# Some machines forbid byte code; without it each worker compiles all that it imports.
fast:  ## Run the tests of the protocol, the formats and the primitives, in under a minute
	@tools/setup python
	@unset PYTHONDONTWRITEBYTECODE; HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-fast} $(BIN)/python -m pytest -q -n auto --dist loadgroup -m "not cassandra and not slow" \
		tests/unit/core tests/unit/aio tests/unit/kv/test_*keys.py tests/unit/kv/test_*records.py \
		tests/unit/kv/test_unknown_fields.py tests/unit/block/test_rangefile.py tests/unit/graveler tests/stories \
		--ignore tests/unit/graveler/heavy --ignore tests/unit/graveler/fsck --ignore tests/unit/graveler/iterators --ignore tests/unit/graveler/rebuild $(ARGS)

unit:  ## Run the quick tests only
	@tools/setup python
	@$(BIN)/python -m pytest -n auto -m "not cassandra" tests/unit tests/contract $(ARGS)

test-long: setup set-up-browser lint  ## Run every test in every form of Tarn, for hours
	@$(MAKE) --no-print-directory pytest ARGS="--long $(ARGS)"

system: setup set-up-browser  ## Run the tests that start real processes
	@$(MAKE) --no-print-directory pytest ARGS="tests/system $(ARGS)"

dashboards: setup  ## Have a real Prometheus evaluate the dashboard and the alert rules on a running Tarn
	@tools/setup prometheus
	@$(MAKE) --no-print-directory pytest ARGS="tests/system/test_prometheus.py $(ARGS)"

otlp: setup  ## Have a real OpenTelemetry Collector receive the traces and metrics of a running Tarn
	@tools/setup otelcol
	@$(MAKE) --no-print-directory pytest ARGS="tests/system/test_otel_collector.py --long $(ARGS)"

browser: setup set-up-browser  ## Play stories of the web interface in Chromium, and check the accessibility of every page
	@TARN_TEST_PICTURES=1 $(MAKE) --no-print-directory pytest ARGS="tests/system/rest/test_web_first_minute.py tests/system/rest/test_web_in_browser.py $(ARGS)"

screenshots: setup set-up-browser  ## Take the README's pictures of the web interface (docs/pictures/web-*.png)
	@PYTHONPATH=. $(BIN)/python -m tests.screenshots

spark-churn: setup  ## Run a Spark job of many tasks with the classic committer beside the compactor (TASKS=10000)
	@SPARK_TASKS=$(or $(TASKS),10000) $(BIN)/python -m pytest -q \
		-rP tests/system/test_spark.py -k many_tasks --long $(ARGS)

spark-modes: setup  ## Run Spark 4.1 and 3.5 with each committer in each mode, Iceberg, Delta and streams
	@$(BIN)/python -m pytest -q tests/system/test_spark_modes.py --long -k single $(ARGS)

sim:  ## Play 200 seeds of the simulated installation (SEED=n: one, with its log)
	@tools/setup python
	@$(BIN)/python -m tests.sim $(if $(SEED),--seed $(SEED),--seeds 200) $(ARGS)
	@$(if $(SEED),true,$(BIN)/python -m tests.sim.losses --seeds 20)
	@$(if $(SEED),true,$(BIN)/python -m tests.sim.losses --seeds 10 --collect)

sim-long:  ## Play 10,000 seeds
	@tools/setup python
	@$(BIN)/python -m tests.sim --seeds 10000 $(ARGS)

state-machine: setup  ## Play random operations against a model of dictionaries (STEPS=20000; ARGS="-k memory")
	@$(BIN)/python -m pytest -q -s tests/state_machine --steps $(or $(STEPS),20000) $(ARGS)

mutate: mutate-guards mutate-source  ## Switch each guard off, then change the source; tests must see it

mutate-guards:  ## Disable each guard of the protocol; each must be detected (ARGS="--guard NAME")
	@tools/setup python
	@$(BIN)/python -m tests.sim --mutate $(ARGS)

mutate-source:  ## Play 350 mutations of the source; tests must see 95 % (ARGS="--only tarn.kv")
	@tools/setup python
	@$(BIN)/python -m tests.mutants $(ARGS)

fuzz:  ## Fuzz every parser by time, 60 s each (TARGET=sigv4 SECONDS=600 SEED=7; INPUT=file: try it again)
	@tools/setup python
	@$(BIN)/python -m tests.fuzz $(if $(TARGET),--target $(TARGET)) $(if $(SECONDS),--seconds $(SECONDS)) \
		$(if $(SEED),--seed $(SEED)) $(if $(INPUT),--input $(INPUT)) $(ARGS)

lint:  ## Check style, types, layers, protos and generated code
	@tools/setup python
	@tools/lint

format:  ## Format the code and fix what can be fixed
	@tools/setup python
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

wheel: setup  ## Build the wheel, which holds all services and commands, into dist/
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	@ls dist/tarn-*.whl

images: setup  ## Build the container images into dist/, without a container engine (as root; ARGS="--tag T --no-cache")
	@tools/setup images
	@$(BIN)/python tools/images/build.py $(ARGS)

k8s-test: setup  ## Test on the cluster that kubectl reaches: load, killed pods, rollout, scaling, network (needs the images on its nodes)
	@TARN_K8S_TEST=1 $(BIN)/python -m pytest -s -n 0 tests/cluster $(ARGS)

lock:  ## Write the locks of Python packages, with hashes (ARGS=--upgrade: the newest versions)
	@tools/setup python
	@tools/lock $(ARGS)

proto:  ## Generate gen/ from protos/
	@tools/setup python
	@tools/proto

bench: setup  ## Measure the whole system into bench/ (CASES=get,put for some of it)
	@$(BIN)/python -m bench.load --cases "$(CASES)" $(ARGS)

bench-quick: setup  ## Measure the main figures in two minutes into .bench/ (CASES=get,put for some of them)
	@$(BIN)/python -m bench.load --quick --cases "$(CASES)" $(ARGS)

rebuild-drill: setup  ## Lose the metadata store under load and rebuild it, many times (DRILLS=200)
	@REBUILD_DRILLS=$(or $(DRILLS),200) $(BIN)/python -m pytest -q -n 2 \
		tests/unit/graveler/rebuild/test_rebuild_drill.py

compaction-soak: setup  ## Write and delete for ten minutes without a commit, with the compactor (SECONDS=60)
	@$(BIN)/python -m bench.load --cases compaction-soak \
		$(if $(SECONDS),--scale $$(awk "BEGIN { print $(SECONDS) / 600 }")) $(ARGS)

pictures:  ## Draw the pictures of the documentation (docs/pictures/*.puml)
	@tools/setup java pictures
	@tools/pictures

bench-peer: setup  ## Measure Tarn beside lakeFS in one run (LAKEFS=path; S3LOAD=path: another S3 client)
	@$(BIN)/python -m bench.peer --output bench/results/peer.md --lakefs "$(LAKEFS)" $(if $(S3LOAD),--s3load "$(S3LOAD)") $(ARGS)

bench-parts: setup  ## Measure the parts: KV, blocks, rpc, commits, merges
	@$(BIN)/python -m bench $(ARGS)

bench-scale: setup  ## Count requests to Cassandra by the number of processes, and costs as a lake grows; the model
	@$(BIN)/python -m bench.scale.measure $(ARGS)
	@$(BIN)/python -m bench.scale.growth
	@$(BIN)/python -m bench.scale.model

clean: down  ## Stop Tarn and remove what make made, but no data
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -prune -exec rm -rf {} +
