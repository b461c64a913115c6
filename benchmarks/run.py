"""`make bench`: every figure of docs/explanation/performance.md, peers side by side in one run."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import version

import answer
import audit
import calls
import flowmcp
import gateway
import hooks
import imports
import load
import openapi
import protocol
import reader
import schemas
import search
import serving
import workers

PARTS = {
    "calls": calls.main,
    "protocol": protocol.main,
    "flowmcp": flowmcp.main,
    "hooks": hooks.main,
    "schemas": schemas.main,
    "search": search.main,
    "audit": audit.main,
    "serving": serving.main,
    "load": load.main,
    "workers": workers.main,
    "gateway": gateway.main,
    "openapi": openapi.main,
    "reader": reader.main,
    "answer": answer.main,
    "imports": imports.main,
}


def main(names: list[str]) -> None:
    packages = ("callpact", "jsonschema-rs", "msgspec", "orjson", "mcp", "fastmcp")
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} cores; load {os.getloadavg()[0]:.1f}"
    )
    print(", ".join(f"{name} {version(name)}" for name in packages))
    for name in names or list(PARTS):
        PARTS[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
