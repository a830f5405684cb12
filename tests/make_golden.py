"""Store a model of the format that this version writes: `python tests/make_golden.py`; once for each format."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from unfade import Recoverer
from unfade.io.tables import read_table
from unfade.storage import FORMAT

GOLDEN = Path(__file__).parent / "golden"


def main() -> None:
    """Model, table and what the model says of it."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"height": rng.normal(170, 10, 60), "count": rng.integers(0, 9, 60)})
    frame["weight"] = 0.5 * frame.height + rng.normal(0, 3, 60)
    frame["where"] = np.where(frame.height > 170, "here", rng.choice(["there", "nowhere"], 60))
    frame = frame.mask(rng.random(frame.shape) < 0.2)
    frame.to_csv(GOLDEN / "table.csv", index=False)
    table = read_table(GOLDEN / "table.csv")
    for name, options in {"networks": {"noise": 0.5, "max_steps": 100, "n_members": 1}, "linear": {"n_members": 4}}.items():
        data = table if name == "networks" else table.select(["height", "weight"])
        rec = Recoverer(random_state=0, verbose=0, **options).fit(data)
        path = GOLDEN / f"{name}-{FORMAT}.unfade"
        rec.save(path)
        draws = rec.sample(data, 4, seed=5)
        said = {"mean": rec.transform(data).to_pydict(), "draws": [draw.to_pydict() for draw in draws]}
        path.with_suffix(".json").write_text(json.dumps(said))
        print(path, path.stat().st_size, rec.histories_[-1])


if __name__ == "__main__":
    main()
