"""The command line of a study: `python sweeps/NAME.py [options]`.

The options that change the question are the fields of `Study`, which declare them; those that
change how and where it runs are the parameters of `_run`.
"""

import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from rich.markup import escape

from lmzoo.base.command_line import MOST, MOST_SEED, parse_settings, run_app
from lmzoo.base.errors import UserError
from lmzoo.base.own_parts import import_plugins
from lmzoo.base.search_space import changed_search
from lmzoo.lab.cluster.resources import Resources
from lmzoo.lab.study.study import Study, options
from lmzoo.lab.sweep.driver.execution import Sweep

Texts = list[str] | None
SWITCH = "with_"
"""Prefix of the parameter of an option's switch."""
Plugins = Annotated[Texts, typer.Option("--plugin", help="FILE.py or module with parts of your own; repeatable.")]  # fmt: skip


def run_studies(studies: Sequence[Study]):
    """Run the command line of a study, or of several with a subcommand each, and exit.

    The exit code is 0 if the study is done, 1 if a run failed, 2 after invalid input, 130 after an
    interruption.
    """
    several = len(studies) > 1
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=several)
    for study in studies:
        own = _script()
        given = sys.argv[1:]
        if several:  # the name of the study is a subcommand
            own += (study.name,)
            given = sys.argv[2:]
        asked = dataclasses.replace(study, script=own, given=tuple(given))
        app.command(study.name)(_command(asked))

    def run(**options: Any) -> Any:
        return app(prog_name=" ".join(_script()), **options)

    run_app(run, needs=("zoo", "sweeps"))


def _script() -> tuple[str, ...]:
    path = Path(sys.argv[0])
    if path.suffix != ".py":
        return "lmzoo", "sweep", sys.argv[0]
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    return "python", str(path)


def _command(study: Study) -> Callable[..., None]:
    """Return the command of a study: its own options, with its values as defaults, and `_run`'s."""

    def command(**given: Any):
        own = {}
        for name in given.keys() - EXECUTION.keys():
            own[name] = given.pop(name)
        _run(study, own, **given)

    parameters = list(_parameters(study)) + list(EXECUTION.values())
    vars(command)["__signature__"] = inspect.Signature(parameters)
    command.__doc__ = escape(study.question)  # typer reads `[red]` as a colour
    return command


def _parameters(study: Study) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(type(study))
    for name, option in options(study).items():
        value = getattr(study, name)
        flag = option.flag
        if option.switch:
            help_ = option.switch_help
            yield _parameter(SWITCH + name, bool, bool(value), option.switch, help=help_)
            value = value or option.switched
        if isinstance(value, Mapping):
            yield _parameter(name, Texts, None, flag, help=option.help)
        elif hints[name] in (int, float):
            limits = {"min": option.low, "max": MOST, "metavar": "X"}
            if hints[name] is int:
                limits["metavar"] = "N"
            if name == "seed":
                limits["max"] = MOST_SEED
            yield _parameter(name, hints[name], value, flag, help=option.help, **limits)
        elif not isinstance(value, tuple):  # `off` belongs to the searched fields
            named = None
            if isinstance(value, str):  # else the script gives an object
                named = value
            yield _parameter(name, str | None, named, flag, help=option.help)


def _parameter(name: str, kind: Any, default: Any, flag: str, **declared: Any) -> inspect.Parameter:
    annotation = Annotated[kind, typer.Option(flag, **declared)]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def changed_study(study: Study, given: Mapping[str, Any]) -> Study:
    """Return the study with the values of its options that the command line gives."""
    changes = {}
    for name, option in options(study).items():
        if given.get(name) is not None:
            changes[name] = given[name]
        if option.switch and not given[SWITCH + name]:
            changes[name] = 0
    search = changed_search(study.search, given["search"] or [])
    settings = parse_settings(given["fields"] or [])
    changes["fields"] = dict(study.fields) | settings
    changes["search"] = search
    left_out = study.search.keys() - search.keys()
    changes["off"] = tuple(sorted(left_out))
    return dataclasses.replace(study, **changes)


def _run(
    study: Study,
    own: Mapping[str, Any],
    *,
    data_dir: Annotated[Path | None, typer.Option(help="Folder with the corpus files; default: download them.")] = None,
    points: Annotated[str, typer.Option(help="LABEL,LABEL: train only these points and the baselines.")] = "",
    out: Annotated[Path, typer.Option(envvar="LMZOO_STORAGE", help="Folder of the study stores, or s3://bucket/prefix.")] = Path("runs"),
    max_concurrent: Annotated[int, typer.Option(min=0, max=MOST, metavar="N", help="Maximum number of concurrent workers; 0: as many as fit.")] = 0,
    max_cost: Annotated[float, typer.Option(min=0.0, help="Hours of all workers together, after which the sweep stops; 0: no limit.")] = 0.0,
    device: Annotated[str, typer.Option(help="auto uses the GPUs of the cluster if there are any; cpu, gpu.")] = "auto",
    cpus_per_trial: Annotated[float, typer.Option(min=0.01, help="CPUs of each worker.")] = 1.0,
    gpus_per_trial: Annotated[float | None, typer.Option(min=0.0, help="GPUs of each worker, or a share of one GPU: 0.25. Default: 1 where there are GPUs.")] = None,
    fuse: Annotated[str, typer.Option(help="Maximum number of runs trained together as a pack: auto, off or a number.")] = "auto",
    engine: Annotated[str, typer.Option(help="Who places the workers: packs, actors of Ray; tune, trials of Ray Tune.")] = "packs",
    no_curves: Annotated[bool, typer.Option("--no-curves", help="Write no TensorBoard curves, which are two files and folders a run.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Train again the finished runs since which a package, a variable or a file has changed.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the points, their pending runs and a time estimate.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line per finished run to stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print errors and the ranking only.")] = False,
    plugins: Plugins = None,
):  # fmt: skip
    """Run a study; `own` are the values of its options."""
    study.check()
    import_plugins(plugins)
    changed = changed_study(study, own)
    resources = Resources(
        cpus=cpus_per_trial,
        gpus=gpus_per_trial,
        concurrent=max_concurrent,
        device=device,
        hours=max_cost,
    )
    sweep = Sweep(
        changed,
        resources,
        fuse,
        curves=not no_curves,
        as_json=as_json,
        quiet=quiet,
        engine=engine,
        again=again,
    )
    settings = parse_settings(own["fields"] or [])
    raise SystemExit(sweep.run(data_dir, out, points, settings, dry_run=dry_run))


def train_study(
    study: Study, out: Path, data_dir: Path | None, workers: int, device: str, engine: str
) -> Path:
    """Train the pending runs of a study; return its store. A `UserError` says that runs failed."""
    resources = Resources(concurrent=workers, device=device)
    sweep = Sweep(study, resources, is_command=False, engine=engine)
    if sweep.run(data_dir, out, "", {}, dry_run=False) == 130:
        raise KeyboardInterrupt
    if sweep.failed:
        raise UserError(f"runs of study {study.name} failed; the lines above say why")
    return sweep.folder


EXECUTION = dict(list(inspect.signature(_run).parameters.items())[2:])
"""The options that change how and where a study runs, not what it asks."""
