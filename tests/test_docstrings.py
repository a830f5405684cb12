"""Doc-strings: every first line says what it documents; public functions and classes have numpydoc sections."""

import ast
import inspect
import re
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import unfade

SOURCE = Path(unfade.__file__).parent
PUBLIC = {  # module: public names that a user calls; None: all of them
    "corruption.masks": None, "corruption.mixed": None, "corruption.noise": None, "engines": None,
    "downstream.pooling": None, "downstream.propagation": None, "downstream.wald": None, "diagnostics.judged": None,
    "engines.dask": None, "engines.ray": None, "engines.spark": None, "inference.draws": ("Draws",),
    "inference.fitted_model": None, "io.image_files": ("Unmeasured", "read_frame", "write_frame"), "io.images": None,
    "io.large_tables": None, "metrics": None, "pipeline": None, "streaming.images": None,
    "streaming": ("fit_stream", "parse_memory", "recover_stream"),
    "diagnostics.plots": None,
    "diagnostics.imputation_score": ("ColumnScore", "ImputationScore", "score", "as_imputer", "sample_crps"),
    "diagnostics.coverage": None, "diagnostics.images": ("write_gallery",),
    "diagnostics.missingness": None, "diagnostics.report": None,
    "diagnostics.checks": ("Diagnosis", "Verdict", "diagnose"),
    "diagnostics.evaluation": ("Scores", "TruthELBO", "evaluate", "reconstruction_elbo", "reconstruction_elbos"),
    "diagnostics.comparison": ("Comparison", "compare"),
    "diagnostics.predictions": ("ColumnNoise", "Outlier", "noise_report", "outliers"),
}  # fmt: skip
LATER = (  # not yet worded so
    "methods/", "models/", "training/", "inference/fit.py", "data/encoder.py", "data/text_formats.py", "io/tables.py",
    "io/csv_text.py",
)  # fmt: skip
PROPERTY = (property, cached_property)


def defined(module: ModuleType) -> list[str]:
    """Public functions and classes that a module defines."""
    return [
        name
        for name, each in vars(module).items()
        if not name.startswith("_")
        and (inspect.isfunction(each) or inspect.isclass(each))
        and each.__module__ == module.__name__
    ]


def documented() -> dict[str, object]:
    """Everything that needs numpydoc, by name: public functions and classes, and their methods and properties."""
    found: dict[str, object] = {f"unfade.{name}": getattr(unfade, name) for name in unfade.__all__}
    for path, names in PUBLIC.items():
        module = import_module(f"unfade.{path}")
        found |= {f"{path}.{name}": getattr(module, name) for name in names or defined(module)}
    for name, each in list(found.items()):
        for part, value in vars(each).items() if inspect.isclass(each) else ():
            value = value.__func__ if isinstance(value, classmethod) else value
            if not part.startswith("_") and (inspect.isfunction(value) or isinstance(value, PROPERTY)):
                found[f"{name}.{part}"] = value
    return {name: each for name, each in found.items() if not place(each).startswith(LATER)}


def place(each: object) -> str:
    """The file that defines something, from the package's folder."""
    each = each.fget if isinstance(each, property) else each.func if isinstance(each, cached_property) else each
    module = each.__module__.removeprefix("unfade.").replace(".", "/")  # type: ignore[union-attr]
    return f"{module}.py"


def overrides(each: object) -> bool:
    """Whether a method has one of its name in a base class, which documents its parameters."""
    if not inspect.isfunction(each) or "." not in each.__qualname__ or "<locals>" in each.__qualname__:
        return False
    owner = getattr(import_module(each.__module__), each.__qualname__.split(".")[0])
    return any(each.__name__ in vars(base) for base in owner.__mro__[1:])


def section(text: str, title: str) -> list[str] | None:
    """The lines of a section of numpydoc that begin without a space; None where it is absent."""
    match = re.search(rf"^{title}\n-+\n(.*?)(?=^\w[\w ]*\n--|\Z)", text, re.DOTALL | re.MULTILINE)
    return None if match is None else [line for line in match[1].splitlines() if line and line[0] != " "]


def parameters(each: object) -> list[str]:
    """The parameters that a call names, stars included."""
    names = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    try:
        called = inspect.signature(each)  # type: ignore[arg-type]
    except ValueError:
        return []
    return [names.get(p.kind, "") + name for name, p in called.parameters.items() if name not in ("self", "cls")]


def problems(each: object) -> list[str]:
    """What a public doc-string lacks."""
    text = inspect.getdoc(each.func if isinstance(each, cached_property) else each) or ""
    first = text.split("\n\n")[0]
    found = [] if first.endswith(".") and "\n" not in first else [f"one first line with a full stop: {first!r}"]
    if isinstance(each, PROPERTY) or overrides(each) or (inspect.isclass(each) and issubclass(each, Exception)):
        return found
    own = inspect.isfunction(each) or "__init__" in vars(each)
    named = [name for line in section(text, "Parameters") or () for name in line.split(" : ")[0].split(", ")]
    if own and named != parameters(each):
        found.append(f"parameters {parameters(each)}, documented {named}")
    if inspect.isfunction(each):
        returned = each.__annotations__.get("return")
        if (returned not in (None, "None")) != (section(text, "Returns") is not None):
            found.append(f"Returns, for {returned}")
    return found


EVERYTHING = documented()


@pytest.mark.parametrize("name", EVERYTHING)
def test_public_names_have_numpydoc(name):
    assert not problems(EVERYTHING[name])


def test_what_is_wrong_is_found():
    def good(a: int, *b: int) -> int:
        """Add numbers.

        Parameters
        ----------
        a, *b : int

        Returns
        -------
        int
        """
        return a + sum(b)

    def bad(a: int, b: int) -> int:
        """Add numbers

        Parameters
        ----------
        a : int
        """
        return a + b

    assert not problems(good)
    assert len(problems(bad)) == 3


# Verbs that first lines of functions begin with; add one where it is needed.
VERBS = """
    Accept Add Advance Append Apply Ask Average Begin Build Cancel Cast Change Check Choose Classify Collect Combine
    Compare Compile Compute Condition Convert Copy Count Decide Decode Delete Describe Disable Do Double Draw Drop
    Embed Empty Encode End Escape Estimate Explain Fill Find Finish Fit Flush Follow Format Give Group Hash Hide Hold
    Import Infer Initialise Iterate Join Judge Keep Leave Let List Load Lock Look Lower Make Map Match Maximise Move
    Multiply Name Open Parse Plot Predict Print Put Raise Rank Read Recommend Record Recover Reduce Refuse Remove Repeat
    Replace Reproduce Reserve Restore Restrict Return Round Run Scale Score Seed Select Send Serve Set Shift Shorten Show
    Simulate Split Stack Start Sum Take Test Train Translate Update Wait Warn Wrap Write
"""
FILES = [path for path in sorted(SOURCE.rglob("*.py")) if not path.relative_to(SOURCE).as_posix().startswith(LATER)]


def first_lines(path: Path) -> list[tuple[str, str, bool]]:
    """Name and first line of each doc-string of a file, and whether it is a function's."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) or (text := ast.get_docstring(node)) is None:
            continue
        decorators = [getattr(each, "id", getattr(each, "attr", "")) for each in getattr(node, "decorator_list", ())]
        function = isinstance(node, ast.FunctionDef) and not {"property", "cached_property"} & set(decorators)
        found.append((getattr(node, "name", "the module"), text.split("\n\n")[0], function))
    return found


def unclear(first: str, function: bool) -> bool:
    """Whether a first line is more than one, has no end, needs another doc-string, or is a function's without its verb."""
    whole = first.endswith((".", "]")) and "\n" not in first and not first.startswith(("The same", "See "))
    return not whole or (function and first.split()[0].rstrip(".,:") not in VERBS.split())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_first_lines_can_be_read_alone(path):
    assert not [(name, first) for name, first, function in first_lines(path) if unclear(first, function)]


@pytest.mark.parametrize("first", ["The same with noise.", "See the class.", "Draw", "Two\nlines.", "A draw."])
def test_an_unclear_first_line_is_found(first):
    assert unclear(first, function=True)
    assert not unclear("A draw.", function=False)
    assert not unclear("Draw.", function=True)
