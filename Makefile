# Two commands for a fresh machine: `make train` and `make test`. Both create .venv first.
VENV ?= .venv
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 1

.PHONY: setup train test test-all plan fast components rest pods cluster lint format protos docs claims bench clean
.DEFAULT_GOAL := help

help:
	@echo "make setup        create .venv with everything in it, and nothing more"
	@echo "make train        set up, then ale train --env frozen_lake --algo ipa"
	@echo "make test         set up, then the fast tests and one pass through each real component"
	@echo "make test-all     make test, then all other tests"
	@echo "make pods         the tests that run pods on the cluster of KUBECONFIG"
	@echo "make cluster      the chart from install to uninstall on the cluster of KUBECONFIG, whose node is this machine"
	@echo "make lint         format, lint, types, import graph, proto freshness, what is printed, what docstrings name"
	@echo "make claims       have each page of results say which of its code has changed since"
	@echo "make bench        every benchmark, quick"

$(VENV)/.ready: pyproject.toml constraints.txt scripts/setup.sh
	VENV=$(VENV) scripts/setup.sh

setup: $(VENV)/.ready
	@echo "ready: source $(VENV)/bin/activate, then ale --help"

train: $(VENV)/.ready
	$(BIN)/ale train --env frozen_lake --algo ipa $(ARGS)

# tests/conftest.py says which tests are marked `first`, so that `rest` runs none of them again.
FAST := tests/unit tests/contract
REAL := tests/integration tests/escape tests/chaos

test: plan fast components

test-all: test rest

plan: $(VENV)/.ready  # how long the tests take, and what skips here for want of what
	@$(BIN)/python scripts/test_plan.py fast components

fast: $(VENV)/.ready
	$(BIN)/python -m pytest $(FAST) -m first -n 2 --dist worksteal

components: $(VENV)/.ready  # one pass through each: containers, servers, replicas, an agent, training with kill and resume
	$(BIN)/python -m pytest $(REAL) -m first -n 2 --dist loadfile --durations 10

rest: $(VENV)/.ready
	@$(BIN)/python scripts/test_plan.py rest
	$(BIN)/python -m pytest $(FAST) $(REAL) -m "not first" -n 2 --dist loadfile --durations 40

ON_CLUSTER := tests/integration/kubernetes
AS_A_WHOLE := $(ON_CLUSTER)/test_installation.py $(ON_CLUSTER)/test_pod_rights.py

pods: $(VENV)/.ready  # on the cluster that KUBECONFIG names; without one they skip, saying how to get one
	$(BIN)/python -m pytest $(ON_CLUSTER) $(AS_A_WHOLE:%=--ignore %) -n 2 --dist loadfile -rs --durations 5

cluster: $(VENV)/.ready  # likewise; one installation, so one test process, and nothing else on the cluster meanwhile
	$(BIN)/python -m pytest $(AS_A_WHOLE) -rs --durations 10

lint: $(VENV)/.ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/gen_protos.py --check
	$(BIN)/python scripts/check_printing.py
	$(BIN)/python scripts/check_claims.py

format: $(VENV)/.ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

protos: $(VENV)/.ready
	$(BIN)/python scripts/gen_protos.py

docs: $(VENV)/.ready
	$(BIN)/python scripts/gen_api.py
	$(BIN)/python scripts/draw_system.py
	$(BIN)/python scripts/chart_values.py

claims: $(VENV)/.ready  # has pages of results say which code they depend on has changed
	$(BIN)/python -m benchmarks.claims

bench: $(VENV)/.ready
	$(BIN)/python -m benchmarks.steps --quick
	$(BIN)/python -m benchmarks.chunks --quick
	$(BIN)/python -m benchmarks.engines --quick
	$(BIN)/python -m benchmarks.train_step --quick
	$(BIN)/python -m benchmarks.learn --quick
	$(BIN)/python -m benchmarks.swe --quick
	$(BIN)/python -m benchmarks.rock --quick
	$(BIN)/python -m benchmarks.control_plane --quick
	$(BIN)/python -m benchmarks.chaos --quick
	$(BIN)/python -m benchmarks.chaos --amid-calls --quick
	$(BIN)/python -m benchmarks.replicas --quick
	$(BIN)/python -m benchmarks.kills --quick
	$(BIN)/python -m benchmarks.small_loop --quick
	$(BIN)/python -m benchmarks.stream --quick
	$(BIN)/python -m benchmarks.reward_hacks --quick
	$(BIN)/python -m benchmarks.hostile --quick
	$(BIN)/python -m benchmarks.strangers --quick
	$(BIN)/python -m benchmarks.webshop --quick
	$(BIN)/python -m benchmarks.console --quick

clean:
	rm -rf $(VENV) build dist
