"""What does each part of the cell of my_study_cell.py contribute?

lmzoo sweep my_study.py --dry-run       what would be trained
lmzoo sweep my_study.py                 on the built-in captions
lmzoo sweep my_study.py --corpus text:my_sentences.txt --parameters 30000
"""

import my_study_cell  # noqa: F401  registers the cell

from lmzoo import Point, Study, main

STUDY = Study(
    name="my_study",
    question="What does each part of my cell contribute?",
    points=(
        Point("my cell", "recurrent_lm", {"cell": "my_study_cell"}),
        Point("without gate", "recurrent_lm", {"cell": {"name": "my_study_cell", "cuts": "gate"}}),
        Point(
            "without state", "recurrent_lm", {"cell": {"name": "my_study_cell", "cuts": "state"}}
        ),
        Point("minimal gated unit", "recurrent_lm", {"cell": "mgu"}),
    ),
    fields={"model.emission": "vector", "recipe.schedule": "cosine"},
    epochs=6,
    samples=3,
)

if __name__ == "__main__":
    main(STUDY)
