"""`unfade recover`, from file to file: a table, a table larger than memory, or images."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from unfade.cli.output import Output, as_list, noise_in_words, path_name
from unfade.errors import InvalidData

if TYPE_CHECKING:
    from unfade.data.dataset import Dataset
    from unfade.estimator import Recoverer
    from unfade.inference.draws import Draws
    from unfade.io.guise import Layout
    from unfade.io.images import Frames
    from unfade.methods.parameters import Parameters
    from unfade.training.checkpoints import Checkpoint

LARGE_ROWS, LARGE_CELLS = 200_000, 20_000_000  # from which a folder is the better output
REPORT_SECONDS = 8.0  # that a report takes, about


@dataclass
class Recovery:
    """A recovery by the command line; how: parameters of `Recoverer`; the other fields are named like their options."""

    out: Output
    data: Path
    output: Path
    how: dict[str, Any]
    seed: int
    draws: int | None
    draws_to: Path | None
    std_to: Path | None
    missing_value: str | None
    gallery: Path | None
    report: Path | None
    model: Path | None
    save: Path | None
    memory: str
    checkpoint: "Checkpoint | None"
    resume: bool
    n_candidates: int | None
    fill: str | None
    dry_run: bool = False
    layout: "Layout | None" = None
    where: Path | None = None
    draws_format: str | None = None

    def run(self) -> bool:
        """Recover the file; return whether training was interrupted and its results so far were written."""
        from unfade.io.images import are_frames

        started = time.monotonic()
        self._check_names()
        if self.dry_run:
            self._say_plan()
            return False
        if are_frames(self.data):
            interrupted = self._images(started)
        elif not self.output.suffix:
            interrupted = self._parts(started)
        else:
            interrupted = self._table(started)
        if self.checkpoint is not None and not interrupted:
            self.checkpoint.clear()
        return interrupted

    def _say_plan(self) -> None:
        """Print what would be trained, on what, and about how long it takes; train and write nothing."""
        from unfade.inference.fit import plan_for, read_to_fit, training_seconds
        from unfade.io.images import read_data
        from unfade.pipeline import nothing_to_recover, read_to_recover
        from unfade.training.progress import in_words

        parameters, (given, rule) = self._parameters(), read_data(self.data, self.missing_value, self.layout)
        if rule is None and nothing_to_recover(parameters, given := read_to_recover(parameters, given)):
            return self.out.result(plan=[], seconds=0.0)
        data = read_to_fit(parameters, given)
        plan = plan_for(parameters, data)
        seconds = training_seconds(plan, data) if plan.encoder.features else 0.0
        limit = self.how["max_seconds"]
        self.out.say(
            f"{plan}\ntime: training takes at most about {in_words(min(seconds, limit or seconds))} on this machine"
        )
        self.out.result(plan=str(plan).splitlines(), seconds=round(seconds, 1))

    def _table(self, started: float) -> bool:
        from unfade.inference.hand_off import check_form
        from unfade.io.originals import original_of, write_result
        from unfade.io.tables import column_names, read_table
        from unfade.pipeline import collect, nothing_to_recover, read_to_recover

        check_form(self.draws_format or "unfade")
        self._check_paths()
        table = read_table(self.data, self.layout)
        self._check_fits(table)
        original = original_of(self.data, table, self.layout)
        self._say_if_large(table)
        asked = self._parameters()
        where = None if self.where is None else read_table(self.where)
        data = table if self.model else read_to_recover(asked, table).fill_only(where)
        if not (self.model or self.draws_to or self.save or self.report) and nothing_to_recover(asked, data):
            _leave_to_the_first()
            write_result(table, self.output, original)
            self.out.result(rows=len(table), missing=0, left_missing=0, output=str(self.output))
            return False
        draws, then = self.draws or 20, (self.draws or 20) if self.draws_to else 0
        self._leave_time(started)
        rec = self._fitted(lambda rec: rec.fit(data, checkpoint=self.checkpoint, then_draw=then))
        data, decimals = rec.model_.read(data, where if self.model else None), rec.noise is None
        found = collect(rec.model_, data, then, self.seed)
        write_result(found.clean, self.output, original, decimals)
        if found.draws is not None and self.draws_to is not None:
            self._write_draws(found.draws, original, column_names(table), decimals)
        if self.save is not None:
            rec.save(self.save)
        if self.report is not None:
            self._report(rec, data, found.draws)
        self._say_table(data, found.clean, rec, draws, time.monotonic() - started)
        return self.model is None and bool(rec.interrupted_)

    def _write_draws(self, draws: "Draws", original: Any, names: list[str], decimals: bool) -> None:
        """Write draws in the form asked for; for R also the cells that were filled or cleaned."""
        from unfade.io.originals import write_draws
        from unfade.io.tables import write_table

        assert self.draws_to is not None
        if self.draws_format in (None, "unfade"):
            return write_draws(draws, self.draws_to, original, names, decimals)
        write_table(draws.to_long(self.draws_format), self.draws_to)
        if self.draws_format == "mice":
            write_table(draws.where(), self._where_to())

    def _report(self, rec: "Recoverer", data: Any, draws: "Draws | None" = None) -> None:
        """Write the report, and print its verdict."""
        assert self.report is not None
        self.out.say(f"{self.report}: {rec.report(self.report, data, draws).summary}")

    def _where_to(self) -> Path:
        """Return the name of the file of cells that were filled or cleaned, next to that of the draws."""
        assert self.draws_to is not None
        return self.draws_to.with_name(f"{self.draws_to.stem}.where{self.draws_to.suffix}")

    def _say_table(self, data: "Dataset", clean: Any, rec: "Recoverer", draws: int, seconds: float) -> None:
        """Print the results for a table, and where they are."""
        from unfade.io.tables import column_names

        left = _open(rec, data, clean)
        filled = int((data.missing_in(data.given()) & ~data.missing_in(clean)).sum())
        missing = filled + left
        level = noise_in_words(rec.noise_, list(getattr(rec, "feature_names_in_", column_names(clean))))
        noise = "" if rec.noise is None else f" noise sd {level};"
        self.out.say(f"{self.data}: {missing} missing cells, {filled} filled;{noise} {seconds:.0f} s")
        places = {"recovered data": self.output, f"{draws} draws": self.draws_to, "model": self.save}
        self._say_where({**places, "report": self.report})
        self.out.result(
            rows=len(data), missing=missing, left_missing=left, noise=as_list(rec.noise_), seconds=round(seconds, 3),
            output=str(self.output), draws_to=path_name(self.draws_to), model=path_name(self.save),
            report=path_name(self.report), steps=[history.steps[-1] for history in rec.histories_ if history.steps],
        )  # fmt: skip

    def _parts(self, started: float) -> bool:
        """Recover a table larger than memory: fit on a sample, write part by part."""
        from unfade import storage
        from unfade.io.large_tables import Source
        from unfade.streaming.fit import fit_sample, take_sample
        from unfade.streaming.recover import copy_stream, is_finished, recover_stream

        source = Source.open(self.data, self.layout)
        stamp = source.stamp()
        if self.resume and is_finished(self.output, source=stamp, draws=self.draws or 0, seed=self.seed):
            self.out.note(f"{self.output} is complete for this file, draws and seed: there is nothing to resume.")
            return False
        storage.check_free(self.output)  # what a stopped run has left has another name
        mark = storage.digest(stamp, self.how)[:12]
        kept = self.output.with_name(f".{self.output.name}-{mark}.fitted")  # of this file, fitted in this way
        for path in (self.save, kept):
            if path is not None:
                storage.check_writable(path)
        own = self.model is None
        if self.resume and own and kept.exists():
            self.model, self.how = kept, {"random_state": self.seed}  # what a run that was stopped had fitted
        sample: Any = None if self.model else take_sample(self._parameters(), source, self.memory, self.seed)
        if sample is not None and not (self.draws or self.save) and sample.nothing_to_recover():
            _leave_to_the_first()
            copy_stream(source, self.output, self.memory, self.seed)
            self._say_parts(started)
            return False
        rec = self._fitted(lambda rec: fit_sample(rec, sample, self.checkpoint))
        for path in (self.save, kept if own else None):
            if path is not None:
                rec.save(path)
        recover_stream(
            rec, source, self.output, self.draws or 0, self.n_candidates, self.seed, self.memory, resume=self.resume
        )
        for left in self.output.parent.glob(f".{escape(self.output.name)}-*.fitted"):  # also of runs begun otherwise
            left.unlink()
        self._say_parts(started)
        return self.model is None and bool(rec.interrupted_)

    def _say_parts(self, started: float) -> None:
        """Print where the parts of a table lie."""
        seconds = time.monotonic() - started
        self.out.say(f"{self.data}: recovered in {seconds:.0f} s")
        draws_at = self.output / "draws.parquet" if self.draws else None
        self._say_where({"recovered data": self.output / "clean.parquet", f"{self.draws} draws": draws_at})
        self.out.result(output=str(self.output), draws=self.draws, seconds=round(seconds, 3), model=path_name(self.save))

    def _images(self, started: float) -> bool:
        """Recover a folder or a stack of images."""
        from unfade.diagnostics.images import write_gallery
        from unfade.io.images import evenly, open_frames
        from unfade.io.large_tables import parse_memory
        from unfade.streaming.images import recover_frames

        frames, draws, memory = open_frames(self.data, self.missing_value), self.draws or 8, parse_memory(self.memory)
        places = {"recovered images": self.output, "standard deviations": self.std_to, "draws": self.draws_to}
        self._check_image_paths(frames, places)
        size = 4 * max(1, int(np.prod(frames.event)))
        most = max(1, memory // (4 * size))
        rec = self._fitted(lambda rec: rec.fit(frames.read(evenly(len(frames), most)), checkpoint=self.checkpoint))
        if self.save is not None:
            rec.save(self.save)
        at_once = min(64, max(1, memory // (8 * size * (draws + 4))))
        show = not self.out.quiet
        missing = recover_frames(
            rec.model_, frames, self.output, self.std_to, self.draws_to, draws, self.seed, at_once, show
        )
        if self.gallery is not None:
            some = evenly(len(frames), 6)
            write_gallery(rec.model_, frames.read(some), self.gallery, seed=self.seed, row_ids=some)
        if self.report is not None:
            self._report(rec, frames.read(evenly(len(frames), min(most, max(6, 2**24 // size)))))
        self._say_images(frames, missing, rec, places, time.monotonic() - started)
        return self.model is None and bool(rec.interrupted_)

    def _check_image_paths(self, frames: "Frames", places: dict[str, Path | None]) -> None:
        """Refuse paths that cannot be written, before any work is done."""
        from unfade.storage import check_writable

        for place in places.values():
            if place is not None:
                frames.check_output(place)
        if self.gallery is not None and self.gallery.suffix.lower() not in (".png", ".pdf", ".svg"):
            raise InvalidData(f"--gallery writes a picture: give a name that ends in .png, got {self.gallery.name!r}.")
        for path in (self.gallery, self.save):
            if path is not None:
                check_writable(path)
        if self.report is not None:
            check_report(self.report)

    def _say_images(
        self, frames: "Frames", missing: int, rec: "Recoverer", places: dict[str, Path | None], seconds: float
    ) -> None:
        """Print the results for images, and where they are."""
        share = f"{missing:,} of {frames.pixels:,} pixels missing ({missing / frames.pixels:.1%}): {frames.rule}"
        self.out.say(f"{self.data}: {len(frames)} images, {share}; recovered in {seconds:.0f} s")
        if not missing and rec.noise is None:
            self.out.note("no pixel was missing. Give the value of missing pixels by --missing-value.")
        self._say_where({**places, "gallery": self.gallery, "report": self.report, "model": self.save})
        self.out.result(
            images=len(frames), missing=missing, missing_are=str(frames.rule), seconds=round(seconds, 3),
            output=str(self.output), std_to=path_name(self.std_to), draws_to=path_name(self.draws_to),
            gallery=path_name(self.gallery), report=path_name(self.report), model=path_name(self.save),
        )  # fmt: skip

    def _fitted(self, fit: Callable[[Any], Any]) -> Any:
        said = {"fill": self.fill, "n_candidates": self.n_candidates}  # of what is done with a model, fitted here or before
        chosen = {name: value for name, value in said.items() if value is not None}
        if self.model is None:  # told before the fit, which refuses what it cannot do
            return fitted(self.out, fit, None, {**self.how, **chosen})
        rec = fitted(self.out, fit, self.model, self.how).set_params(**chosen)
        rec.parameters()
        return rec

    def _leave_time(self, started: float) -> None:
        """Reserve time of the budget for the report, and subtract the time that has passed."""
        if self.how["max_seconds"] is not None:
            passed = time.monotonic() - started + (REPORT_SECONDS if self.report else 0.0)
            self.how["max_seconds"] = max(0.2 * self.how["max_seconds"], self.how["max_seconds"] - passed)

    def _parameters(self) -> "Parameters":
        """Return the parameters of the fit, checked."""
        from unfade import Recoverer

        return Recoverer(**self.how).parameters()

    def _say_if_large(self, table: Any) -> None:
        """Recommend a folder, which needs little memory, for a table that would take long or much memory."""
        draws = (self.draws or 20) if self.draws_to else 0
        cells = int(np.prod(table.shape))
        if len(table) >= LARGE_ROWS or cells * (1 + draws) >= LARGE_CELLS:
            self.out.note(
                f"{self.data} has {len(table):,} rows and {cells:,} cells, all of which are in memory at once, with about "
                f"{24 * cells * (1 + draws) / 1e9:.1f} GB of results. With a folder (-o FOLDER, and --draws in place of "
                "--draws-to) the fit takes a sample of the rows, and results are written part by part within --memory."
            )

    def _check_paths(self) -> None:
        """Refuse paths that cannot be written, before any work is done."""
        from unfade.io.tables import check_output
        from unfade.storage import check_writable

        for path in (self.output, self.draws_to):
            if path is not None:
                check_output(path)
        if self.save is not None:
            check_writable(self.save)
        if self.report is not None:
            check_report(self.report)

    def _check_names(self) -> None:
        """Refuse to write twice to one path, or over the input."""
        folder = None if self.checkpoint is None else self.checkpoint.folder
        asked = (self.output, self.draws_to, self.std_to, self.save, self.report, self.gallery, folder)
        given = [path.resolve() for path in asked if path is not None]
        if len(set(given)) < len(given):
            raise InvalidData(
                "-o, --draws-to, --std-to, --save, --report, --gallery, --checkpoint must be different files."
            )
        for read in (self.data, self.model):
            if read is not None and read.resolve() in given:
                raise InvalidData(f"{read} is the input: write to another file, so that the raw data are kept.")

    def _check_fits(self, table: Any) -> None:
        """Refuse outputs that cannot hold the table."""
        from unfade.inference.hand_off import check_form
        from unfade.io.tables import ARRAYS, column_names, holds_numbers

        for path in (self.output, self.draws_to):
            if path is not None and path.suffix.lower() in ARRAYS and not holds_numbers(table):
                raise InvalidData(
                    f"{path.name} can hold numbers only, but {self.data} has other columns. Use .csv or .parquet."
                )
        if self.draws_to is not None:
            check_form(self.draws_format or "unfade", column_names(table))

    def _say_where(self, written: dict[str, Path | None]) -> None:
        for what, path in written.items():
            if path is not None:
                self.out.say(f"  {what}: {path}")


def fitted(out: Output, fit: Callable[[Any], Any], model: Path | None, how: dict[str, Any]) -> Any:
    """Fit a recoverer by `fit`, or load it from a file; of processes that train together only the first continues."""
    from unfade import Recoverer
    from unfade.training import distributed as processes

    if model is None:
        with processes.group():
            others = processes.rank() > 0
            rec = fit(Recoverer(**how, verbose=0 if out.quiet or others else 1))
        if others:
            raise typer.Exit
        return rec
    return Recoverer.load(model).set_params(verbose=0 if out.quiet else 1)


def _leave_to_the_first() -> None:
    """End all but the one that writes of the processes that would train together."""
    from unfade.training import distributed as processes

    if not processes.first():
        raise typer.Exit


def _open(rec: "Recoverer", data: "Dataset", clean: Any) -> int:
    """Count cells of the clean table that are missing though they need not stay empty."""
    left = data.missing_in(clean)
    for each in (data, rec.model_.read(clean) if rec.model_.constraints else data):
        if each.closed is not None:
            left &= each.container.reorder(each.closed.numpy().astype(float)) != 1
    return int(left.sum())


def check_report(report: Path) -> None:
    """Refuse a name that is not one of a page, or that cannot be written."""
    from unfade.storage import check_writable

    if report.suffix not in (".html", ".htm"):
        raise InvalidData(f"--report writes a page: give a name that ends in .html, got {report.name!r}.")
    check_writable(report)
