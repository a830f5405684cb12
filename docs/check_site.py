"""Check the built site: every link leads somewhere, nothing comes from another server, every public name is there.

`python docs/check_site.py build/site`
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from site_hooks import public_names

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}  # what a browser fetches itself
HARMLESS = {"canonical", "alternate", "next", "prev"}  # links in the head that a browser does not fetch


class Page(HTMLParser):
    """Links, loaded files and anchors of a page."""

    def __init__(self, path: Path):
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Record the links, files and anchors of a tag."""
        found = {name: value or "" for name, value in attributes}
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        if tag == "a" and found.get("href"):
            self.links.add(found["href"])
        if (target := found.get(LOADED.get(tag, ""))) and not set(found.get("rel", "").split()) & HARMLESS:
            self.loaded.add(target)


def problems(site: Path) -> list[str]:
    """List what is wrong with a site."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    found = [] if pages else [f"{site} has no pages"]
    for path, page in pages.items():
        name = path.relative_to(site)
        found += [f"{name}: {link} is loaded from another server" for link in page.loaded if urlsplit(link).netloc]
        for link in page.links | page.loaded:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                found.append(f"{name}: {link} leads nowhere")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                found.append(f"{name}: {link} has no such part")
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        found += [f"{style.name} loads from another server"] * any(f"url({quote}http" in text for quote in ("", "'", '"'))
    reference = pages.get(site / "api.html")
    listed = reference.anchors if reference else set()
    return found + [f"api.html: unfade.{name} is missing" for name in public_names() if f"unfade.{name}" not in listed]


def main() -> None:
    """Print what is wrong, and end with 1 if anything is."""
    site = Path(sys.argv[1]).resolve()
    found = problems(site)
    print(
        "\n".join(found)
        or f"{len(list(site.rglob('*.html')))} pages: every link leads somewhere, nothing is loaded from elsewhere"
    )
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
