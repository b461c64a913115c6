"""Compiled schemas: `jsonschema-rs` behind limits, always offline.

A schema is compiled once, when it is declared. The forms that the hot path uses are derived on
first use, so that loading ten thousand tools costs ten thousand compilations and no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import jsonschema_rs

from callpact.errors import InvalidSchema, Issue
from callpact.schema.document import (
    MAX_BACKTRACKS,
    MAX_DETAIL,
    Document,
    Facts,
    References,
    freeze,
    pointer,
    references,
)
from callpact.schema.drafts import draft_of
from callpact.schema.integers import count_integers, inexact_integers, resources
from callpact.schema.json_types import is_object
from callpact.schema.values import (
    DEEPER,
    UPPER,
    Deeper,
    cut_below,
    is_json,
    is_shallow,
    measure,
    not_json,
    same,
    size_of,
    vast_numbers,
)
from callpact.schema.variants import (
    INVERTING,
    UNFORMABLE,
    closed_form,
    plain_form,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from jsonschema_rs import ValidationError

MAX_EXPLAINED = 2_000_000
"""Bytes of JSON up to which all violations of a value are reported; beyond, only the first."""
_PATTERNS = jsonschema_rs.FancyRegexOptions(backtrack_limit=MAX_BACKTRACKS)
_SHARED = ("$schema", "$defs", "definitions")
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_NAMES = frozenset({"$id", "$anchor", "$dynamicAnchor"})
_UNEVALUATED = frozenset({"unevaluatedProperties", "unevaluatedItems"})
_TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")
_ANNOTATIONS = frozenset(
    {
        "$schema",
        "$id",
        "$comment",
        "$defs",
        "definitions",
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
    }
)


class _Bound:
    """`formatMinimum` and `formatMaximum`: ISO dates order as text does."""

    def __init__(self, _parent: dict[str, Any], value: Any, path: list[str | int]) -> None:
        self._value = value
        self._least = path[-1] == "formatMinimum"

    def validate(self, instance: Any) -> None:
        if isinstance(instance, str) and (
            instance < self._value if self._least else instance > self._value
        ):
            raise ValueError(self._value)


_ANNOTATING: dict[str, Any] = {"offline": True, "pattern_options": _PATTERNS}
_ASSERTING: dict[str, Any] = {**_ANNOTATING, "validate_formats": True}
_BOUNDS: dict[str, Any] = {"formatMinimum": _Bound, "formatMaximum": _Bound}


class CompiledSchema:
    """A JSON Schema ready to judge values."""

    __slots__ = (
        "_facts",
        "_formats",
        "_links",
        "_validator",
        "accepts",
        "document",
        "fits",
        "is_unknown",
        "reader",
    )

    document: Document
    """The schema as plain data; not to be changed."""
    is_unknown: bool
    """True if the schema says nothing: no keyword but annotations."""
    reader: Any
    """Where `fitting.py` keeps the schema as nodes that convert, cast and strip."""
    accepts: Callable[[Any], bool]
    """True for JSON that keeps the schema. May raise ValueError for what is not JSON at all."""
    fits: Callable[[Any], bool]
    """True for JSON in which nothing needs to be converted, cast or stripped."""

    def __init__(self, facts: Facts, *, formats: bool = False) -> None:
        given = facts.given
        self._facts: Facts = facts
        self._formats = formats
        self._links: References | None = None
        if is_object(given) and facts.keywords & _REFERENCES:
            has_names = bool(facts.keywords & _NAMES) or draft_of(given).id_keyword in given
            self._links = references(given, has_names=has_names)
            if self._links.weight > MAX_DETAIL and facts.keywords & _UNEVALUATED:
                # To know what is evaluated, the validator unfolds every reference.
                raise InvalidSchema("its references multiply too often under 'unevaluated…'")
        self._validator = self._compile(given)
        self.is_unknown = says_nothing(given)
        if facts.text is not None:  # Let go of the caller's own document.
            self._facts = Facts(True, facts.text, facts.keywords, facts.breadth)
        self.reader: Any = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CompiledSchema) and (
            self is other
            or (self._formats == other._formats and same(self.document, other.document))
        )

    def __hash__(self) -> int:
        return hash((self._formats, self.is_unknown))

    @property
    def has_secrets(self) -> bool:
        """True if some place may be marked as a secret."""
        return bool(self._facts.keywords & {"writeOnly", "format"})

    @property
    def accepts_null(self) -> bool:
        """True if null keeps the schema; quicker than `accepts` where no value was judged yet."""
        return self._validator.is_valid(None)

    def judge_of(self, schema: dict[str, Any]) -> Callable[[Any], bool]:
        """A test of whether a part of the value fits a part of the schema."""
        root = cast("dict[str, Any]", self.document)
        shared = {keyword: root[keyword] for keyword in _SHARED if keyword in root}
        try:
            part = compile_schema({**shared, **schema}, formats=self._formats)
        except InvalidSchema:  # It refers to another document.
            return _never

        def judge(value: Any) -> bool:
            try:
                return part.fits(value)
            except ValueError:
                return False

        return judge

    def errors(self, value: Any) -> list[ValidationError] | list[Issue]:
        """Every violation as the validator reports it, or as issues where it cannot be used."""
        if not is_json(value):
            return not_json(value)
        try:
            return self._listed(value) or inexact_integers(self._validator, value)
        except UnicodeEncodeError:  # A lone surrogate, in text that only now was looked at.
            return not_json(value)

    def _listed(self, value: Any) -> list[ValidationError] | list[Issue]:
        if not is_shallow(value, UPPER):
            # Errors hold copies of what is wrong: of many levels that takes minutes.
            return [] if self._validator.is_valid(value) else self._errors_above(value)
        return self._errors_within(value)

    def _errors_above(self, value: Any) -> list[ValidationError] | list[Issue]:
        """The violations of the upper levels of a value, or that they lie below."""
        errors = cast("list[Any]", self._errors_within(cut_below(value, UPPER)))
        above = [
            error
            for error in errors
            if isinstance(error, Issue) or len(error.instance_path) < UPPER
        ]
        text = f"Value does not match its schema, more than {UPPER} levels deep"
        return above or [Issue("schema", text, "")]

    def _errors_within(self, value: Any) -> list[ValidationError] | list[Issue]:
        if self._links is not None and not self._links.explains(measure(value)[1]):
            if self._validator.is_valid(value):
                return []
            return [Issue("schema", "Value does not match its schema", "")]
        if size_of(value) * self._facts.breadth > MAX_EXPLAINED:
            return self._first_error(value)
        errors = list(self._validator.iter_errors(value))
        # The validator reads a number of too many digits as null.
        if any(error.instance is None for error in errors) and (places := vast_numbers(value)):
            return places
        return errors

    def _first_error(self, value: Any) -> list[ValidationError]:
        try:
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            return [error]
        return []

    def __getattr__(self, name: str) -> Any:
        """Make the parts that loading a tool does not need on first access, and keep them."""
        if name == "document":
            made = self._facts.document
        elif name == "accepts":
            made = self._accepts()
        elif name == "fits":
            made = self._fits()
        else:
            raise AttributeError(f"a compiled schema has no attribute {name!r}")
        setattr(self, name, made)
        return made

    def _accepts(self) -> Callable[[Any], bool]:
        """One validator that does it all, or several in a row where the schema forbids rewriting."""
        is_valid = self._validator.is_valid
        if not self._is_formable:

            def judge(value: Any) -> bool:
                return is_json(value) and is_valid(value)

            return self._exactly(judge) if count_integers(self.document) else judge
        formed, is_exact = plain_form(self.document)
        judge = is_valid if formed == self.document else self._compile(formed, resources()).is_valid
        return judge if is_exact else self._exactly(judge)

    def _exactly(self, judge: Callable[[Any], bool]) -> Callable[[Any], bool]:
        return lambda value: judge(value) and not inexact_integers(self._validator, value)

    def _fits(self) -> Callable[[Any], bool]:
        if not self._is_formable or (self._links is not None and self._links.weight > MAX_DETAIL):
            return _never
        formed, is_exact = closed_form(self.document)
        is_same = formed == self.document
        judge = self._validator.is_valid if is_same else self._compile(formed, resources()).is_valid
        if is_exact and not self._facts.keywords & INVERTING:
            return judge
        return lambda value: judge(value) and self.accepts(value)

    @property
    def _is_formable(self) -> bool:
        has_formable_links = self._links is None or self._links.is_formable
        return has_formable_links and not self._facts.keywords & UNFORMABLE

    def _compile(self, document: Document, registry: jsonschema_rs.Registry | None = None) -> Any:
        options: dict[str, Any] = _ASSERTING if self._formats else _ANNOTATING
        keywords = _BOUNDS if self._formats else {}
        if registry is not None:  # It is a form.
            options = {**options, "registry": registry}
            keywords = {**keywords, DEEPER: Deeper}
        if keywords:
            options = {**options, "keywords": keywords}
        try:
            return jsonschema_rs.validator_for(document, **options)
        except jsonschema_rs.ValidationError as error:
            path = error.instance_path
            text = error.message
            if path and path[-1] == "type":
                text = f"{error.instance!r} is not a type; one of {', '.join(_TYPES)}, or a list of them"
            raise InvalidSchema(text, pointer(path)) from None
        except jsonschema_rs.ReferencingError as error:
            raise InvalidSchema(str(error)) from None
        except ValueError as error:
            raise InvalidSchema(str(error)) from None


def says_nothing(document: Any) -> bool:
    """True for a schema that accepts every value: no keyword but annotations."""
    return document is True or (is_object(document) and _ANNOTATIONS.issuperset(document))


def compile_schema(schema: object, *, formats: bool = False) -> CompiledSchema:
    """Compile a schema; one that is compiled already is returned as it is.

    `formats=True` makes `format` an assertion (email, uri, date, …) instead of an annotation.

    Raises:
        InvalidSchema: the document is not a usable JSON Schema.
    """
    if isinstance(schema, CompiledSchema):
        return schema
    facts = freeze(schema)
    if facts.text is None:
        return CompiledSchema(facts, formats=formats)
    key = (facts.text, formats)
    compiled = _shared.get(key)
    if compiled is None:
        compiled = CompiledSchema(facts, formats=formats)
        if len(_shared) >= _MAX_SHARED:
            _shared.clear()
        _shared[key] = compiled
    return compiled


_MAX_SHARED = 1_000
_shared: dict[tuple[str, bool], CompiledSchema] = {}
"""Small schemas compiled lately: tools that declare the same one share it."""


def _never(_value: Any) -> bool:
    return False
