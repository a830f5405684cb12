# %% [markdown]
# # Gaps in a time series
#
# A series with a daily course becomes a table with one row per day and one column per hour. Long gaps are then filled
# by the course of similar days. In short gaps, a straight line does as well.
#
# Two sensors at one place measure every hour for 200 days. One has gaps of an hour or two, and of half a day.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from unfade import Recoverer

rng = np.random.default_rng(7)
days, hour = 200, np.arange(24)
height = 4 + 1.5 * rng.normal(size=(days, 1))
peak = 14 + rng.normal(size=(days, 1))
level = 12 + np.cumsum(rng.normal(size=(days, 1)), 0) / 2
truth = level + height * np.exp(-(((hour - peak) / 4) ** 2)) + 0.3 * rng.normal(size=(days, 24))
second = 0.8 * truth[:, ::3] + 2 + 0.5 * rng.normal(size=(days, 8))

given, long = truth.copy(), np.zeros((days, 24), bool)
for day in range(days):
    if day % 3 == 0:
        start = rng.integers(4, 12)
        long[day, start : start + 10] = True
    given[day, rng.integers(1, 23)] = np.nan
short = np.isnan(given) & ~long
given[long] = np.nan

# %% [markdown]
# A row: the 24 hours of the sensor with gaps, and what the other one measured every third hour.

# %%
table = pd.DataFrame(given, columns=[f"{h}:00" for h in hour]).join(
    pd.DataFrame(second, columns=[f"other {h}:00" for h in hour[::3]])
)
rec = Recoverer(random_state=0, verbose=0).fit(table)
draws = rec.sample(table, n_draws=20)
filled = draws.mean().to_numpy()[:, :24]
line = pd.Series(given.ravel()).interpolate(limit_direction="both").to_numpy().reshape(days, 24)

# %%
low, high = (each.to_numpy()[:, :24] for each in draws.interval(0.9))
figure, panels = plt.subplots(1, 3, figsize=(9, 3), sharey=False, layout="constrained")
for panel, day in zip(panels, (3, 60, 120), strict=True):
    panel.fill_between(hour, low[day], high[day], color="#cfe3ec", label="90 % interval")
    panel.plot(hour, filled[day], color="#0072B2", label="unfade")
    panel.plot(hour, line[day], color="#E69F00", lw=1, ls="--", label="straight line")
    panel.plot(hour, truth[day], "x", ms=3, color="#D55E00", label="removed")
    panel.plot(hour, given[day], ".", color="#444", label="measured")
    panel.set_title(f"day {day}", fontsize=9)
    panel.set_xlabel("hour")
panels[0].legend(fontsize=7)
plt.show()

# %% [markdown]
# Mean absolute error, by the length of the gap:

# %%
pd.DataFrame(
    {
        name: {"unfade": np.abs(filled - truth)[cells].mean(), "straight line": np.abs(line - truth)[cells].mean()}
        for name, cells in (("gaps of one hour", short), ("gaps of ten hours", long))
    }
).round(2)
