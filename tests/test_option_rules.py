"""No option of a command is accepted that does nothing: it has an effect, or a sentence says that it has none."""

from pathlib import Path

import numpy as np
import pytest
import typer
from conftest import small_table
from typer.testing import CliRunner

from unfade import InvalidData
from unfade.cli import app as cli
from unfade.cli.option_rules import ALWAYS, RULES, Asked, check, option_name

OPTIONS = {
    name: {each.name for each in command.params} - {"help"}
    for name, command in typer.main.get_command(cli.app).commands.items()
    if name in ("recover", "diagnose")
}
FIT = ("noise", "method", "bounds", "detection_limits", "scaling", "network", "n_members", "max_steps", "max_seconds")


def effective(name, *others, data="table", **how):
    """Whether an option beside others has an effect."""
    try:
        return not check(Asked(frozenset({name, *others}), data, **how))
    except InvalidData:
        return False


@pytest.mark.parametrize("command", OPTIONS)
def test_every_option_is_in_the_table(command):
    assert OPTIONS[command] <= ALWAYS | set(RULES)


@pytest.mark.parametrize("name", sorted(RULES))
def test_every_rule_lets_the_option_work_somewhere_and_names_it_elsewhere(name):
    places = [
        Asked(frozenset({name, *beside}), data, folder, False, piped, database)
        for beside in ((), ("draws_to",), ("checkpoint",), ("model",), ("std_to",))
        for data in ("table", "array", "images")
        for folder in (False, True)
        for piped in (False, True)
        for database in (False, True)
    ]
    outcomes = [rule.works(place) for rule in RULES[name] for place in places]
    assert True in outcomes
    assert False in outcomes
    for rule in RULES[name]:
        assert rule.said == rule.said.strip()
        shown = {"output": "-o"}.get(name, option_name(name))
        assert shown in rule.said if rule.fatal else shown in rule.said.format(shown)


@pytest.mark.parametrize(
    ("name", "others", "where", "works"),
    [
        ("draws", (), {}, False),
        ("draws", ("draws_to",), {}, True),
        ("draws", (), {"folder": True}, True),
        ("draws", ("std_to",), {"data": "images"}, True),
        ("draws", (), {"data": "images"}, False),
        ("draws_to", (), {}, True),
        ("draws_to", (), {"folder": True}, False),
        ("report", (), {"folder": True}, False),
        ("std_to", (), {}, False),
        ("std_to", (), {"data": "images"}, True),
        ("gallery", (), {}, False),
        ("missing_value", (), {}, False),
        ("missing_value", (), {"data": "images"}, True),
        ("memory", (), {}, False),
        ("memory", (), {"folder": True}, True),
        ("memory", (), {"data": "images"}, True),
        ("checkpoint", ("model",), {}, False),
        ("checkpoint_every", (), {}, False),
        ("checkpoint_every", ("checkpoint",), {}, True),
        ("resume", (), {}, False),
        ("resume", ("checkpoint",), {}, True),
        ("resume", (), {"folder": True}, True),
        ("resume", (), {"folder": True, "piped_in": True}, False),
        ("kinds", (), {"data": "array"}, False),
        ("kinds", (), {"data": "images"}, False),
        ("kinds", (), {}, True),
        ("as_json", (), {"piped_out": True}, False),
        ("output", (), {"piped_out": True, "data": "images"}, False),
        ("seed", ("model",), {}, False),
        ("seed", ("model", "draws_to"), {}, True),
        ("seed", ("model", "draws"), {"folder": True}, True),
        *((name, (), {}, True) for name in (*FIT, "output", "as_json")),
        *((name, ("model",), {}, False) for name in FIT),
    ],
)
def test_where_options_have_an_effect(name, others, where, works):
    assert effective(name, *others, **where) == works


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(each) for each in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("options")
    np.save(folder / "in.npy", small_table(40))
    done = run("recover", folder / "in.npy", "-o", folder / "o.npy", "--save", folder / "m", "--max-steps", 2, "-q")
    assert done.exit_code == 0, done.output
    return folder


@pytest.mark.parametrize(
    "options",
    [["--draws", 5], ["--checkpoint-every", 60.0], ["--memory", "2GB"], ["--resume"], ["--std-to", "s"],
     ["--gallery", "g.png"], ["--missing-value", 0], ["--kind", "0=category"], ["--draws-to", "d.npy", "--save", "-"],
     ["--method", "tae-paper", "--n-candidates", 5]],
    ids=str,
)  # fmt: skip
def test_options_without_effect_end_the_command_before_any_work(folder, options):
    """Also where what is given is what they are anyway."""
    before = sorted(folder.iterdir())
    done = run("recover", folder / "in.npy", "-o", folder / "no.npy", "--max-steps", 2, *options)
    assert done.exit_code == 3, done.output
    assert done.output.startswith("error: ")
    assert sorted(folder.iterdir()) == before


def test_how_to_fit_has_no_effect_with_a_model_and_is_named(folder):
    given = ["--noise", "none", "--max-steps", 5, "--seed", 0]
    for command in (["recover", folder / "in.npy", "-o", folder / "p.npy"], ["diagnose", folder / "in.npy"]):
        done = run(*command, "--model", folder / "m", *given)
        assert done.exit_code == 0, done.output
        assert "fitted: --max-steps, --noise." in done.output
        assert "--seed has no effect" in done.output
    assert "no effect" not in run("recover", folder / "in.npy", "-o", folder / "p.npy", "--model", folder / "m").output
    assert Path(folder / "p.npy").exists()
