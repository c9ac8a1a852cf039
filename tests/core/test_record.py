"""Values as the journal writes them."""

from redraft.record import spec_of


def test_a_run_keeps_of_a_long_input_its_beginning_and_whether_it_is_the_same():
    long = "a line\n" * 100_000
    spec, same, other = (spec_of(object(), {"logs": text, "n": 3}) for text in (long, long, long + "x"))
    assert spec == same
    assert spec != other
    kept = spec["inputs"]["logs"]
    assert kept.startswith("a line\n")
    assert "[700,000 characters in all" in kept
    assert len(kept) < 11_000
    assert spec["inputs"]["n"] == 3
