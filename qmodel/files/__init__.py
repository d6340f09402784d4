"""YAML and JSON read with positions, and text written whole or not at all."""

from qmodel.files.documents import Document
from qmodel.files.json_reader import read_json
from qmodel.files.key_paths import join_key, parent_key, split_key
from qmodel.files.raw_text import read_raw
from qmodel.files.writing import write_text
from qmodel.files.yaml_reader import parse_value, read_yaml, read_yaml_text

__all__ = [
    "Document",
    "join_key",
    "parent_key",
    "parse_value",
    "read_json",
    "read_raw",
    "read_yaml",
    "read_yaml_text",
    "split_key",
    "write_text",
]
