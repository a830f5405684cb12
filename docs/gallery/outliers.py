# %% [markdown]
# # Find wrong entries
#
# A decimal point in the wrong place, two columns swapped: such cells are observed, but the rest of their row says
# otherwise. List them, likely errors first.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_wine

from unfade import Recoverer

table = load_wine(as_frame=True).data.iloc[:, :8].round(2)
rng = np.random.default_rng(5)
table = table.mask(rng.random(table.shape) < 0.1)
wrong = {(20, "ash"): 23.6, (75, "alcohol"): 1.33, (110, "flavanoids"): 24.0, (150, "magnesium"): 10.1}
for (row, column), value in wrong.items():
    table.loc[row, column] = value

# %%
rec = Recoverer(random_state=0, verbose=0).fit(table)
found = rec.outliers(table, most=8)
pd.DataFrame([vars(each) for each in found])[["row", "column", "value", "expected", "distance"]].round(2)

# %% [markdown]
# The four wrong entries, among all observed cells of their columns:

# %%
figure, panels = plt.subplots(1, 4, figsize=(9, 2.8), layout="constrained")
listed = {(each.row, each.column) for each in found}
for panel, ((row, column), value) in zip(panels, wrong.items(), strict=True):
    panel.hist(table[column].dropna(), 30, color="#9aa5ab")
    panel.axvline(value, color="#D55E00", lw=2)
    panel.set_title(f"{column}: {'listed' if (row, column) in listed else 'not listed'}", fontsize=9)
    panel.set_yticks([])
plt.show()
