"""The kind of corpus that is proposed for a file."""

import gzip

import pytest

from lmzoo.base.errors import UserError
from lmzoo.data.corpus import parse_spec

FILES = {
    "stream": "It was late. She went\nhome and slept. Then\nhe came.\n",
    "text": "A dog barks.\nC d e!\n" * 10,  # a few lines are no list of sequences
    "pairs": "a\tb\nc\td\n",
    "fasta": ">x\nACG\n",
}


@pytest.mark.parametrize("kind", FILES)
def test_a_file_is_looked_at(tmp_path, kind):
    path = tmp_path / "own.txt"
    path.write_text(FILES[kind])
    with pytest.raises(UserError, match=f"write {kind}:"):
        parse_spec(str(path))


def test_lines_that_no_split_can_have_are_no_text_of_lines(tmp_path):
    path = tmp_path / "one.txt.gz"
    path.write_bytes(gzip.compress(b"a single long line " * 99))
    with pytest.raises(UserError, match="write stream:"):
        parse_spec(str(path))
    path.unlink()
    with pytest.raises(UserError, match="no file"):
        parse_spec(str(path))
