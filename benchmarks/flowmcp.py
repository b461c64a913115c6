"""Guards: a FlowMCP catalogue is loaded in half the time of the reference, and a call stays cheap.

Loading is measured in fresh processes, on the catalogue that `CALLPACT_CATALOGUE` names (and
`CALLPACT_LISTS`, if its shared lists stand elsewhere), and against the JavaScript reference in the
same run if `CALLPACT_REFERENCE` names a checkout of flowmcp-core. A call goes through a transport
that is none, so that only our own work is measured, against the floor of `calls.py`.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from pathlib import Path

from callpact import Runtime, from_flowmcp
from callpact.net import Response
from callpact.testing import StubTransport
from calls import floor
from measure import cpu, drive, table
from processes import fresh, median, node

ROUNDS = 5

_FRESH = """
import json, resource, sys, time
path, lists, cache = sys.argv[1:]
begun = time.process_time()
from pathlib import Path
from callpact.sources.flowmcp.build.source import from_flowmcp
from callpact.testing import StubTransport
imported = time.process_time()
tools = from_flowmcp(
    path, lists=lists or None, libraries=["*"], secrets={}, transport=StubTransport(None),
    cache=Path(cache) if cache else None,
)
loaded = time.process_time()
print(json.dumps({
    "import": imported - begun,
    "load": loaded - imported,
    "tools": len(tools),
    "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024),
}))
"""
_PARTS = """
import json, sys, time
from pathlib import Path
from callpact.sources.flowmcp.read.catalogue_files import read_text
from callpact.sources.flowmcp.check.file_check import check_text, read_list
from callpact.sources.flowmcp.read.literal import read_exports
path, lists, _ = sys.argv[1:]
files = [file for file in sorted(Path(path).rglob("*.mjs")) if file.parent.name not in ("_lists", "_shared")]
folders = [Path(lists)] if lists else [*Path(path).rglob("_lists"), *Path(path).rglob("_shared")]
held = (read_list(file.read_text("utf-8"), str(file)).list for folder in folders for file in folder.glob("*.mjs"))
known = {found.name: found for found in held if found is not None}
begun = time.process_time()
texts = [read_text(file) for file in files]
opened = time.process_time()
for text in texts:
    try:
        read_exports(text)
    except Exception:
        pass
read = time.process_time()
for file, text in zip(files, texts):
    check_text(text, file=str(file), lists=known, libraries=["*"])
checked = time.process_time()
print(json.dumps({"files": len(files), "open": opened - begun, "read": read - opened, "check": checked - read}))
"""
# What the reference does with a file before its tools can be called.
_REFERENCE = """
import { readdirSync } from 'node:fs'
import { join, sep } from 'node:path'
import { pathToFileURL } from 'node:url'
const [ , root, checkout ] = process.argv
const task = async ( name ) => ( await import( pathToFileURL( join( checkout, 'src', 'v4', 'task', `${name}.mjs` ) ) ) )[ name ]
const scanner = await task( 'SecurityScanner' )
const loader = await task( 'SchemaLoader' )
const validator = await task( 'MainValidator' )
const builder = await task( 'ZodBuilder' )
const skipped = [ '_lists', '_shared', 'node_modules', 'tests' ]
const files = readdirSync( root, { recursive: true } )
    .filter( ( name ) => name.endsWith( '.mjs' ) && !name.split( sep ).some( ( part ) => skipped.includes( part ) ) )
    .map( ( name ) => join( root, name ) )
const begun = process.cpuUsage()
let tools = 0
for( const filePath of files ) {
    try {
        await scanner.scan( { filePath } )
        const { main } = await loader.load( { filePath } )
        validator.validate( { main } )
        for( const route of Object.values( main.tools || main.routes || {} ) ) {
            try { builder.getZodSchema( { route } ); tools += 1 } catch {}
        }
    } catch {}
}
const { user, system } = process.cpuUsage( begun )
console.log( JSON.stringify( { load: ( user + system ) / 1e6, files: files.length, tools } ) )
"""
_NODE = """
import { readdirSync } from 'node:fs'
const files = readdirSync( process.argv[ 1 ], { recursive: true } ).filter( ( name ) => name.endsWith( '.mjs' ) )
const begun = process.cpuUsage()
let count = 0
for( const name of files ) {
    const { main } = await import( `file://${process.argv[ 1 ]}/${name}` ).catch( () => ( {} ) )
    if( main ) { count += JSON.stringify( main ).length > 0 ? 1 : 0 }
}
const { user, system } = process.cpuUsage( begun )
console.log( JSON.stringify( { cpu: ( user + system ) / 1e6, count } ) )
"""
SCHEMA = {
    "namespace": "bench",
    "name": "Bench",
    "description": "One tool to be called.",
    "version": "4.0.0",
    "schemaVersion": "1.0.0",
    "root": "https://api.example.com",
    "headers": {"Accept": "application/json"},
    "tools": {
        "echo": {
            "method": "GET",
            "path": "/echo/{{n}}",
            "description": "Echo.",
            "parameters": [
                {
                    "position": {"key": "n", "value": "{{USER_PARAM}}", "location": "insert"},
                    "z": {"primitive": "number()", "options": ["min(0)", "max(1000)"]},
                },
                {
                    "position": {"key": "text", "value": "{{USER_PARAM}}", "location": "query"},
                    "z": {"primitive": "string()", "options": ["min(1)", "max(200)"]},
                },
                {
                    "position": {"key": "format", "value": "json", "location": "query"},
                    "z": {"primitive": "string()", "options": []},
                },
            ],
            "output": {
                "mimeType": "application/json",
                "schema": {
                    "type": "object",
                    "properties": {"text": {"type": "string"}, "n": {"type": "number"}},
                },
            },
            "tests": [{"_description": "Once", "n": 7, "text": "hello world"}],
        }
    },
}
KEYED = {
    **SCHEMA,
    "namespace": "keyed",
    "requiredServerParams": ["BENCH_KEY"],
    "headers": {"Accept": "application/json", "X-Key": "{{SERVER_PARAM:BENCH_KEY}}"},
}


def main() -> None:
    """All of them."""
    calling()
    loading()


def calling() -> None:
    """One call against the floor; the answer is 26 bytes of JSON, as the floor's is."""
    answer = Response(200, {"content-type": "application/json"}, b'{"text":"hello world","n":7}')
    transport = StubTransport(lambda _: answer)
    with tempfile.TemporaryDirectory() as folder:
        for name, data in {"Bench": SCHEMA, "Keyed": KEYED}.items():
            text = f"export const main = {json.dumps(data)}"
            Path(folder, f"{name}.mjs").write_text(text, "utf-8")
        secrets = {"BENCH_KEY": "a-key-of-some-length"}
        tools = from_flowmcp(folder, secrets=secrets, transport=transport)
    events: list = []
    runtime = Runtime(tools, observers=[events.append])
    arguments = {"n": 7, "text": "hello world"}
    bare = floor()

    def execute(name):
        def once():
            drive(runtime.execute(name, arguments))
            if len(events) > 1000:
                events.clear()
                transport.requests.clear()

        return once

    taken = cpu(
        {
            "floor": lambda: drive(bare()),
            "plain": execute("bench.echo"),
            "keyed": execute("keyed.echo"),
        }
    )
    base = taken["floor"]
    table(
        "One call of a FlowMCP tool through a stub transport, against the floor",
        [
            ("floor", base, 1.0, ""),
            ("Runtime.execute, FlowMCP tool", taken["plain"], taken["plain"] / base, "≤ 6"),
            ("… with a secret, masked in the answer", taken["keyed"], taken["keyed"] / base, ""),
        ],
    )


def loading() -> None:
    """A whole catalogue, cold and warm, in fresh processes."""
    path, lists = os.environ.get("CALLPACT_CATALOGUE"), os.environ.get("CALLPACT_LISTS", "")
    if not path:
        print("\nLoading a catalogue is skipped: CALLPACT_CATALOGUE names none.")
        return
    reference = os.environ.get("CALLPACT_REFERENCE")
    theirs: list[dict] = []
    with tempfile.TemporaryDirectory() as cache:
        fresh(_FRESH, path, lists, cache)  # The warm runs find it filled.
        cold: list[dict] = []
        for _ in range(ROUNDS):  # In turn, so that a noisy moment hits both.
            cold.append(fresh(_FRESH, path, lists, ""))
            theirs += _asked_reference(path, reference)
        warm = [fresh(_FRESH, path, lists, cache) for _ in range(ROUNDS)]
    parts = [fresh(_PARTS, path, lists, "") for _ in range(ROUNDS)]
    imported = [found["cpu"] for _ in range(ROUNDS) if (found := _asked_node(path))]
    base = median(cold, "load")
    rows = [
        ("load, cold (all of it)", base, 1.0, ""),
        ("… of it: open the files", median(parts, "open"), median(parts, "open") / base, ""),
        ("… of it: read `main`", median(parts, "read"), median(parts, "read") / base, ""),
        ("… of it: read again and check", median(parts, "check"), median(parts, "check") / base, ""),
        ("load, warm", median(warm, "load"), median(warm, "load") / base, "≤ 0.2"),
        ("imports before it", median(cold, "import"), median(cold, "import") / base, ""),
    ]  # fmt: skip
    if imported:
        taken = statistics.median(imported)
        rows.append(("Node imports the files, nothing is checked", taken, taken / base, ""))
    table(
        f"{parts[0]['files']} FlowMCP files, {cold[0]['tools']:,} tools, in fresh processes", rows
    )
    memory = median(cold, "memory") / 1e6
    print(f"\nPeak memory of such a process: {memory:.0f} MB (target: < 200 MB)")
    if theirs:
        compare(cold, theirs)
    else:
        why = "Node cannot run it" if reference else "CALLPACT_REFERENCE names no checkout"
        print(f"\nThe comparison with the JavaScript reference is skipped: {why}.")


def compare(ours: list[dict], theirs: list[dict]) -> None:
    """A cold load of ours against what the reference does with the same files."""
    rows: list[tuple[str, float, float, str]] = []
    for name, where in (("load", "the load alone"), ("process", "the whole process")):
        base, taken = median(theirs, name), median(ours, name)
        rows += [
            (f"reference: scan, load, validate, Zod; {where}", base, 1.0, ""),
            (f"from_flowmcp, cold; {where}", taken, taken / base, "≤ 0.5 x reference"),
        ]
    files, tools = theirs[0]["files"], theirs[0]["tools"]
    table(f"The same against the JavaScript reference ({files} files, {tools:,} tools)", rows)


def _asked_node(path: str) -> dict | None:
    return node(_NODE, str(Path(path).resolve()))


def _asked_reference(path: str, checkout: str | None) -> list[dict]:
    if not checkout:
        return []
    found = node(_REFERENCE, str(Path(path).resolve()), str(Path(checkout).resolve()))
    return [] if found is None else [found]


if __name__ == "__main__":
    main()
