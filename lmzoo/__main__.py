"""`python -m lmzoo` is the same as the command `lmzoo`."""

from lmzoo.cli.main import main

if __name__ == "__main__":
    main()
