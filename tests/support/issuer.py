"""An issuer of tokens on a free port of this machine, with real keys; it can misbehave.

    with Issuer() as issuer:
        token = issuer.token(sub="ada", aud="https://tools.example.com/mcp")

It speaks HTTP, is asked for its metadata and its keys, and keeps what it was asked for.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

AUDIENCE = "https://tools.example.com/mcp"
METADATA = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"


@cache
def private_key(algorithm="RS256", name="first"):
    """A key of its own for each name; made once, as it takes a while."""
    if algorithm[:2] in {"RS", "PS"}:
        return rsa.generate_private_key(65_537, 1_024 if name == "weak" else 2_048)
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    return ec.generate_private_key({"ES256": ec.SECP256R1, "ES384": ec.SECP384R1}[algorithm]())


def jwk(algorithm="RS256", name="first", **more):
    """The public half of a key, as issuers publish it; None takes a member out."""
    made = jwt.get_algorithm_by_name(algorithm).to_jwk(
        private_key(algorithm, name).public_key(), as_dict=True
    )
    made = {**made, "kid": name, "use": "sig", "alg": algorithm, **more}
    return {key: value for key, value in made.items() if value is not None}


class Issuer:
    """The issuer, at `url`; `answers` says what is where, and can be changed at any time."""

    def __init__(self, path="", metadata=METADATA, algorithms=("RS256",)):
        self.asked = []
        self.keys = [jwk(algorithm) for algorithm in algorithms]
        self.answers = {}
        """What is said instead, by path: a status, bytes, data, or a function of the request."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self.host = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.host}{path}"
        self._good = {
            metadata: lambda: {"issuer": self.url, "jwks_uri": f"http://{self.host}/keys"},
            "/keys": lambda: {"keys": self.keys},
        }
        self._ending = threading.Event()

    def __enter__(self):
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ending.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def token(self, algorithm="RS256", name="first", header=None, **claims):
        """A token that is good, but for what is said; None takes a claim out."""
        now = int(time.time())
        told = {"iss": self.url, "aud": AUDIENCE, "sub": "ada", "iat": now, "exp": now + 600}
        told = {key: value for key, value in {**told, **claims}.items() if value is not None}
        head = {key: v for key, v in {"kid": name, **(header or {})}.items() if v is not None}
        return jwt.encode(told, private_key(algorithm, name), algorithm, head)

    def drip(self, request):
        """Answer one byte after the other, for as long as somebody listens."""
        request.send_response(200)
        request.send_header("Content-Length", "1000000")
        request.end_headers()
        with contextlib.suppress(OSError):
            while not self._ending.wait(0.02):
                request.wfile.write(b" ")

    def _handler(issuer):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                issuer.asked.append(self.path)
                found = issuer.answers.get(self.path)
                if found is None and self.path in issuer._good:
                    found = issuer._good[self.path]()
                if callable(found):
                    self.close_connection = True
                    found(self)
                    return
                status, headers, body = 200, {}, found
                if found is None or isinstance(found, int):
                    status, body = found or 404, b"{}"
                elif isinstance(found, tuple):
                    status, headers, body = found
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                for key, value in {"Content-Length": len(data), **headers}.items():
                    self.send_header(key, str(value))
                self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.write(data)

            def log_message(self, *_):
                pass

        return Handler
