"""fig1-toy, fig1-digits, fig4-examples and fig4-curves."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unfade.data.observations import Observations
from unfade.demo import as_colours, toy
from unfade.inference.sampling import draw_blocks
from unfade.models.latent_variable import PosteriorLVM
from unfade.paper.study import Results, Say, Setting, Study, fill, key, over_repeats
from unfade.paper.ways import WAYS

SHOWN = ("MVAE", "TAE as printed", "unfade")


def fig1_toy(study: Study, results: Results, repeats: int, say: Say) -> str:
    """Run the paper's experiment in two dimensions, with the exact posterior."""
    quick = study.schedule.train_rows is not None
    shown = toy(results.folder, verbose=0, steps=study.schedule.training.steps if quick else None)
    results.put({"energy distance to the exact posterior": shown.scores})
    return "# Two dimensions\n\n```\n" + shown.text + "\n```"


def fig1_digits(study: Study, results: Results, repeats: int, say: Say) -> str:
    """Draw MNIST at 80 % missing: corrupted, mean, draws."""
    return examples(study, results, [Setting("mnist", 0.8)], "digits.png", say)


def fig4_examples(study: Study, results: Results, repeats: int, say: Say) -> str:
    """Draw MNIST at 50 and 80 % missing: mean and draws of the MVAE, the printed TAE and unfade."""
    return examples(study, results, [Setting("mnist", 0.5), Setting("mnist", 0.8)], "examples.png", say)


def fig4_curves(study: Study, results: Results, repeats: int, say: Say) -> str:
    """Compute PSNR and ELBO against the share of observed entries, over masks."""
    shares = [0.1, 0.2, 0.3, 0.5, 0.7, 0.9]
    settings = [Setting("mnist", 1 - share, mask) for share in shares for mask in range(repeats)]
    fill(study, results, settings, "curves", say, SHOWN)
    curves = {
        name: {
            score: [_over_masks(results, settings, 1 - share, name, score) for share in shares]
            for score in ("PSNR", "ELBO")
        }
        for name in SHOWN
    }
    _draw_curves(results.folder / "curves.png", shares, curves)
    lines = ["| observed | " + " | ".join(f"{name}: PSNR, ELBO" for name in SHOWN) + " |", "|---" * (len(SHOWN) + 1) + "|"]
    for i, share in enumerate(shares):
        cells = [f"{curves[n]['PSNR'][i][0]:.2f}, {curves[n]['ELBO'][i][0]:.0f}" for n in SHOWN]
        lines.append(f"| {share:.0%} | " + " | ".join(cells) + " |")
    gaps = {
        score: [
            tae - mvae for (tae, _), (mvae, _) in zip(curves["TAE as printed"][score], curves["MVAE"][score], strict=True)
        ]
        for score in ("PSNR", "ELBO")
    }
    said = (
        "The paper (curves, no figures): PSNR of MVAE and TAE very similar, ELBO of TAE significantly higher. Here, TAE as "
        f"printed less MVAE: PSNR {min(gaps['PSNR']):+.2f} to {max(gaps['PSNR']):+.2f} dB; its ELBO is higher at "
        f"{sum(gap > 0 for gap in gaps['ELBO'])} of {len(shares)} shares."
    )
    title = "# PSNR of missing pixels and ELBO of the truth against the share of observed pixels"
    return "\n".join([title, "", *lines, "", said, "", "![](curves.png)"])


def _over_masks(results: Results, settings: list[Setting], missing: float, name: str, score: str) -> tuple[float, float]:
    return over_repeats([results[key(s, name, "curves")][score] for s in settings if s.missing == missing])


def _draw_curves(path: Path, shares: list[float], curves: dict[str, dict[str, list[tuple[float, float]]]]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axis, score in zip(figure.subplots(1, 2), ("PSNR", "ELBO"), strict=True):
        for (name, scores), style in zip(curves.items(), ("C0-o", "C3-s", "k-^"), strict=True):
            middle, sd = np.array(scores[score]).T
            axis.errorbar(shares, middle, sd, fmt=style, label=name, ms=4, capsize=2)
        axis.set(
            xlabel="share of observed pixels",
            ylabel={"PSNR": "PSNR on missing pixels (dB)"}.get(score, "ELBO of the truth"),
        )
        axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=130)


def examples(study: Study, results: Results, settings: list[Setting], picture: str, say: Say) -> str:
    """Draw mean and draws of the first test images, with scores; an existing picture is kept."""
    if not (results.folder / picture).exists():
        pictures = {}
        for setting in settings:
            _, train = study.rows(setting, "train")
            clean, test = study.rows(setting, "test")
            for name in SHOWN:
                say(f"{name}, examples of {setting}")
                [posterior] = study.fit(WAYS[name], [train], [0])
                refined = WAYS[name].refined
                results.put({f"{setting.hidden}; {name}": study.scores(posterior, clean, test, refined)})
                drawn = _draws(posterior, test[:4], study.schedule.n_candidates if refined else 0)
                pictures[f"{setting.hidden}\n{name}"] = (_with_holes(test[:4]), drawn, clean[:4].cpu())
        _draw_examples(results.folder / picture, pictures, study.dataset("mnist").image or (28, 28))
    lines = ["| | | PSNR | energy score |", "|---|---|---|---|"]
    for setting in settings:
        for name in SHOWN:
            scores = results[f"{setting.hidden}; {name}"]
            lines.append(f"| {setting.hidden} | {name} | {scores['PSNR']:.2f} | {scores['energy score']:.3f} |")
    return "\n".join(["# Means and draws of test images", "", *lines, "", f"![]({picture})"])


def _draws(posterior: PosteriorLVM, obs: Observations, n_candidates: int) -> Tensor:
    blocks = draw_blocks(posterior, obs, torch.arange(len(obs)), 50, seed=2, n_candidates=n_candidates)
    return torch.cat([values for _, values in blocks], 1).cpu()


def _with_holes(obs: Observations) -> Tensor:
    return torch.where(obs.observed, obs.values, torch.nan).cpu()


def _draw_examples(path: Path, pictures: dict[str, Any], image: tuple[int, int]) -> None:
    """Draw a line per image and method: corrupted, mean, five draws, truth; missing pixels blue."""
    from matplotlib.figure import Figure

    rows = [(name, i) for name in pictures for i in range(4)]
    figure = Figure(figsize=(8.6, 1.02 * len(rows)), layout="constrained")
    titles = ["corrupted", "mean", *[f"draw {i}" for i in range(1, 6)], "truth"]
    axes = figure.subplots(len(rows), len(titles), squeeze=False)
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title, fontsize=9)
    for line, (name, i) in zip(axes, rows, strict=True):
        corrupted, drawn, truth = pictures[name]
        shown = [corrupted[i], drawn[:, i].mean(0), *drawn[:5, i], truth[i]]
        for axis, values in zip(line, shown, strict=True):
            axis.imshow(as_colours(values.numpy().reshape(image)), interpolation="nearest")
            axis.set_xticks([])
            axis.set_yticks([])
        if i == 0:
            line[0].set_ylabel(name, fontsize=8, rotation=0, ha="right", va="center")
    figure.savefig(path, dpi=110)
