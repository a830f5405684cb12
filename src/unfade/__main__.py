"""`python -m unfade`: the command line."""

from unfade.cli import main

if __name__ == "__main__":
    main()
