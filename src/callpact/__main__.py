"""`callpact` and `python -m callpact`: the command line, started without looking for garbage.

Nearly all that the start makes stays: it is not looked at while it is made, and never again.
"""

import gc


def main() -> None:
    """Run the command line."""
    gc.disable()
    try:
        from callpact.cli.main import main as run
    finally:
        gc.freeze()
        gc.enable()
    run()


if __name__ == "__main__":
    main()
