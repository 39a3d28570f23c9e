"""The cuts of a model's config, and the weights that a trained model leaves to a cut one.

A cut takes weights away, whole ones or the rows of a gate, and may bring other ones. Which numbers
stay is found by filling the whole and the cut model with numbers that are all different.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from lmzoo import zoo
from lmzoo.base.command_line import nest_settings
from lmzoo.base.errors import UserError
from lmzoo.cells.base import Weights
from lmzoo.cells.cuts import numbered
from lmzoo.contract import MODELS, LanguageModel
from lmzoo.laws.cells import option_sets

CUTS = "cuts"
"""The field of a config that has its cuts."""


@dataclass(frozen=True)
class Variant:
    """A model with fewer parts."""

    label: str
    config: Any

    @property
    def fields(self) -> dict[str, list[str]]:
        """The cuts by the path of their field, as a point of a study sets them."""
        return {
            f"{path}{CUTS}": sorted(map(str, part.cuts))
            for path, part in _parts(self.config).items()
            if part.cuts
        }


def variants(config: Any, *, pairs: bool = False) -> Iterator[Variant | str]:
    """Yield the model with each cut, and with each pair; a text says why one is refused."""
    single = []
    for path, part in _parts(config).items():
        for cut in option_sets(type(part))[CUTS]:
            single.append((path, cut))
    sets = [{own} for own in single]
    if pairs:
        sets += map(set, itertools.combinations(single, 2))
    # The config itself is no cut.
    known = {_key(config)}
    for chosen in sets:
        try:
            changed = _with_cuts(config, chosen)
        except UserError as error:
            names = numbered([cut for _, cut in chosen])
            yield f"{names}: {error}"
            continue
        # A cut that the model has, and two names of one function, change nothing more.
        if _key(changed) not in known:
            known.add(_key(changed))
            yield Variant(_label(changed), changed)


def differs_in_cuts(one: Any, other: Any) -> bool:
    """Return whether two models differ in their cuts only."""
    if _key(one) == _key(other):
        # Cuts that do nothing, or the same, leave one config.
        return False
    uncut = _key(_set_cuts(one, {}))
    return uncut == _key(_set_cuts(other, {}))


def _key(config: Any) -> str:
    return repr(MODELS.dump(config))


def _parts(config: Any, path: str = "") -> dict[str, Any]:
    """Return the parts of a model that have cuts, by the beginning of the path of their fields."""
    found = {}
    if CUTS in option_sets(type(config)):
        found[path] = config
    for field in fields(config):
        value = getattr(config, field.name)
        if is_dataclass(value):
            found |= _parts(value, f"{path}{field.name}.")
        elif isinstance(value, tuple):
            for number, part in enumerate(value, 1):
                if is_dataclass(part):
                    # An ensemble has a tuple of models, a hybrid one of cells.
                    found |= _parts(part, f"{path}{field.name}.{number}.")
    return found


def _label(config: Any) -> str:
    """Return "cut carry (6) + write (7)", in a stack "cut layer 3: carry (6)"."""
    names = []
    for path, part in _parts(config).items():
        if not part.cuts:
            continue
        name = numbered(part.cuts).replace(", ", " + ")
        numbers = list(filter(str.isdecimal, path.split(".")))
        for number in reversed(numbers):
            name = f"layer {number}: {name}"
        names.append(name)
    return f"cut {' + '.join(names)}"


def _with_cuts(config: Any, chosen: set[tuple[str, Any]]) -> Any:
    own = {path: set(part.cuts) for path, part in _parts(config).items()}
    for path, cut in chosen:
        own[path].add(cut)
    return _set_cuts(config, own)


def _set_cuts(config: Any, cuts: Mapping[str, set[Any]]) -> Any:
    """Return a model with these cuts of its parts, and no others."""
    settings = {}
    for path in _parts(config):
        chosen = cuts.get(path, ())
        settings[f"model.{path}{CUTS}"] = sorted(map(str, chosen))
    nested = nest_settings(settings, "model")
    # By `change`, which names a cut that the other fields do not allow.
    return zoo.change(config, nested)


@dataclass(frozen=True)
class Inherited:
    """What a cut model has of the weights of the whole one."""

    kept: Mapping[str, Tensor]
    """Weight of the cut model -> the places of its numbers in the whole model's weight."""
    own: tuple[str, ...]
    """Weights that the cut brings, or that change their form."""
    removed: Mapping[str, Tensor]
    """Weight of the whole model -> which of its numbers the cut model lacks."""

    def load(self, cut: LanguageModel, trained: Mapping[str, Tensor]):
        """Give a cut model the weights of a trained one; its own ones stay as they are."""
        state = cut.state_dict()
        for name, places in self.kept.items():
            found = trained[name].flatten()[places]
            state[name] = found.view_as(state[name])
        cut.load_state_dict(state)


def inherited(whole: LanguageModel, cut: LanguageModel) -> Inherited:
    """Return what a cut model has of the weights of a whole one; both lose their weights."""
    before = _numbered_weights(whole)
    kept = {}
    own = []
    # All, until a weight of the cut is found in the whole.
    removed = {name: torch.ones_like(numbers, dtype=torch.bool) for name, numbers in before.items()}
    for name, numbers in _numbered_weights(cut).items():
        places = None
        if name in before:
            places = _places(before[name], numbers)
        if places is None:
            own.append(name)
            continue
        kept[name] = places
        removed[name][places] = False
    gone = {
        name: removed[name].view(values.shape)
        for name, values in whole.state_dict().items()
        if removed[name].any()
    }
    return Inherited(kept, tuple(own), gone)


def _places(whole: Tensor, part: Tensor) -> Tensor | None:
    """Return where the numbers of a part are in the whole; None if this is not known."""
    # The usual case needs no search: most weights are not cut.
    if whole.equal(part):
        return torch.arange(len(whole))
    order = whole.argsort()
    ascending = whole[order]
    # Equal numbers have no place of their own: those of a buffer, or of a weight that is constant.
    distinct = ascending[1:] > ascending[:-1]
    if len(whole) == 0 or not distinct.all():
        return None
    # Numbers are distinct, so a number tells its place in the whole.
    found = torch.searchsorted(ascending, part)
    last = len(whole) - 1
    places = order[found.clamp(max=last)]
    if whole[places].equal(part):
        return places
    return None


@torch.no_grad()
def _numbered_weights(model: LanguageModel) -> dict[str, Tensor]:
    """Return the flat weights of a model, each filled with numbers that are all different."""

    def numbers(name: str, shape: torch.Size | tuple[int, ...]) -> Tensor:
        # From 1: a cut may fill with zeros what it takes away.
        count = torch.Size(shape).numel()
        return torch.arange(1.0, count + 1).view(shape)

    for name, values in model.named_parameters():
        values.copy_(numbers(name, values.shape))
    for module in model.modules():
        # A cell numbers the weights of the whole cell, and keeps what its cuts leave.
        if isinstance(module, Weights):
            module.fill(numbers)
    return {name: values.flatten() for name, values in model.state_dict().items()}
