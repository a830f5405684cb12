"""The command line: each command one call into the package.

Exit codes: 0 done; 1 something unexpected (a defect: run with --debug); 2 wrong usage; 3 the data or a
file cannot be used as given; 4 training failed; 130 interrupted (during training: what it had reached is
kept and written; at any other time nothing is written).
"""

import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from unfade import __version__
from unfade.errors import InvalidData, TrainingFailed, UnfadeError

app = typer.Typer(
    help="Recover the clean data behind incomplete, noisy observations, as a distribution.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
EXIT_UNEXPECTED, EXIT_DATA, EXIT_TRAINING, EXIT_INTERRUPTED = 1, 3, 4, 130

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


class Output:
    """What a command tells the user: text, one JSON object, or nothing."""

    def __init__(self, quiet: bool, as_json: bool):
        self.quiet = quiet
        self.as_json = as_json

    def say(self, text: str) -> None:
        """A line for people."""
        if not (self.quiet or self.as_json):
            typer.echo(text)

    def note(self, text: str) -> None:
        """A line worth knowing that is not the result: to standard error."""
        if not self.quiet:
            typer.echo(f"note: {text}", err=True)

    def result(self, **facts: Any) -> None:
        """The same facts for machines."""
        if self.as_json:
            typer.echo(json.dumps(facts))


@contextmanager
def _command(quiet: bool, as_json: bool, debug: bool) -> Iterator[Output]:
    """Errors become one sentence and an exit code; notices become notes."""
    output = Output(quiet, as_json)
    try:
        with warnings.catch_warnings(record=True) as notices:
            warnings.simplefilter("always", UserWarning)
            try:
                yield output
            finally:
                for notice in notices:
                    output.note(str(notice.message))
    except KeyboardInterrupt:
        typer.echo("interrupted: nothing was written under the names you gave", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except (UnfadeError, MemoryError) as error:
        if debug:
            raise
        typer.echo(f"error: {error or 'not enough memory'}", err=True)
        raise typer.Exit(EXIT_TRAINING if isinstance(error, TrainingFailed) else EXIT_DATA) from None
    except (typer.Exit, typer.BadParameter):
        raise
    except Exception as error:
        if debug:
            raise
        typer.echo(f"unexpected {type(error).__name__}: {error}\nRun again with --debug for the traceback.", err=True)
        raise typer.Exit(EXIT_UNEXPECTED) from None


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
    """none, learn, learn-by-column, infer, one number, or one a column with commas between."""
    if text.lower() == "none":
        return None
    if text in ("learn", "learn-by-column", "infer"):
        return text
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidData(
            f"--noise takes none, learn, learn-by-column or numbers such as 0.3 or 0.1,0.2, got {text!r}."
        ) from None
    return numbers[0] if len(numbers) == 1 else numbers


Noise = Annotated[str, typer.Option(help="none, learn, learn-by-column, 0.3, one a column (0.1,0.2) or infer.")]
Method = Annotated[str, typer.Option(help="tae, mvae, miwae or tae-paper (slow: 500,000 steps).")]
Kinds = Annotated[list[str] | None, typer.Option("--kind", help="Kind of a column: zip=category or note=excluded.")]
Bounds = Annotated[list[str] | None, typer.Option(help="Least and largest value of a column: age=0:120.")]
Limits = Annotated[list[str] | None, typer.Option("--limit", help="Detection limit of a column: 'lead<0.5'.")]
Scale = Annotated[str, typer.Option(help="variance, interval, joint-variance, joint-interval or none.")]
Members = Annotated[int | None, typer.Option(min=1, help="Models side by side; chosen by the size of the table.")]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="The same seed gives the same result.")]
MaxSteps = Annotated[int | None, typer.Option(help="Training steps; chosen by held-out cells where not given.")]
MaxSeconds = Annotated[float | None, typer.Option(help="Time budget of the fit.")]
Model = Annotated[Path | None, typer.Option(help="Use this fitted model instead of fitting.")]
DATA = typer.Argument(help="Table or array: .csv, .parquet, .feather, .npy or .npz; empty cells or NaN are missing.")


@app.command()
def recover(
    data: Annotated[Path, DATA],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Where the recovered data (posterior mean) go; a folder: part by part.")
    ],
    noise: Noise = "none",
    method: Method = "tae",
    kinds: Kinds = None,
    bounds: Bounds = None,
    limits: Limits = None,
    scaling: Scale = "variance",
    members: Members = None,
    draws: Annotated[int | None, typer.Option(help="Number of draws for --draws-to (20), or into a folder (none).")] = None,
    draws_to: Annotated[Path | None, typer.Option(help="Long table of draws: columns draw, row, then the data's.")] = None,
    std_to: Annotated[
        Path | None, typer.Option(help="Folder for standard deviations, if DATA is a folder of images.")
    ] = None,
    missing_value: Annotated[float | None, typer.Option(help="Of pixels that were not measured; 0, or NaN.")] = None,
    report: Annotated[Path | None, typer.Option(help="Page (.html) that says how far to trust the result.")] = None,
    model: Model = None,
    save: Annotated[Path | None, typer.Option(help="Save the fitted model here.")] = None,
    memory: Annotated[str, typer.Option(help="What data may take at a time, if -o is a folder.")] = "2GB",
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder in which training keeps what it has reached; empty again at the end.")
    ] = None,
    checkpoint_every: Annotated[float, typer.Option(min=0, help="Seconds between checkpoints.")] = 60.0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from what a stopped run has left.")] = False,
    refine: Annotated[int | None, typer.Option(help="Candidates a draw is chosen from; 0: plain draws, faster.")] = None,
    seed: Seed = 0,
    max_steps: MaxSteps = None,
    max_seconds: MaxSeconds = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Fill and clean a file: fit on it (or take a fitted model), write the posterior mean, and draws if asked."""
    from unfade.checkpoints import Checkpoint
    from unfade.files import column_names, count_missing, long_table, read_table, write_table

    with _command(quiet, as_json, debug) as out:
        started = time.monotonic()
        if draws is not None and draws < 1:
            raise InvalidData(f"--draws must be at least 1, got {draws}.")
        how = _how(seed, method, noise, kinds, bounds, limits, scaling, members, max_steps, max_seconds)
        keeper = None if checkpoint is None else Checkpoint(checkpoint, checkpoint_every, resume)
        if data.is_dir() and not any(data.glob("*.parquet")):
            folders = {"output": output, "std_to": std_to, "draws_to": draws_to}
            return _recover_images(
                out, data, folders, missing_value, how, model, save, draws or 8, refine, seed, memory, keeper
            )
        if not output.suffix:
            if draws_to is not None or report is not None:
                raise InvalidData(f"-o {output} is a folder, which holds the draws too: leave --draws-to and --report out.")
            return _recover_into_folder(out, data, output, how, model, save, draws, refine, seed, memory, resume, keeper)
        _check_paths(data, output, draws_to, save, report)
        table = read_table(data)
        _check_fits(data, table, output, draws_to)
        if model is None and not (draws_to or save or report) and _as_it_should_be(table, how):
            write_table(table, output)
            out.note(
                "nothing is missing and --noise is none: the data are written as they are. Say --noise learn to clean."
            )
            return out.result(rows=len(table), missing=0, left_missing=0, output=str(output))
        rec = _fitted(out, lambda rec: rec.fit(table, checkpoint=keeper), model, how)
        rec.refine = rec.refine if refine is None else refine
        clean, draws = rec.transform(table), draws or 20
        completed = rec.sample(table, draws, seed=seed) if draws_to else None
        write_table(clean, output)
        if completed is not None and draws_to is not None:
            write_table(long_table(completed, column_names(table)), draws_to)
        if save is not None:
            rec.save(save)
        if report is not None:
            rec.report(report, table, completed)
        if keeper is not None and not rec.interrupted_:
            keeper.clear()
        missing, left = count_missing(table), count_missing(clean)
        seconds = time.monotonic() - started
        level = _readable(rec.noise_, column_names(table))
        out.say(f"{data}: {missing} missing cells, {missing - left} filled; noise sd {level}; {seconds:.0f} s")
        written = ((output, "recovered data"), (draws_to, f"{draws} draws"), (save, "model"), (report, "report"))
        for path, what in written:
            if path is not None:
                out.say(f"  {what}: {path}")
        out.result(
            rows=len(table), missing=missing, left_missing=left, noise=_listed(rec.noise_), seconds=round(seconds, 3),
            output=str(output), draws_to=draws_to and str(draws_to), model=save and str(save),
            report=report and str(report), steps=[history.steps[-1] for history in rec.histories_ if history.steps],
        )  # fmt: skip
        if model is None and rec.interrupted_:
            raise typer.Exit(EXIT_INTERRUPTED)


@app.command()
def diagnose(
    data: Annotated[Path, DATA],
    noise: Noise = "none",
    method: Method = "tae",
    kinds: Kinds = None,
    bounds: Bounds = None,
    limits: Limits = None,
    scaling: Scale = "variance",
    members: Members = None,
    report: Annotated[Path | None, typer.Option(help="The same as a page (.html), with pictures.")] = None,
    model: Model = None,
    seed: Seed = 0,
    max_steps: MaxSteps = None,
    max_seconds: MaxSeconds = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Say how far to trust what would be recovered, without the truth: a verdict in words on each thing checked."""
    from unfade.files import read_table

    with _command(quiet, as_json, debug) as out:
        if report is not None:
            _check_report(report)
        table = read_table(data)
        how = _how(seed, method, noise, kinds, bounds, limits, scaling, members, max_steps, max_seconds)
        rec = _fitted(out, lambda rec: rec.fit(table), model, how)
        found = rec.diagnose(table)
        out.say(str(found))
        if report is not None:
            rec.report(report, table)
            out.say(f"  report: {report}")
        verdicts = [asdict(verdict) for verdict in found.verdicts]
        for verdict in verdicts:
            verdict["number"] = verdict["number"] if np.isfinite(verdict["number"]) else None
        out.result(level=found.level, verdicts=verdicts)


def _recover_into_folder(
    out: Output,
    data: Path,
    folder: Path,
    how: dict[str, Any],
    model: Path | None,
    save: Path | None,
    draws: int | None,
    refine: int | None,
    seed: int,
    memory: str,
    resume: bool,
    checkpoint: Any,
) -> None:
    """The same for files larger than memory: fitted on a sample, written part by part."""
    from unfade.storage import check_writable
    from unfade.streaming import fit_stream, recover_stream

    started, kept = time.monotonic(), folder.with_name(folder.name + ".model")
    for path in (save, kept):
        if path is not None:
            check_writable(path)
    if model is None and resume and kept.exists():
        model, how = kept, _how(seed)  # what a run that was stopped had fitted
    rec = _fitted(out, lambda rec: fit_stream(rec, data, memory, seed, checkpoint), model, how)
    for path in (save, kept if model is None else None):
        if path is not None:
            rec.save(path)
    recover_stream(rec, data, folder, draws or 0, refine, seed, memory, resume=resume)
    kept.unlink(missing_ok=True)
    if checkpoint is not None:
        checkpoint.clear()
    seconds = time.monotonic() - started
    out.say(f"{data}: recovered in {seconds:.0f} s\n  recovered data: {folder / 'clean.parquet'}")
    if draws:
        out.say(f"  {draws} draws: {folder / 'draws.parquet'}")
    out.result(output=str(folder), draws=draws, seconds=round(seconds, 3), model=save and str(save))


def _recover_images(
    out: Output,
    data: Path,
    folders: dict[str, Path | None],
    missing: float | None,
    how: dict[str, Any],
    model: Path | None,
    save: Path | None,
    draws: int,
    refine: int | None,
    seed: int,
    memory: str,
    checkpoint: Any,
) -> None:
    """The same for a folder of images, one file a sample."""
    from unfade.frames import Frames, check_free, fit_frames, recover_frames
    from unfade.streaming.sources import parse_memory

    for folder in folders.values():
        if folder is not None:
            check_free(folder)
    started, frames = time.monotonic(), Frames.open(data, missing)
    size = 4 * max(1, int(np.prod(frames.shape)))
    rec = _fitted(out, lambda rec: fit_frames(rec, frames, parse_memory(memory) // (4 * size), checkpoint), model, how)
    rec.refine = rec.refine if refine is None else refine
    if save is not None:
        rec.save(save)
    at_once = min(64, max(1, parse_memory(memory) // (8 * size * (draws + 4))))
    recover_frames(rec, frames, **folders, draws=draws, seed=seed, at_once=at_once)  # type: ignore[arg-type]
    if checkpoint is not None:
        checkpoint.clear()
    seconds, written = time.monotonic() - started, [str(folder) for folder in folders.values() if folder is not None]
    out.say(f"{data}: {len(frames)} images recovered in {seconds:.0f} s\n  {', '.join(written)}")
    out.result(images=len(frames), output=written, seconds=round(seconds, 3), model=save and str(save))


def _how(
    seed: int,
    method: str = "tae",
    noise: str = "none",
    kinds: list[str] | None = None,
    bounds: list[str] | None = None,
    limits: list[str] | None = None,
    scaling: str = "variance",
    members: int | None = None,
    max_steps: int | None = None,
    max_seconds: float | None = None,
) -> dict[str, Any]:
    """Options that say how to fit, as Recoverer takes them."""
    return {
        "method": method,
        "noise": _noise(noise),
        "kinds": dict(_split(text, "=", "--kind", "zip=category") for text in kinds or ()) or None,
        "bounds": dict(map(_bounds, bounds or ())) or None,
        "limits": dict(map(_limit, limits or ())) or None,
        "scaling": None if scaling == "none" else scaling,
        "members": members or "auto",
        "max_steps": max_steps,
        "max_seconds": max_seconds,
        "random_state": seed,
    }


def _fitted(out: Output, fit: Callable[[Any], Any], model: Path | None, how: dict[str, Any]) -> Any:
    """A recoverer, fitted by `fit` or from a file; of processes that train together the first goes on with it."""
    from unfade import Recoverer, processes

    if model is None:
        with processes.group():
            others = processes.rank() > 0
            rec = fit(Recoverer(**how, verbose=0 if out.quiet or others else 1))
        if others:
            raise typer.Exit
        return rec
    if how != _how(how["random_state"]):
        out.note(
            f"{model} is fitted already: options that say how to fit (--noise, --kind, --max-steps and the like) "
            "have no effect with --model."
        )
    return Recoverer.load(model)


def _as_it_should_be(table: Any, how: dict[str, Any]) -> bool:
    """Whether there is nothing to recover: no hole, no noise, no cell known to an interval only."""
    from unfade import Recoverer
    from unfade.files import count_missing

    if how["noise"] is not None or count_missing(table):
        return False
    rec = Recoverer(**how)
    rec._check_parameters()
    obs, _ = rec._door(table, reset=True)
    return bool(obs.observed.all()) and not bool(obs.within().any())


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
    schedule: Annotated[str, typer.Option(help="paper: to the letter; equal: as many samples seen; quick.")] = "equal",
    repeats: Annotated[
        int | None, typer.Option(min=1, help="Masks or subsets; the paper's number where not given.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with the data sets; fetched where they are not there.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    learn_noise: Annotated[bool, typer.Option("--learn-noise", help="Every method learns the noise level.")] = False,
    together: Annotated[int, typer.Option(min=1, help="Models trained side by side; more need more memory.")] = 30,
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
        report = run(name, target, schedule, repeats, data_dir, device, not learn_noise, together, out.say)
        out.say(f"\n{report}\nFolder: {target}")


def _check_report(report: Path) -> None:
    from unfade.storage import check_writable

    if report.suffix not in (".html", ".htm"):
        raise InvalidData(f"--report writes a page: give a name that ends in .html, got {report.name!r}.")
    check_writable(report)


def _check_paths(data: Path, output: Path, draws_to: Path | None, save: Path | None, report: Path | None) -> None:
    """Refuse what could not be written, before any work is done."""
    from unfade.files import check_output
    from unfade.storage import check_writable

    for path in (output, draws_to):
        if path is not None:
            check_output(path)
    if save is not None:
        check_writable(save)
    if report is not None:
        _check_report(report)
    given = [path for path in (output, draws_to, save, report) if path is not None]
    if len(set(given)) < len(given):
        raise InvalidData("-o, --draws-to, --save and --report must be different files.")
    if data in given:
        raise InvalidData(f"{data} is the input: write to another file, so that the raw data stay.")


def _check_fits(data: Path, table: Any, output: Path, draws_to: Path | None) -> None:
    """Refuse outputs that cannot hold what the table is."""
    from unfade.files import column_names

    if isinstance(table, np.ndarray) and table.ndim > 2 and output.suffix not in (".npy", ".npz"):
        raise InvalidData(f"{data} holds an array of shape {table.shape}: write it to .npy or .npz, not to {output.name}.")
    if draws_to is not None and (taken := {"draw", "row"} & set(column_names(table))):
        raise InvalidData(
            f"--draws-to needs the names draw and row for itself, but {data} has {sorted(taken)}. Rename them."
        )


def _split(text: str, mark: str, option: str, example: str) -> tuple[str, str]:
    name, found, value = text.rpartition(mark)
    if not (found and name and value):
        raise InvalidData(f"{option} takes {example}, got {text!r}.")
    return name.strip(), value.strip()


def _bounds(text: str) -> tuple[str, tuple[float | None, float | None]]:
    name, ends = _split(text, "=", "--bounds", "age=0:120")
    try:
        low, high = (float(end) if end else None for end in ends.split(":"))
    except ValueError:
        raise InvalidData(f"--bounds takes age=0:120, or one end alone such as age=0:, got {text!r}.") from None
    return name, (low, high)


def _limit(text: str) -> tuple[str, tuple[str, float]]:
    sign = "<" if "<" in text else ">"
    name, level = _split(text, sign, "--limit", "lead<0.5 or height>200")
    try:
        return name, (sign, float(level))
    except ValueError:
        raise InvalidData(f"--limit takes lead<0.5 or height>200, got {text!r}.") from None


def _listed(noise: Any) -> Any:
    return noise.tolist() if isinstance(noise, np.ndarray) else noise


def _readable(noise: Any, names: list[str]) -> str:
    """The noise level in words: one number, or the first columns' by name."""
    if noise is None:
        return "inferred for each row"
    if not isinstance(noise, np.ndarray):
        return f"{noise:.4g}"
    shown = [f"{name} {level:.4g}" for name, level in zip(names, noise.flat, strict=True)]
    return ", ".join(shown[:8] + ["..."] * (len(shown) > 8))


def main() -> None:
    """Entry point of the `unfade` command."""
    sys.exit(app())
