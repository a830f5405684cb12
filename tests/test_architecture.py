"""The tree's own rules: a room imports only from rooms above it, docs name every file, public names are documented."""

import ast
import re
from pathlib import Path

import pytest

import unfade

SOURCE = Path(unfade.__file__).parent
DOCS = SOURCE.parents[1] / "docs" / "architecture.md"
FILES = sorted(path.relative_to(SOURCE).with_suffix("") for path in SOURCE.rglob("*.py"))


def listed() -> list[tuple[str, str]]:
    """The files that docs/architecture.md lists, in its order, each with what it says of it."""
    block = DOCS.read_text().split("```")[1]
    found, folder = [], ""
    for line in block.splitlines()[1:]:
        if match := re.match(r"(  |    )([a-z_]+)(/|\.py)?\s+(\S.*)$", line):
            indent, name, ending, says = match.groups()
            folder = folder if indent == "    " else f"{name}/" if ending == "/" else ""
            found.append((folder if ending == "/" else f"{folder if indent == '    ' else ''}{name}", says))
    return found


ROOMS = [name.rstrip("/") for name, _ in listed() if "/" not in name.rstrip("/")]


def room(module: str) -> str:
    """The first part of a module's name inside unfade; of a public name of the package, the room that has it."""
    first = module.removeprefix("unfade").lstrip(".").split(".")[0]
    public = {name: room for room, names in unfade._MODULES.items() for name in names}
    return public.get(first, first).split(".")[0]


def imports(path: Path) -> set[str]:
    """Rooms that a file imports from, at its head or inside of a function."""
    found = set()
    for node in ast.walk(ast.parse((SOURCE / path).with_suffix(".py").read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "unfade":
            found |= {room(f"{node.module}.{alias.name}") for alias in node.names}
        if isinstance(node, ast.Import):
            found |= {room(alias.name) for alias in node.names if alias.name.startswith("unfade.")}
    return found - {"__version__"}


def is_module(name: str) -> bool:
    """Whether a dotted name is that of a file of unfade."""
    return (SOURCE / name.removeprefix("unfade.").replace(".", "/")).with_suffix(".py").exists()


def test_the_documentation_lists_every_file():
    there = {str(path) for path in FILES if path.name not in ("__init__", "__main__")}
    assert {name for name, _ in listed() if not name.endswith("/")} == there


@pytest.mark.parametrize("path", [path for path in FILES if str(path) != "__init__"], ids=str)
def test_a_room_imports_only_from_rooms_above_it(path):
    own = len(ROOMS) if path.name == "__main__" else ROOMS.index(path.parts[0])
    assert imports(path) <= set(ROOMS[:own]) | {path.parts[0]}


def test_no_module_uses_the_private_names_of_another():
    for path in FILES:
        text = (SOURCE / path).with_suffix(".py").read_text()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("unfade"):
                assert not [alias.name for alias in node.names if re.match(r"_[a-z]", alias.name)], path
                modules = {alias.asname or alias.name for alias in node.names if is_module(f"{node.module}.{alias.name}")}
                used = re.findall(rf"\b({'|'.join(modules)})\._[a-zA-Z]", text) if modules else []
                assert not used, (path, used)


LONGEST_FUNCTION, LONGEST_FILE, MOST_FLAT, LONGEST_FIT = 40, 400, 12, 15  # lines; without doc-strings of functions


def functions(path: Path) -> dict[str, int]:
    """Lines of each function of a file; its doc-string and those of functions inside it are left out."""
    kind, found = (ast.FunctionDef, ast.AsyncFunctionDef), {}
    for node in ast.walk(ast.parse((SOURCE / path).with_suffix(".py").read_text())):
        if isinstance(node, kind):
            inner = [each for each in ast.walk(node) if isinstance(each, kind) and ast.get_docstring(each) is not None]
            found[f"{path}.{node.name}"] = height(node) - sum(height(each.body[0]) for each in inner)
    return found


def height(node: ast.stmt) -> int:
    return node.end_lineno - node.lineno + 1


def test_functions_and_files_stay_short():
    lengths = {name: lines for path in FILES for name, lines in functions(path).items()}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_FUNCTION} == {}
    files = {str(path): len((SOURCE / path).with_suffix(".py").read_text().splitlines()) for path in FILES}
    assert {name: lines for name, lines in files.items() if lines > LONGEST_FILE} == {}


def test_few_modules_lie_flat():
    flat = [str(path) for path in FILES if len(path.parts) == 1]
    assert len(flat) <= MOST_FLAT, flat


def test_fitting_is_a_straight_line():
    """Recoverer.fit hands over to plan, training and model, and decides nothing."""
    (recoverer,) = [
        node for node in ast.parse((SOURCE / "estimator.py").read_text()).body if getattr(node, "name", "") == "Recoverer"
    ]
    (fit,) = [node for node in recoverer.body if getattr(node, "name", "") == "fit"]
    assert fit.end_lineno - fit.body[1].lineno + 1 <= LONGEST_FIT


def test_nothing_takes_an_estimator_of_any_type():
    for path in FILES:
        for node in ast.walk(ast.parse((SOURCE / path).with_suffix(".py").read_text())):
            if isinstance(node, ast.arg) and node.arg in ("rec", "recoverer", "model", "fitted"):
                assert "Any" not in (ast.unparse(node.annotation) if node.annotation else ""), (path, node.arg)


TOPICS = {  # test files about no single module
    "architecture": "this file", "boards": "tables of results in benchmarks/", "docs": "the site's own rules",
    "docstrings": "first lines and sections",
    "entrances": "the contract of all entrances", "exact_posterior": "laws known exactly",
    "examples": "examples and README run", "fuzz": "crafted model files", "kills": "runs ended at any moment",
    "sklearn": "scikit-learn's own checks", "stored_figures": "figures of the documentation",
    "stored_prose": "what it says of them in words", "words": "its terms",
    "work_once": "nothing is read or encoded again",
}  # fmt: skip


def test_test_files_are_called_as_modules_and_rooms_are():
    modules = {path.name for path in FILES} | {"_".join(path.parts) for path in FILES} | set(ROOMS)
    named = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}
    assert named - modules - set(TOPICS) == set()


def test_public_names_have_doc_strings():
    assert all(getattr(unfade, name).__doc__ for name in unfade.__all__)


def test_importing_stays_light():
    """Optional and heavy parts are imported where they are used."""
    import subprocess
    import sys

    code = "import sys, unfade; print([m for m in ('matplotlib', 'typer', 'rich', 'safetensors') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert ast.literal_eval(out) == []


@pytest.mark.parametrize("asked", ["--help", "--version", "recover --help"])
def test_help_is_printed_without_loading_libraries(asked):
    import subprocess
    import sys

    heavy = {"torch", "sklearn", "scipy", "pandas", "pyarrow", "matplotlib"}
    code = f"import sys, atexit; atexit.register(lambda: print({heavy!r} & set(sys.modules)));"
    code += f"sys.argv = ['unfade', *{asked!r}.split()]; from unfade.__main__ import main; main()"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "set()"
