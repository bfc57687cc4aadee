"""The catalogue: every tool that there is, checked as a whole before anything runs.

Keeps the half of DESIGN section 4 that no contract can check alone: names are unique, an undo and a fallback
exist and are of the right effect, and every receiver is one that the settings can name. `finish` is the model's
only other word; it stands here so that one version covers all that the model can say.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, TypeVar

from pydantic import Field

from remit.tools.accounts import ListAffectedAccounts, ReadAccount
from remit.tools.actions import Json, StepName, Strict, canonical_hash
from remit.tools.annotations import AnnotateAccount, RemoveNote
from remit.tools.contracts import Contract, ReadContract, ReadTool, WriteTool
from remit.tools.errors import Misconfigured, Refused
from remit.tools.mail import SendCorrection, SendEmail
from remit.tools.payments import IssueCredit, IssueCreditLegacy
from remit.tools.reversals import ReverseCredit

RECEIVERS = ("accounts", "payments", "mail")

FINISH = "finish"


class Statement(Strict):
    """What the agent says happened. It is set beside the evidence and proves nothing."""

    text: Annotated[str, Field(min_length=1, max_length=300, pattern=r"^[^\x00]*$")]
    step: StepName | None = Field(default=None, description="The mandate's step that the statement is about.")
    count: Annotated[int, Field(ge=0, le=1_000_000)] | None = Field(
        default=None, description="For how many subjects that step is completed."
    )


class Finish(Strict):
    """The arguments of `finish`: the end of the work as the agent sees it."""

    statements: Annotated[tuple[Statement, ...], Field(max_length=20)]


T = TypeVar("T")


class Catalogue:
    """The tools of one agent. Misconfigured, naming tool and remedy, when they do not fit together."""

    def __init__(
        self,
        writes: Sequence[WriteTool],
        reads: Sequence[ReadTool],
        receivers: Collection[str] = RECEIVERS,
    ) -> None:
        every = [tool.contract for tool in writes] + [tool.contract for tool in reads]
        _check_names([contract.name for contract in every])
        for each in every:
            for receiver in (each.receiver, *(each.reads_from if isinstance(each, Contract) else ())):
                _check_receiver(each, receiver, receivers)
        self._writes = {tool.contract.name: tool for tool in writes}
        self._reads = {tool.contract.name: tool for tool in reads}
        contracts = {name: tool.contract for name, tool in self._writes.items()}
        for contract in contracts.values():
            _check_undo(contract, contracts)
            _check_fallback(contract, contracts)
        for writing in writes:
            _check_batch(writing)
        for reading in reads:
            _check_pii(reading)
        self.version = self._version()

    def write(self, name: str) -> WriteTool:
        """Refused for a name that no writing tool has, with the names that there are."""
        return _named(self._writes, name, "changes")

    def read(self, name: str) -> ReadTool:
        """Refused for a name that no reading tool has, with the names that there are."""
        return _named(self._reads, name, "reads")

    def writes(self) -> list[WriteTool]:
        return list(self._writes.values())

    def reads(self) -> list[ReadTool]:
        return list(self._reads.values())

    def for_agents(self) -> list[WriteTool]:
        """The writing tools that a model is told of; undo tools answer to recovery mandates only."""
        return [tool for tool in self.writes() if tool.contract.for_agents]

    def tools_of(self, effect: str) -> list[WriteTool]:
        """All paths to one effect: whoever looks for it at the system of record means all of them."""
        return [tool for tool in self.writes() if tool.contract.effect == effect]

    def openai_tools(self) -> list[dict[str, Json]]:
        """The `tools` of a chat-completions request: reads, the agent's writes, and `finish`."""
        reads = [
            _function(tool.contract.name, tool.contract.summary, tool.arguments) for tool in self.reads()
        ]
        writes = [_function(tool.contract.name, _told(tool), tool.arguments) for tool in self.for_agents()]
        ending = (
            "Ends the work. State what was done, each statement with its step and count where it has one."
        )
        return [*reads, *writes, _function(FINISH, ending, Finish)]

    def rows(self) -> list[dict[str, Json]]:
        """One row per tool for people: `kind`, its contract, and for a writing tool `at_most_once` in words."""
        reads = [{"kind": "read", **tool.contract.model_dump(mode="json")} for tool in self.reads()]
        writes = [
            {
                "kind": "write",
                **tool.contract.model_dump(mode="json"),
                "at_most_once": at_most_once(tool.contract),
            }
            for tool in self.writes()
        ]
        return [*reads, *writes]

    def _version(self) -> str:
        """Twelve hex digits over all contracts and schemas, undo tools included, whatever their order."""
        said: list[tuple[dict[str, Json], type[Strict]]] = [
            (tool.contract.model_dump(mode="json"), tool.arguments) for tool in self.writes()
        ]
        said += [(tool.contract.model_dump(mode="json"), tool.arguments) for tool in self.reads()]
        tools = [{"contract": contract, "arguments": _schema(kind)} for contract, kind in said]
        tools.sort(key=lambda tool: str(tool["contract"]["name"]))
        return canonical_hash(_exact({"tools": tools, FINISH: _schema(Finish)})).removeprefix("v1:")[:12]


def credit_catalogue() -> Catalogue:
    """The tools of the subscription-credit agent, undo tools included."""
    return Catalogue(
        writes=[
            IssueCredit(),
            IssueCreditLegacy(),
            AnnotateAccount(),
            SendEmail(),
            ReverseCredit(),
            RemoveNote(),
            SendCorrection(),
        ],
        reads=[ListAffectedAccounts(), ReadAccount()],
    )


def at_most_once(contract: Contract) -> str:
    """What guarantees that one operation has at most one effect, and what that leaves open."""
    if contract.receiver_enforces_key and contract.key_probe is not None:
        shown = contract.key_probe.date
        return f"the receiver enforces the key, for {contract.key_retention:g} s (shown {shown})"
    if contract.visible_within is None:
        return "not guaranteed: no key, and absence from the records proves nothing; a person decides"
    guard = "a repeated change fails its If-Match; " if contract.conditional is not None else ""
    return f"{guard}no key: sent again only once its absence is read and the earlier sender is proved dead"


def _named(tools: dict[str, T], name: str, what: str) -> T:
    if name not in tools:
        known = ", ".join(sorted(tools))
        raise Refused(f"No tool that {what} is called {name!r}. Use one of: {known}.", code="unknown_tool")
    return tools[name]


def _check_names(names: Iterable[str]) -> None:
    seen = {FINISH}
    for name in names:
        if name in seen:
            raise Misconfigured(
                f"{name} is the name of more than one tool. Rename one of them.", code="duplicate_name"
            )
        seen.add(name)


def _check_receiver(contract: Contract | ReadContract, receiver: str, receivers: Collection[str]) -> None:
    if receiver not in receivers:
        known = ", ".join(sorted(receivers))
        raise Misconfigured(
            f"{contract.name} calls the receiver {receiver}, which has no address. Name one of: {known}.",
            code="unknown_receiver",
        )


def _check_undo(contract: Contract, contracts: dict[str, Contract]) -> None:
    if contract.undo is None:
        return
    undo = contracts.get(contract.undo.tool)
    if undo is None:
        raise Misconfigured(
            f"{contract.name} is undone by {contract.undo.tool}, which is not in the catalogue. Add it.",
            code="undo_missing",
        )
    if undo.effect == contract.effect:
        raise Misconfigured(
            f"{contract.name} is undone by {undo.name} of the same effect {undo.effect}, so that the undo "
            "would count as the effect. Give the undo an effect of its own.",
            code="undo_effect",
        )
    if undo.for_agents:
        raise Misconfigured(
            f"{undo.name} undoes {contract.name} and is open to agents. Set its for_agents to False.",
            code="undo_for_agents",
        )


def _check_fallback(contract: Contract, contracts: dict[str, Contract]) -> None:
    if contract.fallback is None:
        return
    other = contracts.get(contract.fallback)
    if other is None or other is contract:
        raise Misconfigured(
            f"{contract.name} falls back to {contract.fallback}, no other tool here. Add it or name another.",
            code="fallback_missing",
        )
    if other.effect != contract.effect:
        raise Misconfigured(
            f"{contract.name} ({contract.effect}) falls back to {other.name} ({other.effect}). "
            "Name a tool of the same effect.",
            code="fallback_effect",
        )


def _check_batch(tool: WriteTool) -> None:
    kind = type(tool)
    if tool.contract.batch > 1 and WriteTool.batch_request is kind.batch_request:
        raise Misconfigured(
            f"{tool.contract.name} has a batch of {tool.contract.batch} and no batch_request. Write one.",
            code="batch_missing",
        )


def _check_pii(tool: ReadTool) -> None:
    shown = sorted(set(tool.contract.fields) & set(tool.contract.pii))
    if shown:
        raise Misconfigured(
            f"{tool.contract.name} returns {', '.join(shown)}, which it marks as personal. "
            "Take them out of its fields.",
            code="pii_returned",
        )


def _told(tool: WriteTool) -> str:
    contract = tool.contract
    return (
        f"{contract.summary} Effect {contract.effect}, {contract.reversibility}. "
        "Give exactly one of subject and cohort."
    )


def _function(name: str, description: str, arguments: type[Strict]) -> dict[str, Json]:
    parameters = _schema(arguments)
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


def _schema(arguments: type[Strict]) -> dict[str, Json]:
    """The JSON schema without pydantic's titles and docstrings: the model pays for each word of it."""
    schema: dict[str, Json] = _bare(arguments.model_json_schema())
    schema.pop("description", None)
    return schema


def _bare(value: Json) -> Json:
    if isinstance(value, dict):
        return {
            name: _bare(item)
            for name, item in value.items()
            if not (name == "title" and isinstance(item, str))
        }
    return [_bare(item) for item in value] if isinstance(value, list) else value


def _exact(value: Json) -> Json:
    """Durations as whole milliseconds: a float has no exact form that could be hashed."""
    if isinstance(value, float):
        return round(value * 1000)
    if isinstance(value, dict):
        return {name: _exact(item) for name, item in value.items()}
    return [_exact(item) for item in value] if isinstance(value, list) else value
