"""Run the pages of docs/gallery, and write each as Markdown with pictures and as a notebook: `python docs/make_gallery.py`.

A page is a Python file in cells: `# %% [markdown]` begins a cell of text, `# %%` one of code. Its first line of text is
the heading, its first paragraph the summary. Pages that have not changed, nor unfade since, are not run again.
`--notebook PAGE FILE.ipynb` runs one page, and writes its notebook alone.
"""

import argparse
import base64
import hashlib
import html
import os
import re
import resource
import time
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient
from site_hooks import SHOWN

ROOT = Path(__file__).parents[1]
SOURCE, TARGET = ROOT / "docs" / "gallery", ROOT / "build" / "gallery"
LONGEST = 300  # seconds that a cell may take
FIRST = 'import warnings\nwarnings.simplefilter("ignore", DeprecationWarning)'


def cells(text: str) -> list[Any]:
    """Split a page into cells of a notebook."""
    found = []
    for part in re.split(r"^# %%", text, flags=re.MULTILINE)[1:]:
        head, _, body = part.partition("\n")
        if "[markdown]" in head:
            words = re.sub(r"^# ?", "", body.strip(), flags=re.MULTILINE)
            found.append(nbformat.v4.new_markdown_cell(words))
        else:
            found.append(nbformat.v4.new_code_cell(body.strip()))
    for number, cell in enumerate(found):
        cell["id"] = f"cell-{number}"  # not at random: equal runs give equal files
    return found


def run(path: Path) -> Any:
    """Run a page in a kernel of its own."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(FIRST), *cells(path.read_text(encoding="utf-8"))])
    kernel = AsyncKernelManager(kernel_name="python3", transport="ipc")  # no open port
    client = NotebookClient(notebook, kernel, timeout=LONGEST, resources={"metadata": {"path": str(ROOT)}})
    client.owns_km = True  # the kernel ends with it
    client.execute()
    del notebook.cells[0]
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    return notebook


def as_markdown(notebook: Any, name: str) -> str:
    """Write a notebook as a page, with its pictures in files."""
    parts, pictures = [], 0
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            data = output.get("data", {})
            if "image/png" in data:
                pictures += 1
                (TARGET / f"{name}-{pictures}.png").write_bytes(base64.b64decode(data["image/png"]))
                parts.append(f"![Picture {pictures} of this page]({name}-{pictures}.png)")
            elif "text/html" in data:
                parts.append(f'<div class="output" tabindex="0">{without_style(data["text/html"])}</div>')
            elif text := data.get("text/plain") or output.get("text"):
                parts.append(f'<div class="output" tabindex="0"><pre><code>{html.escape(text.rstrip())}</code></pre></div>')
    parts.append(f"[Download this page as a notebook]({name}.ipynb)")
    return "\n\n".join(parts) + "\n"


def without_style(page: str) -> str:
    """Leave the looks of a table to the site."""
    page = re.sub(r"<style.*?</style>", "", page, flags=re.DOTALL)
    return re.sub(r"\n\s*", "", re.sub(r' (class="dataframe"|border="\d+"|style="[^"]*")', "", page))


def summary(path: Path) -> tuple[str, str]:
    """Return the heading of a page and its first paragraph."""
    first = cells(path.read_text(encoding="utf-8"))[0].source.split("\n\n")
    return first[0].removeprefix("# "), " ".join(first[1].split())


def index(paths: list[Path]) -> str:
    """Write the page that leads to all others, each with its first picture."""
    cards = []
    for path in paths:
        heading, words = summary(path)
        words = re.sub(r"[`*]|\[([^]]*)\]\([^)]*\)", r"\1", words)
        picture = f'<img src="{path.stem}-1.png" alt="">' if (TARGET / f"{path.stem}-1.png").exists() else ""
        cards.append(
            f'<a href="{path.stem}.html">{picture}<b>{html.escape(heading)}</b><span>{html.escape(words)}</span></a>'
        )
    return (
        "# Gallery\n\nShort pages on simulated or well-known data, each run when this site is built, in seconds to a "
        f'minute on two cores.\nEach can be downloaded as a notebook.\n\n<div class="gallery">{"".join(cards)}</div>\n'
    )


def stamp(path: Path) -> str:
    """Compute a hash of all that a page's results depend on."""
    found = hashlib.sha256()
    for each in [Path(__file__), path, *sorted((ROOT / "src" / "unfade").rglob("*.py"))]:
        if not {"app", "cli", "paper"} & set(each.parts):
            found.update(each.read_bytes())
    return found.hexdigest()


def cpu_seconds() -> float:
    """Return the CPU seconds of all kernels that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Run the pages that have changed; write the index."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--notebook", nargs=2, metavar=("PAGE", "FILE"))
    if one := options.parse_args().notebook:
        nbformat.write(run(SOURCE / f"{one[0]}.py"), one[1])
        return
    TARGET.mkdir(parents=True, exist_ok=True)
    paths = [SOURCE / f"{name}.py" for name in SHOWN]
    for path in paths:
        mark, now, began, used = TARGET / f"{path.stem}.stamp", stamp(path), time.monotonic(), cpu_seconds()
        if mark.exists() and mark.read_text() == now:
            continue
        notebook = run(path)
        (TARGET / f"{path.stem}.md").write_text(as_markdown(notebook, path.stem), encoding="utf-8")
        nbformat.write(notebook, TARGET / f"{path.stem}.ipynb")
        mark.write_text(now)
        print(f"{path.stem}: {time.monotonic() - began:.0f} s, {cpu_seconds() - used:.0f} s of CPU", flush=True)
    for old in TARGET.iterdir():
        if old.suffix == ".stamp" and old.stem not in {path.stem for path in paths}:
            for each in TARGET.glob(f"{old.stem}[.-]*"):
                each.unlink()
    (TARGET / "index.md").write_text(index(paths), encoding="utf-8")


if __name__ == "__main__":
    main()
