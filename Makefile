# The commands of a user and of a developer. Needs make and Python 3.11 to 3.13; `make interop` also needs node, npm, apt and Go,
# `make web` node and npm, `make cluster-soak` Go.

PYTHON ?= $(shell for name in python3 python3.13 python3.12 python3.11; do \
	$$name -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null && echo $$name && break; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PIP_INSTALL := $(PIP) -c constraints.txt
CLIENT := packages/sightline-client
PYTEST := $(BIN)/python -m pytest --maxprocesses 8 --dist loadfile --no-loadscope-reorder
# One more than there are cores: tests of video wait for half of their time.
WORKERS = $(shell $(BIN)/python -c 'import os; print(os.cpu_count() + 1)')
# Tests that start servers wait longer than they compute. Their longest file is half of the time, so it is not kept together.
SERVER_WORKERS = $(shell $(BIN)/python -c 'import os; print(2 * os.cpu_count())')

# Compiling the package takes longer than everything else that a start does. Images for builds often forbid to keep the result.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install install-dev demo serve test test-servers check format sdk docs diagrams wheels interop nightly web nemesis cluster-soak attack mutants bench simulate lock sbom clean

help:
	@echo "make demo      run one session end to end on a server of its own and check every amount"
	@echo "make serve     run a server on http://127.0.0.1:8080"
	@echo "make test      run every test that starts no server, and one each of start, kill, two servers and video"
	@echo "make test-servers  run the other tests that need nothing beyond pip: they start servers"
	@echo "make check     format, lint, import contracts, strict types"
	@echo "make format    format the code and apply safe fixes"
	@echo "make sdk       generate the sync half of the Python client from its async half"
	@echo "make docs      build the manual that the server serves at /manual/"
	@echo "make diagrams  draw the Mermaid diagrams of the manual (needs npm and Chromium)"
	@echo "make wheels    build the wheels of the server and of the client into dist/"
	@echo "make interop   tests against a browser, anvil and real media servers (installs them)"
	@echo "make web       build the console from web/ into sightline/web (needs node and npm)"
	@echo "make simulate  run the simulator, for example ARGS='--seeds 100'"
	@echo "make bench     measure against a conventional stack"
	@echo "make attack    replay the findings of the security audit on a real server"
	@echo "make nightly   the long forms of interop, nemesis and cluster-soak, with the date as seed"
	@echo "make cluster-soak  inject faults into three servers under load (minutes=, rounds=, seed=, only=, where=, upgrade_from=)"
	@echo "make mutants   plant bugs in a sample of lines and list those that no test notices"
	@echo "make lock      renew requirements.lock (versions and hashes of the runtime)"
	@echo "make sbom      write sbom.cdx.json, the CycloneDX list of runtime dependencies"
	@echo "make clean     remove the virtual environment and local data"
	@echo "ARGS=... passes arguments on: make test ARGS='-k readiness'"

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11, 3.12 or 3.13 is needed"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The runtime is installed from exact versions with hashes; `make lock` renews them.
$(VENV)/.runtime: $(BIN)/python pyproject.toml $(CLIENT)/pyproject.toml requirements.lock
	$(PIP) --require-hashes -r requirements.lock
	$(PIP) --no-deps -e $(CLIENT) -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime constraints.txt
	$(PIP_INSTALL) -e '.[dev]'
	@touch $@

$(VENV)/.bench: $(VENV)/.dev
	$(PIP_INSTALL) -e '.[bench]'
	@touch $@

install: $(VENV)/.runtime

install-dev: $(VENV)/.dev

demo: $(VENV)/.runtime
	$(BIN)/sightline demo $(ARGS)

serve: $(VENV)/.runtime
	$(BIN)/sightline serve $(ARGS)

test: $(VENV)/.dev
	$(PYTEST) -n $(WORKERS) -m "not interop and not image and not servers and not nightly" $(ARGS)

test-servers: $(VENV)/.dev
	$(PYTEST) -n $(SERVER_WORKERS) --dist load -m "not interop and not image and servers and not nightly" $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/python scripts/sync_client.py --check

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

interop: $(VENV)/.dev
	./scripts/interop.sh $(ARGS)

web:
	npm ci --no-audit --no-fund --silent && npm run --silent build -w web

sdk: $(VENV)/.dev
	$(BIN)/python scripts/sync_client.py

docs: $(VENV)/.manual
	$(VENV)/manual/bin/python scripts/build_manual.py

# Zensical has an environment of its own: nothing else needs it.
$(VENV)/.manual: $(BIN)/python scripts/manual-requirements.txt
	$(BIN)/python -m venv $(VENV)/manual
	$(VENV)/manual/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r scripts/manual-requirements.txt
	@touch $@

diagrams: $(VENV)/.dev
	mkdir -p .interop/mermaid
	cd .interop/mermaid && npm pack --silent mermaid@12.3.0 && tar -xzf mermaid-12.3.0.tgz package/dist/mermaid.min.js
	$(BIN)/python scripts/diagrams.py .interop/mermaid/package/dist/mermaid.min.js $$(command -v chromium)

wheels: docs
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist ./$(CLIENT) .

nemesis: $(VENV)/.dev
	./scripts/interop_nemesis.sh
	$(BIN)/python -m tests.nemesis --minutes $(or $(minutes),2) --seed $(or $(seed),1) $(if $(only),--only '$(only)') $(ARGS)

# The long forms of what `make interop` runs for a short time, with the date as seed.
nightly: $(VENV)/.dev
	SIGHTLINE_ESCROW_EXAMPLES=1000 $(BIN)/python -m pytest tests/chain/contracts/test_escrow_invariants.py
	SIGHTLINE_API_LONG=1 $(BIN)/python -m pytest tests/http/test_schemathesis.py
	SIGHTLINE_KILL_ROUNDS=50 $(BIN)/python -m pytest tests/e2e/test_crash.py
	$(PYTEST) -n $(SERVER_WORKERS) -m "nightly and not interop and not image"
	SIGHTLINE_NIGHT=1 SIGHTLINE_FORGE_CALLS=100000 SIGHTLINE_DRILL_SESSIONS=1000 SIGHTLINE_KILL_ROUNDS=50 SIGHTLINE_DURABILITY_DEVICES=1000 SIGHTLINE_FIRST_START_KILLS=20 SIGHTLINE_FAULT_MINUTES=2 WEBHOOK_KILLS=20 SIGHTLINE_ATTACK_SECONDS=20 SIGHTLINE_UPLINK_SECONDS=60 ./scripts/interop.sh $(ARGS)
	./scripts/nightly_image.sh && $(BIN)/python -m pytest -m image tests/deploy
	$(MAKE) nemesis minutes=20 seed=$$(date +%Y%m%d)
	$(MAKE) cluster-soak seed=$$(date +%Y%m%d)

cluster-soak: $(VENV)/.dev
	./scripts/interop_porcupine.sh
	$(BIN)/python -m tests.cluster.nemesis --minutes $(or $(minutes),30) --rounds $(or $(rounds),50) --seed $(or $(seed),1) \
		$(if $(only),--only '$(only)') $(if $(where),--where $(where)) $(if $(upgrade_from),--upgrade-from $(upgrade_from)) $(ARGS)

attack: $(VENV)/.dev
	./scripts/interop_video.sh
	$(BIN)/python -m tests.attack $(ARGS)

mutants: $(VENV)/.dev
	$(PIP_INSTALL) cosmic-ray coverage
	nice -n 10 $(BIN)/python scripts/mutants.py $(ARGS)

bench: $(VENV)/.bench
	$(BIN)/python -m bench.run $(ARGS)

simulate: $(VENV)/.dev
	$(BIN)/python -m simulation $(ARGS)

lock: $(BIN)/python
	$(PIP_INSTALL) uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate -c constraints.txt \
		--no-emit-package sightline-client --custom-compile-command "make lock" --output-file requirements.lock pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate -c constraints.txt --extra c2pa \
		--no-emit-package sightline-client --custom-compile-command "make lock" --output-file requirements-c2pa.lock pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
		--custom-compile-command "make lock" --output-file scripts/manual-requirements.txt scripts/manual-requirements.in

sbom: $(BIN)/python
	$(PIP_INSTALL) cyclonedx-bom
	$(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible --of JSON -o sbom.cdx.json requirements.lock

clean:
	rm -rf $(VENV) .interop sightline-data sightline-frame.jpg
