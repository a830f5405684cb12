"""supp-crossval: the ELBO of the printed TAE over C and lambda, MNIST at 90 % missing (supplement D.1)."""

from unfade.paper.study import Results, Say, Setting, Study
from unfade.paper.ways import WAYS

VALUES = (0.1, 0.5, 2.0, 10.0, 50.0, 200.0)
COLLAPSED = 1 / 3  # share of missing entries in 90 % intervals below which a posterior counts as collapsed


def crossval(study: Study, results: Results, repeats: int, say: Say) -> str:
    """Run all pairs of C and lambda together, and the MVAE."""
    setting = Setting("mnist", 0.9)
    pairs = [(C, lam) for C in VALUES for lam in VALUES]
    _, obs = study.rows(setting, "train")
    clean, seen = study.rows(setting, "test")
    if "MVAE" not in results:
        say("MVAE")
        [posterior] = study.fit(WAYS["MVAE"], [obs], [0])
        results.put({"MVAE": study.elbos([posterior], [clean], [seen])[0]})
    todo = [pair for pair in pairs if _key(*pair) not in results]
    for start in range(0, len(todo), study.together):
        group = todo[start : start + study.together]
        say(f"{len(group)} pairs of C and lambda together")
        posteriors = study.fit(
            WAYS["TAE as printed"], [obs] * len(group), [0] * len(group), [{"C": C, "lam": lam} for C, lam in group]
        )
        elbos = study.elbos(posteriors, [clean] * len(group), [seen] * len(group))
        spreads = [study.scores(posterior, clean, seen, refined=False) for posterior in posteriors]
        results.put({_key(*pair): {**e, **s} for pair, e, s in zip(group, elbos, spreads, strict=True)})
    _draw(results)
    rows = [f"| C = {C:g} | " + " | ".join(f"{results[_key(C, lam)]['ELBO']:.0f}" for lam in VALUES) + " |" for C in VALUES]
    head = ["| | " + " | ".join(f"lambda = {lam:g}" for lam in VALUES) + " |", "|---" * (len(VALUES) + 1) + "|"]
    title = "# ELBO of the printed TAE over C and lambda, MNIST, 90 % missing"
    level = results["MVAE"]["ELBO"]
    above = sum(results[_key(*pair)]["ELBO"] > level for pair in pairs)
    said = (
        f"MVAE: {level:.0f}. The paper (a picture, no figures) has TAE above the VAE over a broad range, and chose C = 10, "
        f"lambda = 2; here it is higher at {above} of {len(pairs)} pairs."
    )
    return "\n".join([title, "", *head, *rows, "", said, "", "![](crossval.png)"])


def _key(C: float, lam: float) -> str:
    return f"C {C:g}, lambda {lam:g}"


def _draw(results: Results) -> None:
    import numpy as np
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    cells = [[results[_key(C, lam)] for lam in VALUES] for C in VALUES]
    values = np.array([[cell["ELBO"] for cell in row] for row in cells])
    level = results["MVAE"]["ELBO"]
    figure = Figure(figsize=(6.8, 5.4), layout="constrained")
    axes = figure.subplots()
    colours = {"vmin": min(level, float(np.median(values))), "vmax": max(level, float(values.max()))}
    image = axes.imshow(values, origin="lower", cmap="viridis", aspect="auto", **colours)
    for i, row in enumerate(cells):
        for j, cell in enumerate(row):
            above = cell["ELBO"] > level
            said, weight = f"{cell['ELBO']:.0f}", "bold" if above else "normal"
            axes.text(j, i, said, ha="center", va="center", fontsize=8, color="k" if above else "w", fontweight=weight)
            if cell["coverage"] < COLLAPSED:
                axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, hatch="//", edgecolor="0.6", lw=0))
    axes.set_xticks(range(len(VALUES)), [f"{v:g}" for v in VALUES])
    axes.set_yticks(range(len(VALUES)), [f"{v:g}" for v in VALUES])
    axes.set(
        xlabel="lambda (log scale)",
        ylabel="C (log scale)",
        title=f"ELBO of the truth, TAE as printed (MVAE: {level:.0f})\nhatched: coverage of 90 % intervals below a third",
    )
    bar = figure.colorbar(image, ax=axes)
    bar.ax.axhline(level, color="tab:red")
    bar.ax.text(1.1, level, " MVAE", color="tab:red", transform=bar.ax.get_yaxis_transform(), va="center", fontsize=8)
    figure.savefig(results.folder / "crossval.png", dpi=130)
