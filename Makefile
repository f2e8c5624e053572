# OrbitMQ. `make` alone lists what there is.
# Everything a target needs is set up by the target; a second run finds it done.

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
HOT := $(shell find src -name '*.pxd' 2>/dev/null)
HOT := $(HOT) $(HOT:.pxd=.py)
INSTALLED := $(VENV)/.orbitmq-installed
BUILT := $(VENV)/.orbitmq-built
# Tests of what is compiled; `make test` runs them a second time uncompiled.
TWO_SPEEDS := $(wildcard $(foreach room,runtime message wire store broker fast_path gateway_plain client_open,tests/*/test_$(room)_*.py)) \
	$(wildcard tests/unit/test_replication_*.py) tests/conversation/test_replication_link.py
# Members and brokers that are killed while they work: seconds by `make test`, longer by `make chaos`.
KILLED := tests/sockets/test_client_members_killed.py tests/sockets/test_pop_members_killed.py tests/sockets/test_redrive_kill.py
SHORT_FLAG := $(if $(SHORT),--short)

# Where Spark's own speed is not measured, its JVM does not live long enough for the second compiler and the
# parallel collector to pay: the examples of docs/spark.md took 34 s of processor without these options, 18 s with them.
test test-spark interop chaos: export SPARK_SUBMIT_OPTS := -XX:TieredStopAtLevel=1 -XX:+UseSerialGC

# Servers are started by many targets; without cached bytecode each start takes twice as long.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup build wheel wheels docs java demo quick test check format bench bench-peer bench-client bench-grpc-faults bench-operate bench-spark interop interop-grpc interop-prometheus interop-packages chaos test-spark test-console behaviours clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do \
	    printf '  make %-12s %s\n' "$$name" "$$text"; done

$(INSTALLED): pyproject.toml
	@python=$$(sh scripts/find_python.sh) || exit 1; \
	test -x $(PY) || { echo "setup: $$python makes $(VENV)"; "$$python" -m venv $(VENV); }
	@echo "setup: installing what pyproject.toml names, compiling meanwhile (once; some minutes on a slow line)"
	@$(PY) -m pip install -q --disable-pip-version-check 'setuptools>=77' wheel 'Cython>=3.3,<4'
	@$(PY) setup.py -q build_ext --inplace & compiler=$$!; \
	ORBITMQ_PURE=1 $(PY) -m pip install -q --disable-pip-version-check --no-build-isolation -e '.[dev]'; \
	installed=$$?; wait $$compiler; exit $$installed
	@touch $@

$(BUILT): $(INSTALLED) setup.py $(HOT)
	@echo "setup: compiling the hot modules that changed"
	@$(PY) setup.py -q build_ext --inplace
	@touch $@

setup: $(BUILT)  ## virtual environment, dependencies, compiled modules: a minute beside the downloads, once
	@$(PY) scripts/speeds.py || true

build: $(INSTALLED)  ## compile all hot modules again: half a minute (a changed one alone: seconds, by any target)
	@$(PY) setup.py -q build_ext --inplace --force
	@touch $(BUILT)
	@$(PY) scripts/speeds.py

wheel: $(INSTALLED)  ## a wheel in dist/, compiled or not at all: half a minute
	@sh scripts/wheel.sh $(PY)
	@ls dist/*.whl

wheels: $(INSTALLED)  ## wheels for each supported Python in wheelhouse/, with Docker, and an uncompiled one: an hour
	@$(PY) -m pip install -q --disable-pip-version-check "cibuildwheel>=3,<5"
	@$(PY) -m cibuildwheel --platform linux --output-dir wheelhouse
	@ORBITMQ_PURE=1 sh scripts/wheel.sh $(PY) wheelhouse
	@ls wheelhouse/*.whl

docs: $(INSTALLED)  ## the pages and the reference of the Python API as a site, in site/: a minute
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build -q --strict
	@echo "docs: $(PY) -m http.server -d site   shows it, with search; or open site/index.html"

java:  ## a Java runtime for Spark, installed when it is missing and that is allowed
	@sh scripts/java.sh >/dev/null

demo: $(BUILT)  ## the main job on 336,776 flights, cluster to audit: half a minute (two beside other work); TIMES=n times over
	@JAVA_HOME=$$(sh scripts/java.sh) && export JAVA_HOME && $(PY) -m examples.flights.main $(if $(TIMES),--times $(TIMES))

quick: $(BUILT)  ## lint, types, unit tests, five seeds, the README's first example: under a minute (ROOM=pop: that room's conversations too)
	@$(BIN)/ruff check -q .
	@$(BIN)/mypy
	@$(PY) scripts/run_tests.py --quick $(ROOM)

test: $(BUILT)  ## all tests, the hot modules at both speeds: eight minutes (RECORD=1: record the seconds of each part)
	@$(PY) scripts/speeds.py || true
	@if JAVA_HOME=$$(sh scripts/java.sh); then export JAVA_HOME; without=; \
	    elif [ -n "$$ORBITMQ_CI" ]; then echo "test: no Java, and ORBITMQ_CI is set: nothing may be skipped"; exit 1; \
	    else echo "test: without Java the Spark tests are skipped"; without="and not spark"; fi; \
	ORBITMQ_RECORD=$(RECORD) ORBITMQ_LEFT_OUT="$(if $(CHAOS_FOLLOWS),$(KILLED))" $(PY) scripts/run_tests.py "not interop and not faults $$without" $(TWO_SPEEDS)

check: $(INSTALLED)  ## format, lint, types, import contracts: under a minute
	@$(BIN)/ruff format --check -q .
	@$(BIN)/ruff check -q .
	@$(BIN)/mypy
	@PYTHONPATH=src $(BIN)/lint-imports --no-cache
	@$(PY) scripts/behaviours.py

format: $(INSTALLED)  ## let ruff lay out the code: a second
	@$(BIN)/ruff format -q .
	@$(BIN)/ruff check -q --fix .

bench: $(BUILT)  ## speed, memory and growth on this machine: 20 minutes (SHORT=1: three)
	@$(PY) -m benchmarks.run $(SHORT_FLAG)

bench-peer: $(BUILT)  ## the same loads against Apache RocketMQ, with Maven Central: 45 minutes (SHORT=1: seventeen); gRPC with nghttp2-client's h2load
	@$(PY) -m benchmarks.peer $(SHORT_FLAG)

bench-client: $(BUILT)  ## the Python client beside Apache's Java client, with Maven Central: 8 minutes (SHORT=1: one and a half)
	@$(PY) -m benchmarks.client_speed $(SHORT_FLAG)

bench-grpc-faults: $(BUILT)  ## faults of gRPC clients and their brokers, here and at Apache's: a quarter of an hour (SHORT=1: ten minutes)
	@$(PY) -m benchmarks.grpc_faults $(SHORT_FLAG) --record

bench-operate: $(BUILT)  ## what metrics, keys, rules, TLS, strangers and the console cost, with Maven Central, PyPI's playwright: ten minutes (SHORT=1: two; ROW=tls: that row)
	@$(PY) -m pip install -q --disable-pip-version-check 'playwright>=1.50,<2'
	@$(PY) -m benchmarks.operate $(SHORT_FLAG) $(if $(ROW),--row $(ROW))

bench-spark: $(BUILT)  ## Spark over OrbitMQ beside Spark over Kafka, with Maven Central: an hour (RUNS=2: half; SHORT=1: five minutes; CASES=a,b: those again)
	@JAVA_HOME=$$(sh scripts/java.sh) && export JAVA_HOME && $(PY) -m benchmarks.spark $(SHORT_FLAG) $(if $(CASES),--cases $(CASES)) $(if $(RUNS),--runs $(RUNS))

interop: $(BUILT)  ## Apache's clients and tools against OrbitMQ, with Maven Central: forty-five minutes (SHORT=1: fifteen)
	@$(PY) -m tests.interop.run $(SHORT_FLAG)

interop-grpc: $(BUILT)  ## the official gRPC clients of Python, Java, Node and Rust against orbitmq up, from their registries: a quarter of an hour (SHORT=1: five minutes)
	@$(PY) -m tests.interop.grpc_run $(SHORT_FLAG) $(if $(E2E),--e2e "$(E2E)")

interop-prometheus: $(BUILT)  ## Debian's Prometheus at our metrics, alerts and board: a minute
	@$(PY) -m tests.interop.prometheus_run

interop-packages: $(BUILT)  ## systemd at our units, hadolint, an installed wheel, the container's command: two minutes
	@$(PY) -m tests.interop.packages_run

chaos: $(BUILT)  ## faults, simulated from seeds and on real processes: two and a half hours (SHORT=1: twelve)
	$(if $(SHORT),,@ORBITMQ_SEEDS=40 $(PY) -m pytest -q tests/simulation --ignore tests/simulation/test_pop_model.py)
	$(if $(SHORT),,@ORBITMQ_SEEDS=134 $(PY) -m pytest -q tests/simulation/test_pop_model.py)
	@$(PY) -m tools.simulation --seeds $(if $(SHORT),0-299,0-2999)
	@$(PY) -m tools.simulation --grpc --seeds $(if $(SHORT),0-19,0-299)
	@echo "chaos: ten seeds of this day; a promise that one breaks is to be filed, and no verdict on this change"
	-@$(PY) -m tools.simulation --seeds today:10
	@ORBITMQ_FAULTS_SHORT=$(SHORT) ORBITMQ_KILLS=$(if $(SHORT),4,1000) $(PY) -m pytest -q -m faults tests/faults
	@echo "chaos: damaged conversations of gRPC clients"
	@ORBITMQ_FUZZ_SECONDS=$(if $(SHORT),12,60) $(PY) -m pytest -q tests/conversation/test_gateway_odd_clients.py -k damaged
	@echo "chaos: members and brokers that are killed while they work"
	@ORBITMQ_KILL_SECONDS=$(if $(SHORT),12,120) ORBITMQ_REDRIVE=$(if $(SHORT),40000,1000000) \
	    $(PY) -m pytest -q -s $(KILLED)
	$(if $(SHORT),,@ORBITMQ_TIMERS=100000 $(PY) -m pytest -q tests/simulation/test_broker_timers_crash.py)
	@if JAVA_HOME=$$(sh scripts/java.sh); then export JAVA_HOME; \
	    $(PY) -m pytest -q -m faults tests/spark --ignore tests/spark/test_spark_standalone.py \
	        --ignore tests/spark/test_spark_connect.py && \
	    $(PY) -m tests.spark.kills $(if $(SHORT),--jobs shuffle --kills 5,--kills 200 --freeze 30 --cut 180); \
	else echo "chaos: without Java no Spark driver is killed"; [ -z "$$ORBITMQ_CI" ]; fi

test-spark: $(BUILT)  ## the Spark tests with PySpark 4.0, 4.1, 4.2 and 4.3, each in a virtual environment of its own (SHORT=1: 4.0, 4.3)
	@SHORT=$(SHORT) sh scripts/test_spark.sh $(PY) $(if $(SHORT),4.0 4.3,4.0 4.1 4.2 4.3)

test-console: $(BUILT)  ## the console's pages in Debian's Chromium, by playwright from PyPI: a minute (SHORT=1: half; APACHE=1: at Apache RocketMQ, too)
	@$(PY) -m pip install -q --disable-pip-version-check 'playwright>=1.50,<2' 'axe-playwright-python>=0.1.4,<1'
	@$(PY) -m tests.browser.console_run $(SHORT_FLAG) $(if $(APACHE),--apache)

behaviours: $(INSTALLED)  ## whether each numbered behaviour has a test (also in make check): a second
	@$(PY) scripts/behaviours.py

clean:  ## remove what was built (the virtual environment too)
	rm -rf $(VENV) build dist wheelhouse site target demo-output .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src -name '*.so' -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
