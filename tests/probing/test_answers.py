import pytest
import torch
from torch import nn

from twinlens.probing.answers import PLAIN, answering_logits, find_logits, score_of

ROWS = torch.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize(
    ("answer", "place"),
    [
        ({"loss": torch.tensor(0.5), "scores": ROWS, "sizes": 3}, "['scores']"),
        ({"features": ROWS + 1, "logits": ROWS}, "['logits']"),
        ((ROWS, ROWS + 1), "[0]"),
    ],
)
def test_logits_among_other_things(answer, place):
    found, where = find_logits(answer)
    assert found is ROWS
    assert where == place


@pytest.mark.parametrize("answer", [{"one": ROWS, "other": ROWS}, {"loss": torch.tensor(0.5)}, (), [3, ROWS]])
def test_where_logits_cannot_be_told_the_answer_stays_as_it_is(answer):
    assert find_logits(answer) == (answer, PLAIN)


@pytest.mark.parametrize("shape", [(2,), (2, 1)])
def test_scores_of_a_target(shape):
    assert score_of(None, lambda _: torch.ones(shape), 2).shape == (2, 1)


@pytest.mark.parametrize(
    ("score", "what"), [(ROWS[:, :2], r"shape \(2, 2\)"), (ROWS[0], r"shape \(3,\)"), (1.0, "float")]
)
def test_scores_of_another_shape_are_refused(score, what):
    with pytest.raises(ValueError, match=f"`target` must return one score for each of 2 inputs, a tensor; .* {what}"):
        score_of(None, lambda _: score, 2)


def test_a_module_returns_scores_while_it_is_asked():
    model = nn.Linear(3, 4)
    with answering_logits(model, target=lambda answer: answer.sum(dim=1)):
        assert model(ROWS).shape == (2, 1)
    assert model(ROWS).shape == (2, 4)
    single = nn.Linear(3, 1)
    with answering_logits(single, single=True):
        assert torch.equal(single(ROWS).softmax(dim=1)[:, 1] > 0.5, single.forward(ROWS)[:, 0] > 0)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_what_takes_no_hooks_is_left_as_it_is():
    with answering_logits(lambda x: x) as nothing:
        assert nothing is None
    program = torch.jit.trace(nn.Linear(3, 1), ROWS)
    with answering_logits(program, single=True):
        assert program(ROWS).shape == (2, 1)
