"""The words of rankings and the characters of LaTeX: the tables of `words.toml`."""

import tomllib
from pathlib import Path

WORDS = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))
