"""Wide data, method by method: `python benchmarks/images.py --seeds 3 --device cuda --data-dir FOLDER`, then `--report`.

MNIST, Fashion-MNIST and UCI HAR with missing entries and noise of sd 0.1 that is known to all; networks are those of
a default fit that knows the data's bounds, of all methods alike; what differs is how they are trained. Rows that were
trained on and unseen ones are scored apart. Models are trained side by side; a run that was stopped goes on. Seconds
of training and drawing are those of the device. The printed TAE has half the rate, 5e-4 on "board": that of
`unfade reproduce table1`. "TAE, exact bound", the printed model repaired, has MIWAE's steps, in two stages.
"""

import json
import re
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from boards import parser_of, written
from images_report import FOR_IMAGES, Cells, Scored, picture, report, trained, words
from store import RESULTS, Cell, found, keep

from unfade.models.architectures import architecture_for
from unfade.paper import settings
from unfade.paper.study import Setting, Study, fill
from unfade.paper.study import key as name_of
from unfade.training.loop import TrainingConfig

SCHEDULES = settings.SCHEDULES | {
    "board": settings.Schedule(
        TrainingConfig(steps=20_000, batch_size=200, learning_rate=1e-3),
        TrainingConfig(steps=5_000, batch_size=200, learning_rate=1e-3),
    )
}
IMAGES = [  # 10,000 rows that are trained on and recovered; or all, and unseen ones are recovered
    Setting(data, missing, 0, 10_000 if trained_on and data != "uci-har" else None, trained_on)
    for data in ("mnist", "fashion-mnist", "uci-har")
    for trained_on in (True, False)
    for missing in (0.2, 0.5, 0.8)
]
MORE = 1.75  # steps of unfade for one of MIWAE, which takes as long as three on two cores


@dataclass(frozen=True)
class Stored:
    """The store as `fill` uses it: results by the names that it gives them, all with the same configuration."""

    cells: dict[str, Cell]
    configuration: dict[str, Any]

    def __contains__(self, name: str) -> bool:
        return bool(self[name])

    def __getitem__(self, name: str) -> dict[str, Any]:
        result = found(self.cells[name])
        if result and result["configuration"] != self.configuration:
            raise SystemExit(
                f"{self.cells[name].path} was made by another configuration. Remove it, or use another folder."
            )
        return result

    def put(self, results: dict[str, dict[str, Any]]) -> None:
        """Store results."""
        for name, result in results.items():
            keep(self.cells[name], {**result, "configuration": self.configuration})


def own_training(study: Study) -> dict[str, TrainingConfig]:
    """Return the training of the methods whose training is not the schedule's."""
    training = study.schedule.training
    return {
        "tae-paper": replace(training, learning_rate=training.learning_rate / 2),
        "auto": replace(training, steps=int(MORE * training.steps)),
    }


def cell_of(board: str, setting: Setting, mask: int, way: str) -> Cell:
    """Return where a result is stored."""
    return Cell(board, setting.data, words(setting).removeprefix(f"{setting.data} "), mask, way)


def stored(study: Study, board: str, masks: dict[Setting, range], label: str) -> Stored:
    """Return the store of one schedule."""
    each = [(setting, mask, way) for setting in masks for mask in masks[setting] for way in FOR_IMAGES]
    cells = {name_of(replace(s, mask=mask), way, label): cell_of(board, s, mask, way) for s, mask, way in each}
    said = {"schedule": study.schedule, "architecture": study.architecture, **own_training(study)}
    return Stored(cells, json.loads(json.dumps({name: asdict(value) for name, value in said.items()})))


def gathered(board: str, setting: Setting, masks: range, ways: list[str]) -> dict[str, Scored]:
    """Read what every way to draw scored in a setting, where it was run."""
    each = {way: {mask: r for mask in masks if (r := found(cell_of(board, setting, mask, way)))} for way in ways}
    return {way: scored for way in ways if (scored := Scored.of(each[way]))}


def run(study: Study, results: Stored, masks: dict[Setting, range], ways: list[str], label: str) -> None:
    """Run what is not stored yet, method by method: several ways to draw from one model."""
    own = own_training(study)
    asked = [replace(setting, mask=mask) for setting in masks for mask in masks[setting]]
    for model in dict.fromkeys(trained(way) for way in ways):
        by = replace(study, schedule=replace(study.schedule, training=own.get(model.method, study.schedule.training)))
        alike = [way for way in ways if trained(way) == model]
        fill(by, results, asked, label, print, alike, FOR_IMAGES)  # type: ignore[arg-type]


def as_json(cells: Cells) -> str:
    """Write the means, a line per setting."""
    lines = []
    for setting, scored in cells.items():
        rounded = {way: {name: float(f"{v:.5g}") for name, v in one.means.items()} for way, one in scored.items()}
        lines.append(f"{json.dumps(words(setting))}: {json.dumps(rounded)}")
    return "{" + ",\n".join(lines) + "}\n"


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = parser_of(__doc__, list(FOR_IMAGES))
    parser.add_argument("--schedule", default="board", choices=list(SCHEDULES))
    parser.add_argument("--only", default="", help="a pattern of settings, such as 'mnist, 50%%'")
    parser.add_argument("--seconds", type=float, help="that a flow is trained for at most, compiling included")
    chosen = parser.parse_args(arguments)
    architecture = architecture_for(60_000, 784, bounded=True)
    device, label, board = torch.device(chosen.device), f"lim {architecture.width:.0f}", f"images-{chosen.schedule}"
    study = Study(
        SCHEDULES[chosen.schedule], chosen.data_dir, device, architecture, together=15, by_row=True, seconds=chosen.seconds
    )
    masks = {s: range(chosen.seeds if s.data == "mnist" else 1) for s in IMAGES if re.search(chosen.only, str(s))}
    if not chosen.report:
        run(study, stored(study, board, masks, label), masks, chosen.methods, label)
    cells = {setting: gathered(board, setting, masks[setting], chosen.methods) for setting in masks}
    head = f"Schedule {chosen.schedule}, {label}, {study.schedule.draws} draws, {study.schedule.scored} rows.\n\n"
    written(board, head + report(cells))
    if chosen.report:
        picture(cells, RESULTS / f"{board}.png")
        (RESULTS / f"{board}.json").write_text(as_json(cells))


if __name__ == "__main__":
    main()
