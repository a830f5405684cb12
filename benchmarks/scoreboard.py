"""All boards by one command: `python benchmarks/scoreboard.py BOARD [OPTIONS]`; BOARD --help says what each measures."""

import sys
from importlib import import_module

BOARDS = ("tables", "categories", "images", "noise", "toys", "forest_diffusion", "diffputer", "pooling", "slopes")

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in BOARDS:
        sys.exit(f"Expected the name of a board, one of {', '.join(BOARDS)}.")
    import_module(sys.argv[1]).main(sys.argv[2:])
