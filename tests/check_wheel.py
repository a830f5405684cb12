"""Install the built wheel into a folder of its own and use it from there: `check_wheel.py FOLDER`."""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

USE = """
import numpy as np, unfade, pathlib, sys
assert pathlib.Path(unfade.__file__).is_relative_to(sys.argv[1]), unfade.__file__
Y = np.random.default_rng(0).normal(size=(50, 3)); Y[0, 0] = np.nan
rec = unfade.Recoverer(max_steps=5, verbose=0).fit(Y)
assert np.isfinite(rec.transform(Y)).all()
print("wheel works:", rec.sample(Y, 2), unfade.__version__)
"""


def main(folder: Path) -> None:
    wheel = next(folder.glob("*.whl"))
    names = zipfile.ZipFile(wheel).namelist()
    assert "unfade/py.typed" in names, "py.typed is missing from the wheel"
    assert not [name for name in names if "test" in name], "tests are in the wheel"
    with tempfile.TemporaryDirectory() as target:
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", target, str(wheel)]
        subprocess.run(install, check=True)
        subprocess.run([sys.executable, "-c", USE, target], check=True, cwd=target, env={"PYTHONPATH": target, "PATH": ""})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
