"""`Engine` opens files with hooks: their module runs once in the sandbox, and its state is kept.

Blocking; `pool.py` is the interface for asyncio. It knows nothing of FlowMCP files or tools. The
guest is loaded on first use, not on import.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from callpact.sandbox.guest.image import Image
from callpact.sandbox.guest.machine_pool import Machines
from callpact.sandbox.hook_limits import HookLimits
from callpact.sandbox.js.builtin_modules import CRYPTO
from callpact.sandbox.load import HooksRefused, Loading
from callpact.sandbox.realm import Realm

if TYPE_CHECKING:
    from callpact.sandbox.packs.library import Pack


class Engine:
    """The sandbox of all hooks of a process; any thread with 4 MiB of stack or more may use it.

    `cache` is a directory for the compiled guest, private to this user; without one the guest is
    compiled in each process, which takes more than a second.
    """

    def __init__(self, cache: Path | None = None, limits: HookLimits | None = None) -> None:
        self.limits = limits or HookLimits()
        self.machines = Machines(cache, self.limits.memory_bytes)
        self._lock = threading.Lock()
        self._bases: dict[tuple[tuple[str, str], ...], Image] = {}

    def open(
        self,
        source: str,
        *,
        main: str,
        lists: str,
        packs: Sequence[Pack] = (),
        modules: Sequence[str] = (),
    ) -> Realm:
        """The hooks of a file: its text, its `main` and its shared lists as JSON texts.

        `modules` are the built-in modules that it needs (`js/builtin_modules.py`).

        Raises:
            HooksRefused: the file's code fails, exceeds a limit, or contradicts its `main`.
            PackRefused: a pack cannot be read or is not what was built.
            UsageError: the lists are not JSON, or the guest cannot be used.
        """
        try:
            text = source.encode()
        except UnicodeEncodeError as error:
            raise HooksRefused("SyntaxError", f"the text is not Unicode: {error.reason}") from None
        loading = Loading(self.machines, self.limits)
        hooks, image = loading.load(self._base(loading, packs, modules), text, main, lists)
        return Realm(self.machines, self.limits, image, hooks, is_seeded=CRYPTO in modules)

    def close(self) -> None:
        """Free all memory that no call uses; open realms cannot be called any more."""
        self.machines.close()

    def _base(self, loading: Loading, packs: Sequence[Pack], modules: Sequence[str]) -> Image:
        key = (*((module, "") for module in modules), *((p.name, p.sha256) for p in packs))
        with self._lock:
            if key not in self._bases:
                self._bases[key] = loading.boot(packs, modules)
            return self._bases[key]
