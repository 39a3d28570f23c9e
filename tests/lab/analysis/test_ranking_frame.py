"""A ranking in Python: a frame like any other, which prints its answer and draws itself."""

import base64
import re

import polars as pl

from lmzoo.lab.analysis.brief import WIDTH
from lmzoo.lab.analysis.frames import rank
from lmzoo.lab.analysis.ranking_table import study_ranking


def test_a_ranking_is_a_frame_that_shows_its_answer(toy):
    toy.add_point("full", [2.0, 2.01, 1.99])
    toy.add_point("part", [2.5, 2.51, 2.49])
    ranking = rank(toy.write())
    assert ranking.equals(study_ranking(toy.path).frame)
    assert str(ranking) == repr(ranking)
    question, doubt, answer = str(ranking).splitlines()[:3]
    assert question == "Which path can be cut?"
    assert doubt == "The curves still fall, by 0.100 nats in the last epoch."
    assert answer.startswith("Worse than 'cut full' by more than")
    *text, _command = str(ranking).splitlines()  # a command is one line
    assert max(map(len, text)) <= WIDTH
    page = ranking._repr_html_()
    (picture,) = re.findall(r'<img src="data:image/svg\+xml;base64,([^"]*)">', page)
    assert "var(--worse)" in base64.b64decode(picture).decode()
    assert "&#x27;cut full&#x27;" in page
    selected = ranking.select("label", "loss")
    assert type(selected) is pl.DataFrame or "shape:" in str(selected)
    assert str(selected).startswith("shape: (2, 2)")
