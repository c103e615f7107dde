"""A behaviour: one named thing that a client does, and the check that it did it right.

A program declares behaviours in order and ends with `run()`. Each prints one line, `passed NAME`,
`failed NAME -- why` or `skipped NAME -- why`; the last line is `end N`. A program that dies has no such
line, which tests/clients/run counts as a failure.
"""

import sys
import traceback

_BEHAVIOURS = []


class Skip(Exception):
    """Raised by a behaviour that cannot be tried here; says why."""


def behaviour(name):
    """Declares a behaviour."""

    def add(check):
        _BEHAVIOURS.append((name, check))
        return check

    return add


def equal(got, wanted, what):
    """Checks that two values are equal."""
    if got != wanted:
        raise AssertionError(f"{what}: {got!r}, not {wanted!r}")


def true(holds, what):
    """Checks that something holds."""
    if not holds:
        raise AssertionError(what)


def raises(kind, call, text=""):
    """Checks that a call raises an exception of that kind, whose text has `text`; gives it."""
    try:
        call()
    except kind as error:
        true(text in str(error), f"the error says {str(error)!r}, without {text!r}")
        return error
    raise AssertionError(f"no {getattr(kind, '__name__', kind)} was raised")


def run():
    """Runs them all; the process's exit code says whether all passed."""
    failed = 0
    for name, check in _BEHAVIOURS:
        try:
            check()
            print(f"passed {name}")
        except Skip as why:
            print(f"skipped {name} -- {why}")
        except BaseException as error:  # noqa: BLE001: whatever it is, it is a failure
            failed += 1
            traceback.print_exc()
            reason = " ".join(f"{type(error).__name__}: {error}".replace(" -- ", " ").split())
            print(f"failed {name} -- {reason[:400]}")
        sys.stdout.flush()
    print(f"end {len(_BEHAVIOURS)}", flush=True)
    sys.exit(1 if failed else 0)
