#!/usr/bin/env bash
# Pins every requirement by hash. No address of a package index is ever written.
set -eu
cd "$(dirname "$0")/.."
compile() { uv pip compile --quiet --generate-hashes --no-annotate --no-header --universal --python-version 3.11 "$@"; }
compile pyproject.toml -o requirements/core.txt
compile pyproject.toml requirements/run.in --extra all -c requirements/core.txt -o requirements/run.txt
compile requirements/run.txt requirements/test.in -o requirements/test.txt
compile pyproject.toml requirements/run.in requirements/bench.in --extra fast --extra hooks --extra mcp -o requirements/bench.txt
compile requirements/upstreams.in -o requirements/upstreams.txt
compile requirements/endpoints.in -o requirements/endpoints.txt
compile requirements/docs.in -o requirements/docs.txt
