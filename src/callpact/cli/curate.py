"""`callpact curate`: a first file of the curation of a source, with all settings commented out."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from callpact.cli.output import counted, err, fail, plain
from callpact.schema import is_object
from callpact.sources.curate_file import MAX_CURATE_BYTES
from callpact.sources.projection import field_names, written_name
from callpact.wire import terminal as text

if TYPE_CHECKING:
    from callpact.tool import Tool

GROUPED_FROM = 31
"""Tools from which on they are grouped by their first tag."""
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_HEAD = """\
# The tools of the source '{name}' as clients see them. Lines that begin with # are comments: remove
# the # of a setting to use it. Further settings of a tool: title, append_description, aliases, tags,
# policy, input_policy, timeout, scopes, enabled, and of its arguments rename, hidden, defaults, as
# in rename.per_page = "limit" or hidden.format = "json".
"""


def write_first_file(
    path: Path, name: str, tools: Collection[Tool], *, elsewhere: Collection[str], force: bool
) -> None:
    """Write the first file for the tools of a source; those `elsewhere` have a table already."""
    if path.exists() and not force:
        fail(f"{path} exists already; --force replaces it, with all that was changed in it")
    content = first_file(name, tools, elsewhere).encode()
    if len(content) > MAX_CURATE_BYTES:
        fail(
            f"the file for {counted(len(tools))} would be larger than {MAX_CURATE_BYTES:,} bytes; "
            f"select fewer of them in the table [sources.{name}]"
        )
    try:
        path.write_bytes(content)
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror or error}")
    err.print(f"wrote {plain(str(path))}: {counted(len(tools))}")


def first_file(name: str, tools: Collection[Tool], elsewhere: Collection[str] = ()) -> str:
    """A file that changes nothing: a table for each tool, with commented settings of today."""
    lines = [_HEAD.format(name=_comment(name)), *_rules(tools)]
    for tag, group in _groups(tools):
        lines += [f"\n# --- {_comment(tag)} ---"] if tag else []
        for tool in group:
            lines.append("")
            if tool.id in elsewhere:
                lines.append(f"# {tool.id} has a table [sources.{_comment(name)}.tools.…] already.")
            else:
                lines += _table(tool)
    return "\n".join(lines) + "\n"


def _rules(tools: Iterable[Tool]) -> Iterator[str]:
    """The commented table `select`, with the values that the tools have."""
    tags = sorted({tag for tool in tools for tag in tool.tags})
    methods = sorted({tool.origin.method for tool in tools if tool.origin.method})
    yield "#[select]"
    if tags:
        yield f"#tags = [{', '.join(map(_string, tags))}]"
    if methods:
        yield f"#methods = [{', '.join(map(_string, methods))}]"
    yield '#operations = ["*"]'
    if any(tool.origin.deprecated for tool in tools):
        yield "#deprecated = false"


def _groups(tools: Collection[Tool]) -> Iterable[tuple[str, list[Tool]]]:
    if len(tools) < GROUPED_FROM or not any(tool.tags for tool in tools):
        return [("", [*tools])]
    groups: dict[str, list[Tool]] = {}
    for tool in sorted(tools, key=lambda tool: tool.tags[:1] or ("\uffff",)):
        groups.setdefault(tool.tags[0] if tool.tags else "without a tag", []).append(tool)
    return groups.items()


def _table(tool: Tool) -> Iterator[str]:
    yield f"[tools.{_key(tool.id)}]"
    origin = tool.origin
    request = f"{origin.method} {origin.path}".strip()
    tags = f"tags: {', '.join(tool.tags)}" if tool.tags else ""
    notes = [request, tags, "deprecated" if origin.deprecated else ""]
    if any(notes):
        yield f"# {_comment('; '.join(filter(None, notes)))}"
    yield f"#name = {_string(tool.name)}"
    yield from _setting("description", tool.description)
    yield f"#read_only = {'true' if tool.annotations.get('readOnlyHint') is True else 'false'}"
    yield from _arguments(tool.contract.input)
    if names := field_names(tool.contract.output):
        yield f"#fields = [{', '.join(_string(written_name(name)) for name in names)}]"


def _arguments(schema: Any) -> Iterator[str]:
    """A setting for the description of each argument, with a note on its type."""
    properties: dict[str, Any] = schema.get("properties", {}) if is_object(schema) else {}
    required = text.required_of(schema)
    for name, part in properties.items():
        about = part.get("description") if is_object(part) else None
        kinds = part.get("type", "") if is_object(part) else ""
        notes = [kinds] if isinstance(kinds, str) else list(kinds)
        notes += [] if name in required else ["optional"]
        note = f"  # {_comment(', '.join(filter(None, notes)))}" if any(notes) else ""
        words = _string(about if isinstance(about, str) else "")
        yield f"#describe.{_key(name)} = {words}{note}"


def _setting(key: str, value: str) -> Iterator[str]:
    """A commented setting; a text of several lines has them in the file, too."""
    lines = value.split("\n")
    if len(lines) == 1 or any(line[:1].isspace() for line in lines):
        yield f"#{key} = {_string(value)}"
        return
    yield f'#{key} = """'
    *others, last = [_string(line)[1:-1] for line in lines]
    yield from (f"#{line}" for line in others)
    yield f'#{last}"""'


def _string(value: str) -> str:
    """A TOML string; its escapes are those of JSON, where that is not limited to ASCII."""
    valid = value.encode("utf-8", "replace").decode()
    return json.dumps(valid, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _string(name)


def _comment(value: str) -> str:
    """Text for a comment, which is one line without control characters."""
    return "".join(char if char.isprintable() else "\ufffd" for char in value)
