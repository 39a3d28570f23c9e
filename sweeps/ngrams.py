"""What does an n-gram need: a longer memory, better smoothing, or a neural net?

Count n-grams of orders 1 to 5 with three kinds of smoothing, beside the log-bilinear
n-gram and the Markov MLP that read as many tokens.
"""

from lmzoo.sweep import Point, Study, main

STUDY = Study(
    name="ngrams",
    question="What does an n-gram need: a longer memory, better smoothing, or a neural net?",
    points=(
        *(Point(f"Kneser-Ney {n}-gram", "ngram_count", {"order": n}) for n in (1, 2, 3, 5)),
        Point("Jelinek-Mercer 3-gram", "ngram_count", {"order": 3, "smoothing": "jelinek_mercer"}),
        Point(
            "add-alpha 3-gram",
            "ngram_count",
            {"order": 3, "smoothing": "add_alpha"},
            search={"model.alpha": None},
        ),
        *(Point(f"log-bilinear {n + 1}-gram", "DLM1", {"window": n}) for n in (1, 2, 4)),
        *(Point(f"Markov MLP, {n} tokens", "markov_mlp", {"window": n}) for n in (2, 4)),
        Point("unigram/bigram mixture", "DLM7"),
    ),
    reference="Kneser-Ney 3-gram",
)

if __name__ == "__main__":
    main(STUDY)
