"""What goes wrong on the way to a model, as our errors, and that no key shows in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from pydantic_ai import exceptions as theirs

from callpact.errors import CallpactError, ModelError, UsageError
from callpact.secrets import Secrets

MAX_DETAIL = 500
"""Characters of what a model's server said that an error holds."""

_SECRET_NAME = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS?)$", re.IGNORECASE)
_PLACEHOLDER = "api-key-not-set"
_TRANSIENT_STATUSES = frozenset({408, 409, 425})


def keys_of(*sources: Mapping[str, Any]) -> Secrets:
    """Every value whose name says that it is a key."""
    found: dict[str, str] = {}
    for source in sources:
        for name, value in source.items():
            if isinstance(value, str) and value != _PLACEHOLDER and _SECRET_NAME.search(name):
                found[f"{len(found)} {name}"] = value
    return Secrets(found)


def shown(text: str, secrets: Secrets) -> str:
    """A text of others: without keys, on one line, and not too long."""
    # Masked first: a cut would leave half a key.
    line = " ".join(secrets.mask(text).split())
    return line if len(line) <= MAX_DETAIL else f"{line[:MAX_DETAIL]}…"


def failure_of(error: Exception, name: str, secrets: Secrets) -> CallpactError:
    """Our error for one of theirs, or of the client beneath."""
    if isinstance(error, CallpactError):
        return error
    if isinstance(error, theirs.UserError):
        return UsageError(f"'{name}' cannot be asked so: {shown(error.message, secrets)}")
    if isinstance(error, theirs.ModelHTTPError):
        return _answered(error, name, secrets)
    if isinstance(error, theirs.ModelRequestTimeout):
        return ModelError(f"'{name}' gave no reply within {error.timeout:g} s", transient=True)
    if isinstance(error, theirs.ModelTimeoutError | TimeoutError):
        return ModelError(f"'{name}' gave no reply in time", transient=True)
    if isinstance(error, theirs.ModelConnectionError | OSError):
        detail = shown(_deepest(error), secrets)
        return ModelError(
            f"'{name}' could not be reached, or the connection broke: {detail}", transient=True
        )
    if isinstance(error, theirs.ModelAPIError):
        status = 429 if isinstance(error, theirs.ModelRateLimitError) else None
        transient = isinstance(error, theirs.ModelUnavailableError | theirs.ModelServerError)
        detail = shown(error.message, secrets)
        return ModelError(
            f"'{name}' failed: {detail}",
            status=status,
            transient=transient,
            retry_after=error.retry_after,
        )
    detail = shown(str(error) or type(error).__name__, secrets)
    return ModelError(f"'{name}' gave nothing that can be used: {type(error).__name__}: {detail}")


def _answered(error: theirs.ModelHTTPError, name: str, secrets: Secrets) -> ModelError:
    status = error.status_code
    text = f"'{name}' answered {status}: {shown(_said(error.body), secrets)}"
    if isinstance(error, theirs.ModelAuthenticationError):
        text += "; check the key, and what it may use"
    if error.suggested_model_id is not None:
        text += f"; did you mean '{error.suggested_model_id}'?"
    if error.retry_after is not None:
        text += f"; it asks to wait {error.retry_after:g} s"
    return ModelError(
        text,
        status=status,
        transient=status in _TRANSIENT_STATUSES,
        retry_after=error.retry_after,
    )


def _said(body: object) -> str:
    """The message in the body of an error, in the forms that vendors have for it."""
    if isinstance(body, Mapping):
        held = cast("Mapping[str, object]", body)
        inner = held.get("error", held)
        if isinstance(inner, Mapping):
            message = cast("Mapping[str, object]", inner).get("message")
            if isinstance(message, str):
                return message
        elif isinstance(inner, str):
            return inner
    return "no reason given" if body in {None, ""} else str(cast("object", body))


def _deepest(error: BaseException) -> str:
    """What the innermost cause says: "Connection error." says nothing."""
    seen: set[int] = set()
    while error.__cause__ is not None and id(error) not in seen:
        seen.add(id(error))
        error = error.__cause__
    return str(error) or type(error).__name__
