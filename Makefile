# Two commands do all of the set-up: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-fast test-all versions reproduce-quick lint types unit wheel clean

demo: .venv/installed
	$(BIN)/unfade demo
	$(BIN)/unfade demo --toy

test: .venv/installed lint types unit wheel

# The tests of everything that fits and draws nothing long: under a minute.
test-fast: .venv/installed lint
	$(BIN)/python -m pytest -n 2 -m 'not slow' tests/test_architecture.py tests/test_words.py tests/test_observations.py \
	  tests/test_text*.py tests/test_csvtext.py tests/test_corruption.py tests/test_randomness.py tests/test_draws.py \
	  tests/test_drawing.py tests/test_linear.py tests/test_storage.py tests/test_options.py tests/test_support.py tests/test_watching.py

test-all: test versions
	$(BIN)/python -m pytest -m slow tests

# The oldest versions of what unfade is built on; the newest are those of constraints.txt, which `make test` runs on.
versions: .venv/installed
	$(PYTHON) -m venv build/oldest
	build/oldest/bin/python -m pip install --quiet -r tests/oldest.txt
	build/oldest/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	build/oldest/bin/python -m pytest -n 2 tests --ignore tests/test_app.py --ignore tests/test_engines.py \
	  --ignore tests/test_examples.py

# Every experiment of the paper in its smallest form; DATA is a folder with the data sets, fetched where it is empty.
DATA ?= build/data
reproduce-quick: .venv/installed
	for name in $$($(BIN)/unfade reproduce list | cut -d" " -f1); do \
	  $(BIN)/unfade reproduce $$name --quick --data-dir $(DATA) -o build/reproduce/$$name || exit 1; done

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed
	$(BIN)/mypy

unit: .venv/installed
	$(BIN)/python -m pytest -n 2

# The built wheel, installed elsewhere, is what a user gets: it is tested once as such.
wheel: .venv/installed
	rm -rf build/wheel && $(BIN)/python -m build --wheel --no-isolation --outdir build/wheel .
	$(BIN)/python tests/check_wheel.py build/wheel

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt pip hatchling editables
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache
