"""Each text of a study has a store of its own."""

import pytest

from lmzoo.trainables.store_name import store_name


def test_a_corpus_without_a_file_gives_its_name() -> None:
    assert store_name("toy", "captions") == "toy-captions"
    assert store_name("toy", {"name": "shakespeare_char", "split": "nanogpt"}) == (
        "toy-shakespeare_char"
    )


@pytest.mark.parametrize(
    ("path", "slug"),
    [
        ("data/My Sentences.txt.gz", "my_sentences"),
        ("Ünï.txt", "n"),
        ("a" * 60 + ".txt", "a" * 24),
        ("словарь", ""),
    ],
)
def test_the_name_of_a_file_is_readable_and_short(path: str, slug: str) -> None:
    *first, digest = store_name("toy", f"text:{path}").split("-")
    assert first == ["toy", "text", *([slug] if slug else [])]
    assert len(digest) == 6
    assert store_name("toy", {"name": "text", "path": path, "unit": "char"}).endswith(digest)


def test_files_of_one_name_in_two_folders_differ() -> None:
    specs = [f"{kind}:{folder}/t.txt" for kind in ("text", "stream") for folder in "ab"]
    assert len({store_name("toy", spec) for spec in specs}) == 4
