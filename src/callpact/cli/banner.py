"""The banner of a server: what is served and how, and what is left out and why.

Data in, lines or JSON out; nothing is printed here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from callpact.cli.output import counted
from callpact.wire.terminal import encode_needs

if TYPE_CHECKING:
    from callpact.catalog import Catalog
    from callpact.tool import Tool

MAX_BANNER_REASONS = 10
"""Reasons for left out tools that the banner names; the rest is counted."""
MAX_BANNER_NAMESPACES = 10
"""Namespaces that the banner counts one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Counts and settings of a server."""

    place: str
    """`stdio`, or an address."""
    tools: Mapping[str, int]
    """The number of served tools of each namespace."""
    left_out: Mapping[str, int]
    """The number of tools that are left out, by reason."""
    resources: int = 0
    prompts: int = 0
    not_loaded: int = 0
    """Declarations with an error in the load report."""
    versions: tuple[str, ...] = ()
    """Revisions of MCP, the oldest first."""
    docs: str | None = None
    """The address of the docs page of the plain HTTP endpoints; None without them."""
    authentication: str | None = None
    """How callers authenticate; None without authentication."""
    trusts_network: bool = False
    """True if everybody who reaches the server may call its tools."""
    list_up_to: int | None = None
    """More tools than this are searched, not listed."""
    is_watching: bool = False
    workers: int = 1
    """Processes that serve."""
    package: str | None = None
    """The published version that is served, as `shop@1.2.0`; None for the contracts of sources."""
    draft: str | None = None
    """Where the contracts of the sources are served beside a package."""
    audit: str | None = None
    """Where the audit log is; None if calls are not recorded."""

    @property
    def total(self) -> int:
        """The number of served tools."""
        return sum(self.tools.values())

    @property
    def is_searched(self) -> bool:
        """True if search tools are listed instead of the tools."""
        return self.list_up_to is not None and self.total > self.list_up_to


def serving_of(
    catalog: Catalog, is_served: Callable[[Tool], bool], place: str, **more: Any
) -> Serving:
    """The served part of a catalog; `more` are the other fields of `Serving`."""
    served: Counter[str] = Counter()
    left_out: list[Tool] = []
    for tool in catalog:
        if is_served(tool):
            served[tool.namespace] += 1
        else:
            left_out.append(tool)
    return Serving(
        place=place,
        tools=served,
        left_out=reasons_of(left_out),
        resources=sum(is_served(offer.tool) for offer in catalog.resources),
        prompts=sum(is_served(offer.tool) for offer in catalog.prompts),
        **more,
    )


def reasons_of(tools: Iterable[Tool]) -> dict[str, int]:
    """Why tools are not served over MCP, the commonest reason first."""
    return dict(Counter(map(_reason, tools)).most_common())


def _reason(tool: Tool) -> str:
    if tool.kind == "subscription":
        return "subscription"
    if tool.disabled is not None:
        return f"disabled: {tool.disabled.reason}"
    return f"needs {encode_needs(tool.access)}"


def encode_lines(serving: Serving) -> list[str]:
    """The banner for people; the first line ends with the place."""
    lines = [f"serving {_offered(serving)} over {serving.place}"]
    if len(serving.tools) > 1:
        lines.append(f"tools: {_namespaces(serving.tools)}")
    if serving.is_searched:
        lines.append(
            f"listed: search_tools, describe_tool, call_tool, in place of more than "
            f"{serving.list_up_to:,} tools (--list-up-to)"
        )
    if serving.versions:
        lines.append(f"MCP: {_versions(serving.versions)}")
    if serving.docs is not None:
        lines.append(f"HTTP API: {serving.docs}")
    if serving.trusts_network:
        lines.append(
            "warning: there is no authentication (--trust-network): everybody who reaches this port "
            "can call the tools"
        )
    elif serving.authentication is not None or serving.place != "stdio":
        method = serving.authentication or "none, so it is bound to this machine"
        lines.append(f"authentication: {method}")
    if serving.workers > 1:
        lines.append(f"workers: {serving.workers}")
    if serving.package is not None:
        lines.append(f"contracts: {serving.package}")
    if serving.draft is not None:
        lines.append(f"draft: {serving.draft}")
    if serving.audit is not None:
        lines.append(f"audit: {serving.audit}")
    if serving.is_watching:
        lines.append("watching: changed sources are read again")
    if serving.not_loaded:
        lines.append(f"not loaded: {counted(serving.not_loaded, 'declaration')}, see the errors")
    return lines + _left_out(serving.left_out)


def encode_fields(serving: Serving) -> dict[str, Any]:
    """The banner as data, with no more namespaces and reasons than the lines name."""
    reasons = [{"reason": reason, "tools": n} for reason, n in serving.left_out.items()]
    return {
        "place": serving.place,
        "tools": serving.total,
        "namespaces": dict(_largest_first(serving.tools)[:MAX_BANNER_NAMESPACES]),
        "namespace_count": len(serving.tools),
        "resources": serving.resources,
        "prompts": serving.prompts,
        "searched": serving.is_searched,
        "protocol_versions": list(serving.versions),
        "docs": serving.docs,
        "authentication": serving.authentication,
        "trust_network": serving.trusts_network,
        "audit": serving.audit,
        "watching": serving.is_watching,
        "workers": serving.workers,
        "package": serving.package,
        "draft": serving.draft,
        "not_loaded": serving.not_loaded,
        "left_out": sum(serving.left_out.values()),
        "left_out_reasons": reasons[:MAX_BANNER_REASONS],
    }


def _offered(serving: Serving) -> str:
    parts = [counted(serving.total, "tool")]
    if serving.resources:
        parts.append(counted(serving.resources, "resource"))
    if serving.prompts:
        parts.append(counted(serving.prompts, "prompt"))
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _namespaces(tools: Mapping[str, int]) -> str:
    pairs = _largest_first(tools)
    named = [f"{name} {number:,}" for name, number in pairs[:MAX_BANNER_NAMESPACES]]
    if rest := pairs[MAX_BANNER_NAMESPACES:]:
        number = sum(number for _, number in rest)
        named.append(f"and {number:,} of {counted(len(rest), 'more namespace')}")
    return ", ".join(named)


def _largest_first(tools: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(tools.items(), key=lambda pair: -pair[1])


def _versions(versions: tuple[str, ...]) -> str:
    return versions[0] if len(versions) == 1 else f"{versions[0]} to {versions[-1]}"


def _left_out(reasons: Mapping[str, int]) -> list[str]:
    pairs = list(reasons.items())
    lines = [f"left out: {number:,} ({reason})" for reason, number in pairs[:MAX_BANNER_REASONS]]
    if rest := pairs[MAX_BANNER_REASONS:]:
        number = sum(number for _, number in rest)
        more = counted(len(rest), "more reason")
        lines.append(f"left out: {number:,} ({more}; `callpact list` shows them)")
    return lines
