# The inner loop of development. Every target uses the tools of .venv, which the test command of README.md makes.
# `make` prints the list.

BIN := .venv/bin
TESTS := tests
TIER := daemon

.DEFAULT_GOAL := help
.PHONY: help test tier check format docs compiled

help:  ## print this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 12

test:  ## run the quick tests of a folder or file: make test TESTS=tests/protocol
	$(BIN)/pytest $(TESTS)

tier:  ## run the tests of one tier: make tier TIER=crash (tests/conftest.py lists the tiers)
	$(BIN)/pytest -m $(TIER) $(TESTS)

check:  ## check style, format and types, as CI does
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict

format:  ## format the code, and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs:  ## build the site of the documents, and fail at a broken link
	$(BIN)/mkdocs build --strict

compiled:  ## build the compiled modules again, after a change in protocol/compiled
	$(BIN)/python setup.py build_ext --inplace
