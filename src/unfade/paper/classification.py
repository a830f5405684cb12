"""fig5-histograms and fig6-classification: classifiers of few labels on draws (section 4.2, supplement C)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from unfade.data.observations import Observations
from unfade.inference.sampling import draw_blocks
from unfade.models.latent_variable import PosteriorLVM
from unfade.paper.study import Results, Say, Setting, Study, corrupt, over_repeats
from unfade.paper.ways import WAYS

Classifier = tuple[Tensor, Tensor]  # weights (entries, classes) and bias (1, classes)
RECOVERED = ("MVAE", "TAE as printed", "unfade")
INPUTS = ("raw", "raw and mask", *RECOVERED)
SHARES = (0.5, 0.7, 0.8, 0.9)
CORRUPTED, LABELLED, CLASSES = 10_000, 1_000, 10
POOL = 50  # draws of each labelled row that are made at once; the classifier sees each once


def fig6_classification(study: Study, results: Results, repeats: int, say: Say) -> str:
    """Compute accuracy, calibration error and Brier score over the share missing, for both data sets."""
    settings = [Setting(data, share, r) for data in ("mnist", "fashion-mnist") for share in SHARES for r in range(repeats)]
    for name in INPUTS:
        todo = [setting for setting in settings if _key(setting, name) not in results]
        for group in study.groups(todo, alike=name in WAYS and WAYS[name].stopped):
            _measure(study, results, name, group, say)
    text = ["# Classification after recovery: 1,000 labels, votes of many draws", ""]
    for data in ("mnist", "fashion-mnist"):
        text += [f"## {data}", "", "| missing | " + " | ".join(INPUTS) + " |", "|---" * (len(INPUTS) + 1) + "|"]
        for share in SHARES:
            cells = [_cell(results, data, share, name, repeats) for name in INPUTS]
            text.append(f"| {share:.0%} | " + " | ".join(cells) + " |")
        text.append("")
    _draw_curves(results, repeats)
    text += ["Accuracy ± sd over repeats; calibration error; Brier score.", "", _beside_the_paper(results, repeats)]
    return "\n".join([*text, "", "![](classification.png)"])


def _beside_the_paper(results: Results, repeats: int) -> str:
    """Count the settings that reproduce the paper's order of methods."""
    cells = [(data, share) for data in ("mnist", "fashion-mnist") for share in SHARES]
    mean = {(cell, name): _scores_of(results, *cell, name, repeats, "accuracy")[0] for cell in cells for name in INPUTS}
    ahead = {other: sum(mean[cell, "TAE as printed"] > mean[cell, other] for cell in cells) for other in ("raw", "MVAE")}
    return (
        "The paper (curves, no figures) has TAE better than MVAE and raw. Here, by mean accuracy, the printed TAE is "
        f"better than raw in {ahead['raw']} and than MVAE in {ahead['MVAE']} of {len(cells)} settings."
    )


def fig5_histograms(study: Study, results: Results, repeats: int, say: Say) -> str:
    """Draw histograms of the classes predicted for draws of a few test rows."""
    setting = Setting("mnist", 0.8)
    votes = {name: _measure(study, results, name, [setting], say)[0][:6] for name in RECOVERED}
    obs, labels = _rows(study, setting)
    some = slice(_labelled(obs), _labelled(obs) + 6)
    seen = torch.where(obs.observed, obs.values, torch.nan)[some].cpu()
    _draw_histograms(results.folder / "histograms.png", seen.numpy(), labels[some].tolist(), votes)
    return "# Histograms of the classes of draws, MNIST, 80 % missing\n\n![](histograms.png)"


def _measure(study: Study, results: Results, name: str, settings: Sequence[Setting], say: Say) -> list[Tensor]:
    """Fit, classify and score, together; return the votes, (samples, classes) per setting."""
    say(f"{name}: {len(settings)} models together, first {settings[0]}")
    data, labels = zip(*[_rows(study, setting) for setting in settings], strict=True)
    posteriors: Sequence[PosteriorLVM | None] = [None] * len(settings)
    if name in WAYS:
        schedule = replace(study.schedule, training=study.schedule.classified or study.schedule.training)
        posteriors = replace(study, schedule=schedule).fit(WAYS[name], data, [setting.mask for setting in settings])
    few = _labelled(data[0])
    pairs = list(zip(posteriors, data, strict=True))

    def pool(number: int) -> Tensor:
        return torch.stack([_inputs(name, p, obs[:few], POOL, seed=1000 + number) for p, obs in pairs])

    classifiers = _train(pool, torch.stack([said[:few] for said in labels]), study.schedule.classifier_steps)
    votes = [
        _votes(study, each, name, posterior, obs[few:])
        for each, posterior, obs in zip(classifiers, posteriors, data, strict=True)
    ]
    judged = [_judge(vote, said[few:].cpu()) for vote, said in zip(votes, labels, strict=True)]
    results.put({_key(setting, name): each for setting, each in zip(settings, judged, strict=True)})
    return votes


def _rows(study: Study, setting: Setting) -> tuple[Observations, Tensor]:
    """Return corrupted rows, chosen by the repeat, and their classes; the first tenth counts as labelled."""
    dataset = study.dataset(setting.data)
    rows = min(CORRUPTED, study.schedule.train_rows or CORRUPTED)
    chosen = torch.randperm(len(dataset.train), generator=torch.Generator().manual_seed(setting.mask))[:rows]
    obs = corrupt(dataset.train[chosen], setting, dataset, "train")
    return obs.to(study.device), dataset.train_labels[chosen].to(study.device)


def _labelled(obs: Observations) -> int:
    return min(LABELLED, len(obs) // 2)


def _inputs(name: str, posterior: PosteriorLVM | None, obs: Observations, draws: int, seed: int, first: int = 0) -> Tensor:
    """Return the classifier's inputs, (draws, samples, entries): draws of clean rows, or the raw ones."""
    if posterior is None:
        parts = [obs.values, obs.observed.to(obs.values.dtype)] if name == "raw and mask" else [obs.values]
        return torch.cat(parts, 1)[None]
    blocks = draw_blocks(posterior, obs, first + torch.arange(len(obs)), draws, seed, n_candidates=0)
    return torch.cat([values for _, values in blocks], 1)


def _train(pool: Callable[[int], Tensor], labels: Tensor, steps: int) -> list[Classifier]:
    """Train one fully connected layer with a leaky ReLU for each set of rows, on a fresh draw of each row in each pass.

    pool: gives draws by number, (classifiers, draws, samples, entries); labels: (classifiers, samples).
    """
    count, samples = labels.shape
    inputs, batch = pool(0), min(100, samples)
    draws, entries = inputs.shape[1], inputs.shape[3]
    generator = torch.Generator(inputs.device).manual_seed(0)
    weight = torch.zeros(count, entries, CLASSES, device=inputs.device)
    weight.uniform_(-(entries**-0.5), entries**-0.5, generator=generator).requires_grad_()
    bias = torch.zeros(count, 1, CLASSES, device=inputs.device, requires_grad=True)
    optimiser = torch.optim.Adam([weight, bias], lr=1e-3)
    each = torch.arange(count, device=inputs.device)[:, None]
    for step in range(steps):
        whole, place = divmod(step, samples // batch)
        if place == 0:
            order = torch.rand(count, samples, generator=generator, device=inputs.device).argsort(1)
            if whole and whole % draws == 0 and draws > 1:
                inputs = pool(whole // draws)
        row = order[:, place * batch : (place + 1) * batch]
        said = nn.functional.leaky_relu(inputs[each, whole % draws, row] @ weight + bias)
        loss = nn.functional.cross_entropy(said.flatten(0, 1), labels[each, row].flatten(), reduction="sum") / batch
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return list(zip(weight.detach(), bias.detach(), strict=True))


@torch.no_grad()
def _votes(study: Study, classifier: Classifier, name: str, posterior: PosteriorLVM | None, obs: Observations) -> Tensor:
    """Compute the share of draws given to each class, (samples, classes)."""
    weight, bias = classifier
    parts = []
    for i in range(0, len(obs), 512):
        inputs = _inputs(name, posterior, obs[i : i + 512], study.schedule.votes, seed=4, first=i)
        said = (inputs @ weight + bias).argmax(-1)  # the leaky ReLU keeps the order
        parts.append(nn.functional.one_hot(said, CLASSES).float().mean(0))
    return torch.cat(parts).cpu()


def _judge(votes: Tensor, labels: Tensor) -> dict[str, float]:
    """Score votes: accuracy of the largest; expected calibration error in ten bins of its share; Brier score."""
    share, said = votes.max(1)
    right = (said == labels).float()
    bins = (share * 10).long().clamp(max=9)
    gaps = [float((right[bins == b].mean() - share[bins == b].mean()).abs() * (bins == b).sum()) for b in bins.unique()]
    brier = (votes - nn.functional.one_hot(labels, CLASSES)).square().sum(1).mean()
    return {"accuracy": float(right.mean()), "calibration error": sum(gaps) / len(labels), "Brier score": float(brier)}


def _key(setting: Setting, name: str) -> str:
    return f"{setting}, {name}"


def _scores_of(results: Results, data: str, missing: float, name: str, repeats: int, score: str) -> tuple[float, float]:
    return over_repeats([results[_key(Setting(data, missing, r), name)][score] for r in range(repeats)])


def _cell(results: Results, data: str, missing: float, name: str, repeats: int) -> str:
    accuracy, sd = _scores_of(results, data, missing, name, repeats, "accuracy")
    others = [_scores_of(results, data, missing, name, repeats, score)[0] for score in ("calibration error", "Brier score")]
    return f"{accuracy:.3f} ± {sd:.3f}; {others[0]:.3f}; {others[1]:.3f}"


def _draw_curves(results: Results, repeats: int) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.8), layout="constrained")
    for axis, data in zip(figure.subplots(1, 2), ("mnist", "fashion-mnist"), strict=True):
        styles = (("0.6", "-o"), ("0.3", "--o"), ("C0", "-s"), ("C3", "-P"), ("k", "-^"))
        for name, (colour, marker) in zip(INPUTS, styles, strict=True):
            points = [_scores_of(results, data, missing, name, repeats, "accuracy") for missing in SHARES]
            middle, sd = np.array(points).T
            axis.errorbar(SHARES, middle, sd, fmt=marker, color=colour, label=name, ms=4, capsize=2)
        axis.set(title=data, xlabel="share of missing pixels", ylabel="accuracy")
        axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8)
    figure.savefig(results.folder / "classification.png", dpi=130)


def _draw_histograms(path: Path, seen: np.ndarray, labels: list[int], votes: dict[str, Tensor]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 7), layout="constrained")
    axes = figure.subplots(len(seen), 1 + len(votes))
    side = int(seen.shape[1] ** 0.5)
    for i, line in enumerate(axes):
        line[0].imshow(seen[i].reshape(side, side), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        line[0].set_facecolor((0.23, 0.42, 0.66))
        line[0].set_xticks([])
        line[0].set_yticks([])
        for axis, (name, shares) in zip(line[1:], votes.items(), strict=True):
            axis.bar(
                range(CLASSES), shares[i].numpy(), color=["tab:green" if c == labels[i] else "0.6" for c in range(CLASSES)]
            )
            axis.set(ylim=(0, 1), yticks=[0, 1])
            axis.set_xticks(range(CLASSES) if i == len(seen) - 1 else [])
            if i == 0:
                axis.set_title(name, fontsize=9)
    axes[0][0].set_title("corrupted", fontsize=9)
    axes[-1][1].set_xlabel("class; green: the true one", fontsize=8)
    figure.savefig(path, dpi=110)
