"""The terms of a study's page, for readers who see nothing else."""

from html import escape

TERMS = {
    "point": "one model of the study, with its recipe and the settings that are searched for it",
    "reference, wild type": "the point that all others are compared with; usually the model as "
    "published, without cuts",
    "cut": "a term or a path of the model that is removed",
    "recipe": "all that decides training but the model: optimiser, learning rate, batch, epochs",
    "setting": "the values of the searched fields of one run, such as a learning rate",
    "seed": "a number that decides the initial weights and the order of the data; runs of "
    "different points with the same seed are compared in pairs",
    "stage": "tune: runs that compare settings; confirm: runs of the chosen setting with new "
    "seeds, which alone give the losses of the ranking",
    "pruned": "ended by early stopping, because other settings of the point had lower losses",
    "nat": "unit of the loss, which is −ln P; 1 nat is 1.44 bits",
    "ppl": "perplexity, e to the loss per token",
    "rank": "place by the mean loss; in brackets the 95 % interval of the place",
    "recipe.lr": "the learning rate; other searched fields have the names of their configs, too",
    "equivalent": "the whole difference lies within the margin (two one-sided tests)",
    "undecided": "neither a difference nor equivalence is proven at 5 %",
    "better": "probability that the mean loss is below that of the reference, for this point alone",
    "p": "a moderated t-test: the variance between seeds is shared across points as far as they "
    "agree; corrected for the number of points (Holm)",
    "baseline": "a model that counts tokens, such as a Kneser-Ney 5-gram",
    "exact, bound": "the loss is the negative log-likelihood, or at least as large",
    "leaks": "the score depends on the scored token or on later ones, so it is no loss of a "
    "language model",
    "audit": "a test of the trained model for leaks, by changing tokens that must not matter",
    "pack": "models of one shape that one process trains together",
}


def terms() -> str:
    """Return the terms as an HTML list."""
    items = (f"<dt>{escape(term)}</dt><dd>{escape(text)}</dd>\n" for term, text in TERMS.items())
    return f"<dl>{''.join(items)}</dl>\n"
