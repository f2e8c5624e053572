"""The checkers' excuses are counted, by rule and cause."""

from __future__ import annotations

from tools.simulation.excuses import RULES, Count, Excuses, added, too_wide

FINE = Count(1000, {"power": 1}, 1)


def test_a_thing_that_is_judged_again_counts_once() -> None:
    excuses = Excuses()
    for cause in ("", "power", "cut"):
        assert excuses.covers("lost", b"plain-1", cause) is bool(cause)
    assert not excuses.covers("lost", b"plain-2", "")
    assert excuses.covers("lost", b"plain-3", "cut", wrong=False)
    assert excuses.counts() == {"lost": Count(3, {"cut": 2}, 1)}


def test_what_a_rule_no_longer_covers_does_not_count() -> None:
    excuses = Excuses()
    excuses.covers("lost", b"plain-1", "power")
    excuses.covers("lost", b"plain-1", "")
    excuses.judged("lost", b"plain-2")
    assert excuses.counts() == {"lost": Count(2, {}, 0)}


def test_the_counts_of_runs_are_added() -> None:
    one, other = {"lost": Count(10, {"power": 1, "cut": 1}, 1)}, {"lost": Count(30, {"power": 2}, 0)}
    (count,) = added([one, other, {}]).values()
    assert count == Count(40, {"power": 3, "cut": 1}, 1)
    assert (count.covered, count.share) == (4, 0.1)


def test_a_rule_without_a_judgement_covers_nothing() -> None:
    assert Count(0, {}, 0).share == 0.0


def test_rules_that_cover_much_or_nothing_are_named() -> None:
    fine = dict.fromkeys(RULES, FINE)
    assert list(too_wide(fine)) == []
    (text,) = too_wide(fine | {"lost": Count(1000, {"power": 11}, 1)})
    assert text == "rule 'lost' covers 1.1% of its judgements, at most 1.0% may be"
    assert list(too_wide(fine | {"lost": Count(1000, {"power": 1}, 0)})) == []
    (text,) = too_wide(fine | {"lost": Count(1000, {}, 0)})
    assert text.startswith("rule 'lost' covers nothing: remove it")
    seldom = {name: Count(1000, {}, 0) for name, rule in RULES.items() if rule.seldom}
    assert list(too_wide(fine | seldom)) == []


def test_each_rule_has_a_reason_and_a_limit() -> None:
    assert all(rule.why and 0 < rule.most <= 1 for rule in RULES.values())
