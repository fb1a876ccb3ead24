# make run    install what running needs and start the server; Spark is installed beside it, and the pipeline joins then
# make cluster  one Kafka node and three servers on this machine, to try several nodes (docs/nodes.md)
# make test   set up and run every check: ruff, mypy --strict, pytest in WORKERS=4 processes
# make check  format, types and the tests of what has changed since main, in less than a minute; for every edit
# make setup  install everything into .venv, and compile the hot modules where a C compiler is; EMBERMQ_PURE=1: do not
# make wheel  build a source distribution, and from it a wheel for this platform, into dist, with a bill of materials
# make wheels  a source distribution, a compiled manylinux wheel for each Python from 3.11 to 3.14 that can be had, a pure one
# make test-all  everything: make test, what it leaves out, and the oldest dependencies and Spark
# make test-wheel  install the wheel into a fresh environment and try it there
# make test-spark  all tests of the pipeline; make test leaves out those that are marked as long
# make test-oldest-dependencies  the server and the fixtures with the oldest versions that pyproject.toml allows
# make test-oldest-spark  the tests of the pipeline with the oldest Spark that is supported, in an environment of their own
# make test-page  all tests of the page in Chromium; BROWSER=firefox: in Firefox
# make screenshots  take pictures of the page: those of the docs, and of every view and state
# make docs   build the site of docs/ into build/site
# make bench  measure beside Mosquitto
# make test-cluster  the tests with one Kafka node: the shared log, and three servers on it
# make crash  kill a server under load, ROUNDS=500 times; SEED=n repeats a run
# make simulate  run the server in a simulated world, SEEDS=1000 seeds of it; SEED=n runs one, ARGS=--tell says what happens
# make power-cut  record a server and try IMAGES=20000 of the states that a power cut may leave; ARGS="--durability os": of that
# make fuzz  feed every reader of foreign bytes with coverage-guided input, SECONDS=60 each; TARGET=name: one of them
# make conformance  write docs/conformance.md from the marks on the tests
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# What is installed: for the server, for the pipeline, for the compiler, and everything, for the tests.
SERVER := $(VENV)/.server
SPARK  := $(VENV)/.spark
MYPYC  := $(VENV)/.mypyc
STAMP  := $(VENV)/.installed
INSTALL = EMBERMQ_PURE=1 $(BIN)/uv pip install --quiet --python $(VENV) -c constraints.txt
# What clients of Spark Connect need, pandas for one: nothing else may be tested with it.
CONNECT := $(VENV)/connect

ROUNDS ?= 500
SEEDS ?= 1000
IMAGES ?= 20000
SECONDS ?= 60
# Test processes: more than the cores of a small machine, since many tests wait for a deadline or a server's start.
WORKERS ?= 4

# What the compiled modules are made from. `embermq.compiled` leaves them unused when one of these has changed.
COMPILED := src/embermq/_compiled/manifest.json
HOT      := setup.py $(shell find src/embermq/protocol src/embermq/broker src/embermq/store src/embermq/transport -name '*.py') src/embermq/http/messages_json.py

# Tests start some hundred servers. One that may not keep its bytecode compiles all it imports again, 2 s each time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run beside cluster check docs test test-others test-all test-pipeline test-cluster test-spark test-wheel test-oldest-dependencies test-oldest-spark test-page screenshots setup compile wheel wheels bench crash simulate power-cut fuzz lint conformance clean

setup: $(STAMP) compile

$(SERVER): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv
	$(INSTALL) -e .
	@touch $@

# Java first and delta-spark last, each by itself: `ember up` starts the pipeline when it finds both packages and Java.
$(SPARK): $(SERVER)
	@echo "installing Spark for the pipeline, more than 400 MB; the server needs none of it"
	@tools/java
	@$(INSTALL) -e '.[sql]' pyspark
	@$(INSTALL) -e '.[spark]'
	@echo "Spark is installed"
	@touch $@

$(MYPYC): $(SERVER)
	@$(INSTALL) mypy 'setuptools>=77'
	@touch $@

$(STAMP): $(SERVER)
	@echo "installing what the tests need: Spark, a browser, Mosquitto"
	$(INSTALL) -e '.[cluster,dev,docs,spark,sql]'
	tools/java
	-$(BIN)/python tools/kafka fetch  # tests with Kafka are skipped without it
	tools/mosquitto
	tools/chromium
	@for stamp in $(SPARK) $(MYPYC); do [ -e $$stamp ] || touch $$stamp; done  # one that is newer would compile again
	@touch $@

ifdef EMBERMQ_PURE
compile: $(SERVER)
	rm -rf src/embermq/_compiled
else
compile: $(COMPILED)
endif

# Not by pip, which would begin again with every C file.
$(COMPILED): $(MYPYC) $(HOT)
	@echo "compiling the hot modules: a minute or two at first, then what has changed"
	@$(BIN)/python setup.py --quiet build_ext --inplace
	@echo "compiled: the next start uses it"

wheel: $(STAMP)
	$(BIN)/python -m build
	$(BIN)/python tools/sbom dist

wheels: $(SERVER)
	UV=$(BIN)/uv tools/wheels

# The server first, interpreted where nothing is compiled yet; the rest is made beside it.
run: $(SERVER)
	@$(MAKE) --no-print-directory beside >&2 & exec $(BIN)/ember up $(ARGS)

# One Kafka node and three servers on loopback, until Ctrl-C (docs/nodes.md).
cluster: $(SPARK) compile
	@$(INSTALL) -e '.[cluster]'
	@exec $(BIN)/python tools/cluster $(ARGS)

beside: $(SPARK) compile
	@:

check: $(STAMP)
	@$(BIN)/python tools/check

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Everything in the form that `make setup` has made, and the packages that are compiled once more as sources.
# The page's tests start a browser for each module, so a module stays in one process.
# The pipeline's tests share one Spark session, so they run in one process, from the beginning on and beside all others.
test: setup
	@$(MAKE) --no-print-directory --jobs 2 --output-sync test-pipeline test-others

test-others: lint
	$(BIN)/python -m pytest -m 'not spark and not kafka and not long' --ignore tests/page -n $(WORKERS) --dist worksteal
	$(BIN)/python -m pytest -m 'not long' tests/page -n 2 --dist loadfile
	EMBERMQ_PURE=1 $(BIN)/python -m pytest tests/protocol tests/broker tests/store -n 2 --dist worksteal

# The tests with Kafka share one node, so they run in one process too, after those of the pipeline.
test-pipeline:
	$(BIN)/python -m pytest -m 'spark and not long' tests/spark
	$(BIN)/python -m pytest -m 'kafka and not long' tests/cluster/kafka

test-cluster: setup
	$(BIN)/python -m pytest -m kafka tests/cluster/kafka

# What `make test` leaves out: S3, HDFS, clusters, Spark Connect, full disks, the oldest dependencies, and the oldest Spark.
test-all: test $(CONNECT)/.installed
	$(BIN)/python -m pytest -m long tests
	$(MAKE) test-oldest-dependencies
	$(MAKE) test-oldest-spark

# The variable of the environment names the browser of a user, and is another one.
test-page: setup
	$(if $(filter command,$(origin BROWSER)),EMBERMQ_BROWSER=$(BROWSER)) $(BIN)/python -m pytest tests/page

screenshots: setup
	EMBERMQ_SCREENSHOTS=1 $(BIN)/python -m pytest tests/page/test_screenshots.py

$(CONNECT)/.installed: $(STAMP)
	rm -rf $(CONNECT)
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt --target $(CONNECT) \
		googleapis-common-protos grpcio grpcio-status pandas zstandard
	@touch $@

test-spark: setup $(CONNECT)/.installed
	$(BIN)/python -m pytest -m spark tests/spark

test-wheel: $(STAMP)
	$(BIN)/python -m pytest tests/test_wheel.py

test-oldest-dependencies: setup
	UV=$(BIN)/uv PYTHON=$(PYTHON) tools/oldest-dependencies

test-oldest-spark:
	PYTHON=$(PYTHON) tools/oldest-spark

docs: $(SERVER)
	@$(INSTALL) -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict  # a notice about the next version of MkDocs

bench: setup
	$(BIN)/python -m bench $(ARGS)

crash: setup
	PYTHONPATH=tests $(BIN)/python -m support.crash --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED))

simulate: $(STAMP)
	EMBERMQ_PURE=1 PYTHONHASHSEED=0 PYTHONPATH=tests $(BIN)/python -m simulation $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(ARGS)

power-cut: setup
	PYTHONPATH=tests $(BIN)/python -m powercut --images $(IMAGES) $(if $(SEED),--seed $(SEED)) $(ARGS)

fuzz: $(STAMP)
	@$(INSTALL) atheris
	export EMBERMQ_PURE=1 PYTHONPATH=tests; for target in $(or $(TARGET),`$(BIN)/python -m fuzzing`); do \
		$(BIN)/python -m fuzzing $$target --seconds $(SECONDS) || exit 1; done

conformance: setup
	PYTHONPATH=tests $(BIN)/python -m support.conformance

clean:
	rm -rf $(VENV) build dist src/embermq/_compiled .mypy_cache .ruff_cache .pytest_cache
