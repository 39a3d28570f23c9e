"""The command line of a study: `python sweeps/NAME.py [options]`."""

import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from lmzoo.cluster.resources import Resources
from lmzoo.command_line import parse_settings, run_app
from lmzoo.own_parts.importing import import_plugins
from lmzoo.search_space import changed_search
from lmzoo.study.study import Study
from lmzoo.sweep.driver.execution import Sweep

Texts = list[str] | None
Plugins = Annotated[Texts, typer.Option("--plugin", help="FILE.py or module with parts of your own; repeatable.")]  # fmt: skip


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
        fields: Annotated[Texts, typer.Option("--set", help="FIELD=VALUE for all points: model.width=128, or on GPUs recipe.precision=tf32x3 (default), tf32, bf16")] = None,
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
        study.check()
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
