# Everything a developer or a CI machine runs. `make` alone lists the targets.

PYTHON ?= python3
CASES  ?= ../shared/cases
ONLY   ?= *
SEEDS  ?= 1000
WORKERS ?= 2
SECONDS ?= 60
SEED   ?= 1

VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/stamp

PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadscope
CONFORMANCE = $(BIN)/python -m tests.conformance --cases '$(CASES)' --only '$(ONLY)'

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:
.NOTPARALLEL:
.PHONY: help venv demo test check conformance bench-placement bench-backends bench-admission bench-jobs bench-gang bench-numa bench-segments bench-cli sim fuzz test-long format clean

help: ## List the targets
	@echo 'Usage: make TARGET [VARIABLE=value]'
	@echo
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/\1|\2/p' $(firstword $(MAKEFILE_LIST)) \
		| while IFS='|' read -r name text; do printf '  %-16s %s\n' "$$name" "$$text"; done
	@echo
	@echo 'Variables: PYTHON=$(PYTHON)  CASES=$(CASES)  ONLY=$(ONLY)  SEEDS=$(SEEDS)  SECONDS=$(SECONDS)  SEED=$(SEED)'

venv: $(STAMP) ## Create .venv with Bayplan and its tools (again only after pyproject.toml changed)

$(STAMP): pyproject.toml
	@command -v $(PYTHON) >/dev/null || { \
		echo "Bayplan needs Python 3.11 or newer; there is no command '$(PYTHON)'." >&2; \
		echo "Install Python, or name one: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Bayplan needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) -V 2>&1)." >&2; \
		echo "Name a newer one: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@test -x $(BIN)/python || { echo 'Creating $(VENV) …'; $(PYTHON) -m venv $(VENV); }
	@echo 'Installing Bayplan and its tools into $(VENV) (the first time takes a minute) …'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[exact,cel,dev]'
	@touch $@
	@echo 'Ready.'

demo: $(STAMP) ## Start a cluster in memory, schedule the example jobs in it, and watch racks fill up
	@$(BIN)/bayplan up

test: $(STAMP) ## Run every test, the conformance cases first
	@if command -v go >/dev/null; then $(BIN)/python -m tools.controlplane build >/dev/null || true; fi
	@status=0; $(CONFORMANCE) || status=$$?; $(PYTEST) || status=$$?; exit $$status

check: $(STAMP) ## Lint, format check and types, changing nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP) ## Format the sources and mend what the linter can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

conformance: $(STAMP) ## Compare answers with the cases under CASES (only those matching ONLY)
	@$(CONFORMANCE)

bench-placement: $(STAMP) ## Measure placement at 1k, 10k and 100k nodes
	@$(BIN)/python -m tests.benchmarks.placement

bench-backends: $(STAMP) ## Measure the cluster in memory, and the client of a real API server
	@$(BIN)/python -m tests.benchmarks.backends_embedded
	@$(BIN)/python -m tests.benchmarks.backends_remote

bench-admission: $(STAMP) ## Measure admission: rounds, preemption, and the published load with and without an API server
	@$(BIN)/python -m tests.benchmarks.admission

bench-jobs: $(STAMP) ## Measure a Job of 1,000 pods on a real API server, from its creation to the last pod ungated
	@$(BIN)/python -m tests.benchmarks.jobs

bench-gang: $(STAMP) ## Measure gangs and plain pods beside kube-scheduler on one API server, and decisions alone
	@$(BIN)/python -m tests.benchmarks.gang

bench-numa: $(STAMP) ## Measure zones inside 5,000 nodes: one pod, a gang of 1,000, who goes for one of 20
	@$(BIN)/python -m tests.benchmarks.numa

bench-segments: $(STAMP) ## Measure decisions on gangs of 1,024 in 64 segments over 10,000 nodes, that fit and that cannot
	@$(BIN)/python -m tests.benchmarks.segments

bench-cli: $(STAMP) ## Measure explain and list at 10,000 nodes, beside a bare loop that lists the same objects
	@$(BIN)/python -m tests.benchmarks.cli

sim: $(STAMP) ## Run SEEDS simulations in virtual time, with faults and checkers
	@$(BIN)/python -m bayplan.simulator --seeds $(SEEDS)

fuzz: $(STAMP) ## Run changed inputs through decoders, roles, webhooks, HTTP API, place and the engine for SECONDS
	@$(BIN)/python -m tests.fuzz --seconds $(SECONDS) --seed $(SEED)

LONG_INPUTS = 1000000

test-long: $(STAMP) ## What takes too long for every change: a million fuzzed inputs, and SEEDS simulations
	@$(BIN)/python -m tests.fuzz --inputs $(LONG_INPUTS) --seed $(SEED) --processes 2
	@$(BIN)/python -m bayplan.simulator --seeds $(SEEDS)

clean: ## Remove .venv and everything that was generated
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist reports
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: cluster cluster-down
CLUSTER_STATE = $(if $(STATE),--state '$(STATE)')

cluster: $(STAMP) ## Start a real Kubernetes on loopback, built once from source (KUBE=1.37.1, STATE=folder, SCHEDULER=1)
	@$(BIN)/python -m tools.controlplane up $(if $(KUBE),--kube '$(KUBE)') $(CLUSTER_STATE) $(if $(SCHEDULER),--scheduler)

cluster-down: $(STAMP) ## Stop what `make cluster` started, and nothing else
	@$(BIN)/python -m tools.controlplane down $(CLUSTER_STATE)
