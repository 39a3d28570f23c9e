"""The terms of a study's page, for readers who see nothing else; only those that it uses."""

import re
from html import escape, unescape

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
    "perplexity, ppl": "e to the loss per token",
    "rank": "place by the mean loss, 1 is the lowest; in brackets the 95 % interval of the place",
    "recipe.lr": "the learning rate; other searched fields have the names of their configs, too",
    "equivalent": "the whole difference lies within the margin (two one-sided tests)",
    "undecided": "neither a difference nor equivalence is proven at 5 %",
    "P(better)": "probability that the mean loss is below that of the reference, for this point "
    "alone",
    "p": "a moderated t-test: points whose losses vary alike from seed to seed share one estimate "
    "of this variance; corrected for the number of points (Holm)",
    "margin": "differences below it count as too small to matter",
    "count, Kneser-Ney": "models that count tokens and are not trained; they have no verdict",
    "entropy floor": "the entropy of the source of the data per token, the least expected loss of "
    "any model",
    "exact": "the loss is the negative log-likelihood of the text",
    "bound": "the loss is at least the negative log-likelihood of the text",
    "samples": "--samples is the number of tuning runs of a point, not of test sentences",
    "leaks, leaking": "the score depends on the scored token or on later ones, so it is no "
    "loss of a language model",
    "audit": "a test of the trained model for leaks, by changing tokens that must not matter",
    "pack": "models of one shape that one process trains together",
}


def terms(page: str) -> str:
    """Return the terms that the HTML of a page uses, as an HTML list."""
    text = unescape(re.sub(r"<script.*?</script>|<[^>]*>", " ", page, flags=re.DOTALL))
    items = (
        f"<dt>{escape(term)}</dt><dd>{escape(meaning)}</dd>\n"
        for term, meaning in TERMS.items()
        if any(re.search(rf"\b{re.escape(word)}", text) for word in term.split(", "))
    )
    return f"<dl>{''.join(items)}</dl>\n"
