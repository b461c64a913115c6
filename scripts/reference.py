"""Writes docs/reference/ from the code: codes, command line, configuration, limits, API, FlowMCP, MCP, lint.

Of call-protocol.md it fills the sections between marks; the rest of that page is written by hand.
With `--check` it writes nothing, and exits with 1 if a page is not what the code says.
"""

from __future__ import annotations

import inspect
import re
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer.main
from api_page import api, constant, sentences

from callpact import envelope, protocol
from callpact.cli.main import whole
from callpact.codes import CODES, OWN_CODE
from callpact.config_file import (
    AuditConfig,
    CallerConfig,
    Config,
    LimitsConfig,
    OAuthClientConfig,
    OAuthConfig,
    ServeConfig,
    SourceConfig,
    TokenConfig,
)
from callpact.contracts import LINT_RULES
from callpact.sources.curate_file import RulesConfig, ToolConfig
from callpact.sources.flowmcp.check.rule_table import RULES, CheckRule
from callpact.sources.mcp.text_scan import TEXT_RULES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pydantic import BaseModel

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "reference"
NOTE = "<!-- Written by scripts/reference.py; do not edit. -->\n\n"


def codes() -> str:
    """The table of codes, the one in codes.py."""
    lines = [
        "# Codes",
        "",
        (
            "One code for one kind of failure, the same in Python (`CallError.code`), over MCP and "
            "on the command line. *Event* is its name in the events of the call protocol, "
            "*FlowMCP* the one in `{status, messages, data}`, *exit* the exit code of "
            "`callpact call`."
        ),
        "",
        "| code | event | FlowMCP | HTTP | exit | meaning |",
        "| --- | --- | --- | ---: | ---: | --- |",
    ]
    for row in (*CODES.values(), OWN_CODE):
        name = row.code if row is OWN_CODE else f"`{row.code}`"
        lines.append(
            f"| {name} | {row.event} | {row.flowmcp} | {row.http} | {row.exit} | {row.meaning} |"
        )
    lines += [
        "",
        (
            "Wrong use of the command line, a source that cannot be read and a configuration that "
            "cannot be used end with exit code 2, and so does a standard output that cannot be "
            "written. A command whose reader leaves (`callpact list | head -1`) ends quietly with "
            "141, as a process that SIGPIPE ends. Streams that are closed from the start (`>&-`) "
            "are taken as `/dev/null`."
        ),
    ]
    return "\n".join(lines) + "\n"


FAMILIES = {
    "VAL": "`main`, its tools, parameters, output, lists; VAL080 to VAL099 and VAL120 upwards are ours.",
    "TST": "The tests of a tool.",
    "SEC": "What code may not do, and what is no data.",
    "LST": "Shared lists.",
    "CAT": "The registry of a catalogue.",
    "RES": "Resources.",
    "HSH": "What cannot be hashed.",
}
"""What the codes of a family are about, in the order of the page."""


def flowmcp_codes() -> str:
    """Every code that checking a FlowMCP file can give, by family."""
    lines = [
        "# FlowMCP codes",
        "",
        (
            "What `callpact check` and the load report say about FlowMCP files. An **error** means "
            "that the file cannot be loaded under that profile; a **warning** or an **info** "
            "leaves it as it is; *not told* means that the profile says nothing. `strict` is the "
            "letter of the specification, `compat` (the default) takes what real files do. "
            "*From* names the seed (000, 002) or the chapter of FlowMCP that has the rule; *own* "
            "rules are ours. What the profiles and the report are for: "
            "[bring your FlowMCP catalogue](../guides/flowmcp-catalogue.md)."
        ),
    ]
    for family, about in FAMILIES.items():
        lines += ["", f"## {family}", "", about, ""]
        lines += ["| code | strict | compat | what holds | what to do | from |"]
        lines += ["| --- | --- | --- | --- | --- | --- |"]
        lines += [_rule_row(rule) for rule in RULES.values() if rule.code.startswith(family)]
    return "\n".join(lines) + "\n"


def mcp_text_codes() -> str:
    """Every code that the scan of an MCP server's texts can give."""
    lines = [
        "# MCP text codes",
        "",
        (
            "What `callpact doctor` reports about the texts of an MCP server's definitions, found "
            "offline by fixed rules. An **error** makes the exit code 1; a **warning** wants to be "
            "read; an **info** is often harmless. What the scan is for: "
            "[put other MCP servers under contract](../guides/mcp-gateway.md#examine-servers)."
        ),
        "",
        "| code | severity | what was found | what to do |",
        "| --- | --- | --- | --- |",
    ]
    lines += [
        f"| `{rule.code}` | {rule.severity} | {rule.meaning} | {rule.remedy} |"
        for rule in TEXT_RULES.values()
    ]
    return "\n".join(lines) + "\n"


def lint_codes() -> str:
    """Every code that linting contracts can give."""
    lines = [
        "# Lint codes",
        "",
        (
            "What `callpact lint` reports about contracts, by the same rules for every source. An "
            "**error** is a contract that no call can keep; a **warning** is worth a change; an "
            "**info** is often deliberate, and shown with `--info`. *From* names the seed (004) "
            "that gives the advice; *own* rules are ours. How to use them: "
            "[lint contracts](../guides/lint-contracts.md)."
        ),
        "",
        "| code | severity | what was found | what to do | from |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| `{rule.code}` | {rule.severity} | {rule.meaning} | {rule.remedy} | {rule.source} |"
        for rule in LINT_RULES.values()
    ]
    return "\n".join(lines) + "\n"


def _rule_row(rule: CheckRule) -> str:
    part = rule.key.partition(":")[2]
    name = f"`{rule.code}`" + (f" ({part})" if part else "")
    severities = (rule.strict or "not told", rule.compat or "not told")
    cells = (name, *severities, rule.meaning, rule.remedy, rule.source)
    return f"| {' | '.join(cells)} |"


def command_line() -> str:
    """Every command with its arguments and options, as typer has them."""
    root: Any = typer.main.get_command(whole())
    lines = ["# Command line", "", root.help, ""]
    for name, command in root.commands.items():
        lines += _command(name, command)
        for part, below in getattr(command, "commands", {}).items():
            lines += _command(f"{name} {part}", below)
    return "\n".join(lines)


def _command(name: str, command: Any) -> Iterator[str]:
    yield from (f"## callpact {name}", "", inspect.cleandoc(command.help or ""), "")
    if command.epilog:
        examples = (f"$ {line}" for line in command.epilog.splitlines())
        yield from ("```console", *examples, "```", "")
    if not command.params:
        return
    yield from ("| argument or option | meaning | default |", "| --- | --- | --- |")
    for param in command.params:
        kind = getattr(param, "param_type_name", "option")
        label = param.metavar or param.name if kind == "argument" else ", ".join(param.opts)
        choices = _choices(param)
        about = (param.help or "") + (f" One of {', '.join(map(str, choices))}." if choices else "")
        yield f"| `{label}` | {about} | {_default(param)} |"
    yield ""


def _choices(param: Any) -> list[str]:
    kind = param.type_descriptor.annotation
    return (
        [member.value for member in kind]
        if isinstance(kind, type) and issubclass(kind, Enum)
        else []
    )


def _default(param: Any) -> str:
    if param.default is None or param.default is False or callable(param.default):
        return "required" if param.required else ""
    value = getattr(param.default, "value", param.default)
    return f"`{value}`" if "Sentinel" not in type(value).__name__ else "required"


def configuration() -> str:
    """Every key of callpact.toml."""
    lines = [
        "# Configuration",
        "",
        (
            "`callpact.toml` in the current directory, or the file named with `--config`. It is "
            "read when no source is named with `-s`. Options of the command line take precedence."
        ),
        "",
        "```toml",
        "[sources.shop]",
        'ref = "python:shop.py"',
        'policy = "reject"',
        "```",
        "",
        "| key | meaning |",
        "| --- | --- |",
    ]
    for prefix, table in TABLES.items():
        fields = sorted(table.model_fields.items(), key=lambda item: item[0] != "ref")
        lines += [
            f"| {_names(prefix, field.alias or name)} | {field.description}{_preset(field.default)} |"
            for name, field in fields
        ]
    return "\n".join(lines) + "\n"


TABLES: dict[str, type[BaseModel]] = {
    "": Config,
    "sources.NAME.": SourceConfig,
    "sources.NAME.select. sources.NAME.exclude.": RulesConfig,
    "sources.NAME.tools.TOOL.": ToolConfig,
    "sources.NAME.callers[].": CallerConfig,
    "sources.NAME.oauth.": OAuthClientConfig,
    "serve.": ServeConfig,
    "serve.tokens.NAME.": TokenConfig,
    "serve.oauth.": OAuthConfig,
    "audit.": AuditConfig,
    "limits.": LimitsConfig,
}
"""The tables of callpact.toml, by the beginning of their keys."""


def _names(prefixes: str, name: str) -> str:
    return ", ".join(f"`{prefix}{name}`" for prefix in prefixes.split() or [""])


def _preset(value: object) -> str:
    """The default of a key; nothing for those without one worth a word."""
    if isinstance(value, bool):
        return f"; `{str(value).lower()}` by default"
    if isinstance(value, int | float):
        return f"; {value:,} by default" if value >= 10_000 else f"; {value} by default"
    return f"; `{value}` by default" if isinstance(value, str) else ""


LIMITS: dict[str, tuple[str, str]] = {
    "Schemas and values": (
        "schema",
        "MAX_VALUE_DEPTH MAX_SCHEMA_VALUES MAX_SCHEMA_DEPTH MAX_ISSUES MAX_DETAIL MAX_EXPLAINED",
    ),
    "Calls and logs": ("", "MAX_NESTED MAX_KEPT_LINES MAX_LOG_MESSAGE MAX_LOG_TRACE"),
    "Serving": (
        "serve",
        (
            "DEFAULT_TIMEOUT MAX_BODY_BYTES MAX_CLIENT_SECONDS MAX_CONNECTIONS MAX_SESSIONS "
            "MAX_STREAMS MAX_LINE_BYTES MAX_REQUESTS MAX_QUESTIONS MAX_KEY_LENGTH KEPT_HOURS "
            "MAX_ANSWERS MAX_ANSWER_BYTES MAX_STORE_BYTES"
        ),
    ),
    "HTTP endpoints": ("wire", "MAX_QUERY_ARGUMENTS MAX_DOCUMENT_EXAMPLES"),
    "Requests to upstreams (`callpact.net.Limits`)": (
        "net.limits",
        (
            "MAX_BODY_BYTES MAX_DECODED_BYTES MAX_ENCODINGS MAX_HEADERS MAX_HEADER_BYTES "
            "MAX_CONNECT_SECONDS MAX_FIRST_BYTE_SECONDS MAX_IDLE_SECONDS "
            "MAX_STREAM_IDLE_SECONDS MAX_TOTAL_SECONDS MAX_REDIRECTS "
            "MAX_CONNECTIONS_PER_HOST MAX_CONNECTIONS MAX_WAITING"
        ),
    ),
    "MCP servers": (
        "sources.mcp",
        (
            "CALL_SECONDS CONNECT_SECONDS CONCURRENCY MAX_FAILURES PAUSE_SECONDS MAX_PAUSE_SECONDS "
            "STOP_SECONDS MAX_LINE_BYTES MAX_ERROR_LINE MAX_LOGGED MAX_PAGES MAX_DEFINITIONS "
            "LIST_SECONDS MAX_ROUNDS MAX_SENT_TO MAX_FOLLOWED MAX_CONFIG_BYTES MAX_SERVERS "
            "MAX_LOCK_BYTES MAX_DESCRIPTION MAX_SCANNED MAX_SCANNED_SERVER MAX_PARTS MAX_OF_A_RULE "
            "MAX_FINDINGS MAX_CALLER_SESSIONS IDLE_SESSION_SECONDS TOKEN_SECONDS "
            "MAX_TOKEN_RESPONSE DEFAULT_TOKEN_LIFE REFRESH_SECONDS RETRY_SECONDS"
        ),
    ),
    "OpenAPI documents": (
        "sources.openapi",
        (
            "MAX_DOCUMENT_BYTES MAX_DOCUMENT_FILES MAX_DOCUMENT_VALUES MAX_DOCUMENT_DEPTH "
            "MAX_REFERENCE_CHAIN MAX_PATHS MAX_OPERATIONS MAX_EXAMPLE_BYTES MAX_OUTPUT_DEFINITIONS "
            "MAX_NAMESPACE MAX_PLACED"
        ),
    ),
    "OpenAPI requests": (
        "sources.openapi",
        "MAX_URL MAX_PAIRS MAX_PARTS MAX_EVENT_BYTES DEFAULT_PAGES DEFAULT_ITEMS MAX_PAGES",
    ),
    "Tokens of OAuth clients": (
        "net.oauth_token",
        "MAX_TOKENS MIN_TOKEN_SECONDS MAX_TOKEN_CHARACTERS",
    ),
    "Comparison of contracts": (
        "contracts",
        (
            "MAX_TRIALS TRIAL_SECONDS PROOF_SECONDS ALL_PROOFS_SECONDS MAX_PROOF_BYTES MAX_PROOF_MEMORY MAX_COMPARED "
            "MAX_SCHEMA_CHANGES"
        ),
    ),
    "Lint": ("contracts.lint", "MAX_PARAMETERS MAX_INPUT_LEVELS MAX_LINTED"),
    "Reference pages and types": ("contracts", "MAX_ROWS MAX_ROW_LEVELS MAX_TYPE_DEPTH"),
    "Curation": ("sources", "MAX_CURATE_BYTES MAX_FIELD_LEVELS"),
    "FlowMCP files": ("sources.flowmcp", "MAX_FILE_BYTES MAX_TOOLS MAX_OUTPUT_LEVELS"),
    "Hooks": (
        "sandbox.hook_limits",
        (
            "MAX_SECONDS MAX_HOOK_TIMEOUT MAX_LOAD_SECONDS MAX_MEMORY_BYTES MAX_OUTPUT_BYTES "
            "MAX_INPUT_BYTES MAX_EFFECTS MAX_LOG_LINES MAX_LOG_CHARACTERS"
        ),
    ),
    "Agents": (
        "agent",
        "MAX_RETRIES MAX_ITERATIONS MAX_TOOL_USES MAX_OUTPUT_CHARACTERS MAX_FILE_BYTES MAX_HISTORY",
    ),
    "Audit log": ("audit", "MAX_PAYLOAD_BYTES MAX_ROWS MAX_JOURNAL_BYTES"),
}
"""The limits that a user can meet or set: a package, and constants of it or of modules inside."""


def limits() -> str:
    """The limits that a user can meet or set, each with the sentence under it in the code."""
    lines = [
        "# Limits",
        "",
        (
            "Schemas, values, model output and configuration are treated as hostile. Input beyond "
            "a limit is refused with an error that names the limit. Events on a bus have [limits of "
            "their own](call-protocol.md#limits)."
        ),
    ]
    for title, (package, names) in LIMITS.items():
        lines += [
            "",
            f"## {title}",
            "",
            "| limit | value | what it bounds |",
            "| --- | ---: | --- |",
        ]
        lines += [_limit(package, name) for name in names.split()]
    return "\n".join(lines) + "\n"


def _limit(package: str, name: str) -> str:
    place = ROOT / "src" / "callpact" / package.replace(".", "/")
    paths = sorted(place.glob("**/*.py")) or [place.with_suffix(".py")]
    modules = [".".join(path.relative_to(ROOT / "src").with_suffix("").parts) for path in paths]
    found = [module for module in modules if name in sentences(module)]
    if len(found) != 1:
        raise LookupError(f"{name} must be one constant of callpact.{package}, found in {found}")
    return f"| `{name}` | {constant(found[0], name):,} | {sentences(found[0])[name]} |"


def _limits_of(module: str) -> Iterator[str]:
    for name, sentence in sentences(module).items():
        if name.startswith("MAX_"):
            yield f"| `{name}` in `{module}` | {constant(module, name):,} | {sentence} |"


# --- the call protocol ----------------------------------------------------------------------

FIELDS = {
    "requestId": "which request it belongs to",
    "operationId": "the tool's id, wire name or alias",
    "input": "the arguments; `{}` for none",
    "parentRequestId": "the request whose handler makes this one",
    "deadline": "when an answer is too late, in epoch milliseconds",
    "idleTimeout": "milliseconds of silence after which the subscriber gives up",
    "identity": "who calls",
    "metadata": "what the caller sends along; handed on to the calls of the handler",
    "chain": "the tools that called one another to get here, the first caller first",
    "stream": "true if a subscription is wanted; a tool with one answer is then refused",
    "output": "the answer",
    "seq": "the number of this envelope in its subscription, from 0",
    "code": "what went wrong, as in the table of codes",
    "message": "one sentence for the reader",
    "details": "a list of issues, or an object",
    "count": "how many envelopes were sent",
}
OURS = frozenset({"seq", "count", "chain", "stream"})
"""Fields that seed 001's events do not have; others may leave them out."""
PROTOCOL_MODULES = (
    "protocol.events",
    "protocol.bus",
    "protocol.pending",
    "protocol.handler",
    "runtime",
)


def _events_section() -> Iterator[str]:
    yield "| event | field | type | | what it says |"
    yield "| --- | --- | --- | --- | --- |"
    yield "| every event | `type` | text | required | which event it is |"
    yield f"| | `requestId` | text | required | {FIELDS['requestId']} |"
    for kind, schema in protocol.CALL_EVENT_SCHEMAS.items():
        own = {f: s for f, s in schema["properties"].items() if f not in {"type", "requestId"}}
        if not own:
            yield f"| `{kind}` | | | | nothing more |"
        for place, (field, declared) in enumerate(own.items()):
            event = "" if place else f"`{kind}` "
            need = "our addition " if field in OURS else ""
            need = "required " if field in schema["required"] else need
            yield f"| {event}| `{field}` | {_kind(declared)} | {need}| {FIELDS[field]} |"


def _kind(schema: dict[str, Any]) -> str:
    if schema is envelope.RESPONSE_ENVELOPE_SCHEMA:
        return "envelope"
    kind = schema.get("type")
    if kind is None:
        return "any JSON"
    if kind == "array":
        return f"array of {_kind(schema['items'])}"
    bounds = {"minimum": "≥ ", "exclusiveMinimum": "> "}
    bound = "".join(f" {sign}{schema[key]}" for key, sign in bounds.items() if key in schema)
    return f"{'text' if kind == 'string' else kind}{bound}"


def _codes_section() -> Iterator[str]:
    yield "| code on the bus | `CallError.code` | with `details.callpact.code` also | raised to the caller |"
    yield "| --- | --- | --- | --- |"
    for event in dict.fromkeys(row.event for row in CODES.values()):
        error = protocol.CallFailed("", event, "").error
        others = [row.code for row in CODES.values() if row.event == event != error.code]
        told = ", ".join(f"`{code}`" for code in others if code != error.code)
        yield f"| `{event}` | `{error.code}` | {told} | `{type(error).__name__}` |"
    yield "| any other | the same | | `ToolError` |"


def _limits_section() -> Iterator[str]:
    yield "| limit | value | what it bounds |"
    yield "| --- | ---: | --- |"
    for module in PROTOCOL_MODULES:
        yield from _limits_of(f"callpact.{module}")


SECTIONS: dict[str, Callable[[], Iterator[str]]] = {
    "events": _events_section,
    "codes": _codes_section,
    "limits": _limits_section,
}


def call_protocol() -> str:
    """The page as it is, with the marked sections written anew."""
    page = _on_disk("call-protocol.md")
    for name, write in SECTIONS.items():
        marked = re.compile(rf"(?<=<!-- {name} -->\n).*?(?=<!-- end of {name} -->)", re.DOTALL)
        if len(marked.findall(page)) != 1:
            raise LookupError(f"call-protocol.md must hold one section '<!-- {name} -->'")
        text = "\n" + "\n".join(write()) + "\n\n"
        page = marked.sub(lambda _, text=text: text, page)
    return page


WRITERS: dict[str, Callable[[], str]] = {
    "api.md": lambda: NOTE + api(),
    "call-protocol.md": call_protocol,
    "codes.md": lambda: NOTE + codes(),
    "command-line.md": lambda: NOTE + command_line(),
    "configuration.md": lambda: NOTE + configuration(),
    "flowmcp-codes.md": lambda: NOTE + flowmcp_codes(),
    "mcp-text-codes.md": lambda: NOTE + mcp_text_codes(),
    "limits.md": lambda: NOTE + limits(),
    "lint-codes.md": lambda: NOTE + lint_codes(),
}


def main(arguments: list[str]) -> int:
    """Write or check every page."""
    stale = [name for name, write in WRITERS.items() if _on_disk(name) != write()]
    if "--check" in arguments:
        for name in stale:
            print(f"docs/reference/{name} is not what the code says; run scripts/reference.py")
        return 1 if stale else 0
    for name, write in WRITERS.items():
        (PAGES / name).write_text(write(), "utf-8")
    return 0


def _on_disk(name: str) -> str:
    path = PAGES / name
    return path.read_text("utf-8") if path.exists() else ""


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
