"""The seed's other chained slots: another affinity, another reader. zoo.md DLM33-35."""

from lmzoo.catalogue import preset

for name, dlm, fields, summary in (
    (
        "chain_slot_ngram_emission", "DLM33", {"affinity": "emission"},
        "Chained slots drawn to words their component would emit.",
    ),
    (
        "chain_slot_lstm_emission", "DLM34", {"affinity": "emission", "reader": "lstm"},
        "Chained slots drawn to words their component would emit, read by an LSTM.",
    ),
    ("chain_slot_lstm", "DLM35", {"reader": "lstm"}, "Chained slots read by an LSTM."),
):  # fmt: skip
    preset(
        name, model="chain_slot_ngram", fields=fields, aliases=(dlm,), family="slot",
        score="exact", document="S0", source="S0", summary=summary,
    )  # fmt: skip
