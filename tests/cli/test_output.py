"""What is printed is what was meant."""

from __future__ import annotations

import pytest

from callpact.cli.output import err, out, plain


@pytest.mark.parametrize("console", [out, err], ids=["out", "err"])
def test_a_place_in_a_file_is_printed_as_numbers(console):
    with console.capture() as captured:
        console.print(plain("Trips.mjs:100:37"))
    assert captured.get() == "Trips.mjs:100:37\n"
