"""`rubricsvc` and `python -m rubricsvc`: the command line, or how to install it."""

import sys


def main() -> None:
    """Run the command line. The base installation is the SDK and has none."""
    try:
        from rubricsvc.cli.main import main as run
    except ModuleNotFoundError as error:
        print(f"error: the package {error.name!r} is not installed", file=sys.stderr)  # noqa: T201
        print("hint: pip install 'rubricsvc[service]'", file=sys.stderr)  # noqa: T201
        sys.exit(3)
    run()


if __name__ == "__main__":
    main()
