"""The command `scommer`, also as `python -m scommer`."""

import sys


def main() -> None:
    """Load the command line and run a command."""
    try:
        from scommer import cli
    except KeyboardInterrupt:  # loading takes a moment
        print("scommer: stopped", file=sys.stderr)
        sys.exit(130)
    cli.main()


if __name__ == "__main__":
    main()
