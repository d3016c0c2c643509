"""YAML that means the same to the reader of job files and to everybody else's."""

import re
from typing import Any

import yaml

# What one reader of YAML or another takes for a number, a date or a word; the emitter knows only
# the words of YAML 1.1. Durations, as job files have them, are text to all.
_AMBIGUOUS = re.compile(r"[^A-Za-z_/].*|null|true|false|yes|no|on|off|y|n|nan|inf(inity)?", re.I)
_DURATION = re.compile(r"([0-9]+(w|d|h|ms|m|s|us|ns))+")
_BREAK = re.compile("[\x85\u2028\u2029]")
"""Line breaks to YAML 1.1 and none to anybody else: only an escape survives both."""
_WIDTH = 1_000_000
"""Long texts stay on their line, so that what is copied from the screen is whole."""


def yaml_text(value: Any) -> str:
    """Returns plain values (as JSON has them) as YAML, in the order in which they were built."""
    return yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH, indent=2
    )


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        """Writes equal values out: a job file has no anchors."""
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT001
        """Indents lists inside mappings."""
        super().increase_indent(flow, False)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if _BREAK.search(text):
        style = '"'
    elif "\n" in text:
        style = "|"  # where the text allows it; in double quotes otherwise
    elif not text or (_AMBIGUOUS.fullmatch(text) and not _DURATION.fullmatch(text)):
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
