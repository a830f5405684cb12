"""Run the Python of the README: `readme_block.py [README.md]`, with what is installed and nothing else."""

import re
import sys
from pathlib import Path


def main(readme: Path) -> None:
    names: dict = {}
    exec(re.search(r"```python\n(.*?)```", readme.read_text(encoding="utf-8"), re.DOTALL)[1], names)
    import unfade

    print(f"unfade {unfade.__version__} from {Path(unfade.__file__).parent}: {names['draws']}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "README.md")
