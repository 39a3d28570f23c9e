"""The command line that every study has: `python sweeps/NAME.py [options]`."""

import contextlib
import dataclasses
import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console as Rich

from lmzoo.command_line import importing, read_settings, run_app
from lmzoo.data.corpus import Corpus
from lmzoo.data.open import open_corpus
from lmzoo.errors import UserError
from lmzoo.search_space import parse_range
from lmzoo.sweep.console import Console, duration
from lmzoo.sweep.estimate import seconds_per_epoch
from lmzoo.sweep.packing import Packer, read_fuse
from lmzoo.sweep.planner import Planner
from lmzoo.sweep.resolve import corpus_config, named, resolve
from lmzoo.sweep.study import Study
from lmzoo.sweep.study_store import ReadOnlyStudyStore, StudyStore

Texts = list[str] | None


def main(study: Study) -> None:
    """Run the study's command line and exit: 0 done, 2 bad input, 130 interrupted."""

    def command(
        corpus: Annotated[str, typer.Option(help="captions, multi30k_en, cath, text:PATH, ...")] = study.corpus,
        data_dir: Annotated[Path | None, typer.Option(help="Where the corpus's files lie; else they are downloaded.")] = None,
        epochs: Annotated[int, typer.Option(min=1, help="Epochs of every run that is not stopped early.")] = study.epochs,
        samples: Annotated[int, typer.Option(min=1, help="Settings tried for each point.")] = study.samples,
        seeds: Annotated[int, typer.Option(min=1, help="Fresh seeds that confirm each point's best setting.")] = study.seeds,
        seed: Annotated[int, typer.Option(min=0, help="Seed of the study itself.")] = study.seed,
        recipe: Annotated[str, typer.Option(help="default, or published to reproduce S0.")] = study.recipe,
        parameters: Annotated[int, typer.Option(min=0, help="Each point's width is the largest within so many; 0 leaves it.")] = study.parameters,
        points: Annotated[str, typer.Option(help="LABEL,LABEL: train only these points, and the floors.")] = "",
        fields: Annotated[Texts, typer.Option("--set", help="FIELD=VALUE for all points: model.width=128")] = None,
        search_space: Annotated[Texts, typer.Option(help="FIELD=LOW:HIGH[:log] or FIELD=a,b,c; FIELD=off")] = None,
        storage: Annotated[Path, typer.Option(envvar="LMZOO_STORAGE", help="Folder of the run stores, or s3://bucket/prefix.")] = Path("runs"),
        max_concurrent: Annotated[int, typer.Option(min=0, help="Trials at a time; 0: as many as fit.")] = 0,
        cpus_per_trial: Annotated[float, typer.Option(min=0.01)] = 1.0,
        gpus_per_trial: Annotated[float, typer.Option(min=0.0)] = 0.0,
        fuse: Annotated[str, typer.Option(help="Runs trained as one program at most: auto, off or a number.")] = "auto",
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the points, what is owed, an estimate.")] = False,
        as_json: Annotated[bool, typer.Option("--json", help="One JSON line per finished run on stdout.")] = False,
        submit: Annotated[Path | None, typer.Option(metavar="CLUSTER.yaml", help="Run this there, not here; start it if needed.")] = None,
        attach: Annotated[Path | None, typer.Option(metavar="CLUSTER.yaml", help="Come back to the last one submitted there.")] = None,
    ) -> None:  # fmt: skip
        if submit or attach:
            from lmzoo.sweep.submit import elsewhere

            raise SystemExit(elsewhere(study.name, sys.argv, submit=submit, attach=attach))
        searched = _searched(study, search_space or [])
        changed = dataclasses.replace(
            study, corpus=corpus, epochs=epochs, samples=samples, seeds=seeds, seed=seed, recipe=recipe,
            parameters=parameters, fields={**study.fields, **read_settings(fields or [])},
            search=searched, off=tuple(sorted(study.search.keys() - searched.keys())),
        )  # fmt: skip
        from lmzoo.sweep.cluster import Resources

        resources = Resources(cpus_per_trial, gpus_per_trial, max_concurrent)
        _sweep(
            changed,
            data_dir,
            storage,
            resources,
            read_fuse(fuse),
            points,
            dry_run=dry_run,
            as_json=as_json,
        )

    command.__doc__ = study.question
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(command)
    run_app(app)


def _sweep(
    study: Study,
    data_dir: Path | None,
    storage: Path,
    resources: Any,
    fuse: int | None,
    wanted: str,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    fields = corpus_config(study, study.fields)
    corpus = open_corpus(fields, data_dir)
    needed = named(study, corpus, wanted)
    points = resolve(study, corpus, fields, needed)
    opened = ReadOnlyStudyStore if dry_run else StudyStore
    with closing(opened(storage / f"{study.name}-{corpus.name}")) as store:
        agenda = Planner(study, points, corpus, store, needed)
        if dry_run:
            _describe(agenda, corpus, resources, as_json=as_json)
            return
        raise SystemExit(_work(agenda, corpus, resources, fuse, as_json=as_json))


def _work(
    agenda: Planner, corpus: Corpus, resources: Any, fuse: int | None, *, as_json: bool
) -> int:
    """Train what is owed and print the ranking; the exit code, 130 if that was interrupted."""
    say = Rich(stderr=True)
    with contextlib.ExitStack() as ray:
        if agenda.done:
            say.print(f"nothing left to do in {agenda.store.store}")
        else:
            from lmzoo.sweep.cluster import cluster

            console = Console(agenda, as_json=as_json)  # while stdout is still its own
            packer = Packer(agenda, corpus, most=fuse)
            ray.enter_context(cluster(meanwhile=lambda: _prepare(packer)))
            from lmzoo.sweep.ray_backend import train

            with console:
                complete = train(packer, resources, console)
            if not complete:
                say.print("stopped; the same command goes on from here")
                return 130
        # Ray takes more than a second to end, and the ranking is made meanwhile.
        ranking = None if as_json else _ranking(agenda.store.store.address)
    return ranking.wait() if ranking else 0


def _prepare(packer: Packer) -> None:
    """Import what takes long, and let the runs that come first be looked at."""
    with importing():
        import lmzoo.sweep.ray_backend  # noqa: F401
    packer.prepare()


def _ranking(path: str) -> subprocess.Popen[bytes]:
    """What prints the ranking, as `python lmzoo/cli/rank.py PATH` does."""
    return subprocess.Popen([sys.executable, "-m", "lmzoo.cli.rank", path])


def _describe(agenda: Planner, corpus: Corpus, resources: Any, *, as_json: bool) -> None:
    """The points, what each still owes, and the time that may take."""
    import os

    slots = resources.concurrent or max(1, int((os.cpu_count() or 1) / resources.cpus))
    rows, total = [], 0.0
    for point, runs, epochs in agenda.owed():
        each = seconds_per_epoch(point.point, corpus)
        total += each * epochs / slots
        rows.append(
            {
                "point": point.point.label,
                "aliases": point.point.aliases,
                "runs": runs,
                "epochs": epochs,
                "seconds_per_epoch": round(each, 3),
            }
        )
    if as_json:
        typer.echo(json.dumps({"points": rows, "seconds": round(total), "slots": slots}))
        return
    out = Rich()
    out.print(f"[bold]{agenda.study.question}[/]\n{corpus.name}: {corpus.source}")
    for row in rows:
        same = f" ≡ {', '.join(row['aliases'])}" if row["aliases"] else ""
        out.print(
            f"  {row['point']}{same}: {row['runs']} runs, at most {row['epochs']} epochs "
            f"of {row['seconds_per_epoch']:.2f} s",
            highlight=False,
        )
    done = "nothing left to do" if not rows else f"at most about {duration(total)}"
    out.print(f"{done}, {slots} at a time, in {agenda.store.store}")


def _searched(study: Study, overrides: list[str]) -> Mapping[str, Any]:
    """The study's search fields, with those given on the command line over them."""
    search = dict(study.search)
    for text in overrides:
        path, equals, where = text.partition("=")
        if not equals:
            raise UserError(f"--search-space {text!r} is not FIELD=LOW:HIGH[:log] or FIELD=a,b,c")
        if where == "off":
            search.pop(path, None)
        else:
            search[path] = parse_range(where)
    return search
