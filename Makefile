# Two commands do everything on a machine with python3 and make:
#   make demo    sets up, trains three small models on built-in data, writes a page with their figures and samples
#   make test    sets up, runs lint, types, import contract and all tests
export PIP_CONSTRAINT := constraints/dev.txt
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test conformance campaign mutants bench bench-families bench-peers bench-few-steps peers table pictures \
  lint clean
setup: .venv/.ready

.venv/.ready: pyproject.toml constraints/dev.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

demo: setup
	rm -rf out/demo
	$(BIN)/python -m unnoise.cli demo --out out/demo

lint: setup
	$(BIN)/ruff check src tests benchmarks docs/pictures.py docs/examples
	$(BIN)/ruff format --check src tests benchmarks docs/pictures.py docs/examples
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

test: lint
	$(BIN)/pytest -n auto -m 'not conformance and not campaign'

conformance: setup
	$(BIN)/pytest -n auto --dist worksteal -m conformance

campaign: setup
	$(BIN)/pytest -n auto --dist worksteal -m campaign

mutants: setup
	$(BIN)/python benchmarks/mutants.py

bench: setup
	$(BIN)/unnoise bench

bench-families: setup
	$(BIN)/python benchmarks/families.py --out out

.venv-peers/.ready: pyproject.toml constraints/dev.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/pip install --quiet --editable '.[train,plot]' diffusers flow_matching torchdiffeq scipy mpmath einops pot jaxtyping
	.venv-peers/bin/pip install --quiet --no-deps azula bionemo-moco torchcfm k-diffusion
	touch $@

bench-peers: .venv-peers/.ready
	.venv-peers/bin/python -W ignore -m unnoise.cli bench
	.venv-peers/bin/python benchmarks/flow_likelihood.py

bench-few-steps: .venv-peers/.ready
	.venv-peers/bin/python -W ignore benchmarks/peers/few_steps.py

# Projects that are no packages are read from clones of theirs: make peers CHECKOUTS=folder
CHECKOUTS ?= .venv-peers/src
PEERS := schedules masking_schedules solver_runs gaussian_steps number_losses category_losses category_steps \
  category_families jump_rates
peers: .venv-peers/.ready
	cd benchmarks && for script in $(PEERS); do \
	  ../.venv-peers/bin/python -W ignore -m peers.$$script --checkouts $(abspath $(CHECKOUTS)) || exit 1; done

# Every way to model a text in one table: make table TEXT="TRAIN VALID" [ROW=masking]
table: setup
	$(BIN)/python benchmarks/method_table.py $(TEXT) --out out/table $(if $(ROW),--row "$(ROW)")

pictures: setup
	$(BIN)/python docs/pictures.py

clean:
	rm -rf .venv .venv-peers out
