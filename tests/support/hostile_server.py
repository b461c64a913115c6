"""An MCP server that lies on request, written without the SDK; both eras, stdio and HTTP.

As a process, and in a thread of the test:

    command("schemas", era="legacy")                     # a list, for stdio
    with served(on={"tools/list": "never"}) as upstream:  # over HTTP
        upstream.url, upstream.received, upstream.on, upstream.sessions

Words: a group of bad definitions (`schemas`, `definitions`, `poisoned`), a way to list tools
(`pages_loop`, …, see `hostile_tools.LISTS`), or a way to start over stdio: `crash` (exit status 3),
`garbage` (text on stdout before the first answer). Every tool is named for its behaviour: see
`hostile_tools.py`. Options, the same for both:

- `era`: `legacy` (2025-11-25, handshake), `modern` (2026-07-28, stateless) or `both`.
- `on`: method → behaviour, in place of the method's own answer.
- `only`: names of the tools that are listed.
- `changes`: arguments of the tool `mutate`, done before the start.
- `name`, `instructions`: of the server.
- `delay`: seconds before it reads anything.
- `port`: over HTTP, as after a restart; a free one unless given.
- `token`: over HTTP, 401 without this bearer token.
- `ref`: where the network reference of a schema leads; over HTTP to the server itself, which records.
- `record`: a file that gets a JSON line for all that is received, and for each start.
- `once`: a file; words, `on` and `delay` hold only for the process that makes it.

`python hostile_server.py WORD… '{"era": "legacy"}'` starts it by hand.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
import time
import traceback
import uuid
from pathlib import Path

from hostile_tools import BEHAVIOURS, EXTRAS, LISTS, TOOLS, text

LEGACY, MODERN = "2025-11-25", "2026-07-28"
META = "io.modelcontextprotocol"
PATIENCE = 30
"""Seconds for the server in a thread to start and to end."""
FOLLOWED = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
}
NOTE = {"uri": "test://notes/1", "name": "note", "mimeType": "text/plain"}
META_OF = {"example.com/of": 1}
"""The `_meta` of the answers of resources and prompts."""
PROMPT = {"name": "greet", "description": "Greet", "arguments": [{"name": "who", "required": True}]}


def command(*words, **options):
    """The command of a server over stdio."""
    return [sys.executable, __file__, *words, json.dumps(options, default=str)]


class Upstream:
    """The state of one server, whatever carries its messages."""

    def __init__(
        self,
        *words,
        era="both",
        on=None,
        only=None,
        changes=(),
        name="hostile",
        instructions="Be careful.",
        delay=0,
        token=None,
        ref="http://127.0.0.1:9/schema.json",
        record=None,
        once=None,
    ):
        self.era, self.name, self.instructions, self.token = era, name, instructions, token
        self.received, self.url = [], None
        self._record, self._ref = record, ref
        self.words, self.on, self.delay = set(words), dict(on or {}), delay
        if once is not None and Path(once).exists():
            self.words, self.on, self.delay = set(), {}, 0
        elif once is not None:
            Path(once).touch()
        unknown = self.words - {"crash", "garbage", *EXTRAS, *LISTS}
        assert not unknown, unknown
        for word in self.words & set(LISTS):
            self.on["tools/list"] = word
        extras = [item for word in EXTRAS if word in self.words for item in EXTRAS[word]]
        self.definitions = {
            "tools": [*TOOLS.values(), *extras],
            "prompts": [PROMPT],
            "resources": [NOTE],
        }
        if only is not None:
            self.definitions["tools"] = [TOOLS[name] for name in only]
        self.definitions = json.loads(json.dumps(self.definitions))
        for change in changes:
            self._change(**change)
        self.sessions = {}
        """HTTP: session id → its `Session`."""
        self.listeners = {}
        """Exchange of `subscriptions/listen` → its filter."""
        self.running, self.asked = {}, {}
        self._held, self._released = 0, asyncio.Event()
        self.note("start", pid=os.getpid())

    def note(self, method, **more):
        entry = {"method": method, **more}
        self.received.append(entry)
        if self._record is not None:
            with Path(self._record).open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")

    def listed(self, kind):
        written = json.dumps(self.definitions[kind])
        return json.loads(written.replace("{REF}", self._ref))

    async def mutate(self, **change):
        """Change a definition, and notify."""
        self._change(**change)
        await self.notify(f"notifications/{change.get('kind', 'tools')}/list_changed")

    def _change(self, name, fields, kind="tools"):
        """Set fields (null takes one away); with null for all of them the definition goes."""
        entries = self.definitions[kind]
        found = next((e for e in entries if isinstance(e, dict) and e.get("name") == name), None)
        if fields is None:
            entries.remove(found)
            return
        if found is None:
            found = {"name": name, "inputSchema": {"type": "object"}} if kind == "tools" else {}
            entries.append(found)
        found |= {"name": name, **fields}
        for key in [key for key, value in fields.items() if value is None]:
            del found[key]

    async def hold(self):
        self._held += 1
        released = self._released
        await released.wait()

    def release(self):
        held, self._held = self._held, 0
        self._released.set()
        self._released = asyncio.Event()
        return held

    async def notify(self, method, **params):
        """Notify all clients that follow, as their era has it."""
        await self.announce({"jsonrpc": "2.0", "method": method, "params": params})
        for listener, wanted in [*self.listeners.items()]:
            uris = wanted.get("resourceSubscriptions", ())
            if wanted.get(FOLLOWED.get(method)) or params.get("uri") in uris:
                meta = {"_meta": {f"{META}/subscriptionId": listener.id}}
                await listener.notify(method, {**params, **meta})

    async def announce(self, message):
        """Send to the clients of the older eras."""
        raise NotImplementedError

    async def run(self, x):
        """Answer one request; a cancelled one gets no answer."""
        key = (x.session, json.dumps(x.id))
        self.running[key] = asyncio.current_task()
        try:
            if x.method in self.on:
                await BEHAVIOURS[self.on[x.method]](x)
            else:
                await self._answer(x)
        except ConnectionError:
            raise
        except Exception as error:  # A fault of the kit, not one of its behaviours.
            traceback.print_exc()
            await x.fail(-32603, f"the test kit failed: {error!r}")
        finally:
            if self.running.get(key) is asyncio.current_task():
                del self.running[key]
            self.listeners.pop(x, None)

    def take(self, message, session):
        """Take a message that is no request: a notification or an answer to ours."""
        if "method" not in message:
            answered = self.asked.pop(message.get("id"), None)
            if answered is not None and not answered.done():
                answered.set_result(message)
        elif message["method"] == "notifications/cancelled":
            key = (session, json.dumps(message.get("params", {}).get("requestId")))
            if key in self.running:
                self.running[key].cancel()

    async def _answer(self, x):
        match x.method:
            case "initialize" if self.era != "modern":
                await x.begin()
                known = {"protocolVersion": LEGACY, "capabilities": self._capabilities()}
                info = {"name": self.name, "version": "1"}
                await x.reply({**known, "serverInfo": info, "instructions": self.instructions})
            case "initialize":
                await x.fail(-32022, "unsupported version", supported=[MODERN], requested=LEGACY)
            case "server/discover" if x.is_modern and self.era != "legacy":
                versions = [MODERN] if self.era == "modern" else [MODERN, LEGACY]
                known = {"supportedVersions": versions, "capabilities": self._capabilities()}
                cached = {"ttlMs": 0, "cacheScope": "private"}
                await x.reply({**known, **cached, "instructions": self.instructions})
            case _ if x.is_modern and self.era == "legacy":
                await x.fail(-32601, "no such method")
            case _ if not x.is_modern and self.era == "modern":
                await x.fail(-32022, "unsupported version", supported=[MODERN], requested="none")
            case "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe":
                await x.reply({})
            case "tools/list":
                await x.list("tools", self.listed("tools"))
            case "tools/call":
                await self._call(x)
            case "resources/list":
                await x.list("resources", self.listed("resources"))
            case "resources/templates/list":
                one = {"uriTemplate": "test://notes/{number}", "name": "notes"}
                await x.list("resourceTemplates", [one])
            case "resources/read":
                await self._read(x)
            case "prompts/list":
                await x.list("prompts", self.listed("prompts"))
            case "prompts/get":
                words = f"Greet {x.params.get('arguments', {}).get('who')}"
                message = {"role": "user", "content": text(words)}
                await x.reply({"description": "Greet", "messages": [message], "_meta": META_OF})
            case "completion/complete":
                values = [n for n in ("ada", "alan") if n.startswith(x.params["argument"]["value"])]
                await x.reply({"completion": {"values": values, "total": len(values)}})
            case "subscriptions/listen":
                wanted = x.params.get("notifications", {})
                self.listeners[x] = wanted
                meta = {"_meta": {f"{META}/subscriptionId": x.id}}
                taken = {"notifications": wanted, **meta}
                await x.notify("notifications/subscriptions/acknowledged", taken)
                await x.forever()
            case _:
                await x.fail(-32601, "no such method")

    def _capabilities(self):
        changing = {"listChanged": True}
        return {
            "tools": changing,
            "prompts": changing,
            "resources": {**changing, "subscribe": True},
            "completions": {},
            "logging": {},
        }

    async def _call(self, x):
        name = x.params.get("name")
        listed = [e.get("name") for e in self.definitions["tools"] if isinstance(e, dict)]
        if name not in listed:
            await x.fail(-32602, f"Unknown tool: {name}")
        else:
            await BEHAVIOURS.get(name, BEHAVIOURS["echo"])(x)

    async def _read(self, x):
        uri = x.params.get("uri", "")
        number = uri.removeprefix("test://notes/")
        if not number.isdigit():
            code = -32602 if x.is_modern else -32002
            await x.fail(code, "no such resource", uri=uri)
            return
        cached = {"ttlMs": 0, "cacheScope": "private"} if x.is_modern else {}
        note = {"uri": uri, "mimeType": "text/plain", "text": f"note {number}"}
        await x.reply({"contents": [note], **cached, "_meta": META_OF})


class Exchange:
    """One request and the way back to its sender; a behaviour answers by it."""

    def __init__(self, upstream, message, headers=None, session=None):
        params = message.get("params")
        self.upstream, self.id, self.method = upstream, message.get("id"), message.get("method")
        self.params = params if isinstance(params, dict) else {}
        self.arguments = self.params.get("arguments") or {}
        self.headers, self.session = headers or {}, session
        self.is_modern = f"{META}/protocolVersion" in self.params.get("_meta", {})

    async def reply(self, result):
        """Answer with a result, with what the era asks for; `resultType: None` leaves that out."""
        if isinstance(result, dict):
            result = dict(result)
            if self.is_modern:
                result = {"resultType": "complete", **result}
                info = {f"{META}/serverInfo": {"name": self.upstream.name, "version": "1"}}
                result["_meta"] = {**info, **result.get("_meta", {})}
            if not self.is_modern or result["resultType"] is None:
                result.pop("resultType", None)
        await self.answer({"jsonrpc": "2.0", "id": self.id, "result": result})

    async def list(self, kind, entries):
        cached = {"ttlMs": 0, "cacheScope": "private"} if self.is_modern else {}
        await self.reply({kind: entries, **cached})

    async def fail(self, code, message, **data):
        error = {"code": code, "message": message} | ({"data": data} if data else {})
        await self.answer({"jsonrpc": "2.0", "id": self.id, "error": error})

    async def notify(self, method, params):
        await self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def request(self, method, params):
        """Ask the client back; gives its whole answer."""
        ours = f"asked-{uuid.uuid4()}"
        self.upstream.asked[ours] = answered = asyncio.get_running_loop().create_future()
        await self.send({"jsonrpc": "2.0", "id": ours, "method": method, "params": params})
        return await answered

    async def forever(self):
        await asyncio.Event().wait()

    async def begin(self):
        """Begin a session, where there are some."""


def _pieces(pieces, seconds):
    """The pieces, with a pause after each."""

    async def paused():
        for piece in pieces:
            yield piece
            await asyncio.sleep(seconds)

    return paused()


# --- stdio --------------------------------------------------------------------------------------


class Line(Exchange):
    """A request in a line; while one line is written, no other can be."""

    lock = asyncio.Lock()

    async def send(self, *messages):
        await self.noise(b"\n".join(json.dumps(message).encode() for message in messages))

    answer = send

    async def noise(self, line):
        await self.stream([line])

    async def stream(self, pieces, seconds=0):
        async with self.lock:
            async for piece in _pieces(pieces, seconds):
                await asyncio.to_thread(_write, piece)
            await asyncio.to_thread(_write, b"\n")

    async def end(self):
        """Nothing follows."""

    async def crash(self):
        os.kill(os.getpid(), signal.SIGKILL)

    async def close(self):
        os.close(1)
        await self.forever()

    async def respond(self, status, headers, body):
        await self.reply({"content": [text("only over HTTP")], "isError": True})


def _write(data):
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(1, rest) :]


class _Stdio(Upstream):
    async def announce(self, message):
        if any(entry["method"] == "initialize" for entry in self.received):
            await Line(self, {}).send(message)


async def _serve_stdio(upstream):
    if "crash" in upstream.words:
        sys.stderr.write("cannot start: no licence\n")
        raise SystemExit(3)
    time.sleep(upstream.delay)
    if "garbage" in upstream.words:
        _write(b"Welcome to hostile 1.0!\n\nlistening \xe2\x80\xa6 \xff\n{}\n")
    reader = asyncio.StreamReader(limit=1 << 30)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    tasks = set()
    async for line in reader:
        message = json.loads(line)
        known = {k: message[k] for k in ("id", "params", "result", "error") if k in message}
        upstream.note(message.get("method"), **known)
        if "method" in message and "id" in message:
            task = asyncio.create_task(upstream.run(Line(upstream, message)))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        else:
            upstream.take(message, None)
    os._exit(0)  # A thread may be stuck in a write to a pipe that nobody reads.


# --- HTTP ---------------------------------------------------------------------------------------


class Post(Exchange):
    """A request over HTTP: answered as JSON, or as events once something went before the answer."""

    def __init__(self, upstream, message, headers, session, writer):
        super().__init__(upstream, message, headers, session)
        self.writer, self._is_streaming = writer, False
        self._session_header = {}

    async def send(self, *messages):
        for message in messages:
            self._event(json.dumps(message).encode())
        await self._flush()

    async def noise(self, line):
        self._event(line)
        await self._flush()

    async def open(self):
        """Begin the stream of events."""
        if not self._is_streaming:
            self._is_streaming = True
            self._head(200, {"Content-Type": "text/event-stream"})
        await self._flush()

    async def answer(self, message):
        body = json.dumps(message).encode()
        if self._is_streaming:
            self._event(body)
        else:
            code = message.get("error", {}).get("code") if isinstance(message, dict) else None
            status = {-32601: 404, -32022: 400, -32020: 400, -32602: 400}.get(code, 200)
            length = {"Content-Type": "application/json", "Content-Length": len(body)}
            self._head(status if self.is_modern else 200, length)
            self.writer.write(body)
        await self.end()

    async def stream(self, pieces, seconds=0):
        self._head(200, {"Content-Type": "application/json"})
        async for piece in _pieces(pieces, seconds):
            self.writer.write(piece)
            await self._flush()
        await self.end()

    async def respond(self, status, headers, body):
        self._head(status, {"Content-Length": len(body), **headers})
        self.writer.write(body)
        await self.end()

    async def end(self):
        """Nothing follows: the connection is closed."""
        await self._flush()
        self.writer.close()

    async def close(self):
        self.writer.transport.abort()

    async def crash(self):
        self.upstream.forget()

    async def begin(self):
        self.session = uuid.uuid4().hex
        self.upstream.sessions[self.session] = Session()
        self._session_header = {"Mcp-Session-Id": self.session}

    def _event(self, data):
        if not self._is_streaming:
            self._is_streaming = True
            self._head(200, {"Content-Type": "text/event-stream"})
        self.writer.write(b"event: message\ndata: " + data + b"\n\n")

    def _head(self, status, headers):
        given = {"Connection": "close", **self._session_header, **headers}
        lines = [f"HTTP/1.1 {status} t", *(f"{name}: {value}" for name, value in given.items())]
        self.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n")

    async def _flush(self):
        await self.writer.drain()


class Session:
    """The GET stream of a session; what is sent before it is open waits."""

    def __init__(self):
        self.stream, self._waiting = None, []

    async def send(self, *messages):
        self._waiting += messages
        if self.stream is not None:
            waiting, self._waiting = self._waiting, []
            await self.stream.send(*waiting)


class HttpUpstream(Upstream):
    """A server at `url`; one request for each connection."""

    def __init__(self, *words, port=0, **options):
        super().__init__(*words, **options)
        self._own_ref, self._port = "ref" not in options, port
        self._writers = set()

    async def start(self):
        """Listen, on a free port unless one is given."""
        await asyncio.sleep(self.delay)
        server = await asyncio.start_server(self._connected, "127.0.0.1", self._port)
        origin = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self.url = f"{origin}/mcp"
        if self._own_ref:
            self._ref = f"{origin}/schema.json"
        return server

    def forget(self):
        """Lose all sessions and connections, as a server does that is started anew."""
        self.sessions.clear()
        for writer in [*self._writers]:
            writer.transport.abort()

    async def announce(self, message):
        for session in [*self.sessions.values()]:
            await session.send(message)

    async def _connected(self, reader, writer):
        self._writers.add(writer)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._request(reader, writer)
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _request(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ")
        pairs = (line.split(":", 1) for line in head[1:] if line)
        headers = {name.strip().lower(): value.strip() for name, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        message = json.loads(body) if body else {}
        session = headers.get("mcp-session-id")
        x = Post(self, message, headers, session, writer)
        self.note(
            message.get("method", method),
            headers=headers,
            **{k: message[k] for k in ("id", "params", "result", "error") if k in message},
        )
        if refusal := self._refusal(x, method, path):
            await x.respond(*refusal)
        elif x.is_modern and (wrong := self._misrouted(x)):
            await x.fail(-32020, wrong)
        elif method == "DELETE":
            del self.sessions[session]
            await x.respond(200, {}, b"")
        elif method == "GET":
            held = self.sessions[session]
            held.stream = x
            await x.open()
            await held.send()
            await reader.read()
            held.stream = None if held.stream is x else held.stream
        elif "method" not in message or "id" not in message:
            self.take(message, session)
            await x.respond(202, {}, b"")
        else:
            await self._watched(x, reader)

    async def _watched(self, x, reader):
        """Answer, unless the client goes first: that is how a request of 2026-07-28 is cancelled."""
        answering = asyncio.create_task(self.run(x))
        leaving = asyncio.create_task(reader.read())
        await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            self.note("closed", id=x.id, request=x.method)
            # Before 2026-07-28 a lost stream is no cancellation, but nobody waits here either.
            answering.cancel()
            await asyncio.wait({answering})
        elif answering.cancelled():
            await x.open()  # A cancelled request gets a stream without an answer.
        leaving.cancel()
        if not answering.cancelled() and (error := answering.exception()):
            raise error

    def _refusal(self, x, method, path):
        if path != "/mcp":
            return 404, {}, b"nothing here"
        if self.token is not None and x.headers.get("authorization") != f"Bearer {self.token}":
            return 401, {"WWW-Authenticate": 'Bearer error="invalid_token"'}, b"who are you"
        if method != "POST" and (self.era == "modern" or method not in {"GET", "DELETE"}):
            return 405, {"Allow": "POST"}, b"POST only"
        if x.is_modern or x.method == "initialize":
            return None
        if x.session is None and self.era != "modern":
            return 400, {}, b"no session"
        if x.session is not None and x.session not in self.sessions:
            return 404, {}, b"no such session"
        return None

    def _misrouted(self, x):
        """How the headers of 2026-07-28 differ from the body; empty if they do not."""
        name = x.params.get("uri" if x.method == "resources/read" else "name")
        version = x.params["_meta"][f"{META}/protocolVersion"]
        wanted = {"mcp-protocol-version": version, "mcp-method": x.method}
        if x.method in {"tools/call", "prompts/get", "resources/read"} and str(name).isascii():
            wanted["mcp-name"] = name
        return ", ".join(key for key, value in wanted.items() if x.headers.get(key) != value)


@contextlib.contextmanager
def served(*words, **options):
    """Serve over HTTP in a thread of this process; gives the `HttpUpstream`."""
    started, found, loop = threading.Event(), [], asyncio.new_event_loop()

    async def run():
        ended = asyncio.Event()
        try:
            upstream = HttpUpstream(*words, **options)
            server = await upstream.start()
            upstream.stop = lambda: loop.call_soon_threadsafe(ended.set)
            found.append(upstream)
        finally:
            started.set()
        await ended.wait()
        server.close()
        upstream.forget()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    try:
        assert started.wait(PATIENCE)
        yield found[0]
    finally:
        if found:
            found[0].stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()
        loop.close()


def main(arguments):
    """Serve over stdio: words, and options as JSON."""
    words = [argument for argument in arguments if not argument.startswith("{")]
    options = {k: v for a in arguments if a.startswith("{") for k, v in json.loads(a).items()}
    asyncio.run(_started(words, options))


async def _started(words, options):
    await _serve_stdio(_Stdio(*words, **options))


if __name__ == "__main__":
    main(sys.argv[1:])
