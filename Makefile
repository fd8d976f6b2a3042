# Everything a developer or a CI machine runs. `make` alone lists the targets.

PYTHON ?= python3
CASES  ?= ../shared/cases
ONLY   ?= *
SEEDS  ?= 1000
FIRST  ?= 0
PLAY   ?=
RECORD ?=
WORKERS ?= 2
FAST_WORKERS ?= 3
REAL_WORKERS ?= 3
SHUFFLE ?=
SECONDS ?= 60
SEED   ?= 1

VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/stamp
RELEASE := build/release-tools
RELEASE_STAMP := $(RELEASE)/stamp
DOCS := build/docs-tools
DOCS_STAMP := $(DOCS)/stamp

# Python keeps what it compiled, even where the environment says otherwise: tests start Bayplan dozens of times, and each
# start would compile it again.
unexport PYTHONDONTWRITEBYTECODE

# The tiers: tests/tiers.py says which test is in which. With SHUFFLE=7 the order is random, the same for the same number.
SHUFFLED = $(if $(SHUFFLE),--shuffle $(SHUFFLE))
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) $(SHUFFLED)
CONFORMANCE = $(BIN)/python -m tests.conformance --cases '$(CASES)' --only '$(ONLY)'

# What a run of `make test` leaves out, and how to run that; targets that run as well are not named.
NOT_REAL = tests on a real control plane (make test-real; it needs Go, and builds Kubernetes the first time)
NOT_LONG = long tests (make test-long)
NOT_RUN  = Not run: $(if $(filter test-real,$(MAKECMDGOALS)),,$(NOT_REAL); )$(NOT_LONG).

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:
.NOTPARALLEL:
.PHONY: help venv demo test check conformance bench-placement bench-backends bench-admission bench-jobs bench-gang bench-numa bench-devices bench-segments bench-cli bench-state bench-dashboard bench-packing bench-racks bench-fairness bench-forecast bench-defragment bench-simulate bench-peers bench-scale sim soak soak-slice kills fuzz browser screenshot control-plane test-real test-long test-long-slice format clean

help: ## List the targets
	@echo 'Usage: make TARGET [VARIABLE=value]'
	@echo
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/\1|\2/p' $(firstword $(MAKEFILE_LIST)) \
		| while IFS='|' read -r name text; do printf '  %-16s %s\n' "$$name" "$$text"; done
	@echo
	@echo 'Variables: PYTHON=$(PYTHON)  CASES=$(CASES)  ONLY=$(ONLY)  SEEDS=$(SEEDS)  SECONDS=$(SECONDS)  SEED=$(SEED)'

venv: $(STAMP) ## Create .venv with Bayplan and its tools (again only after pyproject.toml or the lock file changed)

$(STAMP): pyproject.toml requirements/dev.txt
	@command -v $(PYTHON) >/dev/null || { \
		echo "Bayplan needs Python 3.11 or newer; there is no command '$(PYTHON)'." >&2; \
		echo "Install Python, or name one: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Bayplan needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) -V 2>&1)." >&2; \
		echo "Name a newer one: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@test -x $(BIN)/python || { echo 'Creating $(VENV) …'; $(PYTHON) -m venv $(VENV); }
	@echo 'Installing Bayplan and its tools into $(VENV) (the first time takes a minute) …'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@
	@echo 'Ready.'

demo: $(STAMP) ## Start a cluster in memory, schedule the example jobs in it, and watch racks fill up
	@$(BIN)/bayplan up

# Three processes for two cores: some tests wait for processes and pages. Sources are compiled once before, not by each.
test: $(STAMP) ## Run the tests that take minutes and need Python only; the conformance cases under CASES are among them
	@$(BIN)/python -m compileall -q -j 2 src >/dev/null; status=0; \
	CASES='$(CASES)' $(BIN)/python -m pytest -n $(FAST_WORKERS) $(SHUFFLED) --tier fast --dist worksteal || status=$$?; \
	echo '$(NOT_RUN)'; exit $$status

control-plane: $(STAMP) ## Build what test-real needs (kube-apiserver, etcd, ..., helm, promtool), once; without Go nothing
	@if [ "$$CI" = true ] || command -v go >/dev/null; then $(BIN)/python -m tools.controlplane build --all >/dev/null; fi

test-real: control-plane ## Run the tests that need a real control plane, one for each of REAL_WORKERS
	@$(BIN)/python -m pytest -n $(REAL_WORKERS) $(SHUFFLED) --tier real --dist loadfile --no-loadscope-reorder

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

bench-devices: $(STAMP) ## Measure a gang of 1,000 pods with devices by claim, and plain pods with claims beside kube-scheduler
	@$(BIN)/python -m tests.benchmarks.devices
	@$(BIN)/python -m tests.benchmarks.device_pods
	@$(BIN)/python -m tests.benchmarks.device_pods --named

bench-segments: $(STAMP) ## Measure decisions on gangs of 1,024 in 64 segments over 10,000 nodes, that fit and that cannot
	@$(BIN)/python -m tests.benchmarks.segments

bench-cli: $(STAMP) ## Measure explain and list at 10,000 nodes, beside a bare loop that lists the same objects
	@$(BIN)/python -m tests.benchmarks.cli

bench-dashboard: $(STAMP) ## Measure the dashboard: pages at 100,000 hosts, 50 streams, the loop beside them; needs Chromium
	@$(BIN)/python -m tests.benchmarks.dashboard

bench-packing: $(STAMP) ## Measure GPU capacity allocated on the openb trace, ours and the published baselines
	@$(BIN)/python -m tests.benchmarks.packing

bench-racks: $(STAMP) ## Measure how many slots for large gangs stay free within racks, by the order in which hosts are used
	@$(BIN)/python -m tests.benchmarks.racks

bench-fairness: $(STAMP) ## Measure waiting of large gangs under a stream of small ones, with and without reservations; draws the plot
	@$(BIN)/python -m tests.benchmarks.fairness

bench-forecast: $(STAMP) ## Measure how well expected starts hold, on logs of HPC sites and Philly (LOG=KTH-SP2: only that one)
	@$(BIN)/python -m tests.benchmarks.forecast $(if $(LOG),--log $(LOG))

bench-defragment: $(STAMP) ## Measure whether moves pay for themselves on Acme-like load, and a search on 5,000 hosts
	@$(BIN)/python -m tests.benchmarks.defragment

bench-simulate: $(STAMP) ## Measure `bayplan simulate`: 30,000 gangs on 847 hosts, 100,000 gangs on 10,000 hosts
	@$(BIN)/python -m tests.benchmarks.simulate

bench-peers: $(STAMP) ## Measure admission, Jobs, preemption and gangs beside Kueue, kube-scheduler, KAI and Volcano on a real control plane (ONLY=a2, ROUNDS=5, MANAGERS='bare bayplan')
	@$(BIN)/python -m tests.benchmarks.peers $(if $(filter-out *,$(ONLY)),--only $(ONLY)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(MANAGERS),--manager $(MANAGERS))

bench-state: $(STAMP) ## Measure memory and CPU per event of the state at 100,000 nodes and 200,000 pods, one role and both
	@$(BIN)/python -m tests.benchmarks.state

sim: $(STAMP) ## Run SEEDS simulations from seed FIRST on (of one PLAY), with faults and checkers; RECORD=FILE adds them to a table, COVERAGE=1 shows what was reached
	@$(BIN)/python -m bayplan.simulator --seeds $(SEEDS) --first $(FIRST) $(if $(PLAY),--play $(PLAY)) \
		$(if $(RECORD),--record '$(RECORD)' --commit "$$(git rev-parse --short HEAD)") $(if $(COVERAGE),--coverage)

HOURS ?= 1
NODES ?= 1000
KILLS ?= 100
# A scale that a machine with two cores bears beside other work.
SMALL = --nodes 40 --lasts 8 --run-seconds 5 25

soak: $(STAMP) ## Run all families for HOURS on a real control plane of NODES with faults; report in build/soak
	@$(BIN)/python -m tests.soak --minutes $$(echo "$(HOURS)" | awk '{print 60 * $$1}') --nodes $(NODES) --seed $(SEED)

soak-slice: $(STAMP) ## Every fault of the soak once on 40 nodes, in a few minutes; report in build/soak-slice
	@$(BIN)/python -m tests.soak $(SMALL) --minutes 5 --every 4 --warm-up 120 --seed $(SEED) --report build/soak-slice

kills: $(STAMP) ## Kill a replica, kube-apiserver and etcd KILLS times each under load; report in build/kills
	@$(BIN)/python -m tests.soak $(SMALL) --kills $(KILLS) --every 3 --warm-up 120 --seed $(SEED) --report build/kills

bench-scale: $(STAMP) ## Measure a replica on a large cluster of a real API server, and one that takes over (NODES=, PODS=; INSIDE=1: with NUMA zones and devices; OUTAGES=8: of the API server)
	@$(BIN)/python -m tests.benchmarks.scale $(if $(filter command line,$(origin NODES)),--nodes $(NODES)) $(if $(PODS),--pods $(PODS)) $(if $(INSIDE),--inside) $(if $(OUTAGES),--outages $(OUTAGES))

fuzz: $(STAMP) ## Run changed inputs through decoders, roles, webhooks, HTTP API, place and the engine for SECONDS
	@$(BIN)/python -m tests.fuzz --seconds $(SECONDS) --seed $(SEED)

LONG_INPUTS = 1000000
SLICE_INPUTS = 1000
SLICE_SEEDS = 4
SLICE = 20

test-long: $(STAMP) ## A million fuzzed inputs, SEEDS simulations, storms, checkers that have to catch what is broken
	@$(BIN)/python -m tests.fuzz --inputs $(LONG_INPUTS) --seed $(SEED) --processes 2
	@$(BIN)/python -m bayplan.simulator --seeds $(SEEDS)
	@$(BIN)/python -m bayplan.simulator --throw --seeds $$(( ($(SEEDS) + 9) / 10 ))
	@CHURN_NAMES=100000 $(PYTEST) tests/properties/test_node_churn.py
	@CHURN_NODES=20000 $(PYTEST) tests/properties/test_bounded_memory.py
	@HYPOTHESIS_PROFILE=thorough $(PYTEST) --dist worksteal tests/properties
	@$(PYTEST) --tier long --dist loadfile --no-loadscope-reorder

test-long-slice: $(STAMP) ## A few minutes of test-long: some inputs, some seeds, one test of SLICE
	@$(BIN)/python -m tests.fuzz --inputs $(SLICE_INPUTS) --seed $(SEED) --processes 2
	@$(BIN)/python -m bayplan.simulator --seeds $(SLICE_SEEDS)
	@$(BIN)/python -m bayplan.simulator --throw --seeds 1
	@$(PYTEST) --tier long --one-in $(SLICE) --dist worksteal

screenshot: $(STAMP) ## Make the picture of the dashboard in README.md again; needs Chromium
	@$(BIN)/python -m tests.browser.screenshot docs/images/dashboard.png

browser: ## Install Chromium for the tests of the dashboard's pages, on a CI machine that lacks it
	@if [ "$$CI" = true ] && ! command -v chromium >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core; fi

clean: ## Remove .venv and everything that was generated
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist reports
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: cluster cluster-down
CLUSTER_STATE = $(if $(STATE),--state '$(STATE)')

cluster: $(STAMP) ## Start a real Kubernetes on loopback, built once from source (KUBE=1.37.1, STATE=folder, SCHEDULER=1)
	@$(BIN)/python -m tools.controlplane up $(if $(KUBE),--kube '$(KUBE)') $(CLUSTER_STATE) $(if $(SCHEDULER),--scheduler)

cluster-down: $(STAMP) ## Stop what `make cluster` started, and nothing else
	@$(BIN)/python -m tools.controlplane down $(CLUSTER_STATE)

# What a release needs. Its tools have an environment of their own: no test and no user needs them.
.PHONY: dist lock lock-image licences image version chart

$(RELEASE_STAMP): requirements/release.txt
	@test -x $(RELEASE)/bin/python || $(PYTHON) -m venv $(RELEASE)
	@echo 'Installing the tools of a release into $(RELEASE) …'
	@$(RELEASE)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/release.txt
	@touch $@

dist: $(RELEASE_STAMP) ## Build wheel and sdist into dist/, check them, install the wheel in an empty environment and run it
	@$(RELEASE)/bin/python -m tools.release dist
	@$(RELEASE)/bin/python -m tools.release try

lock: $(RELEASE_STAMP) ## Write the lock files below requirements/ after a change of pyproject.toml (UPGRADE=1: newest versions)
	@$(RELEASE)/bin/python -m tools.release lock $(if $(UPGRADE),--upgrade)

image: $(RELEASE_STAMP) ## Build the OCI image archive build/image/bayplan.tar; needs no container engine, but apt of Debian 12
	@$(RELEASE)/bin/python -m tools.release dist >/dev/null
	@$(RELEASE)/bin/python -m tools.image build

lock-image: $(RELEASE_STAMP) ## Pin the newest Debian packages of the image
	@$(RELEASE)/bin/python -m tools.image lock

licences: $(STAMP) $(RELEASE_STAMP) $(DOCS_STAMP) ## Compare the licences of all dependencies and tools with the list of those allowed
	@$(BIN)/python -m tools.release licences
	@$(RELEASE)/bin/python -m tools.release licences
	@$(DOCS)/bin/python -m tools.release licences

chart: $(STAMP) ## Write deploy/chart from the manifests of `bayplan install`, and deploy/monitoring
	@$(BIN)/python -m bayplan.cli.commands.install --chart deploy/chart >/dev/null
	@$(BIN)/python -m bayplan.assembly.monitoring.objects deploy/monitoring

version: $(STAMP) ## Set the version to VERSION: sources, CHANGELOG.md and chart
	@$(BIN)/python -m tools.release version '$(VERSION)'
	@$(MAKE) --no-print-directory chart

# The documentation. Its tools have an environment of their own, as those of a release have.
.PHONY: docs reference

$(DOCS_STAMP): requirements/docs.txt
	@test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	@echo 'Installing the tools of the documentation into $(DOCS) …'
	@$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.txt
	@touch $@

docs: $(DOCS_STAMP) ## Build the documentation into build/site and check its links; it needs no network to be read
	@$(DOCS)/bin/python -m tools.site pages build/pages
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict
	@$(DOCS)/bin/python -m tools.site check build/site

reference: $(STAMP) ## Write the pages of docs/reference that are generated from the code
	@$(BIN)/python -m tools.reference docs/reference
