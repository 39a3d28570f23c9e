"""Options of a study in a TOML file: `--options FILE.toml`.

    epochs = 20
    corpus = "text:my.txt"
    until-decided = true

    [set]
    model.width = 64

    [search-space]
    recipe.lr = "0.001:0.1:log"

A key is the name of an option, and a table has fields. Options on the command line count more than
those of the file. `--dry-run --options FILE.toml` writes a file that is not there yet.
"""

import json
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lmzoo.base.command_line import parse_settings
from lmzoo.base.errors import UserError, writing

FLAG, DRY_RUN = "--options", "--dry-run"


def insert_options(at: int) -> None:
    """Insert the options of the file that `sys.argv` names at this place of it."""
    for i, word in enumerate(sys.argv):
        name, equals, value = word.partition("=")
        if name == FLAG and (file := value if equals else "".join(sys.argv[i + 1 : i + 2])):
            path = Path(file)
            if path.exists() or DRY_RUN not in sys.argv:
                sys.argv[at:at] = _words(path)
            return


def _words(path: Path) -> Iterator[str]:
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        hint = f"{DRY_RUN} {FLAG} {path} writes one"
        raise UserError(
            f"cannot read {path}: {getattr(error, 'strerror', error)}; {hint}"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is not TOML: {error}") from None
    for name, value in content.items():
        if isinstance(value, Mapping):
            for field, own in _fields(value):
                text = own if isinstance(own, str) else json.dumps(own)
                yield from (f"--{name}", f"{field}={text}")
        elif value is True:
            yield f"--{name}"
        elif value is not False:
            yield from (f"--{name}", str(value))


def _fields(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield path and value of the fields of a table; TOML reads a dotted key as a table."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _fields(value, f"{before}{name}.")
        else:
            yield before + name, value


def write_options(path: Path, words: list[str]) -> None:
    """Write options of a command line, such as those of `option_words`, as TOML."""
    plain: dict[str, str] = {}
    tables: dict[str, dict[str, str]] = {}
    for word, after in zip(words, [*words[1:], "--"], strict=True):
        if not word.startswith("--"):
            continue
        name, field = word.removeprefix("--"), after.partition("=")
        if after.startswith("--"):
            plain[name] = "true"
        elif name in ("set", "search-space"):
            value = parse_settings([after])[field[0]] if name == "set" else field[2]
            shown = json.dumps("none" if value is None else value, ensure_ascii=False)
            tables.setdefault(name, {})[field[0]] = shown
        else:
            number = after.lstrip("-").replace(".", "", 1).isdecimal()
            plain[name] = after if number else json.dumps(after, ensure_ascii=False)
    blocks = [_lines(plain), *(f"[{name}]\n{_lines(own)}" for name, own in tables.items())]
    with writing(path):
        path.write_text("\n".join(blocks), encoding="utf-8")


def _lines(values: Mapping[str, str]) -> str:
    return "".join(f"{name} = {value}\n" for name, value in values.items())
