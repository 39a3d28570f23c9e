"""The command line of a study: `python sweeps/NAME.py [options]`."""

import contextlib
import dataclasses
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console as RichConsole

from lmzoo.command_line import gc_disabled, parse_settings, run_command
from lmzoo.data.corpus import Corpus
from lmzoo.data.open import open_corpus
from lmzoo.errors import UserError
from lmzoo.search_space import parse_range
from lmzoo.sweep.console import Console
from lmzoo.sweep.dry_run import print_dry_run
from lmzoo.sweep.packing import Packer, parse_fuse
from lmzoo.sweep.planner import Planner
from lmzoo.sweep.resolve import corpus_config, resolve, select_labels
from lmzoo.sweep.study import Study
from lmzoo.sweep.study_store import ReadOnlyStudyStore, StudyStore

if TYPE_CHECKING:  # importing it imports Ray, which takes seconds
    from lmzoo.sweep.cluster import Resources

Texts = list[str] | None


def main(study: Study) -> None:
    """Run the study's command line and exit: 0 done, 2 invalid input, 130 interrupted."""

    def command(
        corpus: Annotated[str, typer.Option(help="captions, multi30k_en, cath, text:PATH, ...")] = study.corpus,
        data_dir: Annotated[Path | None, typer.Option(help="Folder with the corpus files; default: download them.")] = None,
        epochs: Annotated[int, typer.Option(min=1, help="Epochs of every run that is not stopped early.")] = study.epochs,
        samples: Annotated[int, typer.Option(min=1, help="Settings tried for each point.")] = study.samples,
        seeds: Annotated[int, typer.Option(min=1, help="New seeds on which each point's best setting is trained.")] = study.seeds,
        seed: Annotated[int, typer.Option(min=0, help="Seed of the study; all training seeds derive from it.")] = study.seed,
        recipe: Annotated[str, typer.Option(help="default, or published to reproduce S0.")] = study.recipe,
        parameters: Annotated[int, typer.Option(min=0, help="Parameter budget that sets each point's width; 0 keeps the widths.")] = study.parameters,
        points: Annotated[str, typer.Option(help="LABEL,LABEL: train only these points and the baselines.")] = "",
        fields: Annotated[Texts, typer.Option("--set", help="FIELD=VALUE for all points: model.width=128")] = None,
        search_space: Annotated[Texts, typer.Option(help="FIELD=LOW:HIGH[:log], FIELD=a,b,c or FIELD=off")] = None,
        storage: Annotated[Path, typer.Option(envvar="LMZOO_STORAGE", help="Folder of the study stores, or s3://bucket/prefix.")] = Path("runs"),
        max_concurrent: Annotated[int, typer.Option(min=0, help="Maximum number of concurrent workers; 0: as many as fit.")] = 0,
        cpus_per_trial: Annotated[float, typer.Option(min=0.01, help="CPUs of each worker.")] = 1.0,
        gpus_per_trial: Annotated[float, typer.Option(min=0.0, help="GPUs of each worker, or a share of one GPU: 0.25.")] = 0.0,
        fuse: Annotated[str, typer.Option(help="Maximum number of runs trained together as a pack: auto, off or a number.")] = "auto",
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the points, their pending runs and a time estimate.")] = False,
        as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line per finished run to stdout.")] = False,
        submit: Annotated[Path | None, typer.Option(metavar="CLUSTER.yaml", help="Run on this cluster; start it if it is down.")] = None,
        attach: Annotated[Path | None, typer.Option(metavar="CLUSTER.yaml", help="Follow the study's last job on this cluster.")] = None,
    ) -> None:  # fmt: skip
        if submit or attach:
            from lmzoo.sweep.submit import run_on_cluster

            raise SystemExit(run_on_cluster(study.name, sys.argv, submit=submit, attach=attach))
        search = _searched_fields(study, search_space or [])
        changed = dataclasses.replace(
            study, corpus=corpus, epochs=epochs, samples=samples, seeds=seeds, seed=seed, recipe=recipe,
            parameters=parameters, fields={**study.fields, **parse_settings(fields or [])},
            search=search, off=tuple(sorted(study.search.keys() - search.keys())),
        )  # fmt: skip
        from lmzoo.sweep.cluster import Resources

        resources = Resources(cpus_per_trial, gpus_per_trial, max_concurrent)
        _sweep(
            changed, data_dir, storage, resources, parse_fuse(fuse), points,
            dry_run=dry_run, as_json=as_json,
        )  # fmt: skip

    command.__doc__ = study.question
    run_command(command)


def _sweep(
    study: Study,
    data_dir: Path | None,
    storage: Path,
    resources: "Resources",
    max_members: int | None,
    labels: str,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    fields = corpus_config(study, study.fields)
    corpus = open_corpus(fields, data_dir)
    needed = select_labels(study, corpus, labels)
    points = resolve(study, corpus, fields, needed)
    store_class = ReadOnlyStudyStore if dry_run else StudyStore
    with closing(store_class(storage / f"{study.name}-{corpus.name}")) as store:
        planner = Planner(study, points, corpus, store, needed)
        if dry_run:
            print_dry_run(planner, corpus, resources, as_json=as_json)
            return
        raise SystemExit(_train(planner, corpus, resources, max_members, as_json=as_json))


def _train(
    planner: Planner, corpus: Corpus, resources: "Resources", members: int | None, *, as_json: bool
) -> int:
    """Train the pending runs and print the ranking; return the exit code."""
    stderr = RichConsole(stderr=True)
    with contextlib.ExitStack() as ray:
        if planner.done:
            stderr.print(f"nothing left to do in {planner.store.store}")
        else:
            from lmzoo.sweep.cluster import cluster

            console = Console(planner, as_json=as_json)  # before `cluster` redirects stdout
            packer = Packer(planner, corpus, max_members=members)
            ray.enter_context(cluster(meanwhile=lambda: _prepare(packer)))
            from lmzoo.sweep.ray_backend import train

            with console:
                complete = train(packer, resources, console)
            if not complete:
                stderr.print("interrupted; run the same command again to continue")
                return 130
        # Ray takes more than a second to shut down; the ranking is computed at the same time.
        ranking = None if as_json else _start_ranking(planner.store.store.address)
    return ranking.wait() if ranking else 0


def _prepare(packer: Packer) -> None:
    """Import Ray Tune and prepare the first runs."""
    with gc_disabled():
        import lmzoo.sweep.ray_backend  # noqa: F401
    packer.prepare()


def _start_ranking(store: str) -> subprocess.Popen[bytes]:
    """Start a process that prints the ranking: `lmzoo rank STORE`."""
    return subprocess.Popen([sys.executable, "-m", "lmzoo", "rank", store])


def _searched_fields(study: Study, overrides: list[str]) -> dict[str, Any]:
    """Return the study's searched fields, changed by the `--search-space` options."""
    search = dict(study.search)
    for text in overrides:
        path, equals, bounds = text.partition("=")
        if not equals:
            raise UserError(f"--search-space {text!r} is not FIELD=LOW:HIGH[:log] or FIELD=a,b,c")
        if bounds == "off":
            search.pop(path, None)
        else:
            search[path] = parse_range(bounds)
    return search
