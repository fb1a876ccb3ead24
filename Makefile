# make run    set up and start the server, with the pipeline on local Spark beside it
# make test   set up and run every check: ruff, mypy --strict, pytest in WORKERS=4 processes
# make setup  install everything into .venv, and compile the hot modules where a C compiler is; EMBERMQ_PURE=1: do not
# make wheel  build a source distribution, and from it a wheel for this platform, into dist
# make test-spark  all tests of the pipeline; make test leaves out those that are marked as long
# make test-oldest-spark  the tests of the pipeline with the oldest Spark that is supported, in an environment of their own
# make test-page  all tests of the page in a browser; make screenshots writes the pictures of README and docs
# make bench  measure beside Mosquitto
# make crash  kill a server under load, ROUNDS=500 times; SEED=n repeats a run
# make conformance  write docs/conformance.md from the marks on the tests
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# What clients of Spark Connect need, pandas for one: nothing else may be tested with it.
CONNECT := $(VENV)/connect

ROUNDS ?= 500
# Test processes: more than the cores of a small machine, since many tests wait for a deadline or a server's start.
WORKERS ?= 4

# What the compiled modules are made from. `embermq.compiled` leaves them unused when one of these has changed.
COMPILED := src/embermq/_compiled/manifest.json
HOT      := setup.py $(shell find src/embermq/protocol src/embermq/broker src/embermq/store src/embermq/transport -name '*.py') src/embermq/http/messages_json.py

# Tests start some hundred servers. One that may not keep its bytecode compiles all it imports again, 2 s each time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test test-page-and-sources test-pipeline test-spark test-oldest-spark test-page screenshots setup compile wheel bench crash lint conformance clean

setup: $(STAMP) compile

$(STAMP): pyproject.toml constraints.txt
	@echo "setting up $(VENV): once, several minutes (Spark alone is more than 400 MB)"
	$(PYTHON) -m venv $(VENV)
	EMBERMQ_PURE=1 $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e '.[dev,spark,sql]'
	tools/java
	tools/mosquitto
	tools/chromium
	@touch $@

ifdef EMBERMQ_PURE
compile: $(STAMP)
	rm -rf src/embermq/_compiled
else
compile: $(COMPILED)
endif

# Not by pip, which would begin again with every C file.
$(COMPILED): $(STAMP) $(HOT)
	@echo "compiling the hot modules: two minutes at first, then what has changed"
	$(BIN)/python setup.py --quiet build_ext --inplace

wheel: $(STAMP)
	$(BIN)/python -m build

run: setup
	$(BIN)/ember up $(ARGS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Everything in the form that `make setup` has made, and the packages that are compiled once more as sources.
# The page's tests start a browser for each module, so a module stays in one process.
# The pipeline's tests share one Spark session, so they run in one process, beside those of the page and the sources.
test: lint
	$(BIN)/python -m pytest -m 'not spark and not long' --ignore tests/page -n $(WORKERS) --dist worksteal
	@$(MAKE) --no-print-directory --jobs 2 --output-sync test-page-and-sources test-pipeline

test-page-and-sources:
	$(BIN)/python -m pytest -m 'not long' tests/page -n 2 --dist loadfile
	EMBERMQ_PURE=1 $(BIN)/python -m pytest tests/protocol tests/broker tests/store -n 2 --dist worksteal

test-pipeline:
	$(BIN)/python -m pytest -m 'spark and not long' tests/spark

test-page: setup
	$(BIN)/python -m pytest tests/page

screenshots: setup
	EMBERMQ_SCREENSHOTS=1 $(BIN)/python -m pytest tests/page/test_screenshots.py

$(CONNECT)/.installed: $(STAMP)
	rm -rf $(CONNECT)
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt --target $(CONNECT) \
		googleapis-common-protos grpcio grpcio-status pandas zstandard
	@touch $@

test-spark: setup $(CONNECT)/.installed
	$(BIN)/python -m pytest -m spark tests/spark

test-oldest-spark:
	PYTHON=$(PYTHON) tools/oldest-spark

bench: setup
	$(BIN)/python -m bench $(ARGS)

crash: setup
	PYTHONPATH=tests $(BIN)/python -m support.crash --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED))

conformance: setup
	PYTHONPATH=tests $(BIN)/python -m support.conformance

clean:
	rm -rf $(VENV) build dist src/embermq/_compiled .mypy_cache .ruff_cache .pytest_cache
