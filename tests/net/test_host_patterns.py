"""Patterns of hosts: what they match, and what no pattern is."""

from __future__ import annotations

import pytest

from callpact.errors import InvalidConfig
from callpact.net.address import place_of
from callpact.net.host_patterns import HostPatterns


def matches(entry, url, default_port=None):
    return HostPatterns([entry], "hosts").match(place_of(url), default_port)


@pytest.mark.parametrize(
    ("entry", "url"),
    [
        ("*.x.example", "https://a.x.example/"),
        ("*.x.example", "https://a.b.c.x.example/"),
        ("*.X.Example.", "https://A.x.EXAMPLE./"),
        ("*.x.example:8443", "https://a.x.example:8443/"),
        ("*.x.example", "http://a.x.example:8080/"),
        ("x.example", "https://X.example.:444/"),
        ("x.example:444", "https://x.example:444/"),
        ("*.bücher.example", "https://a.xn--bcher-kva.example/"),
        ("*.xn--bcher-kva.example", "https://a.bücher.example/"),
        ("192.0.2.7", "https://192.0.2.7/"),
        ("[2001:db8::1]", "https://[2001:DB8:0::1]/"),
        ("[2001:db8::1]:8443", "https://[2001:db8::1]:8443/"),
        ("*", "https://anything.example/"),
    ],
)
def test_a_host_matches(entry, url):
    assert matches(entry, url)


@pytest.mark.parametrize(
    ("entry", "url"),
    [
        ("*.x.example", "https://x.example/"),
        ("*.x.example", "https://evilx.example/"),
        ("*.x.example", "https://a.x.example.evil.example/"),
        ("*.x.example", "https://ax.example/"),
        ("*.x.example:8443", "https://a.x.example/"),
        ("x.example", "https://a.x.example/"),
        ("x.example:444", "https://x.example/"),
        ("192.0.2.7", "https://192.0.2.70/"),
    ],
)
def test_another_host_does_not_match(entry, url):
    assert not matches(entry, url)


def test_without_a_port_the_default_one_may_be_meant():
    assert matches("x.example", "https://x.example/", 443)
    assert not matches("x.example", "https://x.example:8443/", 443)
    assert matches("x.example:8443", "https://x.example:8443/", 443)


@pytest.mark.parametrize(
    "entry",
    [
        *("", " ", "*.", "*.com", "**.x.example", "a.*.example", "*x.example", "*.*.example"),
        *("https://x.example", "x.example/path", "user@x.example", "x.example:", "x.example:0"),
        *("x.example:99999", "x.example:8x", "*.192.0.2.7", "*.[::1]", "2001:db8::1", "x..example"),
        *("1.2.3", "0x7f.1", "x example", "*.x.example/.."),
    ],
)
def test_what_is_no_pattern_is_refused_with_what_is_expected(entry):
    with pytest.raises(InvalidConfig) as caught:
        HostPatterns([entry], "hook_hosts")
    assert str(caught.value).startswith("hook_hosts: ")
    assert "*.example.com" in str(caught.value)
