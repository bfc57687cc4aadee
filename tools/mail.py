"""The mail service: its records, the tool that sends an e-mail, and the one that sends a correction.

Keeps I2 and I12 as far as a tool can: the model chooses a template and writes no text of its own, and what a
template promises is read from the service that declares it.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, ClassVar, Literal
from urllib.parse import quote

from babel.numbers import get_currency_precision
from pydantic import Field

from remit.tools.accounts import CustomerArguments, Reference, accounts_of
from remit.tools.actions import Json, Request, subject_id
from remit.tools.answers import (
    Found,
    Listing,
    Paged,
    Record,
    Table,
    Text,
    ask,
    by_table,
    echoes,
    every_page,
    of_kind,
    parse,
    sight_each,
    withdraw_each,
)
from remit.tools.contracts import (
    Arguments,
    Budget,
    Contract,
    Listed,
    Sighting,
    Snapshot,
    Sought,
    Trace,
    Undo,
    WriteTool,
)
from remit.tools.mandates import Money, Step
from remit.tools.states import Consequence, Reversibility, Seen, Sight
from remit.tools.transport import Response, Transport

TemplateId = Annotated[
    str, Field(pattern=r"^[a-z][a-z0-9_]{0,60}$", description="The id of a mail template.")
]


class EmailArguments(CustomerArguments):
    """What a model may say about an e-mail: which template. Its values are filled by code."""

    template: TemplateId


class Template(Record):
    id: Text
    promise: Text


class Templates(Listing):
    templates: list[Template]


class Message(Record):
    """One message as the mail service answers it."""

    id: Text
    customer: Text
    template: Text
    promise: Text
    values: dict[str, Text]
    reference: Text | None
    status: Literal["queued", "delivered", "withdrawn"]


class Messages(Listing):
    messages: list[Message]


class MessagePage(Paged):
    messages: list[Message]


_FAILURES: Table = {
    (413, "too_large"): Seen.REFUSED,
    (422, "invalid"): Seen.REFUSED,
    (422, "customer_unknown"): Seen.REFUSED,
    (422, "template_unknown"): Seen.REFUSED,
}

_WITHDRAW_FAILURES: Table = {(409, "already_delivered"): Seen.REFUSED}


def money_text(money: Money) -> str:
    """`10.00 USD`: as many decimals as the currency has, and no float on the way."""
    decimals = get_currency_precision(money.currency)
    if decimals == 0:
        return f"{money.amount_minor} {money.currency}"
    digits = str(money.amount_minor).rjust(decimals + 1, "0")
    return f"{digits[:-decimals]}.{digits[-decimals:]} {money.currency}"


class _MailTool(WriteTool):
    """What every message has in common, whatever it is for."""

    def request(self, subject: str, intent: dict[str, Json], reference: str) -> Request:
        body = {
            "customer": subject_id(subject),
            "template": intent["template"],
            "values": dict(intent["values"]),
            "reference": reference,
        }
        return Request(method="POST", path="/messages", body=body)

    def classify(self, response: Response, request: Request) -> Seen:
        if response.status != 202:
            return by_table(response, _FAILURES)
        message = parse(Message, response.body)
        echoed = echoes(message, request.body, ("customer", "template", "values", "reference"))
        taken = message is not None and message.status != "withdrawn"
        return Seen.ACCEPTED if taken and echoed else Seen.UNKNOWN

    async def snapshot_many(self, transport: Transport, asked: Sequence[Sought]) -> dict[str, Snapshot]:
        """`promise`: what the service declares for the template now, None where it does not know it."""
        seconds = self.contract.timeout
        known = await accounts_of(transport, [one.subject for one in asked], seconds)
        listed = await ask(transport, "mail", "GET /templates", Templates, seconds=seconds)
        promises = {template.id: template.promise for template in listed.templates}
        return {
            one.reference: Snapshot(
                {"exists": one.subject in known, "promise": promises.get(one.intent["template"])}
            )
            for one in asked
        }

    async def verify_many(self, transport: Transport, sought: Sequence[Sought]) -> list[Sighting]:
        async def look(references: list[str]) -> Found[Message]:
            answer = await ask(
                transport,
                "mail",
                "POST /messages/search",
                Messages,
                seconds=self.contract.timeout,
                body={"references": references},
            )
            return Found(answer.as_of, answer.messages)

        source = "mail: messages by reference"
        return await sight_each(sought, source, look, judge_messages, lambda message: message.reference)

    async def enumerate(self, transport: Transport, since: datetime) -> Listed | None:
        pages = await every_page(
            transport, "mail", "/messages", MessagePage, since=since, seconds=self.contract.timeout
        )
        traces = [
            Trace(message.reference, message.model_dump(mode="json"))
            for page in pages
            for message in page.messages
            if message.reference is not None
            and message.status != "withdrawn"
            and (message.template == CORRECTION) == (self.contract.effect == "email.correct")
        ]
        return Listed("mail: list of messages", pages[-1].as_of, traces)

    async def withdraw(self, transport: Transport, records: list[Json]) -> Seen:
        """ACCEPTED when every message of the evidence is now withdrawn, REFUSED when one was delivered."""

        def judge(name: str, response: Response) -> Seen:
            message = parse(Message, response.body) if response.status == 200 else None
            if message is not None and (message.id, message.status) == (name, "withdrawn"):
                return Seen.ACCEPTED
            return by_table(response, _WITHDRAW_FAILURES)

        paths = {record["id"]: f"/messages/{quote(record['id'], safe='')}/withdraw" for record in records}
        return await withdraw_each(transport, "mail", paths, judge, seconds=self.contract.timeout)


def judge_messages(one: Sought, messages: list[Message]) -> Sight:
    """What the messages under one reference prove. A promise counts where the mandate gave one."""
    live = [message for message in messages if message.status != "withdrawn"]
    if not live:
        return Sight.WITHDRAWN if messages else Sight.ABSENT
    if len(live) > 1:
        return Sight.MULTIPLE
    message, intent = live[0], one.intent
    wanted = (subject_id(one.subject), intent["template"], intent["values"])
    same = (message.customer, message.template, message.values) == wanted
    if not same or intent["promise"] not in {None, message.promise}:
        return Sight.DIFFERENT
    return Sight.PENDING if message.status == "queued" else Sight.EFFECTIVE


class SendEmail(_MailTool):
    """Sends one message from a template. It can be withdrawn until it is delivered, then only corrected."""

    contract: ClassVar[Contract] = Contract(
        name="send_email",
        version="1",
        effect="email.send",
        summary="Sends a customer one e-mail from a template of the mail service.",
        receiver="mail",
        reads_from=("accounts",),
        credential="mail",
        authority="messages:send",
        writes=("messages",),
        records="messages of the mail service, by the operation's reference",
        for_agents=True,
        retry_safe=False,
        reversibility=Reversibility.IRREVERSIBLE,
        # It takes nothing back: it says what was wrong, which is all that is left once a message was read.
        undo=Undo(
            tool="send_correction",
            owner="support_manager",
            approval="support-manager decides per record",
            test="tests/tools/test_undo.py::test_a_delivered_message_is_corrected",
        ),
        consequence=Consequence.MEDIUM,
        receiver_enforces_key=False,
        key_probe=None,
        key_retention=None,
        conditional=None,
        relies_on=("exists", "promise"),
        visible_within=2.0,
        timeout=5.0,
        concurrency=8,
        batch=1,
        budget=Budget(attempts=3, seconds=3_600.0),
        expires_after=None,
    )
    arguments: ClassVar[type[Arguments]] = EmailArguments

    def intent(self, subject: str, arguments: Arguments, step: Step | None, purpose: str) -> dict[str, Json]:
        """`values` holds the amount that the mandate's step announces, and nothing that the model wrote."""
        said = of_kind(EmailArguments, arguments)
        money = step.announces if step is not None else None
        return {
            "subject": subject,
            "template": said.template,
            "promise": step.promise if step is not None else None,
            "values": {} if money is None else {"amount": money_text(money)},
        }


CORRECTION = "credit_correction"
CORRECTION_TEXT = "Please disregard it. What holds for your account is what your account page shows."


class CorrectionArguments(CustomerArguments):
    """What a recovery mandate says: which message was wrong."""

    undoes: Reference


class SendCorrection(_MailTool):
    """Says that an earlier message was wrong, in words that are the same for everybody."""

    contract: ClassVar[Contract] = Contract(
        name="send_correction",
        version="1",
        effect="email.correct",
        summary="Sends a customer the correction of one earlier message.",
        receiver="mail",
        reads_from=("accounts",),
        credential="mail",
        authority="messages:send",
        writes=("messages",),
        records="messages of the mail service, by the operation's reference",
        for_agents=False,
        retry_safe=False,
        reversibility=Reversibility.IRREVERSIBLE,
        undo=None,
        consequence=Consequence.MEDIUM,
        receiver_enforces_key=False,
        key_probe=None,
        key_retention=None,
        conditional=None,
        relies_on=("exists", "promise"),
        visible_within=2.0,
        timeout=5.0,
        concurrency=8,
        batch=1,
        budget=Budget(attempts=3, seconds=3_600.0),
        expires_after=None,
    )
    arguments: ClassVar[type[Arguments]] = CorrectionArguments

    def intent(self, subject: str, arguments: Arguments, step: Step | None, purpose: str) -> dict[str, Json]:
        said = of_kind(CorrectionArguments, arguments)
        return {
            "subject": subject,
            "template": CORRECTION,
            "promise": step.promise if step is not None else None,
            "values": {"correction": CORRECTION_TEXT},
            "undoes": said.undoes,
        }
