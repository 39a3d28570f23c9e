"""The noise of evaluations is repeatable, stratified and has the right distribution."""

import pytest
import torch

from lmzoo.functional import noise
from lmzoo.laws.support import assert_close

LIKE = torch.zeros(())


def test_shared_noise_is_repeatable_and_does_not_change_the_global_generator() -> None:
    before = torch.get_rng_state()
    first = noise.shared_uniforms((4, 3), LIKE)
    torch.rand(7)
    assert first.equal(noise.shared_uniforms((4, 3), LIKE))
    torch.set_rng_state(before)
    noise.shared_uniforms((4, 3), LIKE)
    assert before.equal(torch.get_rng_state())


def test_shared_noise_is_drawn_on_the_cpu_wherever_tensors_are_made() -> None:
    """A model on a GPU is called in a scope of its device."""
    with torch.device("meta"):
        inside = noise.shared_uniforms((4, 3), LIKE)
    assert inside.equal(noise.shared_uniforms((4, 3), LIKE))


def test_fresh_noise_differs_between_calls() -> None:
    assert not noise.fresh_uniforms((4, 3), LIKE).equal(noise.fresh_uniforms((4, 3), LIKE))


def test_each_coordinate_has_one_draw_in_every_stratum() -> None:
    strata = (noise.shared_uniforms((16, 5, 3), LIKE) * 16).floor()
    expected = torch.arange(16.0)[:, None, None].expand(-1, 5, 3)
    assert strata.sort(dim=0).values.equal(expected)
    assert not strata[:, 0].equal(strata[:, 1])


@pytest.mark.parametrize("draws", [1, 2, 8])
def test_every_single_draw_is_uniform(draws: int) -> None:
    """The first draw has the right mean and mean square over many coordinates."""
    count = 40_000
    first = noise.shared_uniforms((draws, count), LIKE)[0]
    assert_close(first.mean(), torch.tensor(1 / 2), 5 * (1 / 12 / count) ** 0.5, "mean")
    assert_close(
        first.square().mean(), torch.tensor(1 / 3), 5 * (4 / 45 / count) ** 0.5, "mean square"
    )


def test_transforms_are_finite_and_have_the_right_distribution() -> None:
    for extreme in (noise._clamp(torch.zeros(1)), noise._clamp(torch.ones(1))):
        assert noise.normal(extreme).isfinite().all()
        assert noise.gumbel(extreme).isfinite().all()
    logits = torch.tensor([0.5, -1.0, 0.2])
    u = noise.shared_uniforms((40_000, 3), LIKE)
    frequencies = (logits + noise.gumbel(u)).argmax(-1).bincount() / len(u)
    assert_close(frequencies, logits.softmax(0), 5 * (0.25 / len(u)) ** 0.5, "Gumbel argmax")
    z = noise.normal(u)
    assert_close(z.mean(0), torch.zeros(3), 5 / len(u) ** 0.5, "mean")
    assert_close(z.square().mean(0), torch.ones(3), 5 * (2 / len(u)) ** 0.5, "variance")
