"""Who gives up a place when all are taken, and whom a request counts for."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callpact.context import Identity
from callpact.serve.auth import Caller, Verified
from callpact.serve.callers import caller_of, peer_of
from callpact.serve.shares import Shares


def held(shares, places):
    return [place for place in places if place in shares]


def filled(most, *callers):
    """Places that are numbered in the order in which these callers take them."""
    shares = Shares(most)
    for place, caller in enumerate(callers):
        shares.take(place, caller)
    return shares


def test_the_caller_that_holds_the_most_gives_up_its_oldest():
    assert filled(4, "a", "b", "b", "b").victim("c") == 1


def test_a_caller_at_its_share_gives_up_its_own_oldest():
    for caller, place in (("a", 0), ("b", 1)):
        assert filled(4, "a", "b", "b", "a").victim(caller) == place


def test_a_place_that_was_used_is_not_the_oldest_any_more():
    shares = filled(3, "a", "a", "a")
    shares.use(0)
    assert shares.victim("a") == 1


def test_places_that_are_not_idle_are_kept_from_their_own_caller_alone():
    shares = filled(2, "a", "a")
    assert shares.victim("a", lambda place: place == 1) == 1
    assert shares.victim("a", lambda _: False) is None
    assert shares.victim("b", lambda _: False) == 0


def test_a_place_that_was_left_is_free():
    shares = filled(2, "a", "b")
    assert shares.are_taken
    shares.leave(0)
    shares.leave(0)
    assert (len(shares), shares.are_taken, 0 in shares) == (1, False, False)


@given(st.lists(st.sampled_from("abcd"), max_size=100), st.integers(1, 12))
def test_no_caller_below_its_share_ever_loses_a_place(callers, most):
    shares, owners = Shares(most), {}
    for place, caller in enumerate(callers):
        if shares.are_taken:
            victim = shares.victim(caller)
            counts = Counter(owners[one] for one in owners)
            assert counts[owners[victim]] == max(counts.values())
            if counts[caller] == max(counts.values()):
                assert owners[victim] == caller
            shares.leave(victim)
            del owners[victim]
        shares.take(place, caller)
        owners[place] = caller
        assert len(shares) == len(owners) <= most


@pytest.mark.parametrize(
    ("client", "peer"),
    [
        (("127.0.0.1", 5), "127.0.0.1"),
        (("::ffff:10.0.0.5", 5), "10.0.0.5"),
        (("2001:db8::1", 5), "2001:db8::/64"),
        (("2001:db8::ffff:1", 5), "2001:db8::/64"),
        (("/run/socket", 0), ""),
        (None, ""),
    ],
)
def test_a_peer_is_its_address_or_its_network(client, peer):
    assert peer_of(client) == peer


def test_a_caller_is_the_subject_of_its_token_or_its_peer():
    ada = Identity("ada")
    static, issued, other = (
        {"user": Caller(verified), "client": ("127.0.0.1", 1)}
        for verified in (
            Verified(ada, "ada"),
            Verified(ada, "app", "https://issuer.example"),
            Verified(ada, "another app", "https://issuer.example"),
        )
    )
    assert caller_of(issued) == caller_of(other) != caller_of(static)
    assert caller_of({"client": ("127.0.0.1", 1)}) == caller_of({"client": ("127.0.0.1", 2)})
    assert caller_of({"client": ("127.0.0.2", 1)}) != caller_of({"client": ("127.0.0.1", 1)})
