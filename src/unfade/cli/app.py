"""The commands, each one call into the package.

Exit codes: 0 done; 1 unexpected error (a defect: run with --debug); 2 wrong usage; 3 data or a file that cannot be
used; 4 training failed; 130 interrupted (during training its results so far are written; at any other time nothing is).
"""

import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from unfade import __version__
from unfade.cli.option_rules import Asked, check, option_name
from unfade.cli.options import (
    Applicable,
    AsJson,
    Bounds,
    Candidates,
    CheckpointEvery,
    CheckpointFolder,
    DataFolder,
    DataSets,
    Debug,
    Decimal,
    Derived,
    DetectionLimits,
    Device,
    DrawsFormat,
    DrawsTo,
    DryRun,
    Encoding,
    Experiment,
    ExperimentFolder,
    Fill,
    Floors,
    Gallery,
    Imputer,
    InferNoise,
    InputData,
    Kinds,
    LearnNoise,
    Marks,
    Masks,
    MaxColumns,
    MaxRows,
    MaxSeconds,
    MaxSteps,
    Members,
    Memory,
    Method,
    MissingValue,
    Model,
    Network,
    Noise,
    NumberOfDraws,
    Order,
    OutputData,
    Panel,
    PrintSettings,
    Query,
    Quick,
    Quiet,
    Repeats,
    Report,
    Resume,
    Save,
    Scale,
    ScoreDraws,
    Seed,
    Separator,
    Shares,
    Sheet,
    StdTo,
    StepSchedule,
    SumOf,
    Time,
    Together,
    Ways,
    Where,
)  # fmt: skip
from unfade.cli.output import Output
from unfade.cli.parsing import fit_parameters
from unfade.cli.recovery import Recovery, check_report, fitted
from unfade.errors import InvalidData, TrainingFailed, UnfadeError
from unfade.renamed import OPTIONS


def _present_option(name: str) -> str:
    """Return the present name of an option, with a note if a former one is given."""
    if name in OPTIONS:
        typer.echo(f"note: the option --{name} is now called --{OPTIONS[name]}", err=True)
    return OPTIONS.get(name, name)


app = typer.Typer(
    help="Recover the clean data behind incomplete, noisy observations, as a distribution.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"token_normalize_func": _present_option},
)
_PATHS = ("data", "output", "draws_to", "std_to", "gallery", "report", "model", "save", "checkpoint", "where")
EXIT_UNEXPECTED, EXIT_DATA, EXIT_TRAINING, EXIT_INTERRUPTED = 1, 3, 4, 130


@contextmanager
def _command(quiet: bool, as_json: bool, debug: bool) -> Iterator[Output]:
    """Print errors as one sentence with an exit code, and notices as notes."""
    output = Output(quiet, as_json)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            noted: set[str] = set()

            def tell(message: Warning | str, *_: Any, **__: Any) -> None:
                if str(message) not in noted:
                    noted.add(str(message))
                    output.note(str(message))

            warnings.showwarning = tell
            yield output
    except KeyboardInterrupt:
        typer.echo("interrupted: nothing was written under the names you gave", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except (UnfadeError, MemoryError) as error:
        if debug:
            raise
        typer.echo(output.shown(f"error: {error or 'not enough memory'}"), err=True)
        raise typer.Exit(EXIT_TRAINING if isinstance(error, TrainingFailed) else EXIT_DATA) from None
    except (typer.Exit, typer.BadParameter):
        raise
    except Exception as error:
        if debug:
            raise
        typer.echo(f"unexpected {type(error).__name__}: {error}\nRun again with --debug for the traceback.", err=True)
        raise typer.Exit(EXIT_UNEXPECTED) from None


@contextmanager
def _files(out: Output, context: typer.Context) -> Iterator[tuple[Path, Path]]:
    """Give the files to read and to write, with pipes resolved; refuse options that have no effect first."""
    from unfade.cli.pipes import DASH, is_database, is_piped, received, sent
    from unfade.io.images import are_frames
    from unfade.io.tables import ARRAYS
    from unfade.storage import check_name
    from unfade.training.progress import working

    chosen = context.params
    given = {name for name in chosen if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"}
    paths = {name: Path(chosen[name]) for name in _PATHS if chosen.get(name) is not None}
    data, output = paths["data"], paths.get("output", Path("nowhere.csv"))
    database = is_database(data)
    for path in paths.values():
        check_name(path)
    for name in paths.keys() - {"data", "output"}:
        if paths[name] == DASH:
            raise InvalidData(
                f"{option_name(name)} - is not a file: only DATA and -o may be pipes. Give the name of a file."
            )
    with received(data, chosen.get("query")) as source, sent(output) as target:
        out.named = {str(source): "standard input" if data == DASH else str(data), str(target): str(output)}
        out.result_piped = output == DASH
        kind = "images" if are_frames(source) else "array" if source.suffix.lower() in ARRAYS else "table"
        parts = kind != "images" and not target.suffix
        for note in check(Asked(frozenset(given), kind, parts, is_piped(data), output == DASH, database)):
            out.note(note)
        with working(not out.quiet, context.info_name or ""):
            yield source, target


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"unfade {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def recover(
    context: typer.Context, data: InputData, output: OutputData, noise: Noise = "none", method: Method = "auto",
    kinds: Kinds = None, missing: Marks = None, fill: Fill = None, bounds: Bounds = None,
    detection_limits: DetectionLimits = None, scaling: Scale = "auto", network: Network = "auto",
    n_members: Members = None, draws: NumberOfDraws = None, draws_to: DrawsTo = None, std_to: StdTo = None,
    missing_value: MissingValue = None, gallery: Gallery = None, report: Report = None, model: Model = None,
    save: Save = None, memory: Memory = "2GB", checkpoint: CheckpointFolder = None,
    checkpoint_every: CheckpointEvery = 60.0, resume: Resume = False, n_candidates: Candidates = None,
    dry_run: DryRun = False, seed: Seed = 0, max_steps: MaxSteps = None, max_seconds: MaxSeconds = None,
    applicable: Applicable = None, derived: Derived = None, sums: SumOf = None, order: Order = None, time: Time = None,
    panel: Panel = None, where: Where = None, draws_format: DrawsFormat = None, sep: Separator = None,
    decimal: Decimal = None, encoding: Encoding = None,
    sheet: Sheet = None, query: Query = None, quiet: Quiet = False, as_json: AsJson = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Fill and clean a file: fit on it (or use a fitted model), and write the posterior mean, with draws if asked for."""
    from unfade.io.guise import Layout
    from unfade.training.checkpoints import Checkpoint

    with _command(quiet, as_json, debug) as out, _files(out, context) as (data, output):
        if draws is not None and draws < 1:
            raise InvalidData(f"--draws must be at least 1, got {draws}.")
        parameters = fit_parameters(
            seed, method, noise, kinds, bounds, detection_limits, scaling, network, n_members, max_steps, max_seconds,
            missing, applicable, derived, sums, order, time, panel,
        )  # fmt: skip
        keeper = None if checkpoint is None else Checkpoint(checkpoint, checkpoint_every, resume)
        job = Recovery(
            out, data, output, parameters, seed, draws, draws_to, std_to, missing_value, gallery, report, model, save,
            memory, keeper, resume, n_candidates, fill, dry_run, Layout(sep, decimal, encoding, sheet), where, draws_format,
        )  # fmt: skip
        interrupted = job.run()
    if interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)


@app.command()
def diagnose(
    context: typer.Context, data: InputData, noise: Noise = "none", method: Method = "auto", kinds: Kinds = None,
    missing: Marks = None, bounds: Bounds = None, detection_limits: DetectionLimits = None, scaling: Scale = "auto",
    network: Network = "auto", n_members: Members = None, report: Report = None, model: Model = None, seed: Seed = 0,
    max_steps: MaxSteps = None, max_seconds: MaxSeconds = None, missing_value: MissingValue = None,
    applicable: Applicable = None, derived: Derived = None, sums: SumOf = None, order: Order = None, time: Time = None,
    panel: Panel = None, sep: Separator = None, decimal: Decimal = None, encoding: Encoding = None,
    sheet: Sheet = None, query: Query = None, quiet: Quiet = False, as_json: AsJson = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Judge without the truth how far to trust a recovery: a verdict in words for each check."""
    from unfade.estimator import Recoverer
    from unfade.io.guise import Layout
    from unfade.io.images import read_data
    from unfade.pipeline import nothing_to_recover, read_to_recover

    with _command(quiet, as_json, debug) as out, _files(out, context) as (data, _):
        if report is not None:
            check_report(report)
        table, rule = read_data(data, missing_value, Layout(sep, decimal, encoding, sheet))
        if rule is not None:
            out.say(f"{data}: {len(table)} images; pixels missing: {rule}")
        parameters = fit_parameters(
            seed, method, noise, kinds, bounds, detection_limits, scaling, network, n_members, max_steps, max_seconds,
            missing, applicable, derived, sums, order, time, panel,
        )  # fmt: skip
        if model is None and rule is None:
            table = read_to_recover(asked := Recoverer(**parameters).parameters(), table)
            nothing_to_recover(asked, table)  # for its notice: held-out cells can be judged all the same
        rec = fitted(out, lambda rec: rec.fit(table), model, parameters)
        found = rec.diagnose(table) if report is None else rec.report(report, table)
        out.say(str(found))
        if report is not None:
            out.say(f"  report: {report}")
        verdicts = [asdict(verdict) for verdict in found.verdicts]
        for verdict in verdicts:
            verdict["number"] = verdict["number"] if np.isfinite(verdict["number"]) else None
        out.result(level=found.level, verdicts=verdicts)


@app.command("score")
def score_imputers(
    context: typer.Context, data: InputData, imputer: Imputer = None, score_draws: ScoreDraws = 20, max_rows: MaxRows = 500,
    max_columns: MaxColumns = 10, noise: Noise = "none", kinds: Kinds = None, missing: Marks = None, seed: Seed = 0,
    max_steps: MaxSteps = None, max_seconds: MaxSeconds = None, sep: Separator = None, decimal: Decimal = None,
    encoding: Encoding = None, sheet: Sheet = None, query: Query = None, quiet: Quiet = False, as_json: AsJson = False,
    debug: Debug = False,
) -> None:  # fmt: skip
    """Rank imputers on the real holes of a table, without the truth, by the energy-I-Score."""
    from unfade.cli.scoring import ranking
    from unfade.io.guise import Layout
    from unfade.io.tables import read_table

    with _command(quiet, as_json, debug) as out, _files(out, context) as (data, _):
        parameters = fit_parameters(
            seed, noise=noise, kinds=kinds, missing=missing, max_steps=max_steps, max_seconds=max_seconds
        )
        table = read_table(data, Layout(sep, decimal, encoding, sheet))
        names = imputer or ["unfade", "iterative", "columns"]
        found = ranking(table, names, parameters, score_draws, max_rows, max_columns)
        out.say("energy-I-Score, lower is better")
        for name, each in found:
            out.say(f"  {name:<10} {each.score:.4f}  ({len(each.columns)} columns)")
        out.result(scores={name: asdict(each) for name, each in found})


@app.command("app")
def page(
    port: Annotated[int | None, typer.Option(help="Port of this computer; default: a free one.")] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    debug: Debug = False,
) -> None:
    """Serve a local page: load a file, see its missing cells, recover it, download. Data stay on this computer."""
    with _command(False, False, debug):
        from unfade.app import serve

        serve(port, browser)


@app.command()
def demo(
    toy: Annotated[bool, typer.Option("--toy", help="The two-dimensional experiment of the paper's figure 1(b).")] = False,
    folder: Annotated[Path, typer.Option("-o", "--output", help="Folder for the pictures.")] = Path("unfade-demo"),
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="The same seed gives the same result.")] = 0,
    quiet: Quiet = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Recover, score and draw corrupted 8 x 8 digits, on embedded data."""
    from unfade import demo as demos

    with _command(quiet, as_json, debug) as out:
        folder.mkdir(parents=True, exist_ok=True)
        shown = (demos.toy if toy else demos.digits)(folder, seed, verbose=0 if quiet else 1)
        out.say(shown.text)
        out.result(**asdict(shown))


@app.command()
def reproduce(
    name: Experiment, folder: ExperimentFolder = None, quick: Quick = False, schedule: StepSchedule = "equal",
    repeats: Repeats = None, data_dir: DataFolder = None, device: Device = "auto", learn_noise: LearnNoise = False,
    together: Together = 30, data: DataSets = None, missing: Shares = None, way: Ways = None, lim: Floors = None,
    mask: Masks = None, infer_noise: InferNoise = False, dry_run: PrintSettings = False, quiet: Quiet = False,
    debug: Debug = False,
) -> None:  # fmt: skip
    """Run an experiment of the paper into a folder; results that exist are not computed again."""
    from unfade.paper.reproduce import EXPERIMENTS, describe
    from unfade.paper.reproduce import reproduce as run

    with _command(quiet, False, debug) as out:
        if name == "list":
            out.say("\n".join(f"{known:22}{experiment.what}" for known, experiment in EXPERIMENTS.items()))
            return
        schedule = "quick" if quick else schedule
        settings = describe(name, schedule, repeats, not learn_noise)
        if dry_run:
            out.say(json.dumps(settings, indent=1))
            return
        target = folder or Path(f"{name}-{schedule}")
        way = [*(way or ()), *["TAE, noise inferred"] * infer_noise]
        only = data or (), way, lim or (), missing or (), mask or ()
        report = run(name, target, schedule, repeats, data_dir, device, not learn_noise, together, out.say, *only)
        out.say(f"\n{report}\nFolder: {target}")


def main() -> None:
    """Run the `unfade` command."""
    sys.exit(app())
