"""µP: what a step changes does not grow with the width, and does without it."""

import pytest
import torch
from torch import Tensor

import lmzoo
from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.contract import Task
from lmzoo.train.groups import build_model, rate_factors
from lmzoo.train.pack_compatibility import template_model
from lmzoo.train.recipe import Recipe
from lmzoo.train.trainer import Training

TASK = Task(vocab=11, length=6)
WIDTHS = (32, 64, 128, 256)
ROWS = ("gru", "modern_decoder")


def change(row: str, width: int, recipe: Recipe) -> float:
    """Return the root mean square of the change of the logits after four steps."""
    fields = {"window": 6} if row == "modern_decoder" else {}
    model = build_model(zoo.config(row, width=width, **fields), TASK, 0, recipe)
    training = Training(model, recipe, 0)
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(TASK.vocab, (16, TASK.length), generator=generator)
    lengths = torch.full((16,), TASK.length)

    def logits() -> Tensor:
        with torch.no_grad():
            return model.next_log_prob(tokens[:, :-1])

    before = logits()
    for _ in range(4):
        assert training.step is not None
        training.step(recipe.lr, None, tokens, lengths)
    return float((logits() - before).square().mean().sqrt())


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("optimiser", ["adam", "muon"])
def test_the_change_of_the_logits_does_not_grow_with_the_width(row: str, optimiser: str) -> None:
    recipes = [
        Recipe(optimiser=optimiser, lr=2e-3, clip=None, parametrisation=kind)
        for kind in ("mup", "standard")
    ]
    mup, standard = ([change(row, width, recipe) for width in WIDTHS] for recipe in recipes)
    assert mup[0] == standard[0]  # at the base width both are one
    assert max(mup) < 1.5 * min(mup), mup
    assert standard[-1] > 2 * standard[0], standard


def test_the_factors_of_a_model() -> None:
    recipe = Recipe(parametrisation="mup", base_width=16)
    model = zoo.build(zoo.config("modern_decoder", width=64), TASK)
    factors = rate_factors(recipe, model)
    assert factors["embedding.weight"] == factors["norm.weight"] == 1
    assert factors["blocks.0.key.weight"] == 1 / 4
    assert factors["blocks.0.query.weight"] == 1 / 8
    units = -(-8 * 64 // 3), -(-8 * 16 // 3)
    assert factors["blocks.0.down.weight"] == pytest.approx(units[1] / units[0])


def test_a_pack_scores_with_the_scale_of_its_members_and_a_base_is_standard() -> None:
    config = zoo.config("gru", width=32)
    wide = build_model(config, TASK, 0, Recipe(parametrisation="mup", base_width=8))
    assert wide.output_scale == template_model(wide).output_scale == 1 / 4
    base, plain = (
        build_model(config, TASK, 0, r) for r in (Recipe(parametrisation="mup"), Recipe())
    )
    assert all(map(torch.equal, base.parameters(), plain.parameters()))
    assert base.output_scale == 1
    table = wide.embedding.weight / plain.embedding.weight
    torch.testing.assert_close(table, torch.full_like(table, 2.0))


def test_a_loaded_run_scores_as_the_run_did(tmp_path) -> None:
    (tmp_path / "text.txt").write_text("a man runs\na dog sits\n" * 40)
    recipe = {"parametrisation": "mup", "base_width": 8, "batch": 16}
    model = lmzoo.build("gru", f"text:{tmp_path / 'text.txt'}", recipe=recipe, width=16)
    model.fit(1)
    model.save(tmp_path / "run")
    again = lmzoo.load_run(tmp_path / "run")
    assert again.module.output_scale == 1 / 2
    assert again.test().token == model.test().token


def test_models_without_a_tied_width_are_refused() -> None:
    recipe = Recipe(parametrisation="mup")
    for row, words in (("DLM46", "emission=vector"), ("hmm", "no recurrent"), ("gpt", "spread")):
        with pytest.raises(UserError, match=words):
            build_model(zoo.config(row), TASK, 0, recipe)


def test_counts_have_no_width_to_follow() -> None:
    recipe = Recipe(parametrisation="mup")
    counts = build_model(zoo.config("ngram_count"), TASK, 0, recipe)
    assert rate_factors(recipe, counts) == {}
