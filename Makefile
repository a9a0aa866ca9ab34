# Each target needs only python3 (3.11 or newer) and make; it makes its own .venv.
.DEFAULT_GOAL := help
SHELL := /bin/sh
PYTHON ?= python3
BIN := .venv/bin
# Most tests wait for a process, an emulator or a lease, so more of them run at once than there are
# cores; see tests/worlds/forked_tests.py.
TESTS_AT_ONCE ?= 8
export INPUT ?= .
export CHAOS ?=
# What Python compiled is kept: the tests start hundreds of processes, and each would compile it all.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-21s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: .venv/.runtime ## run the review pipeline on this repository's documents, or on INPUT=folder, and kill a worker of it; CHAOS=1 kills more of them, and has a step hang
	@$(BIN)/python -m examples.demo.run

.PHONY: dev
dev: .venv/.runtime ## serve the whole bundle on this machine, until Ctrl-C
	@$(BIN)/leasehold dev

.PHONY: test
test: .venv/.dev .venv/.browser ## run the tests, and report which share of the rules' lines they run
	@$(BIN)/python -m tests.worlds.emulators $(BIN)/python -m pytest -p tests.worlds.line_coverage -m 'not nightly' --forks $(TESTS_AT_ONCE)

.PHONY: check
check: .venv/.dev ## the whole gate: format, lint, types, import contract, fresh docs, prose, tests
	@$(BIN)/python -m tests.worlds.emulators $(MAKE) --no-print-directory -j 3 static test integrations

# The integrations of agent libraries, each in its own environment: see tests/integrations/.
INTEGRATIONS ?= $(patsubst tests/integrations/%/requirements.txt,%,$(wildcard tests/integrations/*/requirements.txt))
# A program between two makes does not hand on what they share of their jobs, so there is none.
# Only what is nightly needs an emulator.
TEST_INTEGRATIONS = MAKEFLAGS= $(if $(1),$(BIN)/python -m tests.worlds.emulators) $(MAKE) --no-print-directory \
  test-integrations INTEGRATIONS="$(INTEGRATIONS)" TYPES=$(1)
.PHONY: integrations
integrations: .venv/.dev ## test the integrations of agent libraries, or those of INTEGRATIONS="adk langgraph", with the pinned versions; TYPES=1 adds what is nightly, and their types
	@$(call TEST_INTEGRATIONS,$(TYPES)) KIND=integrations

.PHONY: integrations-newest
integrations-newest: .venv/.dev ## as integrations with TYPES=1, with the releases that are the newest now
	@rm -rf .venv/integrations-newest
	@$(call TEST_INTEGRATIONS,1) KIND=integrations-newest

# All of them are tested, whatever one of them says; the output of each comes at its end. In the gate
# one process runs them, without plugins, and forks what they start: to import a library takes seconds.
.PHONY: test-integrations
test-integrations:
	@failed=; for name in $(INTEGRATIONS); do \
	  python=.venv/$(KIND)/$$name/bin/python; \
	  output=$$({ $(MAKE) -s --no-print-directory .venv/$(KIND)/$$name/.made && \
	    $$python -m pytest --disable-plugin-autoload $(if $(TYPES),--forks 2,-m 'not nightly') tests/integrations \
	    $(if $(TYPES),&& $(BIN)/mypy --python-executable $$python shared/leasehold/integrations/$$name); } 2>&1) || failed="$$failed $$name"; \
	  echo "$(KIND)/$$name: $$output"; \
	done; [ -z "$$failed" ] || { echo "error: these integrations failed:$$failed" >&2; exit 1; }

.PHONY: static
static: .venv/.dev ## the gate but for the tests; it runs beside them, so its output comes at its end
	@output=$$({ $(BIN)/ruff format --check && $(BIN)/ruff check && $(BIN)/lint-imports && \
	  $(BIN)/python docs/generate.py --check && $(BIN)/python -m tools.prose && $(BIN)/mypy && $(BIN)/python -m tools.audit; } 2>&1); \
	  code=$$?; echo "$$output"; exit $$code

.PHONY: audit
audit: .venv/.dev ## ask whether a pinned package has a known vulnerability; LEASEHOLD_REQUIRE_AUDIT=1 fails where that cannot be asked
	@$(BIN)/python -m tools.audit

.PHONY: fix
fix: .venv/.dev ## format, fix what ruff can fix, draw the generated docs
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/python docs/generate.py

# Nightly: the rooms that another Python could break, each Python with an environment of its own.
PYTHONS ?= python3.11 python3.12 python3.13
ROOMS ?= tests/unit tests/properties tests/api/in_process tests/api/client tests/api/testing tests/api/channels
.PHONY: pythons
pythons: ## run the tests of ROOMS with each of PYTHONS, by default all that are supported (minutes)
	@for python in $(PYTHONS); do \
	  $$python --version || { echo "error: there is no $$python; name those that are here: make pythons PYTHONS=..." >&2; exit 1; }; \
	  $(MAKE) --no-print-directory .venv/$$python/.dev && \
	    .venv/$$python/bin/pytest --forks $(TESTS_AT_ONCE) $(ROOMS) || exit 1; \
	done

.PHONY: nightly
nightly: .venv/.dev .venv/.browser ## what is too long for the gate: all cases of its matrices, many more examples of its property tests, workers killed at every point (an hour)
	@$(BIN)/python -m tests.worlds.emulators $(BIN)/pytest -m nightly --forks 2 tests
	@$(MAKE) --no-print-directory integrations TYPES=1
	@$(MAKE) --no-print-directory storm

# Lists of tests/planted/ by name, as "leases signals"; without one, all of them.
STORIES ?=
.PHONY: planted
planted: .venv/.dev .venv/.browser ## plant each fault of tests/planted, or of STORIES="leases signals", in a copy and see that a test of the gate finds it (two hours)
	@$(BIN)/python -m tests.worlds.emulators $(BIN)/python -m tools.planted_faults $(STORIES)

.PHONY: coverage
coverage: .venv/.dev ## list the lines of the rules that the tests of ROOMS do not run (minutes)
	@$(BIN)/python -m pytest -p tests.worlds.line_coverage --missing-lines -m 'not nightly' --forks 2 $(ROOMS)

.PHONY: storm
storm: .venv/.dev ## the property tests with many more examples, and workers killed at every point (minutes)
	LEASEHOLD_STORM=1 $(BIN)/python -m tests.worlds.emulators $(BIN)/pytest tests/properties tests/unit/worker/test_failures.py tests/chaos/kills tests/conformance/test_trials.py tests/conformance/test_purges_at_once.py tests/chaos/storm/test_deploys.py tests/chaos/storm/test_split_traffic.py tests/chaos/patterns

# A commit to be measured beside: this one had the most throughput so far.
BESIDE ?= 63a42df
.PHONY: bench
bench: .venv/.dev ## the benchmarks, as ratios against a floor measured in the same run, or beside the commit BESIDE (minutes)
	@$(BIN)/python -m bench.durable_steps --beside $(BESIDE)
	@$(BIN)/python -m bench.hint_trace
	@$(BIN)/python -m bench.serve
	@$(BIN)/python -m bench.slow_callers
	@$(BIN)/python -m bench.cold_start
	@$(BIN)/python -m bench.bundle_steps
	@$(BIN)/python -m bench.firestore_steps
	@$(BIN)/python -m bench.lease_cost
	@$(BIN)/python -m bench.recovery
	@$(BIN)/python -m bench.at_scale
	@$(BIN)/python -m bench.lists
	@$(BIN)/python -m bench.sweep_storm
	@$(BIN)/python -m bench.linear_time
	@$(BIN)/python -m bench.sandbox
	@$(BIN)/python -m bench.long_steps
	@$(BIN)/python -m bench.announcements
	@$(BIN)/python -m bench.rolling_deploys
	@$(BIN)/python -m bench.limits
	@$(MAKE) --no-print-directory bench-agents
	@$(MAKE) --no-print-directory bench-each

.PHONY: bench-agents
bench-agents: .venv/.dev .venv/integrations/pydantic_ai/.made .venv/bench/dbos/.made .venv/bench/prefect/.made .venv/bench/langgraph/.made ## agents that are killed, and other engines on the same agent (minutes)
	@$(BIN)/python -m tests.worlds.emulators $(BIN)/python -m bench.agents

.PHONY: bench-each
bench-each: .venv/.dev .venv/bench/dbos/.made .venv/bench/celery/.made .venv/bench/bullmq/.made ## lists of items and their joins, beside other engines; needs redis-server, node and, for one of them, Postgres (minutes)
	@$(BIN)/python -m bench.each_items
	@$(BIN)/python -m bench.each_beside

.PHONY: bench-limits
bench-limits: .venv/.dev ## limits that learn, replayed: what they clip and how late they notice a hang, beside simpler rules (minutes)
	@$(BIN)/python -m bench.limits

.PHONY: bench-rolling-deploys
bench-rolling-deploys: .venv/.dev ## runs that go through wrong deploys and kills: none is given up, nothing is paid for twice
	@$(BIN)/python -m bench.rolling_deploys

.PHONY: bench-announcements
bench-announcements: .venv/.dev ## announcements in a storm of failures and kills, and what they cost
	@$(BIN)/python -m bench.announcements

.PHONY: bench-long-steps
bench-long-steps: .venv/.dev ## what checkpoints, calls made once and continuations cost, and what a kill repeats
	@$(BIN)/python -m bench.long_steps

.PHONY: bench-sandbox
bench-sandbox: .venv/.dev ## what a step in a process of its own costs, and how late a stop or a kill is
	@$(BIN)/python -m bench.sandbox

.PHONY: bench-costs
bench-costs: .venv/.dev ## count what a run asks of each service, as docs/costs.md has it
	@$(BIN)/python -m bench.run_costs

.PHONY: docs
docs: .venv/.docs ## build the documentation as a site, in build/site
	@$(BIN)/zensical build --clean

.PHONY: pictures
pictures: .venv/.dev .venv/.browser ## take the pictures of docs/dashboard.md anew
	@mkdir -p docs/pictures
	@DASHBOARD_PICTURES=docs/pictures $(BIN)/pytest tests/api/dashboard/test_incident.py

.PHONY: clean
clean: ## delete .venv and the demo's data
	rm -rf .venv .leasehold bench/out

# What your pipelines need beside Leasehold: the requirements.txt of their folder.
REQUIREMENTS := $(wildcard */requirements.txt)

# uv installs in a tenth of the CPU that pip takes. Where it is missing or fails, as it reads none of
# pip's settings, pip does the same. Neither compiles: a third of what is installed is ever imported.
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
install = $(BIN)/uv pip install --quiet --python $(1)/bin/python $(2) 2>/dev/null || \
  $(PIP) --python $(1)/bin/python install --no-compile $(2)

# The tests of the dashboard drive the Chromium of the system; where it can be installed, it is. The
# headless shell has the same engine, and takes half of the CPU.
APT := DEBIAN_FRONTEND=noninteractive apt-get -qq
install_browser = command -v chromium-headless-shell >/dev/null && exit; \
  get() { $(APT) install --yes --no-install-recommends "$$@"; }; \
  { get chromium-headless-shell || { $(APT) update && get chromium-headless-shell; }; } >/dev/null 2>&1 && exit; \
  for name in chromium chromium-browser google-chrome; do command -v $$name >/dev/null && exit; done; \
  get chromium >/dev/null 2>&1 || \
  echo "warning: THERE IS NO CHROMIUM, so no page of the dashboard is tested; on Debian: apt install chromium-headless-shell" >&2

# What users run needs the run-time dependencies alone; the gate needs the development ones as well.
RUNTIME := functions,serve,google,channels,review
.venv/.runtime: pyproject.toml constraints.txt $(REQUIREMENTS) | .venv/bin/python
	@echo "installing Leasehold into .venv (once)"
	@$(call install,.venv,-c constraints.txt -e '.[$(RUNTIME)]' $(addprefix -r ,$(REQUIREMENTS)))
	@touch $@

.venv/.dev: pyproject.toml constraints.txt $(REQUIREMENTS) | .venv/bin/python
	@echo "installing Leasehold and its development tools into .venv (once)"
	@$(call install,.venv,-c constraints.txt -e '.[dev]' $(addprefix -r ,$(REQUIREMENTS)))
	@touch $@ .venv/.runtime

.venv/.browser: | .venv/bin/python
	@$(install_browser)
	@touch $@

.venv/python%/.dev: pyproject.toml constraints.txt $(REQUIREMENTS) | .venv/bin/python
	@echo "installing Leasehold and its development tools into $(@D) (once)"
	@python$* -m venv $(@D)
	@$(call install,$(@D),-c constraints.txt -e '.[dev]' $(addprefix -r ,$(REQUIREMENTS)))
	@touch $@

# An environment beside .venv has what it needs in another version, and finds all the rest in .venv.
define BESIDE
	@rm -rf $(@D) && $(BIN)/python -m venv --without-pip $(@D)
	@$(BIN)/python -c 'import sys, sysconfig; into, of = (sysconfig.get_path("purelib", vars={"base": it}) for it in ("$(@D)", sys.prefix)); \
	  open(f"{into}/leasehold.pth", "w").write(f"import site; site.addsitedir({of!r})\n")'
endef

# pip sees what is in .venv, and uv does not; what pip says of others' requirements is of .venv's tools.
define INSTALL_BESIDE
	$(BESIDE)
	@output=$$($(PIP) --python $(@D)/bin/python install --no-compile $(1) 2>&1) || { echo "$$output" >&2; exit 1; }
	@touch $@
endef

.venv/integrations/%/.made: tests/integrations/%/constraints.txt .venv/.dev
	$(BESIDE)
	@$(call install,$(@D),--no-deps -r $<)
	@touch $@

.venv/integrations-newest/%/.made: tests/integrations/%/requirements.txt .venv/.dev
	$(call INSTALL_BESIDE,-r $<)

# The engines that benchmarks measure beside ours.
.venv/bench/%/.made: bench/peers/%.txt .venv/.dev
	$(call INSTALL_BESIDE,-r $<)

.venv/bench/bullmq/.made: bench/peers/bullmq.npm .venv/.dev
	@mkdir -p $(@D) && npm install --prefix $(@D) --silent --no-save --no-fund --no-audit --ignore-scripts $$(cat $<) || \
	  echo "warning: bench-each goes without BullMQ: npm could not install it" >&2
	@touch $@

.venv/.docs: pyproject.toml | .venv/bin/python
	@$(call install,.venv,-c constraints.txt 'zensical>=0.0.73')
	@touch $@

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: Leasehold needs Python 3.11 or newer; name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv --without-pip .venv
	@install="install --quiet --disable-pip-version-check --no-compile -c constraints.txt uv pip"; \
	  $(PYTHON) -m pip --python $@ $$install 2>/dev/null || \
	  { $@ -m ensurepip >/dev/null && { $@ -m pip $$install 2>/dev/null || true; }; } || \
	  { echo "error: python3 could not make .venv; on Debian and Ubuntu: apt install python3-venv" >&2; rm -rf .venv; exit 1; }
