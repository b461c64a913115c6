"""The page of numbers at the HTTP door: where it stands, and who may read it."""

from __future__ import annotations

import pytest

from callpact.context import Identity
from callpact.errors import InvalidConfig
from callpact.serve import Authentication, BearerToken
from callpact.serve.http.http_server import check_place
from callpact.telemetry import Metrics
from callpact.telemetry.metrics import CONTENT_TYPE
from serving import CALL, CI, TOKENS, Serving

SCRAPER = "scraper-0123456789abcdef"
AUTHENTICATION = Authentication(
    (*TOKENS, BearerToken.of(SCRAPER, Identity("prometheus", ("metrics",))))
)


def ask(serving, path="/metrics", method="GET", body=b"", **headers):
    with serving.connect() as line:
        return line.ask(body, method=method, path=path, **headers)


def test_on_this_machine_the_page_is_open():
    metrics = Metrics()
    with Serving(page=metrics.render) as serving:
        answer = ask(serving)
        assert answer.status == 200
        assert answer.headers["content-type"] == CONTENT_TYPE
        assert answer.body == metrics.render()
        assert ask(serving, method="POST", body=CALL).status == 405


def test_no_web_page_of_others_reads_it():
    with Serving(page=Metrics().render) as serving:
        assert ask(serving, Origin="https://evil.example").status == 403
        assert ask(serving, Host="evil.example").status == 403


def test_without_the_option_there_is_no_page():
    with Serving() as serving:
        assert ask(serving).status == 404


@pytest.mark.parametrize(("token", "status"), [(None, 401), (CI, 403), (SCRAPER, 200)])
def test_with_authentication_the_page_needs_a_token_of_its_scope(token, status):
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    with Serving(AUTHENTICATION, page=Metrics().render) as serving:
        answer = ask(serving, **headers)
    assert answer.status == status
    assert (b"callpact_calls_total" in answer.body) is (status == 200)


@pytest.mark.parametrize("path", ["/metrics", "/metrics/"])
def test_the_door_itself_cannot_stand_there(path):
    with pytest.raises(InvalidConfig, match="Prometheus"):
        check_place("127.0.0.1", 8420, path)
