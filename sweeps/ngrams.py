"""What does an n-gram need: a longer memory, better smoothing, or a neural net?

The study compares count n-grams of orders 1 to 5 and three kinds of smoothing with the log-bilinear
n-gram and the Markov MLP, which read equally many tokens.
"""

from lmzoo import Point, Study, main

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
