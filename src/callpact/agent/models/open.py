"""Real models by name, or at any OpenAI-compatible address: the extra `callpact[models]`.

pydantic-ai sends the requests (only its `direct` module is used); it is imported on first use.
Opening a model sends nothing.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import threading
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Self, cast
from urllib.parse import urlsplit

from callpact.errors import UsageError

if TYPE_CHECKING:
    from types import TracebackType

    from pydantic_ai.models import Model as TheirModel
    from pydantic_ai.providers import Provider

    from callpact.agent.models.model import ModelReply, ModelRequest
    from callpact.agent.models.pydantic_ai import OpenedModel

_INSTALL = 'real models need more: pip install "callpact[models]"'
_GROUP = re.compile(r"pydantic-ai-slim\[([a-z-]+)\]")
_VARIABLE = re.compile(r"`([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)`")
_CHAT = frozenset({"openai", "openai-chat"})


def open_model(
    model: str | TheirModel,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    abilities: Iterable[str] | None = None,
    **options: Any,
) -> OpenedModel:
    """Open a model: `open_model("openai:gpt-5")`, `open_model("anthropic:claude-opus-4-5")`.

    `base_url` is the address of any OpenAI-compatible server: Ollama, vLLM, LM Studio. Without
    `api_key` the environment variable of the vendor is read; OpenAI's key is sent to OpenAI only.
    The abilities are those of pydantic-ai's profile of the model; `abilities` overrides them, and
    is required to declare any for a server at a `base_url`. Further options are those of the
    vendor, such as `region_name`. `model` may also be a model of pydantic-ai.

    Raises:
        UsageError: the name is unknown, a package or a key is missing, or an option is not valid.
    """
    try:
        from pydantic_ai.models import Model as TheirModel

        from callpact.agent.models.pydantic_ai import OpenedModel
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith(("pydantic_ai", "genai_prices")):
            raise
        raise UsageError(_INSTALL) from None
    given: Any = model
    if isinstance(given, TheirModel):
        if base_url is not None or api_key is not None or options:
            raise UsageError("a model of pydantic-ai has its address, key and options already")
        made = cast("TheirModel[Any]", given)
        key = getattr(getattr(made, "client", None), "api_key", None)
        return OpenedModel(made, made.model_id, _keys({"api_key": key}), abilities)
    if not isinstance(given, str):
        raise UsageError(
            "open_model takes a name such as 'openai:gpt-5', or a model of pydantic-ai, "
            f"got {type(given).__name__}"
        )
    _check_key(api_key)
    named = {"base_url": base_url, "api_key": api_key, **options}
    arguments = {name: value for name, value in named.items() if value is not None}
    name = given if base_url is None else f"{given}@{_place(base_url)}"
    return OpenedModel(_built(given, arguments), name, _keys(arguments), abilities)


class NamedModel:
    """A model by its name, opened by `open_model` on first use.

    Raises:
        UsageError: the name has no vendor or no model; on first use, as `open_model`.
    """

    def __init__(self, name: str) -> None:
        vendor, _, rest = name.partition(":")
        if not vendor.strip() or not rest.strip():
            raise UsageError(
                f"there is no model '{name:.100}': expected a vendor, a colon and a model, such as "
                "'openai:gpt-5'"
            )
        self.name = name
        self._lock = threading.Lock()
        self._opened: OpenedModel | None = None

    @property
    def abilities(self) -> frozenset[str]:
        """The abilities that the model declares."""
        return self._open().abilities

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Return the whole reply."""
        return await (await asyncio.to_thread(self._open)).complete(request)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[str | ModelReply, None]:
        """Yield the reply piece by piece; the last item is the whole reply."""
        model = await asyncio.to_thread(self._open)
        async with aclosing(model.stream(request)) as items:
            async for item in items:
                yield item

    async def __aenter__(self) -> Self:
        await (await asyncio.to_thread(self._open)).__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._open().__aexit__(kind, error, traceback)

    def _open(self) -> OpenedModel:
        with self._lock:  # Importing pydantic-ai takes a second or two.
            self._opened = self._opened or open_model(self.name)
            return self._opened

    def __repr__(self) -> str:
        return f"NamedModel({self.name!r})"


def _built(name: str, arguments: dict[str, Any]) -> TheirModel:
    from pydantic_ai.exceptions import UserError
    from pydantic_ai.models import infer_model
    from pydantic_ai.providers import infer_provider_class

    vendor, _, rest = name.partition(":")
    if not vendor or not rest:
        raise _unknown(name)
    failure: UsageError
    try:
        if vendor in _CHAT and "base_url" in arguments:
            return _compatible(rest, arguments)
        if vendor.startswith("gateway/"):
            _check_options(name, arguments, ())
            return infer_model(name)
        maker = infer_provider_class(vendor)
        _check_options(name, arguments, inspect.signature(maker.__init__).parameters)

        def made(_: str) -> Provider[Any]:
            return maker(**arguments)

        return infer_model(name, made)
    except UsageError:
        raise
    except ImportError as error:
        failure = _missing_package(name, error)
    except UserError as error:
        failure = _refused(name, error.message, arguments)
    except Exception as error:  # noqa: BLE001 - boundary: clients of models raise what they like
        # The error text of infer_provider_class.
        if isinstance(error, ValueError) and "Unknown provider" in str(error):
            failure = _unknown(name)
        else:
            failure = _refused(name, str(error) or type(error).__name__, arguments)
    raise failure


def _compatible(name: str, arguments: dict[str, Any]) -> TheirModel:
    """Make a model of a server that is compatible with OpenAI's chat completions."""
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    allowed = ("base_url", "api_key", "http_client")
    _check_options(f"openai:{name}", arguments, allowed)
    server = OpenAICompatibleProvider("openai", **arguments)
    # A stream that ends without a finish reason was cut off: its text is no answer.
    profile = OpenAIModelProfile(openai_chat_streaming_requires_finish_reason=True)
    return OpenAIChatModel(name, provider=server, profile=profile)


# --- checks and errors ----------------------------------------------------------------------


def _keys(arguments: dict[str, Any]) -> Any:
    from callpact.agent.models.pydantic_ai import keys_of

    password = urlsplit(str(arguments.get("base_url") or "")).password
    return keys_of(os.environ, arguments, {"password": password})


def _check_key(api_key: Any) -> None:
    if api_key is None:
        return
    if not isinstance(api_key, str):
        raise UsageError(f"api_key must be text, got {type(api_key).__name__}")
    if not api_key or api_key != api_key.strip() or not api_key.isprintable():
        raise UsageError("api_key is empty, or has a space or a line break at one end")


def _place(base_url: Any) -> str:
    """Return the host and port of an address.

    Raises:
        UsageError: the text is no address.
    """
    try:
        parts = urlsplit(base_url if isinstance(base_url, str) else "")
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if parts.scheme not in {"http", "https"} or not host:
        raise UsageError(
            "base_url must be the address of a server, such as 'http://127.0.0.1:11434/v1'"
        )
    shown = f"[{host}]" if ":" in host else host
    return shown if port is None else f"{shown}:{port}"


def _check_options(name: str, arguments: dict[str, Any], allowed: Iterable[str]) -> None:
    takes = sorted(set(allowed) - {"self"})
    if unknown := sorted(arguments.keys() - set(takes)):
        raise UsageError(
            f"'{name}' takes no {unknown[0]}; it takes {', '.join(takes) or 'no options'}"
        )


def _unknown(name: str) -> UsageError:
    from pydantic_ai.models import known_model_names

    known = [each for each in known_model_names() if not each.startswith("gateway/")]
    near = get_close_matches(name, known, n=3, cutoff=0.6)
    if not near:  # The vendor was left out, or misspelt.
        rest = name.rpartition(":")[2]
        by_length = sorted(known, key=len, reverse=True)  # Of two vendors the shorter name wins.
        by_rest = {each.partition(":")[2]: each for each in by_length}
        near = [by_rest[each] for each in get_close_matches(rest, by_rest, n=3, cutoff=0.6)]
    hint = f"; near it: {', '.join(near)}" if near else ""
    return UsageError(
        f"there is no model '{name:.100}': expected a vendor, a colon and a model, such as "
        f"'openai:gpt-5'{hint}"
    )


def _missing_package(name: str, error: ImportError) -> UsageError:
    group = _GROUP.search(str(error))
    if group is None:
        return UsageError(f"'{name}' needs a package that is not installed: {error}")
    return UsageError(f"'{name}' needs more: pip install \"pydantic-ai-slim[{group[1]}]\"")


def _refused(name: str, text: str, arguments: dict[str, Any]) -> UsageError:
    from callpact.agent.models.pydantic_ai import shown

    if text.startswith("Unknown model"):
        return _unknown(name)
    variables: list[str] = list(dict.fromkeys(_VARIABLE.findall(text)))
    if not variables:
        return UsageError(f"'{name}' cannot be opened: {shown(text, _keys(arguments))}")
    option = "base_url" if variables[0].endswith("_URL") else "api_key"
    return UsageError(f"'{name}' needs {' or '.join(variables)} in the environment, or {option}=…")
