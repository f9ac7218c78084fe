# Everything a machine needs lands in .venv and .binlake; `make clean` removes both.
PYTHON := .venv/bin/python
SETUP := docker/local/setup.sh
ROOMS := tests/unit/test_rooms.py

.PHONY: help setup setup-tests demo ui sql test quick lint platforms bench bench-peers soak images lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## what this machine needs: .venv with binlake in .venv/bin, Java, MariaDB, MySQL, Spark's jars
	@$(SETUP)

setup-tests: ## what make test needs: more servers, their own test suites, a browser and other readers of tables
	@$(SETUP) tests

demo: ## a private server with a shop, bootstrapped, changed, synced, proved equal (SERVER=mariadb)
	@$(SETUP) demo
	@$(PYTHON) docker/local/demo.py $(SERVER)

ui: ## Airflow's UI on what the last demo left
	@$(SETUP) demo
	@$(PYTHON) docker/local/ui.py

sql: ## a client on the server that make ui runs: what is written there is in the lake after the next sync
	@$(PYTHON) docker/local/sql.py

# Two of them leave a third of two cores unused: they wait for servers.
WORKERS ?= 3
test: setup-tests ## all tests, three side by side (WORKERS=2), quick ones first (SERVERS="mysql mariadb mariadb-11.4 mariadb-11.8": on these alone)
	$(PYTHON) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

quick: lint ## in minutes: lint, the tests that need neither server nor Spark, and a sync without Spark on each server
	@$(SETUP)
	$(PYTHON) -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder --quick --ignore $(ROOMS)

platforms: ## the wheel, a demo with merges by Spark and without, and the page on other releases of Python, Airflow, Spark and Java (ROWS="airflow-3.2 python-3.13")
	@$(SETUP) demo
	@$(SETUP) browser
	@$(PYTHON) docker/local/platforms.py $(ROWS)

lint: ## ruff, its formatter, mypy, and which folder may import which
	@$(SETUP) python
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/mypy docker/local tests/support tests/unit
	$(PYTHON) -m pytest -q $(ROOMS)

bench: ## rows and mutations per second: the decoder alone, then the whole on a table of a million rows, TPC-H's tables, and the page
	@$(SETUP) bench
	$(PYTHON) docker/local/bench_decoder.py
	$(PYTHON) docker/local/bench.py
	$(PYTHON) docker/local/bench_tpch.py
	$(PYTHON) docker/local/bench_many_tables.py
	$(PYTHON) docker/local/bench_follow.py
	$(PYTHON) docker/local/bench_follow.py 60 1000 50 1 30000
	$(PYTHON) docker/local/bench_feeds.py
	$(PYTHON) docker/local/bench_modes.py
	$(PYTHON) docker/local/bench_iceberg.py
	$(PYTHON) docker/local/bench_masks.py
	$(PYTHON) docker/local/bench_shards.py
	$(PYTHON) docker/local/bench_shards.py 640000
	$(PYTHON) docker/local/bench_page.py

bench-peers: ## the decoder beside go-mysql, mysql-binlog-connector-java and Debezium; all beside Flink CDC (wants go and mvn)
	@$(SETUP)
	$(PYTHON) docker/local/bench_decoder.py peers
	$(PYTHON) docker/local/bench_flink.py

soak: ## long (MINUTES=10 a server): kills and restarts at random, 200 random operations on each server and its lake, a transaction of 3 GB, 5 GB of backlog, 1,000 syncs, two hours followed, a day of batches on a moved clock, pinned versions, histories and row filters of 100,000 events, 40,000 random ALTERs, 100,000 statements of strangers, every cut of every case, damaged logs, strangers, images, other platforms, all tests on MariaDB 11.4 and 11.8
	@SERVERS="mariadb-11.4 mariadb-11.8" $(SETUP) tests
	$(PYTHON) tests/soak/random_statements.py both $(or $(MINUTES),10)
	set -e; for server in mysql mariadb mariadb-11.8; do $(PYTHON) tests/soak/random_operations.py $$server 200; done
	$(PYTHON) tests/soak/big_transaction.py mysql 3
	$(PYTHON) tests/soak/backlog.py mysql 5
	$(PYTHON) tests/soak/many_syncs.py mysql 1000 120 .binlake
	$(PYTHON) tests/soak/following.py 120
	$(PYTHON) tests/soak/weeks.py --batches 20000 --minutes 60
	$(PYTHON) tests/soak/pinned_versions.py mysql 200
	$(PYTHON) tests/soak/random_history.py mysql 100000
	$(PYTHON) tests/soak/random_history.py mariadb 20000
	$(PYTHON) tests/soak/random_rows.py mysql 100000
	$(PYTHON) tests/soak/random_rows.py mariadb 20000
	$(PYTHON) tests/soak/random_shapes.py mysql 20000
	$(PYTHON) tests/soak/random_shapes.py mariadb 20000
	$(PYTHON) tests/soak/strangers_statements.py 100000
	$(PYTHON) tests/soak/random_iceberg.py --changes 20000
	$(PYTHON) tests/soak/random_iceberg.py --changes 0 --shapes 2000 --seed 1000
	$(PYTHON) tests/soak/random_merged_iceberg.py --changes 3000
	@$(SETUP) iceberg iceberg_rest
	$(PYTHON) tests/soak/iceberg_by_spark.py
	$(PYTHON) tests/soak/iceberg_rest.py
	$(PYTHON) tests/soak/iceberg_rest.py --merged
	$(PYTHON) tests/soak/iceberg_rest.py --s3 --changes 240
	$(PYTHON) tests/soak/iceberg_rest.py --s3 --merged --changes 240
	BINLAKE_SOAK=1 $(PYTHON) -m pytest -m soak
	$(PYTHON) tests/binlogs/fuzz.py --minutes $(or $(MINUTES),10)
	$(PYTHON) tests/strangers/run.py both $(or $(MINUTES),10)
	BINLAKE_CUT_OFF=1 BINLAKE_WALK_STATEMENTS=2000 BINLAKE_WALK_SECONDS=60 BINLAKE_WALK_READS=100 $(PYTHON) -m pytest -n 2 --dist loadfile --no-loadscope-reorder --timeout 5400 -rP \
	  tests/integration/test_cases.py tests/integration/test_random_walk.py tests/integration/test_random_copies.py
	set -e; for server in mariadb-11.4 mariadb-11.8; do export SERVERS=$$server; \
	  $(PYTHON) -m pytest -n 2 --dist loadfile --no-loadscope-reorder; \
	  $(PYTHON) tests/soak/random_statements.py mariadb $(or $(MINUTES),10); \
	  $(PYTHON) tests/strangers/run.py mariadb $(or $(MINUTES),10); done
	$(MAKE) images
	$(MAKE) platforms

images: ## each step of docker/Dockerfile in a fresh root, each service's health check (as root; wants debootstrap)
	@$(SETUP) python
	$(PYTHON) tests/soak/images.py

# What moto needs beside what binlake's own lock has; boto3 goes with its botocore.
MOTO := moto==5.2.5 boto3==1.44.8 s3transfer responses xmltodict werkzeug flask flask-cors blinker
lock: ## make docker/requirements.lock again from pyproject.toml, the tests' chDB and moto, and what makes TPC-H's rows; asks for wheels
	@$(SETUP) python
	.venv/bin/uv pip compile pyproject.toml --all-extras --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-header -q -o docker/requirements.lock
	echo chdb-core==26.9.0 | .venv/bin/uv pip compile - --no-deps --python-version 3.11 --generate-hashes \
	  --no-annotate --no-emit-index-url --no-header -q -o docker/local/chdb.lock
	echo duckdb-extension-tpch==1.5.5 | .venv/bin/uv pip compile - --no-deps --python-version 3.11 --generate-hashes \
	  --no-annotate --no-emit-index-url --no-header -q -o docker/local/tpch.lock
	printf '%s\n' $(MOTO) | .venv/bin/uv pip compile - --no-deps --python-version 3.11 --generate-hashes \
	  --no-annotate --no-emit-index-url --no-header -q -o docker/local/moto.lock
	$(PYTHON) docker/local/wheels.py

clean: ## removes .venv, .binlake (with the demo's lake) and all caches
	rm -rf .venv .binlake .pytest_cache .mypy_cache .ruff_cache .hypothesis lake metastore_db spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
