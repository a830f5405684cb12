"""What README and docs say in words about stored results holds of them."""

import numpy as np
from test_stored_figures import (
    MISSING,
    SCORES,
    figure_4,
    figure_6,
    leads_on_wide_data,
    over_masks,
    stored,
    table_1,
    to_the_letter,
    words,
)

from unfade.paper.settings import TABLE_1


def test_the_verdicts_on_table_1():
    text, shares = words("reproduction.md"), ("20%", "50%", "80%")
    mean = {
        (way, score, share): to_the_letter(f"mnist, {share}", "", 5 * (way != "MVAE") + place)[0]
        for way in ("MVAE", "TAE as printed")
        for place, score in enumerate(SCORES, 1)
        for share in shares
    }
    ours = [mean["TAE as printed", "ELBO", share] for share in shares]
    papers = [TABLE_1["mnist", MISSING[share]]["TAE"][0] for share in shares]
    assert f"{min(ours):.0f} to {max(ours):.0f} for the {min(papers)} to {max(papers)} that are printed" in text
    assert all(mean["TAE as printed", "ELBO", share] < mean["MVAE", "ELBO", share] for share in shares)
    psnr = [mean[way, "PSNR", "80%"] for way in ("TAE as printed", "MVAE")]
    assert text.count(f"{psnr[0]:.1f} dB for MVAE's {psnr[1]:.1f}") == 2
    cells = [f"{data}, {share:.0%}" for data, share in TABLE_1]
    above = {
        lim: sum(table_1(cell, f"unfade, lim {lim}", 0)[0] > table_1(cell, "TAE: paper", 0)[0] for cell in cells)
        for lim in (10, 20)
    }
    assert above == {10: 0, 20: 8}
    assert "above the printed TAE in eight of nine settings" in text
    assert "at lim 10 unfade is below the paper's TAE in all nine" in text


def test_the_verdicts_on_figures_4_and_6():
    text = words("reproduction.md")
    apart = [figure_4(share, "", 4)[0] - figure_4(share, "", 1)[0] for share in ("10%", "20%", "30%", "50%", "70%", "90%")]
    more = sorted(apart)[1:]
    assert f"higher by {more[0]:.1f} to {more[-1]:.1f} dB at five of six shares" in text
    assert abs(min(apart)) < 0.1
    found = stored("results/fig4-curves.json").items()
    few = sorted(r["ELBO"] for name, r in found if name.startswith("mnist, 90% missing") and "; MVAE;" in name)
    said = "have an ELBO of {:.0f} and {:.0f}, the others of {:.0f} to {:.0f}"
    assert said.format(few[0], few[1], few[2], few[-1]) in text
    narrow = [
        over_masks("results/fig4-curves.json", rf"mnist, {hidden}% missing, mask \d; TAE as printed; curves", "coverage")[0]
        for hidden in (90, 50)
    ]
    assert f"hold {narrow[0]:.0%} of".replace("%", " %") in text
    assert f"{narrow[1]:.0%} with half or more".replace("%", " %") in text
    accuracy = {
        (data, way): [figure_6(f"{data}, {share}", way, 0)[0] for share in ("50%", "70%", "80%", "90%")]
        for data in ("mnist", "fashion-mnist")
        for way in ("raw", "MVAE", "TAE as printed")
    }
    ahead = {
        (data, way): np.subtract(accuracy[data, "TAE as printed"], other) > 0 for (data, way), other in accuracy.items()
    }
    assert all(ahead[key].all() for key in (("mnist", "MVAE"), ("mnist", "raw"), ("fashion-mnist", "raw")))
    assert not ahead["fashion-mnist", "MVAE"].any()


def test_what_the_page_on_wide_data_says():
    text, found = words("wide.md"), list(stored("results/wide.json").values())
    counts = {"energy score": (18, 13), "CRPS": (17, 11)}
    for score, count in counts.items():
        assert leads_on_wide_data(score) == count
        assert f"the lowest in {count[0]} of 18" in text
        assert f"{count[1]} over all" in text
    assert "highest in 18 of 18" in text
    plain = [{way: r["PSNR"] for way, r in one.items() if "resampled" not in way} for one in found]
    assert all(one["unfade"] == max(one.values()) for one in plain)
    above = {
        name: sum(one["unfade"]["ELBO"] > max(one[way]["ELBO"] for way in ways if way in one) for one in found)
        for name, ways in (
            ("printed", ("MVAE", "MIWAE")),
            ("all", ("MVAE", "MIWAE", "MIWAE, conditioned", "MIWAE, stopped", "TAE as printed")),
        )
    }
    assert above == {"printed": 17, "all": 12}
    assert "as printed in 17 of 18 settings" in text
    assert "the highest in 12" in text
    seconds = stored("results/wide.json")
    for data in ("mnist", "fashion-mnist"):
        for way in ("MIWAE, stopped", "unfade"):
            each = [seconds[f"{data} {share}, 10,000 rows, trained on"][way]["training seconds"] for share in MISSING]
            assert ", ".join(f"{value:.0f}" for value in each) in text


def test_the_grid_on_digits():
    text, found = words("reproduction.md"), stored("results/c-lambda.json")
    grid = {name.split("/")[1]: one for name, one in found.items() if name.endswith("/TAE, author's habits")}
    best = max(grid, key=lambda pair: grid[pair]["ELBO"])
    printed, mvae = grid["C 10, lambda 2"], found["digits/C 10, lambda 2/0/MVAE"]["ELBO"]
    assert len(grid) == 36
    assert f"MVAE's ELBO, {mvae:.1f}, is above all 36 pairs" in text
    assert mvae > grid[best]["ELBO"]
    assert best == "C 2, lambda 0.5"
    apart = grid[best]["ELBO"] - printed["ELBO"]
    assert apart < np.hypot(grid[best]["ELBO's standard error"], printed["ELBO's standard error"]) * 2
    ours, xavier = (found[f"digits/C 10, lambda 2/0/{way}"] for way in ("TAE as printed", "TAE, Xavier's weights"))
    gain = [one["ELBO"] - ours["ELBO"] for one in (printed, xavier)]
    assert f"by {gain[0]:.0f}, Xavier's weights alone by {gain[1]:.0f}" in text
    assert f"({printed['R - Q']:.1f} by the author's habits, {ours['R - Q']:.1f} by ours)" in text
    narrow = [one["coverage"] for one in grid.values()]
    assert f"(coverage {min(narrow):.2f} to {max(narrow):.2f}, nominal" in text
    reached = [grid[f"C 10, lambda {lam}"]["R - Q"] for lam in (10, 50, 200)]
    assert f"({min(reached):.1f} to {max(reached):.1f} for C = 10)" in text


def test_the_place_of_the_exact_bound():
    found, text = stored("results/bound.json"), words("method.md")
    crps = {tuple(name.split("/MCAR/")): one["missing: CRPS"] for name, one in found.items()}
    tables, seeds = ("uci_yacht", "uci_energy", "concrete"), (0, 1)
    own = {(table, seed): crps[table, f"{seed}/TAE, exact bound"] for table in tables for seed in seeds}
    assert all(crps[table, f"{seed}/TAE as printed"] > value for (table, seed), value in own.items())
    assert all(
        crps[table, f"{seed}/{way}"] < value for (table, seed), value in own.items() for way in ("networks", "MIWAE")
    )
    ahead = [sum(crps[table, f"{seed}/MVAE"] - own[table, seed] for seed in seeds) > 0 for table in tables]
    assert ahead == [True, False, True]
    assert "in all six runs; MVAE is behind it on two tables of three" in text
