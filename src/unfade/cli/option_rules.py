"""Rules of options: which have an effect together, in one table, so that none without effect is accepted."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from unfade.errors import InvalidData


@dataclass(frozen=True)
class Asked:
    """A command with its options.

    given: options by the names of their parameters; data: "table", "array" (without column names) or "images"; folder:
    whether a table is written part by part into a folder; piped_in, piped_out: whether data come from standard input,
    or go to standard output.
    """

    given: frozenset[str]
    data: str
    folder: bool = False
    piped_in: bool = False
    piped_out: bool = False
    database: bool = False

    def has(self, *names: str) -> bool:
        """Check whether one of these options was given."""
        return not self.given.isdisjoint(names)


class Rule(NamedTuple):
    """Condition under which an option has an effect, and its message otherwise; fatal: an error, else a notice."""

    works: Callable[[Asked], bool]
    said: str
    fatal: bool = True


def option_name(parameter: str) -> str:
    """Return the option of a parameter."""
    names = {"kinds": "--kind", "detection_limits": "--detection-limit", "as_json": "--json", "sums": "--sum"}
    return names.get(parameter, f"--{parameter.replace('_', '-')}")


def _images(asked: Asked) -> bool:
    return asked.data == "images"


def _no_model(asked: Asked) -> bool:
    return not asked.has("model")


def _tables(name: str) -> Rule:
    """Make the rule of an option that is for tables."""
    return Rule(
        lambda a: a.data == "table",
        f"{option_name(name)} is for tables with column names: the data are an array or images.",
    )


_FITTED = Rule(_no_model, "No effect with --model, which is already fitted: {}.", fatal=False)
_FIT = [
    "noise",
    "method",
    "kinds",
    "missing",
    "bounds",
    "detection_limits",
    "applicable",
    "derived",
    "sums",
    "order",
    "time",
    "panel",
    "scaling",
    "network",
    "n_members",
    "max_steps",
    "max_seconds",
]
ALWAYS = frozenset(
    ("data", "model", "save", "n_candidates", "fill", "dry_run", "quiet", "debug")
)  # options that have an effect wherever they can be given
_TEXTUAL = ("sep", "decimal", "encoding")
_CONSTRAINTS = ("applicable", "derived", "sums", "order")
RULES: dict[str, tuple[Rule, ...]] = {
    **dict.fromkeys(_FIT, (_FITTED,)),
    **{name: (_tables(name), _FITTED) for name in _CONSTRAINTS},
    "time": (
        _tables("time"),
        _FITTED,
    ),
    "panel": (_tables("panel"), _FITTED, Rule(lambda a: a.has("time"), "--panel needs --time, the column of times.")),
    **{name: (_tables(name),) for name in (*_TEXTUAL, "sheet")},
    "where": (
        _tables("where"),
        Rule(lambda a: not a.folder, "--where needs the whole table in memory, unlike -o FOLDER: leave it out."),
    ),
    "draws_format": (
        Rule(lambda a: a.has("draws_to") and not _images(a), "--draws-format is the form of --draws-to FILE of a table."),
    ),
    "query": (Rule(lambda a: a.database, "--query reads from a database: give DATA such as postgresql://host/name."),),
    "kinds": (
        Rule(lambda a: a.data == "table", "--kind is for tables with column names: the data are an array or images."),
        _FITTED,
    ),
    "missing_value": (Rule(_images, "--missing-value is for images, which the data are not. Leave it out."),),
    "seed": (
        Rule(
            lambda a: _no_model(a) or a.has("draws_to", "std_to", "gallery") or (a.folder and a.has("draws")),
            "--seed has no effect with --model where no draws are made.",
            fatal=False,
        ),
    ),
    "output": (
        Rule(lambda a: not (a.piped_out and _images(a)), "-o - writes a table: give images a folder or a file to go to."),
    ),
    "as_json": (
        Rule(
            lambda a: not a.piped_out,
            "--json and -o - both write to standard output. Give -o a file, or leave --json out.",
        ),
    ),
    "draws": (
        Rule(
            lambda a: a.folder or a.has("draws_to") or (_images(a) and a.has("std_to")),
            "--draws is the number of draws to write, not their place: give --draws-to FILE (for images also --std-to), "
            "or a folder (-o FOLDER), which holds them too.",
        ),
    ),
    "draws_to": (
        Rule(
            lambda a: not a.folder, "-o FOLDER holds the draws too: leave --draws-to out, and give their number by --draws."
        ),
    ),
    "report": (Rule(lambda a: not a.folder, "--report needs the whole table in memory, unlike -o FOLDER: leave it out."),),
    "std_to": (
        Rule(
            _images,
            "--std-to is for images, which the data are not. Leave it out: --draws-to shows the uncertainty of cells.",
        ),
    ),
    "gallery": (Rule(_images, "--gallery is for images, which the data are not. Leave it out."),),
    "memory": (
        Rule(
            lambda a: a.folder or _images(a),
            "--memory bounds memory if -o is a folder or the data are images: give a folder, or leave --memory out.",
        ),
    ),
    "checkpoint": (
        Rule(_no_model, "--checkpoint saves the state of training, and with --model there is no training. Leave it out."),
    ),
    "checkpoint_every": (
        Rule(lambda a: a.has("checkpoint"), "--checkpoint-every needs --checkpoint FOLDER, the folder of the checkpoints."),
    ),
    "resume": (
        Rule(
            lambda a: a.has("checkpoint") or (a.folder and not a.piped_in),
            "--resume continues a stopped run: give the --checkpoint FOLDER of that run, or the folder "
            "that it wrote to (-o FOLDER, of the same file).",
        ),
    ),
}


def check(asked: Asked) -> list[str]:
    """Refuse options that cannot have an effect; return notices of those that have none here."""
    notes: dict[str, list[str]] = {}
    for name in sorted(asked.given & set(RULES)):
        for rule in RULES[name]:
            if rule.works(asked):
                continue
            if rule.fatal:
                raise InvalidData(rule.said)
            notes.setdefault(rule.said, []).append(option_name(name))
    return [said.format(", ".join(names)) for said, names in notes.items()]
