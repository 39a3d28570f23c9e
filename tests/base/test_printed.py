"""Numbers as programs print them."""

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from lmzoo.base.printed import json_value, with_digits

NAN = ["nan", "NaN", "-nan", "+NAN", "nan(ind)", "-nan(snan)", "1.#QNAN", "-1.#IND", "1.#SNAN0"]
WORDS = {
    **dict.fromkeys(NAN, math.nan),
    **dict.fromkeys(["inf", "+Inf", "Infinity", "INF", "1.#INF"], math.inf),
    **dict.fromkeys(["-inf", "-Infinity", "-1.#INF00"], -math.inf),
}
TEXTS = st.sampled_from(["nan", 'a "nan", inf', "\\", ": -inf,", ""]) | st.text(max_size=5)


@given(TEXTS, st.sampled_from(sorted(WORDS)), TEXTS)
def test_words_are_numbers_outside_of_texts_only(name, word, text):
    line = f'{{{json.dumps(name + "a")}: [{word}, 1, {word}], "b":{word}, "": {json.dumps(text)}}}'
    expected = {name + "a": [WORDS[word], 1, WORDS[word]], "b": WORDS[word], "": text}
    assert str(json_value(line)) == str(expected)
    zero = f"{0:.{len(word) - 2}f}"
    assert with_digits(f"loss {word}, banana nan.txt") == f"loss {zero}, banana nan.txt"
