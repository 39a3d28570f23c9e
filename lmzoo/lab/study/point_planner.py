"""The planner of one point: its runs, what the store knows of them, and the choice of a setting.

The tune runs come in order of the settings: the start design, the suggestions of the sampler, and
runs that measure again. The confirm runs of the best setting follow. `designs.py` says when a
setting may start; `tuning.py` compares the points and chooses. A run is open while it is ready or
running.
"""

import logging
import math
from pathlib import Path
from typing import Any

from lmzoo.base.errors import UserError
from lmzoo.base.search_space import Choice
from lmzoo.base.seeds import derive_seed
from lmzoo.base.shell import noticed
from lmzoo.lab.store.opened import changes, digest
from lmzoo.lab.store.records import (
    FILES,
    epoch_records,
    find_end,
    records_pending,
    run_identity,
    with_seeds,
)
from lmzoo.lab.study.designs import StartRules, edges, start_design, untried
from lmzoo.lab.study.planned_run import Answer, PlannedRun
from lmzoo.lab.study.search import (
    SAMPLERS,
    Result,
    Search,
    make_pruner,
    make_sampler,
    rungs,
    until,
)
from lmzoo.lab.study.study import Setting, Study
from lmzoo.lab.study.study_store import StudyStore
from lmzoo.lab.study.trainable import Trainable

LOG = logging.getLogger("lmzoo.lab.sweep")
MOST_AGAIN = 3
"""Most runs that measure a point again: its two best settings, and one beyond those tried."""
FIRST_TUNE_SEED = 1_000_000_000
"""Tune seeds start here, so that no confirm run has the seed of a tune run."""


class PointPlanner:
    """Plans the runs of a point and reads their records from the store."""

    def __init__(
        self,
        study: Study,
        point: Trainable,
        position: int,
        store: StudyStore,
        runs: dict[str, PlannedRun],
        seeds: int = 0,
    ):
        """`runs` are all runs of the study: a run of two points is trained once.

        The point has `seeds` confirm runs; 0: `study.seeds`.
        """
        self.study = study
        self.point = point
        self.store = store
        self.seeds = seeds or study.seeds
        """Confirm runs, before the points that are undecided get more."""
        self._position = position
        self._runs = runs
        self.tune_runs: list[PlannedRun] = []
        self.confirm_runs: list[PlannedRun] = []
        self.open: dict[str, PlannedRun] = {}
        self._new: list[PlannedRun] = []
        # Each point has its own: the luck of one seed must not favour the same points everywhere.
        self.tune_seed = FIRST_TUNE_SEED + derive_seed(study.seed, point.id) % FIRST_TUNE_SEED
        """Training seed of the tune runs that are not repeated."""
        self.repeats: list[int] = []
        """0 for each tune run with `tune_seed`, 1 for those with the next seed, and so on.

        The start design and the first suggestion have 0.
        """
        self.space = point.search_space
        self.design = list[Setting]()
        self.settings: list[Setting] = []
        """The settings of the tune runs."""
        self.best_setting: Setting | None = None
        self.is_chosen = False
        """Whether the setting is chosen, if there is one; False while further ones are tried."""
        self.tuning_sd = 0.0
        """Root mean square of the loss that the choice adds, in nats per token."""
        self.samples = 0
        self.first_rung = 0
        self.rung = 0
        """The rung at which the start design waits; 0: none."""
        self._said = set[str]()
        self.measured_again = False
        """Whether the runs that measure again are planned."""
        self._design_ended = False
        self._smoothed: list[float] = []
        self._beyond: Setting | None = None
        # Made before any run is planned: a wrong name ends the sweep at once.
        self._pruner = make_pruner(study)
        if isinstance(study.sampler, str) and study.sampler not in SAMPLERS:
            make_sampler(study, {}, study.seed)  # its error names the samplers
        if not self.space:
            self._confirm({})
            return
        self.design = start_design(self.space, point.default_setting, study.samples, study.seed)
        self.samples = study.samples
        # A count model has one epoch, before which nothing can stop.
        if study.pruner == "halving" and not point.closed_form:
            self.first_rung = next(iter(rungs(study)), 0)
            self.rung = self.first_rung
        self._rules = StartRules(study, len(self.design))
        sampler = make_sampler(study, self.space, derive_seed(study.seed, point.id))
        self._search = Search(self.space, sampler, self._rules.lag, len(self.design))
        self._advance()

    def new_runs(self) -> list[PlannedRun]:
        """Return the open runs that were planned since the last call."""
        new = self._new
        self._new = []
        return new

    def report(self, run_id: str, epoch: int, loss: float | None) -> Answer:
        """Add an epoch's validation loss; return what the run does next."""
        run = self.open[run_id]
        run.add_epoch(epoch, loss)
        if run.stage == "tune":
            self._advance()
        return self.answer(run, epoch)

    def end(self, run_id: str):
        """Plan the runs that waited for an open run, which has ended."""
        run = self.open.pop(run_id)
        if run.stage == "tune":
            self._advance()

    def answer(self, run: PlannedRun, epoch: int) -> Answer:
        """Return what a run does after an epoch, which is not after its last one."""
        if run.stage == "confirm" or epoch not in run.curve:
            return Answer.CONTINUE
        # A run after the samples measures again: it is needed to the end.
        if epoch >= self.study.epochs or run.index >= self.samples:
            return Answer.CONTINUE
        if run.index < len(self.design) and self.study.pruner == "halving":
            if self.rung and epoch >= self.rung:
                return Answer.WAIT
            return Answer.CONTINUE
        # Those that are known in every order of execution.
        known = self.tune_runs[: self._rules.compared(run.index, epoch)]
        earlier = (until(epoch, other.curve) for other in known)
        if self._pruner.prunes(epoch, until(epoch, run.curve), earlier):
            return Answer.PRUNE
        return Answer.CONTINUE

    @property
    def is_tuned(self) -> bool:
        """Whether its setting is chosen among several, or it has none to choose, as counts have."""
        return self.samples > 1 or self.point.closed_form

    @property
    def at_rung(self) -> bool:
        """Whether all runs of the start design have ended, have passed the rung or wait there."""
        if not self.rung:
            return True
        for run in self._design_runs:
            if run.ended or run.last_epoch > self.rung:
                continue
            # The next sweep trains a failed run again, and the rung waits for it.
            if run.status or run.id in self.open:
                return False
        return True

    @property
    def design_ended(self) -> bool:
        """Whether all runs of the start design have ended."""
        if len(self.tune_runs) < len(self.design):
            return False
        return all(run.ended for run in self._design_runs)

    @property
    def tuned(self) -> bool:
        """Whether all planned tune runs have ended, at least those of `samples` settings."""
        if len(self.tune_runs) < self.samples:
            return False
        return all(run.ended for run in self.tune_runs)

    @property
    def failed(self) -> bool:
        """Whether all its tune runs have failed: it has no result in this sweep."""
        return all(run.status == "failed" for run in self.tune_runs)

    def favours(self) -> list[bool]:
        """Return which settings of the start design ASHA continues at the rung."""
        rung = self.first_rung
        curves = [until(rung, run.curve) for run in self._design_runs]
        favoured = list[bool]()
        for index, curve in enumerate(curves):
            # All others, not only earlier ones: the whole design is there.
            others = curves[:index] + curves[index + 1 :]
            favoured.append(rung in curve and not self._pruner.prunes(rung, curve, others))
        return favoured

    @property
    def diverged(self) -> bool:
        """Whether all runs that decide about the point have diverged."""
        runs = self.tune_runs
        if self.confirm_runs:
            runs = self.confirm_runs
        return {run.status for run in runs} == {"diverged"}

    def losses_at_rung(self) -> list[float]:
        """Return the loss of each run at the first rung; infinity if there is none.

        A setting that was suggested twice has the run of the first one, and none of its own.
        """
        losses = list[float]()
        for index, run in enumerate(self.tune_runs):
            loss = math.inf
            # The fit must not read one run twice.
            if self.tune_runs.index(run) == index:
                loss = run.curve.get(self.first_rung, math.inf)
            losses.append(loss)
        return losses

    def losses(self) -> list[float]:
        """Return the final loss of each run: infinity if there is none.

        It is NaN for a run that was pruned, and for a setting that was suggested twice.
        """
        losses = list[float]()
        for index, run in enumerate(self.tune_runs):
            loss = self._value(run, math.inf)
            is_again = self.tune_runs.index(run) < index
            if is_again or run.status == "pruned":
                loss = math.nan
            losses.append(loss)
        return losses

    def pass_rung(self, kept: set[int]) -> list[PlannedRun]:
        """Continue the runs of these settings; prune and return those of the others."""
        # Runs that reach this rung later go on: the rung decides once.
        rung = self.rung
        self.rung = 0
        pruned = list[PlannedRun]()
        for index, run in enumerate(self._design_runs):
            if not rung or run.status or run.id in self.open:
                continue
            passed = run.last_epoch > rung  # before an interruption, or with a smaller budget
            if passed or index in kept:
                self.mark_open(run)
            else:
                self._prune(run, rung)
                pruned.append(run)
        self._advance()
        return pruned

    def _prune(self, run: PlannedRun, epoch: int):
        self.store.prune(run.id, epoch)
        run.status = "pruned"

    def end_design(self, smoothed: list[float], beyond: Setting | None):
        """Plan the first settings after the start design.

        `smoothed` are the losses of the fit to all points; `beyond` is the first of these settings,
        None if the sampler suggests it.
        """
        self._smoothed = smoothed
        self._beyond = beyond
        self._design_ended = True
        self._advance()

    def measure_again(self, runs: list[tuple[Setting, int]]):
        """Plan tune runs of these settings, each with its number in `repeats`."""
        self.measured_again = True
        for setting, repeat in runs:
            self.settings.append(setting)
            self._plan_tune_run(len(self.tune_runs), setting, repeat)

    def tune_further(self, most: int) -> bool:
        """Try as many settings again, up to `most` in all; return whether there is one to try."""
        tried = len(self.tune_runs)
        if not self.space or self.point.closed_form or tried >= most:
            return False
        self.samples = min(2 * tried, most)
        self.is_chosen = False
        self._advance()
        return True

    def choose(self, index: int, tuning_sd: float):
        """Plan the confirm runs of the setting of a tune run."""
        # The choice of a closed form is no matter of chance.
        if not self.point.closed_form:
            self.tuning_sd = two_digits(tuning_sd)
        self._confirm(self.settings[index])

    def plan_confirm_runs(self, setting: Setting, count: int) -> int:
        """Plan runs of the best setting until there are `count`; return how many are new."""
        seeds = self.study.confirm_seeds(count)[len(self.confirm_runs) :]
        if not seeds:
            return 0
        # Configs differ in the seed only; to make one takes long.
        first = self.point.run_config(setting, seeds[0])
        for seed, config in zip(seeds, with_seeds(first, seeds), strict=True):
            self.confirm_runs.append(self._plan("confirm", seed, setting, config))
        return len(seeds)

    def mark_open(self, run: PlannedRun):
        self.open[run.id] = run
        self._new.append(run)

    def mark_closed(self, run: PlannedRun):
        if self.open.pop(run.id, None) and run in self._new:
            self._new.remove(run)

    def pending(self) -> tuple[int, int]:
        """Return upper bounds on the runs and epochs left; pruning may make them fewer."""
        runs = max(0, self.samples - len(self.tune_runs))
        if not self.is_chosen:
            runs += max(self.seeds, len(self.confirm_runs))
            # An upper bound: few points are measured again.
            if not self.measured_again and not self.point.closed_form:
                runs += MOST_AGAIN
        done = 0
        for run in self.tune_runs + self.confirm_runs:
            if not run.status:
                runs += 1
                done += run.last_epoch
        return runs, runs * self.study.epochs - done

    def best_setting_json(self) -> dict[str, Any]:
        """Return the best setting, its confirm runs and its values at the edge of their ranges."""
        assert self.best_setting is not None
        return {
            "setting": self.best_setting,
            "runs": [run.id for run in self.confirm_runs],
            "edge": edges(self.space, self.settings, self.best_setting),
            "tuning_sd": self.tuning_sd,
        }

    @property
    def _design_runs(self) -> list[PlannedRun]:
        return self.tune_runs[: len(self.design)]

    def _advance(self):
        """Plan the settings that may start."""
        # A setting of which the store knows the end lets further ones start.
        indices = range(len(self.tune_runs), self._startable())
        while indices:
            self._plan_settings(indices)
            indices = range(len(self.tune_runs), self._startable())

    def _startable(self) -> int:
        """Return the number of settings, from the first one on, that may start."""
        if self.rung:
            return len(self.design)
        # The sampler gets the results of the whole design.
        most = len(self.design)
        if self._design_ended:
            most = self.samples
        return self._rules.startable(self.tune_runs, most)

    def _is_setting(self, value: Any) -> bool:
        """Return whether a stored setting is whole; a damaged one is suggested again."""
        if not isinstance(value, dict) or value.keys() != self.space.keys():
            return False
        return all(
            isinstance(bounds, Choice) or isinstance(value[name], int | float)
            for name, bounds in self.space.items()
        )

    def _plan_settings(self, indices: range):
        """Plan and store these settings; one that the model refuses has no run."""
        stored = self.store.settings(self.point.id)
        new: list[Setting] = []
        suggested: dict[int, Setting] = {}
        # All are suggested before one is planned: what a run of them has reached changes nothing.
        for index in indices:
            setting = stored.get(index, {})
            if not self._is_setting(setting):
                # In order, because the sampler reads the earlier settings.
                setting = self._suggest(self.settings + new)
                suggested[index] = setting
            new.append(setting)
        for index, setting in zip(indices, new, strict=True):
            self.settings.append(setting)
            # Neighbouring settings share the luck of a seed, so each further one has its own.
            repeat = max(0, index - len(self.design))
            self._plan_tune_run(index, setting, repeat)
            self._repeat_answer(self.tune_runs[-1])
        refusals = [run.reason for run in self.tune_runs if run.status == "refused"]
        if len(refusals) == len(self.tune_runs) >= len(self.design):
            raise UserError(
                f"point {self.point.display_label!r}: no suggested setting is valid: "
                f"{refusals[0]}; change the search space"
            )
        if suggested:
            self.store.add_settings(self.point.id, suggested)

    def _repeat_answer(self, run: PlannedRun):
        """Answer the last epoch again: a sweep may have ended between an epoch and its answer."""
        if run.status:
            return
        answer = self.answer(run, run.last_epoch)
        if answer is not Answer.CONTINUE:
            self.mark_closed(run)
        if answer is Answer.PRUNE:
            self._prune(run, run.last_epoch)

    def _plan_tune_run(self, index: int, setting: Setting, repeat: int = 0):
        """Plan a run of a setting; one that the model refuses has ended without training."""
        seed = self.tune_seed
        if repeat:
            # The same for the chosen setting and its challenger.
            derived = derive_seed(self.study.seed, self.point.id, "again", repeat)
            seed = FIRST_TUNE_SEED + derived % FIRST_TUNE_SEED
        self.repeats.append(repeat)
        try:
            config = self.point.run_config(setting, seed)
        except UserError as error:
            text = "%s: setting %s is not trained: %s"
            LOG.warning(text, self.point.display_label, setting, error)
            run = PlannedRun("", self.point.label, "tune", index, {"setting": setting}, 0)
            run.status = "refused"
            run.reason = str(error)
        else:
            run = self._plan("tune", index, setting, config)
        self.tune_runs.append(run)

    def _plan(self, stage: str, index: int, setting: Setting, config: dict[str, Any]) -> PlannedRun:
        """Return the run of a config, open unless the store shows its end."""
        run_id = config["run"]
        run = self._runs.get(run_id)  # two samples, or two points, have the same setting
        if run is None:
            config |= {
                "study": self.study.name,
                "point": {"id": self.point.id, "label": self.point.label},
                "stage": stage,
                "setting": dict(setting),
            }
            run = PlannedRun(run_id, self.point.label, stage, index, config, self.study.epochs)
            # So points take turns, and the first settings of all come first.
            run.priority = (len(self.tune_runs) + len(self.confirm_runs), self._position)
            self._runs[run_id] = run
            self._read(run)
        other = self._with_other_files(run)
        if other:
            return self._plan(stage, index, setting, other)
        model = config["model"]
        if "command" in model and "files" not in model["read"]:
            # True for a new run, too: it will say what it reads.
            noted = not run.curve
            if run.read:
                noted = True
            self._say(noticed(model["command"], model["files"], noted=noted))
        if not run.status and run_id not in self.open:
            self.mark_open(run)
        return run

    def _with_other_files(self, run: PlannedRun) -> dict[str, Any]:
        """Return the config of a new run if files have changed since this one read them; or {}."""
        where = Path(run.config.get("working_folder", ""))
        gone = [name for name in run.read if name[0] != "/" and not digest(where / name)]
        if gone:  # other machines may have it
            self._say(f"runs have read {', '.join(gone)}, which cannot be read now: they count")
        changed = changes(run.read, where)
        if not changed:
            return {}
        # What has changed joins the identity.
        files = run.config.get(FILES, {})
        config = dict(run.config)
        config[FILES] = files | changed
        config["run"] = run_identity(config)
        assert config["run"] != run.id, "a run has read what it was not planned with"
        if config["run"] not in self.store.known_runs:
            self._say(f"runs are trained again, because {', '.join(changed)} has changed")
        return config

    def _say(self, text: str):
        """Say something about the point once."""
        if text and text not in self._said:
            self._said.add(text)
            LOG.warning("%s: %s", self.point.display_label, text)

    def _read(self, run: PlannedRun):
        """Read the run's curve and its end, if it has ended, from the store."""
        run.is_new = run.id not in self.store.known_runs
        if run.is_new:
            return
        records = self.store.records(run.id, lambda: self.point.with_facts(run.config))
        notes = [record[FILES] for record in records if FILES in record]
        for note in notes:
            # The first digest of a file counts.
            run.read = {**note, **run.read}
        known = epoch_records(records)
        for record in known:
            # The first record always counts: the only epoch of a count model has the number of
            # the budget of the sweep that trained it.
            if record["epoch"] <= max(self.study.epochs, known[0]["epoch"]):
                run.add_epoch(record["epoch"], record["valid_token"])
        try:
            pending = records_pending(records, self.study.epochs, test=run.stage == "confirm")
        except UserError as error:
            raise UserError(f"point {self.point.display_label!r}: {error}") from None
        for record in records:
            if record.get("status") == "failed":
                run.add_failure(record.get("reason", ""), record.get("nodes", ()))
            # With another budget, the test is that of another epoch.
            if record["event"] == "test" and record["epoch"] == run.budget:
                run.test_loss = record["token"]
                run.test_accuracy = record.get("accuracy")
        if pending:
            # An archived run needs a folder again.
            self.store.continue_run(run.id)
            return
        run.status = "failed"
        end = find_end(records, self.study.epochs)
        if end:
            run.status = end["status"]
        self.store.end_run(run.id)

    def _suggest(self, earlier: list[Setting]) -> Setting:
        """Return the setting after `earlier`."""
        place = len(earlier)
        if place < len(self.design):
            return self.design[place]
        if self._beyond and place == len(self.design):
            return self._beyond
        # A choice has no order that a sampler could use.
        remaining = untried(self.space, earlier)
        if remaining:
            return remaining
        return self._search.suggest(earlier, self._result)

    def _result(self, index: int) -> Result:
        """Return the result of a setting that has ended."""
        run = self.tune_runs[index]
        value = self._value(run, self.point.failure_loss)
        # The fit lends the losses of the start design the strength of all points.
        if run.status == "finished" and index < len(self._smoothed):
            value = self._smoothed[index]
        return Result(value, run.status == "pruned", run.curve)

    def _value(self, run: PlannedRun, otherwise: float) -> float:
        """Return the lowest loss of a finished or pruned run."""
        # A run that diverged or failed has no lowest loss that counts.
        if run.status in ("finished", "pruned") and run.best_loss is not None:
            return run.best_loss
        return otherwise

    def _confirm(self, setting: Setting):
        self.is_chosen = True
        seeds = max(self.seeds, len(self.confirm_runs))
        if setting != self.best_setting:
            self.confirm_runs = []
        self.best_setting = dict(setting)
        self.plan_confirm_runs(setting, seeds)


def two_digits(sd: float) -> float:
    """Return a standard deviation as in `study.json`: rounding of losses moves further digits."""
    return round(float(f"{sd:.2g}"), 6)
