import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from lmzoo.base.seeds import derive_seed
from lmzoo.functional.seeding import initialise
from tests.tiny import quick, tiny


def test_variants_share_the_initial_weights_of_shared_modules() -> None:
    gru, mgu = tiny("recurrent_lm", cell="gru"), tiny("recurrent_lm", cell="mgu", starts=2)
    gru_weights, mgu_weights = gru.state_dict(), mgu.state_dict()
    shared = [key for key in gru_weights if key.split(".")[0] in ("embedding", "emission")]
    assert len(shared) == 5
    assert all(gru_weights[key].equal(mgu_weights[key]) for key in shared)


def test_each_module_draws_from_its_own_stream() -> None:
    both = nn.ModuleDict({"one": nn.Linear(3, 3), "two": nn.Linear(3, 3)})
    initialise(both, 0)
    assert not both["one"].weight.equal(both["two"].weight)
    alone = nn.ModuleDict({"two": nn.Linear(3, 3)})
    initialise(alone, 0)
    assert alone["two"].weight.equal(both["two"].weight)


def test_initialising_leaves_the_global_generator_unchanged() -> None:
    model = tiny("DLM26")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        expected = torch.rand(3)
        torch.manual_seed(5)
        initialise(model, 7)
        assert torch.rand(3).equal(expected)


@quick
@given(st.lists(st.tuples(st.integers(0, 9), st.text(max_size=3)), min_size=2, unique=True))
def test_different_names_give_different_seeds(named: list[tuple[int, str]]) -> None:
    seeds = [derive_seed(seed, name) for seed, name in named]
    assert len(set(seeds)) == len(named)
    assert all(0 <= seed < 2**63 for seed in seeds)
