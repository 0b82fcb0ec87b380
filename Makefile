# Everything runs in a virtual environment inside the checkout; only Python 3.11+ and make are needed.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Test processes: two more than there are cores, since tests of servers and jobs mostly wait. Those come first
# (tests/conftest.py); a process that has nothing left takes over half of what another has.
TESTERS := $(shell expr 2 + `getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2`)
PYTEST := $(BIN)/pytest -n $(TESTERS) --dist worksteal
# Some containers ask Python to keep no bytecode: then each test process compiles all tests, and each service and job
# all of cranny, which takes a tenth of the whole time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test tests fuzz chaos coverage check docs bench testbed release lock format clean
.DEFAULT_GOAL := demo

demo: .venv/run.done  ## compare cranny with its rivals and write out/demo.html
	$(BIN)/cranny demo

# Checks run beside the tests: they keep one core busy while the test processes start.
test: .venv/system.done  ## everything that CI runs
	@$(MAKE) --no-print-directory -j2 check tests

tests: .venv/system.done
	$(PYTEST)

# What it finds becomes an @example of the test. SEED=N draws as a run that printed N.
ROUNDS ?= 3
fuzz: .venv/system.done  ## all property tests with draws at random, ROUNDS times
	@for round in $$(seq $(ROUNDS)); do \
	  seed=$${SEED:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}; \
	  echo "make fuzz ROUNDS=1 SEED=$$seed"; \
	  HYPOTHESIS_PROFILE=fuzz $(PYTEST) --hypothesis-seed=$$seed \
	    $$(grep -rlE '^from (hypothesis|schemathesis)' tests --include='test_*.py') || exit 1; \
	done

# It ends with 1 if a job was lost or run twice, or a GPU was given twice. SEED=N draws as a run that printed N.
CHAOS_S ?= 600
chaos: .venv/system.done  ## kills and stops services and supervisors, crashes databases, fills a disk, sets clocks: for CHAOS_S seconds, as root
	$(BIN)/python -m tests.chaos --seconds $(CHAOS_S) $(if $(SEED),--seed $(SEED))

coverage: .venv/system.done  ## which lines and branches the tests reach: a summary, and out/coverage/index.html
	$(PYTEST) --cov --cov-report=term --cov-report=html --cov-fail-under=92

release: .venv/dev.done  ## build wheel and sdist, and try them in an empty environment
	rm -rf dist
	$(BIN)/python -m build --quiet
	$(BIN)/python scripts/try_release.py dist/*.whl

check: .venv/dev.done  ## format, lint, types, import contracts, unused dependencies
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry src
	$(BIN)/codespell

docs: .venv/dev.done  ## build the site of the documents into out/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo open out/site/index.html

bench: .venv/dev.done  ## measure the budgets of the design
	$(BIN)/cranny bench --check

testbed: .venv/system.done  ## what shifts gain real jobs on emulated links: an hour, as root, on a machine with nothing else to do
	$(BIN)/python -m benchmarks.testbed

format: .venv/dev.done  ## write files as `make check` wants them
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-header $(UPGRADE)
lock: .venv/dev.done  ## write down versions of new dependencies; with UPGRADE=--upgrade the newest of all
	$(PIP) uv
	$(LOCK) pyproject.toml -o requirements/run.lock
	$(LOCK) pyproject.toml --extra exact --extra oidc --extra ray --extra repro --extra service --group dev --group docs -o requirements/dev.lock

clean:
	rm -rf .venv out .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "cranny needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv

.venv/run.done: .venv/bin/python requirements/run.lock pyproject.toml
	$(PIP) -r requirements/run.lock
	$(PIP) --no-deps -e .
	touch $@

# PyTorch is apart from the lock: which of its builds is wanted, for CPU or for some CUDA, is a matter of the machine.
.venv/dev.done: .venv/run.done requirements/dev.lock requirements/torch.txt
	$(PIP) -r requirements/dev.lock -r requirements/torch.txt
	touch $@

# The browser that pages are tested in, the database besides SQLite, gloo, whose messages a test compares with ours, and
# the commands that make a network of emulated links, and Slurm; without them those tests say why they skip.
.venv/system.done: .venv/dev.done
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  ! { command -v chromium && command -v g++ && command -v tc && command -v systemd-analyze && command -v slurmctld && command -v slurmdbd && command -v slurmrestd && command -v mariadbd && command -v slurmd && ls /usr/lib/postgresql/*/bin/initdb /usr/include/gloo/context.h /usr/lib/*/slurm-wlm/auth_jwt.so; } >/dev/null 2>&1; then \
	  apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
	    chromium g++ iproute2 libgloo-dev mariadb-server munge postgresql slurm-client slurm-wlm-basic-plugins slurm-wlm-jwt-plugin slurm-wlm-mysql-plugin \
	    slurmctld slurmd slurmdbd slurmrestd systemd \
	    >/dev/null; \
	fi
	touch $@
