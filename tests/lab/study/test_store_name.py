"""Each text of a study has a store of its own."""

from lmzoo.trainables.store_name import store_name


def test_a_corpus_without_a_file_gives_its_name() -> None:
    assert store_name("toy", "captions") == "toy-captions"
    assert store_name("toy", {"name": "shakespeare_char", "split": "nanogpt"}) == (
        "toy-shakespeare_char"
    )


def test_the_name_of_a_file_is_readable_short_and_of_one_file() -> None:
    slugs = {
        "data/My Sentences.txt.gz": "my_sentences",
        "Ünï.txt": "n",
        "a" * 60 + ".txt": "a" * 24,
        "словарь": "",
    }
    for path, slug in slugs.items():
        *first, digest = store_name("toy", f"text:{path}").split("-")
        assert first == ["toy", "text", *([slug] if slug else [])]
        assert len(digest) == 6
        assert store_name("toy", {"name": "text", "path": path, "unit": "char"}).endswith(digest)
    specs = [f"{kind}:{folder}/t.txt" for kind in ("text", "stream") for folder in "ab"]
    assert len({store_name("toy", spec) for spec in specs}) == 4
