"""Where in a file a finding stands: line and column of a JSON Pointer, found when asked for."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from msgspec.structs import replace

from callpact.errors import InvalidManifest
from callpact.sources.flowmcp.careful import read_carefully
from callpact.sources.flowmcp.tokens import line_starts, place_of
from callpact.sources.loaded import Finding


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings in the order of the file."""
    return tuple(sorted(findings, key=lambda found: (found.line or 0, found.column or 0)))


class Places:
    """The places of an export's values; the file is read again, with care, on first use.

    `prefix` is where in the export the data begins, if it is not all of it.
    """

    def __init__(self, text: str, export: str, prefix: str = "") -> None:
        self.text = text
        self._export = export
        self._prefix = prefix

    @cached_property
    def _offsets(self) -> dict[str, int]:
        """Offsets by JSON Pointer; of `export const main = schema`, those of `schema`."""
        try:
            found = read_carefully(self.text)
        except InvalidManifest:
            return {}
        value = found.values.get(self._export)
        same = (name for name in found.values if found.values[name] is value)
        export = next((name for name in same if (name, "") in found.places), self._export)
        return {path: offset for (name, path), offset in found.places.items() if name == export}

    @cached_property
    def _starts(self) -> list[int]:
        return line_starts(self.text)

    def placed(self, finding: Finding) -> Finding:
        """The finding with its line and column; of what is missing, where it should stand."""
        if finding.line is not None:
            return finding
        line, column = place_of(self._starts, self._offset(finding.path))
        return replace(finding, line=line, column=column)

    def _offset(self, path: str) -> int:
        while True:
            for prefix in (self._prefix, ""):
                offset = self._offsets.get(prefix + path)
                if offset is not None:
                    return offset
            if not path:
                return 0
            path = path.rpartition("/")[0]
