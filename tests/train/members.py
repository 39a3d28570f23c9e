"""Trainings of a small model."""

from typing import Any

from lmzoo import zoo
from lmzoo.contract import LanguageModel
from lmzoo.data.corpus import Corpus
from lmzoo.train.recipe import Recipe
from lmzoo.train.trainer import Training

SMALL: dict[str, Any] = {"width": 4, "emission": {"components": 3}}
RECIPE = Recipe(batch=16)


def model_of(corpus: Corpus, seed: int = 0, **fields) -> LanguageModel:
    """Return DLM46 of width 4 with a mixture of three."""
    config = zoo.config("DLM46", **(SMALL | fields))
    return zoo.build(config, corpus.task, seed)


def member(corpus: Corpus, seed: int = 0, recipe: Recipe = RECIPE, **fields) -> Training:
    """Return a training of this model that has made no step."""
    model = model_of(corpus, seed, **fields)
    return Training(model, recipe, seed)
