"""The command line: each command one call into the package.

Exit codes: 0 done; 1 something unexpected (a defect: run with --debug); 2 wrong usage; 3 the data or a
file cannot be used as given; 4 training failed; 130 interrupted (during training: what it had reached is
kept and written; at any other time nothing is written).
"""

import json
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from unfade import __version__
from unfade.cli.commands import Output, Recovery, check_report, fitted
from unfade.cli.options import Asked, check, option_name
from unfade.errors import InvalidData, TrainingFailed, UnfadeError
from unfade.renamed import OPTIONS


def _present_option(name: str) -> str:
    """The present name of an option, with a note where an old one is given."""
    if name in OPTIONS:
        typer.echo(f"note: the option --{name} is called --{OPTIONS[name]} now", err=True)
    return OPTIONS.get(name, name)


app = typer.Typer(
    help="Recover the clean data behind incomplete, noisy observations, as a distribution.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"token_normalize_func": _present_option},
)
EXIT_UNEXPECTED, EXIT_DATA, EXIT_TRAINING, EXIT_INTERRUPTED = 1, 3, 4, 130

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@contextmanager
def _command(quiet: bool, as_json: bool, debug: bool) -> Iterator[Output]:
    """Errors become one sentence and an exit code; notices become notes."""
    output = Output(quiet, as_json)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            told: set[str] = set()

            def tell(message: Warning | str, *_: Any, **__: Any) -> None:
                if str(message) not in told:
                    told.add(str(message))
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
    """The files to read and to write, also where they stand for pipes; options that have no effect are refused first."""
    from unfade.cli.pipes import DASH, is_piped, received, sent
    from unfade.io.images import are_frames
    from unfade.io.tables import ARRAYS
    from unfade.storage import check_name
    from unfade.training.progress import working

    chosen = context.params
    given = {name for name in chosen if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"}
    data, output = chosen["data"], chosen.get("output", Path("nowhere.csv"))
    for path in chosen.values():
        if isinstance(path, Path):
            check_name(path)
    for name in given - {"data", "output"}:
        if chosen[name] == DASH:
            raise InvalidData(f"{option_name(name)} - is no file: only DATA and -o may be pipes. Give the name of a file.")
    with received(data) as source, sent(output) as target:
        out.named = {str(source): "standard input" if data == DASH else str(data), str(target): str(output)}
        out.result_piped = output == DASH
        kind = "images" if are_frames(source) else "array" if source.suffix.lower() in ARRAYS else "table"
        parts = kind != "images" and not target.suffix
        for note in check(Asked(frozenset(given), kind, parts, is_piped(data), output == DASH)):
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


def _noise(text: str) -> Any:
    """none, one of those that are learned, infer, one number, one a column with commas between, or by name."""
    if text.lower() == "none":
        return None
    if text in ("learn", "learn-by-column", "learn-shared", "learn-by-value", "infer"):
        return text
    try:
        if "=" in text:
            pairs = [_split(part, "=", "--noise", "temp=0.5,hum=learn") for part in text.split(",")]
            return {name: level if level == "learn" else float(level) for name, level in pairs}
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidData(
            f"--noise takes none, learn, learn-shared, learn-by-value, numbers such as 0.3 or 0.1,0.2, or levels by column "
            f"such as temp=0.5,hum=learn, got {text!r}."
        ) from None
    return numbers[0] if len(numbers) == 1 else numbers


Noise = Annotated[
    str,
    typer.Option(help="none, learn (per column), learn-shared, learn-by-value, infer, 0.3, or temp=0.5,hum=learn."),
]
Method = Annotated[str, typer.Option(help="tae, mvae, miwae or tae-paper (slow: 500,000 steps).")]
Kinds = Annotated[list[str] | None, typer.Option("--kind", help="Kind of a column: zip=category or note=passthrough.")]
Bounds = Annotated[list[str] | None, typer.Option(help="Least and largest value of a column, age=0:120, or of all, 0:1.")]
DetectionLimits = Annotated[
    list[str] | None, typer.Option("--detection-limit", help="Detection limit of a column: 'lead<0.5'.")
]
Marks = Annotated[
    list[str] | None,
    typer.Option("--missing", help="Value that stands for missing ones: -99 (in all columns) or age=-99; may be repeated."),
]
Fill = Annotated[
    str | None,
    typer.Option(help="What missing cells get: mean, median or draw (mean), rounded to a value that the column can hold."),
]
Scale = Annotated[str, typer.Option(help="auto, variance, interval, joint-variance, joint-interval or none.")]
Network = Annotated[str, typer.Option(help="auto, full, or for images conv (the paper's) or conv-large.")]
Members = Annotated[int | None, typer.Option(min=1, help="Models side by side; chosen by the size of the table.")]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="The same seed gives the same result.")]
MaxSteps = Annotated[int | None, typer.Option(help="Training steps; chosen by held-out cells where not given.")]
MaxSeconds = Annotated[float | None, typer.Option(help="Time budget of the fit.")]
Model = Annotated[Path | None, typer.Option(help="Use this fitted model instead of fitting.")]
MissingValue = Annotated[
    str | None,
    typer.Option(
        help="What pixels hold that were not measured, in all channels: 0 (whole numbers), nan (others), or none."
    ),
]
DATA = typer.Argument(
    help="Table or array: .csv, .parquet, .feather, .npy or .npz; empty cells or NaN are missing; - is standard input."
)
IMAGES_TOO = typer.Argument(
    help="Table (.csv, .parquet, .feather), array (.npy, .npz, .zarr), a folder of images, or - (CSV from standard input)."
)


@app.command()
def recover(
    context: typer.Context,
    data: Annotated[Path, IMAGES_TOO],
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            help="Where the recovered data (posterior mean) go; a folder: part by part; -: as CSV to standard output.",
        ),
    ],
    noise: Noise = "none",
    method: Method = "tae",
    kinds: Kinds = None,
    missing: Marks = None,
    fill: Fill = None,
    bounds: Bounds = None,
    detection_limits: DetectionLimits = None,
    scaling: Scale = "auto",
    network: Network = "auto",
    n_members: Members = None,
    draws: Annotated[
        int | None, typer.Option(help="Number of draws for --draws-to (20; 8 of images), or into a folder (none).")
    ] = None,
    draws_to: Annotated[
        Path | None,
        typer.Option(help="Long table of draws: columns draw, row, then the data's; of images where their draws go."),
    ] = None,
    std_to: Annotated[Path | None, typer.Option(help="Where standard deviations go, if DATA are images.")] = None,
    missing_value: MissingValue = None,
    gallery: Annotated[
        Path | None, typer.Option(help="Picture (.png) of some images: given, mean, draws, standard deviation.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Page (.html) that says how far to trust the result.")] = None,
    model: Model = None,
    save: Annotated[Path | None, typer.Option(help="Save the fitted model here.")] = None,
    memory: Annotated[str, typer.Option(help="What data may take at a time, if -o is a folder.")] = "2GB",
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder in which training keeps what it has reached; empty again at the end.")
    ] = None,
    checkpoint_every: Annotated[float, typer.Option(min=0, help="Seconds between checkpoints.")] = 60.0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from what a stopped run has left.")] = False,
    n_candidates: Annotated[
        int | None, typer.Option(help="Proposals a draw is resampled from; 0: plain draws, faster.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be trained and how long it takes; write nothing.")
    ] = False,
    seed: Seed = 0,
    max_steps: MaxSteps = None,
    max_seconds: MaxSeconds = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Fill and clean a file: fit on it (or take a fitted model), write the posterior mean, and draws if asked."""
    from unfade.training.checkpoints import Checkpoint

    with _command(quiet, as_json, debug) as out, _files(out, context) as (data, output):
        if draws is not None and draws < 1:
            raise InvalidData(f"--draws must be at least 1, got {draws}.")
        how = _how(
            seed, method, noise, kinds, bounds, detection_limits, scaling, network, n_members, max_steps, max_seconds,
            missing,
        )  # fmt: skip
        keeper = None if checkpoint is None else Checkpoint(checkpoint, checkpoint_every, resume)
        job = Recovery(
            out, data, output, how, seed, draws, draws_to, std_to, missing_value, gallery, report, model, save, memory,
            keeper, resume, n_candidates, fill, dry_run,
        )  # fmt: skip
        interrupted = job.run()
    if interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)


@app.command()
def diagnose(
    context: typer.Context,
    data: Annotated[Path, IMAGES_TOO],
    noise: Noise = "none",
    method: Method = "tae",
    kinds: Kinds = None,
    missing: Marks = None,
    bounds: Bounds = None,
    detection_limits: DetectionLimits = None,
    scaling: Scale = "auto",
    network: Network = "auto",
    n_members: Members = None,
    report: Annotated[Path | None, typer.Option(help="The same as a page (.html), with pictures.")] = None,
    model: Model = None,
    seed: Seed = 0,
    max_steps: MaxSteps = None,
    max_seconds: MaxSeconds = None,
    missing_value: MissingValue = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Say how far to trust what would be recovered, without the truth: a verdict in words on each thing checked."""
    from unfade.io.images import read_data

    with _command(quiet, as_json, debug) as out, _files(out, context) as (data, _):
        if report is not None:
            check_report(report)
        table, rule = read_data(data, missing_value)
        if rule is not None:
            out.say(f"{data}: {len(table)} images; pixels missing: {rule}")
        how = _how(
            seed, method, noise, kinds, bounds, detection_limits, scaling, network, n_members, max_steps, max_seconds,
            missing,
        )  # fmt: skip
        rec = fitted(out, lambda rec: rec.fit(table), model, how)
        found = rec.diagnose(table)
        out.say(str(found))
        if report is not None:
            rec.report(report, table)
            out.say(f"  report: {report}")
        verdicts = [asdict(verdict) for verdict in found.verdicts]
        for verdict in verdicts:
            verdict["number"] = verdict["number"] if np.isfinite(verdict["number"]) else None
        out.result(level=found.level, verdicts=verdicts)


def _how(
    seed: int,
    method: str = "tae",
    noise: str = "none",
    kinds: list[str] | None = None,
    bounds: list[str] | None = None,
    detection_limits: list[str] | None = None,
    scaling: str = "auto",
    network: str = "auto",
    n_members: int | None = None,
    max_steps: int | None = None,
    max_seconds: float | None = None,
    missing: list[str] | None = None,
) -> dict[str, Any]:
    """Options that say how to fit, as Recoverer takes them."""
    return {
        "method": method,
        "noise": _noise(noise),
        "kinds": dict(_split(text, "=", "--kind", "zip=category") for text in kinds or ()) or None,
        "missing": _marks(missing or ()),
        "bounds": _bounds(bounds or ()),
        "detection_limits": dict(map(_limit, detection_limits or ())) or None,
        "scaling": None if scaling == "none" else scaling,
        "network": network,
        "n_members": n_members or "auto",
        "max_steps": max_steps,
        "max_seconds": max_seconds,
        "random_state": seed,
    }


@app.command("app")
def page(
    port: Annotated[int | None, typer.Option(help="A port of this machine; a free one where not given.")] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    debug: Debug = False,
) -> None:
    """A local page: drop a file, see what is missing, recover it, read the report, download. Nothing leaves the machine."""
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
    """The main job on embedded data, with pictures: corrupted 8 x 8 digits recovered, scored and drawn."""
    from unfade import demo as demos

    with _command(quiet, as_json, debug) as out:
        folder.mkdir(parents=True, exist_ok=True)
        shown = (demos.toy if toy else demos.digits)(folder, seed, verbose=0 if quiet else 1)
        out.say(shown.text)
        out.result(**asdict(shown))


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(help="The experiment; `list` names them all.")],
    folder: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder for results and pictures; NAME-SCHEDULE where not given.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The same as --schedule quick: minutes on two cores.")] = False,
    schedule: Annotated[
        str, typer.Option(help="paper: to the letter; equal: as many samples seen; short; quick.")
    ] = "equal",
    repeats: Annotated[
        int | None, typer.Option(min=1, help="Masks or subsets; the paper's number where not given.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with the data sets; fetched where they are not there.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    learn_noise: Annotated[bool, typer.Option("--learn-noise", help="Every method learns the noise level.")] = False,
    together: Annotated[int, typer.Option(min=1, help="Models trained side by side; more need more memory.")] = 30,
    data: Annotated[list[str] | None, typer.Option(help="Of table1: this data set; may be repeated.")] = None,
    missing: Annotated[list[float] | None, typer.Option(help="Of table1: this share missing; may be repeated.")] = None,
    way: Annotated[list[str] | None, typer.Option(help="Of table1, supp-mnar: this row; may be repeated.")] = None,
    lim: Annotated[
        list[float] | None, typer.Option(min=0.1, help="Of table1, supp-mnar: this floor; may be repeated.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the settings and stop.")] = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """An experiment of the paper into a folder; results that are already there are not run again."""
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
        only = data or (), way or (), lim or (), missing or ()
        report = run(name, target, schedule, repeats, data_dir, device, not learn_noise, together, out.say, *only)
        out.say(f"\n{report}\nFolder: {target}")


def _split(text: str, mark: str, option: str, example: str) -> tuple[str, str]:
    name, found, value = text.rpartition(mark)
    if not (found and name and value):
        raise InvalidData(f"{option} takes {example}, got {text!r}.")
    return name.strip(), value.strip()


def _bounds(texts: Sequence[str]) -> Any:
    """Pairs by column, one pair for all, or None."""
    found: dict[str, tuple[float | None, float | None]] = {}
    for text in texts:
        name, named, ends = text.rpartition("=")
        try:
            if named and not name.strip():
                raise ValueError
            low, high = (float(end) if end else None for end in ends.split(":"))
        except ValueError:
            raise InvalidData(f"--bounds takes age=0:120, age=0: (one end alone) or 0:1 (of all), got {text!r}.") from None
        found[name.strip()] = low, high
    if "" in found and len(found) > 1:
        raise InvalidData(f"--bounds is of all columns, or of some by name, got {list(texts)}.")
    return found.get("", found or None)


def _marks(texts: Sequence[str]) -> dict[str, list[str]] | None:
    """Values that stand for missing ones, by column; those of all columns under the name ""."""
    found: dict[str, list[str]] = {}
    for text in texts:
        name, _, mark = text.rpartition("=")
        found.setdefault(name.strip(), []).append(mark.strip())
    return found or None


def _limit(text: str) -> tuple[str, tuple[str, float]]:
    sign = "<" if "<" in text else ">"
    name, level = _split(text, sign, "--detection-limit", "lead<0.5 or height>200")
    try:
        return name, (sign, float(level))
    except ValueError:
        raise InvalidData(f"--detection-limit takes lead<0.5 or height>200, got {text!r}.") from None


def main() -> None:
    """Entry point of the `unfade` command."""
    sys.exit(app())
