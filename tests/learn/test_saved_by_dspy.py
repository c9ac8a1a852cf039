"""What the installed DSPy saves, we load."""

import pytest

from redraft import ChainOfThought, Module, Predict, Refine, checks

pytestmark = pytest.mark.doors


class Ours(Module):
    def __init__(self):
        self.facts = Predict("product -> facts")
        self.write = Refine(ChainOfThought("facts -> ad: list[str]"), N=2, checks=[checks.words(3)])


def test_a_program_of_dspys_with_demos(tmp_path):
    import dspy

    class Theirs(dspy.Module):
        def __init__(self):
            super().__init__()
            self.facts = dspy.Predict("product -> facts")
            inner = dspy.ChainOfThought(dspy.Signature("facts -> ad: list[str]", "Write an ad."))
            self.write = dspy.Refine(inner, N=2, reward_fn=lambda args, pred: 1.0, threshold=1.0)

    program = Theirs()
    program.facts.demos = [dspy.Example(product="soap", facts="it cleans", augmented=True)]
    program.write.module.predict.demos = [dspy.Example(facts="it cleans", reasoning="short", ad=["Soap.", "Clean."])]
    program.save(tmp_path / "theirs.json")
    ours = Ours().load(tmp_path / "theirs.json")
    assert [demo.to_dict() for demo in ours.facts.demos] == [{"product": "soap", "facts": "it cleans"}]
    assert [demo.ad for demo in ours.write.module.demos] == [["Soap.", "Clean."]]
    assert (ours.facts.signature.instructions, ours.write.module.signature.instructions) == ("", "Write an ad.")


def test_predictors_of_dspys_alone_and_examples_of_dspys_as_demos(tmp_path):
    import dspy

    theirs = dspy.ChainOfThought("question -> answer")
    theirs.predict.demos = [dspy.Example(question="1 + 1?", reasoning="add", answer="2")]
    theirs.save(tmp_path / "cot.json")
    assert [demo.answer for demo in ChainOfThought("question -> answer").load(tmp_path / "cot.json").demos] == ["2"]
    dspy.Predict("question -> answer").save(tmp_path / "plain.json")
    predict = Predict("question -> answer").load(tmp_path / "plain.json")
    assert predict.demos == ()
    predict.demos = [dspy.Example(question="1 + 1?", answer="2").with_inputs("question")]
    assert predict.demos[0].to_dict() == {"question": "1 + 1?", "answer": "2"}
