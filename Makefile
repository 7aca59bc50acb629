# `make run` and `make test` do all the set-up that they need: Python 3.11+, make and a package registry are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What Treadle needs to run, what its tests need too, and all that is needed to work on it. `scripts/make_venv.py` makes
# these files, and only they are looked at afterwards: a second call starts at once.
READY_RUN := $(VENV)/.ready-run
READY_TEST := $(VENV)/.ready-test
READY := $(VENV)/.ready-dev
# An environment that was moved here, or whose Python is gone, is made anew.
PLACE := $(shell test -x '$(BIN)/python' && cat '$(VENV)/.place' 2>/dev/null)
ifneq ($(PLACE),$(CURDIR))
$(READY_RUN) $(READY_TEST) $(READY): elsewhere
endif
# Half of the suite waits for processes, so more workers than cores pay. `worksteal` gives each a run of neighbours, which
# share the servers of their module; `loadgroup` looks at all that is done after every test, which is seconds of each minute.
WORKERS ?= 4
# Every worker reads every test file. What pytest makes of them is kept between runs, also where the environment says that
# Python shall keep nothing: that is a minute of work for each run.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: elsewhere help venv run test again remote wires lint style mypy pyright layers format generate docs pictures interop \
	bench release clean

help: ## show this list
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/^([a-z]+):[^#]*## */  make \1\t/' | expand -t 18

venv: $(READY) ## make the virtual environment in .venv

$(VENV)/.ready-%: pyproject.toml scripts/make_venv.py
	@command -v "$(PYTHON)" >/dev/null || { echo "$(PYTHON) was not found: install Python 3.11 or newer," \
		"or name it: make PYTHON=/path/to/python3 $(MAKECMDGOALS)" >&2; exit 1; }
	@"$(PYTHON)" scripts/make_venv.py "$(VENV)" $*

run: $(READY_RUN) ## run a turn on the offline model and show what happens
	@$(BIN)/python scripts/run_demo.py

test: $(READY_TEST) ## run the test suite without the real peer programs, or some of it: TESTS=tests/unit/cli
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not interop" $(TESTS)

# What asks a model through an agent, or confines what it runs. The rest does not know which wire API was chosen, nor whether
# bubblewrap is there, and has been run by `make test`: among it all that drives a scripted server or a scripted engine, an
# MCP server without an agent, an exec-server (where it confines, the mechanism is named by the test), the listeners of the
# app-server, or what is stored.
AGAIN_UNIT := $(addprefix tests/unit/,agent client execution server tools test_docs.py)
AGAIN_TESTS = $(AGAIN_UNIT) tests/system \
	$(addprefix tests/contract/,test_environment.py test_files.py test_host_runtimes.py) \
	$(wildcard tests/contract/test_client_*.py tests/contract/test_compat_*.py)
AGAIN_WITHOUT := $(wildcard tests/system/test_cli_run*.py tests/system/test_store_*.py tests/system/test_exec_*.py) \
	$(addprefix tests/system/test_,added_item_type.py added_method.py audit_log.py bounded_memory.py cli_login.py \
		cli_models.py cli_threads.py command_sessions.py executors.py fuzz.py helper.py html_in_browser.py leaves_nothing.py \
		listener_access.py pictures.py recovery.py server_metrics.py setup_docs.py shell_completion.py tls_programs.py \
		web_pages.py wheel.py worktrees.py) \
	$(addprefix tests/system/test_wire_,errors.py flow.py handshake.py input.py processes.py program.py) \
	$(addprefix tests/system/app/test_,app_absent_features.py app_broken_home.py app_damaged.py app_dialect.py \
		app_full_disk.py app_search.py app_thread_list.py app_trace.py app_two_servers.py app_websocket.py unread_log.py) \
	$(addprefix tests/system/client/test_sdk_,cancel.py children.py config.py death.py sockets.py strange.py) \
	$(addprefix tests/system/host/test_,engine_tools.py host_soak.py memory_processes.py two_hosts.py) \
	$(addprefix tests/system/mcp/test_mcp_,descriptors.py doctor.py hostile.py http.py oauth.py stdio.py streams.py) \
	$(addprefix tests/system/methods/test_app_,methods_files.py search_sessions.py) \
	tests/system/environments tests/system/runners

again: $(READY_TEST) ## run what depends on the wire API (TREADLE_WIRE_API) or on bubblewrap
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not interop" $(addprefix --ignore=,$(AGAIN_WITHOUT)) $(AGAIN_TESTS)

# The agent's own tests with the threads on another machine: an exec-server of each worker. What is about this machine, its
# disk and its home, is left out by a marker. Where a thread works is nothing to the wire API, so one is enough.
REMOTE_TESTS := $(filter-out %_undo.py %_roots.py,$(wildcard tests/system/agent/test_agent_*.py))

remote: $(READY_TEST) ## run the tests of the agent with its threads on an exec-server
	@TREADLE_TEST_ENVIRONMENT=remote TREADLE_WIRE_API=responses $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(REMOTE_TESTS)

WIRE_TESTS := tests/unit/agent tests/system/agent tests/system/app tests/system/client \
	$(wildcard tests/contract/test_client_*.py tests/contract/test_compat_*.py tests/system/test_cli_exec*.py)

wires: $(READY_TEST) ## run the tests of the agent on each of the three wire APIs
	@for wire in responses chat anthropic; do \
		echo "wire API: $$wire"; \
		TREADLE_WIRE_API=$$wire $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(WIRE_TESTS) || exit 1; \
	done

lint: style mypy pyright layers ## ruff, format check, mypy strict, pyright on the public types, import layers

style: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

mypy: $(READY)
	@$(BIN)/mypy

pyright: $(READY)
	@$(BIN)/python scripts/check_types.py

layers: $(READY)
	@$(BIN)/lint-imports

format: $(READY_TEST) ## format the code and fix what can be fixed
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

generate: $(READY_TEST) ## write the generated parts of the SDK and of the docs anew
	@$(BIN)/python scripts/make_internal_names.py
	@$(BIN)/python -m scripts.make_calls
	@$(BIN)/python -m scripts.make_sync
	@$(BIN)/python -m scripts.make_types
	@$(BIN)/python -m scripts.make_reference
	@$(BIN)/python -m scripts.make_configuration
	@$(BIN)/python -m scripts.make_command_line
	@$(BIN)/python -m scripts.make_architecture
	@$(BIN)/python -m scripts.make_readme

docs: $(READY) ## build the documentation into site/; a broken link is an error
	@$(BIN)/python scripts/make_site.py

pictures: $(READY_TEST) ## make the pictures of the terminal in docs/pictures anew, where what they say has changed
	@$(BIN)/python -m scripts.make_pictures

interop: $(READY_TEST) ## tests with the real codex, its clients, claude, opencode and pi (in a cache folder); writes their tables
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m interop tests/interop
	@$(BIN)/python -m scripts.make_readme

bench: $(READY_TEST) ## compare with the real codex; writes the tables of docs/performance.md and the README
	@$(BIN)/python -m bench --page
	@$(BIN)/python -m bench app-server --page
	@$(BIN)/python -m bench environments --page
	@$(BIN)/python -m bench mcp
	@$(BIN)/python -m bench sdk --page
	@$(BIN)/python -m bench models
	@$(BIN)/python -m bench runners
	@$(BIN)/python -m bench search
	@$(BIN)/python -m scripts.make_readme

release: $(READY_TEST) ## build what is published into dist, or say what is missing for it
	@$(BIN)/python -m scripts.make_release

clean: ## remove the virtual environment, the demo of `make run`, what was built, and caches
	rm -rf "$(VENV)" .venv-newest .demo build dist site .cache .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
