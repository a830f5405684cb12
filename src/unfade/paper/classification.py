"""fig5-histograms and fig6-classification: what draws do for a classifier of few labels (section 4.2, supplement C)."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unfade.drawing import draw_blocks
from unfade.models import PosteriorLVM
from unfade.observations import Observations
from unfade.paper.study import WAYS, Results, Say, Setting, Study, corrupt, over_repeats
from unfade.training import scoped_seed

RECOVERED = ("MVAE", "TAE as printed", "unfade, plain")
INPUTS = ("raw", "raw and mask", *RECOVERED)
SHARES = (0.5, 0.7, 0.8, 0.9)
CORRUPTED, LABELLED, CLASSES = 10_000, 1_000, 10
POOL = 50  # draws a labelled row that the classifier is trained on, one picked anew at each step


def fig6_classification(study: Study, results: Results, repeats: int, say: Say) -> str:
    """Accuracy, calibration error and Brier score of the votes, over the missing ratio; both data sets."""
    for data in ("mnist", "fashion-mnist"):
        for missing in SHARES:
            _measure(study, results, data, missing, repeats, say)
    text = ["# Classification after recovery: 1,000 labels, votes of many draws", ""]
    for data in ("mnist", "fashion-mnist"):
        text += [f"## {data}", "", "| missing | " + " | ".join(INPUTS) + " |", "|---" * (len(INPUTS) + 1) + "|"]
        for missing in SHARES:
            cells = [_cell(results, data, missing, name, repeats) for name in INPUTS]
            text.append(f"| {missing:.0%} | " + " | ".join(cells) + " |")
        text.append("")
    _draw_curves(results, repeats)
    return "\n".join([*text, "Accuracy ± spread over repeats; calibration error; Brier score."])


def fig5_histograms(study: Study, results: Results, repeats: int, say: Say) -> str:
    """Histograms of the classes that draws of a few test rows are given."""
    votes = _measure(study, results, "mnist", 0.8, 1, say, keep_votes=True)
    _draw_histograms(results.folder / "histograms.png", votes)
    return "# Histograms of the classes of draws, MNIST, 80 % missing\n\n![](histograms.png)"


def _measure(
    study: Study, results: Results, data: str, missing: float, repeats: int, say: Say, keep_votes: bool = False
) -> dict[str, Any]:
    """Fit and classify what is not among the results; answers the votes of the first repeat where they are kept."""
    shown: dict[str, Any] = {}
    dataset = study.dataset(data)
    rows = min(CORRUPTED, study.schedule.train_rows or CORRUPTED)
    labelled = min(LABELLED, rows // 2)
    for name in INPUTS:
        todo = [r for r in range(repeats) if _key(data, missing, name, r) not in results or keep_votes]
        if not todo:
            continue
        say(f"{data}, {missing:.0%} missing, {name}: {len(todo)} repeats side by side")
        chosen = [torch.randperm(len(dataset.train), generator=torch.Generator().manual_seed(r))[:rows] for r in todo]
        data_of = [
            corrupt(dataset.train[c], Setting(data, missing, r), dataset, "train").to(study.device)
            for c, r in zip(chosen, todo, strict=True)
        ]
        posteriors = study.fit(WAYS[name].method, data_of, todo) if name in WAYS else [None] * len(todo)
        for repeat, obs, picked, posterior in zip(todo, data_of, chosen, posteriors, strict=True):
            labels = dataset.train_labels[picked].to(study.device)
            classifier = _train(study, _inputs(name, posterior, obs[:labelled], POOL), labels[:labelled], repeat)
            votes = _votes(study, classifier, name, posterior, obs[labelled:])
            results.put({_key(data, missing, name, repeat): _judge(votes, labels[labelled:].cpu())})
            if keep_votes:
                seen = torch.where(obs.observed, obs.values, torch.nan)[labelled : labelled + 6].cpu()
                shown[name] = (seen.numpy(), votes[:6].numpy(), labels[labelled : labelled + 6].cpu())
    return shown


def _inputs(
    name: str, posterior: PosteriorLVM | None, obs: Observations, draws: int, seed: int = 3, first: int = 0
) -> Tensor:
    """What the classifier sees, (draws, samples, entries): draws of clean rows, or the raw ones."""
    if posterior is None:
        parts = [obs.values, obs.observed.to(obs.values.dtype)] if name == "raw and mask" else [obs.values]
        return torch.cat(parts, 1)[None]
    blocks = draw_blocks(posterior, obs, first + torch.arange(len(obs)), draws, seed, refine=0)
    return torch.cat([values.to(obs.values.device) for _, values in blocks], 1)


def _train(study: Study, inputs: Tensor, labels: Tensor, seed: int) -> nn.Module:
    """One fully connected layer with a leaky ReLU; another draw of each row at each step."""
    generator = torch.Generator(inputs.device).manual_seed(seed)
    with scoped_seed(seed):
        classifier = nn.Sequential(nn.Linear(inputs.shape[-1], CLASSES), nn.LeakyReLU()).to(inputs.device)
    optimiser = torch.optim.Adam(classifier.parameters(), lr=1e-3)
    draws, samples = inputs.shape[:2]
    for _ in range(study.schedule.classifier_steps):
        row = torch.randint(samples, (100,), generator=generator, device=inputs.device)
        draw = torch.randint(draws, (100,), generator=generator, device=inputs.device)
        loss = nn.functional.cross_entropy(classifier(inputs[draw, row]), labels[row])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return classifier


@torch.no_grad()
def _votes(study: Study, classifier: nn.Module, name: str, posterior: PosteriorLVM | None, obs: Observations) -> Tensor:
    """Share of draws given to each class, (samples, classes)."""
    parts = []
    for i in range(0, len(obs), 500):
        said = classifier(_inputs(name, posterior, obs[i : i + 500], study.schedule.votes, seed=4, first=i)).argmax(-1)
        parts.append(nn.functional.one_hot(said, CLASSES).float().mean(0))
    return torch.cat(parts).cpu()


def _judge(votes: Tensor, labels: Tensor) -> dict[str, float]:
    """Accuracy of the largest vote; expected calibration error in ten bins of its share; Brier score."""
    share, said = votes.max(1)
    right = (said == labels).float()
    bins = (share * 10).long().clamp(max=9)
    gaps = [float((right[bins == b].mean() - share[bins == b].mean()).abs() * (bins == b).sum()) for b in bins.unique()]
    brier = (votes - nn.functional.one_hot(labels, CLASSES)).square().sum(1).mean()
    return {"accuracy": float(right.mean()), "calibration error": sum(gaps) / len(labels), "Brier score": float(brier)}


def _key(data: str, missing: float, name: str, repeat: int) -> str:
    return f"{data}, {missing:.0%} missing, {name}, repeat {repeat}"


def _scores_of(results: Results, data: str, missing: float, name: str, repeats: int, score: str) -> tuple[float, float]:
    return over_repeats([results[_key(data, missing, name, r)][score] for r in range(repeats)])


def _cell(results: Results, data: str, missing: float, name: str, repeats: int) -> str:
    accuracy, spread = _scores_of(results, data, missing, name, repeats, "accuracy")
    others = [_scores_of(results, data, missing, name, repeats, score)[0] for score in ("calibration error", "Brier score")]
    return f"{accuracy:.3f} ± {spread:.3f}; {others[0]:.3f}; {others[1]:.3f}"


def _draw_curves(results: Results, repeats: int) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.8), layout="constrained")
    for axis, data in zip(figure.subplots(1, 2), ("mnist", "fashion-mnist"), strict=True):
        styles = (("0.6", "-o"), ("0.3", "--o"), ("C0", "-s"), ("C3", "-P"), ("k", "-^"))
        for name, (colour, marker) in zip(INPUTS, styles, strict=True):
            points = [_scores_of(results, data, missing, name, repeats, "accuracy") for missing in SHARES]
            middle, spread = np.array(points).T
            axis.errorbar(SHARES, middle, spread, fmt=marker, color=colour, label=name, ms=4, capsize=2)
        axis.set(title=data, xlabel="share of missing pixels", ylabel="accuracy")
        axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8)
    figure.savefig(results.folder / "classification.png", dpi=130)


def _draw_histograms(path: Path, votes: dict[str, Any]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 7), layout="constrained")
    names = [name for name in RECOVERED if name in votes]
    axes = figure.subplots(6, 1 + len(names))
    for i, line in enumerate(axes):
        seen, _, labels = votes[names[0]]
        side = int(seen.shape[1] ** 0.5)
        line[0].imshow(seen[i].reshape(side, side), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        line[0].set_facecolor((0.23, 0.42, 0.66))
        line[0].set_xticks([])
        line[0].set_yticks([])
        for axis, name in zip(line[1:], names, strict=True):
            axis.bar(
                range(CLASSES),
                votes[name][1][i],
                color=["tab:green" if c == int(labels[i]) else "0.6" for c in range(CLASSES)],
            )
            axis.set(ylim=(0, 1), yticks=[0, 1])
            axis.set_xticks(range(CLASSES) if i == 5 else [])
            if i == 0:
                axis.set_title(name, fontsize=9)
    axes[0][0].set_title("corrupted", fontsize=9)
    axes[-1][1].set_xlabel("class; green: the true one", fontsize=8)
    figure.savefig(path, dpi=110)
