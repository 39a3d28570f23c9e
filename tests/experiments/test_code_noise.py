"""Noise on a code: the diagnostic's numbers are the models' own, and noise costs."""

from collections.abc import Callable

import pytest
import torch

from lmzoo import zoo
from lmzoo.contract import LanguageModel
from lmzoo.data.corpus import Sequences
from lmzoo.data.open import open_corpus
from lmzoo.experiments import code_noise_grid as code_noise
from lmzoo.experiments.code_noise import codes, loss_under_noise, spread
from lmzoo.experiments.code_noise_grid import main, measure
from lmzoo.train.evaluate import evaluate
from lmzoo.train.recipe import Recipe
from lmzoo.train.trainer import Training, fit
from tests.tiny import CLOSE, batch, tiny

SMALL = {"name": "captions", "train": 300, "valid": 20, "test": 60}


def part(model: LanguageModel) -> Sequences:
    return Sequences(*batch(model.task, count=12))


@pytest.mark.parametrize("name", ["linear_autoencoder", "mlp_autoencoder"])
def test_noise_of_the_models_own_size_gives_its_own_loss(name: str) -> None:
    for sigma in (0.0, 0.7):
        model = tiny(name, noise_std=sigma, samples=5)
        own = evaluate(model, part(model)).token
        assert loss_under_noise(model, part(model), sigma, draws=5) == pytest.approx(own, abs=CLOSE)


def test_the_noise_of_training_is_left_out() -> None:
    clean, noisy = tiny("linear_autoencoder"), tiny("linear_autoencoder", noise_std=2.0)
    losses = {loss_under_noise(model, part(clean), 0.5) for model in (clean, noisy)}
    assert len(losses) == 1
    assert losses != {loss_under_noise(clean, part(clean), 0.6)}


def test_the_spread_is_that_of_the_codes_and_scales_with_them() -> None:
    model = tiny("linear_autoencoder", length=6)
    z = codes(model, part(model))
    assert z.shape == (12, 4)
    assert spread(z) == pytest.approx(float(z.std(0).square().mean().sqrt()), rel=1e-5)
    assert spread(3 * z + 7) == pytest.approx(3 * spread(z), rel=1e-4)


def test_a_code_written_large_and_read_small_fears_noise_less() -> None:
    """Same function without noise; under noise of the same share of its spread, the same again."""
    model, loud = tiny("linear_autoencoder", length=6), tiny("linear_autoencoder", length=6)
    with torch.no_grad():
        for parameter in loud.encoder.parameters():
            parameter.mul_(10)
        loud.decoder.weight.div_(10)
    data = part(model)
    assert loss_under_noise(loud, data, 0.0) == pytest.approx(loss_under_noise(model, data, 0.0))
    assert loss_under_noise(loud, data, 3.0) == pytest.approx(
        loss_under_noise(model, data, 0.3), abs=CLOSE
    )


def test_a_trained_code_loses_by_noise_and_more_by_more() -> None:
    corpus = open_corpus(SMALL)
    model = zoo.build(zoo.config("linear_autoencoder", width=8), corpus.task, seed=0)
    list(fit(Training(model, Recipe(batch=50), 0), corpus, 4))
    apart, *losses = measure(model, corpus)
    assert apart > 0.1
    absolute = losses[: len(code_noise.ABSOLUTE)]
    assert absolute == sorted(absolute)
    assert absolute[-1] > absolute[0] + 0.1


def test_the_script_trains_once_and_prints_a_row_for_each_noise(
    tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    trained: dict[str, dict] = {"no noise": {}, "σ = 1": {"noise_std": 1.0}}
    monkeypatch.setattr(code_noise, "TRAINED", trained)
    monkeypatch.setattr(code_noise, "open_corpus", _small(code_noise.open_corpus))
    options = {
        "corpus": "captions", "data_dir": None, "width": 4, "components": 3, "epochs": 1,
        "seeds": 2, "storage": tmp_path,
    }  # fmt: skip
    main(**options)
    first = capsys.readouterr().out
    head, _, clean, noisy = first.splitlines()
    columns = 2 + len(code_noise.ABSOLUTE) + len(code_noise.SHARES)
    assert all(line.count("|") == columns + 1 for line in (head, clean, noisy))
    assert clean.startswith("| no noise |")
    assert noisy.startswith("| σ = 1 |")
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/*/checkpoint.pt")}
    assert len(stamps) == 4
    main(**options)
    assert capsys.readouterr().out == first
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())


def _small(opens: Callable) -> Callable:
    return lambda spec, data_dir=None: opens({**spec, **SMALL}, data_dir)
