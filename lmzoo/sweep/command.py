"""The command line of a study: `python sweeps/NAME.py [options]`.

The first line of output appears before torch and Ray are imported, which takes seconds.
"""

import contextlib
import dataclasses
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console as RichConsole

from lmzoo.cluster.resources import Resources
from lmzoo.command_line import gc_disabled, parse_settings, run_app
from lmzoo.plugins import import_plugins
from lmzoo.search_space import changed_search
from lmzoo.store.records import TRACEBACK, TRACKING
from lmzoo.study.study import Study
from lmzoo.sweep.trackers import check_trackers
from lmzoo.user_code import save as save_code

if TYPE_CHECKING:
    from lmzoo.data.corpus import Corpus
    from lmzoo.study.planner import Planner

Texts = list[str] | None
Plugins = Annotated[Texts, typer.Option("--plugin", help="FILE.py or module with parts of your own; repeatable.")]  # fmt: skip
TRACKER_SECONDS, INTERRUPTED_TRACKER_SECONDS = 600.0, 10.0
"""How long the end of a sweep waits for trackers such as W&B."""


def run_studies(studies: Sequence[Study]) -> None:
    """Run the command line of a study, or of several with a subcommand each, and exit.

    The exit code is 0 if the study is done, 1 if a run failed, 2 after invalid input, 130 after an
    interruption.
    """
    app = typer.Typer(
        add_completion=False, pretty_exceptions_enable=False, no_args_is_help=len(studies) > 1
    )
    for study in studies:
        own = (*_script(), study.name) if len(studies) > 1 else _script()
        app.command(study.name)(_command(dataclasses.replace(study, script=own)))
    run_app(app)


def _script() -> tuple[str, ...]:
    """Return the words of this process's command before the options."""
    path = Path(sys.argv[0])
    if path.suffix != ".py":
        return "lmzoo", "sweep", sys.argv[0]
    below = path.is_absolute() and path.is_relative_to(Path.cwd())
    return "python", str(path.relative_to(Path.cwd()) if below else path)


def _command(study: Study) -> Callable[..., None]:
    """Return the command of a study, whose options default to the study's values."""

    def command(
        corpus: Annotated[str, typer.Option(help="captions, multi30k_en, cath, text:PATH, ...")] = study.corpus,
        data_dir: Annotated[Path | None, typer.Option(help="Folder with the corpus files; default: download them.")] = None,
        epochs: Annotated[int, typer.Option(min=1, help="Epochs of every run that is not stopped early.")] = study.epochs,
        samples: Annotated[int, typer.Option(min=1, help="Settings tried for each point.")] = study.samples,
        parallel: Annotated[int, typer.Option(min=0, help="Settings that a point starts together; 0: enough for about 80 workers.")] = study.parallel,
        sampler: Annotated[str, typer.Option(help="tpe, gp, cmaes, qmc, random or grid.")] = "",
        pruner: Annotated[str, typer.Option(help="response, asha, halving, median or none.")] = "",
        seeds: Annotated[int, typer.Option(min=1, help="New seeds on which each point's best setting is trained.")] = study.seeds,
        until_decided: Annotated[bool, typer.Option("--until-decided", help="Add seeds to points whose difference from the reference is undecided.")] = bool(study.max_seeds),
        max_seeds: Annotated[int, typer.Option(min=1, help="Most seeds of a point with --until-decided.")] = study.max_seeds or 24,
        margin: Annotated[float, typer.Option(min=0, help="Difference in nats within which points are equivalent.")] = study.margin,
        seed: Annotated[int, typer.Option(min=0, help="Seed of the study; all training seeds derive from it.")] = study.seed,
        recipe: Annotated[str, typer.Option(help="default, or published to reproduce S0.")] = study.recipe,
        parameters: Annotated[int, typer.Option(min=0, help="Parameter budget that sets each point's width; 0 keeps the widths.")] = study.parameters,
        points: Annotated[str, typer.Option(help="LABEL,LABEL: train only these points and the baselines.")] = "",
        fields: Annotated[Texts, typer.Option("--set", help="FIELD=VALUE for all points: model.width=128")] = None,
        search_space: Annotated[Texts, typer.Option(help="FIELD=LOW:HIGH[:log], FIELD=a,b,c or FIELD=off")] = None,
        storage: Annotated[Path, typer.Option(envvar="LMZOO_STORAGE", help="Folder of the study stores, or s3://bucket/prefix.")] = Path("runs"),
        max_concurrent: Annotated[int, typer.Option(min=0, help="Maximum number of concurrent workers; 0: as many as fit.")] = 0,
        device: Annotated[str, typer.Option(help="auto uses the GPUs of the cluster if there are any; cpu, gpu.")] = "auto",
        cpus_per_trial: Annotated[float, typer.Option(min=0.01, help="CPUs of each worker.")] = 1.0,
        gpus_per_trial: Annotated[float | None, typer.Option(min=0.0, help="GPUs of each worker, or a share of one GPU: 0.25. Default: 1 where there are GPUs.")] = None,
        fuse: Annotated[str, typer.Option(help="Maximum number of runs trained together as a pack: auto, off or a number.")] = "auto",
        track: Annotated[Texts, typer.Option(help="Also log each run to wandb or mlflow.")] = None,
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the points, their pending runs and a time estimate.")] = False,
        as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line per finished run to stdout.")] = False,
        quiet: Annotated[bool, typer.Option("--quiet", help="Print errors and the ranking only.")] = False,
        plugins: Plugins = None,
        submit: Annotated[Path | None, typer.Option(metavar="CLUSTER.yaml", help="Run on this cluster; start it if it is down.")] = None,
        attach: Annotated[Path | None, typer.Option(metavar="CLUSTER.yaml", help="Follow the study's last job on this cluster.")] = None,
    ) -> None:  # fmt: skip
        if submit or attach:
            from lmzoo.cluster.submit import run_on_cluster

            raise SystemExit(run_on_cluster(study.name, sys.argv, submit=submit, attach=attach))
        import_plugins(plugins)
        settings = parse_settings(fields or [])
        search = changed_search(study.search, search_space or [])
        changed = dataclasses.replace(
            study, corpus=corpus, epochs=epochs, samples=samples, seeds=seeds, seed=seed, recipe=recipe,
            max_seeds=max_seeds if until_decided else 0, margin=margin,
            parameters=parameters, fields={**study.fields, **settings},
            search=search, off=tuple(sorted(study.search.keys() - search.keys())), parallel=parallel,
            **{name: value for name, value in (("sampler", sampler), ("pruner", pruner)) if value},
        )  # fmt: skip
        sweep = Sweep(
            changed, Resources(cpus_per_trial, gpus_per_trial, max_concurrent, device), fuse,
            track or [], as_json=as_json, quiet=quiet,
        )  # fmt: skip
        raise SystemExit(sweep.run(data_dir, storage, points, settings, dry_run=dry_run))

    command.__doc__ = study.question
    return command


class Sweep:
    """One execution of a study.

    Attributes:
        folder: The store of the study, known when `run` has started.
    """

    folder: Path

    def __init__(
        self,
        study: Study,
        resources: Resources,
        fuse: str = "auto",
        track: Sequence[str] = (),
        *,
        as_json: bool = False,
        quiet: bool = False,
        prints_ranking: bool = True,
    ) -> None:
        self.study, self.resources, self.fuse, self.track = study, resources, fuse, [*track]
        self.as_json, self.prints_ranking = as_json, prints_ranking and not as_json
        self.quiet = quiet
        self.stderr = RichConsole(stderr=True, highlight=False, soft_wrap=True)

    def run(
        self,
        data_dir: Path | None,
        storage: Path,
        labels: str,
        settings: dict[str, Any],
        *,
        dry_run: bool,
    ) -> int:
        """Plan the study, train its pending runs and print the ranking; return the exit code.

        `settings` are the fields of all points from the command line.
        """
        check_trackers(self.track)
        if not dry_run and not self.quiet:
            self.stderr.print(f"[bold]{self.study.name}[/]: {self.study.question}")
            self.stderr.print("loading torch and the corpus, which takes seconds")
        with gc_disabled():
            from lmzoo.data.open import open_corpus
            from lmzoo.data.unknown import describe_unknown
            from lmzoo.study.common_settings import check_settings
            from lmzoo.study.planner import Planner
            from lmzoo.study.resolve import corpus_config, resolve
            from lmzoo.study.select_points import select_labels
            from lmzoo.study.study_store import ReadOnlyStudyStore, StudyStore
            from lmzoo.sweep.dry_run import print_dry_run

        check_settings(self.study, settings)
        fields = corpus_config(self.study, self.study.fields)
        corpus = open_corpus(fields, data_dir)
        if not self.quiet and (note := describe_unknown(corpus)):
            self.stderr.print(note)
        needed = select_labels(self.study, corpus, labels)
        points = resolve(self.study, corpus, fields, needed)
        store_class = ReadOnlyStudyStore if dry_run else StudyStore
        self.folder = storage / f"{self.study.name}-{corpus.name}"
        with closing(store_class(self.folder)) as store:
            planner = Planner(self.study, points, corpus, store, needed)
            if dry_run:
                print_dry_run(planner, corpus, self.resources, as_json=self.as_json)
                return 0
            save_code(planner.code, store.store)
            return self._train(planner, corpus)

    def _train(self, planner: "Planner", corpus: "Corpus") -> int:
        """Train the pending runs and print the ranking; return the exit code."""
        with contextlib.ExitStack() as ray:
            if planner.done and not self.quiet:
                self.stderr.print(f"nothing left to do in {planner.store.store}")
            if not planner.done and not self._train_pending(planner, corpus, ray):
                self.stderr.print("interrupted; run the same command again to continue")
                return 130
            # Ray takes more than a second to shut down; the ranking is computed at the same time.
            ranking = _start_ranking(planner.store.store.address) if self.prints_ranking else None
        code = ranking.wait() if ranking else 0
        for run in planner.failed_runs:
            line = f"failed: {run.display_label}, {run.stage} {run.id}: {run.reason}"
            folder = planner.store.run(run.id).store
            has_traceback = folder.read(TRACEBACK) is not None
            self.stderr.print(f"{line}; {folder}/{TRACEBACK}" if has_traceback else line)
        return 1 if planner.failed_runs else code

    def _train_pending(
        self, planner: "Planner", corpus: "Corpus", ray: contextlib.ExitStack
    ) -> bool:
        """Train the pending runs on Ray, which ends with `ray`; return False if interrupted."""
        from lmzoo.cluster.connection import cluster
        from lmzoo.sweep.console import Console
        from lmzoo.sweep.packing import Packer, parse_fuse

        packer = Packer(corpus, parse_fuse(self.fuse))
        # Before `cluster` redirects stdout.
        console = Console(as_json=self.as_json, quiet=self.quiet, stderr=self.stderr)
        if not self.quiet:
            runs = sum(count for _, count, _ in planner.pending())
            self.stderr.print(f"{len(planner.points)} points, at most {runs} runs; starting Ray")
        stopped = threading.Event()
        ray.callback(stopped.set)
        prepared = threading.Thread(target=packer.prepare, args=(planner.ready(), stopped))
        ray.enter_context(cluster(meanwhile=lambda: _import_ray_tune(prepared)))

        from lmzoo.cluster.capacity import Capacity
        from lmzoo.sweep.fleet import Fleet
        from lmzoo.sweep.ray_backend import train
        from lmzoo.sweep.trackers import tracking_callbacks
        from lmzoo.sweep.tracking import Tracker

        capacity = Capacity(self.resources, self.stderr.print)
        capacity.check()
        console.devices = capacity.describe()
        if not self.quiet:
            self.stderr.print(f"{console.devices}; {planner.store.store}")
        experiment = planner.store.path.name
        callbacks = [*self.study.callbacks, *tracking_callbacks(self.track, experiment)]
        tracker = Tracker(callbacks, experiment, planner.store.path / TRACKING)
        fleet = Fleet(planner, packer, [console, tracker])
        console.fleet, console.workers = fleet, capacity.live
        console.waiting = lambda: capacity.waiting(fleet.wanted())
        complete = False
        try:
            with console:
                complete = train(fleet, capacity)
        finally:  # before Ray ends, because W&B logs from Ray actors
            tracker.close(TRACKER_SECONDS if complete else INTERRUPTED_TRACKER_SECONDS)
        return complete


def _import_ray_tune(prepared: threading.Thread) -> None:
    """Import what the sweep needs while Ray starts, and start to prepare the first runs."""
    prepared.start()
    with gc_disabled():
        import lmzoo.sweep.ray_backend  # noqa: F401


def _start_ranking(store: str) -> subprocess.Popen[bytes]:
    """Start a process that prints the ranking and writes its verdicts for TensorBoard."""
    return subprocess.Popen([sys.executable, "-m", "lmzoo", "rank", store, "--tensorboard"])
