"""Servers that are spoken to in lines, over pipes: as a process of their own, or in this one.

with Piped("behaviour.py") as served:
    served.assert_works()
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
from pathlib import Path

import raw
import ways

PATIENCE = raw.PATIENCE
MODERN, LEGACY = "2026-07-28", "legacy"
SERVE = [sys.executable, *ways.callpact(), "serve", "--stdio", "-s"]
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}


class Wire:
    """The client's ends of two pipes; everything is given up after PATIENCE."""

    def __init__(self, sending, reading):
        self.sending, self.reading = sending, reading
        self._read = b""
        self._number = 0

    def send(self, *lines):
        for line in lines:
            rest = memoryview(encoded(line))
            while rest:
                rest = rest[os.write(self.sending, rest) :]

    def hang_up(self):
        if self.sending >= 0:
            os.close(self.sending)
        self.sending = -1

    def is_told(self):
        """True if there is something more to read."""
        return bool(select.select([self.reading], [], [], PATIENCE)[0])

    def line(self):
        """The next line with its end; what there is at the end of all."""
        while b"\n" not in self._read:
            assert self.is_told(), self._read
            chunk = os.read(self.reading, 1 << 20)
            if not chunk:
                break
            self._read += chunk
        line, end, self._read = self._read.partition(b"\n")
        return line + end

    def read(self):
        return json.loads(self.line())

    def call(self, name, /, *, era=MODERN, **arguments):
        """A call in bytes, with an id of its own."""
        self._number += 1
        params = {"name": name, "arguments": arguments}
        if era == MODERN:
            return raw.message("tools/call", number=self._number, **params)
        return {"jsonrpc": "2.0", "id": self._number, "method": "tools/call", "params": params}

    def open(self, era):
        """What a client of an era says first."""
        if era == LEGACY:
            self.send(raw.initialize(0), READY)
            assert self.read()["id"] == 0

    def assert_works(self, era=MODERN, name="behaviour_add"):
        asked = self.call(name, era=era, a=1, b=2)
        self.send(asked)
        answer = self.read()
        assert (answer["id"], answer["result"]["isError"]) == (asked["id"], False)


def encoded(line):
    return line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n"


class Piped(Wire):
    """`callpact serve --stdio` as a process."""

    def __init__(self, *sources, stdin=subprocess.PIPE, stdout=subprocess.PIPE):
        command = [*SERVE, *map(str, sources)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=pipe, bufsize=0)
        ends = [self.process.stdin, self.process.stdout]
        super().__init__(*[-1 if end is None else end.fileno() for end in ends])
        self.errors = b""
        self._reader = threading.Thread(target=self._drain)
        self._reader.start()

    def _drain(self):
        for line in self.process.stderr:
            self.errors += line

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.wait()

    def wait(self):
        """The exit code, once it has ended."""
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        for end in (self.process.stdin, self.process.stdout, self.process.stderr):
            if end is not None:
                end.close()
        return code

    def hang_up(self):
        """Give what is answered before the end, in lines."""
        self.process.stdin.close()
        told = list(iter(self.line, b""))
        assert self.wait() == 0, self.errors
        assert b"Traceback" not in self.errors
        return told

    def most_memory(self):
        """Bytes of memory that the process has had at most."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) << 10
