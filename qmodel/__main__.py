"""``python -m qmodel`` is the command line."""

from qmodel.cli.main import main

if __name__ == "__main__":
    main()
