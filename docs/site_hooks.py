"""What the site shows besides the pages in docs/: pages of the repository's root, the gallery, names the API page lacks."""

import ast
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
GALLERY = ROOT / "build" / "gallery"
PAGES = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md", "conduct.md": "CODE_OF_CONDUCT.md"}
SHOWN = (  # pages of the gallery in the order of the site
    "table", "curve", "survey", "regression", "noise", "detection_limits", "images", "time_series", "outliers",
    "sensitivity",
)  # fmt: skip
MEDIA = (".png", ".ipynb", ".md")


def on_config(config: Any) -> Any:
    """List the pages of the gallery in the navigation, and pages of docs/ that it does not name yet."""
    pages = [f"gallery/{name}.md" for name in SHOWN]
    for section in config.nav:
        if section.get("Gallery") == "gallery/index.md":
            section["Gallery"] = ["gallery/index.md", *pages]
        if "Explanation" in section:
            section["Explanation"] = [*section["Explanation"], *unlisted(str(config.nav))]
    return config


def unlisted(navigation: str) -> list[str]:
    """List pages of docs/ that the navigation does not name."""
    return [page.name for page in sorted((ROOT / "docs").glob("*.md")) if f"'{page.name}'" not in navigation]


def on_files(files: Any, config: Any) -> Any:
    """Add pages of the repository's root and of the gallery."""
    from mkdocs.exceptions import Abort
    from mkdocs.structure.files import File

    if not (GALLERY / "index.md").exists():
        raise Abort("The gallery has not been run. Run `make gallery` first.")
    for page, source in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    for path in sorted(GALLERY.iterdir()):
        if path.suffix in MEDIA:
            files.append(File.generated(config, f"gallery/{path.name}", content=path.read_bytes()))
    return files


def on_page_markdown(text: str, page: Any, config: Any, files: Any) -> str:
    """Complete the API page, and turn links to files outside of docs/ into links of the site or the repository."""
    source = page.file.src_uri
    if source == "api.md":
        text += more_names(text)
    depth = source.count("/")
    return outside_links(text, source in PAGES, depth, f"{config.extra['repository']}/blob/main/")


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Name the theme's search for screen readers."""
    search = 'data-md-component="search" role="dialog"'
    return output.replace(search, f'{search} aria-label="Search"')


def outside_links(text: str, in_root: bool, depth: int, repository: str) -> str:
    """Rewrite targets of links: pages of the root are pages of the site, other files those of the repository."""
    here = {source: page for page, source in PAGES.items()} | {"README.md": "index.md"}
    up = "../" * depth

    def rewritten(match: re.Match[str]) -> str:
        target, _, anchor = match[1].partition("#")
        if in_root:
            path = target
        elif target.startswith("../" * (depth + 1)):
            path = target.removeprefix("../" * (depth + 1))
        else:
            return match[0]
        if path.startswith(("http", "mailto:")) or not path:
            return match[0]
        inside = here.get(path) or (
            path.removeprefix("docs/") if path.startswith("docs/") and path.endswith(".md") else None
        )
        anchor = f"#{anchor}" if anchor else ""
        return f"]({up}{inside}{anchor})" if inside else f"]({repository}{path}{anchor})"

    return re.sub(r"\]\(([^)\s]+)\)", rewritten, text)


def public_names() -> list[str]:
    """List `unfade.__all__`, read from the source without importing it."""
    for node in ast.parse((ROOT / "src" / "unfade" / "__init__.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return list(ast.literal_eval(node.value))
    raise LookupError("unfade/__init__.py has no list __all__")


def more_names(text: str) -> str:
    """Write a section with the public names that the API page does not list."""
    listed = set(re.findall(r"^::: unfade\.(\w+)$", text, re.MULTILINE))
    left = [name for name in public_names() if name not in listed]
    return "\n\n## More\n\n" + "\n\n".join(f"::: unfade.{name}" for name in left) + "\n" if left else ""
