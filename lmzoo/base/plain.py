"""Plain data: what JSON, TOML, configs and rows of tables hold."""

from collections.abc import Mapping
from typing import Any

Fields = Mapping[str, Any]
"""Names and their values, which are only read."""
FieldsDict = dict[str, Any]
"""Names and their values, of which the owner may change some."""
Texts = tuple[str, ...]
