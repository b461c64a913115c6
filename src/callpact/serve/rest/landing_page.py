"""The landing page of the HTTP server at `/`: what it is, and how a client is connected to it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from shlex import quote

from callpact.serve.rest.docs_page import encode_page

_NOT_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_ABOUT = (
    "for AI agents over the Model Context Protocol (MCP), and for other programs over plain HTTP"
)

_CLIENTS = (
    "<p>Add it to Claude Code; in place of <code>claude-code</code> also <code>vscode</code>, "
    "<code>cursor</code>, <code>codex</code>, <code>gemini-cli</code> or <code>windsurf</code>:</p>"
)
# Relative links, so that they hold wherever the application is mounted.
_LINKS = (
    '<ul><li><a href="docs">docs</a>: every tool as an HTTP endpoint, with its arguments and '
    'result</li><li><a href="openapi.json">openapi.json</a>: the same as an OpenAPI document</li>'
    "</ul>"
)


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The facts about a server that only its callers see."""

    name: str
    version: str
    tools: int
    """The number of tools that the caller may use."""


def encode_landing(address: str, facts: ServerFacts | None, *, has_tokens: bool) -> bytes:
    """Render the page; `address` is that of the MCP door, `facts` are None for strangers."""
    name = "MCP server" if facts is None else facts.name
    parts = [f"<h1>{escape(name)}</h1>", _lead(facts)]
    if has_tokens:
        parts.append(
            "<p>Every request needs a token: <code>Authorization: Bearer …</code>. The commands "
            "below read it from the environment variable <code>MCP_TOKEN</code>.</p>"
        )
    label = "callpact" if facts is None else _NOT_NAME.sub("-", facts.name).strip("-")
    parts += [
        "<h2>Connect an MCP client</h2>",
        "<p>The address for MCP clients:</p>",
        f"<pre>{escape(address)}</pre>",
        _CLIENTS,
        f"<pre>{escape(_install(address, label or 'callpact', has_tokens=has_tokens))}</pre>",
        "<p>Or without callpact, by the client's own command:</p>",
        f"<pre>{escape(_own_command(address, label or 'callpact', has_tokens=has_tokens))}</pre>",
        "<h2>Without MCP</h2>",
        _LINKS,
    ]
    return encode_page(name, parts)


def _lead(facts: ServerFacts | None) -> str:
    if facts is None:
        return f"<p>Tools {_ABOUT}.</p>"
    number = f"{facts.tools:,} tool{'' if facts.tools == 1 else 's'}"
    version = f'<p class="quiet">version {escape(facts.version)}</p>' if facts.version else ""
    return f"{version}<p>{number} {_ABOUT}.</p>"


def _install(address: str, label: str, *, has_tokens: bool) -> str:
    token = " --token MCP_TOKEN" if has_tokens else ""
    return f"callpact install claude-code --name {label} --http {quote(address)}{token}"


def _own_command(address: str, label: str, *, has_tokens: bool) -> str:
    header = ' --header "Authorization: Bearer $MCP_TOKEN"' if has_tokens else ""
    return f"claude mcp add --transport http {label} {quote(address)}{header}"
