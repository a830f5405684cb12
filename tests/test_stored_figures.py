"""Figures of the documentation are those of the stored results."""

import json
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_the_kinect_frames_that_were_run_again():
    stored = json.loads((DOCS / "results" / "depth-kinect.json").read_text())
    runs = [run["scores"] for name, run in stored.items() if name.startswith("kinect-unfade")]
    text = " ".join((DOCS / "images.md").read_text().split())
    for score, places in (("crps", 1), ("coverage", 3)):
        for rows in ("trained on", "unseen"):
            mean = sum(run[rows]["all"][score] for run in runs) / len(runs)
            assert f"{mean:.{places}f}" in text, (rows, score, mean)
