"""Say whether a row of results counts: how its run ended, as a tracker or a program writes it."""

import re
from collections.abc import Iterable, Sequence

import polars as pl

from lmzoo.base.errors import UserError
from lmzoo.lab.judging.texts import NUMBER, STATE, plain, some

ENDED_WELL = {
    "MLflow, W&B, Comet": "finished",  # mlflow.entities.RunStatus; wandb.apis.public.Run.state
    "Optuna, Keras Tuner, Ax, ONNX": "complete",  # optuna.trial.TrialState
    "Sacred, SLURM, Azure, Determined, Guild": "completed",  # sacred.run.Run.status; sacct(1)
    "Ray Tune": "terminated",  # ray.tune.experiment.Trial
    "ClearML": "closed published",  # clearml.Task.TaskStatusEnum; `stopped` is aborted
    "Neptune": "inactive",  # sys/state; a failure is in sys/failed
    "Kubernetes, Katib, NNI, Vizier, Polyaxon": "succeeded",  # PodStatus.phase
    "DVC, Airflow, GitHub": "success",  # dvc exp show; conclusion of a workflow
    "others": "finish done ended successful ok passed keep discard",
}
"""States of runs whose results count: what a tracker documents as ended well. A run that a pruner
or a person stopped is not one of them."""
FINISHED = {state for states in ENDED_WELL.values() for state in states.split()}
DIVERGED = "diverged"
DELETED = "deleted"
MEANS = "means and other summaries"
UNFINISHED = "not finished"
PARENTS = "parents of runs that have the metric"
YES = {*["true", "t", "yes", "y", "1", "1.0"]}
NOTHING = {*["none", "null", "nan", "na", "n/a", "<na>"]}
NO = {"", *["false", "f", "no", "n", "0", "0.0"], *NOTHING}
WORDS, TRUTHS = ("|".join({*YES, *NO} - digits) for digits in ({"0", "1", "0.0", "1.0"}, set()))
ENDED_BADLY = (
    r"fail(ed)?|failure|crash(ed)?|error(ed)?|killed|aborted|cancelled|canceled|interrupted|"
    r"preempted|running|pending|queued|scheduled|timed?[ _]?out|oom|out[ _]of[ _]memory|"
    r"unfinished|diverged"
)
ANY = ".*"
TEXTS = r"[01](\.0)?|[^\d.+-].*"
NONE = "(?!)"
WORD = r"(?![\d.+-]+$).*"
VERB = "((is|was|has|did)_)?"
FLAGS = (
    (r"((run|trial|job)_?)?(state|status)", FINISHED, UNFINISHED, WORD),
    (ANY, FINISHED, UNFINISHED, "|".join((*FINISHED, ENDED_BADLY))),
    (r"lifecycle_stage", {"", "active"}, DELETED, WORD),
    (r"(is_)?(deleted|trashed)(_at)?", NO, DELETED, ANY),
    (r"(exit(_?(code|status))?|(ret(urn)?|status)_?code|rc)", {"0", "0.0", "0:0"}, UNFINISHED, ANY),
    (VERB + r"(archived|crash(ed)?|failed|killed|aborted)", NO, UNFINISHED, ANY),
    (VERB + r"(cancelled|canceled|interrupted|preempted|excluded)", NO, UNFINISHED, ANY),
    (VERB + r"(running|pending|pruned|incomplete|unfinished)", NO, UNFINISHED, TRUTHS),
    (VERB + r"(finished|completed?|done|ended|terminated)", YES, UNFINISHED, TRUTHS),
    (VERB + r"(succe(ss|eded|ssful)|ok|passed)", YES, UNFINISHED, WORDS),
    (VERB + r"(error|exception|traceback|oom|timed_?out)(_message)?", NO, UNFINISHED, TEXTS),
    (r"((is_|has_|did_)?diverged?|(is|has)_nan)", NO, DIVERGED, TEXTS),
    (VERB + r"(valid|converged|(early_)?stopped)", YES, UNFINISHED, NONE),
)
"""Columns that say whether a run counts: their names, the values with which it does, what it is
with any other, and what all values of such a column look like. Other words or truth values in such
a column are said. A column of any name does if all its values are states, and one of them is that
of a finished run."""
SUMMARIES = {*["mean", "avg", "average", "median", "std", "stdev", "sd", "sem", "mean±std"]}
"""Words in a column of numbers, such as that of the seed, which say that a row is no run."""


def states(
    frame: pl.DataFrame, seed: str | None, free: Iterable[str], finished: Sequence[str],
    notes: list[str],
) -> pl.Series:  # fmt: skip
    """Return why the state of a row excludes it, or that it diverged; "" if it counts."""
    result = pl.repeat("", len(frame), eager=True)
    if STATE in frame.columns:
        result = frame[STATE].fill_null("")
    for name in filter(None, [*free, seed]):
        reasons = (
            [] if name == STATE else _reasons(frame[name], finished, notes, is_seed=name == seed)
        )
        if any(reasons):
            known = frame[name].unique(maintain_order=True)
            own = frame[name].replace_strict(known, reasons, return_dtype=pl.String)
            result = own.zip_with(result == "", result)
    if (result != "").all() and not result.is_in([DELETED, DIVERGED]).any():
        kinds = some(result.unique(maintain_order=True).to_list())
        raise UserError(f"no row has finished: {kinds}; --finished STATE makes a state count")
    return result


def _reasons(
    column: pl.Series, finished: Sequence[str], notes: list[str], *, is_seed: bool
) -> list[str]:
    """Return why each different cell of a column excludes its row; "" if it does not."""
    name = column.name
    texts = [text or "" for text in plain(column.unique(maintain_order=True))]
    words = [text.lower() for text in texts]
    given = {*filter(None, words)}
    rest = [re.fullmatch(NUMBER, word) for word in given - SUMMARIES]
    if rest and all(rest):
        reasons = [MEANS if word in SUMMARIES else "" for word in words]
        if any(reasons):
            return reasons
    read = [] if is_seed or not given else [
        flag for flag in FLAGS if (given & flag[1] if flag[0] == ANY else is_named(name, flag[0]))
    ]  # fmt: skip
    fits = [f for f in read if all(re.fullmatch(f[3], word, re.DOTALL) for word in given)]
    if not fits:
        is_number = all(rest) and not given <= YES | NO
        if read and len(texts) > 1 and (read[0] == FLAGS[0] or not is_number):
            several = some(sorted({text[:20] for text in texts} - {""}))
            notes.append(f"{name} ({several}) is no state: all rows count; is that right?")
        return []
    _, good, otherwise, _ = fits[0]
    counts = good | {word.lower() for word in finished}
    reasons = []
    for text, word in zip(texts, words, strict=True):
        reason = f"{otherwise} ({name} {text[:60]!r})" if otherwise == UNFINISHED else otherwise
        if word == DIVERGED:
            reason = DIVERGED
        is_good = {word, re.sub(r"^[a-z]\w*\.", "", word)} & counts
        reasons.append("" if is_good else reason)
    return reasons


def is_state(name: str) -> bool:
    """Return whether the name of a column says that it has states."""
    return any(is_named(name, flag[0]) for flag in FLAGS if flag[0] != ANY)


def may_be_state(head: pl.Series) -> bool:
    """Return whether a column, by its first cells, may say how runs ended."""
    words = [word.lower() for word in plain(head.unique()) if word]
    return is_state(head.name) or all(re.fullmatch(FLAGS[1][3], word) for word in words)


def is_named(name: str, pattern: str) -> bool:
    """Return whether a name is as described: `Exit Code`, `exitCode` and `exit_code` are one."""
    plain = re.sub(r"[ -]+|(?<=[a-z])(?=[A-Z])", "_", name)
    return bool(re.fullmatch(rf"(.*[./]_?|_)?{pattern}", plain, re.IGNORECASE))
