"""Recurrent sequence-to-sequence models: encoders, decoder start and attention."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from lmzoo import zoo
from lmzoo.cells.base import CELLS, Cell
from lmzoo.contract import LanguageModel, Task
from lmzoo.laws.conditional import law_source_is_read, law_source_padding_is_ignored
from lmzoo.laws.density import law_log_prob_equals_next_log_prob, law_sums_to_one
from lmzoo.laws.support import assert_close, log_prob
from lmzoo.models.seq2seq_recurrent import encode, encode_backward, last_output
from tests.models.equivalence import small
from tests.tiny import CLOSE, FINE, default_source, every_sequence, sources, tiny
from tests.user_errors import raises_user_error

E, S, LENGTHS = 3, 5, torch.tensor([5, 1, 3])
LIBRARY = {"gru": nn.GRU, "lstm": nn.LSTM}
BOTH = ["seq2seq", "seq2seq_dot_attention"]


@torch.no_grad()
def library_and_cells(name: str) -> tuple[nn.GRU | nn.LSTM, Cell, Cell]:
    """Return PyTorch's bidirectional module and two cells with its weights."""
    torch.manual_seed(0)
    library = LIBRARY[name](E, E, batch_first=True, bidirectional=True)
    cells = [CELLS.build(CELLS.parse(name), E, S) for _ in range(2)]
    for cell, end in zip(cells, ("", "_reverse"), strict=True):
        for weight, values in cell.w.named_parameters():
            values.copy_(getattr(library, f"{weight}_l0{end}"))
    return library, *cells


@pytest.mark.parametrize("name", LIBRARY)
@torch.no_grad()
def test_both_directions_equal_the_pytorch_bidirectional_module(name: str) -> None:
    """Compare outputs and final states on sources of different lengths."""
    library, forward, backward = library_and_cells(name)
    x = torch.randn(3, S, E)
    packed = pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False)
    ones = torch.ones(2, 3, E)
    begin = ones if name == "gru" else (ones, ones)
    outputs, final = library(packed, begin)
    outputs, _ = pad_packed_sequence(outputs, batch_first=True)
    final = (final,) if name == "gru" else final
    real = (torch.arange(S) < LENGTHS[:, None])[..., None]
    for d, (h, state) in enumerate(
        (encode(forward, x, LENGTHS), encode_backward(backward, x, LENGTHS))
    ):
        assert_close(h * real, outputs[..., d * E : (d + 1) * E], CLOSE, f"outputs, direction {d}")
        for part, expected in zip(state, final, strict=True):
            assert_close(part, expected[d], CLOSE, f"final state, direction {d}")
    h, state = encode(forward, x, LENGTHS)
    assert_close(last_output(h, LENGTHS), state[0], CLOSE, "the output at the last token")


@pytest.mark.parametrize(
    ("name", "cell"),
    [("seq2seq", "mlstm"), ("seq2seq_dot_attention", "hm_lstm"), ("seq2seq", "lru")],
)
def test_any_cell_with_a_fixed_state_size_obeys_the_laws(name: str, cell: str) -> None:
    model = tiny(name, cell=cell)
    law_sums_to_one(model)
    law_log_prob_equals_next_log_prob(model)
    law_source_is_read(model)
    law_source_padding_is_ignored(model)


@pytest.mark.parametrize("name", BOTH)
def test_cell_with_a_growing_state_is_refused(name: str) -> None:
    with raises_user_error("'mgru'", "grows", "use a cell with a fixed state size"):
        tiny(name, cell={"name": "mgru", "mutations": [4, 11]})


@pytest.mark.parametrize("name", BOTH)
def test_annealed_slope_is_refused(name: str) -> None:
    with raises_user_error("cell.anneal=5", "does not scan", "drop cell.anneal"):
        tiny(name, cell={"name": "hm_lstm", "anneal": 5})
    assert tiny(name, cell={"name": "hm_lstm", "slope": 2.0}).decoder.slope == 2.0


@pytest.mark.parametrize("name", [*BOTH, "transformer_encdec"])
def test_corpus_without_sources_is_refused(name: str) -> None:
    with raises_user_error(name, "no source is given", "copy, reverse"):
        zoo.build(zoo.config(name), Task(vocab=5, length=4))
    model = tiny(name)
    with raises_user_error(name, "no source is given"):
        model.next_log_prob(torch.ones(1, 1, dtype=torch.int64))


def outputs_by_hand(model: LanguageModel, tokens: Tensor, source: Tensor) -> Tensor:
    """Compute one target of the attention model with PyTorch's GRU cells and attention."""
    encoder, decoder = (cell.w.state_dict() for cell in (model.encoder, model.decoder))
    if model.join is None:
        decoder["weight_ih"] = torch.cat([decoder["weight_ih"], model.read.weight], dim=1)
    cells = []
    for weights in (encoder, decoder):
        cells.append(nn.GRUCell(weights["weight_ih"].shape[1], 4).double())
        cells[-1].load_state_dict(weights)
    h, memory, outputs = torch.ones(1, 4, dtype=torch.float64), [], []
    for x in model.source_embedding(source):
        h = cells[0](x[None], h)
        memory.append(h)
    keys = torch.cat(memory)[None]
    for x in model.embedding(tokens):
        attended = nn.functional.scaled_dot_product_attention(h[None], keys, keys, scale=1.0)[0]
        both = torch.cat([x[None], attended], dim=-1)
        h = cells[1](both if model.join is None else both @ model.join.weight.T, h)
        outputs.append(h)
    return torch.cat(outputs)


@pytest.mark.parametrize("folded", [True, False])
@torch.no_grad()
def test_attention_model_equals_a_manual_computation(*, folded: bool) -> None:
    model = small("seq2seq_dot_attention", folded=folded).double().eval()
    tokens, lengths = every_sequence(model.task)
    source, n = sources(model.task, 4)
    for i, (x, m) in enumerate(zip(source, n.tolist(), strict=True)):
        y = outputs_by_hand(model, tokens[i, :-1], x[:m])
        dense = torch.log_softmax(y @ model.embedding.weight.T, dim=-1)
        expected = dense.gather(1, tokens[i, 1:, None])[:, 0]
        actual = log_prob(model, tokens[i : i + 1], lengths[:1], x[None], n[i : i + 1])
        assert_close(actual[0, 1:], expected, FINE, f"scores given {m} source tokens")
    model = tiny("seq2seq_dot_attention", folded=folded)
    law_sums_to_one(model)
    law_log_prob_equals_next_log_prob(model)


@torch.no_grad()
def test_bidirectional_encoder_reads_later_source_tokens() -> None:
    """With a forward encoder only, h^enc_i depends on the source tokens up to i."""
    source, n = sources(small("seq2seq").task, 1)
    changed = source.clone()
    changed[:, -1] = (source[:, -1] + 1) % 3
    for bidirectional in (False, True):
        model = small("seq2seq_dot_attention", bidirectional=bidirectional).eval()
        moved = (model.start(source, n).source - model.start(changed, n).source).abs().amax((0, 2))
        assert (moved[:-1] > 1e-4).all() == bidirectional
        assert moved[-1] > 1e-4
    assert default_source(model, 2)[0].shape == (2, 3)


@pytest.mark.parametrize("cell", ["mgu", {"name": "gru", "reset": "input"}])
def test_a_cell_without_one_linear_map_of_its_inputs_needs_folded_ones(cell: object) -> None:
    with raises_user_error("folded=False", "choose rnn, lstm or gru"):
        tiny("seq2seq_dot_attention", cell=cell, folded=False)
