"""The schemas of tools in one JSON Schema document."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from callpact.contracts.types.named_schemas import NamedSchema
from callpact.schema import is_object
from callpact.schema.drafts import Draft, draft_of


def bundle_schemas(schemas: Iterable[NamedSchema]) -> dict[str, Any]:
    """A document with each schema under `$defs`, with an id of its own so that references hold."""
    newest = Draft.DRAFT_2020_12.uri
    parts: dict[str, Any] = {}
    for named in schemas:
        document = named.document
        if is_object(document):
            draft = draft_of(document)
            address = f"urn:callpact:{named.side}:{named.tool}"
            document = {
                **({} if draft is Draft.DRAFT_2020_12 else {"$schema": draft.uri}),
                draft.id_keyword: address,
                **document,
            }
        parts[named.name] = document
    return {"$schema": newest, "$defs": parts}
