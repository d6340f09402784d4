"""``python -m qmodel``."""

from qmodel.cli.main import main

if __name__ == "__main__":
    main()
