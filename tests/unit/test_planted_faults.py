"""The faults of `make bench-planted` can still be planted: their old texts and their tests are there."""

from __future__ import annotations

from bench.planted_faults import ROOT, load_faults


def test_faults_have_their_places_and_tests() -> None:
    faults = load_faults()
    assert len({fault.id for fault in faults}) == len(faults) >= 40
    for fault in faults:
        assert fault.planted(ROOT) != (ROOT / fault.file).read_text()
        assert fault.tests and all((ROOT / test).exists() for test in fault.tests), fault.id
