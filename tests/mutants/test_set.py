"""The set of mutants still applies; run.py says which of them the suite stops."""

from run import read_set


def test_every_mutant_changes_exactly_one_place_of_an_existing_file():
    mutants = read_set()
    assert len(mutants) >= 110
    assert all(m["old"] != m["new"] for m in mutants)
