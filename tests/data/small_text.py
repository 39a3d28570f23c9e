"""A small text, and tokenisers of it."""

from lmzoo.data.streams import StreamConfig
from lmzoo.data.tokenisers import TOKENISERS, new_tokeniser

TEXT = "".join(
    f"the {['cat', 'dog', 'bird'][i % 3]} sees {i % 7} mäuse 日本 now.\n{' ' * (i % 2)}"
    for i in range(300)
)
UNITS = tuple(TOKENISERS)


def tokeniser(unit, text=TEXT, **fields):
    if unit == "bpe":
        fields.setdefault("vocab", 300)
    made = new_tokeniser(StreamConfig(unit=unit, **fields))
    made.fit(memoryview(text.encode()))
    return made


def spec(file, unit, **fields):
    if unit == "bpe":
        fields.setdefault("vocab", 290)
    return {"name": "stream", "path": str(file), "unit": unit, "block": 8, **fields}
