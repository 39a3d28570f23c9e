"""Sentences of the results pages: a verdict or a bound that a page states is that of its record."""

import re
from collections import Counter

import polars as pl
import pytest

from lmzoo.lab.analysis.verdict_lines import verdict_text
from tests.lab.analysis.recorded import PAGES, folder_of, frame_of

CLAIMS = [
    ("reference", "differs from the wild\ntype by less than 0.02", "reference-words",
     {"cut gate_bias (2)": "negligible", "cut input_to_gate (0)": "negligible",
      "cut candidate_bias (5)": "negligible", "cut state_to_gate (1)": "undecided"}),
    ("reference", "the carry costs 0.009 nats, the MGRU\n0.008", "reference-proteins",
     {"cut carry (6)": (0.007, 0.011), "MGRU": (0.006, 0.010)}),
    ("modern_cells", "undecided (−0.005 to +0.057 nats)", "modern_gla-text",
     {"cut vector": (-0.005, 0.057)}),
    ("modern_cells", "RetNet is not shown to need its norm", "modern_retnet-text",
     {"cut norm": "undecided"}),
    ("modern_cells", "convolution and its decay α; it needs neither β nor keys of unit length",
     "modern_gated_deltanet-text",
     {"cut convolution": "worse", "cut alpha": "worse", "cut beta": "negligible",
      "cut unit": "negligible"}),
    ("modern_cells", "RetNet needs its rotation and its gate", "modern_retnet-text",
     {"cut rotation": "worse", "cut gate": "worse (size open)", "cut decay": "undecided",
      "cut scales": "undecided"}),
    ("modern_cells", "Of HGRN2 nothing is decided", "modern_hgrn2-text",
     {"cut lower_bound": "undecided", "cut input_to_forget": "undecided"}),
    ("modern_cells_more", "(0.01 to 0.06 nats). The carry is worth 0.71 to 0.74. The exponential, "
     "the skip and the normaliser are undecided", "modern_lru-captions",
     {"cut phase": (-0.057, -0.015), "cut carry": (0.706, 0.743), "cut exponential": "undecided",
      "cut skip": "undecided", "cut normaliser": "undecided"}),
    ("cases", "neither Kimi Delta Attention (−0.04 to 0.04) nor the M²RNN (−0.05 to 0.04) is",
     "delta_rules-captions", {"Kimi Delta Attention": (-0.044, 0.040), "M²RNN": (-0.045, 0.039)}),
    ("cases", "Without its bias or\nits trapezoid Mamba-3 has 0.04 nats more (−0.03 to 0.12)",
     "modern_mamba3-captions",
     {"cut bias": (-0.028, 0.116), "cut trapezoid": (-0.024, 0.111), "cut rotation": "undecided",
      "cut decay": "undecided"}),
    ("cases", "0.02 to 0.08 in GLA, which has none", "canon_gla-captions",
     {"convolution of the block": (-0.082, -0.016), "Canon a": "undecided",
      "Canon b": "undecided", "Canon d": "undecided"}),
    ("cases", "at all four places are worth 0.03 to 0.12 nats in GLA, and one after the cell "
     "(place c) 0.02 to 0.08", "canon_gla-captions",
     {"Canon a,b,c,d": (-0.117, -0.032), "Canon c": (-0.085, -0.018)}),
    ("modern_cells_more", "The carry is worth 0.07 to 0.10 nats and the write gate 0.03 to 0.06",
     "modern_min_gru-captions",
     {"cut carry": (0.0735, 0.1008), "cut write_gate": (0.0283, 0.0555),
      "cut input_to_candidate": "negligible", "cut input_to_gate": "negligible"}),
    ("modern_cells_more", "The carry is worth 0.10 to 0.14 nats; the input gate is free",
     "modern_rg_lru-captions",
     {"cut carry": (0.096, 0.135), "cut input_gate": "negligible",
      "cut recurrence_gate": "undecided", "cut root": "undecided",
      "cut input_to_recurrence": "undecided"}),
    ("modern_cells_more", "the RWKV-7 without its gate (0.01 to 0.07)", "modern_rwkv7-captions",
     {"cut gate": (-0.069, -0.013), "cut bonus": "undecided", "cut decay": "undecided",
      "cut token_shift": "undecided", "cut vector_decay": "undecided", "cut removal": "undecided",
      "cut vector_rate": "undecided"}),
    ("modern_cells", "the lower bound of the decay is worth 0.02 to 0.09 nats and the input's path "
     "to the decay 0.05 to 0.10", "modern_hgrn2-captions",
     {"cut lower_bound": (0.023, 0.094), "cut input_to_forget": (0.050, 0.099),
      "cut query": "undecided", "cut tied_write": "worse (size open)"}),
    ("modern_cells", "RetNet is better without its norm, by an amount that is open",
     "modern_retnet-captions",
     {"cut norm": "better (size open)", "cut gate": "undecided", "cut decay": "undecided",
      "cut scales": "undecided", "cut rotation": "undecided"}),
    ("modern_cells_more", "The exponential together with the normaliser is undecided",
     "modern_slstm-captions",
     {"cut forget_gate": "undecided", "cut output_gate": "negligible",
      "cut exponential": "negligible", "cut exponential, normaliser": "undecided"}),
    ("cases", "sLSTM is free within 0.02 nats", "modern_slstm-captions",
     {"cut exponential": "negligible"}),
    ("cases", "that of the mLSTM is undecided (−0.03 to 0.06)", "modern_mlstm-captions",
     {"cut exponential": (-0.030, 0.058)}),
    ("cases", "is worth 0.02 to 0.05 nats in Mamba", "modern_mamba-captions",
     {"cut convolution": (0.023, 0.051)}),
    ("cases", "in Gated DeltaNet it is undecided (0.00 to 0.09)", "modern_gated_deltanet-captions",
     {"cut convolution": (-0.003, 0.090)}),
    ("cases", "the output activation is undecided; JANET is better", "lstm_variants-captions",
     {"JANET": "better", "no output activation": "undecided",
      "no forget gate": "worse (size open)"}),
    ("cases", "Without the leak it costs 0.00 to 0.08 nats", "s0_no_leak-captions",
     {"cut state_to_candidate (4)": (0.005, 0.084)}),
    ("cases", "the cut is undecided (−0.09 to 0.01)", "tuned_no_leak-captions",
     {"cut state_to_candidate (4)": (-0.092, 0.013)}),
    ("modern_cells_more", "The convolution is worth 0.02 to 0.05 nats. Without the gate Mamba is "
     "better by 0.01 to 0.04. The skip is free", "modern_mamba-captions",
     {"cut convolution": (0.023, 0.051), "cut gate": (-0.037, -0.009), "cut skip": "negligible",
      "cut b, c": "undecided", "cut delta, b": "negligible", "cut delta, c": "negligible",
      "cut delta, b, c": "negligible"}),
    ("nanogpt", "are 0.3 nats lower in the same 2,000 steps", "nanogpt-shakespeare_char",
     {"minGRU": (-0.324, -0.269), "minLSTM": (-0.313, -0.273)}),
    ("modern_cells_more", "the LRU without its phase (0.01 to 0.06 nats)", "modern_lru-captions",
     {"cut phase": (-0.057, -0.015)}),
    ("scaling", "The rows of the tanh RNN and of the decoder at width 128", "scaling-captions",
     {"rnn_lm E=128": (-0.074, -0.009), "transformer_decoder E=128": (-0.377, 0.176)}),
    ("latents", "is undecided (−0.01 to\n0.19 nats)", "mixtures-captions",
     {"latent CRF, two tokens": (-0.189, 0.012)}),
    ("lstm_variants", "better by 0.04 to 0.10 nats, with 0.74 times", "lstm_variants-captions",
     {"JANET": (-0.104, -0.045)}),
    ("lstm_variants", "without it the loss is 0.02 to 0.07 nats higher", "lstm_variants-captions",
     {"no forget gate": (0.016, 0.074)}),
    ("lstm_variants", "worse by 0.17 to 0.23 nats, with 1.6 times", "lstm_variants-captions",
     {"full gate recurrence": (0.167, 0.233)}),
    ("lstm_variants", "between 0.05 better and 0.01 worse", "lstm_variants-captions",
     {"no output activation": (-0.050, 0.015), "no peepholes": "undecided",
      "coupled gates": "undecided"}),
]  # fmt: skip


@pytest.mark.parametrize(("page", "sentence", "record", "rows"), CLAIMS)
def test_a_sentence_is_that_of_its_record(page, sentence, record, rows):
    assert sentence in (PAGES / f"{page}.md").read_text(encoding="utf-8")
    frame = frame_of(record)
    known = {row["label"]: row for row in frame.to_dicts()}
    for label, claim in rows.items():
        row = known[label]
        if claim == "undecided":
            assert row["verdict"] == claim
        elif isinstance(claim, str):
            assert verdict_text(row) == claim
        else:
            ends = (row["difference_low"], row["difference_high"])
            assert ends == pytest.approx(claim, abs=0.0016)


def test_the_five_gram_beats_every_modern_cell_on_shakespeare():
    text = (PAGES / "modern_cells.md").read_text(encoding="utf-8")
    assert "better than every cell of this page on Shakespeare, by 0.38 nats or more" in text
    for cell in ("gla", "gated_deltanet", "hgrn2", "retnet"):
        frame = frame_of(f"modern_{cell}-text")
        assert set(frame["kn5"].drop_nulls()) == {"loses"}
        assert frame["kn5_difference"].drop_nulls().min() > 0.375


def test_the_five_gram_on_words_has_the_loss_of_the_page_of_guarantees():
    text = (PAGES.parent / "guarantees/validity.md").read_text(encoding="utf-8")
    assert "the Kneser-Ney 5-gram has 3.822 nats per token" in text
    frame = frame_of("reference-words")
    losses = dict(zip(frame["label"], frame["loss"], strict=True))
    assert losses["Kneser-Ney 5-gram"] == pytest.approx(3.822, abs=5e-4)


def test_what_is_published_of_a_cut_agrees_where_our_verdict_has_a_sign():
    signs = [
        row["sign"]
        for heading in ("Gated linear attention", "Gated DeltaNet", "HGRN2")
        for row in table(
            (PAGES / "modern_cells.md").read_text(encoding="utf-8").split(f"### {heading}\n")[1],
            "cut",
        )
    ]
    assert (len(signs), signs.count("agrees"), signs.count("undecided")) == (9, 5, 4)


def test_nothing_is_decided():
    text = (PAGES / "modern_cells_more.md").read_text(encoding="utf-8")
    assert "nothing is decided about the mLSTM" in text
    frame = frame_of("modern_mlstm-captions")
    assert set(frame["verdict"].drop_nulls()) == {"undecided"}


@pytest.mark.parametrize(
    ("name", "heading"),
    [
        ("state_tracking-parity", "cell"),
        ("state_tracking-s3", "cell on S3"),
        ("state_tracking-s5", "cell on S5"),
        ("state_tracking-counting", "cell on sums"),
    ],
)
def test_the_seeds_that_track_a_state_are_those_of_the_records(name, heading):
    study, labels = folder_of(name), frame_of(name).select("point", "label")
    runs = study.runs.filter(pl.col("stage") == "confirm").select("run", "point").collect()
    tests = study.events.filter(pl.col("event") == "test").select("run", "accuracy").collect()
    right = runs.join(tests, on="run").join(labels, on="point").group_by("label")
    found = {
        label: f"{(accuracy >= 0.95).sum()} of {len(accuracy)}, "
        f"{100 * accuracy.min():.1f}, {100 * accuracy.max():.1f} %"
        for (label,), accuracy in ((key, group["accuracy"]) for key, group in right)
    }
    text = (PAGES / "state_tracking.md").read_text(encoding="utf-8")
    assert {
        cell: f"{seeds}, {ends}" for cell, seeds, ends in map(dict.values, table(text, heading))
    } == found


def test_nanogpt_reaches_the_loss_of_the_readme_and_loses_to_the_five_gram():
    text = (PAGES / "nanogpt.md").read_text(encoding="utf-8")
    assert "1.902 nats per character, where nanoGPT's README states 1.88" in text
    assert "not shown to differ from a Kneser-Ney 5-gram" in text
    assert "has 1.517 nats per character, less than every\nmodel of this page" in text
    frame = frame_of("nanogpt-shakespeare_char")
    rows = {row["label"]: row for row in frame.to_dicts()}
    assert rows["GPT"]["loss"] == pytest.approx(1.902, abs=5e-4)
    assert rows["GPT"]["low"] < 1.88
    assert frame["loss"].min() > 1.517
    assert (rows["GPT"]["kn5"], rows["minGRU"]["kn5"], rows["minLSTM"]["kn5"]) == (
        "loses", "undecided", "undecided",
    )  # fmt: skip
    assert not any(rows[label]["verdict"] for label in ("minGRU", "minLSTM"))


def test_all_six_cells_are_better_than_gpt_at_equal_parameters():
    text = (PAGES / "nanogpt.md").read_text(encoding="utf-8")
    frame = frame_of("nanogpt_cells-shakespeare_char")
    cells = frame.filter(pl.col("verdict") == "better")
    names = cells["label"].to_list()
    assert f"{', '.join(names[:-1])} and {names[-1]} gain 0.12 to 0.21 nats" in text
    assert "all six recurrent cells are better\nthan GPT" in text
    assert len(names) == 6
    ends = cells["difference_low"].min(), cells["difference_high"].max()
    assert ends == pytest.approx((-0.2149, -0.1240), abs=1e-3)
    assert max(cells["rank_low"].to_list()[:5]) == 2
    assert frame["loss"][0] == pytest.approx(1.517, abs=5e-4)
    sizes = cells["parameters"]
    assert f"{sizes.min():,} to {sizes.max():,} parameters" in text


def test_four_products_track_the_permutations_of_five_things_and_three_do_not():
    page, cases = (
        (PAGES / f"{name}.md").read_text(encoding="utf-8") for name in ("state_tracking", "cases")
    )
    rows = {row["cell on S5"]: row for row in map(dict, table(page, "cell on S5"))}
    fewer = [rows[f"DeltaProduct, n = {n}"] for n in (1, 2, 3)]
    best = max((row["worst and best seed"].split()[1] for row in fewer), key=float)
    assert {list(row.values())[1] for row in fewer} == {"0 of 5"}
    assert f"with one, two or three products with none, and {best} % at best" in page
    assert f"n = 1, 2 and 3 with none and {best} % at best" in cases
    assert list(rows["DeltaProduct, n = 4"].values())[1] == "3 of 5"
    assert "products answers 95 % of the strings with three\nseeds of five" in page
    assert list(rows["LSTM"].values())[1] == "1 of 5"


NUMBERS = {2: "two seeds", 3: "three seeds"}
ANSWERED = dict(
    re.findall(r"^\| \[.*?\]\((\w+)\.md\) \| (.*?) \|$", (PAGES / "index.md").read_text(), re.M)
)


@pytest.mark.parametrize("page", ANSWERED)
def test_a_page_begins_with_its_question_and_how_sure_its_studies_are(page):
    _, question, *_ = (text := (PAGES / f"{page}.md").read_text(encoding="utf-8")).split("\n\n")
    assert question == ANSWERED[page]
    assert question.endswith("?")
    ranked = set(re.findall(r"<!-- table: (?:rank|answer) records/([\w-]+)", text))
    first = re.search(r"<!-- table: caveats (.*?) -->", text)
    known = set(re.findall(r"records/([\w-]+)", first[1])) if first else set()
    assert ranked <= known
    assert not known or first.start() < re.search(r"^(\*\*|## )", text, re.MULTILINE).start()
    for record in known:
        frame = frame_of(record)
        seeds = frame.filter(pl.col("parameters") != 0)["runs"].min()
        assert NUMBERS.get(seeds, "") in text


def test_no_verdict_is_shown_to_change_with_the_width():
    page = (PAGES / "reference.md").read_text(encoding="utf-8").split("{#width}")[1]
    assert "it is unknown for every path of the minimal gated unit" in page
    assert "each of the ten effects\nat width 128 lies within the interval at width 64" in page
    rows = table(page, "path")
    assert len(rows) == 10
    for row in rows:
        (small, half), (large, _) = (
            map(float, row[heading].replace("−", "-").split(" ±"))
            for heading in ("width 64, 2 seeds", "width 128, 5 seeds")
        )
        assert abs(large - small) < half
        assert row["the verdict"] == "unknown"


def test_the_verdicts_that_carry_to_another_width_are_counted():
    text = (PAGES / "widths.md").read_text(encoding="utf-8")
    counts = [
        Counter(row["the verdict"] for row in table(part, "path"))
        for part in text.split("\n## ")[1:]
    ]
    assert counts == [
        {"carries": 6, "unknown": 5}, {"carries": 1, "unknown": 8}, {"unknown": 5},
        {"unknown": 7},
    ]  # fmt: skip
    assert "6 of 11 of the minimal gated unit carry and 5 are unknown" in text
    assert "of the LSTM 1 of 9 carries and 8 are unknown" in text
    assert "of Gated DeltaNet all 7 are unknown" in text
    assert "gated linear attention all 5 are unknown" in text
    ends = (
        row["when the width doubles"].replace("−", "-").split(" ±") for row in table(text, "path")
    )
    slopes = [(float(slope), float(half)) for slope, half in ends]
    certain = [round(slope, 2) for slope, half in slopes if abs(slope) > half]
    assert certain == [-0.1, -0.09]
    assert "cost 0.10 and 0.09 nats less when the width doubles" in text


REGIMES = {
    "S0's, 20 epochs, contain the future": "s0_leak", "S0's, 20 epochs, sound": "s0_no_leak",
    "searched rate, contain the future": "tuned_leak", "searched rate, sound": "tuned_no_leak",
}  # fmt: skip


def test_the_table_of_the_regime_of_s0_is_that_of_its_records():
    page = (PAGES / "cases.md").read_text(encoding="utf-8")
    rows = table(page, "recipe")
    assert len(rows) == len(REGIMES)
    for row in rows:
        record = REGIMES[f"{row['recipe']}, {row['inputs']}"] + "-captions"
        frame = frame_of(record)
        losses = {r["label"]: f"{r['loss']:.3f}" for r in frame.to_dicts()}
        cut = "cut state_to_candidate (4)"
        assert (row["wild type"], row["cut 4"]) == (losses["wild type"], losses[cut])
        assert row["difference"] == cell(record, cut)[0]
        known = frame.filter(label=cut).row(0, named=True)
        assert known["runs"] == 10
        assert (known["kn5"] == "loses") == record.startswith("s0")


RECALLED = {
    "recall-mqar": {"attention": 99.9, "attention without convolution": 100.0,
                    "Gated DeltaNet": 99.4, "RetNet": 87.1, "BaseConv of 4 layers": 46.6,
                    "BaseConv": 31.0, "tanh": 3.7},
    "recall-pairs8": {"attention": 99.9, "Gated DeltaNet": 99.6, "RetNet": 85.6, "LSTM": 2.9},
}  # fmt: skip
SENTENCES = (
    "attention recalls 99.9 % of the values, Gated DeltaNet 99 %, RetNet 87 %, and no elementwise "
    "recurrence more than 52 %",
    "the tanh RNN has 3.7 %", "one it recalls 100.0 %",
    "Four layers of BaseConv recall 47 %, two 31 %", "its two seeds differ by 18 points",
    "Gated DeltaNet 99.6 %, RetNet 86 %, the LSTM 3 %",
)  # fmt: skip
ELEMENTWISE = ("LSTM", "GRU", "MGU", "MGRU", "RG-LRU", "minGRU", "tanh")


def test_what_the_page_of_recall_says_is_what_the_models_recall():
    text = (PAGES / "recall.md").read_text(encoding="utf-8")
    assert all(sentence in text for sentence in SENTENCES)
    for record, claims in RECALLED.items():
        frame = frame_of(record)
        rows = {row["label"]: row for row in frame.to_dicts()}
        assert {k: round(100 * rows[k]["accuracy"], 1) for k in claims} == claims
        if record == "recall-mqar":
            assert max(rows[label]["accuracy_high"] for label in ELEMENTWISE) < 0.52
            spread = rows["H3"]["accuracy_high"] - rows["H3"]["accuracy_low"]
            assert round(100 * spread) == 18


def test_what_the_page_of_sizes_says_is_what_its_tables_have():
    page = (PAGES / "scaling.md").read_text(encoding="utf-8")
    assert "at 65,152 parameters it is no longer shown to be above the LSTM" in page
    assert "the exponent of the tanh RNN is 0.026" in page
    assert "the decoder is 2 to 7 % above it at the middle size" in page
    fitted, relative = (
        {row["curve"]: row for row in table(part, "curve")}
        for part in (page, page.split("**loss relative to lstm")[1])
    )
    assert fitted["rnn\\_lm"]["exponent"].startswith("0.026 ")
    ends = {}
    for curve, size in (("rnn\\_lm", "65,152"), ("transformer\\_decoder", "26,210")):
        mean, half = relative[curve][f"at {size}"].removesuffix(" %").replace("−", "-").split(" ±")
        ends[curve] = float(mean) - float(half), float(mean) + float(half)
    assert ends["rnn\\_lm"][0] < 0 < ends["rnn\\_lm"][1]
    assert [round(x) for x in ends["transformer\\_decoder"]] == [2, 7]


COLUMNS = {
    "MGRU {4;6}": "MGRU squash=sigmoid (4) + gate=output=centred (6)",
    "MGRU": "MGRU", "tanh RNN": "tanh", "GRU": "GRU", "LSTM": "LSTM",
}  # fmt: skip
TEXTS = {
    "Multi30k, words": "words", "Multi30k, characters": "characters",
    "Shakespeare, characters": "shakespeare", "Proteins": "proteins",
}  # fmt: skip


def table(page: str, first: str) -> list[dict[str, str]]:
    """The rows of the table whose first heading is this one."""
    lines = page[page.index(f"| {first} |") :].split("\n\n")[0].splitlines()
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(header, row, strict=True)) for row in rows]


def cell(record: str, label: str) -> tuple[str, str]:
    """Difference and verdict as the page writes them."""
    frame = frame_of(record)
    row = next(row for row in frame.to_dicts() if row["label"] == label)
    half = (row["difference_high"] - row["difference_low"]) / 2
    return f"{row['difference']:+.3f} ±{half:.3f}".replace("-", "−"), verdict_text(row)


def test_the_tables_of_claims_are_those_of_the_records():
    page = (PAGES / "claims.md").read_text(encoding="utf-8")
    for row in table(page, "data"):
        for heading, label in COLUMNS.items():
            assert row[heading] == cell(f"reference-{TEXTS[row['data']]}", label)[0]
    cuts = table(page, "cut")
    assert len(cuts) == 5
    for row in cuts:
        number, name = row["cut"].replace("`", "").split()
        got = cell("reference-words", f"cut {name} ({number})")
        assert (row["words, S0's size"], row["verdict"]) == got


def test_two_seeds_show_that_two_mutants_beat_the_five_gram():
    text = (PAGES / "factorial.md").read_text(encoding="utf-8")
    assert "The wild type and two mutants beat the Kneser-Ney 5-gram" in text
    assert "38 are shown to lose" in text
    words = frame_of("reference-mutants")["kn5"].to_list()
    assert (words.count("wins"), words.count("loses")) == (3, 38)
