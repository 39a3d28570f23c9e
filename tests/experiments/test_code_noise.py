"""Losses of autoencoders under noise on their codes."""

from collections.abc import Callable

import pytest
import torch

from lmzoo import zoo
from lmzoo.contract import LanguageModel
from lmzoo.data.corpus import Sequences, open_corpus
from lmzoo.experiments import code_noise
from lmzoo.experiments.code_noise import (
    encode_sequences,
    evaluate_noise,
    loss_under_noise,
    main,
    spread,
)
from lmzoo.train.evaluate import evaluate
from lmzoo.train.recipe import Recipe
from lmzoo.train.trainer import Training, fit
from tests.tiny import CLOSE, batch, tiny

SMALL = {"name": "captions", "train": 300, "valid": 20, "test": 60}


def random_sequences(model: LanguageModel) -> Sequences:
    return Sequences(*batch(model.task, count=12))


@pytest.mark.parametrize("name", ["linear_autoencoder", "mlp_autoencoder"])
def test_noise_of_the_training_size_gives_the_loss_of_the_model(name: str) -> None:
    for sigma in (0.0, 0.7):
        model = tiny(name, noise_std=sigma, samples=5)
        expected = evaluate(model, random_sequences(model)).token
        assert loss_under_noise(model, random_sequences(model), sigma, draws=5) == pytest.approx(
            expected, abs=CLOSE
        )


def test_the_noise_of_training_is_not_applied() -> None:
    clean, noisy = tiny("linear_autoencoder"), tiny("linear_autoencoder", noise_std=2.0)
    losses = {loss_under_noise(model, random_sequences(clean), 0.5) for model in (clean, noisy)}
    assert len(losses) == 1
    assert losses != {loss_under_noise(clean, random_sequences(clean), 0.6)}


def test_the_spread_scales_with_the_codes() -> None:
    model = tiny("linear_autoencoder", length=6)
    z = encode_sequences(model, random_sequences(model))
    assert z.shape == (12, 4)
    assert spread(z) == pytest.approx(float(z.std(0).square().mean().sqrt()), rel=1e-5)
    assert spread(3 * z + 7) == pytest.approx(3 * spread(z), rel=1e-4)


def test_a_rescaled_code_has_the_same_loss_for_the_same_share_of_its_spread() -> None:
    model, scaled = tiny("linear_autoencoder", length=6), tiny("linear_autoencoder", length=6)
    with torch.no_grad():
        for parameter in scaled.encoder.parameters():
            parameter.mul_(10)
        scaled.decoder.weight.div_(10)
    data = random_sequences(model)
    assert loss_under_noise(scaled, data, 0.0) == pytest.approx(loss_under_noise(model, data, 0.0))
    assert loss_under_noise(scaled, data, 3.0) == pytest.approx(
        loss_under_noise(model, data, 0.3), abs=CLOSE
    )


def test_the_loss_of_a_trained_model_grows_with_the_noise() -> None:
    corpus = open_corpus(SMALL)
    model = zoo.build(zoo.config("linear_autoencoder", width=8), corpus.task, seed=0)
    list(fit(Training(model, Recipe(batch=50), 0), corpus, 4))
    code_spread, *losses = evaluate_noise(model, corpus)
    assert code_spread > 0.1
    absolute = losses[: len(code_noise.SIGMAS)]
    assert absolute == sorted(absolute)
    assert absolute[-1] > absolute[0] + 0.1


def test_main_trains_each_run_once_and_prints_a_row_per_training_noise(
    tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    training_noise: dict[str, dict] = {"no noise": {}, "σ = 1": {"noise_std": 1.0}}
    monkeypatch.setattr(code_noise, "TRAINING_NOISE", training_noise)
    monkeypatch.setattr(code_noise, "open_corpus", _with_small_corpus(code_noise.open_corpus))
    options = {
        "corpus": "captions", "data_dir": None, "width": 4, "components": 3, "epochs": 1,
        "seeds": 2, "storage": tmp_path,
    }  # fmt: skip
    main(**options)
    first = capsys.readouterr().out
    head, _, clean, noisy = first.splitlines()
    columns = 2 + len(code_noise.SIGMAS) + len(code_noise.SPREAD_SHARES)
    assert all(line.count("|") == columns + 1 for line in (head, clean, noisy))
    assert clean.startswith("| no noise |")
    assert noisy.startswith("| σ = 1 |")
    modified = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/*/checkpoint.pt")}
    assert len(modified) == 4
    main(**options)
    assert capsys.readouterr().out == first
    assert all(path.stat().st_mtime_ns == time for path, time in modified.items())


def _with_small_corpus(open_corpus: Callable) -> Callable:
    return lambda spec, data_dir=None: open_corpus({**spec, **SMALL}, data_dir)
