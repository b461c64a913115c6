"""Names and versions of published packages: `shop@1.2.0`, and ranges such as `shop@^1`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from callpact.contracts.diff import Bump
from callpact.errors import UsageError

MAX_NAME_LENGTH = 64
"""Characters of the name of a package."""
_NAME = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")
_NUMBER = r"(0|[1-9][0-9]{0,8})"
_VERSION = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}")
_RANGE = re.compile(rf"([\^~]?){_NUMBER}(?:\.{_NUMBER}(?:\.{_NUMBER})?)?")


class PackageVersion(Struct, frozen=True, order=True):
    """A version as `MAJOR.MINOR.PATCH`."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"

    def bumped(self, bump: Bump) -> PackageVersion:
        """The next version of this kind."""
        if bump == "major":
            return PackageVersion(self.major + 1, 0, 0)
        if bump == "minor":
            return PackageVersion(self.major, self.minor + 1, 0)
        return PackageVersion(self.major, self.minor, self.patch + 1)

    def bump_from(self, old: PackageVersion) -> Bump:
        """The kind of the step from an older version."""
        if self.major != old.major:
            return "major"
        return "minor" if self.minor != old.minor else "patch"


FIRST = PackageVersion(1, 0, 0)


def is_version(text: Any) -> bool:
    """True for a text `MAJOR.MINOR.PATCH`."""
    return isinstance(text, str) and _VERSION.fullmatch(text) is not None


def version_of(text: str) -> PackageVersion:
    """The version of a text.

    Raises:
        UsageError: the text is not `MAJOR.MINOR.PATCH`.
    """
    found = _VERSION.fullmatch(text)
    if found is None:
        raise UsageError(f"a version is MAJOR.MINOR.PATCH, as in 1.2.0, got {text[:40]!r}")
    return PackageVersion(*map(int, found.groups()))


def is_package_name(text: Any) -> bool:
    """True for lower-case letters and digits, with single `.`, `_` or `-` between them."""
    return isinstance(text, str) and len(text) <= MAX_NAME_LENGTH and bool(_NAME.fullmatch(text))


def checked_name(text: str) -> str:
    """The name of a package.

    Raises:
        UsageError: the name cannot be used.
    """
    if not is_package_name(text):
        raise UsageError(
            f"the name of a package is at most {MAX_NAME_LENGTH} lower-case letters and digits, "
            f"with single '.', '_' or '-' between them, got {text[:80]!r}"
        )
    return text


def selected_version(wanted: str, versions: Iterable[PackageVersion]) -> PackageVersion | None:
    """The newest version in a range: `1.2.0`, `^1`, `^1.2`, `~1.2` or `latest`; or None.

    `^` keeps the major number, `~` the minor number too; `1.2` without a sign is `~1.2`.

    Raises:
        UsageError: the range cannot be read.
    """
    if wanted == "latest":
        return max(versions, default=None)
    found = _RANGE.fullmatch(wanted)
    if found is None:
        raise UsageError(
            f"a range of versions is 1.2.0, ^1, ^1.2, ~1.2 or latest, got {wanted[:40]!r}"
        )
    sign = found[1]
    numbers = [int(number) for number in found.groups()[1:] if number is not None]
    kept = 1 if sign == "^" or len(numbers) == 1 else 2
    if not sign and len(numbers) == 3:
        kept = 3
    least = PackageVersion(*numbers, *[0] * (3 - len(numbers)))

    def fits(version: PackageVersion) -> bool:
        own = (version.major, version.minor, version.patch)
        return version >= least and [*own[:kept]] == numbers[:kept]

    return max(filter(fits, versions), default=None)
