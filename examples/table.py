"""A table with holes and noise: recover it, look at the uncertainty, use the draws. Needs pandas; runs in seconds."""

import numpy as np
from sklearn.datasets import load_wine
from sklearn.linear_model import LinearRegression

from unfade import Recoverer
from unfade.diagnostics.evaluation import evaluate

rng = np.random.default_rng(0)
wine = load_wine(as_frame=True).data
unit = wine.std()
observed = (wine + 0.2 * unit.to_numpy() * rng.normal(size=wine.shape)).mask(rng.random(wine.shape) < 0.3)

rec = Recoverer(noise=0.2 * unit.to_numpy(), random_state=0).fit(observed)
draws = rec.sample(observed, n_draws=50)

print("first row, observed:     ", observed.iloc[0, :4].round(2).to_list())
print("first row, recovered:    ", draws.mean().iloc[0, :4].round(2).to_list())
print("first row, 90 % interval:", [pair.iloc[0, :4].round(2).to_list() for pair in draws.interval(0.9)])

for cells in ("missing", "observed"):
    score = evaluate(draws, wine, observed, cells, unit=unit.to_numpy())
    covered = f"coverage of 90 % intervals {score.coverage:.3f} (nominal {score.coverage_due:.3f})"
    print(f"{cells} cells: CRPS {score.crps:.3f} sd, {covered}")

slopes = [LinearRegression().fit(table[["alcohol"]], table["color_intensity"]).coef_[0] for table in draws]
print(f"slope of colour on alcohol: {np.mean(slopes):.2f}, sd over draws {np.std(slopes):.2f}")
