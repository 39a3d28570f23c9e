"""The words of rankings and the characters of LaTeX: the tables of `words.toml`."""

import tomllib
from importlib.resources import files

WORDS = tomllib.loads(files("lmzoo.lab.analysis").joinpath("words.toml").read_text("utf-8"))
