"""The comparison of points over seeds and test sequences."""

import numpy as np
import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.comparison import compare_points, study_comparison
from lmzoo.lab.analysis.load import against, load_study
from lmzoo.lab.analysis.ranking import rank_points
from lmzoo.lab.analysis.render import render
from lmzoo.lab.statistics.two_way import two_way_difference
from tests.lab.analysis.toy_study import row

RNG = np.random.default_rng
N = 40
TOKENS = RNG(0).integers(3, 9, N)


def add_point(toy, name, shift, *, seeds=(1, 2, 3), noise=0.05, seed=0):
    """Add a point with sequence losses `shift` nats per token above those common to all points."""
    difficulty = RNG(1).gamma(4, 0.5, N)
    random = RNG(seed)
    level = difficulty + shift
    rows = [level + random.normal(0, noise) + random.normal(0, noise, N) for _ in seeds]
    losses = [float((nll * TOKENS).sum() / TOKENS.sum()) for nll in rows]
    for run, nll in zip(toy.add_point(name, losses), rows, strict=True):
        toy.write_test_losses(run, nll * TOKENS, TOKENS)
    return np.stack(rows)


def compare(toy, reference=None, **options):
    folder = against(load_study(toy.path), reference)
    ranked = rank_points(folder.runs, folder.events, folder.study, **options)
    return compare_points(folder, ranked, **options)


def test_the_difference_is_that_over_seeds_and_sequences(toy):
    full = add_point(toy, "full", 0.0, seed=2)
    worse = add_point(toy, "worse", 0.3, seed=3)
    result = row(compare(toy, metric="sentence"), "worse")
    expected = two_way_difference(worse, full)
    names = ("difference", "difference_low", "difference_high", "p_raw", "better")
    assert [result[name] for name in names] == pytest.approx([*expected[:5]], rel=1e-5)
    assert result["difference"] == pytest.approx(0.3, abs=0.1)
    assert (result["seeds"], result["sequences"]) == (3, N)
    token = row(compare(toy), "worse")
    assert token["difference"] != result["difference"]
    events = load_study(toy.path).events.collect()
    test = dict(events.filter(event="test").select("run", "token").iter_rows())
    differences = [test[f"worse-confirm-{s}"] - test[f"full-confirm-{s}"] for s in (1, 2, 3)]
    assert token["difference"] == pytest.approx(np.mean(differences), rel=1e-5)


def test_the_shares_of_the_variance_include_the_tuning(toy):
    """With an uncertain setting, the seeds are not all of what a wider interval is from."""
    full, other = add_point(toy, "full", 0.0, seed=2), add_point(toy, "other", 0.3, seed=3)
    certain = row(compare(toy), "other")
    toy.study_json["chosen"]["other"]["tuning_sd"] = 0.2
    toy.write()
    found = row(compare(toy, metric="sentence"), "other")
    result = two_way_difference(other, full)
    total = result.error_seeds**2 + result.error_sequences**2 + 0.2**2
    assert found["from_tuning"] == pytest.approx(0.2**2 / total, rel=1e-5)
    assert found["from_seeds"] == pytest.approx(result.error_seeds**2 / total, rel=1e-5)
    assert found["from_seeds"] < certain["from_seeds"]
    assert (certain["from_tuning"], certain["rank_low"], found["rank_low"]) == (0, 2, 1)


def test_a_diverged_seed_is_left_out(toy):
    add_point(toy, "full", 0.0, seed=2)
    runs = toy.add_point("risky", [1.0, 1.0, None])
    for run in runs[:2]:
        toy.write_test_losses(run, np.full(N, 0.5) * TOKENS, TOKENS)
    result = row(compare(toy), "risky")
    assert result["seeds"] == 2
    assert result["rank_low"] is None  # it lacks a seed of the reference


def test_points_with_fewer_seeds_than_the_reference_have_ranks(toy):
    add_point(toy, "full", 0.0, seeds=(1, 2, 3, 4, 5), seed=2)
    for name, shift in (("worse", 1.0), ("worst", 2.0)):
        add_point(toy, name, shift, seed=3)
    ranks = compare(toy).sort("rank_low")
    assert [*ranks["point"]] == ["full", "worse", "worst"]
    assert [*ranks["rank_low"]] == [*ranks["rank_high"]] == [1, 2, 3]


def test_runs_without_valid_sequence_losses_have_no_difference(toy):
    add_point(toy, "full", 0.0, seed=2)
    toy.add_point("old", [2.0, 2.0, 2.0])
    for run in toy.add_point("damaged", [2.0, 2.0, 2.0]):
        (toy.path / run / "test-3.npy").write_bytes(b"half a file")
    for run in toy.add_point("split", [2.0, 2.0, 2.0]):
        toy.write_test_losses(run, np.ones(N - 1), np.ones(N - 1))
    frame = compare(toy)
    for name in ("old", "damaged", "split"):
        assert row(frame, name)["seeds"] == 0
        assert row(frame, name)["difference"] is None
    with pytest.raises(UserError, match="has no per-sequence test losses of its reference"):
        compare(toy, reference="cut old")


def test_the_table_has_a_row_per_point(toy):
    add_point(toy, "full", 0.0, seed=2)
    add_point(toy, "worse", 0.3, seed=3)
    text = render(study_comparison(toy.path), "md")
    assert "| 1 | cut full | reference | — | — | — | — |" in text
    assert "95 % intervals" in text
