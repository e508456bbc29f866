"""`python -m detent` is the `detent` command."""

from detent.cli import main

if __name__ == "__main__":
    main()
