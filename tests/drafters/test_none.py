from tests.drafters.helpers import make
from truedraft.core import Drafter, Shape, Verdict
from truedraft.drafters.none import NoDrafter


def test_it_never_bets():
    drafter, sessions = NoDrafter(), [make([1, 2, 3]), make([4])]
    assert isinstance(drafter, Drafter)
    drafts = drafter.propose(sessions, [Shape.chain(5), Shape.tree(2, 2)])
    assert [(draft.tree.tokens, len(draft)) for draft in drafts] == [((3,), 0), ((4,), 0)]
    drafter.observe(sessions, [Verdict((), (1,))] * 2, [])
    drafter.release(sessions[0])
