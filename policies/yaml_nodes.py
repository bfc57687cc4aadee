"""YAML as lines and plain values: strict, without tags, anchors, repeated keys or guesses about types.

Every refusal says FILE:LINE and what to do, since its reader is the manager who wrote the file.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import NoReturn

import yaml

from remit.tools.errors import Refused

MAX_BYTES = 64 * 1024
"""A mandate is a page of text; a list of 2,000 customers still fits."""

_KINDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number with a point",
    "bool": "yes/no",
    "null": "nothing",
}


@dataclass(frozen=True, slots=True)
class Value:
    """One value of the file with its place."""

    file: str
    node: yaml.Node

    @property
    def line(self) -> int:
        return int(self.node.start_mark.line) + 1

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.node, yaml.MappingNode)

    def refuse(self, what: str, advice: str) -> NoReturn:
        """Raises Refused (mandate_invalid): `FILE:LINE: what. advice.`"""
        refuse(self.file, self.line, what, advice)

    def members(self, allowed: Collection[str], required: Collection[str] = ()) -> dict[str, "Value"]:
        """The members of a mapping. Refuses unknown, repeated and missing keys."""
        if not isinstance(self.node, yaml.MappingNode):
            self.refuse("Names with values are expected here", f"Write {', '.join(sorted(allowed))}")
        found: dict[str, Value] = {}
        for key_node, value_node in self.node.value:
            key, name = Value(self.file, key_node), str(key_node.value)
            if name not in allowed:
                key.refuse(f"`{name}` is not known here", f"Use one of: {', '.join(sorted(allowed))}")
            if name in found:
                key.refuse(f"`{name}` stands twice", "Keep one of them")
            found[name] = Value(self.file, value_node)
        for name in required:
            if name not in found:
                self.refuse(f"`{name}` is missing", f"Add a line `{name}: …`")
        return found

    def items(self) -> list["Value"]:
        """The items of a list."""
        if not isinstance(self.node, yaml.SequenceNode):
            self.refuse("A list is expected here", "Write it as [one, two] or with a dash per line")
        return [Value(self.file, node) for node in self.node.value]

    def named(self) -> list[tuple["Value", "Value"]]:
        """The members of a mapping whose keys are the writer's own. Refuses repeated keys."""
        if not isinstance(self.node, yaml.MappingNode):
            self.refuse("Names with values are expected here", "Write `name: …` on a line of its own")
        keys = [str(key.value) for key, _ in self.node.value]
        self.members(allowed=keys)
        return [(Value(self.file, key), Value(self.file, value)) for key, value in self.node.value]

    def text(self) -> str:
        """Text that is not empty."""
        value = self._scalar("str", "text", "Put it in quotes")
        if not value.strip():
            self.refuse("This is empty", "Say it in words")
        return value

    def whole(self, least: int, most: int) -> int:
        """A whole number from `least` to `most`."""
        value = self._scalar("int", "a whole number", "Write digits only")
        if not value.isdigit() or not least <= int(value) <= most:
            self.refuse(f"{value} is not from {least} to {most}", "Write a number in that range")
        return int(value)

    def written(self) -> str:
        """The characters of a scalar as they stand in the file, for what has a form of its own (a time)."""
        if not isinstance(self.node, yaml.ScalarNode):
            self.refuse("One value is expected here", "Write it on one line")
        return str(self.node.value)

    def _scalar(self, kind: str, expected: str, advice: str) -> str:
        tag = self.node.tag.rpartition(":")[2]
        if not isinstance(self.node, yaml.ScalarNode) or tag != kind:
            self.refuse(
                f"{expected[0].upper()}{expected[1:]} is expected here, not {_KINDS.get(tag, tag)}", advice
            )
        return str(self.node.value)


def refuse(file: str, line: int, what: str, advice: str) -> NoReturn:
    """Raises Refused with the place, what is wrong and what to do."""
    raise Refused(f"{file}:{line}: {what}. {advice}.", code="mandate_invalid", file=file, line=line)


def read_yaml(file: str, content: bytes) -> Value:
    """The one document of a file. Raises Refused for what is no plain YAML."""
    if len(content) > MAX_BYTES:
        refuse(file, 1, f"The file is longer than {MAX_BYTES} bytes", "Shorten it")
    try:
        text = content.decode()
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if getattr(event, "anchor", None) is not None:
                refuse(file, _line(event), "Anchors and aliases hide what is meant", "Write it out")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except UnicodeDecodeError:
        refuse(file, 1, "The file is not UTF-8", "Save it as UTF-8")
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        refuse(file, line, f"This is no YAML ({error.problem})", "Correct the line")
    except yaml.YAMLError as error:
        refuse(file, 1, f"This is no YAML ({error})", "Correct the file")
    if node is None:
        refuse(file, 1, "The file is empty", "Write a mandate, or start from an example in mandates/")
    return Value(file, node)


def _line(event: yaml.Event) -> int:
    return int(event.start_mark.line) + 1 if event.start_mark else 1
