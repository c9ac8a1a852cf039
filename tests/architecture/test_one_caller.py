"""Only Run calls an LM (docs/design.md, section 4): budget, journal, retries and deadline have one owner."""

import ast

WRAPPERS: dict[str, str] = {
    # Module -> why its LM hands a request on to an inner LM. Only lm/ and testing/ may stand here.
    "redraft.lm.cut": "a reply that is watched while it is written, and ended where it is told to",
    "redraft.lm.provider_batch": "what failed in a job goes online where that is asked",
    "redraft.testing.contract": "the contract calls the LM that it examines",
    "redraft.testing.lms": "a double that adds faults to an inner LM",
}


def uses_generate(module):
    """Lines that take `.generate` of something, called at once or not."""
    taken = [node for node in ast.walk(module.tree) if isinstance(node, ast.Attribute) and node.attr == "generate"]
    return sorted(f"{module.name}:{node.lineno}" for node in taken)


def test_only_run_calls_an_lm(modules):
    exempt = {"redraft.run", *WRAPPERS}
    assert [use for module in modules if module.name not in exempt for use in uses_generate(module)] == []


def test_wrappers_are_lms_themselves(modules):
    assert {name for name in WRAPPERS if not name.startswith(("redraft.lm", "redraft.testing"))} == set()
    delegating = {module.name for module in modules if uses_generate(module)}
    assert set(WRAPPERS) - delegating == set(), "not needed any more"


def test_the_rule_catches_a_call_and_a_reference(module):
    source = """
        async def generate(self, request): ...
        reply = await lm.generate(request)
        later = lm.generate
    """
    assert uses_generate(module("redraft.x", source)) == ["redraft.x:3", "redraft.x:4"]
