"""The tree in the docstring of errors.py is the tree of its classes."""

import inspect
import re

from redraft import errors

BRANCH = re.compile(r"^(?P<indent>(?:[|` ] {2}|[|`]- )*)(?P<name>[A-Z]\w+)")
STEP = len("|- ")


def drawn():
    """(class, parent) pairs as the docstring draws them, in its order."""
    text = inspect.cleandoc(errors.__doc__)
    tree = re.search(r"^ *RedraftError\n(?: *[|`].*\n)+", text, re.MULTILINE)[0]
    path, pairs = [], []
    for line in inspect.cleandoc(tree).splitlines():
        branch = BRANCH.match(line)
        depth = len(branch["indent"]) // STEP
        path[depth:] = [branch["name"]]
        pairs.append((branch["name"], path[depth - 1] if depth else "Exception"))
    return pairs


def classes():
    own = [value for value in vars(errors).values() if inspect.isclass(value) and value.__module__ == errors.__name__]
    return [(error.__name__, error.__base__.__name__) for error in own]


def test_every_error_is_drawn_once_below_its_parent():
    assert sorted(drawn()) == sorted(classes())


def test_every_error_is_a_redraft_error():
    assert [name for name, _ in classes() if not issubclass(getattr(errors, name), errors.RedraftError)] == []
