"""`callpact` and `python -m callpact`: the command line, started with the collector off.

Nearly every object of the start lives on, so it is frozen and never examined again.
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
