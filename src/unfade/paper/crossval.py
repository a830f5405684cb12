"""supp-crossval: the ELBO of the printed TAE over C and lambda, MNIST at 90 % missing (supplement D.1)."""

from unfade.paper.study import Results, Say, Setting, Study

VALUES = (0.1, 0.5, 2.0, 10.0, 50.0, 200.0)


def crossval(study: Study, results: Results, repeats: int, say: Say) -> str:
    """All pairs of C and lambda side by side, and the MVAE's level."""
    setting = Setting("mnist", 0.9)
    pairs = [(C, lam) for C in VALUES for lam in VALUES]
    _, obs = study.rows(setting, "train")
    clean, seen = study.rows(setting, "test")
    if "MVAE" not in results:
        say("MVAE")
        [posterior] = study.fit("mvae", [obs], [0])
        results.put({"MVAE": study.elbos([posterior], [clean], [seen])[0]})
    todo = [pair for pair in pairs if _key(*pair) not in results]
    for start in range(0, len(todo), study.together):
        group = todo[start : start + study.together]
        say(f"{len(group)} pairs of C and lambda side by side")
        posteriors = study.fit(
            "tae-paper", [obs] * len(group), [0] * len(group), [{"C": C, "lam": lam} for C, lam in group]
        )
        elbos = study.elbos(posteriors, [clean] * len(group), [seen] * len(group))
        spreads = [study.scores(posterior, clean, seen, refined=False) for posterior in posteriors]
        results.put({_key(*pair): {**e, **s} for pair, e, s in zip(group, elbos, spreads, strict=True)})
    _draw(results)
    rows = [f"| C = {C:g} | " + " | ".join(f"{results[_key(C, lam)]['ELBO']:.0f}" for lam in VALUES) + " |" for C in VALUES]
    head = ["| | " + " | ".join(f"lambda = {lam:g}" for lam in VALUES) + " |", "|---" * (len(VALUES) + 1) + "|"]
    title = "# ELBO of the printed TAE over C and lambda, MNIST, 90 % missing"
    return "\n".join(
        [title, "", *head, *rows, "", f"MVAE: {results['MVAE']['ELBO']:.0f}. The paper chose C = 10, lambda = 2."]
    )


def _key(C: float, lam: float) -> str:
    return f"C {C:g}, lambda {lam:g}"


def _draw(results: Results) -> None:
    import numpy as np
    from matplotlib.figure import Figure

    values = np.array([[results[_key(C, lam)]["ELBO"] for lam in VALUES] for C in VALUES])
    level = results["MVAE"]["ELBO"]
    figure = Figure(figsize=(6.4, 5), layout="constrained")
    axes = figure.subplots()
    ends = {"vmin": min(level, float(np.median(values))), "vmax": max(level, float(values.max()))}
    image = axes.imshow(values, origin="lower", cmap="viridis", aspect="auto", **ends)
    for i in range(len(VALUES)):
        for j in range(len(VALUES)):
            worse = values[i, j] < level
            axes.text(
                j, i, f"{values[i, j]:.0f}", ha="center", va="center", color="tab:red" if worse else "white", fontsize=8
            )
    axes.set_xticks(range(len(VALUES)), [f"{v:g}" for v in VALUES])
    axes.set_yticks(range(len(VALUES)), [f"{v:g}" for v in VALUES])
    axes.set(
        xlabel="lambda (log scale)", ylabel="C (log scale)", title="ELBO of the truth, TAE as printed; red: below the MVAE"
    )
    bar = figure.colorbar(image, ax=axes)
    bar.ax.axhline(level, color="tab:red")
    bar.ax.text(1.1, level, " MVAE", color="tab:red", transform=bar.ax.get_yaxis_transform(), va="center", fontsize=8)
    figure.savefig(results.folder / "crossval.png", dpi=130)
